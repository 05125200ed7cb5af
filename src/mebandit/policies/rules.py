"""Rules: how the scores of the actions become action probabilities, before these are raised to the floor.

Notation: θ̂_a the fitted parameters of action a, x̃ the predicted context, V_a = ridge I + Σ 1{a_t = a} x̃_t x̃_t'.
"""

from dataclasses import dataclass
from math import ceil, e, log, log2, sqrt
from typing import ClassVar

from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.kernels import layout, limits
from mebandit.policies.component import Component
from mebandit.values import Floats, Integers

MOST_BUDGETS = 1000
"""the largest budget, 2^998, is then still a floating-point number"""


class Rule(Component):
    """The base of all rules. Each is one of the numbered rules of the compiled code."""

    code: ClassVar[int]
    """its number there"""
    least_ridge: ClassVar[float] = 0.0
    """the smallest ridge with which its scores are defined"""
    estimates: ClassVar[bool] = False
    """whether it keeps an estimate of θ from all rounds so far"""
    restarts: ClassVar[bool] = False
    """whether it clears its running sums from time to time, so that two memories cannot be added"""
    theta: ArrayLike | None = None
    """known parameters, (K, d), of an oracle"""

    @property
    def needs_environment(self) -> bool:
        """Whether it reads what only a simulated environment knows."""
        return False

    @property
    def n_counters(self) -> int:
        """The length of `LinearState.extra`."""
        return layout.LOG_WEIGHTS

    def write(self, spec: Integers, tuning: Floats) -> None:
        spec[layout.RULE] = self.code

    def check_counters(self, extra: Floats) -> None:
        """Refuse counters of a stored state that this rule cannot have produced.

        Args:
            extra: the counters, `LinearState.extra`, (n_counters,).
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class Greedy(Rule):
    """The action with the largest score ⟨θ̂_a, x̃⟩; equal scores share the probability."""

    code = layout.GREEDY
    estimates = True


@dataclass(frozen=True, kw_only=True, repr=False)
class UCB(Rule):
    """The action with the largest upper confidence bound ⟨θ̂_a, x̃⟩ + width sqrt(x̃' V_a⁻¹ x̃).

    Args:
        width: multiplies the half-width of the confidence interval, at least 0.
    """

    code = layout.UCB
    least_ridge = 1e-12
    estimates = True
    width: float = 1.0

    def __post_init__(self) -> None:
        self._set("width", checks.number("width", self.width, "be a number of at least 0", 0.0))

    def write(self, spec: Integers, tuning: Floats) -> None:
        super().write(spec, tuning)
        tuning[layout.WIDTH] = self.width


@dataclass(frozen=True, kw_only=True, repr=False)
class Thompson(Rule):
    """Each action with the posterior probability that its ⟨θ_a, x̃⟩ is the largest, θ_a ~ N(θ̂_a, width² V_a⁻¹).

    The probability is exact for two actions and computed by quadrature for more; nothing is sampled but the action itself.

    Args:
        width: multiplies the posterior standard deviation, at least 0.
    """

    code = layout.THOMPSON
    least_ridge = 1e-12
    estimates = True
    width: float = 1.0

    def __post_init__(self) -> None:
        self._set("width", checks.number("width", self.width, "be a number of at least 0", 0.0))

    def write(self, spec: Integers, tuning: Floats) -> None:
        super().write(spec, tuning)
        tuning[layout.WIDTH] = self.width


@dataclass(frozen=True, kw_only=True, repr=False)
class Robust(Rule):
    """RobustUCB (Ding, Hsieh and Sharpnack 2022): UCB with the width increased by an attack budget C, and a restart after each epoch.

        score  ⟨θ̂_a, x̃⟩ + (width + C) sqrt(x̃' V_a⁻¹ x̃),   C from {0, 1, 2, 4, ...}, drawn by EXP3 after each epoch

    `Robust.over(horizon)` chooses the epoch, the number of budgets and the rate of EXP3 as the authors do.

    Args:
        epoch: rounds between two restarts, at least 1.
        n_budgets: how many attack budgets 0, 1, 2, 4, ... there are to choose from, 1 to 1000.
        gamma: the rate of EXP3, in [0, 1].
        width: multiplies the half-width of the confidence interval, at least 0.
    """

    code = layout.ROBUST
    least_ridge = 1e-12
    restarts = True
    epoch: int
    n_budgets: int
    gamma: float
    width: float = 1.0

    def __post_init__(self) -> None:
        self._set("epoch", checks.integer("epoch", self.epoch, 1))
        self._set("n_budgets", checks.integer("n_budgets", self.n_budgets, 1, MOST_BUDGETS))
        self._set("gamma", checks.number("gamma", self.gamma, "be in [0, 1]", 0.0, 1.0))
        self._set("width", checks.number("width", self.width, "be a number of at least 0", 0.0))

    @classmethod
    def over(
        cls, horizon: int, *, width: float = 1.0, epoch: int | None = None, n_budgets: int | None = None, gamma: float | None = None
    ) -> "Robust":
        """The rule with the authors' choices for a number of rounds T.

            epoch H = ⌈√T⌉,   J = ⌈log2 T⌉ + 2 budgets,   gamma = min(1, sqrt(J log J / ((e - 1) ⌈T/H⌉)))

        Args:
            horizon: T, the number of rounds.
            width: as above.
            epoch, n_budgets, gamma: used in place of the authors' choice where given.
        """
        T = checks.integer("horizon", horizon, 1)
        H = checks.integer("epoch", ceil(sqrt(T)) if epoch is None else epoch, 1)
        J = checks.integer("n_budgets", (ceil(log2(T)) + 2 if T > 1 else 2) if n_budgets is None else n_budgets, 2)
        rate = min(1.0, sqrt(J * log(J) / ((e - 1) * ceil(T / H)))) if gamma is None else gamma
        return cls(epoch=H, n_budgets=J, gamma=rate, width=width)

    @property
    def n_counters(self) -> int:
        return layout.LOG_WEIGHTS + self.n_budgets

    def write(self, spec: Integers, tuning: Floats) -> None:
        super().write(spec, tuning)
        tuning[layout.WIDTH], tuning[layout.EPOCH], tuning[layout.GAMMA] = self.width, min(self.epoch, layout.NEVER), self.gamma

    def check_counters(self, extra: Floats) -> None:
        size, total, lowest, highest, choice, share = extra[layout.EPOCH_SIZE : layout.LOG_WEIGHTS].tolist()
        begun, slack = extra[layout.LEARNED] > 0, 1e-6 * size * max(abs(lowest), abs(highest))
        in_range = abs(total - (lowest + highest) / 2 * size) <= (highest - lowest) / 2 * size + slack
        rules = [
            (0 <= choice < self.n_budgets and choice == int(choice), f"name one of {self.n_budgets} budgets", choice),
            (0 <= size <= extra[layout.LEARNED], "count the rounds of an epoch", size),
            (-limits.LARGEST <= lowest <= highest <= limits.LARGEST, "have a range of rewards", (lowest, highest)),
            (in_range, "have a sum of rewards in its range", total),
            (limits.LEAST <= share <= 1 + 1e-9 or not begun, "have the probability of its budget", share),
            (extra[layout.LOG_WEIGHTS :].max() <= 1.0 / limits.LEAST, "have the logarithms of weights", extra[layout.LOG_WEIGHTS :]),
        ]
        for kept, rule, received in rules:
            if not kept:
                checks.refuse("state.extra", rule, checks.shown(received))


@dataclass(frozen=True, kw_only=True, repr=False)
class Oracle(Rule):
    """Knows θ and takes the prediction for the context: the action with the largest ⟨θ_a, x̃⟩. Nothing is learned.

    Args:
        theta: the parameters, (K, d). None: those of the environment, in simulations only.
    """

    code = layout.ORACLE
    theta: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.theta is not None:
            self._set("theta", tuple(map(tuple, checks.floats("theta", self.theta, (None, None)).tolist())))

    @property
    def needs_environment(self) -> bool:
        return self.theta is None


@dataclass(frozen=True, kw_only=True, repr=False)
class BayesOracle(Rule):
    """Knows θ and the distribution of the context: the action with the largest ⟨θ_a, E[x | x̃]⟩. In simulations only."""

    code = layout.BAYES_ORACLE

    @property
    def needs_environment(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True, repr=False)
class Uniform(Rule):
    """All allowed actions equally likely. Nothing is learned."""

    code = layout.UNIFORM
