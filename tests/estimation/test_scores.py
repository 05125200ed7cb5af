"""Covariances: the sandwich, the uncertainty of a calibration, clusters, and the spread of estimates."""

import numpy as np
import pytest
from hypothesis import assume, given

import mebandit as mb
from mebandit.estimation.methods import Method
from mebandit.values import Floats
from tests import reference
from tests.estimation.cases import estimate, full_rank
from tests.strategies import Case, logs


@given(logs(rounds=(60, 120), error=0.05))
def test_the_covariance_is_the_sandwich(case: Case) -> None:
    assume(full_rank(case))
    found = estimate(case, ridge=0.0)
    assume(not found.guarded.any() and (found.diagnostics["smallest_eigenvalue"] > 1e-2).all())
    expected = reference.proposed_covariance(
        case.x, case.actions, case.r, case.sigma, case.taken, case.stabilizer, case.allowed, found.theta
    )
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("method", ["ridge", "naive", "rc"])
def test_the_covariance_is_that_of_the_stacked_equations(method: Method, varying: bool, intercept: bool) -> None:
    """All that is estimated at once, the mean and covariance of x too, which x̂ needs: J^-1 (Σ ψψ') J^-T with a numerical derivative J of
    Σ ψ. Eleven features are two groups of five and one; three actions of eleven or twelve coefficients, an odd or an even number."""
    rng, n, d, k = np.random.default_rng(3), 1500, 11, 3
    mix, D = np.eye(d) + 0.1 * rng.normal(size=(d, d)), np.diag(np.linspace(0, 0.2, d))
    E = np.where(rng.random(n) < 0.5, 0.3, 1.7)[:, None, None] * D if varying else np.tile(D, (n, 1, 1))
    x = 0.5 + rng.normal(size=(n, d)) @ mix
    seen, actions, first = x + rng.normal(size=(n, d)) * np.sqrt(E[:, range(d), range(d)]), rng.integers(0, k, n), int(intercept)
    r = np.einsum("ti,ti->t", rng.normal(size=(k, d))[actions], x) + rng.normal(size=n)
    found = mb.estimate(
        seen, actions, r, np.full(n, 1 / k), E if varying else D, n_actions=k, method=method, intercept=intercept, sandwich="hc0"
    )
    assert not found.guarded.any()
    theta, upper, p = np.hstack([found.intercept[:, None], found.theta])[:, 1 - first :], np.triu_indices(d), d + first
    center = seen.mean(axis=0)
    start = np.concatenate([center, (np.cov(seen.T, ddof=0) - E.mean(axis=0))[upper], theta.ravel()])

    def scores(parameters: Floats) -> Floats:
        mean, theta, S = parameters[:d], parameters[-k * p :].reshape(k, p), np.zeros((d, d))
        S[upper] = parameters[d : -k * p]
        S = np.triu(S) + np.triu(S, 1).T
        y, C = seen - mean, S + E
        used = seen - np.einsum("tij,tj->ti", E, np.linalg.solve(C, y[:, :, None])[:, :, 0]) if method == "rc" else seen
        v = np.hstack([np.ones((n, first)), used])
        taken = np.pad(E if method == "naive" else np.zeros((n, d, d)), ((0, 0), (first, 0), (first, 0)))
        played = actions[:, None] == np.arange(k)
        left = v @ theta.T - r[:, None]
        psi = played[:, :, None] * (left[:, :, None] * v[:, None, :] - np.einsum("ki,tij->tkj", theta, taken))
        return np.hstack([y, (y[:, :, None] * y[:, None, :] - C)[:, upper[0], upper[1]], psi.reshape(n, -1)])

    at = scores(start)
    np.testing.assert_allclose(at.sum(axis=0), 0, atol=1e-6 * np.abs(at).sum(axis=0).max())
    steps = 1e-5 * np.eye(start.size)
    J = np.stack([(scores(start + step) - scores(start - step)).sum(axis=0) / 2e-5 for step in steps], axis=1)
    expected = (np.linalg.inv(J) @ (at.T @ at) @ np.linalg.inv(J).T)[-k * p :, -k * p :]
    np.testing.assert_allclose(found.covariance, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_standard_errors_match_the_spread_of_estimates() -> None:
    """Under uniform play, over 400 logs: the mean of the squared standard errors is the variance of the estimates."""
    rng = np.random.default_rng(8)
    estimates, variances, contrasts = [], [], []
    for _ in range(400):
        x = rng.normal(1, 1, (400, 2))
        actions = rng.integers(0, 2, 400)
        rewards = np.where(actions == 1, x[:, 0] - x[:, 1], x[:, 0]) + rng.normal(0, 0.5, 400)
        found = mb.estimate(x + rng.normal(0, 0.5, x.shape), actions, rewards, np.full(400, 0.5), 0.25)
        estimates.append(found.theta)
        variances.append(found.std_error**2)
        contrasts.append(found.contrast(1, 0).std_error ** 2)
    spread = np.var(estimates, axis=0, ddof=1)
    relative = 4.5 * np.sqrt(2 / 399)
    np.testing.assert_allclose(np.mean(variances, axis=0), spread, rtol=relative + 0.05)
    gaps = np.array(estimates)[:, 1] - np.array(estimates)[:, 0]
    np.testing.assert_allclose(np.mean(contrasts, axis=0), np.var(gaps, axis=0, ddof=1), rtol=relative + 0.05)


def test_clustering_adds_within_a_unit_before_squaring() -> None:
    rng = np.random.default_rng(2)
    x, actions, r = rng.normal(size=(60, 2)), np.arange(60) % 2, rng.normal(size=60)
    each = mb.estimate(x, actions, r, np.full(60, 0.5), 0.1, sandwich="hc0")
    own = mb.estimate(x, actions, r, np.full(60, 0.5), 0.1, unit=np.arange(60), sandwich="hc0")
    np.testing.assert_allclose(own.covariance, each.covariance)
    doubled = mb.estimate(
        np.repeat(x, 2, axis=0),
        np.repeat(actions, 2),
        np.repeat(r, 2),
        np.full(120, 0.5),
        0.1,
        unit=np.repeat(np.arange(60), 2),
        sandwich="hc0",
    )
    np.testing.assert_allclose(doubled.theta, each.theta, rtol=1e-9)
    np.testing.assert_allclose(doubled.covariance, each.covariance, rtol=1e-9)
