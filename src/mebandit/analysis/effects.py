"""Effects of an action against another, as a paper reports them: the average effect, and what a feature changes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.estimation.result import Estimate, WaldTest, checked_level, joint_test, scalar_interval
from mebandit.estimation.simultaneous import common_level
from mebandit.values import Booleans, Floats

AVERAGE, INTERCEPT = "average", "intercept"
"""names of effects beside those of features: at the mean context, and at x = 0"""
MOST_TOGETHER = 50
"""actions that are tested together, whose weights are a table of K p columns"""
LARGEST_RATIO = 1e100
"""of two variances, whose square is still a number"""


class Effect(NamedTuple):
    """A linear combination of the coefficients of an analysis, with its standard error."""

    name: str
    """"average", "intercept" or a feature"""
    value: float
    std_error: float
    df: float = np.inf
    """degrees of freedom of the standard error; infinite for the normal approximation"""
    size: float = np.inf
    """the number of rounds, or of clusters, of the log"""

    def interval(self, level: float = 0.95, *, anytime: bool = False) -> tuple[float, float]:
        """A confidence interval by Student's t.

        Args:
            level: Confidence level, between 0 and 1 (default 0.95).
            anytime: Whether it holds at every look at a growing log, as in `Estimate.interval` (default False).
        """
        return scalar_interval(self, level, anytime=anytime)

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"value": self.value, "std_error": self.std_error, "df": self.df, "interval": list(self.interval(level))}


@dataclass(frozen=True)
class Effects:
    """Several effects from the same log, with their joint covariance."""

    effects: tuple[Effect, ...]
    """each by itself"""
    covariance: Floats
    """of their values, (m, m)"""

    def interval(self, level: float = 0.95, *, anytime: bool = False, simultaneous: bool = True) -> Floats:
        """Confidence intervals by Student's t, which hold together.

        Args:
            level: Confidence level, between 0 and 1 (default 0.95).
            anytime: Whether they hold at every look at a growing log, as in `Estimate.interval` (default False).
            simultaneous: Whether all of them hold together with probability `level` (default True: max-t intervals from the joint
                covariance), or each by itself.

        Returns:
            Lower and upper ends, (m, 2).
        """
        own = common_level(checked_level(level), self.covariance) if simultaneous else level
        return np.array([effect.interval(own, anytime=anytime) for effect in self.effects])

    def wald(self) -> WaldTest:
        """The joint test that all of them are 0, as in `Estimate.wald`."""
        return joint_test(np.array([effect.value for effect in self.effects]), self.covariance, min(e.df for e in self.effects))


def average_effects(found: Estimate, sides: Floats, mean: Floats, mean_cov: Floats) -> Effects:
    """Differences between actions at the mean context, which for a linear model are the average effects over the contexts:

        l'β with the coefficients β and l = (1, m);   covariance  l_i'Cov(β)l_j + Δ_i'Cov(m)Δ_j,   Δ = θ_a - θ_b.

    Args:
        found: The estimate.
        sides: The weight of each action in each difference: 1 for a, -1 for b, (differences, K).
        mean: m, the mean context of the log, (d,).
        mean_cov: Its covariance, (d, d).
    """
    k, d = found.theta.shape
    weights = np.r_[np.ones(len(found.covariance) // k - d), mean]
    L: Floats = np.asarray(np.kron(sides, weights), dtype=np.float64)
    Δ = sides @ found.theta
    coefficients = np.column_stack([found.intercept, found.theta]) if found.has_intercept else found.theta
    own, added = L @ found.covariance @ L.T, Δ @ mean_cov @ Δ.T
    effects = []
    for value, known, more, df in zip(L @ coefficients.ravel(), np.diag(own), np.diag(added), found.degrees_of_freedom(L), strict=True):
        # the mean context counts as known exactly
        df *= (1 + min(more / known, LARGEST_RATIO)) ** 2 if known > 0 else 1.0
        std_error = float(np.sqrt(known + more)) if not known + more < 0 else 0.0
        effects.append(Effect(AVERAGE, float(value), std_error, float(df), found.size))
    return Effects(tuple(effects), own + added)


def average_effect(found: Estimate, a: int, b: int | None, mean: Floats, mean_cov: Floats) -> Effect:
    """The effect of action a against b at the mean context, see `average_effects`.

    Args:
        found: The estimate.
        a: The action.
        b: The action to compare it with; None: the mean reward under action a itself.
        mean: The mean context of the log, (d,).
        mean_cov: Its covariance, (d, d).
    """
    one = np.eye(len(found.theta))
    return average_effects(found, (one[a] - (0.0 if b is None else one[b]))[None], mean, mean_cov).effects[0]


class JointTest(NamedTuple):
    """A joint test of several coefficients, in words."""

    hypothesis: str
    """what is tested"""
    test: WaldTest | None
    """the test; None: the data do not allow it"""

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"hypothesis": self.hypothesis} | (self.test or WaldTest(np.nan, 0, np.nan, np.nan))._asdict()


def joint_tests(found: Estimate, named: Mapping[tuple[int, int], str], varies: Booleans) -> list[JointTest]:
    """For each pair of actions: that they differ in no coefficient, and that no feature moderates the difference; then, of more than two
    actions, that none differs from the first.

    Args:
        found: The estimate.
        named: Pairs of actions, with their names.
        varies: Which features vary, (d,).
    """
    k, d = found.theta.shape
    one, size = np.eye(k), len(found.covariance) // k
    moderators = np.eye(size)[size - d :][varies]
    tests = {}
    for (a, b), name in named.items():
        tests[f"{name}: no difference"] = np.kron(one[a] - one[b], np.eye(size))
        if 0 < len(moderators) < size:
            tests[f"{name}: no moderation"] = np.kron(one[a] - one[b], moderators)
    if 2 < k <= MOST_TOGETHER:
        tests["no difference between any two actions"] = np.kron(one[1:] - one[0], np.eye(size))
    return [JointTest(name, _tested(found, L)) for name, L in tests.items()]


def _tested(found: Estimate, weights: Floats) -> WaldTest | None:
    """The test, or None where the data do not allow it."""
    try:
        return found.wald(weights)
    except (checks.InvalidInput, np.linalg.LinAlgError):
        return None


def effects_of(found: Estimate, a: int, b: int, features: tuple[str, ...], average: Effect) -> list[Effect]:
    """The average effect of action a against b, and what each feature changes of it.

    Args:
        found: The estimate.
        a: The action.
        b: The action to compare it with.
        features: The names of the features.
        average: The average effect.
    """
    contrast = found.contrast(a, b)
    by_feature = zip(features, contrast.theta, contrast.std_error, np.broadcast_to(contrast.df, contrast.theta.shape), strict=True)
    return [average, *(Effect(name, float(value), float(error), float(df), found.size) for name, value, error, df in by_feature)]
