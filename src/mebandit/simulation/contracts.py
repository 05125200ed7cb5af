"""Checks of user-defined policies and environments: random rounds are played, and every rule of the protocol is checked.

Both checks return nothing if all rules hold, and raise `InvalidInput` with the broken rule if not.
"""

from typing import Any

import numpy as np

from mebandit import checks
from mebandit.environments.base import Environment, checked_tape
from mebandit.policies import states
from mebandit.policies.base import Policy, label
from mebandit.values import Observation, Round, Stretch, Tape


def check_policy(policy: Any, *, rounds: int = 50, seed: int = 0) -> None:
    """Check that an object keeps the rules of a policy, by playing random rounds.

    The rules: `propensities` returns probabilities, 0 for actions that are not allowed, and at least `policy.floor` for the others if the
    policy has a floor. It changes nothing, and returns the same when called again. `update` returns a new state and does not change the one
    it was given. The same rounds always lead to the same state.

    Args:
        policy: The object to check.
        rounds: The number of rounds to play.
        seed: The seed of the random rounds.

    >>> import mebandit as mb
    >>> check_policy(mb.thompson(3, 2))
    """
    if isinstance(policy, type):
        checks.refuse("policy", "be an object, not a class", policy.__name__, f"Make one: {policy.__name__}(...).")
    if not isinstance(policy, Policy):
        members = [m for m in ("n_actions", "dim", "init", "propensities", "update") if not hasattr(policy, m)]
        checks.refuse("policy", "have n_actions, dim, init, propensities and update", f"{type(policy).__name__} without {members}")
    name = label(policy)
    rounds, seed = checks.integer("rounds", rounds, 1), checks.integer("seed", seed, 0, 2**63 - 1)
    rng = np.random.default_rng(seed)
    state, again = policy.init(), policy.init()
    _require(states.same(state, again), f"{name}.init()", "give the same state each time", "two different ones")
    for time in range(1, rounds + 1):
        observation = _random_observation(policy, time, rng)
        kept = states.copied(state)
        pi = checks.probabilities(
            f"{name}.propensities", policy.propensities(state, observation), observation.allowed, _floor(policy, time)
        )
        _require(np.array_equal(pi, policy.propensities(state, observation)), f"{name}.propensities", "be repeatable", "two answers")
        action = int(rng.choice(policy.n_actions, p=pi / pi.sum()))
        round = Round(observation, action, pi, float(rng.normal()))
        new = policy.update(state, round)
        _require(states.same(state, kept), f"{name}.update", "leave the state it was given as it was", "a changed one")
        again = policy.update(again, round)
        _require(states.same(new, again), f"{name}.update", "lead to the same state from the same rounds", "two different ones")
        state = new


def _floor(policy: Any, time: int) -> float:
    floor = getattr(policy, "floor", None) or 0.0
    return float(floor(time)) if callable(floor) else float(floor)


def _random_observation(policy: Policy, time: int, rng: np.random.Generator) -> Observation:
    """A random observation. In about half of them some actions are not allowed."""
    allowed = np.ones(policy.n_actions, dtype=np.bool_)
    if rng.random() < 0.5:
        allowed = rng.random(policy.n_actions) < 0.7
        allowed[rng.integers(policy.n_actions)] = True
    factor = rng.normal(size=(policy.dim, policy.dim)) / policy.dim
    return Observation(rng.normal(size=policy.dim), factor @ factor.T, allowed, time, float(rng.random()))


def check_environment(environment: Any, *, rounds: int = 50, seed: int = 0) -> None:
    """Check that an object keeps the rules of an environment, by drawing tapes.

    The rules: a tape has the right shapes, finite numbers and valid covariances. It is a pure function of the stretch, and a round is the
    same in whatever stretch it is asked for.

    Args:
        environment: The object to check.
        rounds: The number of rounds to draw.
        seed: The seed of the tapes.

    >>> import mebandit as mb
    >>> check_environment(mb.environments.HeartSteps())
    """
    if not isinstance(environment, Environment) or isinstance(environment, type):
        members = [m for m in ("n_actions", "dim", "tape") if not hasattr(environment, m)]
        checks.refuse("environment", "have n_actions, dim and tape", f"{type(environment).__name__} without {members}")
    name = type(environment).__name__
    rounds, seed = checks.integer("rounds", rounds, 3), checks.integer("seed", seed, 0, 2**63 - 1)

    def tape(replicate: int, start: int) -> Tape:
        given = environment.tape(Stretch(seed, 0, replicate, start, rounds))
        return checked_tape(f"{name}.tape", given, environment.n_actions, environment.dim, rounds - start)

    for replicate in range(3):
        whole = tape(replicate, 0)
        again = tape(replicate, 0)
        _require(states.same(whole, again), f"{name}.tape", "be a pure function of the stretch", "two different tapes")
        cut = rounds // 3
        tail = tape(replicate, cut)
        for field in ("context", "error", "noise", "uniform", "auxiliary"):
            alike = np.array_equal(getattr(whole, field)[cut:], getattr(tail, field))
            _require(alike, f"{name}.tape", "give the same rounds in whatever pieces", f"another {field} when begun at {cut}")
        reported = [tape.error_cov[tape.component % len(tape.error_cov)] for tape in (whole, tail)]
        alike = np.array_equal(reported[0][cut:], reported[1])
        _require(alike, f"{name}.tape", "give the same rounds in whatever pieces", f"another error_cov when begun at {cut}")


def _require(kept: Any, what: str, rule: str, received: object) -> None:
    if not kept:
        checks.refuse(what, rule, received)
