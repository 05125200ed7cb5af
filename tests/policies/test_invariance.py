"""What the default policy must not depend on: the units of a feature, where its zero is, and what was told about a constant error."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mebandit as mb
from mebandit.environments import Berkson, Gaussian, Misreported
from mebandit.values import Floats, Observation, Round

ERRORS = {
    "one error": np.array([[[0.5, 0.1], [0.1, 0.8]]]),
    "errors that change": np.array([[[0.5, 0.1], [0.1, 0.8]], [[0.1, 0.0], [0.0, 2.0]], [[1.5, 0.5], [0.5, 0.3]]]),
}


def decisions(scale: Floats, shift: Floats, errors: Floats, seed: int, rounds: int = 150) -> Floats:
    """The probabilities of meb_dr by round, (T, K). Contexts are skewed and drift; actions are drawn from the same uniforms."""
    rng, policy = np.random.default_rng(seed), mb.meb_dr(3, 2, floor=0.05)
    state, theta, found = policy.init(), np.array([[1.0, 0.0], [-0.5, 0.8], [0.2, 0.2]]), []
    for t in range(1, rounds + 1):
        x = rng.exponential(1.0, 2) + np.sin(t / 20)
        sigma = errors[rng.integers(len(errors))]
        seen = scale * (x + rng.multivariate_normal(np.zeros(2), sigma)) + shift
        observation = Observation(seen, sigma * np.outer(scale, scale), np.ones(3, dtype=bool), t)
        pi = policy.propensities(state, observation)
        action = int(np.searchsorted(np.cumsum(pi), rng.uniform()))
        found.append(pi)
        state = policy.advance(state, Round(observation, action, pi, float(theta[action] @ x + rng.normal(0, 0.3))))
    return np.array(found)


@pytest.mark.parametrize("errors", ERRORS.values(), ids=ERRORS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.tuples(*[st.floats(-3, 3)] * 2), st.tuples(*[st.floats(-100, 100)] * 2), st.booleans())
def test_units_and_zeros_change_no_decision(errors: Any, seed: int, powers: Any, away: Any, mirrored: bool) -> None:
    """Units from 1/1000 to 1000, and means of up to 100 standard deviations, which cost about four digits."""
    scale = 10.0 ** np.array(powers) * (-1 if mirrored else 1)
    np.testing.assert_allclose(decisions(scale, scale * away, errors, seed), decisions(np.ones(2), np.zeros(2), errors, seed), atol=1e-9)


@pytest.mark.parametrize("factor", [0.0, 0.25, 4.0])
def test_what_is_told_of_a_constant_error_hardly_matters(factor: float) -> None:
    """It enters by the curve and the drift alone, of which the rewards decide, and by the fallback."""
    world = Gaussian(theta=[[1.0, -0.5], [0.2, 0.8]], error_cov=1.0, noise_sd=0.3)
    told, otherwise = (
        mb.simulate(seen, [mb.meb_dr(2, 2)], horizon=1000, replicates=40, references=False).of("clipped_regret")[0, :, -1]
        for seen in (world, Misreported(world=world, factor=factor))
    )
    difference = otherwise - told
    assert abs(difference.mean()) < 0.05 * told.mean() + 2.5 * difference.std(ddof=1) / np.sqrt(40)


def test_berkson_error_is_no_worse_than_for_least_squares() -> None:
    """E[r | x̃] is linear in x̃ then, and Σe, which is told as if it were classical, would spoil it."""
    world = Berkson(world=Gaussian(theta=[[1.0, -0.5], [0.2, 0.8]], mean=0.5, error_cov=0.5, noise_sd=0.3))
    policies = [mb.meb_dr(2, 2), mb.greedy(2, 2, intercept=True, name="LS")]
    regret = mb.simulate(world, policies, horizon=2000, replicates=40, references=False).of("clipped_regret")[:, :, -1]
    difference = regret[0] - regret[1]
    assert difference.mean() < 0.03 * regret[1].mean() + 2.5 * difference.std(ddof=1) / np.sqrt(40)
