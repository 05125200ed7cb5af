"""Environments: what they draw has the moments they promise, in whatever pieces it is asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mebandit as mb
from mebandit.environments import (
    Drifting,
    Environment,
    Estimated,
    Example21,
    ExampleB1,
    ExampleB2,
    Gaussian,
    HeartSteps,
    Misreported,
    SmallError,
    heartsteps,
)  # fmt: skip
from mebandit.environments.base import square_root
from mebandit.values import Floats, Stretch, Tape

EVERY: list[Environment] = [
    Gaussian(),
    Gaussian(error="student_t"),
    Example21(),
    ExampleB1(),
    ExampleB2(),
    HeartSteps(),
    HeartSteps(user=3),
]
TWO_LEVELS = np.stack([np.eye(5), np.zeros((5, 5))])
EVERY += [Drifting(world=Gaussian(error="uniform"), mean=2.0, theta=0.5), Gaussian(error_cov=TWO_LEVELS, hold=7, context="exponential")]
EVERY += [SmallError(), Misreported(world=Example21(), factor=2.0), Estimated(world=Gaussian(error_cov=TWO_LEVELS))]


@pytest.mark.parametrize("environment", EVERY, ids=lambda e: type(e).__name__)
def test_every_environment_keeps_the_contract(environment: Environment) -> None:
    mb.check_environment(environment)


def long_tape(environment: Environment, n: int = 60_000) -> Tape:
    return environment.tape(Stretch(7, 0, 0, 0, n))


def assert_mean(values: Any, expected: Any) -> None:
    """Within 4.5 standard errors."""
    values = np.asarray(values)
    se = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) <= 4.5 * se + 1e-12).all()


@pytest.mark.parametrize("error", ["normal", "student_t", "uniform", "bounded", "exponential"])
def test_gaussian_contexts_and_errors_have_their_moments(error: str) -> None:
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    sigma = np.array([[0.5, -0.2], [-0.2, 0.3]])
    tape = long_tape(Gaussian(theta=np.eye(2), mean=mean, cov=cov, error_cov=sigma, error=error, error_df=9.0, noise_sd=0.7))
    assert_mean(tape.context, mean)
    assert_mean(np.einsum("ti,tj->tij", tape.context - mean, tape.context - mean), cov)
    assert_mean(tape.error, 0.0)
    assert_mean(np.einsum("ti,tj->tij", tape.error, tape.error), sigma)
    assert_mean(np.einsum("ti,tj->tij", tape.context - mean, tape.error), 0.0)
    assert_mean(tape.noise, 0.0)
    assert_mean(tape.noise**2, 0.49)
    if error == "bounded":
        root = np.linalg.cholesky(sigma)
        np.testing.assert_allclose(np.abs(np.linalg.solve(root, tape.error.T)), 1.0)


def test_a_stack_of_error_covariances_is_drawn_from_and_reported() -> None:
    levels = np.stack([0.1 * np.eye(2), np.diag([1.0, 4.0]), np.zeros((2, 2))])
    tape = long_tape(Gaussian(theta=np.eye(2), error_cov=levels))
    for level in range(3):
        own = tape.component == level
        assert_mean(own.astype(float), 1 / 3)
        assert_mean(tape.error[own] ** 2, np.diag(levels[level]))
    np.testing.assert_array_equal(tape.error_cov, levels)
    assert_mean((tape.context - tape.guess)[:, :, None] * (tape.context + tape.error)[:, None, :], 0.0)


def test_the_guess_is_the_conditional_mean() -> None:
    """E[(x - E[x|x̃]) h(x̃)] = 0 for several h, where the environment claims to know E[x | x̃]."""
    for environment in (Gaussian(error_cov=2.0), Example21(), ExampleB2()):
        tape = long_tape(environment)
        seen = tape.context + tape.error
        for h in (np.ones_like(seen), seen, np.tanh(seen), seen**2):
            assert_mean((tape.context - tape.guess) * h, 0.0)
    assert np.isnan(long_tape(Gaussian(error="uniform"), 10).guess).all()
    assert np.isnan(long_tape(HeartSteps(), 10).guess).all()


def test_example_21_is_the_papers_joint_distribution() -> None:
    tape = long_tape(Example21())
    seen = np.round(tape.context + tape.error, 12)
    for x, s, chance in ((0.2, 1.0, 0.3), (0.2, -1.0, 0.2), (-0.2, 1.0, 0.2), (-0.2, -1.0, 0.3)):
        assert_mean(((tape.context == x) & (seen == s)).astype(float), chance)
    assert_mean(tape.error**2, tape.error_cov[0, 0])


def test_example_b1_never_changes_the_best_action() -> None:
    tape = long_tape(ExampleB1())
    gap, error = 2 * tape.context[:, 0], 2 * tape.error[:, 0]
    assert (np.abs(error) <= 0.9 * np.abs(gap) + 1e-12).all()
    assert_mean(np.einsum("ti,tj->tij", tape.error, tape.error), tape.error_cov[0])
    assert_mean(tape.context[:, :, None] * tape.error[:, None, :], 0.0)


def test_example_b1_turns_least_squares_to_its_known_limit() -> None:
    """(E x̃x̃')^-1 E x̃x' θ_1 = (0.69084, -0.30916) for θ_1 = (1, 0): error 0.43722."""
    x = np.array([[1.0, 3.0], [-3.0, 1.0], [-1.0, -3.0], [3.0, -1.0]])
    second = x.T @ x / 4
    limit = np.linalg.solve(second + 5 * 0.81 * np.ones((2, 2)), second @ [1.0, 0.0])
    np.testing.assert_allclose(limit, [0.69084, -0.30916], atol=5e-6)
    np.testing.assert_allclose(np.linalg.norm(limit - [1, 0]), 0.43722, atol=5e-6)
    results = mb.simulate(ExampleB1(), [mb.greedy(2, 2, floor=0.5)], horizon=20_000, replicates=10, references=False)
    final = results.estimation_error[0, :, -1, 1]
    assert abs(final.mean() - 0.43722) < 4.5 * final.std(ddof=1) / np.sqrt(10)


def test_heartsteps_carries_the_burden() -> None:
    """B_{t+1} = 0.95 B_t + 1{A_t = 1}, B_1 = 0: seen through a policy that records what it was shown, without error."""
    seen: list[float] = []
    taken: list[int] = []

    class Recorder:
        n_actions, dim = 2, 7

        def init(self) -> None:
            return None

        def propensities(self, state: None, observation: mb.Observation) -> Any:
            seen.append(float(observation.predicted[6]))
            return np.array([0.5, 0.5])

        def update(self, state: None, round: mb.Round) -> None:
            taken.append(round.action)

    mb.simulate(HeartSteps(burden_error_var=0.0), [Recorder()], horizon=60, replicates=1, references=False)
    burden = 0.0
    for shown, action in zip(seen, taken, strict=True):
        assert shown == pytest.approx(burden, abs=1e-12)
        burden = 0.95 * burden + action


def test_heartsteps_draws_a_user_per_replicate() -> None:
    environment = HeartSteps()
    assert environment.user_theta.shape == (37, 2, 7)
    users = [environment.user_of(Stretch(1, 0, replicate, 0, 1)) for replicate in range(74)]
    assert sorted(users[:37]) == sorted(users[37:]) == list(range(37))
    assert users[:37] != users[37:]
    first = np.array([environment.user_of(Stretch(seed, 0, 5, 0, 1)) for seed in range(2000)])
    counts = np.bincount(first, minlength=37)
    assert ((counts - 2000 / 37) ** 2 / (2000 / 37)).sum() < 36 + 4.5 * np.sqrt(72), "each is uniformly distributed"
    np.testing.assert_array_equal(
        environment.tape(Stretch(1, 0, 4, 0, 1)).theta[0], environment.user_theta[environment.user_of(Stretch(1, 0, 4, 0, 1))]
    )
    gap = environment.user_theta[:, 1] - environment.user_theta[:, 0]
    assert not gap[:, [1, 2, 3]].any()
    assert gap[:, [0, 4, 6]].all()


CSV = ",".join(f'"{name}"' for name in heartsteps.COLUMNS) + "\n"


def write_study(path: Path, n: int = 60, seed: int = 0) -> np.ndarray[Any, Any]:
    """A made-up study in the layout of the cleaned CSV: two users, some rows to be dropped."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [
            np.repeat([4, 9], n // 2),
            rng.normal(8, 1, n),
            np.where(rng.random(n) < 0.3, np.log(0.5), rng.normal(5, 1, n)),
            rng.random(n) < 0.3,
            rng.random(n) < 0.3,
            rng.normal(15, 8, n),
            rng.random(n) < 0.5,
            rng.uniform(0, 8, n),
            rng.random(n) < 0.6,
            rng.normal(4, 1, n),
        ]
    ).astype(float)
    rows[30:, 3], rows[30:, 4] = 0, 0  # the second user is always at home, so home is left out of that fit
    rows[5, 5], rows[6, 5], rows[7, 6] = np.nan, -200.0, np.nan
    lines = [",".join("NA" if np.isnan(v) else repr(float(v)) for v in row) for row in rows]
    path.write_text(CSV + "\n".join(lines) + "\n")
    return rows


def test_from_csv_is_the_least_squares_fit_of_the_specification(tmp_path: Path) -> None:
    """The fit again by hand: drop, standardise, drop, regress; per user, with and without the home columns."""
    rows = write_study(tmp_path / "study.csv")
    environment = HeartSteps.from_csv(tmp_path / "study.csv")
    kept = rows[~np.isnan(rows[:, 5]) & (rows[:, 5] > -100)]
    for j in (1, 2, 5):
        kept[:, j] = (kept[:, j] - kept[:, j].mean()) / kept[:, j].std(ddof=1)
    kept = kept[~np.isnan(kept).any(axis=1)]
    assert len(kept) == 57
    for index, user in enumerate((4, 9)):
        own = kept[kept[:, 0] == user]
        yesterday, prior, other, work, temperature, variation, dosage, send, reward = own.T[1:]
        home = ((other == 0) & (work == 0)).astype(float)
        columns = [np.ones_like(send), yesterday, prior, temperature, variation, dosage, send, send * variation, send * dosage]
        if user == 4:
            columns += [home, send * home]
        b = np.linalg.lstsq(np.column_stack(columns), reward, rcond=None)[0]
        h, sh = (b[9], b[10]) if user == 4 else (0.0, 0.0)
        base = np.array([b[0], b[1], b[2], b[3], b[4], h, b[5]])
        np.testing.assert_allclose(environment.user_theta[index, 0], base, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            environment.user_theta[index, 1], base + np.array([b[6], 0, 0, 0, b[7], sh, b[8]]), rtol=1e-10, atol=1e-12
        )
    mb.check_environment(environment)


def test_rows_of_the_study_are_drawn_or_taken_in_turn(tmp_path: Path) -> None:
    write_study(tmp_path / "study.csv")
    study = heartsteps.read_study(tmp_path / "study.csv")
    own = study.context[study.user == 4, :6]
    in_turn = HeartSteps.from_csv(tmp_path / "study.csv", in_turn=True, user=0).tape(Stretch(1, 0, 0, 0, 2 * len(own)))
    np.testing.assert_array_equal(in_turn.context[:, :6], np.vstack([own, own]))
    drawn = HeartSteps.from_csv(tmp_path / "study.csv", user=0).tape(Stretch(1, 0, 0, 0, 500))
    assert {tuple(row) for row in drawn.context[:, :6]} == {tuple(row) for row in own}


def test_the_built_in_mixture_keeps_means_and_shares(tmp_path: Path) -> None:
    """The description's mixture has the same feature means and, within components, the pooled covariance of the data it came from."""
    write_study(tmp_path / "study.csv", n=400)
    study = heartsteps.read_study(tmp_path / "study.csv")
    user = heartsteps.describe_study(study)["users"][0]
    own = study.context[study.user == 4]
    share = np.array([part["share"] for part in user["components"]])
    means = np.array([[*part["mean"], part["variation"], part["home"]] for part in user["components"]])
    np.testing.assert_allclose(share @ means, own[:, 1:6].mean(axis=0), atol=1e-4)


def test_the_built_in_description_is_that_of_the_public_data() -> None:
    """Where the cleaned CSV is at hand (it is not part of the repository): 6394 rows, 37 users, the same coefficients to the last bits."""
    path = Path(__file__).parents[3] / "shared" / "data" / "heartsteps" / "HS1_cleaned_for_simulation.csv"
    if not path.exists():
        pytest.skip("the public HeartSteps CSV is not on this machine")
    assert len(heartsteps.read_study(path).user) == 6394
    np.testing.assert_allclose(HeartSteps.from_csv(path).user_theta, HeartSteps().user_theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "change",
    [{"component": np.full(50, 10**6)}, {"guess": np.zeros((1, 3))}, {"carry_index": 7}, {"carry_gain": np.zeros(1)}],
    ids=lambda change: next(iter(change)),
)
def test_a_tape_that_points_nowhere_is_refused(change: dict[str, Any]) -> None:
    class Broken:
        n_actions, dim = 2, 5

        def tape(self, stretch: Stretch) -> Tape:
            return Gaussian(error_cov=np.stack([np.eye(5), 2 * np.eye(5)])).tape(stretch)._replace(**change)

    with pytest.raises(mb.InvalidInput, match=r"Broken.tape \w+ must"):
        mb.check_environment(Broken())


def test_check_environment_names_the_broken_rule() -> None:
    class Drifting:
        n_actions, dim, calls = 2, 5, 0

        def tape(self, stretch: Stretch) -> Tape:
            self.calls += 1
            return Gaussian().tape(stretch._replace(seed=self.calls))

    with pytest.raises(mb.InvalidInput, match=r"Drifting.tape must be a pure function of the stretch"):
        mb.check_environment(Drifting())
    with pytest.raises(mb.InvalidInput, match="environment must have n_actions, dim and tape"):
        mb.check_environment(3)


def test_configurations_compare_and_hash() -> None:
    assert Gaussian(error_cov=1.0) == Gaussian(error_cov=np.eye(5))
    assert hash(Gaussian()) == hash(replace(Gaussian(), noise_sd=0.1))
    assert Gaussian() != Gaussian(noise_sd=0.2)


def test_small_error_keeps_assumptions_1_and_3() -> None:
    tape = long_tape(SmallError(rho=0.5), 2000)
    assert np.linalg.norm(tape.context + tape.error, axis=1).max() == pytest.approx(1.0, abs=1e-12)
    delta = tape.theta[0, 1] - tape.theta[0, 0]
    np.testing.assert_allclose(np.abs(tape.error @ delta), 0.5 * np.abs(tape.context @ delta))
    assert_mean(tape.error[:, :, None] * tape.error[:, None, :], tape.error_cov[0])
    assert np.abs(tape.context @ delta).min() < 0.05  # some contexts are hard to decide


def test_a_misreported_covariance_changes_nothing_else() -> None:
    stretch = Stretch(3, 1, 2, 0, 50)
    true, told = Gaussian().tape(stretch), Misreported(world=Gaussian(), factor=0.5).tape(stretch)
    np.testing.assert_array_equal(told.error_cov, 0.5 * true.error_cov)
    for field in set(Tape._fields) - {"error_cov"}:
        np.testing.assert_array_equal(getattr(true, field), getattr(told, field))


def test_an_estimated_covariance_is_the_mean_over_the_pairs_known_so_far() -> None:
    """Pairs come in one by one; their estimate has the mean and, for normal errors, the variance of a scaled Wishart matrix."""
    sigma = np.array([[1.0, 0.6], [0.6, 2.0]])
    world = Estimated(world=Gaussian(theta=np.eye(2), error_cov=sigma), start=7, every=4)
    found = []
    for replicate in range(4000):
        tape = world.tape(Stretch(0, 0, replicate, 0, 12))
        told = tape.error_cov[tape.component]
        assert len(np.unique(tape.component)) == 4  # 7 pairs, then 8, 9 and 10
        np.testing.assert_array_equal(told[0], told[2])
        found.append(told)
    by_round = np.stack(found)
    assert_mean(by_round[:, 0], sigma)
    assert_mean(by_round[:, 11], sigma)
    variance = (sigma**2 + np.outer(np.diag(sigma), np.diag(sigma))) / 10
    assert_mean((by_round[:, 11] - sigma) ** 2, variance)
    one_more = 8 * by_round[:, 3] - 7 * by_round[:, 2]  # the outer product of a single pair's error
    np.testing.assert_allclose(np.linalg.det(one_more), 0.0, atol=1e-9)
    still = Estimated(world=Gaussian(), start=5, every=None).tape(Stretch(0, 0, 0, 0, 30))
    assert len(still.error_cov) == 1


def test_what_is_reported_of_a_world_is_checked() -> None:
    with pytest.raises(mb.InvalidInput, match="factor must be a number of at least 0; got -1"):
        Misreported(world=Gaussian(), factor=-1.0)
    with pytest.raises(mb.InvalidInput, match="start must be a whole number from 1 to 1000000; got 0"):
        Estimated(world=Gaussian(), start=0)
    with pytest.raises(mb.InvalidInput, match=r"world must be an environment, such as Gaussian\(\); got 3"):
        Drifting(world=3)  # type: ignore[arg-type]


def test_skewed_contexts_have_the_moments_of_an_exponential() -> None:
    tape = long_tape(Gaussian(theta=np.eye(2), mean=(1.0, -2.0), cov=np.diag([1.0, 4.0]), context="exponential"))
    away = (tape.context - np.array([1.0, -2.0])) / np.array([1.0, 2.0])
    for power, moment in ((1, 0.0), (2, 1.0), (3, 2.0), (4, 9.0)):
        assert_mean(away**power, moment)
    assert away.min() > -1
    assert np.isnan(tape.guess).all(), "E[x | x̃] is not the linear one"


def test_an_error_level_is_held_for_as_long_as_asked() -> None:
    tape = long_tape(Gaussian(error_cov=TWO_LEVELS, hold=50), 20_000)
    blocks = tape.component.reshape(-1, 50)
    assert (blocks == blocks[:, :1]).all()
    assert_mean(blocks[:, 0].astype(float), 0.5)


def test_a_drifting_world_moves_the_mean_and_the_parameters_and_nothing_else() -> None:
    still, stretch = Gaussian(), Stretch(5, 0, 1, 300, 400)
    wave = np.sin(2 * np.pi * np.arange(301, 401) / 80)
    moving = Drifting(world=still, mean=(1, 0, -1, 0, 2), theta=np.full((2, 5), 0.3), period=80)
    before, after = still.tape(stretch), moving.tape(stretch)
    np.testing.assert_allclose(after.context - before.context, wave[:, None] * np.array([1, 0, -1, 0, 2]), atol=1e-12)
    np.testing.assert_allclose(after.guess - after.context, before.guess - before.context, atol=1e-12)
    np.testing.assert_allclose(after.theta - before.theta, np.broadcast_to(0.3 * wave[:, None, None], (100, 2, 5)), atol=1e-12)
    np.testing.assert_array_equal(after.error, before.error)
    with pytest.raises(mb.InvalidInput, match=r"mean must have shape \(5,\); got shape \(3,\)"):
        Drifting(world=still, mean=(1, 2, 3))


def test_a_file_that_is_not_the_study_is_refused_by_row_and_column(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(mb.LogError, match=r"must have rows with the columns user, .*; got none for user, sum_step.log"):
        HeartSteps.from_csv(path)
    header = ",".join(heartsteps.COLUMNS)
    path.write_text(header + "\n")
    with pytest.raises(mb.LogError, match=r"must have rows"):
        HeartSteps.from_csv(path)
    path.write_text(header + "\n" + ",".join("1" * 10) + "\n1,hello" + ",1" * 8 + "\n")
    with pytest.raises(mb.LogError, match=r"must have numbers, or NA, in column sum_step.log; got 'hello' in row 3"):
        HeartSteps.from_csv(path)
    with pytest.raises(mb.LogError, match=r"must be the cleaned HeartSteps CSV; got a file that cannot be read .*No such file"):
        HeartSteps.from_csv(tmp_path / "none.csv")


@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(-3, 3).map(lambda x: round(x, 2))), st.permutations(range(4)))
def test_the_square_root_of_a_covariance_is_the_unique_lower_triangular_one(wide: Floats, order: list[int]) -> None:
    """Also of singular matrices, as here: of rank 3 at most, in four variables."""
    covariance = (wide @ wide.T)[np.ix_(order, order)]
    factor = square_root(covariance)
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=1e-6 * np.max(np.diag(covariance), initial=1.0))
    assert (np.triu(factor, 1) == 0).all()
    assert (np.diag(factor) >= 0).all()
    assert not factor[:, np.diag(factor) == 0].any()  # else a column's sign would be free


def test_ragged_drifts_and_infinite_cells_of_a_study_are_refused(tmp_path: Path) -> None:
    with pytest.raises(mb.InvalidInput, match=r"^mean must be a regular array"):
        Drifting(world=Gaussian(), mean=[[1.0], [1.0, 2.0]])
    cells = dict.fromkeys(heartsteps.COLUMNS, "1") | {"dosage": "inf"}
    (tmp_path / "study.csv").write_text("\n".join([",".join(cells), ",".join(cells.values())]))
    with pytest.raises(mb.LogError, match=r"must have numbers of at most 1e\+50 in size in column dosage; got 'inf' in row 2"):
        HeartSteps.from_csv(tmp_path / "study.csv")
