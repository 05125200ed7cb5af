"""Effects of an action against another, as a paper reports them: the average effect, and what a feature changes of it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mebandit import checks, kernels
from mebandit.values import Floats

if TYPE_CHECKING:
    from mebandit.estimation.result import Estimate

AVERAGE, INTERCEPT = "average", "intercept"
"""names of effects beside those of features: at the mean context, and at x = 0"""


class Effect(NamedTuple):
    """A linear combination of the coefficients of an analysis, with its standard error."""

    name: str
    """"average", "intercept" or a feature"""
    value: float
    std_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A normal confidence interval."""
        level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
        half = float(kernels.normal_quantile(0.5 + level / 2)) * self.std_error
        return self.value - half, self.value + half

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"value": self.value, "std_error": self.std_error, "interval": list(self.interval(level))}


def average_effect(found: "Estimate", a: int, b: int | None, mean: Floats, mean_cov: Floats) -> Effect:
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
    variance = float(whole @ found.covariance @ whole + slopes @ mean_cov @ slopes)
    return Effect(AVERAGE, float(whole @ coefficients.ravel()), float(np.sqrt(variance)) if not variance < 0 else 0.0)


def effects_of(found: "Estimate", a: int, b: int, features: tuple[str, ...], average: Effect) -> list[Effect]:
    """The average effect of action a against b, and what each feature changes of it.

    Args:
        found: The estimate.
        a: The action.
        b: The action to compare it with.
        features: The names of the features.
        average: The average effect.
    """
    contrast = found.contrast(a, b)
    by_feature = zip(features, contrast.theta, contrast.std_error, strict=True)
    return [average, *(Effect(name, float(value), float(error)) for name, value, error in by_feature)]
