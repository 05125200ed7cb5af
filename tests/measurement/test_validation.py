"""Error models from validation pairs, and estimates made with them. A tolerance of 4.5 is in standard errors."""

import math

import numpy as np
import pytest

import mebandit as mb
from mebandit import measurement
from mebandit.measurement import from_validation
from tests.measurement.cases import make_pairs, play


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


def test_the_covariance_is_found_within_its_error() -> None:
    A = 0.55 * np.eye(2)
    model = from_validation(*make_pairs("classical", 2, 3000, 7))
    assert (np.abs(model.error_cov - A @ A) < 4.5 * model.error_cov_std_error).all()
    B = 1.3 * np.eye(2)
    model = from_validation(*make_pairs("biased", 2, 3000, 7))
    assert (np.abs(model.error_cov - np.linalg.inv(B) @ A @ A @ np.linalg.inv(B)) < 4.5 * model.error_cov_std_error).all()
    assert (np.abs(model.parameters[:6] - [0.3, 0.3, 1.3, 0, 0, 1.3]) < 4.5 * np.sqrt(np.diag(model.parameters_cov)[:6])).all()


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
