"""Greedy rules that are linear in the predicted context: with a given θ, or with one that is estimated from the first part of the log."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.analysis.logged_context import CONTEXTS, Frame, Probabilities, Seen
from mebandit.estimation.best_linear import Calibration, calibration
from mebandit.estimation.methods import METHODS, Method
from mebandit.estimation.moments import pack
from mebandit.estimation.result import Estimate
from mebandit.values import Booleans, Floats


@dataclass(frozen=True, eq=False)
class LinearRule:
    """A greedy rule: the action with the largest ⟨θ_a, x̃⟩, or ⟨θ_a, x̂⟩ with x̂ the best linear predictor of x, and an exploration floor.

    Of n allowed actions the best one has the probability 1 - (n - 1) floor and every other the floor; actions with equal scores share. This
    is what `mebandit.greedy`, `meb` and `meb_dr` do once they have learned θ. If an error model corrects the bias of predictions, the rule
    reads the corrected ones, because θ was fitted to them.

    Args:
        theta: θ, (K, d); or an `Estimate`, from which intercepts are taken too.
        floor: Smallest probability of an allowed action, at most 1/K (default 0).
        intercept: (K,) (default: 0, or the estimate's).
        context: What the rule reads: "predicted" (default), x̃; or "blp", x̂ = μ + Sx (Sx + Σe)^-1 (x̃ - μ).
        error_cov: Σe for "blp" (default: that of the log).
        mean: μ for "blp", (d,) (default: the mean of x̃ in the log).
        context_cov: Sx for "blp", (d, d), given together with `mean` (default: cov(x̃) - Σe in the log).
        fitted_to: Number of rounds from which θ was estimated, if known (default 0). If the value is estimated from the same number, a
            warning says that these may be the same rounds, from which the value is biased upwards.
    """

    theta: ArrayLike | Estimate
    floor: float = 0.0
    intercept: ArrayLike | None = None
    context: str = "predicted"
    error_cov: ArrayLike | None = None
    mean: ArrayLike | None = None
    context_cov: ArrayLike | None = None
    fitted_to: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.theta, Estimate):
            found = self.theta
            object.__setattr__(self, "theta", found.theta)
            object.__setattr__(self, "intercept", found.intercept if self.intercept is None else self.intercept)
            object.__setattr__(self, "fitted_to", self.fitted_to or int(found.diagnostics["rounds"].sum()))
        checks.integer("fitted_to", self.fitted_to, 0)
        theta = checks.floats("theta", self.theta, (None, None))
        k = len(theta)
        highest = 1.0 / max(k, 1)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "floor", checks.number("floor", self.floor, f"be in [0, 1/K] = [0, {highest:g}]", 0.0, highest))
        intercept = np.zeros(k) if self.intercept is None else checks.floats("intercept", self.intercept, (k,))
        object.__setattr__(self, "intercept", intercept)
        checks.one_of("context", self.context, CONTEXTS)
        if (self.mean is None) != (self.context_cov is None):
            checks.refuse("mean and context_cov", "be given together", "one of them")

    def probabilities(self, x: Floats, allowed: Booleans) -> Floats:
        """The probabilities of the actions, (n, K).

        Args:
            x: The contexts of n rounds, x̃ or x̂, whichever the rule reads, (n, d).
            allowed: Which actions may be taken in each round, (n, K). The others get probability 0.
        """
        scores = np.einsum("td,kd->tk", x, np.asarray(self.theta, dtype=float)) + np.asarray(self.intercept)
        found = np.empty(scores.shape)
        kernels.greedy_probabilities(scores, np.array(allowed, order="C"), self.floor, found)
        return found

    def prepared(self, frame: Frame) -> Probabilities:
        """The rule, prepared for the rounds of a log.

        Args:
            frame: What the whole log says: K, the error of the predictions, and the mean (d,) and covariance (d, d) of x̃.
        """
        d = frame.mean.size
        checks.shaped("theta of the rule", self.theta, (frame.n_actions, d))
        if self.context == "predicted":
            return lambda seen: self.probabilities(seen.unbiased, seen.allowed)
        own = None if self.error_cov is None else checks.covariance("error_cov of the rule", self.error_cov, d)
        if own is None and frame.error is None:
            remedy = "Give error_cov, to the rule or with the log; or `context='predicted'`."
            checks.refuse("the error covariance", "be known to a rule that reads the best linear predictor", "nothing", remedy)
        calibrated = self._calibration(frame, own)

        def read(seen: Seen) -> Floats:
            x_hat = calibrated.apply(np.ascontiguousarray(seen.unbiased.T), seen.errors if own is None else pack(own)[None]).T
            return self.probabilities(x_hat, seen.allowed)

        return read

    def _calibration(self, frame: Frame, own: Floats | None) -> Calibration:
        """What x̂ is computed with: μ and Sx as given, or the log's."""
        error = own if own is not None or frame.error is None else frame.error.mean_cov
        assert error is not None
        if self.mean is None:
            return calibration(frame.mean, frame.cov, error)
        mean = checks.floats("mean", self.mean, frame.mean.shape)
        return calibration(mean, checks.covariance("context_cov", self.context_cov, mean.size) + error, error)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A linear rule whose θ is estimated from the first part of the log; its value is then estimated from the rest.

    From the rounds to which θ was fitted, the value would be biased upwards: θ is also fitted to their noise. So the log is split by time,
    and all values are estimated from the later part, on which θ does not depend. A random split would not do: the logged policy learns, so
    later rounds depend on earlier ones. If users differ beyond their contexts and both parts hold the same users, the value is one for
    these users, and slightly too high for others.

    Args:
        method: The estimator of θ: "ridge", "naive", "meb", "dr" (default) or "rc".
        context: What the rule reads: "blp" (default), the best linear predictor of x, or "predicted", x̃.
        floor: Smallest probability of an allowed action (default 0).
        ridge: As in `fit` (default 0).
        intercept: Fit an intercept for every action (default False).
    """

    method: Method = "dr"
    context: str = "blp"
    floor: float = 0.0
    ridge: float = 0.0
    intercept: bool = False

    def __post_init__(self) -> None:
        checks.one_of("method", self.method, METHODS)
        checks.one_of("context", self.context, CONTEXTS)
        checks.number("floor", self.floor, "be a probability", 0.0, 1.0)
        checks.number("ridge", self.ridge, "be a number of at least 0", 0.0)
        checks.truth("intercept", self.intercept)

    def rule(self, theta: Floats, intercept: Floats, prepared: Calibration) -> LinearRule:
        """The rule with the estimated θ, and with the μ and Sx of the first part.

        Args:
            theta: The estimated θ, (K, d).
            intercept: The estimated intercepts, (K,); 0 if none were fitted.
            prepared: μ and Sx of the first part of the log. A rule that reads x̃ does not use them.
        """
        learned = LinearRule(theta, floor=self.floor, intercept=intercept, context=self.context)
        if self.context == "predicted":
            return learned
        return replace(learned, mean=prepared.mean, context_cov=prepared.context_cov * np.outer(prepared.scale, prepared.scale))
