"""The simulator: closed forms, common random numbers, and results that nothing but their settings can change."""

import sys

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Example21, Gaussian, HeartSteps
from tests import reference

CLOSED_FORMS = {0.1: (0.02285, 0.02243), 0.25: (0.05271, 0.05053), 1.0: (0.15342, 0.13615), 2.0: (0.22787, 0.19053)}


@pytest.mark.parametrize("error_var", CLOSED_FORMS)
def test_the_oracles_regret_is_its_closed_form(error_var: float) -> None:
    on_noisy, on_guess = CLOSED_FORMS[error_var]
    assert reference.oracle_regret(error_var, 0.2, bayes=False) == pytest.approx(on_noisy, abs=1e-5)
    assert reference.oracle_regret(error_var, 0.2, bayes=True) == pytest.approx(on_guess, abs=1e-5)
    results = mb.simulate(Gaussian(error_cov=error_var), [mb.oracle(2, 5, floor=0.2, name="o")], horizon=20_000, replicates=20, seed=4)
    for policy, expected in (("oracle on x̃", on_noisy), ("oracle on E[x|x̃]", on_guess), ("uniform", 0.58789)):
        assert abs(results.mean(policy) - expected) < 4.5 * results.std_error(policy)
    assert results.mean("o") == results.mean("oracle on x̃")


def test_no_policy_exceeds_the_largest_regret() -> None:
    """Always taking the worse action with 1 - p0: 1.17577 per round."""
    worst = mb.oracle(2, 5, theta=[[6.0, 5, 5, 5, 5], [5.0, 6, 4, 6, 4]], floor=0.2, name="worst")
    results = mb.simulate(Gaussian(error_cov=0.0), [worst], horizon=20_000, replicates=10)
    assert abs(results.mean("worst") - 1.17577) < 4.5 * results.std_error("worst")


@pytest.mark.parametrize("error_var", [0.1, 1.0, 2.0])
def test_the_papers_order_of_policies(error_var: float) -> None:
    """T = 50000: MEB < naive < UCB, TS in mean regret at σε² >= 1; the oracle matches its closed form."""
    policies = [mb.meb(2, 5), mb.meb_naive(2, 5), mb.lin_ucb(2, 5), mb.thompson(2, 5)]
    results = mb.simulate(Gaussian(error_cov=error_var), policies, horizon=50_000, replicates=20, seed=1)
    oracle = results.mean("oracle on x̃")
    assert abs(oracle - CLOSED_FORMS[error_var][0]) < 4.5 * results.std_error("oracle on x̃")
    if error_var >= 1:
        assert results.mean("MEB") < results.mean("MEB-naive") < min(results.mean("UCB"), results.mean("TS"))
        finals = results.replicates().pivot(index="replicate", columns="policy", values="clipped_regret")
        gap = finals["MEB-naive"] - finals["MEB"]
        assert gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(len(gap)), "on common random numbers the order is not luck"


def test_example_21_has_linear_regret_for_everyone() -> None:
    """0.4 times the chance of the wrong sign, 0.4: 0.16 standard regret per round even for the oracle, unclipped."""
    results = mb.simulate(Example21(), [mb.meb(2, 1, floor=0.05)], horizon=5000, replicates=20, floor=0.0)
    assert abs(results.mean("oracle on x̃", "standard_regret") - 0.16) < 4.5 * results.std_error("oracle on x̃", "standard_regret")
    assert results.mean("MEB", "standard_regret") > 0.16


def test_results_do_not_depend_on_workers_blocks_or_company(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = HeartSteps(noise_sd=0.3)
    policies = [mb.meb(2, 7), mb.thompson(2, 7), mb.robust_ucb(2, 7, horizon=700)]
    one = mb.simulate(environment, policies, horizon=700, replicates=6, workers=1)
    many = mb.simulate(environment, policies, horizon=700, replicates=6, workers=4)
    for field in ("standard_regret", "clipped_regret", "estimation_error", "guarded_fits"):
        np.testing.assert_array_equal(getattr(one, field), getattr(many, field))
    alone = mb.simulate(environment, [policies[1]], horizon=700, replicates=6, references=False)
    np.testing.assert_array_equal(alone.clipped_regret[0], one.clipped_regret[1])
    monkeypatch.setattr(sys.modules["mebandit.simulation.simulate"], "BLOCK", 97)
    np.testing.assert_array_equal(mb.simulate(environment, policies, horizon=700, replicates=6).clipped_regret, one.clipped_regret)


def test_seeds_cells_and_replicates_differ() -> None:
    def run(**where: int) -> reference.Floats:
        return mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=100, replicates=3, references=False, **where).standard_regret[0, :, -1]  # type: ignore[arg-type]

    base = run(seed=1)
    assert len(set(base)) == 3
    assert not np.isin(run(seed=2), base).any()
    assert not np.isin(run(seed=1, cell=1), base).any()
    np.testing.assert_array_equal(run(seed=1), base)


def test_the_regret_is_in_expectation_at_the_true_context() -> None:
    """Uniform play's regret is exactly half the mean gap, whatever it draws."""
    environment = Gaussian()
    results = mb.simulate(environment, [mb.meb(2, 5, floor=0.5)], horizon=500, replicates=2)
    from mebandit.values import Stretch

    tape = environment.tape(Stretch(1, 0, 0, 0, 500))
    gap = np.abs(tape.context @ np.array([1.0, -1, 1, -1, 1]))
    np.testing.assert_allclose(results.standard_regret[0, 0, -1], gap.sum() / 2)
    np.testing.assert_allclose(results.clipped_regret[0, 0, -1], 0.0, atol=1e-9)


def test_the_clipped_benchmark_takes_the_smallest_floor() -> None:
    policies = [mb.meb(2, 5, floor=0.3, name="high"), mb.meb(2, 5, floor=0.1, name="low")]
    results = mb.simulate(Gaussian(), policies, horizon=200, replicates=2)
    explicit = mb.simulate(Gaussian(), policies, horizon=200, replicates=2, floor=0.1)
    np.testing.assert_array_equal(results.clipped_regret, explicit.clipped_regret)
    assert (np.diff(results.clipped_regret, axis=-1) >= -1e-9).all(), "every policy lies in the class whose best is the benchmark"


def test_tables_and_plots(tmp_path: object) -> None:
    results = mb.simulate(Gaussian(), {"mine": mb.meb(2, 5)}, horizon=300, replicates=3)
    assert list(results.summary()["policy"]) == ["mine", "uniform", "oracle on x̃", "oracle on E[x|x̃]"]
    curves = results.curves()
    assert list(curves.columns) == ["policy", "measure", "time", "mean", "std_error"]
    assert len(curves) == 4 * (4 + 2) * len(results.times)
    assert results.to_arrow().num_rows == len(curves)
    last = curves[(curves["policy"] == "mine") & (curves["measure"] == "clipped_regret")].iloc[-1]
    assert last["mean"] == pytest.approx(results.mean("mine"))
    path = tmp_path / "plot.png"  # type: ignore[operator]
    results.plot("estimation_error", path=path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_progress_is_reported_once_per_replicate() -> None:
    seen: list[tuple[int, int]] = []
    mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=50, replicates=5, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]
