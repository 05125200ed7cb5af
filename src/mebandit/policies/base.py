"""What a policy is: three methods. Everything else in the library (simulator, learner, replay) uses only these."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from mebandit import checks
from mebandit.values import Floats, Observation, Round, State


@runtime_checkable
class Policy(Protocol):
    """A rule for acting on predicted contexts. Any class with these members is one; see `mebandit.check_policy`.

    A policy is immutable; what it has learned is in the state that it hands out and takes back. It may also offer
    `advance(state, round)`, an `update` that may reuse the state's memory, and `theta(state)`, its fitted (K, d) parameters.
    """

    @property
    def n_actions(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def init(self) -> State:
        """The state before the first round."""
        ...

    def propensities(self, state: State, observation: Observation) -> Floats:
        """π_t(·), the probabilities from which the action will be drawn, 0 where not allowed, (K,).

        Args:
            state: what the policy has learned, as `init` or `update` gave it. It is left as it was.
            observation: what is known before the decision: x̃, Σe, the allowed actions, the number of the decision.
        """
        ...

    def update(self, state: State, round: Round) -> State:
        """The state after one more finished round. The given state is left as it was.

        Args:
            state: what the policy has learned before.
            round: the finished round: the observation, the action, the probabilities, the reward.
        """
        ...


def advance(policy: Policy, state: State, round: Round) -> State:
    """`policy.update`, or its faster in-place form where it has one: the given state must not be used afterwards."""
    faster = getattr(policy, "advance", None)
    return policy.update(state, round) if faster is None else faster(state, round)


def replay(policy: Policy, rounds: Iterable[Round]) -> State:
    """Fold rounds that are already decided: the state a policy has after learning from them in this order."""
    if not isinstance(policy, Policy) or isinstance(policy, type):
        checks.refuse("policy", "be a policy, such as meb(2, 5)", checks.shown(policy))
    try:
        each = iter(rounds)
    except TypeError:
        checks.refuse("rounds", "be a list of Rounds", checks.shown(rounds))
    state = policy.init()
    for round in each:
        state = advance(policy, state, round)
    return state


def label(policy: Any) -> str:
    """The name under which a policy appears in tables."""
    return str(getattr(policy, "name", None) or type(policy).__name__)
