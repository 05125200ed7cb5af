"""Estimators of a policy: how running sums become the parameters θ_a of each action.

With a weight w_t for every round, the estimators without pseudo-outcomes solve

    (Σ w x̃x̃' + ridge I - C) θ_a = Σ w x̃ r

and differ in w and in the error covariance C that is taken out. `mebandit.estimation.methods` has the same methods for stored logs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mebandit import checks
from mebandit.estimation.methods import GUARDS
from mebandit.kernels import layout
from mebandit.policies.component import Component
from mebandit.policies.contexts import BestLinear
from mebandit.values import Floats, Integers

Stabilizer = Sequence[float] | Callable[[int], Sequence[float]] | None
"""π^nd, the stabilizing policy: K probabilities, a function of the round that gives them, or None for 1/K each"""


class Estimator(Component):
    """The base of all estimators, with what those have that lack an option."""

    method: ClassVar[str]
    """its name in `mebandit.estimate`"""
    weighting: ClassVar[int] = layout.UNIT
    correction: ClassVar[int] = layout.NO_CORRECTION
    n_fits: ClassVar[int] = 1
    """fits that are kept for each action"""
    reported: ClassVar[int] = 0
    """which of these fits is reported as θ"""
    leading: ClassVar[int] = 0
    """how many features of ones it puts before those of the policy, for its own use"""
    divides: ClassVar[bool] = False
    """whether it divides by the probability of the action, so that the floor must be above 0"""
    ridge: float
    guard = "auto"
    correct_from = 1
    stabilizer: Stabilizer = None
    context: BestLinear | None = None

    def __post_init__(self) -> None:
        self._set("ridge", checks.number("ridge", self.ridge, "be a number of at least 0", 0.0))

    def write(self, spec: Integers, tuning: Floats) -> None:
        spec[layout.WEIGHTING], spec[layout.CORRECTION], spec[layout.GUARD] = self.weighting, self.correction, GUARDS[self.guard]
        tuning[layout.RIDGE] = self.ridge
        if self.context is not None:
            self.context.write(spec, tuning)

    def stabilizer_at(self, time: int, n_actions: int) -> Floats:
        """π^nd in a round, (K,)."""
        if self.stabilizer is None:
            return np.full(n_actions, 1 / n_actions)
        given = self.stabilizer(time) if callable(self.stabilizer) else self.stabilizer
        return checks.stabilizer(checks.floats("stabilizer", given, (n_actions,)))


@dataclass(frozen=True, kw_only=True, repr=False)
class LeastSquares(Estimator):
    """Least squares of the reward on x̃ as if it were the context: w = 1{a_t = a}, C = 0. Attenuated towards zero where x̃ has an error.

    Args:
        ridge: added to the diagonal when θ is solved for, at least 0, in the units of Σ x̃x̃'.
    """

    method = "ridge"
    ridge: float = 1.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Corrected(Estimator):
    """The base of the estimators that take the error covariance out and keep one fit for each action.

    Args:
        ridge: added to the diagonal when θ is solved for, at least 0, in the units of Σ x̃x̃'.
        guard: when a stabilised (Fuller-type) estimate replaces the formula. "auto": where the corrected matrix is not safely positive
            definite. "always". "never".
        correct_from: the first round after which the error covariance is taken out; before, the fit is uncorrected.
        context: what the decision reads. None: x̃ itself. BestLinear(...): its best linear predictor of the context.
    """

    ridge: float = 1.0
    guard: str = "auto"
    correct_from: int = 1
    context: BestLinear | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("guard", self.guard, GUARDS)
        self._set("correct_from", checks.integer("correct_from", self.correct_from, 1))
        if not (self.context is None or isinstance(self.context, BestLinear)):
            checks.refuse("context", "be BestLinear(...) or None", checks.shown(self.context))


@dataclass(frozen=True, kw_only=True, repr=False)
class Naive(Corrected):
    """The textbook correction (eq. naive-estimator): w = 1{a_t = a}, C = Σ 1{a_t = a} Σe,t. Biased, since the policy reads x̃.

    Args:
        ridge, guard, correct_from, context: as in `Corrected`.
    """

    method = "naive"
    correction = layout.PLAYED


@dataclass(frozen=True, kw_only=True, repr=False)
class MEB(Corrected):
    """The paper's estimator (eq. proposed-estimator): w = 1{a_t = a} π^nd(a)/π_t(a), C = Σ_t π^nd_t(a) Σe,t. Consistent under any policy.

    Args:
        ridge, guard, correct_from, context: as in `Corrected`.
        stabilizer: π^nd, a policy that does not depend on x̃: K probabilities above 0, a schedule t -> (K,), or None for 1/K each.
    """

    method = "meb"
    weighting = layout.INVERSE
    correction = layout.OFFERED
    divides = True
    stabilizer: Stabilizer = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stabilizer is not None and not callable(self.stabilizer):
            self._set("stabilizer", tuple(checks.stabilizer(checks.floats("stabilizer", self.stabilizer, (None,))).tolist()))


CALIBRATED = BestLinear(mean="auto", curved=True, weights="precision")


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibrated(Estimator):
    """Two fits for each action: a regression on a calibrated context, which decides, and a doubly robust one, which is reported as θ.

        b_a  = (Σ_a w zz' + κ₀ uu' + κ D)⁻¹ (Σ_a w z r + κ₀ r̄ u),              z = (1, m + A_t (x̃ - m)), u = (1, m)
        θ_a  = (Σ w (x̃x̃' - Σe,t) + ridge I)⁻¹ Σ w x̃ y_a,                       y_a = ⟨b_a, z⟩ + 1{a_t = a} (r - ⟨b_a, z⟩) / π_t(a)

    A_t = V (V + Σe,t - Σ̄e)⁻¹ calibrates x̃ relative to the mean error Σ̄e; V and m are covariance and mean of x̃. Where Σe does not change
    it is the identity, and the regression is least squares with an intercept, which neither a wrong Σe nor an error of another kind can
    mislead. Intercepts are drawn to the mean r̄ of all rewards, slopes to 0, as firmly as the rewards say (κ), in units of D = diag(V):
    neither units nor the zero of a feature matter. w is the precision of a round: a larger error leaves more of the reward unexplained.
    The doubly robust fit is unbiased whatever the first is, and varies more. The formulas are in `kernels.prior` and `kernels.calibrate`.

    Args:
        ridge: added to the diagonal when the reported θ is solved for, at least 0, in the units of Σ x̃x̃'. Decisions do not depend on it.
        guard: when a stabilised (Fuller-type) estimate replaces the doubly robust formula: "auto", "always" or "never", see `Corrected`.
        context: how departures of E[x | x̃] from one linear function of x̃ are followed: a mean that moves, and curves.
    """

    method = "dr"
    weighting = layout.PSEUDO
    correction = layout.PLAYED
    n_fits = 2
    reported = 1
    divides = True
    leading = 1
    ridge: float = 1e-6
    guard: str = "auto"
    context: BestLinear = CALIBRATED

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("guard", self.guard, GUARDS)
        if not isinstance(self.context, BestLinear):
            checks.refuse("context", "be BestLinear(...)", checks.shown(self.context))
