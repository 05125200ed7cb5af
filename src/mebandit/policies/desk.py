"""A linear policy in live use: its state, and all else that its rounds read and write, on one desk.

A desk is one array, since passing an array to compiled code takes some 60 ns, and a small policy's whole decision there about 200.
"""

import numpy as np

from mebandit import _kernels, checks
from mebandit.policies.linear import LinearPolicy
from mebandit.values import Booleans, Decision, Floats, Integers, LinearState, Observation, Pending

new = tuple.__new__
"""makes a NamedTuple of a tuple in half the time that its class takes to be called"""


class Desk:
    """The working memory of one learner. Its array is laid out as `_kernels` says; views of it are made when asked for, so that a copy of
    a desk is one."""

    def __init__(self, policy: LinearPolicy, seed: int) -> None:
        self.policy, self._n_actions = policy, policy.n_actions
        state, n_actions, dim = policy.init(), policy.n_actions, policy.dim
        floor = 0.0 if callable(policy.floor) else policy.floor_at(1)
        stabilizer = np.zeros(n_actions) if callable(policy.stabilizer) else policy.stabilizer_at(1)
        room = np.zeros(_kernels.room_size(n_actions, policy.n_features))
        parts = [*state, policy.tuning, np.array([floor]), stabilizer, policy.theta_known, np.full((dim, dim), np.nan), room]
        places = np.cumsum([_kernels.DESK_HEAD, *(part.size for part in parts)])
        self.words = np.concatenate([np.zeros(_kernels.DESK_HEAD), *(part.ravel() for part in parts)])
        self._head[:] = [*policy.spec, seed, policy.warmup, policy.correct_from, True, 0, *places]
        self._shapes = [part.shape for part in state]
        self._steady = policy.refits_every_round and not callable(policy.floor) and not callable(policy.stabilizer)
        """whether no schedule has to be asked"""
        self._error_cov, self._changes = np.full((dim, dim), np.nan), 0
        """the error covariance of the last decision, found to be one (mostly the next comes with the same), and which one that is"""

    @property
    def _head(self) -> Integers:
        return self.words.view(np.int64)[: _kernels.DESK_HEAD]

    def _part(self, place: int) -> Floats:
        begin, end = self._head[place : place + 2]
        return self.words[begin:end]

    @property
    def state(self) -> LinearState:
        """The policy's state, not copied."""
        return LinearState(*(self._part(_kernels.SUMS_AT + i).reshape(shape) for i, shape in enumerate(self._shapes)))

    @state.setter
    def state(self, state: LinearState) -> None:
        for own, given in zip(self.state, state, strict=True):
            own[...] = given

    def decide(self, x: Floats, s: Floats, allowed: Booleans, number: int) -> Pending:
        """One call into the compiled code, which also checks the numbers."""
        if not self._steady:
            self._part(_kernels.FLOOR_AT)[:] = self.policy.floor_at(number)
        pi = np.empty(self._n_actions)
        action, propensity, luck, changes = _kernels.decide_live(self.words, x, s, allowed, number, pi)
        if changes != self._changes:
            self._look_at(x, s, action, changes)
        pi.setflags(write=False)
        observation = new(Observation, (x.copy(), self._error_cov, allowed, number, luck))
        return observation, new(Decision, (number, action, propensity, pi))

    def _look_at(self, x: Floats, s: Floats, action: int, changes: int) -> None:
        """Keep a new error covariance, or refuse what the compiled code has found to be wrong, in the sentences of `checks`."""
        if action < 0:
            checks.floats("predicted", x, (self.policy.dim,))
            checks.covariance("error_cov", s, self.policy.dim)
        self._error_cov, self._changes = s.copy(), changes

    def learn(self, observation: Observation, decision: Decision, reward: float) -> None:
        """Take in the reward of a decision."""
        x, s, allowed, time, luck = observation
        if not self._steady:
            self._ask_schedules(time)
        _kernels.learn_live(self.words, x, s, allowed, decision.action, decision.propensity, reward, luck)

    def _ask_schedules(self, time: int) -> None:
        policy, learned = self.policy, int(self._part(_kernels.EXTRA_AT)[_kernels.LEARNED])
        self._part(_kernels.STABILIZER_AT)[:] = policy.stabilizer_at(time)
        self._head[_kernels.REFIT] = policy.refits_every_round or policy.refits_after(learned + 1)
