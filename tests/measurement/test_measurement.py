"""Error models: where Σe comes from, which error it is, and that an estimate made with them finds the truth.

Statistical tests have fixed seeds; a tolerance of 4.5 is in standard errors.
"""

import dataclasses
import json
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mebandit as mb
from mebandit import measurement
from mebandit.measurement import from_confusion, from_known, from_replicates, from_validation, from_variances, join
from mebandit.values import Floats

MIX = np.array(
    [[1.0, 0.4, 0.0, 0.2, 0.1], [0.0, 1.0, 0.3, 0.0, 0.2], [0.1, 0.0, 1.0, 0.4, 0.0], [0.0, 0.1, 0.0, 1.0, 0.3], [0.2, 0, 0, 0, 1]]
)
CONFUSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.1, 0.85]])


def make_pairs(kind: str, d: int, n: int, seed: int, *, skewed: bool = False, intercept: bool = False) -> tuple[Floats, Floats]:
    """(predicted, truth) with error of a kind; skewed: exponential contexts, and skewed errors whose variance grows with the level."""
    rng = np.random.default_rng([seed, d])

    def draw() -> Floats:
        return rng.exponential(1, (n, d)) - 1 if skewed else rng.normal(0, 1, (n, d))

    start = 1 + draw() @ MIX[:d, :d]
    error = 0.55 * draw() * (np.sqrt(0.5 + 0.5 * np.minimum(start**2, 9)) if skewed else 1.0)
    if kind == "berkson":
        predicted, truth = start, start + error
    else:
        predicted, truth = (start if kind == "classical" else 0.3 + 1.3 * start) + error, start
    ones = np.ones((n, int(intercept)))
    return np.hstack([ones, predicted]), np.hstack([ones, truth])


def play(predicted: Floats, truth: Floats, theta: Floats, seed: int, column: int = -1) -> tuple[Floats, Floats, Floats, Floats]:
    """A log: two actions, drawn by a policy that reads the prediction."""
    rng = np.random.default_rng(seed)
    chance = 0.15 + 0.7 / (1 + np.exp(-2 * (predicted[:, column] - predicted[:, column].mean())))
    actions = (rng.random(len(truth)) < chance).astype(int)
    rewards = np.einsum("td,td->t", theta[actions], truth) + rng.normal(0, 0.3, len(truth))
    return predicted, actions, rewards, np.where(actions == 1, chance, 1 - chance)


def assert_same(a: mb.ErrorModel, b: mb.ErrorModel) -> None:
    for field in dataclasses.fields(mb.ErrorModel):
        first, second = getattr(a, field.name), getattr(b, field.name)
        if isinstance(first, np.ndarray):
            np.testing.assert_array_equal(first, second)
        elif field.name == "parts":
            assert len(first) == len(second)
            for one, other in zip(first, second, strict=True):
                assert one.places.tolist() == other.places.tolist()
                assert_same(one.model, other.model)
        else:
            assert first == second


MODELS: dict[str, Callable[[], mb.ErrorModel]] = {
    "known": lambda: from_known([[0.3, 0.1], [0.1, 0.2]]),
    "replicates": lambda: from_replicates(np.random.default_rng(1).normal(0, 1, (50, 3, 2)) + np.arange(50)[:, None, None]),
    "classical": lambda: from_validation(*make_pairs("classical", 2, 500, 1)),
    "berkson": lambda: from_validation(*make_pairs("berkson", 2, 500, 1, intercept=True)),
    "biased": lambda: from_validation(*make_pairs("biased", 2, 500, 1)),
    "misclassified": lambda: from_confusion(np.round(CONFUSION * 300)),
    "reported": lambda: from_variances(
        np.full((500, 2), 0.3), **dict(zip(("predicted", "truth"), make_pairs("classical", 2, 500, 3), strict=True))
    ),
    "joined": lambda: join(
        from_confusion([[80, 20], [10, 90]], reference=1), MODELS["replicates"](), MODELS["misclassified"](), MODELS["biased"]()
    ),
}


# ---- the chi-square distribution


@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 31, 200])
def test_the_chi_square_tail_is_that_of_scipy(df: int) -> None:
    for x in [0.0, 1e-8, 0.3, df / 2, df - 0.1, df + 1.9, df + 2.1, 2.0 * df, 5.0 * df + 30]:
        ours, theirs = measurement.chi_square_tail(x, df), float(stats.chi2.sf(x, df))
        assert abs(ours - theirs) < 1e-12
        assert abs(ours - theirs) <= 1e-10 * theirs


def test_far_tails_keep_their_size() -> None:
    assert measurement.chi_square_tail(1000.0, 3) == pytest.approx(float(stats.chi2.sf(1000.0, 3)), rel=1e-10)
    assert measurement.chi_square_tail(1e5, 3) == 0.0


# ---- the verdict


@pytest.mark.parametrize("kind", ["classical", "berkson", "biased"])
@pytest.mark.parametrize(
    ("d", "skewed", "intercept"), [(1, False, False), (2, False, True), (5, False, False), (1, True, True), (5, True, False)]
)
def test_the_verdict_is_right(kind: str, d: int, skewed: bool, intercept: bool) -> None:
    """At least 95 of 100, where the level of 0.01 promises 99."""
    found = [from_validation(*make_pairs(kind, d, 2000, seed, skewed=skewed, intercept=intercept)).verdict for seed in range(100)]
    assert found.count(kind) >= 95


@pytest.mark.parametrize(("d", "n", "skewed"), [(1, 20, True), (2, 60, False), (5, 500, True), (5, 200, False), (5, 2000, True)])
def test_a_true_hypothesis_is_rejected_at_the_level_of_the_test(d: int, n: int, skewed: bool) -> None:
    p = np.array(
        [
            from_validation(*make_pairs("classical", d, n, s, skewed=skewed), assume="classical").tests["classical"].p_value
            for s in range(300)
        ]
    )
    assert np.mean(p < 0.01) <= 0.01 + 4.5 * math.sqrt(0.01 * 0.99 / p.size)
    if n == 2000:
        assert np.mean(p < 0.5) == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(p.size))


def test_small_errors_and_few_pairs_leave_it_undecided() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (50, 1))
    model = from_validation(x + rng.normal(0, 0.1, x.shape), x)
    assert model.verdict == "undecided"
    assert model.kind == max(("classical", "berkson"), key=lambda kind: model.tests[kind].p_value)
    assert "cannot be told apart" in model.describe()
    assert f"{model.notes['factor']:.3g}" in model.describe()
    assert 1 < model.notes["factor"] < 1.1


def test_assuming_changes_the_use_and_not_the_verdict() -> None:
    pairs = make_pairs("berkson", 1, 2000, 0)
    assumed = from_validation(*pairs, assume="classical")
    assert (assumed.kind, assumed.verdict) == ("classical", "berkson")
    np.testing.assert_array_equal(assumed.slope, np.eye(1))
    np.testing.assert_allclose(assumed.error_cov, np.mean((pairs[0] - pairs[1]) ** 2))
    np.testing.assert_array_equal(from_validation(*pairs, assume="biased").slope, from_validation(*pairs).slope)
    assert "do not subtract" in assumed.describe()


def test_units_do_not_matter() -> None:
    predicted, truth = make_pairs("biased", 2, 500, 4)
    A, shift = np.array([[1e4, 0.0], [3e-3, 1e-3]]), np.array([5e5, 2e-2])
    one, other = from_validation(predicted, truth), from_validation(predicted @ A.T + shift, truth @ A.T + shift)
    for name in ("classical", "berkson"):
        assert other.tests[name].statistic == pytest.approx(one.tests[name].statistic, rel=1e-6)
    np.testing.assert_allclose(other.error_cov, A @ one.error_cov @ A.T, rtol=1e-6)


# ---- columns without error


def test_coordinates_without_error_stay_as_they_are() -> None:
    rng = np.random.default_rng(2)
    predicted, truth = make_pairs("berkson", 2, 2000, 5, intercept=True)
    home = rng.integers(0, 2, (2000, 1)).astype(float)
    exact = np.hstack([home, 1 - home, 2 + 3 * home])  # dummies that add up to the intercept, and a column that repeats one
    predicted, truth = np.hstack([exact, predicted]), np.hstack([exact, truth + 0.8 * home])
    predicted[:, 3:] += 0.8 * home
    predicted[:, 3], truth[:, 3] = 1.0, 1.0
    model = from_validation(predicted, truth)
    assert model.verdict == "berkson"
    np.testing.assert_array_equal(model.slope[:4], np.eye(6)[:4])
    np.testing.assert_array_equal(model.offset[:4], 0)
    assert not model.error_cov[:4].any()
    assert not model.error_cov[:, :4].any()
    np.testing.assert_array_equal(model.unbias(predicted)[:, :4], predicted[:, :4])
    left = model.unbias(predicted)[:, 4:] - truth[:, 4:]
    assert np.abs(left.mean(axis=0)).max() < 1e-9
    assert np.abs(left.T @ truth[:, 4:]).max() / 2000 < 1e-9  # the error is uncorrelated with the truth, by construction
    mb.estimate(model.unbias(predicted)[:, 3:], home[:, 0].astype(int), truth[:, 4], np.full(2000, 0.5), model.error_cov[3:, 3:])


def test_no_error_stays_no_error_however_much_it_explains() -> None:
    rng = np.random.default_rng(3)
    known, x = rng.normal(0, 1e-3, (500, 1)), rng.normal(0, 1, (500, 1))
    predicted = np.hstack([known, 900 * known + 0.7 * x + rng.normal(0, 0.3, x.shape)])
    model = from_validation(predicted, np.hstack([known, x]))
    assert model.slope[1, 0] == pytest.approx(900, rel=0.1)
    assert not model.error_cov[0].any()
    np.testing.assert_array_equal(model.unbias(predicted)[:, 0], known[:, 0])


def test_errors_that_repeat_each_other_count_once() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (500, 2))
    model = from_validation(x + rng.normal(0, 0.5, (500, 1)), x, assume="classical")
    assert model.tests["classical"].df == 3  # 1, x_0, x_1 for one error, not for two
    assert model.verdict == "classical"


def test_a_perfect_prediction_has_no_error() -> None:
    x = np.random.default_rng(0).normal(0, 1, (100, 2))
    model = from_validation(x, x)
    assert not model.error_cov.any()
    np.testing.assert_array_equal(model.reliability, 1)
    assert model.verdict == "undecided"
    assert model.tests["classical"] == (0.0, 0, 1.0)


def test_a_perfect_line_is_bias() -> None:
    x = np.random.default_rng(0).normal(0, 1, (100, 1))
    model = from_validation(1 + 2 * x, x)
    assert model.verdict == "biased"
    np.testing.assert_allclose(model.unbias(1 + 2 * x), x, atol=1e-12)


# ---- sampling uncertainty


def replications(kind: str, runs: int) -> list[mb.ErrorModel]:
    if kind == "misclassified":
        rngs = [np.random.default_rng([s, 8]) for s in range(runs)]
        return [
            from_confusion(
                np.array([r.multinomial(n, p) for n, p in zip((200, 300, 250), CONFUSION, strict=True)]), prevalence=[0.3, 0.4, 0.3]
            )
            for r in rngs
        ]
    if kind == "replicates":
        made = []
        for s in range(runs):
            rng = np.random.default_rng([s, 9])
            readings = rng.normal(0, 2, (200, 1, 2)) + (rng.exponential(1, (200, 3, 2)) - 1) @ MIX[:2, :2]
            readings[::3, 2] = np.nan
            made.append(from_replicates(readings, averaged=2))
        return made
    return [from_validation(*make_pairs(kind, 2, 300, s, skewed=True), assume=kind) for s in range(runs)]


@pytest.mark.parametrize("kind", ["classical", "berkson", "biased", "misclassified", "replicates"])
def test_the_sampling_covariance_is_that_over_replications(kind: str) -> None:
    """Skewed errors of growing variance; a variance over 400 runs of heavy-tailed estimates is known to some 25 %."""
    models = replications(kind, 400)
    seen = np.cov(np.array([model.parameters for model in models]).T)
    told = np.mean([model.parameters_cov for model in models], axis=0)
    free = np.diag(told) > 0
    np.testing.assert_array_equal(np.diag(seen)[~free] < 1e-20, True)
    ratio = np.diag(told)[free] / np.diag(seen)[free]
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4
    size = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))[np.ix_(free, free)]
    assert np.abs((told - seen)[np.ix_(free, free)] / size).max() < 0.35
    errors = np.array([model.error_cov for model in models])
    inside = np.array([model.error_cov_std_error for model in models])
    shares = inside.mean(axis=0) / errors.std(axis=0)
    assert ((shares > 0.75) & (shares < 1.25)).all()


def test_the_covariance_is_found_within_its_error() -> None:
    A = 0.55 * np.eye(2)
    model = from_validation(*make_pairs("classical", 2, 3000, 7))
    assert (np.abs(model.error_cov - A @ A) < 4.5 * model.error_cov_std_error).all()
    B = 1.3 * np.eye(2)
    model = from_validation(*make_pairs("biased", 2, 3000, 7))
    assert (np.abs(model.error_cov - np.linalg.inv(B) @ A @ A @ np.linalg.inv(B)) < 4.5 * model.error_cov_std_error).all()
    assert (np.abs(model.parameters[:6] - [0.3, 0.3, 1.3, 0, 0, 1.3]) < 4.5 * np.sqrt(np.diag(model.parameters_cov)[:6])).all()


def test_other_parameters_make_another_model() -> None:
    for name, make in MODELS.items():
        model = make()
        same = model.at(model.parameters)
        np.testing.assert_allclose(same.error_cov, model.error_cov, atol=1e-15)
        np.testing.assert_array_equal(same.parameters, model.parameters)
        moved = model.parameters
        moved[-1] *= 2  # the last entry of Ω
        if name == "misclassified":
            np.testing.assert_allclose(model.at(moved).error_cov, model.error_cov)
        else:
            assert model.at(moved).raw_cov[-1, -1] == 2 * model.raw_cov[-1, -1]
        if name == "reported":
            assert model.at(moved).scale[-1] == pytest.approx(2 * model.scale[-1])


# ---- repeated readings


def test_replicates_by_hand() -> None:
    readings = np.array([[[1.0], [3.0]], [[2.0], [2.0]], [[5.0], [np.nan]], [[0.0], [4.0]]])
    model = from_replicates(readings)
    assert model.error_cov[0, 0] == pytest.approx((2 + 0 + 8) / 3)
    assert (model.sample_size, model.notes["left_out"]) == (3, 1)
    assert "1 subjects with fewer than two readings were left out" in model.describe()
    assert from_replicates(readings, averaged=4).error_cov[0, 0] == pytest.approx(10 / 12)


def test_replicates_find_the_error_and_what_is_wrong_with_it() -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(3, 2, (1500, 1, 2))
    clean = truth + rng.normal(0, [0.8, 1.2], (1500, 3, 2))
    clean[rng.random(1500) < 0.3, 0] = np.nan
    model = from_replicates(clean, averaged=3)
    assert (np.abs(model.error_cov - np.diag([0.64, 1.44]) / 3) < 4.5 * model.error_cov_std_error).all()
    np.testing.assert_allclose(model.reliability, [4 / (4 + 0.64 / 3), 4 / (4 + 1.44 / 3)], atol=0.02)
    assert min(test.p_value for test in model.tests.values()) > 0.01
    assert model.tests["shift"].df == 4
    single = from_replicates(rng.normal(0, 1, (4000, 1, 1)) + rng.normal(0, math.sqrt(2), (4000, 2, 1)))
    np.testing.assert_allclose(single.reliability, 1 / 3, atol=0.05)
    shifted = from_replicates(clean + np.array([0.0, 0.2, 0.0])[None, :, None]).tests
    assert shifted["shift"].p_value < 1e-6
    growing = from_replicates(truth + rng.normal(0, 1, (1500, 3, 2)) * np.abs(truth) * [0.3, 0.0]).tests
    assert growing["level 0"].p_value < 1e-6
    assert "level 1" not in growing


# ---- predicted classes


def test_confusion_by_hand() -> None:
    model = from_confusion([[80, 20], [10, 90]])
    np.testing.assert_allclose(model.slope, [[0.8, 0.1], [0.2, 0.9]])
    determinant = 0.7
    V0, V1 = 0.8 * 0.2 / determinant**2, 0.1 * 0.9 / determinant**2
    np.testing.assert_allclose(model.error_cov, (V0 + V1) / 2 * np.array([[1, -1], [-1, 1]]))
    np.testing.assert_allclose(model.error_cov_in([0.25, 0.75])[0, 0], 0.25 * V0 + 0.75 * V1)
    np.testing.assert_allclose(model.error_cov_in([-0.1, 2.0])[0, 0], V1)
    np.testing.assert_allclose(model.unbias(np.eye(2)).sum(axis=1), 1)
    given = from_confusion([[0.8, 0.2], [0.1, 0.9]], prevalence=[1, 0])
    assert given.error_cov[0, 0] == pytest.approx(V0)
    assert not given.parameters_cov.any()
    assert from_known(0.2, 2).error_cov_in([0.5, 0.5])[0, 0] == 0.2


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_a_class_without_a_column_changes_nothing_for_the_others(reference: int) -> None:
    """x̃ sums to 1, so that the column of a class says nothing that the others do not: everything is that of all classes, without it."""
    counts = np.round(CONFUSION * [[300], [200], [500]])
    whole, model, left = from_confusion(counts), from_confusion(counts, reference=reference), [i for i in range(3) if i != reference]
    sub, mean = np.ix_(left, left), np.array([0.5, 0.2, 0.3])
    np.testing.assert_allclose(model.unbias(np.eye(3)[:, left]), whole.unbias(np.eye(3))[:, left], atol=1e-12)
    np.testing.assert_allclose(model.error_cov, whole.error_cov[sub], atol=1e-12)
    np.testing.assert_allclose(model.error_cov_std_error, whole.error_cov_std_error[sub], rtol=1e-5)
    np.testing.assert_allclose(model.error_cov_in(mean[left]), whole.error_cov_in(mean)[sub], atol=1e-12)
    order = [reference, *left]
    np.testing.assert_allclose(model.class_probabilities, CONFUSION.T[np.ix_(order, order)], atol=0.01)
    rng = np.random.default_rng(2)
    true = rng.choice(3, 4000, p=mean)
    seen = np.eye(3)[(rng.random(4000)[:, None] > np.cumsum(CONFUSION[true], axis=1)).sum(axis=1)]
    log = play(seen, np.eye(3)[true], np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]]), 3)
    with_all = mb.estimate(*log, whole, method="dr")
    without = mb.estimate(seen[:, left], *log[1:], model, method="dr", intercept=True)
    np.testing.assert_allclose(without.intercept, with_all.theta[:, reference], rtol=1e-6)
    np.testing.assert_allclose(without.intercept_std_error, with_all.std_error[:, reference], rtol=1e-3)  # derivatives by differences
    np.testing.assert_allclose(without.theta + without.intercept[:, None], with_all.theta[:, left], rtol=1e-6)


def test_a_confusion_matrix_is_told_by_class_and_doubted_where_it_looks_turned() -> None:
    words = from_confusion([[80, 20], [10, 90]]).describe(["idle", "active"])
    assert "where 'idle' is true, predicted are 'idle' 0.80, 'active' 0.20\nwhere 'active' is true, predicted are 'idle' 0.10, " in words
    assert "mostly predicted" not in words
    turned = from_confusion([[20, 80], [90, 10]], reference=0).describe(["active"])
    assert "where the reference class is true, predicted are the reference class 0.20, 'active' 0.80" in turned
    assert "the reference class is mostly predicted to be another: are rows the truth, and are rows and columns in one order?" in turned


@pytest.mark.parametrize("reference", [None, 1])
def test_predictions_that_are_no_classes_are_refused_with_a_confusion_matrix(reference: int | None) -> None:
    rng = np.random.default_rng(4)
    model, left = from_confusion(np.round(CONFUSION * 300), reference=reference), [0, 2] if reference else [0, 1, 2]
    classes = np.eye(3)[rng.integers(0, 3, 200)]
    log = (rng.integers(0, 2, 200), rng.normal(size=200), np.full(200, 0.5))
    mb.estimate(classes[:, left], *log, model)
    two, half = classes.copy(), classes.copy()
    two[7, left], half[7] = 1.0, [0.5, 0.2, 0.3]
    for wrong in (two, half, *([classes * (np.arange(200) != 7)[:, None]] if reference is None else [])):
        with pytest.raises(mb.InvalidInput, match=r"the predicted classes \(coordinate 0, .*\) must be 1 for the class that was predicted"):
            mb.estimate(wrong[:, left], *log, model)
    with pytest.raises(mb.InvalidInput, match=r"the predicted classes \(a, b.*\) must be 1 for the class that was predicted"):
        mb.estimate(np.c_[half[:, left], log[1]], *log, join(model.named(*"abc"[: model.dim]), from_known([0.1]).named("x")))


def test_a_class_that_is_never_confused_has_no_error() -> None:
    model = from_confusion([[50, 0, 0], [0, 40, 10], [0, 5, 45]])
    assert not model.error_cov[0].any()
    assert not model.error_cov_std_error[0].any()


# ---- reported variances


def test_reported_variances_are_believed_or_scaled() -> None:
    rng = np.random.default_rng(5)
    v = rng.uniform(0.1, 1.0, (4000, 2))
    x = rng.normal(0, 1, v.shape)
    predicted = x + rng.normal(0, 1, v.shape) * np.sqrt(v * [1.0, 1.8])
    believed = from_variances(v)
    np.testing.assert_allclose(believed.error_cov, np.diag(v.mean(axis=0)))
    np.testing.assert_array_equal(believed.covariances(v[:3])[1], np.diag(v[1]))
    model = from_variances(v, predicted=predicted, truth=x)
    assert (np.abs(model.scale - [1.0, 1.8]) < 4.5 * model.scale_std_error).all()
    assert model.scale_std_error == pytest.approx(np.array([1, 1.8]) * math.sqrt(2 / 4000), rel=0.1)
    assert model.tests["calibration 0"].p_value > 0.01
    assert model.tests["calibration 1"].p_value < 1e-6
    assert model.verdict == "classical"
    np.testing.assert_allclose(model.covariances(v)[7], np.diag(model.scale * v[7]))
    np.testing.assert_allclose(np.diag(model.error_cov_std_error), model.scale_std_error * v.mean(axis=0), rtol=1e-6)


def test_variances_of_a_calibrated_model_are_found_to_be_berkson() -> None:
    rng = np.random.default_rng(6)
    predicted, v = rng.normal(0, 1, (2000, 1)), rng.uniform(0.1, 0.6, (2000, 1))
    model = from_variances(v, predicted=predicted, truth=predicted + rng.normal(0, np.sqrt(v)))
    assert model.verdict == "berkson"
    with pytest.warns(measurement.BerksonWarning, match="factor"):
        measurement.warn_if_berkson(model, [[1.0]])


# ---- with an estimate on top


def test_the_example_of_a_calibrated_prediction() -> None:
    """Var x = 1, error variance 0.3: subtracting it finds 1 / (1 - 0.3/0.7)^-1 = 1.75 for θ = 1, the unbiased prediction finds 1."""
    rng = np.random.default_rng(8)
    predicted = rng.normal(0, math.sqrt(0.7), (41_000, 1))
    truth = predicted + rng.normal(0, math.sqrt(0.3), predicted.shape)
    model = from_validation(predicted[:1000], truth[:1000])
    log = play(predicted[1000:], truth[1000:], np.array([[0.0], [1.0]]), 1)
    wrong = mb.estimate(*log, 0.3)
    assert abs(wrong.theta[1, 0] - 1 / (1 - 0.3 / 0.7)) < 4.5 * wrong.std_error[1, 0]
    assert measurement.overcorrection([[0.3]], [[0.7]]).factor == pytest.approx(1.75)
    right = mb.estimate(model.unbias(log[0]), *log[1:], model.error_cov)
    assert abs(right.theta[1, 0] - 1) < 0.1


@pytest.mark.parametrize("kind", ["classical", "berkson", "biased"])
@pytest.mark.parametrize("skewed", [False, True])
def test_an_estimate_with_the_model_finds_the_truth(kind: str, skewed: bool) -> None:
    """2000 pairs, a log of 40 000 rounds. The spread over 20 repetitions is the tolerance."""
    theta = np.array([[0.5, -1.0, 0.3], [0.0, 1.0, -0.6]])
    found = []
    for seed in range(20):
        predicted, truth = make_pairs(kind, 2, 42_000, seed + 100, skewed=skewed, intercept=True)
        model = from_validation(predicted[:2000], truth[:2000], assume=kind)
        log = play(predicted[2000:], truth[2000:], theta, seed)
        found.append(mb.estimate(model.unbias(log[0]), *log[1:], model.error_cov).theta)
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(20)
    assert (np.abs(mean - theta) < 4.5 * error + 0.005).all()
    assert error.max() < 0.05


def test_an_estimate_from_predicted_classes_finds_the_truth() -> None:
    rng = np.random.default_rng(10)
    theta = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]])
    true = rng.choice(3, 60_000, p=[0.6, 0.3, 0.1])
    seen = (rng.random(60_000)[:, None] > np.cumsum(CONFUSION[true], axis=1)).sum(axis=1)
    model = from_confusion(CONFUSION)
    x̃ = np.eye(3)[seen]
    log = play(x̃, np.eye(3)[true], theta, 1)
    unbiased = model.unbias(x̃)
    found = mb.estimate(unbiased, *log[1:], model.error_cov_in(unbiased.mean(axis=0)))
    assert (np.abs(found.theta - theta) < 4.5 * found.std_error).all()
    assert np.abs(mb.estimate(*log, 0.0, method="ridge").theta - theta).max() > 0.2


# ---- the wrong correction


def test_overcorrection_is_the_limit_of_the_wrong_estimate() -> None:
    M, Σ = np.array([[1.0, 0.3], [0.3, 0.8]]), np.diag([0.0, 0.4])
    found = measurement.overcorrection(Σ, M)
    np.testing.assert_allclose(found.matrix, np.linalg.inv(M - Σ) @ M, atol=1e-12)
    assert found.factor == pytest.approx(np.linalg.eigvals(found.matrix).real.max())
    exploded = measurement.overcorrection([[0.8]], [[0.7]])
    assert math.isinf(exploded.factor)
    assert np.isnan(exploded.matrix).all()


def test_a_warning_comes_where_the_correction_is_wrong_and_only_there() -> None:
    pairs = make_pairs("berkson", 1, 1000, 0)
    M = pairs[0].T @ pairs[0] / 1000
    assumed = from_validation(*pairs, assume="classical")
    with pytest.warns(measurement.BerksonWarning, match=f"factor of up to {measurement.overcorrection(assumed, M).factor:.3g}"):
        measurement.warn_if_berkson(assumed, M)
    with pytest.warns(measurement.BerksonWarning, match="not positive definite"):
        measurement.warn_if_berkson(from_validation(*pairs), M, error_cov=10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measurement.warn_if_berkson(from_validation(*pairs), M)
        measurement.warn_if_berkson(from_validation(*make_pairs("classical", 1, 1000, 0)), M)
        measurement.warn_if_berkson(from_known(0.3, 1), M)


# ---- several models as one


def test_joined_models_have_each_its_features_in_their_places() -> None:
    s, t = MODELS["biased"]().named("a", "b"), MODELS["misclassified"]().named("u", "v", "w")
    model = join(s, t, features=["v", "b", "one", "w", "a", "u"])
    assert model.features == ("v", "b", "one", "w", "a", "u")
    own, other = [4, 1], [5, 0, 3]
    x = np.random.default_rng(0).normal(0, 1, (7, 6))
    shares = np.array([0.5, 0.0, 1.0, 0.2, 0.0, 0.3])
    pairs = [
        (s.error_cov, t.error_cov, model.error_cov),
        (s.error_cov_std_error, t.error_cov_std_error, model.error_cov_std_error),
        (s.error_cov, t.error_cov_in(shares[other]), model.error_cov_in(shares)),
    ]
    for first, second, both in pairs:
        expected = np.zeros((6, 6))
        expected[np.ix_(own, own)], expected[np.ix_(other, other)] = first, second
        np.testing.assert_allclose(both, expected, atol=1e-12)
    np.testing.assert_allclose(model.unbias(x)[:, own], s.unbias(x[:, own]))
    np.testing.assert_allclose(model.unbias(x)[:, other], t.unbias(x[:, other]))
    np.testing.assert_array_equal(model.unbias(x)[:, 2], x[:, 2])
    assert model.unbiases
    assert not join(from_known([0.1]), MODELS["replicates"]()).unbiases


def test_joining_in_steps_is_joining_at_once(tmp_path: Path) -> None:
    a, b, c = MODELS["biased"]().named("a", "b"), from_known([0.3]).named("c"), MODELS["misclassified"]().named("u", "v", "w")
    order = ["v", "a", "w", "c", "b", "u"]
    once, twice = join(a, b, c, features=order), join(join(a, b, features=["b", "c", "a"]), c, features=order)
    assert_same(once, twice)
    once.save(tmp_path / "joined.json")
    assert_same(mb.ErrorModel.load(tmp_path / "joined.json"), once)
    assert join(a.named(), b, c).features == ()


def test_an_estimate_with_a_joined_model_is_right_and_knows_how_sure_it_is() -> None:
    """Sixty trials, each with its own hundred pairs of one feature, replicates of another and counts of a class: θ is off by as much as
    its standard errors say, most of which come from the error model."""
    theta, z, shares = np.array([[0.5, -1.0, 0.3, 0.8], [0.0, 1.0, -0.6, -0.4]]), [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, 77])
        x = rng.normal([1.0, 2.0], [1.0, 1.5], (3000, 2))
        true = rng.choice(2, 3000, p=[0.6, 0.4])
        seen = np.where(rng.random(3000) < 0.15, 1 - true, true)
        stress = 0.4 + 0.7 * x[:, 0] + rng.normal(0, 0.4, 3000)
        steps = x[:, 1] + rng.normal(0, 0.8, 3000)
        truth, start = np.column_stack([x[:, 0], np.eye(2)[true], x[:, 1]]), rng.normal(1, 1, 100)
        counts = rng.multinomial(150, [[0.85, 0.15], [0.15, 0.85]])
        models = [
            from_validation((0.4 + 0.7 * start + rng.normal(0, 0.4, 100))[:, None], start[:, None], assume="biased").named("stress"),
            from_replicates(rng.normal(0, 3, (100, 1, 1)) + rng.normal(0, 0.8, (100, 2, 1))).named("steps"),
            from_confusion(counts).named("idle", "active"),
        ]
        model = join(*models, features=["stress", "idle", "active", "steps"])
        log = play(np.column_stack([stress, np.eye(2)[seen], steps]), truth, theta, seed, column=0)
        names = {name: log[0][:, j] for j, name in enumerate(model.features)} | dict(
            zip(("action", "reward", "propensity"), log[1:], strict=True)
        )
        found = mb.fit(names, predicted=model.features, error_cov=model, methods="dr", progress=False).estimates["dr"]
        assert found.model_covariance is not None
        z.append(((found.theta - theta) / found.std_error)[:, [0, 3]])  # the classes' intervals are known to be too wide
        shares.append((np.diag(found.model_covariance) / np.diag(found.covariance)).reshape(2, 4)[:, [0, 3]])
    spread = np.mean(np.square(z), axis=0)
    assert ((spread > 0.5) & (spread < 1.8)).all()  # chi-square on 60, over 60: within 4 standard deviations
    assert np.median(shares) > 0.5


# ---- what every model does


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_describes_unbiases_and_saves_itself(kind: str, tmp_path: Path) -> None:
    model = MODELS[kind]()
    assert model.kind == kind
    lines = model.describe().splitlines()
    assert lines[0].startswith(f"kind: {kind}, ")
    assert lines[-1].startswith("What to do: ")
    assert sum(line.startswith("coordinate") for line in lines) == model.dim
    names = [f"feature {j}" for j in range(model.dim)]
    assert model.describe(names) == "\n".join(re.sub(r"coordinate (\d+)", r"'feature \1'", line) for line in lines)
    with pytest.raises(mb.InvalidInput, match=r"features must be \d+ names, or none"):
        model.describe([*names, "one more"])
    x = np.random.default_rng(0).normal(0, 1, (5, model.dim))
    np.testing.assert_allclose(model.unbias(x) @ model.slope.T + model.offset, x, atol=1e-12)
    np.testing.assert_allclose(model.unbias(x[0]), model.unbias(x)[0])
    if kind in ("known", "replicates", "classical", "reported"):
        np.testing.assert_array_equal(model.unbias(x), x)
    model.save(tmp_path / "errors.json")
    assert_same(mb.ErrorModel.load(tmp_path / "errors.json"), model)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "format": lambda data: data.update(format="something"),
    "version": lambda data: data.update(version=2),
    "kind": lambda data: data.update(kind="strange"),
    "slope": lambda data: data.update(slope=[[1.0, 1.0], [1.0, 1.0]]),
    "missing": lambda data: data.pop("raw_cov"),
    "negative": lambda data: data.update(raw_cov=[[-1.0, 0.0], [0.0, 1.0]]),
    "scalar for a matrix": lambda data: data.update(raw_cov=0.3),
    "shape": lambda data: data.update(parameters_cov=[[1.0]]),
    "nan": lambda data: data.update(offset=[float("nan"), 0.0]),
    "no list": lambda data: data.update(offset=3),
    "empty": lambda data: data.update(offset=[]),
    "texts": lambda data: data.update(reliability=["a", "b"]),
    "tests": lambda data: data.update(tests={"classical": [1.0, 2]}),
    "unknown test": lambda data: data.update(tests={"other": [1.0, 2, 0.5]}),
    "verdict": lambda data: data.update(verdict="perhaps"),
    "scale": lambda data: data.update(scale=[-1.0, 1.0]),
    "notes": lambda data: data.update(notes=[1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    MODELS["classical"]().save(path)
    data = json.loads(path.read_text())
    DAMAGE[damage](data)
    path.write_text(json.dumps(data))
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)


JOINED_DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no parts": lambda data: data.update(parts=[]),
    "parts of another type": lambda data: data.update(parts=3),
    "part without a model": lambda data: data["parts"][0].pop("model"),
    "damaged part": lambda data: data["parts"][1]["model"].update(raw_cov=[[-1.0]]),
    "place taken twice": lambda data: data["parts"][0].update(places=[0, 1]),
    "places that are no numbers": lambda data: data["parts"][0].update(places=["a", "b"]),
    "broken places": lambda data: data["parts"][0].update(places=[0.5, 2.0]),
    "nested badly": lambda data: data["parts"][0].update(places=[[0, 2]]),
    "too few places": lambda data: data["parts"][0].update(places=[0]),
    "part within a part": lambda data: data["parts"].__setitem__(
        0, {"places": [0, 2], "model": {"kind": "joined", "parts": data["parts"][:1], "features": []}}
    ),
    "names": lambda data: data.update(features=["a"]),
    "reported part": lambda data: data["parts"][0]["model"].update(kind="reported"),
    "part against its pairs": lambda data: data["parts"][0]["model"].update(kind="classical", verdict="berkson"),
    "undecided without its cost": lambda data: data["parts"][0]["model"].update(kind="classical", verdict="undecided"),
}


@pytest.mark.parametrize("damage", JOINED_DAMAGE)
def test_a_damaged_file_of_a_joined_model_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    model = join(MODELS["known"]().named("a", "c"), from_known([0.1]).named("b"), features=["a", "b", "c"])
    model.save(path)
    data = json.loads(path.read_text())
    assert_same(mb.ErrorModel.load(path), model)
    JOINED_DAMAGE[damage](data)
    path.write_text(json.dumps(data))
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'"text"', b"PK\x03\x04"])
def test_a_foreign_file_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    path.write_bytes(content)
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)
    with pytest.raises(mb.LogError, match=r"must be a readable file; got .*nowhere"):
        mb.ErrorModel.load(tmp_path / "nowhere")
    with pytest.raises(mb.LogError, match="the file to write must be one that can be written"):
        MODELS["known"]().save(tmp_path / "nowhere" / "errors.json")


NAN = float("nan")
X = np.random.default_rng(0).normal(0, 1, (60, 2))
Y = X + np.random.default_rng(1).normal(0, 0.5, X.shape)
NOISE = np.random.default_rng(2).normal(0, 1, X.shape)

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "number without dim": (lambda: from_known(0.3), "dim"),
    "negative variance": (lambda: from_known([-0.3]), "cov"),
    "wrong dim": (lambda: from_known([0.1, 0.2], 3), "cov"),
    "dim of zero": (lambda: from_known(0.1, 0), "dim"),
    "no covariance": (lambda: from_known(None), "cov"),  # type: ignore[arg-type]
    "flat readings": (lambda: from_replicates([[1.0, 2.0]]), "readings"),
    "one reading": (lambda: from_replicates(np.ones((9, 1, 1))), "readings"),
    "torn reading": (lambda: from_replicates([[[1.0, NAN], [1.0, 2.0]]] * 9), "reading"),
    "infinite reading": (lambda: from_replicates([[[1.0], [np.inf]]] * 9), "readings"),
    "few subjects": (lambda: from_replicates([[[1.0], [NAN]]] * 9), "readings"),
    "averaged": (lambda: from_replicates(np.ones((9, 2, 1)), averaged=0), "averaged"),
    "few pairs": (lambda: from_validation(X[:20], Y[:20]), "predicted and truth"),
    "other shape": (lambda: from_validation(X, Y[:, :1]), "truth"),
    "flat pairs": (lambda: from_validation(X[:, 0], Y[:, 0]), "predicted"),
    "no coordinates": (lambda: from_validation(X[:, :0], Y[:, :0]), "coordinates"),
    "NaN": (lambda: from_validation(np.where(X > 2, NAN, X), Y), "predicted"),
    "assume": (lambda: from_validation(X, Y, assume="known"), "assume"),
    "constant truth": (lambda: from_validation(X, np.ones_like(X)), "truth"),
    "constant prediction": (lambda: from_validation(np.ones_like(X), X), "predicted"),
    "repeated truth": (lambda: from_validation(Y, X[:, [0, 0]]), "truth"),
    "no trace": (lambda: from_validation(NOISE, X), "predicted"),
    "no trace in a direction": (lambda: from_validation(np.column_stack([Y[:, 0], 2 * Y[:, 0] + NOISE[:, 0]]), X), "predicted"),
    "flat confusion": (lambda: from_confusion([1, 2]), "matrix"),
    "one class": (lambda: from_confusion([[3]]), "classes"),
    "scalar confusion": (lambda: from_confusion(3), "classes"),
    "not square": (lambda: from_confusion([[1, 2, 3], [1, 2, 3]]), "matrix"),
    "negative count": (lambda: from_confusion([[10, -1], [1, 10]]), "matrix"),
    "empty row": (lambda: from_confusion([[10, 1], [0, 0]]), "matrix"),
    "neither counts nor shares": (lambda: from_confusion([[0.8, 0.3], [0.1, 0.9]]), "matrix"),
    "singular": (lambda: from_confusion([[0.5, 0.5], [0.5, 0.5]]), "matrix"),
    "singular within noise": (lambda: from_confusion([[55, 45], [45, 55]]), "matrix"),
    "prevalence": (lambda: from_confusion([[80, 20], [20, 80]], prevalence=[0.5, 0.6]), "prevalence"),
    "reference": (lambda: from_confusion([[80, 20], [20, 80]], reference=2), "reference"),
    "negative reported": (lambda: from_variances([[0.1], [-0.1]]), "variances"),
    "flat reported": (lambda: from_variances([0.1, 0.2]), "variances"),
    "one reported": (lambda: from_variances([[0.1]]), "variances"),
    "half a pair": (lambda: from_variances(np.ones_like(X), predicted=X), "predicted and truth"),
    "pairs of another shape": (lambda: from_variances(np.ones((5, 2)), predicted=X, truth=Y), "predicted"),
    "silent variance": (lambda: from_variances(np.zeros_like(X), predicted=X, truth=Y), "variances"),
    "unbias shape": (lambda: from_known([0.1, 0.2]).unbias([1.0]), "predicted"),
    "unbias NaN": (lambda: from_known([0.1, 0.2]).unbias([1.0, NAN]), "predicted"),
    "covariances of another kind": (lambda: from_known([0.1]).covariances([[0.1]]), "covariances"),
    "covariances of another width": (lambda: from_variances([[0.1], [0.2]]).covariances([[0.1, 0.2]]), "variances"),
    "classes of another kind": (lambda: from_known([0.1]).class_probabilities, "class_probabilities"),
    "no shares": (lambda: from_confusion([[80, 20], [20, 80]]).error_cov_in([-1.0, 0.0]), "mean"),
    "parameters": (lambda: from_known([0.1]).at([0.0]), "parameters"),
    "overcorrection of a fit": (lambda: measurement.overcorrection(MODELS["biased"](), np.eye(2)), "error"),
    "second moment": (lambda: measurement.overcorrection([[0.1]], [[-1.0]]), "second_moment"),
    "nothing to join": (lambda: join(), "models"),
    "no model to join": (lambda: join(0.3), "models"),  # type: ignore[arg-type]
    "joined variances": (lambda: join(MODELS["reported"]()), "models"),
    "joined against the pairs": (lambda: join(from_validation(*make_pairs("berkson", 1, 500, 1), assume="classical")), "models"),
    "joined twice": (lambda: join(from_known([0.1]).named("a"), from_known([0.2]).named("a")), "features"),
    "joined without names": (lambda: join(from_known([0.1]), features=["a"]), "models"),
    "joined without place": (lambda: join(from_known([0.1]).named("a"), features=["b"]), "features"),
    "order with repetitions": (lambda: join(from_known([0.1]).named("a"), features=["a", "b", "b"]), "features"),
    "order as a text": (lambda: join(from_known([0.1]).named("a"), features="a"), "features"),
    "order as a set": (lambda: join(from_known([0.1]).named("a"), features={"a", "b"}), "features"),  # type: ignore[arg-type]
    "order as a number": (lambda: join(from_known([0.1]).named("a"), features=3), "features"),  # type: ignore[arg-type]
    "too many names": (lambda: from_known([0.1]).named("a", "b"), "features"),
    "the same name twice": (lambda: from_known([0.1, 0.2]).named("a", "a"), "features"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    make, what = BAD[case]
    with pytest.raises(mb.InvalidInput) as caught:
        make()
    assert re.match(rf"^[^\n]*{what}[^\n]* must [^\n]+; got [^\n]+\.[^\n]*$", str(caught.value)), str(caught.value)
