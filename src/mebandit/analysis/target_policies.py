"""Policies whose value a log can tell: those that read what the logged policy read, and nothing more.

A log holds π(a | x̃), the probability of the action given the prediction. Weights that are ratios to it are right for a policy π_e(a | x̃),
because given x̃ the action was drawn without a look at x or the reward. A policy that reads x itself, or a better prediction of it than
x̃, would need the probabilities given that, and no log of this kind has them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.best_linear import Calibration, calibration
from mebandit.estimation.correction import Correction
from mebandit.estimation.estimators import METHODS, Estimate
from mebandit.estimation.moments import pack
from mebandit.values import Booleans, Floats

CONTEXTS = ("predicted", "blp")


class Seen(NamedTuple):
    """What a policy may read of some rounds."""

    predicted: Floats
    """x̃ as the log has it, (n, d)"""
    unbiased: Floats
    """x̃ without what an error model knows of its bias, (n, d)"""
    errors: Floats
    """Σe, packed, (n or 1, d (d + 1) / 2)"""
    allowed: Booleans
    """(n, K)"""
    start: int
    """rows of the log before these"""


Reader = Callable[[Seen], Floats]
"""a policy that is ready: its probabilities for some rounds, (n, K)"""


class Frame(NamedTuple):
    """What a log says that a policy may need."""

    n_actions: int
    error: Correction | None
    """None where it is not known"""
    mean: Floats
    """of x̃, unbiased, (d,)"""
    cov: Floats
    """of x̃, unbiased, (d, d)"""


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
        best = np.where(allowed, scores, -np.inf)
        best = best == best.max(axis=1, keepdims=True)
        return clipped(best / best.sum(axis=1, keepdims=True), allowed, self.floor)

    def reader(self, frame: Frame) -> Reader:
        """The rule, ready for rounds of a log."""
        d = frame.mean.size
        checks.shaped("theta of the rule", self.theta, (frame.n_actions, d))
        if self.context == "predicted":
            return lambda seen: self.probabilities(seen.unbiased, seen.allowed)
        own = None if self.error_cov is None else checks.covariance("error_cov of the rule", self.error_cov, d)
        if own is None and frame.error is None:
            remedy = "Give error_cov, to the rule or with the log; or take context='predicted'."
            checks.refuse("the error covariance", "be known to a rule that reads the best linear predictor", "nothing", remedy)
        prepared = self._calibration(frame, own)

        def read(seen: Seen) -> Floats:
            x_hat = prepared.apply(np.ascontiguousarray(seen.unbiased.T), seen.errors if own is None else pack(own)[None]).T
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


def clipped(p: Floats, allowed: Booleans, floor: float) -> Floats:
    """p_a = floor + (1 - n floor) e_a / Σ e with e = max(p - floor, 0), among the n allowed actions; 0 elsewhere. The library's policies
    do the same, in compiled code."""
    n = allowed.sum(axis=1, keepdims=True)
    e = np.where(allowed, np.maximum(p - floor, 0.0), 0.0)
    total = e.sum(axis=1, keepdims=True)
    share = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    kept = np.minimum(floor + (1.0 - n * floor) * share, 1.0)
    return np.where(allowed, np.where(total > 0, kept, 1.0 / n), 0.0)


def named(policy: Any) -> dict[str, Any]:
    """Policies by name, each of a known kind."""
    if not isinstance(policy, Mapping):
        return {label(policy): policy}
    if not policy:
        checks.refuse("policy", "name at least one policy", "none")
    for name in policy:
        if not isinstance(name, str):
            checks.refuse("the names of policies", "be text", checks.shown(name))
    return dict(policy)


def label(policy: Any) -> str:
    """What a policy without a name is called."""
    if isinstance(policy, str):
        return policy
    if isinstance(policy, (int, np.integer)) and not isinstance(policy, bool):
        return f"always {policy}"
    return str(getattr(policy, "__name__", None) or type(policy).__name__)


def reader_of(name: str, policy: Any, frame: Frame) -> Reader:
    """A policy of any kind, ready for rounds of a log."""
    k, what = frame.n_actions, f"policy {name!r}"
    if isinstance(policy, str):
        checks.one_of(what, policy, ("uniform",))
        return lambda seen: seen.allowed / seen.allowed.sum(axis=1, keepdims=True)
    if isinstance(policy, (int, np.integer)) and not isinstance(policy, bool):
        fixed = np.zeros(k)
        fixed[checks.integer(what, policy, 0, k - 1)] = 1.0
        return lambda seen: np.tile(fixed, (len(seen.predicted), 1))
    if isinstance(policy, LinearRule):
        return policy.reader(frame)
    if callable(policy):
        return lambda seen: _asked(what, policy, seen, k)
    vector = checks.floats(what, policy, (k,))
    if (vector < 0).any() or abs(vector.sum() - 1.0) > 1e-6:
        checks.refuse(what, "be probabilities that sum to 1", checks.shown(vector))
    return lambda seen: np.tile(vector, (len(seen.predicted), 1))


def _asked(what: str, policy: Callable[[Floats], Any], seen: Seen, k: int) -> Floats:
    """The probabilities that a function gives, checked."""
    n = len(seen.predicted)
    found = policy(seen.predicted.copy())
    p = checks.regular(f"{what}: what it returns", found)
    if p.shape != (n, k):
        checks.refuse(what, f"return an array of shape ({n}, {k}) for predictions of shape {seen.predicted.shape}", f"shape {p.shape}")
    bad = ~((p >= 0.0).all(axis=1) & (np.abs(p.sum(axis=1) - 1.0) <= 1e-6))
    if bad.any():
        t = int(np.argmax(bad))
        checks.refuse(what, "return probabilities that sum to 1", f"{checks.shown(p[t])} for row {seen.start + t + 1} of the log")
    return p
