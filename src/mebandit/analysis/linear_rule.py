"""Greedy rules that are linear in the predicted context: with a given θ, or one that is learned from the first part of the log."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.analysis.logged_context import CONTEXTS, Frame, Probabilities, Seen
from mebandit.estimation.best_linear import Calibration, calibration
from mebandit.estimation.estimators import METHODS, Estimate
from mebandit.estimation.moments import pack
from mebandit.values import Booleans, Floats


@dataclass(frozen=True, eq=False)
class LinearRule:
    """Greedy in ⟨θ_a, x̃⟩ (or in ⟨θ_a, x̂⟩, x̂ the best linear predictor of x from x̃), every allowed action at the floor at least.

    Among n allowed actions the best one has probability 1 - (n - 1) floor, the others the floor; equal scores share. This is what
    `mebandit.greedy`, `meb` and `meb_dr` do once they have learned θ. Where an error model has a map that unbiases predictions, the rule
    reads unbiased ones, as θ was fitted to them.
    """

    theta: ArrayLike | Estimate
    """(K, d); or an estimate, which brings its intercepts along"""
    floor: float = 0.0
    intercept: ArrayLike | None = None
    """(K,); None is zero, or the estimate's"""
    context: str = "predicted"
    """what it reads: "predicted", x̃; "blp", x̂ = μ + Sx (Sx + Σe)^-1 (x̃ - μ)"""
    error_cov: ArrayLike | None = None
    """Σe for "blp"; None: what is known of the log's"""
    mean: ArrayLike | None = None
    """μ for "blp", (d,); None: the mean of x̃ in the log"""
    context_cov: ArrayLike | None = None
    """Sx for "blp", (d, d); None: cov(x̃) - Σe in the log"""
    fitted_to: int = 0
    """rounds of the log that θ was estimated from, where that is known: if they are those that it is valued on, they flatter it"""

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
        """π_e for what is read, x̃ or x̂, (n, d) -> (n, K)."""
        scores = np.einsum("td,kd->tk", x, np.asarray(self.theta, dtype=float)) + np.asarray(self.intercept)
        found = np.empty(scores.shape)
        kernels.greedy_probabilities(scores, np.array(allowed, order="C"), self.floor, found)
        return found

    def prepared(self, frame: Frame) -> Probabilities:
        """The rule, prepared for the rounds of a log."""
        d = frame.mean.size
        checks.shaped("theta of the rule", self.theta, (frame.n_actions, d))
        if self.context == "predicted":
            return lambda seen: self.probabilities(seen.unbiased, seen.allowed)
        own = None if self.error_cov is None else checks.covariance("error_cov of the rule", self.error_cov, d)
        if own is None and frame.error is None:
            remedy = "Give error_cov, to the rule or with the log; or take context='predicted'."
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
    """A linear rule whose θ is estimated from the first part of the log; its value is then taken from the rest.

    The rounds that chose θ look better under it than new rounds will: their noise is what it was fitted to. So the log is split by time,
    and everything is valued on the later part, on which θ does not depend. (A split at random would let θ depend on later rounds, and with
    them on what the logged policy, which learns, did with the rounds that are valued.) Where users differ beyond their contexts, both parts
    hold the same users: the value is then one for these, and flatters the rule a little for others.
    """

    method: str = "dr"
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
        """The rule that was learned, with what x̂ was computed with."""
        learned = LinearRule(theta, floor=self.floor, intercept=intercept, context=self.context)
        if self.context == "predicted":
            return learned
        return replace(learned, mean=prepared.mean, context_cov=prepared.context_cov * np.outer(prepared.scale, prepared.scale))
