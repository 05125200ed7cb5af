"""Best linear predictors, and regression calibration, which regresses on them."""

import numpy as np
import pytest
from hypothesis import assume, given

import mebandit as mb
from mebandit.estimation.best_linear import Calibration, best_linear_predictor
from mebandit.estimation.moments import pack
from tests import reference
from tests.estimation.cases import close, estimate
from tests.strategies import Case, logs


@given(logs(rounds=(40, 120), error=0.05))
def test_regression_calibration_is_least_squares_on_the_best_linear_predictor(case: Case) -> None:
    assume(np.bincount(case.actions, minlength=case.n_actions).min() > 0)
    mean, v = case.x.mean(axis=0), np.cov(case.x.T, bias=True).reshape(case.x.shape[1], -1)
    Sx = v - case.sigma.mean(axis=0)
    assume(np.linalg.eigvalsh(Sx)[0] > 0.01)
    seen = np.array([mean + Sx @ np.linalg.solve(Sx + s, x - mean) for x, s in zip(case.x, case.sigma, strict=True)])
    np.testing.assert_allclose(best_linear_predictor(case.x, case.sigma), seen, atol=1e-9)
    found = estimate(case, method="rc")
    for a in range(case.n_actions):
        close(found.theta[a], reference.ridge_estimate(seen, case.actions, case.r, a, 0.5), 1e6)


@pytest.mark.parametrize("seed", [302, 320, 406, 477, 525])
def test_calibration_that_leaves_no_variance_has_no_solution_instead_of_one_of_rounding(seed: int) -> None:
    """Three features whose error is said to be larger than their spread in two directions: x̂ is a line, and what keeps its Gram matrix from
    being singular is the rounding of that of x̃. With these seeds elimination alone did not notice."""
    rng = np.random.default_rng(seed)
    x = rng.normal(100, 1, (100, 3)) @ rng.normal(size=(3, 3))
    seen = x + rng.normal(size=(100, 3)) * x.std(axis=0)
    values, vectors = np.linalg.eigh(np.cov(seen.T, bias=True))
    error = (vectors * (values * [1.5, 1.5, 0.5])) @ vectors.T
    actions = rng.integers(0, 2, 100)
    with pytest.raises(mb.SingularMoments, match="must be identified by the data"):
        mb.estimate(seen, actions, x[:, 0] * actions, np.full(100, 0.5), error, method="rc")


@pytest.mark.parametrize("varying", [False, True])
def test_what_a_constant_feature_is_does_not_matter_to_regression_calibration(varying: bool) -> None:
    """A column of c with another c: its coefficient is divided by it, and nothing else changes."""
    rng = np.random.default_rng(0)
    x, v, actions = 3 + rng.normal(size=500), rng.uniform(0.3, 0.7, 500), rng.integers(0, 2, 500)
    seen, rewards = x + rng.normal(size=500) * np.sqrt(v), x * actions + rng.normal(size=500)
    error = np.zeros((500, 2, 2))
    error[:, 1, 1] = v if varying else 0.5
    found = [
        mb.estimate(np.c_[np.full(500, c), seen], actions, rewards, np.full(500, 0.5), error if varying else error[0], method="rc")
        for c in (1.0, 0.1, 1 / 3, 0.7, 100.0, 1e6 / 7)
    ]
    for own, c in zip(found, (1.0, 0.1, 1 / 3, 0.7, 100.0, 1e6 / 7), strict=True):
        np.testing.assert_allclose(own.theta * [c, 1.0], found[0].theta, rtol=1e-6)
        np.testing.assert_allclose(own.std_error * [c, 1.0], found[0].std_error, rtol=1e-6)


def test_the_best_linear_predictor_of_what_is_far_from_zero_and_of_constants() -> None:
    """Seconds since 1970 with a spread of two minutes; and a constant that binary numbers round."""
    rng = np.random.default_rng(1)
    x = rng.normal(0, 100, (500, 2)) + rng.normal(0, 50, (500, 2))
    near = best_linear_predictor(x, 2500.0)
    np.testing.assert_allclose(best_linear_predictor(x + 1.7e9, 2500.0) - 1.7e9, near, atol=1e-4)
    beside = best_linear_predictor(np.c_[np.full(500, 0.1), x], np.diag([0.0, 2500.0, 2500.0]))
    np.testing.assert_allclose(beside, np.c_[np.full(500, 0.1), near], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1.0, 1e6])
def test_units_do_not_decide_whether_regression_calibration_has_a_solution(unit: float) -> None:
    """A sensor that reads 0 in all rounds of an action; a feature that goes with it tells what it would have read."""
    rng = np.random.default_rng(3)
    x, actions = rng.normal(size=(400, 2)) @ [[1.0, 0.8], [0.0, 0.6]], rng.integers(0, 2, 400)
    seen = np.c_[np.where(actions == 1, 0.0, x[:, 0]), x[:, 1] + 0.5 * rng.normal(size=400)]
    scale = np.array([unit, 1.0])
    found = mb.estimate(seen * scale, actions, x[:, 1], np.full(400, 0.5), np.diag([0.2, 0.25] * scale**2), method="rc", ridge=0.0)
    assert np.isfinite(found.theta).all()


@pytest.mark.parametrize("units", [1.0, 1e-6, 1e6])
def test_the_best_linear_predictor_of_rounds_with_their_own_error(units: float) -> None:
    """Against pseudo-inverses, where some features have no error, one is constant and one follows from others, so that Sx + Σe is singular,
    not in every round in the same directions."""
    rng, n = np.random.default_rng(5), 400
    B = rng.normal(size=(5, 4))
    B[0], B[2] = 0.0, B[1] - B[3]
    half = np.array([0, 1, 0, 1, 1])[:, None] * rng.normal(size=(n, 5, 2)) * rng.choice([0.0, 0.5, 2.0], (n, 1, 1))
    mean, S, E = rng.normal(size=5), B @ B.T, half @ half.transpose(0, 2, 1)
    y = rng.normal(size=(n, 4)) @ B.T + np.einsum("tij,tj->ti", half, rng.normal(size=(n, 2)))
    expected = mean + y - np.einsum("tij,tjk,tk->ti", E, np.linalg.pinv(S + E, rcond=1e-10, hermitian=True), y)
    scale = np.array([1.0, units, 1.0, 1.0, 1.0])
    found = (
        Calibration(scale * mean, scale, S).apply(np.ascontiguousarray((scale * (mean + y)).T), pack(E * np.outer(scale, scale))).T / scale
    )
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    assert np.abs(found - mean - y).max() > 0.1
