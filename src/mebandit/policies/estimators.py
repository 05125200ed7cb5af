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

    def _check_context(self, *, required: bool = False) -> None:
        if not isinstance(self.context, BestLinear) and (required or self.context is not None):
            rule = "be BestLinear(...), on which regression calibration regresses" if required else "be BestLinear(...) or None"
            checks.refuse("context", rule, checks.shown(self.context))


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
        self._check_context()


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


OURS = BestLinear(mean="auto", curved=True, weights="precision")
"""the context that the estimators with two fits read by default"""


class TwoFits(Estimator):
    """The base of the estimators that keep two fits for each action, regression calibration and a doubly robust one.

        θ^rc_a = (Σ_a x̂x̂' + ridge I + R)⁻¹ (Σ_a x̂ r + R θ^all),        R = d mean(Σe), θ^all the fit of all actions together
        θ^dr_a = (Σ (x̃x̃' - Σe,t) + ridge I)⁻¹ Σ x̃ y_a,               y_a = ⟨θ^rc_a, x̂⟩ + 1{a_t = a} (r - ⟨θ^rc_a, x̂⟩) / π_t(a)

    The first varies least and is biased where E[x | x̃] is not x̂. The second is unbiased whatever the first is, and varies more.
    """

    weighting = layout.PSEUDO
    correction = layout.PLAYED
    n_fits = 2
    reads: ClassVar[int]
    """which of the two decides, as the compiled code numbers it"""

    def write(self, spec: Integers, tuning: Floats) -> None:
        super().write(spec, tuning)
        spec[layout.READS] = self.reads


@dataclass(frozen=True, kw_only=True, repr=False)
class RegressionCalibration(TwoFits):
    """Regression calibration alone: least squares of the reward on x̂, drawn to the fit of all actions together; see `TwoFits`.

    Args:
        ridge: added to the diagonal when θ is solved for, at least 0, in the units of Σ x̂x̂'.
        context: how x̂ is made.
    """

    method = "rc"
    reads = layout.READS_CALIBRATED
    ridge: float = 0.1
    context: BestLinear = OURS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_context(required=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class DoublyRobust(TwoFits):
    """The doubly robust fit alone, which uses every round for every action; see `TwoFits`.

    Args:
        ridge: added to the diagonal when θ is solved for, at least 0, in the units of Σ x̃x̃'.
        guard: when a stabilised (Fuller-type) estimate replaces the formula: "auto", "always" or "never", see `Corrected`.
        context: how x̂ is made, which the decision and the inner regression read. None: both read x̃ itself.
    """

    method = "dr"
    reported = 1
    divides = True
    reads = layout.READS_ROBUST
    ridge: float = 0.1
    guard: str = "auto"
    context: BestLinear | None = OURS

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("guard", self.guard, GUARDS)
        self._check_context()


@dataclass(frozen=True, kw_only=True, repr=False)
class Switching(TwoFits):
    """Regression calibration, until the rewards have shown that the doubly robust fit earns more; see `TwoFits`.

    Wherever the two fits choose different actions, the difference of the two pseudo-outcomes is added up. Once it is 2.5 standard errors
    above 0, the doubly robust fit decides, acting on x̃. θ is reported from the doubly robust fit throughout.

    Args:
        ridge: added to the diagonal when θ is solved for, at least 0, in the units of Σ x̃x̃'.
        guard: when a stabilised (Fuller-type) estimate replaces the doubly robust formula: "auto", "always" or "never", see `Corrected`.
        context: how x̂ is made.
    """

    method = "auto"
    reported = 1
    divides = True
    reads = layout.READS_BETTER
    ridge: float = 0.1
    guard: str = "auto"
    context: BestLinear = OURS

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("guard", self.guard, GUARDS)
        self._check_context(required=True)
