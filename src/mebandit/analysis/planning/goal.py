"""What a trial is for, and how many rounds that takes for a given accuracy."""

from dataclasses import dataclass, replace
from typing import TypedDict

from mebandit import checks
from mebandit.analysis.effects import AVERAGE
from mebandit.analysis.planning.accuracy import Accuracy
from mebandit.kernels import limits
from mebandit.values import Floats


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a trial is for: an interval of a wanted half-width, or a test of wanted power."""

    coefficient: int
    treatment: int
    control: int | None
    """the coefficient of θ_treatment - θ_control; None: of θ_treatment"""
    feature: str
    """what the coefficient is of, where that has a name"""
    half_width: float | None
    effect: float
    """δ, the true value of the coefficient; a test with power asks whether it is 0"""
    power: float
    level: float
    labels: tuple[str, ...] = ()
    """of the actions, if they have any"""
    assurance: float | None = None
    """the wanted probability that the trial's own interval has the half-width at most; None: it has it on average"""

    @property
    def alpha(self) -> float:
        """The level of the test, 1 less that of the interval."""
        return 1.0 - self.level

    @property
    def tests(self) -> bool:
        return self.half_width is None

    @property
    def target(self) -> float:
        return self.power if self.half_width is None else self.half_width

    @property
    def name(self) -> str:
        of = "the average effect" if self.feature == AVERAGE else self.feature or self.coefficient
        if self.labels or self.feature == AVERAGE:
            sides = [str(self.labels[a] if self.labels else a) for a in (self.treatment, self.control) if a is not None]
            return f"{of} ({' - '.join(sides)})"
        return f"θ_{self.treatment}[{of}]" + ("" if self.control is None else f" - θ_{self.control}[{of}]")

    def part(self, V: Floats) -> float:
        """The variance of this coefficient in a (K, d, K, d) variance."""
        a, b, j = self.treatment, self.control, self.coefficient
        return float(V[a, j, a, j] if b is None else V[a, j, a, j] + V[b, j, b, j] - V[a, j, b, j] - V[b, j, a, j])

    def rounds(self, accuracy: Accuracy, target: float | None = None) -> int:
        """The smallest n at which the half-width is at most the target, or the power at least; 0 if there is none."""
        aim = self.target if target is None else target
        few, enough = 0, 1
        if not self._reaches(replace(accuracy, variance=0.0), 1e300, aim):
            return 0
        while not self._reaches(accuracy, enough, aim):
            few, enough = enough, 2 * enough
            if enough > limits.LARGEST:
                received = f"{enough:g} or more, for a variance of {accuracy.variance:g} a round"
                checks.refuse("the trial", f"need at most {limits.LARGEST:g} rounds", received)
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if self._reaches(accuracy, middle, aim) else (middle, enough)
        return enough

    def _reaches(self, accuracy: Accuracy, n: float, aim: float) -> bool:
        found = self.reached(accuracy, n)
        return found >= aim * (1 - 1e-12) if self.tests else found <= aim * (1 + 1e-12)

    def reached(self, accuracy: Accuracy, n: float) -> float:
        """The half-width, or the power, that n rounds give; with an assurance the half-width that is kept with that probability."""
        if self.tests:
            return accuracy.power(n, self.effect, self.level)
        if self.assurance is None:
            return accuracy.half_width(n, self.level)
        return accuracy.half_width_with(self.assurance, n, self.level)


def design_effect(rounds_per_user: float, correlation: float) -> float:
    """1 + (m - 1) ρ: by how much the variance grows if the m rounds of a user have scores with intraclass correlation ρ."""
    m = checks.number("rounds_per_user", rounds_per_user, "be a number of at least 1", 1.0)
    rho = checks.number("correlation", correlation, "be an intraclass correlation from 0 to 1", 0.0, 1.0)
    if rho > 0 and m == 1:
        checks.refuse("correlation", "go with rounds_per_user above 1", f"{rho:g} with one round per user")
    return 1.0 + (m - 1.0) * rho


class GoalOptions(TypedDict, total=False):
    """The keywords of `plan` that say what the trial is for."""

    half_width: float | None
    """wanted half-width of the interval; None (default): a test of wanted power"""
    assurance: float | None
    """with a half-width: the wanted probability that the trial's own interval, whose width is not known in advance, has it at most; None
    (default): it has it on average"""
    power: float
    """wanted power of the two-sided test that the coefficient is 0 (default 0.8)"""
    level: float
    """confidence level of the interval; the test has the level 1 - this (default 0.95)"""
    effect: float | None
    """true value of the coefficient; None (default): that of `theta`, or the pilot's estimate"""
    coefficient: int | str
    """the feature, by number from 0 (default 0), or by its name in the pilot; of a pilot also "average", the effect at the mean context,
    and "intercept", that at x = 0"""
    treatment: int | str
    """the action, by number (default 1), or by its label in the pilot"""
    control: int | str | None
    """the action to compare it with (default 0), likewise; None: the coefficient of θ_treatment itself"""


def goal_of(
    *,
    half_width: float | None = None,
    assurance: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    effect: float | None = None,
    coefficient: int | str = 0,
    treatment: int = 1,
    control: int | None = 0,
) -> Goal:
    """What is asked for, as far as it can be checked without the world."""
    if half_width is not None:
        half_width = checks.number("half_width", half_width, "be a number above 0", 1e-300)
    elif effect is not None and checks.number("effect", effect) == 0:
        checks.refuse("effect", "differ from 0, to be detected", "0", "Ask for a half_width instead.")
    if assurance is not None:
        assurance = checks.number("assurance", assurance, "be between 0.5 and 0.999", 0.5, 0.999)
        if half_width is None:
            checks.refuse("assurance", "go with `half_width`", "it alone", "The chance that a test finds an effect is its `power`.")
    if control is not None and checks.integer("control", control, 0) == checks.integer("treatment", treatment, 0):
        checks.refuse("control", "differ from treatment", f"{control} for both", "For θ of the action itself: control=None.")
    return Goal(
        coefficient=0 if isinstance(coefficient, str) and coefficient else checks.integer("coefficient", coefficient, 0),
        feature=coefficient if isinstance(coefficient, str) else "",
        treatment=checks.integer("treatment", treatment, 0),
        control=control,
        half_width=half_width,
        assurance=assurance,
        effect=float("nan") if effect is None else checks.number("effect", effect),
        power=checks.number("power", power, "be between 0.05 and 0.9999", 0.05, 0.9999),
        level=checks.number("level", level, "be between 0.5 and 1, as 0.95 for 95 %", 0.5, 1 - 1e-9),
    )


def with_effect(goal: Goal, theta: Floats, given: float | None) -> Goal:
    """The goal with the effect that the world has."""
    own, j = theta[:, goal.coefficient], goal.coefficient
    effect = float(own[goal.treatment] - (0.0 if goal.control is None else own[goal.control]))
    if given is not None and abs(effect - given) > 1e-9 * max(1.0, abs(given)):
        checks.refuse("effect", f"be that of theta in coefficient {j}, {effect:g}", f"{given:g}", "Give one of the two.")
    if goal.tests and effect == 0:
        checks.refuse("theta", f"have {goal.name} other than 0, to be detected", "0", "Ask for a half_width instead.")
    return replace(goal, effect=effect)
