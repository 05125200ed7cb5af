"""What a learner works with between its calls: the policy's state, and all else that the next round reads.

A `LinearPolicy` works on a `LinearWorkspace`, in compiled code. Any other policy, a class of the user's own, is asked by its three methods.
"""

from typing import Any, Protocol

from mebandit import checks, kernels
from mebandit.policies import LinearPolicy, Policy
from mebandit.policies.linear_workspace import LinearWorkspace
from mebandit.values import Booleans, Decision, Floats, Observation, Pending, Round, State


class Workspace(Protocol):
    """A policy at work: it decides and learns round by round. Who calls it takes care that calls come one after the other."""

    kept: Any
    """all that learning changes; given back, it undoes what was learned since `branch`"""

    @property
    def state(self) -> State:
        """The policy's state, not copied."""
        ...

    @property
    def learned(self) -> int:
        """Rounds learned from."""
        ...

    def decide(self, x: Floats, s: Floats, allowed: Booleans, number: int) -> Pending:
        """The decision of this number on a prediction x (d,) with error covariance s (d, d), every number checked."""
        ...

    def learn(self, observation: Observation, decision: Decision, reward: float) -> None:
        """Take in the reward of a decision: `learned` counts it at once with the change of the state, or neither happens."""
        ...

    def branch(self) -> None:
        """Go on with a copy, so that what `kept` was before stays as it is."""
        ...

    def restore(self, state: State, learned: int) -> None:
        """Go on from a state, checked, that knows so many rounds."""
        ...


class StateWorkspace:
    """A policy that is asked by its three methods, and the state that it has handed out."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self.kept: tuple[State, int] = policy.init(), 0
        """the state, and how many rounds it knows: one value, so that no interrupt can part them"""

    @property
    def state(self) -> State:
        return self.kept[0]

    @property
    def learned(self) -> int:
        return self.kept[1]

    def decide(self, x: Floats, s: Floats, allowed: Booleans, number: int) -> Pending:
        x = checks.floats("predicted", x, (self._policy.dim,)).copy()
        s = checks.covariance("error_cov", s, self._policy.dim).copy()
        u, uniform = kernels.uniform_pair(self._seed, 0, 0, number, kernels.LIVE)
        observation = Observation(x, s, allowed, number, uniform)
        pi = checks.probabilities("propensities", self._policy.propensities(self.state, observation), allowed).copy()
        pi.setflags(write=False)
        action = kernels.draw(pi, u)
        return observation, Decision(number, action, float(pi[action]), pi)

    def learn(self, observation: Observation, decision: Decision, reward: float) -> None:
        state, learned = self.kept
        self.kept = self._policy.update(state, Round(observation, decision.action, decision.propensities, reward)), learned + 1

    def branch(self) -> None:
        """Nothing to do: `update` leaves the state that it is given as it was."""

    def restore(self, state: State, learned: int) -> None:
        self.kept = state, learned


def workspace_for(policy: Policy, seed: int) -> Workspace:
    """Where a policy works. A subclass of `LinearPolicy` is a class of the user's own."""
    return LinearWorkspace(policy, seed) if type(policy) is LinearPolicy else StateWorkspace(policy, seed)
