"""What a learner says about its own footing: green in a healthy world, and each warning in a world that calls for it."""

from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Autocorrelated, Environment, Gaussian, Misreported
from mebandit.values import Finding

THETA = [[1.0, -0.5], [0.2, 0.8]]
LEVELS = np.stack([0.2 * np.eye(2), 1.8 * np.eye(2)])


def found(world: Environment, rounds: int = 3000, seed: int = 1, policy: Any = None) -> dict[str, Finding]:
    """The diagnostics of a learner after a simulated trial."""
    policy = policy or mb.meb_dr(2, 2, floor=0.1)
    log = mb.simulate_log(world, policy, horizon=rounds, seed=seed)
    state = policy.init()
    for i in range(rounds):
        observation = mb.Observation(log.predicted[i], log.error_cov[i], log.allowed[i], i + 1)
        state = policy.advance(state, mb.Round(observation, int(log.actions[i]), log.propensities[i], float(log.rewards[i])))
    return {finding.name: finding for finding in policy.diagnostics(state)}


@pytest.mark.parametrize("error_cov", [1.0, LEVELS], ids=["one error", "two levels"])
@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_trial_is_green(error_cov: Any, seed: int) -> None:
    verdicts = {name: f.verdict for name, f in found(Gaussian(theta=THETA, error_cov=error_cov, noise_sd=0.3), seed=seed).items()}
    assert verdicts == dict.fromkeys(("told error", "effective rounds", "moving error", "changing error"), "green")


def test_an_error_covariance_that_leaves_nothing_is_red() -> None:
    world = Misreported(world=Gaussian(theta=THETA, error_cov=1.0, noise_sd=0.3), factor=2.0)
    finding = found(world, rounds=500)["told error"]
    assert finding.verdict == "red"
    assert finding.values["share left"][0] == pytest.approx(0.0, abs=0.1)
    assert "Hold Σe against pairs of prediction and truth" in finding.sentence


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_rewards_contradict_differences_of_a_wrong_error(factor: float) -> None:
    """The share is about 1 - 1/factor, but for what the slopes take up themselves."""
    world = Misreported(world=Gaussian(theta=THETA, error_cov=0.3 * LEVELS, noise_sd=0.3), factor=factor)
    finding = found(world)["changing error"]
    assert finding.verdict == "yellow"
    assert np.sign(finding.values["share"][0]) == np.sign(factor - 1)


def test_an_error_that_drifts_is_told_from_a_context_that_does() -> None:
    world = Gaussian(theta=THETA, error_cov=1.0, noise_sd=0.3)
    assert found(Autocorrelated(world=world, error=0.97))["moving error"].verdict == "yellow"
    assert found(Autocorrelated(world=world, context=0.97))["moving error"].verdict == "green"


def test_few_rounds_are_said_to_be_few() -> None:
    finding = found(Gaussian(theta=THETA, error_cov=1.0), rounds=15)["effective rounds"]
    assert finding.verdict != "green"
    assert "effective rounds" in finding.sentence
    assert found(Gaussian(theta=THETA, error_cov=1.0), rounds=15)["told error"].verdict == "green"


def test_a_learner_shows_them() -> None:
    learner = mb.Learner(mb.meb_dr(2, 2), seed=1)
    assert {f.name for f in learner.diagnostics} == {"told error", "effective rounds", "moving error", "changing error"}
    assert [f.name for f in mb.Learner(mb.lin_ucb(2, 2), seed=1).diagnostics] == ["effective rounds"]
    assert mb.Learner(mb.oracle(2, 2, theta=THETA), seed=1).diagnostics == ()
