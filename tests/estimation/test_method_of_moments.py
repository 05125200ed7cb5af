"""The off-policy method of moments."""

from typing import Any

import numpy as np
import pytest

import mebandit as mb
from tests import reference


def test_the_method_of_moments_leaves_out_rounds_in_which_the_action_was_not_allowed() -> None:
    pi = np.array([[0.5, 0.5], [1.0, 0.0]] * 500)
    actions = np.array([1, 0] * 500)
    pi[::4], actions[::4] = [0.5, 0.5], 0
    mean = mb.estimate_moments(
        [lambda x, y: y], lambda m: m, context=np.ones((1000, 1)), actions=actions, outcome=np.ones(1000), propensities=pi, action=1
    )
    assert mean == pytest.approx(1.0)


def test_the_method_of_moments_contains_the_proposed_estimator() -> None:
    """App. D.3 with f = (x̃x̃' - Σe, x̃ r) and φ(G, c) = G^-1 c, up to the weights of Σe (Σ w Σe in place of Σ π^nd Σe)."""
    rng = np.random.default_rng(9)
    n = 50_000
    x = rng.normal(1, 1, (n, 2))
    noisy = x + rng.normal(0, 0.5, x.shape)
    p1 = np.where(noisy[:, 0] > 1, 0.8, 0.2)
    actions = (rng.random(n) < p1).astype(int)
    rewards = np.where(actions == 1, x @ [1.0, 2.0], x @ [0.5, -1.0])
    taken = np.where(actions == 1, p1, 1 - p1)

    def gram(z: reference.Floats, y: reference.Floats) -> reference.Floats:
        return np.asarray(np.einsum("ti,tj->tij", z, z) - 0.25 * np.eye(2))

    found = mb.estimate_moments(
        [gram, lambda z, y: z * y[:, None]],
        np.linalg.solve,
        context=noisy,
        actions=actions,
        outcome=rewards,
        propensities=taken,
        action=1,
    )
    direct = mb.estimate(noisy, actions, rewards, taken, 0.25)
    assert (np.abs(found - [1.0, 2.0]) < 4.5 * direct.std_error[1]).all()
    naive = mb.estimate(noisy, actions, rewards, taken, 0.25, method="naive")
    assert (np.abs(naive.theta[1] - [1.0, 2.0]) > 4.5 * naive.std_error[1]).any(), "the unweighted moments are biased here"


@pytest.mark.parametrize("clustered", [False, True])
def test_the_standard_errors_of_moments_are_those_of_the_estimator_that_they_are(clustered: bool) -> None:
    """Without error, least squares weighted by 1/π: the plain sandwich of `estimate`, but for its leverage."""
    rng = np.random.default_rng(2)
    n = 4000
    x = rng.normal(1, 1, (n, 2))
    p1 = np.where(x[:, 0] > 1, 0.8, 0.2)
    actions = (rng.random(n) < p1).astype(int)
    rewards = np.where(actions == 1, x @ [1.0, 2.0], x @ [0.5, -1.0]) + rng.normal(0, 1, n)
    given: dict[str, Any] = {"propensities": np.where(actions == 1, p1, 1 - p1), "unit": np.arange(n) // 5 if clustered else None}
    found = mb.estimate_moments(
        [lambda z, y: np.einsum("ti,tj->tij", z, z), lambda z, y: z * y[:, None]],
        np.linalg.solve,
        context=x, actions=actions, outcome=rewards, action=1, std_errors=True, **given,
    )  # fmt: skip
    direct = mb.estimate(x, actions, rewards, given["propensities"], 0.0, unit=given["unit"])
    np.testing.assert_allclose(found.value, direct.theta[1], rtol=1e-9)
    np.testing.assert_allclose(found.covariance, direct.covariance[2:, 2:], rtol=0.01, atol=0.01 * direct.covariance[2, 2])
    np.testing.assert_allclose(found.df, direct.df[1], rtol=0.1)
    np.testing.assert_array_less(np.ptp(found.interval(), axis=1), np.ptp(found.interval(anytime=True), axis=1))


def test_the_standard_error_of_a_mean_is_the_textbooks() -> None:
    """All rounds with one action and probability 1: s / sqrt(n), exactly, and n - 1 at most degrees of freedom; a squared mean by the
    delta method."""
    y = np.random.default_rng(1).normal(2, 1, 30)
    given: dict[str, Any] = {
        "context": np.zeros((30, 1)),
        "actions": np.ones(30, dtype=int),
        "outcome": y,
        "propensities": np.ones(30),
        "action": 1,
    }
    found = mb.estimate_moments([lambda x, y: y], lambda m: m, std_errors=True, **given)
    assert found.std_error == pytest.approx(y.std(ddof=1) / np.sqrt(30), rel=1e-9)
    assert found.value.shape == found.std_error.shape == ()
    square = mb.estimate_moments([lambda x, y: y], lambda m: m**2, std_errors=True, **given)
    assert square.std_error == pytest.approx(2 * y.mean() * found.std_error, rel=1e-6)
