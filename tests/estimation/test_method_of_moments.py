"""The off-policy method of moments."""

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
