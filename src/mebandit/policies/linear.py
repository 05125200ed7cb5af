"""Linear policies: one mechanism, named recipes.

All of them keep weighted running sums, solve for θ_a, score the actions and keep every probability at the floor. They differ in
four choices: how a round is weighted, what error covariance is taken out, how scores become probabilities, and when to refit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import ceil, log, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels, schedules
from mebandit.estimation.methods import GUARDS, READS, RECIPES
from mebandit.estimation.moments import Moments
from mebandit.kernels import layout, limits
from mebandit.schedules import Schedule
from mebandit.values import Floats, Integers, LinearState, Observation, Plan, Round

RULES = {
    "greedy": layout.GREEDY,
    "ucb": layout.UCB,
    "thompson": layout.THOMPSON,
    "oracle": layout.ORACLE,
    "bayes_oracle": layout.BAYES_ORACLE,
    "robust": layout.ROBUST,
    "uniform": layout.UNIFORM,
}

CONTEXTS = {"predicted": layout.PREDICTED, "blp": layout.BLP, "ew_blp": layout.EW_BLP, "auto": layout.CHOSEN_BLP}

EVERY_ROUND = schedules.EveryRound()

MOST_BUDGETS = 1000
"""of which the largest, 2^998, is a number"""

MOST_NUMBERS = 1 << 28
"""in a state: two gigabytes"""

STATE_LIMIT = 1e290
"""the size of the numbers in a state, to which usable rounds can be added for ever"""


@dataclass(frozen=True, kw_only=True)
class LinearPolicy:
    """A linear policy by its choices. The recipes below (`meb`, `lin_ucb`, ...) make the usual ones."""

    name: str
    n_actions: int
    dim: int
    method: str
    """how θ is estimated: "ridge", "naive", "meb", "dr", "rc" or "auto"; see `mebandit.estimation.methods`"""
    rule: str
    """how scores become probabilities: "greedy", "ucb", "thompson", "robust", "oracle", "bayes_oracle" or "uniform" """
    floor: float | Schedule | None = None
    """p0: the least probability of an allowed action, a number or a schedule t -> number; None is min(0.2, 1/(2K))"""
    warmup: int = 0
    """T0: for so many rounds all allowed actions are equally likely"""
    refit: int | Schedule | Callable[[Any], Any] = EVERY_ROUND
    """after which rounds θ is solved for: a schedule t -> bool, or a number t0 for every t0 rounds"""
    correct_from: int = 1
    """the first round after which the error covariance is taken out; before, the fit is uncorrected"""
    stabilizer: tuple[float, ...] | Callable[[int], Sequence[float]] | None = None
    """π^nd: (K,), or a schedule t -> (K,); None is 1/K for each"""
    ridge: float = 1.0
    intercept: bool = False
    guard: str = "auto"
    context: str = "predicted"
    """what the decision reads: "predicted", x̃ itself; "blp", its best linear predictor of x; "ew_blp", the same about a mean that
    forgets; "auto", whichever of the two means predicts better"""
    curved: bool = False
    """whether the predictor is curved where coordinates are skewed, as far as the rewards bear that out"""
    memory: float = 20.0
    """rounds over which the forgetting mean averages"""
    weights: str = "unit"
    """how rounds of different error covariance count: "unit", alike; "precision", by how much x̃ says"""
    discount: float = 1.0
    """what a round's weight is multiplied with in every later round, for a θ that drifts"""
    width: float = 1.0
    """multiplies sqrt(x̃' V^-1 x̃): UCB's bonus, or the standard deviation of Thompson's posterior"""
    epoch: int = 1
    """RobustUCB: rounds between restarts"""
    gamma: float = 0.0
    """RobustUCB: EXP3's rate"""
    n_budgets: int = 0
    """RobustUCB: how many attack budgets 0, 1, 2, 4, ... it chooses from"""
    known_theta: tuple[tuple[float, ...], ...] | None = None
    """the oracle's θ, (K, d); None: the environment's, in simulation"""

    def __post_init__(self) -> None:
        for name, least in (("n_actions", 2), ("dim", 1), ("warmup", 0), ("correct_from", 1), ("epoch", 1)):
            object.__setattr__(self, name, checks.integer(name, getattr(self, name), least))
        object.__setattr__(self, "intercept", checks.truth("intercept", self.intercept))
        checks.one_of("method", self.method, RECIPES)
        checks.one_of("rule", self.rule, RULES)
        checks.one_of("guard", self.guard, GUARDS)
        checks.one_of("context", self.context, CONTEXTS)
        checks.one_of("weights", self.weights, ("unit", "precision"))
        if self.n_fits > 1:
            self._check_two_fits()
        if self.rule == "robust" and self.method != "ridge":
            checks.refuse("method", "be 'ridge' for the rule 'robust'", checks.shown(self.method))
        least = 1 if self.rule == "robust" else 0
        object.__setattr__(self, "n_budgets", checks.integer("n_budgets", self.n_budgets, least, MOST_BUDGETS))
        self._check_size()
        if self.method == "ridge" and self.context != "predicted":
            checks.refuse(
                "context", "be 'predicted' for least squares on x̃", checks.shown(self.context), "Take method 'rc' to regress on it."
            )
        if self.weights == "precision" and self.context == "predicted":
            checks.refuse("weights", "be 'unit' where context is 'predicted'", "'precision'", "Take context='blp', which learns Sx.")
        object.__setattr__(self, "curved", checks.truth("curved", self.curved))
        object.__setattr__(self, "memory", checks.number("memory", self.memory, "be a number of at least 2", 2.0))
        object.__setattr__(self, "discount", checks.number("discount", self.discount, "be in [0.5, 1]", 0.5, 1.0))
        if self.floor is None:
            object.__setattr__(self, "floor", min(0.2, 0.5 / self.n_actions))
        self._check_floor()
        if not callable(self.refit):
            object.__setattr__(self, "refit", checks.integer("refit", self.refit, 1, layout.NEVER))
        smallest = 1e-12 if self.rule in ("ucb", "thompson", "robust") else 0.0
        ridge = checks.number("ridge", self.ridge, "be a number " + ("above 0" if smallest else "of at least 0"), smallest)
        object.__setattr__(self, "ridge", ridge)
        object.__setattr__(self, "width", checks.number("width", self.width, "be a number of at least 0", 0.0))
        object.__setattr__(self, "gamma", checks.number("gamma", self.gamma, "be in [0, 1]", 0.0, 1.0))
        if self.stabilizer is not None and not callable(self.stabilizer):
            object.__setattr__(self, "stabilizer", tuple(float(s) for s in self._check_stabilizer(self.stabilizer)))
        if self.known_theta is not None:
            theta = checks.floats("theta", self.known_theta, (self.n_actions, self.dim))
            object.__setattr__(self, "known_theta", tuple(map(tuple, theta.tolist())))

    def _check_two_fits(self) -> None:
        """What regression calibration and the doubly robust fit have no use for."""
        if self.rule != "greedy":
            checks.refuse("rule", f"be 'greedy' for the method {self.method!r}", checks.shown(self.rule))
        if self.stabilizer is not None:
            checks.refuse(
                "stabilizer", "be left out for meb_dr", checks.shown(self.stabilizer), "Rounds are weighted by weights='precision'."
            )
        if self.correct_from != 1:
            checks.refuse("correct_from", "be 1 for meb_dr", self.correct_from, "Give error_cov=0 for rounds to be taken as they are.")
        if self.context == "predicted" and self.method != "dr":
            remedy = "Regression calibration regresses on it; take method='dr' to act on x̃."
            checks.refuse("context", f"be 'blp', 'ew_blp' or 'auto' for the method {self.method!r}", "'predicted'", remedy)

    def _check_size(self) -> None:
        """Whether there is room for a state."""
        size = self._rows[0] * (layout.TERMS + (self.dim + 2) ** 2) + 2 * self.n_actions
        if size > MOST_NUMBERS:
            received = f"{self.n_actions} and {self.dim}"
            checks.refuse("n_actions and dim", f"make a memory of at most {MOST_NUMBERS:,} numbers", f"{received}, which make {size:,}")

    def _check_floor(self) -> None:
        if callable(self.floor):
            return
        highest = 1 / self.n_actions
        if self.method in ("meb", "dr", "auto") and self.rule == "greedy":
            rule = f"be in (0, 1/n_actions] = (0, {highest:g}]"
            if not checks.number("floor", self.floor, rule, 0.0, highest) > 0:
                checks.refuse("floor", rule, self.floor, "The estimator divides by the action's probability.")
        floor = checks.number("floor", self.floor, f"be in [0, 1/n_actions] = [0, {highest:g}]", 0.0, highest)
        object.__setattr__(self, "floor", floor)

    def _check_stabilizer(self, value: object) -> Floats:
        vector = checks.floats("stabilizer", value, (self.n_actions,))
        return checks.stabilizer(vector)

    def __repr__(self) -> str:
        """The constructor call, without what is left at its default."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        kept = {f.name for f in fields(self) if given[f.name] != f.default}
        return f"LinearPolicy({', '.join(f'{k}={v!r}' for k, v in given.items() if k in kept)})"

    @property
    def n_features(self) -> int:
        return self.dim + self.intercept

    @cached_property
    def spec(self) -> Integers:
        """The choices as the compiled code reads them."""
        weighting, correction = RECIPES[self.method]
        choices = [self.n_actions, self.intercept, weighting, correction, RULES[self.rule], GUARDS[self.guard], CONTEXTS[self.context]]
        choices += [READS.get(self.method, 0), self.weights == "precision", self.curved, self.discount < 1]
        return np.array(choices, dtype=np.int64)

    @cached_property
    def tuning(self) -> Floats:
        epoch = min(self.epoch, layout.NEVER)
        return np.array([self.ridge, self.width, epoch, self.gamma, self.memory, self.discount], dtype=np.float64)

    @cached_property
    def theta_known(self) -> Floats:
        """The oracle's θ; NaN where it has to come from the environment."""
        return np.full((self.n_actions, self.dim), np.nan) if self.known_theta is None else np.array(self.known_theta)

    def floor_at(self, time: int) -> float:
        if not callable(self.floor):
            return float(self.floor or 0.0)
        value = float(self.floor(time))
        if not 0.0 <= value <= 1 / self.n_actions + 1e-12:
            schedules.floors(self.floor, np.array([time]), self.n_actions)
        return min(value, 1 / self.n_actions)

    def refits_after(self, learned: int) -> bool:
        return bool(self.refit_schedule(learned))

    @cached_property
    def refits_every_round(self) -> bool:
        return self.refit_schedule == EVERY_ROUND

    @cached_property
    def refit_schedule(self) -> Callable[[Any], Any]:
        if callable(self.refit):
            return self.refit
        return EVERY_ROUND if self.refit == 1 else schedules.Every(self.refit)

    def stabilizer_at(self, time: int) -> Floats:
        if callable(self.stabilizer):
            return self._check_stabilizer(self.stabilizer(time))
        return self._stabilizer

    @cached_property
    def _stabilizer(self) -> Floats:
        return np.full(self.n_actions, 1 / self.n_actions) if self.stabilizer is None else np.array(self.stabilizer)

    def plan(self, times: Integers) -> Plan:
        """The schedules written out for a stretch of rounds."""
        times = times if isinstance(times, np.ndarray) else np.empty((0, 0))
        if times.ndim != 1 or times.dtype.kind not in "iu" or not ((times >= 1) & (times <= layout.NEVER)).all():
            checks.refuse("times", "be numbers of rounds, whole numbers from 1", checks.shown(times))
        per_round = callable(self.stabilizer)
        return Plan(
            floor=schedules.floors(self.floor or 0.0, times, self.n_actions),
            exploring=times <= self.warmup,
            refit=schedules.written_out(self.refit_schedule, times, bool),
            correcting=times >= self.correct_from,
            stabilizer=np.array([self.stabilizer_at(int(t)) for t in times]) if per_round else self._stabilizer[None],
        )

    def init(self) -> LinearState:
        k, p = self.n_actions, self.n_features
        state = LinearState(*(np.zeros(shape) for shape in self._shapes))
        diagonal = p + np.cumsum(np.arange(p + 1, 1, -1)) - (p + 1)
        fitted = state.fit[: self.n_fits * k]
        fitted[:, diagonal] = 1 / self.ridge if self.ridge >= limits.LEAST_VARIANCE else 0.0  # the factor of ridge I
        fitted[:, layout.STALE - layout.REPORT_COLUMNS] = 1.0
        return state

    @property
    def _rows(self) -> tuple[int, int]:
        """of the running sums, and of the fits"""
        k, calibrates = self.n_actions, self.context != "predicted"
        rows = 3 * k + 3 if self.n_fits > 1 else 2 * k + (3 if calibrates else 1)
        return rows + (calibrates and self.curved), 2 * k + 2 if calibrates or self.n_fits > 1 else k

    @cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """of the parts of a state"""
        (rows, fits), p = self._rows, self.n_features
        return (rows, kernels.row_width(p)), (fits, kernels.fit_width(p)), (layout.LOG_WEIGHTS + self.n_budgets,)

    @cached_property
    def calibrates(self) -> bool:
        """Whether it reads a calibrated context, or keeps fits that do."""
        return self.context != "predicted" or self.n_fits > 1

    @property
    def n_fits(self) -> int:
        """Fits per arm: regression calibration and the doubly robust one are kept together."""
        return 2 if RECIPES[self.method][0] == layout.PSEUDO else 1

    def check_state(self, state: LinearState) -> None:
        """Refuse what cannot be a state of this policy: compiled code reads and writes it without looking at it."""
        if type(state) is not LinearState:
            checks.refuse("state", "be a LinearState, as init() and update() give it", checks.shown(state))
        for name, part, shape in zip(state._fields, state, self._shapes, strict=True):
            if not (type(part) is np.ndarray and part.dtype == np.float64 and part.shape == shape and part.flags.c_contiguous):
                received = f"{part.dtype} of shape {part.shape}" if isinstance(part, np.ndarray) else checks.shown(part)
                checks.refuse(f"state.{name}", f"be a contiguous array of float64 of shape {shape}", received)
            if not (np.abs(part) <= STATE_LIMIT).all():
                received = checks.shown(part[~(np.abs(part) <= STATE_LIMIT)][0])
                checks.refuse(f"state.{name}", f"hold finite numbers of at most {STATE_LIMIT:g} in size", received)
        self._check_counts(state)

    def _check_counts(self, state: LinearState) -> None:
        """Refuse counters that count nothing, choices that are none, and means of x̃ that no predictions have."""
        k, extra = self.n_actions, state.extra
        learned, heads = extra[layout.LEARNED], state.sums[: 2 * k + 3, : layout.TERMS]
        if not (0 <= learned <= 2**53 and learned == np.floor(learned)):
            checks.refuse("state.extra", "begin with the number of rounds learned", checks.shown(learned))
        if (heads < 0).any():
            checks.refuse("state.sums", "begin with counts and weights of at least 0", checks.shown(heads[(heads < 0).any(axis=1)][0]))
        if self.context != "predicted":
            rows = state.sums[2 * k + 1 : 2 * k + 3]
            first = np.abs(rows[:, layout.TERMS : layout.TERMS + self.n_features]).max(axis=1)
            if (first > limits.LARGEST * (1 + 1e-6) * rows[:, layout.WEIGHT]).any():
                checks.refuse("state.sums", f"have means of predictions of at most {limits.LARGEST:g} in size", checks.shown(first))
        if self.rule == "robust":
            self._check_budgets(extra)

    def _check_budgets(self, extra: Floats) -> None:
        """Refuse what RobustUCB cannot have come to."""
        size, total, lowest, highest, choice, share = extra[layout.EPOCH_SIZE : layout.LOG_WEIGHTS].tolist()
        begun, slack = extra[layout.LEARNED] > 0, 1e-6 * size * max(abs(lowest), abs(highest))
        rules = [
            (0 <= choice < self.n_budgets and choice == int(choice), f"name one of {self.n_budgets} budgets", choice),
            (0 <= size <= extra[layout.LEARNED], "count the rounds of an epoch", size),
            (-limits.LARGEST <= lowest <= highest <= limits.LARGEST, "have a range of rewards", (lowest, highest)),
            (
                abs(total - (lowest + highest) / 2 * size) <= (highest - lowest) / 2 * size + slack,
                "have a sum of rewards in its range",
                total,
            ),
            (limits.LEAST <= share <= 1 + 1e-9 or not begun, "have the probability of its budget", share),
            (extra[layout.LOG_WEIGHTS :].max() <= 1.0 / limits.LEAST, "have the logarithms of weights", extra[layout.LOG_WEIGHTS :]),
        ]
        for kept, rule, received in rules:
            if not kept:
                checks.refuse("state.extra", rule, checks.shown(received))

    def _check_observation(self, observation: Observation) -> Observation:
        """An observation, every part of it checked, as compiled code can read it."""
        if not isinstance(observation, tuple) or len(observation) != len(Observation._fields):
            checks.refuse("observation", "be an Observation", checks.shown(observation))
        predicted, error_cov, allowed, time, luck = observation
        return Observation(
            _own(checks.floats("predicted", predicted, (self.dim,))),
            _own(checks.covariance("error_cov", error_cov, self.dim)),
            _own(checks.allowed_actions("allowed", allowed, self.n_actions)),
            checks.integer("time", time, 1, layout.NEVER),
            checks.number("luck", luck, "be in [0, 1]", 0.0, 1.0),
        )

    def _check_round(self, round: Round) -> Round:
        """A finished round, every part of it checked."""
        if not isinstance(round, tuple) or len(round) != len(Round._fields):
            checks.refuse("round", "be a Round", checks.shown(round))
        observation = self._check_observation(round[0])
        action = checks.integer("action", round[1], 0, self.n_actions - 1)
        if not observation.allowed[action]:
            checks.refuse("action", "be allowed", action)
        propensities = checks.probabilities("propensities", round[2], observation.allowed)
        if not propensities[action] >= limits.LEAST:
            checks.refuse("propensities", f"be at least {limits.LEAST:g} for the action taken", propensities[action])
        return Round(observation, action, propensities, checks.reward(round[3]))

    def refit_now(self, state: LinearState) -> None:
        """Solve again, in place, for every arm whose sums have changed."""
        self.check_state(state)
        self._replace(state, self._refitted(state))

    def _refitted(self, state: LinearState) -> LinearState:
        found, times = _copied(state), state.extra[layout.LEARNED]
        correcting = bool(times >= min(self.correct_from, layout.NEVER))
        kernels.refit_now(self.spec, self.tuning, correcting, found.sums, found.fit, self.n_features)
        return found

    def _replace(self, state: LinearState, new: LinearState) -> None:
        """Let a state be as another, if both can be."""
        self.check_state(new)
        for name, own, given in zip(state._fields, state, new, strict=True):
            if not own.flags.writeable:
                checks.refuse(f"state.{name}", "be an array that can be written, to be changed in place", "a read-only one")
            own[...] = given

    def propensities(self, state: LinearState, observation: Observation) -> Floats:
        self.check_state(state)
        predicted, error_cov, allowed, time, _ = self._check_observation(observation)
        state, out = LinearState(*map(_own, state)), np.empty(self.n_actions)
        kernels.propose_one(
            self.spec,
            self.tuning,
            state.sums,
            state.fit,
            state.extra,
            predicted,
            error_cov,
            allowed,
            self.floor_at(time),
            time <= self.warmup,
            self.theta_known,
            out,
        )
        return out

    def update(self, state: LinearState, round: Round) -> LinearState:
        self.check_state(state)
        (predicted, error_cov, allowed, time, luck), action, propensities, reward = self._check_round(round)
        new = _copied(state)
        kernels.learn_one(
            self.spec,
            self.tuning,
            self.stabilizer_at(time),
            new.sums,
            new.fit,
            new.extra,
            predicted,
            error_cov,
            allowed,
            action,
            float(propensities[action]),
            reward,
            luck,
            self.refits_every_round or self.refits_after(int(state.extra[layout.LEARNED]) + 1),
            min(self.correct_from, layout.NEVER),
        )
        self.check_state(new)
        return new

    def advance(self, state: LinearState, round: Round) -> LinearState:
        """`update` in place."""
        self._replace(state, self.update(state, round))
        return state

    def merge(self, first: LinearState, second: LinearState) -> LinearState:
        """The state that knows both sets of rounds: sums and counts add; θ is solved for again."""
        if self.rule == "robust":
            checks.refuse("policy", "have a memory that is a sum, to be merged", "robust_ucb, which restarts")
        self.check_state(first)
        self.check_state(second)
        merged = LinearState(first.sums + second.sums, first.fit.copy(), first.extra + second.extra)
        merged.fit[: self.n_fits * self.n_actions, layout.STALE - layout.REPORT_COLUMNS] = 1.0
        self.check_state(merged)
        merged = self._refitted(merged)
        self.check_state(merged)
        return merged

    def theta(self, state: LinearState) -> Floats:
        """The fitted θ, (K, d): the one that the next decision reads, but for method "auto" always the doubly robust one."""
        self.check_state(state)
        if self.known_theta is not None:
            return self.theta_known.copy()
        first = self.n_actions if self.method in ("dr", "auto") else 0
        return state.fit[first : first + self.n_actions, int(self.intercept) : self.n_features].copy()

    def moments(self, state: LinearState) -> Moments:
        """The running sums that θ is solved from, with names."""
        self.check_state(state)
        k, p = self.n_actions, self.n_features
        if self.method not in ("dr", "auto"):
            return Moments(state.sums[: 2 * k + 1], k, p)
        own = np.concatenate([state.sums[k : 2 * k], np.zeros_like(state.sums[: k + 1])])
        own[:k, layout.COUNT] = state.sums[:k, layout.COUNT]
        pull = state.sums[2 * k + 3 : 3 * k + 3, : p * p].reshape(k, p, p)
        own[:k, -p:] += np.einsum("kij,kj->ki", pull, state.fit[:k, :p])
        return Moments(own, k, p)


def _own(array: Any) -> Any:
    """An array as compiled code takes it: to the compiler, a read-only one is of another type, for which all would be compiled again."""
    return array if array.flags.carray else array.copy()


def _copied(state: LinearState) -> LinearState:
    return LinearState(*(part.copy() for part in state))


def meb(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """MEB, Algorithm 1 (and its K-action form, App. C): greedy in ⟨θ̂_a, x̃⟩ with the paper's estimator, at the floor otherwise.

    θ̂_a = (Σ w x̃x̃' + ridge I - Σ π^nd(a) Σe)^-1 Σ w x̃ r,  w = 1{a_t = a} π^nd(a)/π_t(a).

    Options (all keyword-only): floor, warmup, refit, correct_from, stabilizer, ridge, intercept, guard, name; see `LinearPolicy`.

    >>> meb(2, 5, floor=0.1, refit=10)
    LinearPolicy(name='MEB', n_actions=2, dim=5, method='meb', rule='greedy', floor=0.1, refit=10)
    """
    return _recipe("MEB", "meb", "greedy", n_actions, dim, options)


def meb_naive(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """MEB with the textbook correction (eq. naive-estimator), which ignores that the policy read x̃: biased, less variable."""
    return _recipe("MEB-naive", "naive", "greedy", n_actions, dim, options)


def meb_dr(n_actions: int, dim: int, *, method: str = "auto", **options: Any) -> LinearPolicy:
    """The policy to take by default: it acts on a calibrated context, and falls back on the doubly robust fit where that earns more.

    x̂_t = x̃_t - Σe,t (Sx + Σe,t)^-1 (x̃_t - μ_t) is the best linear predictor of x_t (`context="auto"`: μ_t the mean of x̃ so far, or one
    that forgets, whichever predicts x̃ better). For skewed coordinates it is curved (`curved=True`): by a share, learned from the rewards,
    of how far E[x | x̃] is from linear where x̃ is normal plus exponential.
    Two fits are kept. Regression calibration: least squares of r on x̂ in the arm, drawn to the fit of all arms together by a ridge d Σ̄e.
    Doubly robust: from every round, with pseudo-outcomes y = ⟨θ^rc_a, x̂⟩ + 1{a_t = a} (r - ⟨θ^rc_a, x̂⟩) / π_t(a),
    θ_a = (Σ c (x̃x̃' - Σe,t))^-1 Σ c x̃ y. With `weights="precision"` rounds count in the second by the reliability of x̃, in the first by
    the inverse of the variance that x̂ leaves of r.
    The first acts on x̂. It is the more precise and, unlike the second, biased where E[x | x̃] is not what was fitted. So wherever the two
    disagree, the difference of the pseudo-outcomes of their actions is added up, and when it says by 2.5 standard errors that the second
    earns more, acting on x̃, that one decides. `theta` is then always the doubly robust one.

    `method` "rc" or "dr" acts on that fit alone, on x̂. Options: those of `meb` but stabilizer and correct_from, and context, curved,
    memory, weights, discount. The ridge is 0.1: x̂ varies less than x̃, and an arm that is rarely played is not weighted up, so that 1 would
    weigh more here than in `meb`.
    """
    checks.one_of("method", method, READS)
    ours = {"context": "auto", "weights": "precision", "curved": True, "ridge": 0.1} | options
    if ours["context"] == "predicted":
        ours["weights"] = options.get("weights", "unit")
    return _recipe("MEB-DR", method, "greedy", n_actions, dim, ours)


def greedy(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """Least squares on x̃ as if it were x, greedy above the floor. With `intercept=True` this is right whenever E[r | x̃] is affine."""
    return _recipe("Greedy", "ridge", "greedy", n_actions, dim, options)


def lin_ucb(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """Linear UCB on x̃ (App. A), clipped at the floor: argmax ⟨θ̂_a, x̃⟩ + width sqrt(x̃' V_a^-1 x̃), V_a = ridge I + Σ x̃x̃'."""
    return _recipe("UCB", "ridge", "ucb", n_actions, dim, options)


def thompson(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """Linear Thompson sampling on x̃ (App. A): π(a) is the posterior probability that ⟨θ_a, x̃⟩ is largest, clipped at the floor.

    θ_a ~ N(V_a^-1 Σ x̃ r, width² V_a^-1). For two arms the probability is exact, Φ of the standardised difference; for more it is
    computed by quadrature. The vector computed is the one that is logged and the one that the action is drawn from.
    """
    return _recipe("TS", "ridge", "thompson", n_actions, dim, options)


def robust_ucb(n_actions: int, dim: int, *, horizon: int, **options: Any) -> LinearPolicy:
    """RobustUCB (Ding, Hsieh, Sharpnack 2022): LinUCB whose width grows by an attack budget that EXP3 chooses, restarted every epoch.

    Epochs of H = ⌈√T⌉ rounds; budgets 0, 1, 2, 4, ..., up to T; rate γ = min(1, sqrt(J log J / ((e - 1) ⌈T/H⌉))), J budgets.
    """
    horizon = checks.integer("horizon", horizon, 1)
    epoch = checks.integer("epoch", options.get("epoch", ceil(sqrt(horizon))), 1)
    budgets = checks.integer("n_budgets", options.get("n_budgets", ceil(log2(horizon)) + 2 if horizon > 1 else 2), 2)
    gamma = min(1.0, sqrt(budgets * log(budgets) / ((np.e - 1) * ceil(horizon / epoch))))
    return _recipe("RobustUCB", "ridge", "robust", n_actions, dim, {"epoch": epoch, "gamma": gamma, "n_budgets": budgets} | options)


def oracle(n_actions: int, dim: int, *, theta: ArrayLike | None = None, **options: Any) -> LinearPolicy:
    """Knows θ, acts on x̃: its regret is the price of not seeing x. Without `theta` it takes the environment's, in simulation."""
    return _recipe("oracle on x̃", "ridge", "oracle", n_actions, dim, options | {"known_theta": theta})


def bayes_oracle(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """Knows θ and the context's distribution, acts on E[x | x̃]: no policy can do better. In simulation only, where that is known."""
    return _recipe("oracle on E[x|x̃]", "ridge", "bayes_oracle", n_actions, dim, options)


def uniform(n_actions: int, dim: int, **options: Any) -> LinearPolicy:
    """Every allowed action equally likely, and nothing learned. To learn under uniform play, take meb(..., floor=1/n_actions)."""
    return _recipe("uniform", "ridge", "uniform", n_actions, dim, options)


def _recipe(name: str, method: str, rule: str, n_actions: int, dim: int, options: dict[str, Any]) -> LinearPolicy:
    known = {f.name for f in fields(LinearPolicy)} - {"method", "rule", "n_actions", "dim"}
    unknown = sorted(set(options) - known)
    if unknown:
        checks.refuse("options", "be among " + ", ".join(sorted(known)), ", ".join(unknown))
    return LinearPolicy(n_actions=n_actions, dim=dim, method=method, rule=rule, **({"name": name} | options))
