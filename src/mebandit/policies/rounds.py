"""Observations and finished rounds, every part checked, as compiled code can read them."""

from typing import Any

from mebandit import checks
from mebandit.kernels import layout, limits
from mebandit.values import Observation, Round


def checked_observation(observation: Observation, *, dim: int, n_actions: int) -> Observation:
    """An observation of d features and K actions; refused where one of its parts breaks a rule."""
    if not isinstance(observation, tuple) or len(observation) != len(Observation._fields):
        checks.refuse("observation", "be an Observation", checks.shown(observation))
    predicted, error_cov, allowed, time, auxiliary = observation
    return Observation(
        readable(checks.floats("predicted", predicted, (dim,))),
        readable(checks.covariance("error_cov", error_cov, dim)),
        readable(checks.allowed_actions("allowed", allowed, n_actions)),
        checks.integer("time", time, 1, layout.NEVER),
        checks.number("auxiliary", auxiliary, "be in [0, 1]", 0.0, 1.0),
    )


def checked_round(round: Round, *, dim: int, n_actions: int) -> Round:
    """A finished round; refused where one of its parts breaks a rule."""
    if not isinstance(round, tuple) or len(round) != len(Round._fields):
        checks.refuse("round", "be a Round", checks.shown(round))
    observation = checked_observation(round[0], dim=dim, n_actions=n_actions)
    action = checks.integer("action", round[1], 0, n_actions - 1)
    if not observation.allowed[action]:
        checks.refuse("action", "be allowed", action)
    propensities = checks.probabilities("propensities", round[2], observation.allowed)
    if not propensities[action] >= limits.LEAST:
        checks.refuse("propensities", f"be at least {limits.LEAST:g} for the action taken", propensities[action])
    return Round(observation, action, propensities, checks.reward(round[3]))


def readable(array: Any) -> Any:
    """An array as compiled code takes it: to the compiler, a read-only one is of another type, for which all would be compiled again."""
    return array if array.flags.carray else array.copy()
