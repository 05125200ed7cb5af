"""The log that a simulated policy leaves: the rounds of the simulator, bit for bit, in the form of a live trial's log."""

from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Drifting, Environment, Gaussian, HeartSteps
from mebandit.policies import LinearPolicy, Policy
from mebandit.values import Floats, Observation, Round, State, Stretch

BURDEN = 6

WORLDS: dict[str, tuple[Environment, int]] = {
    "gaussian": (Gaussian(error_cov=1.0), 5),
    "two error levels": (Gaussian(error_cov=np.stack([0.1 * np.eye(5), np.eye(5)])), 5),
    "drifting": (Drifting(world=Gaussian()), 5),
    "heartsteps": (HeartSteps(), 7),
}


class Watched:
    """A policy played step by step, which keeps what it sees and learns."""

    def __init__(self, policy: LinearPolicy) -> None:
        self.policy, self.rounds = policy, list[Round]()

    @property
    def n_actions(self) -> int:
        return self.policy.n_actions

    @property
    def dim(self) -> int:
        return self.policy.dim

    def init(self) -> State:
        return self.policy.init()

    def propensities(self, state: State, observation: Observation) -> Floats:
        return self.policy.propensities(state, observation)

    def update(self, state: State, round: Round) -> State:
        self.rounds.append(round)
        return self.policy.update(state, round)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("make", [mb.meb, mb.meb_dr, mb.thompson])
def test_the_log_is_what_a_policy_saw_and_did(world: str, make: Any) -> None:
    """2,500 rounds: over the border between two blocks of tape."""
    environment, d = WORLDS[world]
    where = {"horizon": 2500, "seed": 3, "replicate": 2, "cell": 1}
    log = mb.simulate_log(environment, make(2, d, floor=0.2), **where)
    watched = Watched(make(2, d, floor=0.2))
    again = mb.simulate_log(environment, watched, **where)
    np.testing.assert_array_equal(log.predicted, [round.observation.predicted for round in watched.rounds])
    np.testing.assert_array_equal(log.error_cov, [round.observation.error_cov for round in watched.rounds])
    np.testing.assert_array_equal(log.allowed, [round.observation.allowed for round in watched.rounds])
    np.testing.assert_array_equal(log.decision, [round.observation.time for round in watched.rounds])
    np.testing.assert_array_equal(log.actions, [round.action for round in watched.rounds])
    np.testing.assert_array_equal(log.propensities, [round.propensities for round in watched.rounds])
    np.testing.assert_array_equal(log.rewards, [round.reward for round in watched.rounds])
    for mine, theirs in zip(log, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("world", WORLDS)
def test_learning_from_the_log_gives_the_simulators_fit(world: str) -> None:
    """The policy's θ after folding the log is as far from θ* as `simulate` reports."""
    environment, d = WORLDS[world]
    policy: Policy = mb.meb(2, d, floor=0.2)
    log = mb.simulate_log(environment, policy, horizon=2500, seed=5, replicate=1)
    rounds = [
        Round(Observation(*seen), int(action), pi, float(reward))
        for *seen, action, pi, reward in zip(
            log.predicted, log.error_cov, log.allowed, log.decision.tolist(), log.actions, log.propensities, log.rewards, strict=True
        )
    ]
    theta = mb.meb(2, d, floor=0.2).theta(mb.replay(policy, rounds))
    truth = environment.tape(Stretch(5, 0, 1, 2499, 2500)).theta[0]
    results = mb.simulate(environment, [policy], horizon=2500, replicates=2, seed=5, references=False)
    np.testing.assert_allclose(np.linalg.norm(theta - truth, axis=1), results.estimation_error[0, 1, -1], rtol=1e-13)


def test_actions_drive_a_feature_of_the_log() -> None:
    """HeartSteps' burden is seen with error; without error the log shows B_{t+1} = λ B_t + a_t itself."""
    log = mb.simulate_log(HeartSteps(burden_error_var=0.0), mb.meb(2, 7, floor=0.2), horizon=3000, seed=1)
    burden = 0.0
    for t in range(3000):
        assert log.predicted[t, BURDEN] == burden
        burden = 0.95 * burden + float(log.actions[t])


def test_a_log_can_be_read_like_a_trials() -> None:
    log = mb.simulate_log(Gaussian(), mb.meb(2, 5), horizon=400, seed=1)
    found = mb.fit(log.to_arrow(), methods="meb").estimates["meb"]
    straight = mb.estimate(log.predicted, log.actions, log.rewards, log.propensities, 0.25)
    np.testing.assert_allclose(found.theta, straight.theta, rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number from 1"),
        ({"replicate": -1}, "replicate must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"policy": mb.meb(2, 3)}, "must have the environment's n_actions and dim, 2 and 5; got 2 and 3"),
        ({"environment": 7}, "environment must be an environment"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"environment": Gaussian(), "policy": mb.meb(2, 5), "horizon": 10, "seed": 1} | change
    with pytest.raises(mb.InvalidInput, match=message):
        mb.simulate_log(given.pop("environment"), given.pop("policy"), **given)
