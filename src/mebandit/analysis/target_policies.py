"""The target policies of `value`, of every kind, each as a function from rounds of a log to the probabilities of the actions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mebandit import checks, kernels
from mebandit.analysis.linear_rule import LinearRule
from mebandit.analysis.logged_context import Frame, Probabilities, Seen
from mebandit.estimation.moments import unpack
from mebandit.live.learner import Learner
from mebandit.logs.coding import action_number
from mebandit.policies import Policy
from mebandit.policies.base import label
from mebandit.values import Floats, Observation, State

WHEN_AVAILABLE = " when available"
"""ends the name of a policy that takes an action wherever it is allowed"""

KINDS = "'uniform', an action, 'ACTION when available', probabilities, a rule, a Learner, (policy, state), or a function of predictions"


def named(policy: Any) -> dict[str, Any]:
    """Policies by name."""
    if not isinstance(policy, Mapping):
        return {name_of(policy): policy}
    if not policy:
        checks.refuse("policy", "name at least one policy", "none")
    for name in policy:
        if not isinstance(name, str):
            checks.refuse("the names of policies", "be text", checks.shown(name))
    return dict(policy)


def name_of(policy: Any) -> str:
    """What a policy without a name is called."""
    if isinstance(policy, str):
        return policy
    if _is_action(policy):
        return f"always {policy}"
    if isinstance(policy, Learner):
        return label(policy.policy)
    if _has_state(policy):
        return label(policy[0])
    return str(getattr(policy, "__name__", None) or type(policy).__name__)


def prepared(name: str, policy: Any, frame: Frame) -> Probabilities:
    """A policy of any kind, checked against the log and prepared for its rounds."""
    what = f"policy {name!r}"
    if isinstance(policy, str) and policy == "uniform":
        return lambda seen: seen.allowed / seen.allowed.sum(axis=1, keepdims=True)
    if isinstance(policy, str):
        action = action_number(f"{what}, if not 'uniform',", policy.removesuffix(WHEN_AVAILABLE), frame.labels, frame.n_actions)
        return _when_allowed(action) if policy.endswith(WHEN_AVAILABLE) else _constant(np.eye(frame.n_actions)[action])
    if _is_action(policy):
        return _constant(np.eye(frame.n_actions)[checks.integer(what, policy, 0, frame.n_actions - 1)])
    if isinstance(policy, LinearRule):
        return policy.prepared(frame)
    if isinstance(policy, Learner):
        return _frozen(what, frame, policy.policy, policy.state, policy.decided + 1)
    if _has_state(policy):
        return _frozen(what, frame, *policy)
    if isinstance(policy, Policy):
        remedy = "What a policy does depends on what it has learned: give (policy, state), such as (policy, learner.state), or the Learner."
        checks.refuse(what, "come with its state", f"{type(policy).__name__} alone", remedy)
    if callable(policy):
        return lambda seen: _checked(what, policy(seen.predicted.copy()), seen, frame.n_actions)
    return _constant(_vector(what, policy, frame.n_actions))


def _is_action(policy: Any) -> bool:
    return isinstance(policy, (int, np.integer)) and not isinstance(policy, bool)


def _has_state(policy: Any) -> bool:
    """Whether this is (policy, state), or (policy, state, time)."""
    return isinstance(policy, tuple) and len(policy) in (2, 3) and isinstance(policy[0], Policy)


def _vector(what: str, given: Any, n_actions: int) -> Floats:
    """The same probabilities in all rounds, (K,)."""
    if not isinstance(given, (list, tuple, np.ndarray)):
        checks.refuse(what, f"be {KINDS}", checks.shown(given))
    vector = checks.floats(what, given, (n_actions,))
    if (vector < 0).any() or abs(vector.sum() - 1.0) > 1e-6:
        checks.refuse(what, "be probabilities that sum to 1", checks.shown(vector))
    return vector


def _constant(vector: Floats) -> Probabilities:
    return lambda seen: np.tile(vector, (len(seen.predicted), 1))


def _when_allowed(action: int) -> Probabilities:
    """An action wherever it is allowed, and elsewhere any that is."""

    def take(seen: Seen) -> Floats:
        elsewhere = seen.allowed * ~seen.allowed[:, action : action + 1]
        taken = np.eye(seen.allowed.shape[1])[action] * seen.allowed
        return np.asarray(taken + elsewhere / np.maximum(elsewhere.sum(axis=1, keepdims=True), 1))

    return take


def _frozen(what: str, frame: Frame, policy: Policy, state: State, time: int | None = None) -> Probabilities:
    """A policy that has learned what it has learned, asked about one round after the other; nothing is learned from them.

    `time` is what its schedules read; without one, it is the number of the row in the log.
    """
    shape = (frame.n_actions, frame.mean.size)
    if (policy.n_actions, policy.dim) != shape:
        rule = f"have the n_actions and dim of the log, {shape[0]} and {shape[1]}"
        checks.refuse(what, rule, f"{policy.n_actions} and {policy.dim}")
    if frame.error is None:
        remedy = "A policy is told it in every round: give error_cov or error_columns; error_cov=0 for predictions without error."
        checks.refuse("the error covariance", f"be known to {what}", "nothing", remedy)

    def ask(seen: Seen) -> Floats:
        errors = unpack(seen.errors, policy.dim)
        found = np.empty(seen.allowed.shape)
        for i, x in enumerate(seen.unbiased):
            row = seen.start + i + 1
            auxiliary = float(kernels.uniform_pair(0, 0, 0, row, kernels.AUXILIARY)[1])
            observation = Observation(x.copy(), errors[i % len(errors)], seen.allowed[i].copy(), time or row, auxiliary)
            found[i] = checks.probabilities(f"{what}.propensities", policy.propensities(state, observation), observation.allowed)
        return found

    return ask


def _checked(what: str, found: Any, seen: Seen, n_actions: int) -> Floats:
    """The probabilities that a function gave."""
    p = checks.regular(f"{what}: what it returns", found)
    shape = (len(seen.predicted), n_actions)
    if p.shape != shape:
        checks.refuse(what, f"return an array of shape {shape} for predictions of shape {seen.predicted.shape}", f"shape {p.shape}")
    bad = ~((p >= 0.0).all(axis=1) & (np.abs(p.sum(axis=1) - 1.0) <= 1e-6))
    if bad.any():
        t = int(np.argmax(bad))
        checks.refuse(what, "return probabilities that sum to 1", f"{checks.shown(p[t])} for row {seen.start + t + 1} of the log")
    return p
