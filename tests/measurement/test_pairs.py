"""Which error it is: the tests on validation pairs and the verdict. A tolerance of 4.5 is in standard errors."""

import math

import numpy as np
import pytest

from mebandit.measurement import from_validation
from tests.measurement.cases import make_pairs


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
    seen = x + rng.normal(0, 0.1, x.shape)
    assert from_validation(seen, x).kind == "biased"
    assert "cannot be told apart" not in from_validation(seen, x).describe()
    model = from_validation(seen, x, assume="classical")
    assert model.verdict == "undecided"
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


def test_pairs_of_a_participant_count_as_one_where_they_repeat_each_other() -> None:
    """Every pair three times, labelled by participant: the covariance of the parameters is that of the pairs themselves, up to factors
    n / (n - 1) and leverages of order 1/n."""
    predicted, truth = make_pairs("biased", 2, 300, 8)
    labels = np.array([f"p{i}" for i in range(300)])
    once = from_validation(predicted, truth)
    thrice = from_validation(np.repeat(predicted, 3, axis=0), np.repeat(truth, 3, axis=0), unit=np.repeat(labels, 3))
    np.testing.assert_allclose(np.diag(thrice.parameters_cov), np.diag(once.parameters_cov), rtol=0.05)
    for name, test in once.tests.items():
        assert thrice.tests[name].statistic == pytest.approx(test.statistic, rel=1e-9)
    assert thrice.notes["participants"] == 300
