"""The working memory of a linear policy in live use: its state, and all else that its rounds read and write, in one array.

One array, since passing an array to compiled code takes some 60 ns, and a small policy's whole decision there about 200.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from mebandit import checks, kernels
from mebandit.kernels import layout
from mebandit.policies.linear import LinearPolicy
from mebandit.values import Booleans, Decision, Floats, LinearState, Observation, Pending

new = tuple.__new__
"""makes a NamedTuple of a tuple in half the time that its class takes to be called"""


class LinearWorkspace:
    """The working memory of one learner. Its array is laid out as `kernels.layout` says. Views of it are made when asked for, so that a
    copy of a workspace is one."""

    def __init__(self, policy: LinearPolicy, seed: int) -> None:
        self.policy, self._n_actions = policy, policy.n_actions
        state, n_actions, dim = policy.init(), policy.n_actions, policy.dim
        floor = 0.0 if callable(policy.floor) else policy.floor_at(1)
        stabilizer = np.zeros(n_actions) if callable(policy.stabilizer) else policy.stabilizer_at(1)
        room = np.zeros(layout.room_size(n_actions, policy.n_features))
        parts = [*state, policy.tuning, np.array([floor, True]), stabilizer, policy.theta_known, np.full((dim, dim), np.nan), room]
        times = (min(time, layout.NEVER) for time in (policy.warmup, policy.correct_from))
        places = np.cumsum([layout.WORKSPACE_HEAD, *(part.size for part in parts)]).tolist()
        self.words = np.concatenate([np.zeros(layout.WORKSPACE_HEAD), *(part.ravel() for part in parts)])
        self.words.view(np.int64)[: layout.WORKSPACE_HEAD] = [*policy.spec, seed, *times, 0, *places]
        self._sums, self._fit, self._extra, _, self._plan, self._stabilizer, *_ = (slice(*ends) for ends in pairwise(places))
        self._shapes = [part.shape for part in state]
        self._steady = policy.refits_every_round and not callable(policy.floor) and not callable(policy.stabilizer)
        """whether no schedule has to be asked"""
        self._error_cov, self._changes = np.full((dim, dim), np.nan), 0
        """the error covariance of the last decision, found to be one (mostly the next comes with the same), and which one that is"""

        self._load()

    def _load(self) -> None:
        """Get the compiled functions, which are not copied."""
        policy = self.policy
        self._decide, self._learn = kernels.live_program(policy.kind, policy.n_features, policy.spec[layout.RULE] == layout.THOMPSON)

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name not in ("_decide", "_learn")}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        vars(self).update(parts)
        self._load()

    @property
    def state(self) -> LinearState:
        """The policy's state, not copied."""
        places = self._sums, self._fit, self._extra
        return LinearState(*(self.words[place].reshape(shape) for place, shape in zip(places, self._shapes, strict=True)))

    @property
    def kept(self) -> Any:
        """All that learning changes."""
        return self.words

    @kept.setter
    def kept(self, words: Any) -> None:
        self.words = words

    def branch(self) -> None:
        """Go on with a copy, so that what `kept` was before stays as it is."""
        self.words = self.words.copy()

    def restore(self, state: LinearState, learned: int) -> None:
        """Go on from a state that knows so many rounds."""
        self.policy.check_state(state)
        if state.extra[layout.LEARNED] != learned:
            checks.refuse("learned", f"be what its state has counted, {state.extra[layout.LEARNED]:g}", learned)
        for own, given in zip(self.state, state, strict=True):
            own[...] = given

    def decide(self, x: Floats, s: Floats, allowed: Booleans, number: int) -> Pending:
        """One call into the compiled code, which also checks the numbers."""
        if not self._steady:
            self.words[self._plan.start + layout.FLOOR] = self.policy.floor_at(number)
        pi = np.empty(self._n_actions)
        action, propensity, auxiliary, changes = self._decide(self.words, x, s, allowed, number, pi)
        if changes != self._changes:
            if action < 0:
                return self.decide(x, self._acceptable(x, s), allowed, number)
            self._error_cov, self._changes = s.copy(), changes
        pi.setflags(False)  # type: ignore[call-arg]  # read-only; by name it would take 70 ns more
        observation = new(Observation, (x.copy(), self._error_cov, allowed, number, auxiliary))
        return observation, new(Decision, (number, action, propensity, pi))

    def _acceptable(self, x: Floats, s: Floats) -> Floats:
        """What stands for an error covariance that the compiled code has found to be wrong, or the prediction: that without its negligible
        variances, or else a refusal in the sentences of `checks`."""
        checks.floats("predicted", x, (self.policy.dim,))
        good = checks.covariance("error_cov", s, self.policy.dim)
        if good is s:
            checks.refuse("error_cov", "be the same throughout a call", "one that another thread has changed")
        return good

    def learn(self, observation: Observation, decision: Decision, reward: float) -> None:
        """Take in the reward of a decision."""
        x, s, allowed, time, auxiliary = observation
        if not self._steady:
            self._ask_schedules(time)
        self._learn(self.words, x, s, allowed, decision.action, decision.propensity, reward, auxiliary)

    @property
    def learned(self) -> int:
        """Rounds learned from, as the policy's state counts them."""
        return int(self.words[self._extra.start + layout.LEARNED])

    def _ask_schedules(self, time: int) -> None:
        policy = self.policy
        self.words[self._stabilizer] = policy.stabilizer_at(time)
        self.words[self._plan.start + layout.REFIT] = policy.refits_every_round or policy.refits_after(self.learned + 1)
