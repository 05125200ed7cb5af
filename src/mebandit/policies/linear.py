"""Linear policies: one mechanism for all of them.

A linear policy keeps weighted running sums, solves for the parameters θ_a of each action, scores the actions, and keeps the probability of
every allowed action at the floor or above. An estimator says how rounds become θ, a rule how scores become probabilities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mebandit import checks, kernels, schedules
from mebandit.estimation.moments import Moments
from mebandit.kernels import layout
from mebandit.policies.component import Component
from mebandit.policies.diagnostics import diagnosed
from mebandit.policies.estimators import Calibrated, Estimator, LeastSquares, Stabilizer
from mebandit.policies.memory import Memory
from mebandit.policies.rounds import checked_observation, checked_round, readable
from mebandit.policies.rules import UCB, Greedy, Robust, Rule
from mebandit.schedules import Schedule
from mebandit.values import Finding, Floats, Integers, LinearState, Observation, Round, ScheduleTable

EVERY_ROUND, LEAST_SQUARES, GREEDY = schedules.EveryRound(), LeastSquares(), Greedy()


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearPolicy(Component):
    """A linear policy by its parts. The recipes (`meb`, `lin_ucb`, ...) make the usual ones.

    Args:
        n_actions: K, the number of actions, at least 2.
        dim: d, the number of features of a prediction, at least 1.
        estimator: how rounds become θ: `LeastSquares`, `Naive`, `MEB` or `Calibrated`.
        rule: how scores become probabilities: `Greedy`, `UCB`, `Thompson`, `Robust`, `Oracle`, `BayesOracle` or `Uniform`.
        floor: p0, the smallest probability of an allowed action, at most 1/K: a number, or a schedule t -> number. None: min(0.2, 1/(2K)).
        warmup: T0, the number of first decisions in which all allowed actions are equally likely.
        refit: when θ is solved for again: a number t0 for after every t0 rounds, or a schedule t -> bool.
        intercept: whether a feature 1, seen without error, is put before x̃.
        discount: in [0.5, 1]; all sums are multiplied by it before a round is added, so that old rounds count less where θ drifts.
        name: the name in tables. Policies in one simulation need different ones.
    """

    n_actions: int
    dim: int
    estimator: Estimator = LEAST_SQUARES
    rule: Rule = GREEDY
    floor: float | Schedule | None = None
    warmup: int = 0
    refit: int | Callable[[Any], Any] = 1
    intercept: bool = False
    discount: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        for name, least in (("n_actions", 2), ("dim", 1), ("warmup", 0)):
            self._set(name, checks.integer(name, getattr(self, name), least))
        self._set("intercept", checks.truth("intercept", self.intercept))
        self._check_parts()
        self._memory.check_size(self.dim)
        self._set("discount", checks.number("discount", self.discount, "be in [0.5, 1]", 0.5, 1.0))
        if self.floor is None:
            self._set("floor", min(0.2, 0.5 / self.n_actions))
        if not callable(self.floor):
            self._check_floor()
        if isinstance(self.refit, schedules.EveryRound):
            self._set("refit", 1)
        if not callable(self.refit):
            self._set("refit", checks.integer("refit", self.refit, 1, layout.NEVER))
        if not isinstance(self.name, str):
            checks.refuse("name", "be a text", checks.shown(self.name))

    def _check_parts(self) -> None:
        """Whether estimator and rule are such, and go together."""
        if not isinstance(self.estimator, Estimator):
            checks.refuse("estimator", "be an estimator, such as MEB()", checks.shown(self.estimator))
        if not isinstance(self.rule, Rule):
            checks.refuse("rule", "be a rule, such as Greedy()", checks.shown(self.rule))
        if isinstance(self.estimator, Calibrated) and not isinstance(self.rule, (Greedy, UCB)):
            checks.refuse("rule", "be Greedy() or UCB(...) for the estimator Calibrated", checks.shown(self.rule))
        if isinstance(self.rule, Robust) and not isinstance(self.estimator, LeastSquares):
            checks.refuse("estimator", "be LeastSquares(...) for the rule Robust", checks.shown(self.estimator))
        if self.estimator.ridge < self.rule.least_ridge and not isinstance(self.estimator, Calibrated):
            checks.refuse("ridge", "be a number above 0", self.estimator.ridge, f"{type(self.rule).__name__} divides by it.")
        if self.stabilizer is not None and not callable(self.stabilizer):
            self.estimator.stabilizer_at(1, self.n_actions)
        if self.rule.theta is not None:
            checks.floats("theta", self.rule.theta, (self.n_actions, self.dim))

    def _check_floor(self) -> None:
        highest = 1 / self.n_actions
        if self.estimator.divides and self.rule.estimates:
            rule = f"be in (0, 1/n_actions] = (0, {highest:g}]"
            if not checks.number("floor", self.floor, rule, 0.0, highest) > 0:
                checks.refuse("floor", rule, self.floor, "The estimator divides by the action's probability.")
        self._set("floor", checks.number("floor", self.floor, f"be in [0, 1/n_actions] = [0, {highest:g}]", 0.0, highest))

    # ---- what the compiled code reads ----

    @property
    def n_features(self) -> int:
        """p, the number of features, those of ones included."""
        return self.estimator.leading + self.intercept + self.dim

    @property
    def kind(self) -> int:
        """Which kind of compiled program is its own, see `kernels.layout`."""
        return layout.TWO_FITS if self.estimator.n_fits > 1 else layout.PLAIN if self.estimator.context is None else layout.CALIBRATED

    @property
    def spec(self) -> Integers:
        """The whole-numbered choices, see `kernels.layout`."""
        return self._vectors[0]

    @property
    def tuning(self) -> Floats:
        """The real-valued options, see `kernels.layout`."""
        return self._vectors[1]

    @cached_property
    def _vectors(self) -> tuple[Integers, Floats]:
        spec, tuning = np.zeros(layout.FADES + 1, dtype=np.int64), np.zeros(layout.DISCOUNT + 1)
        spec[layout.N_ACTIONS], spec[layout.INTERCEPT], spec[layout.FADES] = self.n_actions, self.n_features - self.dim, self.discount < 1
        tuning[layout.WIDTH], tuning[layout.EPOCH], tuning[layout.MEMORY] = 1.0, 1.0, 20.0  # where no component says otherwise
        tuning[layout.DISCOUNT] = self.discount
        self.estimator.write(spec, tuning)
        self.rule.write(spec, tuning)
        return spec, tuning

    @cached_property
    def theta_known(self) -> Floats:
        """The oracle's θ, (K, d); NaN where it has to come from the environment."""
        return np.full((self.n_actions, self.dim), np.nan) if self.rule.theta is None else np.array(self.rule.theta)

    @property
    def knows_theta(self) -> bool:
        """Whether it is an oracle that was given θ."""
        return self.rule.theta is not None

    # ---- schedules ----

    @property
    def correct_from(self) -> int:
        return self.estimator.correct_from

    @property
    def stabilizer(self) -> Stabilizer:
        return self.estimator.stabilizer

    def floor_at(self, time: int) -> float:
        """p0, the smallest probability of an allowed action in a decision.

        Args:
            time: the number of the decision, from 1.
        """
        if not callable(self.floor):
            return float(self.floor or 0.0)
        value = float(self.floor(time))
        if not 0.0 <= value <= 1 / self.n_actions + 1e-12:
            schedules.floors(self.floor, np.array([time]), self.n_actions)
        return min(value, 1 / self.n_actions)

    @property
    def refits_every_round(self) -> bool:
        return self.refit == 1

    def refits_after(self, learned: int) -> bool:
        """Whether θ is solved for after so many rounds were learned from."""
        return bool(self.refit_schedule(learned))

    @cached_property
    def refit_schedule(self) -> Callable[[Any], Any]:
        if callable(self.refit):
            return self.refit
        return EVERY_ROUND if self.refit == 1 else schedules.Every(self.refit)

    def stabilizer_at(self, time: int) -> Floats:
        """π^nd, the stabilizing policy in a round, (K,).

        Args:
            time: the number of the round's decision, from 1.
        """
        return self.estimator.stabilizer_at(time, self.n_actions) if callable(self.stabilizer) else self._stabilizer

    @cached_property
    def _stabilizer(self) -> Floats:
        return self.estimator.stabilizer_at(1, self.n_actions)

    def plan(self, times: Integers) -> ScheduleTable:
        """The schedules written out for B rounds.

        Args:
            times: the numbers of the rounds, from 1, (B,).
        """
        times = times if isinstance(times, np.ndarray) else np.empty((0, 0))
        if times.ndim != 1 or times.dtype.kind not in "iu" or not ((times >= 1) & (times <= layout.NEVER)).all():
            checks.refuse("times", "be numbers of rounds, whole numbers from 1", checks.shown(times))
        per_round = callable(self.stabilizer)
        return ScheduleTable(
            floor=schedules.floors(self.floor or 0.0, times, self.n_actions),
            exploring=times <= self.warmup,
            refit=schedules.written_out(self.refit_schedule, times, bool),
            correcting=times >= self.correct_from,
            stabilizer=np.array([self.stabilizer_at(int(t)) for t in times]) if per_round else self._stabilizer[None],
        )

    # ---- the three methods of a policy, and the optional ones ----

    @cached_property
    def _memory(self) -> Memory:
        return Memory(n_actions=self.n_actions, n_features=self.n_features, estimator=self.estimator, rule=self.rule)

    def init(self) -> LinearState:
        """The state before the first round."""
        return self._memory.empty()

    def check_state(self, state: LinearState) -> None:
        """Refuse what cannot be a state of this policy."""
        self._memory.check(state)

    def propensities(self, state: LinearState, observation: Observation) -> Floats:
        """π_t(·), the probabilities of the actions, 0 where not allowed, (K,).

        Args:
            state: what the policy has learned, as `init` or `update` gave it. It is left as it was.
            observation: what is known before the decision: x̃, Σe, the allowed actions, the number of the decision.
        """
        self.check_state(state)
        predicted, error_cov, allowed, time, _ = checked_observation(observation, dim=self.dim, n_actions=self.n_actions)
        state, out = LinearState(*map(readable, state)), np.empty(self.n_actions)
        floor, exploring = self.floor_at(time), time <= self.warmup
        kernels.propose_one(self.spec, self.tuning, state, predicted, error_cov, allowed, self.theta_known, floor, exploring, out)
        return out

    def update(self, state: LinearState, round: Round) -> LinearState:
        """The state after one more finished round.

        Args:
            state: what the policy has learned before. It is left as it was.
            round: the finished round: the observation, the action, the probabilities, the reward.
        """
        self.check_state(state)
        observation, action, propensities, reward = checked_round(round, dim=self.dim, n_actions=self.n_actions)
        predicted, error_cov, allowed, time, auxiliary = observation
        outcome = kernels.Outcome(action, float(propensities[action]), self.stabilizer_at(time), reward, auxiliary)
        refit, correct_from = self.refits_every_round or self.refits_after(self._learned(state) + 1), min(self.correct_from, layout.NEVER)
        new = _copied(state)
        kernels.learn_one(self.spec, self.tuning, new, predicted, error_cov, allowed, outcome, refit, correct_from)
        self.check_state(new)
        return new

    def advance(self, state: LinearState, round: Round) -> LinearState:
        """`update` in place: the given state is changed and returned.

        Args:
            state: what the policy has learned before. Its arrays are overwritten.
            round: the finished round: the observation, the action, the probabilities, the reward.
        """
        self._replace(state, self.update(state, round))
        return state

    def merge(self, first: LinearState, second: LinearState) -> LinearState:
        """The state that knows both sets of rounds: sums and counts add; θ is solved for again.

        Args:
            first: the state after one set of rounds. It is left as it was.
            second: the state of the same policy after other rounds. It is left as it was.
        """
        if self.rule.restarts:
            checks.refuse("policy", "have a memory that is a sum, to be merged", "robust_ucb, which restarts")
        self.check_state(first)
        self.check_state(second)
        merged = LinearState(first.sums + second.sums, first.fit.copy(), first.extra + second.extra)
        self._memory.mark_stale(merged)
        self.check_state(merged)
        merged = self._refitted(merged)
        self.check_state(merged)
        return merged

    def refit_now(self, state: LinearState) -> None:
        """Solve for θ again, in place, for every action whose sums have changed.

        Args:
            state: what the policy has learned. Its fits are overwritten.
        """
        self.check_state(state)
        self._replace(state, self._refitted(state))

    def theta(self, state: LinearState) -> Floats:
        """The fitted θ, (K, d): the one that the next decision reads; for `Calibrated` its doubly robust one, solved for when asked for.

        Args:
            state: what the policy has learned. It is left as it was.
        """
        self.check_state(state)
        if self.knows_theta:
            return self.theta_known.copy()
        if self.estimator.reported:
            found = np.empty((self.n_actions, self.dim))
            kernels.theta_now(self.spec, self.tuning, LinearState(*map(readable, state)), self.dim, found)
            return found
        return state.fit[: self.n_actions, int(self.intercept) : self.intercept + self.dim].copy()

    def diagnostics(self, state: LinearState) -> tuple[Finding, ...]:
        """What speaks against trusting it: the told Σe, the rounds behind θ, and what the rewards say, each with a verdict and a sentence.

        Args:
            state: what the policy has learned. It is left as it was.
        """
        self.check_state(state)
        return diagnosed(self, state)

    def moments(self, state: LinearState) -> Moments:
        """The running sums that the reported θ is solved from, with names.

        Args:
            state: what the policy has learned. It is left as it was.
        """
        self.check_state(state)
        K, p = self.n_actions, self.n_features
        if self.estimator.reported == 0:
            return Moments(state.sums[: 2 * K + 1], K, p)
        q, departures = p - self.estimator.leading, layout.departure_row(K, 0)
        own = np.zeros((2 * K + 1, layout.row_width(q)))
        own[:K] = (state.sums[K : 2 * K] + state.sums[layout.alike_row(K)])[:, : layout.row_width(q)]
        own[:K, layout.COUNT] = state.sums[:K, layout.COUNT]
        pull = (state.sums[departures : departures + K] + state.sums[departures + K])[:, : q * p].reshape(K, q, p)
        own[:K, layout.cross_at(q) :] += np.einsum("kij,kj->ki", pull, state.fit[:K, :p])
        return Moments(own, K, q)

    def _refitted(self, state: LinearState) -> LinearState:
        found = _copied(state)
        kernels.refit_now(self.spec, self.tuning, found, self._learned(state) >= self.correct_from, self.dim)
        return found

    def _learned(self, state: LinearState) -> int:
        """How many rounds a state knows."""
        return int(state.extra[layout.LEARNED])

    def _replace(self, state: LinearState, new: LinearState) -> None:
        """Write a checked state into another one's arrays."""
        self.check_state(new)
        for name, own, given in zip(state._fields, state, new, strict=True):
            if not own.flags.writeable:
                checks.refuse(f"state.{name}", "be an array that can be written, to be changed in place", "a read-only one")
            own[...] = given


def _copied(state: LinearState) -> LinearState:
    return LinearState(*(part.copy() for part in state))
