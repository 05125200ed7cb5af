"""Effects of an action against another, as a paper reports them: the average effect, and what a feature changes of it."""

from typing import Any, NamedTuple

import numpy as np

from mebandit.estimation.result import Estimate, t_interval
from mebandit.values import Floats

AVERAGE, INTERCEPT = "average", "intercept"
"""names of effects beside those of features: at the mean context, and at x = 0"""
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

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval by Student's t."""
        low, high = t_interval(np.asarray(self.value), np.asarray(self.std_error), self.df, level)
        return float(low), float(high)

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"value": self.value, "std_error": self.std_error, "df": self.df, "interval": list(self.interval(level))}


def average_effect(found: Estimate, a: int, b: int | None, mean: Floats, mean_cov: Floats) -> Effect:
    """The effect of action a against b at the mean context, which for a linear model is the average effect over the contexts:

        l'β with the coefficients β and l = (1, m);   variance  l'Cov(β)l + Δ'Cov(m)Δ,   Δ = θ_a - θ_b.

    Args:
        found: The estimate.
        a: The action.
        b: The action to compare it with; None: the mean reward under action a itself.
        mean: m, the mean context of the log, (d,).
        mean_cov: Its covariance, (d, d).
    """
    k, d = found.theta.shape
    weights = np.r_[np.ones(len(found.covariance) // k - d), mean]
    side = np.eye(k)[a] - (0.0 if b is None else np.eye(k)[b])
    whole, slopes = np.kron(side, weights), side @ found.theta
    coefficients = np.column_stack([found.intercept, found.theta]) if found.has_intercept else found.theta
    own, added = float(whole @ found.covariance @ whole), float(slopes @ mean_cov @ slopes)
    df = float(found.degrees_of_freedom(whole[None])[0])
    df *= (1 + min(added / own, LARGEST_RATIO)) ** 2 if own > 0 else 1.0  # the mean context counts as known exactly
    std_error = float(np.sqrt(own + added)) if not own + added < 0 else 0.0
    return Effect(AVERAGE, float(whole @ coefficients.ravel()), std_error, df)


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
    return [average, *(Effect(name, float(value), float(error), float(df)) for name, value, error, df in by_feature)]
