"""Fourth moments instead of a second time through a log: the same numbers, and no less care."""

from collections import Counter
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
from mebandit import _kernels, fourth_moments
from mebandit._kernels import STRETCH
from mebandit.analysis import formats, one_pass
from mebandit.analysis.diagnostics import parts_of
from mebandit.analysis.inference import compile_ahead
from mebandit.analysis.source import Block, Source
from mebandit.correction import Correction
from mebandit.estimators import METHODS, Options, solve_log
from mebandit.fourth_moments import MOST_FEATURES, FourthMoments, no_fourth_moments
from mebandit.measurement import from_confusion, from_validation
from mebandit.moments import Rounds, check_rounds, crossproducts, unpack
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


def with_floor(log: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """The log with probabilities of two values in its first rounds."""
    names = [name for name in log if str(name).startswith("propensity")]
    pi = log[names].to_numpy(copy=True)
    pi[:rounds] = np.where(np.eye(len(names))[pi[:rounds].argmax(axis=1)] == 1, 0.6, 0.4 / (len(names) - 1))
    return log.assign(**{str(name): pi[:, a] for a, name in enumerate(names)})


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
        context.setattr(fourth_moments, "MOST_FEATURES", 0)
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


def moments_of(rounds: Rounds, n_actions: int) -> FourthMoments:
    found = no_fourth_moments(n_actions, len(rounds.predicted))
    found.add(rounds, 0, rounds.rewards.size)
    return found


def rounds_of(case: Case) -> Rounds:
    return check_rounds(case.x, case.actions, case.r, case.taken, 0.0, n_actions=case.n_actions)


@given(logs(rounds=(1, 60), restricted=False), st.booleans())
def test_every_product_of_four_is_summed_once(case: Case, few: bool) -> None:
    """Propensities of two values are sorted by these, many are not."""
    rounds = rounds_of(case)
    if few:
        rounds = rounds._replace(propensities=np.where(rounds.propensities > 0.4, 0.75, 0.2))
    d, n = rounds.predicted.shape
    found = moments_of(rounds, case.n_actions).sums
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


@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("few", [0, 1, 3])
def test_rounds_are_counted_by_propensity_until_these_are_too_many(few: int, k: int) -> None:
    """After some stretches of few propensities, a new one in each; of twenty actions there are too many classes from the second one on."""
    rng, n, d, first = np.random.default_rng(few), 3 * STRETCH + 500, 2, 300
    x, a, r, pi = rng.normal(1, 1, (n, d)), rng.integers(0, k, n), rng.normal(0, 1, n), rng.uniform(0.1, 0.9, n)
    for i in range(few):
        stretch = slice(first + i * STRETCH, first + (i + 1) * STRETCH)
        pi[stretch] = rng.choice([0.25, 0.5, 0.6][: i + 1], STRETCH)
    found = no_fourth_moments(k, d)
    levels = found.add(check_rounds(x, a, r, pi, 0.0, n_actions=k), first, n)
    assert levels.end == first + (min(few, 1) if k == 20 else few) * STRETCH
    counted, own = slice(first, levels.end), slice(first, n)
    assert {(b, p): m for b, p, m in zip(*levels.rounds, strict=True)} == Counter(zip(a[counted], pi[counted], strict=True))
    v = np.column_stack([np.ones(n), x, r])[own]
    taken, u = a[own][:, None] == np.arange(k), 1 / pi[own][:, None]
    rows, columns = np.triu_indices(d + 2)
    q = v[:, rows] * v[:, columns]
    np.testing.assert_allclose(found.odds, (taken / (u - 1)).T @ q, rtol=1e-10, atol=1e-8)
    for m in range(3):
        np.testing.assert_allclose(found.sums[:, m, 0], (taken * u**m).T @ q, rtol=1e-10, atol=1e-8)
    last = len(q.T) - 1  # r²
    np.testing.assert_allclose(found.sums[:, 2, d + 2, last], (taken * u**2).T @ (v[:, 1] ** 2 * v[:, -1] ** 2), rtol=1e-10)


@given(logs(rounds=(2, 60), restricted=False), st.integers(0, 60))
def test_moments_of_parts_add_up(case: Case, at: int) -> None:
    rounds, at = rounds_of(case), min(at, len(case.r))
    whole, *parts = (no_fourth_moments(case.n_actions, case.x.shape[1]) for _ in range(3))
    for found, begin, end in zip((whole, *parts), (0, 0, at), (len(case.r), at, len(case.r)), strict=True):
        found.add(rounds, begin, end)
    for mine, expected in zip(parts[0].merge(parts[1]), whole, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)


@given(logs(rounds=(2, 60), restricted=False))
def test_what_diagnostics_need_follows(case: Case) -> None:
    rounds, d = rounds_of(case), case.x.shape[1]
    found = moments_of(rounds, case.n_actions)
    z = np.column_stack([np.ones(len(case.r)), case.x])
    np.testing.assert_allclose(unpack(found.second, d + 1), z.T @ z, rtol=1e-9, atol=1e-9)
    y = np.column_stack([np.linspace(-1, 1, d), np.eye(d) + 0.3, np.zeros(d)])
    away = z @ y[:, :-1].T
    np.testing.assert_allclose(found.powers(y), [(away**3).sum(axis=0), (away**4).sum(axis=0)], rtol=1e-7, atol=1e-7)
    if case.n_actions == 2:
        pi = np.where(case.actions[:, None] == [0, 1], case.taken[:, None], 1 - case.taken[:, None])
        for mine, own in zip(found.chance, pi.T, strict=True):
            np.testing.assert_allclose(unpack(mine, d + 1), (z.T * (1 / own - 1)) @ z, rtol=1e-7, atol=1e-7)


@given(st.integers(1, 300), st.data())
def test_a_block_is_cut_into_twentieths_of_its_log(rows: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, rows - 1))
    n = data.draw(st.integers(0, rows - start))
    empty = np.empty(0)
    rounds = Rounds(np.empty((1, n)), np.zeros(n, dtype=int), np.empty(n), np.empty(n), empty, np.ones((1, 2), dtype=bool), empty)
    block = Block(start, rounds, [], np.empty(0, dtype=int), [], np.empty((n, 0)), np.empty((2, 2)))
    found = list(parts_of(block, rows))
    assert [part for part, begin, end in found for _ in range(begin, end)] == [20 * t // rows for t in range(start, start + n)]
    assert found[0][1] == 0
    assert found[-1][2] == n


@given(logs(rounds=(2, 60), restricted=False))
def test_the_crossproducts_follow(case: Case) -> None:
    rounds = rounds_of(case)
    found = moments_of(rounds, case.n_actions).products
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
    found = moments_of(rounds, k).scores(solution, correction)
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
    few, few_at_first = with_floor(log, len(log)), with_floor(log, 10_000)
    for given_as in (log, taken(log), few, taken(few), few_at_first, taken(few_at_first)):
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
    found = mb.fit(log, error_cov=biased)
    assert_same(found, twice(monkeypatch, log, error_cov=biased))
    ends = next(finding.values for finding in found.diagnostics if finding.name == "values far out")
    unbiased = biased.unbias(log[["predicted_0", "predicted_1"]])
    np.testing.assert_allclose([ends["least"][:2], ends["most"][:2]], [unbiased.min(axis=0), unbiased.max(axis=0)])
    assert times[0] == times[1] == "reading"
    model = from_confusion([[0.9, 0.1], [0.2, 0.8]])
    classes = rng.integers(0, 2, 3000)
    shown = np.where(rng.random(3000) < np.where(classes == 0, 0.1, 0.2), 1 - classes, classes)
    one_hot = log.assign(predicted_0=1.0 * (shown == 0), predicted_1=1.0 * (shown == 1))
    assert_same(mb.fit(one_hot, error_cov=model), twice(monkeypatch, one_hot, error_cov=model))


def test_more_than_one_time_where_one_is_not_enough(times: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(600).assign(unit=np.arange(600) % 40, v=0.36)
    wide = make_log(600, d=MOST_FEATURES + 1)
    log.to_csv(tmp_path / "log.csv", index=False)
    mb.fit(log, error_cov=0.36, unit="unit")
    mb.fit(log, error_columns="v,v,v", methods="meb")
    mb.fit(wide, error_cov=0.36)
    mb.fit(tmp_path / "log.csv", error_cov=0.36)  # whose rows are not known before they are read
    many = make_log(3000, d=MOST_FEATURES, k=5)
    mb.fit(many, error_cov=0.36, methods="meb", n_actions=5)
    monkeypatch.setattr(fourth_moments, "MOST_SUMS", 25_000)
    mb.fit(many, error_cov=0.36, methods="meb", n_actions=5)
    assert times == 4 * ["reading", "standard errors"] + ["reading"] + ["reading", "standard errors"]


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


BAD: dict[str, list[Any]] = {
    "predicted_0": [np.nan, np.inf, -np.inf, 1e51],
    "reward": [np.nan, -1e51],
    "action": [-1, 2, np.nan, 0.5, 1.0000001],
    "propensity": [np.nan, 0.0, -0.1, 1.0001, 1e-13],
    "v": [-1e-9, np.nan, 1e51],
}


@pytest.mark.parametrize(("column", "value"), [(column, value) for column, values in BAD.items() for value in values])
@pytest.mark.parametrize("others", [0, 1])
def test_ends_of_columns_tell_whether_all_rows_are_good(column: str, value: Any, others: int, tmp_path: Path) -> None:
    """Wherever the bad value is, beside others or not; good ones of the same size as those allowed at most are left alone."""
    log = taken(make_log(300, d=1)).assign(v=0.2)
    log.loc[[3, 4], ["predicted_0", "reward"]] = [1e5, -1e5]
    log.loc[5, "v"] = 0.0
    mb.fit(log, predicted="predicted_0", error_columns="v", methods="naive")
    log[column] = log[column].astype(float)
    log.loc[[299] + [7] * others, column] = value
    aside = tmp_path / "aside.csv"
    found = mb.fit(log, predicted="predicted_0", error_columns="v", methods="naive", on_bad="set-aside", set_aside=aside)
    rows = pd.read_csv(aside)
    assert rows["row"].tolist() == [8] * others + [300]
    assert set(rows["column"]) == {column}
    assert found.faults == 1 + others
    good = mb.fit(log.drop(index=[299] + [7] * others), predicted="predicted_0", error_columns="v", methods="naive")
    ends = [next(f.values for f in each.diagnostics if f.name == "values far out") for each in (found, good)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("k", [2, 3])
def test_a_large_constant_says_nothing_of_frequencies(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its distance from its mean is rounding, and so is the standard deviation of that."""
    rng, n = np.random.default_rng(1), 100_000
    x, pi = rng.normal(0, 1, n), np.array([0.3, 0.7] if k == 2 else [0.3, 0.3, 0.4])
    action = rng.choice(k, n, p=pi)
    log = {"one": np.full(n, 1e6 / 3), "x": x, "action": action, "reward": action * x + rng.normal(0, 1, n), "p": pi[action]}
    options: dict[str, Any] = {"predicted": ["one", "x"], "propensity": "p", "error_cov": [0, 0.2], "n_actions": k, "methods": "meb"}
    for found in (mb.fit(log, **options), twice(monkeypatch, log, **options)):
        finding = next(f for f in found.diagnostics if f.name == "probability and frequency")
        assert finding.verdict == "green"
        assert np.reshape(finding.values["z"], (k, 3))[:, 1].tolist() == k * [0.0]
        assert np.reshape(finding.values["z"], (k, 3))[:, 2].all()


def test_the_least_probability_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(4000, d=1)
    least = _kernels.LEAST
    log = log.drop(columns=["propensity_0", "propensity_1"]).assign(propensity=np.where(log["action"] == 1, least, 1 - least))
    found, other = mb.fit(log, error_cov=0.0, methods="naive"), twice(monkeypatch, log, error_cov=0.0, methods="naive")
    values = [next(f.values["z"] for f in each.diagnostics if f.name == "probability and frequency") for each in (found, other)]
    np.testing.assert_allclose(values[0][2:], values[1][2:], rtol=1e-3)


@pytest.mark.parametrize(("rounds", "verdict"), [(29, "red"), (30, "yellow"), (99, "yellow"), (100, "green")])
def test_limits_are_held_but_for_rounding(rounds: int, verdict: str) -> None:
    """As many rounds of one weight count as many, whatever the weight."""
    rng = np.random.default_rng(0)
    for pi in rng.uniform(0.2, 0.8, 10):
        action = np.repeat([0, 1], rounds)
        x = rng.normal(0, 1, 2 * rounds)
        log = {"x": x, "action": action, "reward": x + rng.normal(0, 1, x.size), "propensity": np.where(action == 1, pi, 1 - pi)}
        found = next(f for f in mb.fit(log, predicted="x", error_cov=0.0, methods="naive").diagnostics if f.name == "effective sample size")
        assert found.verdict == verdict
        assert found.sentence.startswith("Action 0")
