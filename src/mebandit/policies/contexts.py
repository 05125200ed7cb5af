"""The context that a decision reads in place of the prediction x̃: its best linear predictor x̂ of the true context x."""

from dataclasses import dataclass

from mebandit import checks
from mebandit.kernels import layout
from mebandit.policies.component import Component
from mebandit.values import Floats, Integers

MEANS = {"running": layout.BLP, "forgetting": layout.EW_BLP, "auto": layout.CHOSEN_BLP}
WEIGHTS = ("unit", "precision")


@dataclass(frozen=True, kw_only=True, repr=False)
class BestLinear(Component):
    """Decide on the best linear predictor of x from x̃, which shrinks every prediction by its own unreliability.

        x̂_t = x̃_t - Σe,t (Sx + Σe,t)⁻¹ (x̃_t - μ_t)

    Sx, the covariance of x, and the mean μ_t are learned from the predictions and their error covariances. An estimator without this
    option set decides on x̃ itself.

    Args:
        mean: which mean μ_t of x̃ is used. "running": the mean of all predictions so far. "forgetting": an exponentially weighted mean, for
            contexts that drift. "auto": whichever of the two predicts x̃ better.
        memory: rounds over which the exponentially weighted mean averages, at least 2.
        curved: whether x̂ is curved where coordinates of x̃ are skewed. The rewards decide how much of the curve is used.
        weights: how rounds of different error covariance count in the estimate. "unit": alike. "precision": by the reliability of x̃.
    """

    mean: str = "running"
    memory: float = 20.0
    curved: bool = False
    weights: str = "unit"

    def __post_init__(self) -> None:
        checks.one_of("mean", self.mean, MEANS)
        checks.one_of("weights", self.weights, WEIGHTS)
        self._set("memory", checks.number("memory", self.memory, "be a number of at least 2", 2.0))
        self._set("curved", checks.truth("curved", self.curved))

    def write(self, spec: Integers, tuning: Floats) -> None:
        spec[layout.ACTS_ON] = MEANS[self.mean]
        spec[layout.PRECISION] = self.weights == "precision"
        spec[layout.CURVED] = self.curved
        tuning[layout.MEMORY] = self.memory
