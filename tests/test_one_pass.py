"""Fourth moments instead of a second time through a log: the same numbers, and no less care."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import mebandit as mb
from mebandit.analysis import formats, one_pass
from mebandit.analysis.inference import compile_ahead
from mebandit.analysis.source import Source
from mebandit.correction import Correction
from mebandit.estimators import METHODS, Options, solve_log
from mebandit.fourth_moments import fourth_moments
from mebandit.measurement import from_confusion, from_validation
from mebandit.moments import Rounds, check_rounds, crossproducts
from tests.strategies import Case, logs


def make_log(n: int, d: int = 3, k: int = 2, seed: int = 0, *, drift: float = 0.0) -> pd.DataFrame:
    """Rounds of a policy that reads the predictions, whose mean is 0 at first and `drift` in the end."""
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 1, (n, d)) + drift * np.arange(n)[:, None] / n
    seen = x + rng.normal(0, 0.6, x.shape)
    pi = np.exp(np.clip(seen @ rng.normal(0, 0.4, (d, k)), -2, 2))
    pi /= pi.sum(axis=1, keepdims=True)
    action = (pi.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=k - 1)
    reward = (x * rng.normal(0, 1, (k, d))[action]).sum(axis=1) + rng.exponential(1, n)
    columns = {f"predicted_{i}": seen[:, i] for i in range(d)} | {"action": action, "reward": reward}
    return pd.DataFrame(columns | {f"propensity_{a}": pi[:, a] for a in range(k)})


def taken(log: pd.DataFrame) -> pd.DataFrame:
    """The log with the probability of the action taken only."""
    names = [name for name in log if str(name).startswith("propensity")]
    return log.drop(columns=names).assign(propensity=log[names].to_numpy()[np.arange(len(log)), log["action"]])


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a log is gone through for, each time."""
    compile_ahead(False)
    found: list[str] = []
    through = Source.through

    def counting(self: Source, work: Any, merge: Any, what: str) -> Any:
        found.append(what)
        return through(self, work, merge, what)

    monkeypatch.setattr(Source, "through", counting)
    return found


def twice(monkeypatch: pytest.MonkeyPatch, log: Any, **options: Any) -> mb.Analysis:
    """The analysis from scores, by going through the log a second time."""
    with monkeypatch.context() as context:
        context.setattr(one_pass, "MOST_FEATURES", 0)
        return mb.fit(log, **options)


def assert_same(found: mb.Analysis, expected: mb.Analysis, rtol: float = 1e-8) -> None:
    for method, estimate in expected.estimates.items():
        np.testing.assert_allclose(found.estimates[method].theta, estimate.theta, rtol=rtol, err_msg=method)
        size = np.sqrt(np.outer(np.diag(estimate.covariance), np.diag(estimate.covariance)))
        np.testing.assert_allclose(found.estimates[method].covariance / size, estimate.covariance / size, atol=rtol, err_msg=method)
    other = {finding.name: finding for finding in expected.diagnostics}
    for finding in found.diagnostics:
        for name, values in finding.values.items():
            np.testing.assert_allclose(values, other[finding.name].values[name], rtol=rtol, atol=1e-9, err_msg=f"{finding.name}: {name}")
        assert finding.verdict == other[finding.name].verdict


# ---- the sums ------------------------------------------------------------------------------------------------------------


def rounds_of(case: Case) -> Rounds:
    return check_rounds(case.x, case.actions, case.r, case.taken, 0.0, n_actions=case.n_actions)


@given(logs(rounds=(1, 60), restricted=False), st.booleans())
def test_every_product_of_four_is_summed_once(case: Case, few: bool) -> None:
    """Propensities of two values are sorted by these, many are not."""
    rounds = rounds_of(case)
    if few:
        rounds = rounds._replace(propensities=np.where(rounds.propensities > 0.4, 0.75, 0.2))
    d, n = rounds.predicted.shape
    found = fourth_moments(rounds, case.n_actions)[0].sums
    v = np.vstack([np.ones(n), rounds.predicted, rounds.rewards])
    pairs = [(i, j) for i in range(d + 2) for j in range(i, d + 2)]
    expected = np.zeros_like(found)
    for a in range(case.n_actions):
        for m in range(3):
            w = (rounds.actions == a) / rounds.propensities**m
            for i, (first, second) in enumerate(pairs):
                for j, (third, fourth) in enumerate(pairs):
                    if second <= third and second <= d:
                        expected[a, m, i, j] = (w * v[first] * v[second] * v[third] * v[fourth]).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * max(np.abs(expected).max(), 1.0))


@given(logs(rounds=(2, 60), restricted=False))
def test_the_crossproducts_follow(case: Case) -> None:
    rounds = rounds_of(case)
    found = fourth_moments(rounds, case.n_actions)[0].products
    for mine, other in zip(found, crossproducts(rounds, case.n_actions, varying=False), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


@given(
    logs(rounds=(60, 150), restricted=False),
    st.booleans(),
    st.sampled_from(["auto", "always"]),
    st.sampled_from([METHODS, ("meb",), ("dr",)]),
)
def test_the_scores_follow(case: Case, intercept: bool, guard: str, methods: tuple[str, ...]) -> None:
    """Σ ψψ' of every method is that of its rounds one by one."""
    rounds, k, d = rounds_of(case), case.n_actions, case.x.shape[1]
    assume(np.bincount(case.actions, minlength=k).min() > d + 2)
    correction = Correction(0.05 * np.eye(d), False)
    ready = correction.ready(rounds)
    products = crossproducts(ready, k, varying=False)
    solution = solve_log(products, methods, error_cov=correction.mean_cov, options=Options(0.1, intercept, guard), strict=False)
    expected = solution.no_scores()
    solution.add_scores(expected, ready)
    found = fourth_moments(rounds, k)[0].scores(solution, correction)
    assert found is not None
    for mine, other in zip(found.meat, expected.meat, strict=True):
        full = np.triu(other) + np.triu(other, 1).T
        size = np.sqrt(np.maximum(np.diag(full), 1e-12))
        np.testing.assert_allclose(mine / np.outer(size, size), full / np.outer(size, size), atol=1e-6)


# ---- the analysis --------------------------------------------------------------------------------------------------------


ALL = 1 << 30


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("methods", [METHODS, ("meb",)])
def test_one_time_through_a_log_gives_what_two_give(
    k: int, methods: tuple[str, ...], times: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(formats.ROWS + 5000, k=k, drift=2.0)
    options: dict[str, Any] = {"error_cov": [0.36, 0.36, 0.36], "n_actions": k, "methods": methods, "floor": 0.01}
    monkeypatch.setattr(one_pass, "SAMPLE", ALL)
    for given_as in (log, taken(log)):
        found = mb.fit(given_as, **options)
        assert times == ["reading"]
        assert_same(found, twice(monkeypatch, given_as, **options))
        assert times == ["reading", "reading", "standard errors"]
        times.clear()


def test_predictions_that_are_unbiased_first_need_no_second_time(times: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    log = make_log(3000, d=2)
    truth = rng.normal(1, 1, (500, 2))
    biased = from_validation(0.5 + truth @ np.array([[0.8, 0.1], [0.0, 1.2]]) + rng.normal(0, 0.6, truth.shape), truth)
    assert biased.kind == "biased"
    assert_same(mb.fit(log, error_cov=biased), twice(monkeypatch, log, error_cov=biased))
    assert times[0] == times[1] == "reading"
    model = from_confusion([[0.9, 0.1], [0.2, 0.8]])
    classes = rng.integers(0, 2, 3000)
    shown = np.where(rng.random(3000) < np.where(classes == 0, 0.1, 0.2), 1 - classes, classes)
    one_hot = log.assign(predicted_0=1.0 * (shown == 0), predicted_1=1.0 * (shown == 1))
    assert_same(mb.fit(one_hot, error_cov=model), twice(monkeypatch, one_hot, error_cov=model))


def test_more_than_one_time_where_one_is_not_enough(times: list[str], tmp_path: Path) -> None:
    log = make_log(600).assign(unit=np.arange(600) % 40, v=0.36)
    wide = make_log(600, d=9)
    log.to_csv(tmp_path / "log.csv", index=False)
    mb.fit(log, error_cov=0.36, unit="unit")
    mb.fit(log, error_columns="v,v,v", methods="meb")
    mb.fit(wide, error_cov=0.36)
    mb.fit(tmp_path / "log.csv", error_cov=0.36)  # whose rows are not known before they are read
    assert times == 4 * ["reading", "standard errors"]


@pytest.mark.parametrize("columns", [1, 2])
def test_rounds_that_leave_no_choice_take_a_second_time(columns: int, times: list[str]) -> None:
    """In the second block, after much was gathered; as one probability for each action, and as that of the action taken."""
    log = make_log(formats.ROWS + 2000, d=2)
    last = log.index >= formats.ROWS + 1000
    log.loc[last, ["propensity_0", "propensity_1"]] = np.eye(2)[log.loc[last, "action"]]
    found = mb.fit(log if columns == 2 else taken(log), error_cov=0.36)
    assert times == ["reading", "reading", "standard errors"]
    x, action, reward = log[["predicted_0", "predicted_1"]], log["action"], log["reward"]
    for method in METHODS:
        expected = mb.estimate(x, action, reward, log[["propensity_0", "propensity_1"]], 0.36, method=method)
        np.testing.assert_allclose(found.estimates[method].std_error, expected.std_error, rtol=1e-8)


def test_digits_that_sums_have_lost_are_found_in_the_rounds(times: list[str]) -> None:
    """A reward that is all but a function of x̃."""
    log = make_log(4000, d=2)
    x, pi = log[["predicted_0", "predicted_1"]], log[["propensity_0", "propensity_1"]]
    log["reward"] = x.to_numpy() @ [1.0, -2.0] + 1e-9 * log["reward"]
    found = mb.fit(log, error_cov=0.0)
    assert times == ["reading", "standard errors"]
    for method in METHODS:
        expected = mb.estimate(x, log["action"], log["reward"], pi, 0.0, method=method)
        np.testing.assert_allclose(found.estimates[method].std_error, expected.std_error, rtol=1e-5, err_msg=method)


def test_features_that_are_nearly_alike_take_a_second_time(times: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ ψψ' has all its digits here; the matrix that it is multiplied with makes them count."""
    rng = np.random.default_rng(2)
    x, e = rng.normal(0, 1, 4000), rng.normal(0, 1, 4000)
    log = make_log(4000, d=2).assign(predicted_0=x + 30, predicted_1=x + 1e-4 * e + 30, reward=x + rng.normal(0, 1, 4000))
    found = mb.fit(log, error_cov=0.0)
    assert times == ["reading", "standard errors"]
    expected = twice(monkeypatch, log, error_cov=0.0)
    for method, other in expected.estimates.items():  # θ itself is worth no more than four digits of its standard error
        np.testing.assert_allclose(found.estimates[method].std_error, other.std_error, rtol=1e-3)


def test_features_in_usual_units_need_no_second_time(times: list[str]) -> None:
    """Age in years and its square, hours of the day, a temperature in kelvins, steps: none of them far enough from 0."""
    rng = np.random.default_rng(2)
    age, hour, temperature = rng.uniform(18, 80, 4000), rng.uniform(0, 24, 4000), rng.normal(288, 8, 4000)
    log = make_log(4000, d=4).assign(predicted_0=age, predicted_1=age**2, predicted_2=hour, predicted_3=temperature)
    log["reward"] = 5000 + 40 * age + 30 * temperature + rng.normal(0, 2000, 4000)
    mb.fit(log, error_cov=[4.0, 0.0, 0.0, 0.0], intercept=True)
    assert times == ["reading"]


HARD: dict[str, Any] = {
    "0 for an action": lambda log: log.assign(predicted_0=np.where(log["action"] == 1, 0.0, log["predicted_0"] / 3)),
    "a rare class not seen with an action": lambda log: log.assign(
        predicted_0=1.0 * (log["predicted_0"] < 1), predicted_1=1.0 * ((log["predicted_0"] > 3.5) & (log["action"] == 0))
    ),
    "constant for an action": lambda log: log.assign(predicted_0=np.where(log["action"] == 1, 7.0, log["predicted_0"] + 1000)),
    "an action taken twice": lambda log: log.assign(action=(log.index < 2).astype(int)),
    "an outlier for one action": lambda log: log.assign(
        predicted_0=np.where(log.index == log["action"].argmin(), 1e12, log["predicted_0"])
    ),
    "an outlier among rewards": lambda log: log.assign(reward=np.where(log.index == log["action"].argmin(), 1e20, log["reward"])),
    "rewards of 0": lambda log: log.assign(reward=0.0),
    "rewards of 1 at most": lambda log: log.assign(reward=1.0 * (log["reward"] > 2)),
    "far from 0": lambda log: log.assign(predicted_0=log["predicted_0"] + 1e5),
    "improbable actions": lambda log: log.assign(propensity=np.where(log.index % 50 == 0, 1e-7, log["propensity"])),
    "five rounds": lambda log: log.assign(action=log.index % 2).iloc[:5],
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("what", HARD)
def test_hard_logs_give_what_two_times_give(what: str, intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that is no solution."""
    log = HARD[what](taken(make_log(4000, d=2)))
    options: dict[str, Any] = {
        "error_cov": 0.0,
        "intercept": intercept,
        "ridge": 1e-3 if what == "five rounds" else 0.0,
    }
    expected = outcome(lambda: twice(monkeypatch, log, **options))
    found = outcome(lambda: mb.fit(log, **options))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    lost = max(next(finding.values["lost"] for finding in expected.diagnostics if finding.name == "numerical precision"))
    for method, other in expected.estimates.items():
        mine = found.estimates[method]
        nothing = (1e-12 + 5 * lost) * (1 + np.nan_to_num(np.abs(other.theta)))  # what rounding makes of no error at all
        assert not (np.abs(mine.theta - other.theta) > 1e-4 * other.std_error + nothing).any(), method
        assert not (np.abs(mine.std_error - other.std_error) > 1e-4 * other.std_error + nothing).any(), method
        np.testing.assert_array_equal(np.isnan(mine.std_error), np.isnan(other.std_error))
    assert [(f.name, f.verdict) for f in found.diagnostics] == [(f.name, f.verdict) for f in expected.diagnostics]


def test_what_is_too_small_for_fourth_powers_takes_a_second_time(times: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(4000, d=1)
    log["predicted_0"] *= 10**-81.95
    found = mb.fit(log, error_cov=0.0)
    assert times == ["reading", "standard errors"]
    expected = twice(monkeypatch, log, error_cov=0.0)
    for method, other in expected.estimates.items():
        np.testing.assert_allclose(found.estimates[method].std_error, other.std_error, rtol=1e-6, err_msg=method)


def outcome(work: Callable[[], mb.Analysis]) -> mb.Analysis | str:
    """An analysis, or why there is none."""
    try:
        return work()
    except mb.MebanditError as error:
        return str(error)


def test_a_round_by_itself_that_leaves_no_choice_is_noticed(times: list[str], tmp_path: Path) -> None:
    log = make_log(400, d=2)
    log.loc[::2, ["propensity_0", "propensity_1"]] = np.eye(2)[log.loc[::2, "action"]]
    log.to_parquet(tmp_path / "log.parquet", row_group_size=1)
    found = mb.fit(tmp_path / "log.parquet", error_cov=0.36)
    assert times == ["reading", "reading", "standard errors"]
    expected = mb.fit(log, error_cov=0.36)
    assert_same(found, expected)


def test_faulty_rows_are_found_the_first_time(tmp_path: Path, times: list[str]) -> None:
    log = make_log(900)
    log.loc[[0, 500], "reward"] = np.nan
    with pytest.raises(mb.LogError, match=r"row 1 column 'reward' .* 1 more row"):
        mb.fit(log, error_cov=0.36)
    found = mb.fit(log, error_cov=0.36, on_bad="set-aside", set_aside=tmp_path / "aside.csv")
    assert found.faults == len(pd.read_csv(tmp_path / "aside.csv")) == 2
    assert times == ["reading", "reading"]
    good = mb.fit(log.dropna(), error_cov=0.36)
    for method in METHODS:
        np.testing.assert_allclose(found.estimates[method].std_error, good.estimates[method].std_error, rtol=1e-9)


def test_a_sample_of_a_long_log_says_how_often_actions_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(formats.ROWS + 30_000, d=2)
    values = []
    for size in (ALL, 4000):
        monkeypatch.setattr(one_pass, "SAMPLE", size)
        found = mb.fit(log, error_cov=0.36)
        values.append(next(finding.values for finding in found.diagnostics if finding.name == "Assumption 3, small error"))
    for name, (share,) in values[0].items():
        assert 0 < abs(values[1][name][0] - share) < 4.5 * np.sqrt(share * (1 - share) / 3900)


def test_powers_are_about_the_mean_of_all_rounds() -> None:
    log = make_log(formats.ROWS + 40_000, d=2, drift=3.0)
    found = mb.fit(log, error_cov=0.36)
    values = next(finding.values for finding in found.diagnostics if finding.name == "skewness of x̃")
    x = log[["predicted_0", "predicted_1"]].to_numpy()
    np.testing.assert_allclose(values["skewness"], stats.skew(x), rtol=1e-7)
    np.testing.assert_allclose(values["kurtosis"], stats.kurtosis(x, fisher=False), rtol=1e-7)


def test_frequencies_are_tested_about_the_mean() -> None:
    """z of Σ (u - 1) and of Σ (u - 1) (x̃ - mean) by hand, u = 1{a_t = a}/π_t(a), with the variance Σ (1/π - 1) (...)²."""
    log = make_log(formats.ROWS + 40_000, d=2, drift=3.0)
    found = next(f.values["z"] for f in mb.fit(log, error_cov=0.36).diagnostics if f.name == "probability and frequency")
    x = log[["predicted_0", "predicted_1"]].to_numpy()
    z = np.column_stack([np.ones(len(x)), x - x.mean(axis=0)])
    for a, mine in enumerate(np.reshape(found, (2, 3))):
        pi = log[f"propensity_{a}"].to_numpy()[:, None]
        away = ((log["action"].to_numpy() == a)[:, None] / pi - 1) * z
        np.testing.assert_allclose(mine, away.sum(axis=0) / np.sqrt(((1 / pi - 1) * z**2).sum(axis=0)), rtol=1e-6, atol=1e-6)


def test_a_feature_that_is_constant_has_no_skewness(times: list[str]) -> None:
    """Whatever rounding makes of its variance."""
    log = make_log(3000, d=1)
    for value in (0.3, 1 / 3, np.pi, 7.7, 1e4):
        found = mb.fit(log.assign(predicted_1=value), error_cov=[0.36, 0.0])
        values = next(finding.values for finding in found.diagnostics if finding.name == "skewness of x̃")
        assert values["skewness"][1] == values["kurtosis"][1] == 0
    assert times == 5 * ["reading"]


@pytest.mark.parametrize("far", [10.0, 1e4, 3e5])
def test_skewness_far_from_0(far: float) -> None:
    log = make_log(3000, d=1)
    log["predicted_0"] = np.random.default_rng(1).exponential(1, 3000) + far
    found = mb.fit(log, error_cov=0.0)
    values = next(finding.values for finding in found.diagnostics if finding.name == "skewness of x̃")
    np.testing.assert_allclose(values["skewness"], stats.skew(log["predicted_0"]), rtol=1e-3)
    np.testing.assert_allclose(values["kurtosis"], stats.kurtosis(log["predicted_0"], fisher=False), rtol=1e-3)
