"""Plain errors-in-variables regression: one action, no policy."""

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.clusters import cluster_numbers
from mebandit.estimation.estimate import checked_options, estimates_of
from mebandit.estimation.leverage import Sandwich
from mebandit.estimation.methods import Guard
from mebandit.estimation.moments import check_rounds
from mebandit.estimation.result import Estimate
from mebandit.measurement import ErrorModel
from mebandit.values import Floats


def errors_in_variables(
    predicted: ArrayLike,
    outcome: ArrayLike,
    error_cov: ArrayLike | ErrorModel | None = None,
    *,
    reliability: ArrayLike | None = None,
    intercept: bool = True,
    ridge: float = 0.0,
    guard: Guard = "auto",
    unit: ArrayLike | None = None,
    sandwich: Sandwich = "hc2",
) -> Estimate:
    """Errors-in-variables regression of an outcome on regressors that were measured with error, as Stata's `eivreg` does it.

    θ solves (Σ x̃x̃' - n Σe) θ = Σ x̃ y: `estimate` with one action. Standard errors are those of `estimate`; `eivreg` has others.

    Args:
        predicted: x̃, the regressors as measured, (n, d).
        outcome: y, (n,).
        error_cov: Σe, the covariance of the error x̃ - x: a number, d variances, (d, d), or (n, d, d) by row; or an `ErrorModel`.
        reliability: In place of `error_cov`: the share of each regressor's variance that is not error, a number or (d,), above 0 and
            at most 1; Σe is diagonal with (1 - reliability) times the variance of x̃ (divisor n). The reliability counts as known, the
            variance as estimated.
        intercept: Whether to fit one (default True).
        ridge: As in `estimate` (default 0).
        guard: As in `estimate` (default "auto").
        unit: As in `estimate` (default None).
        sandwich: As in `estimate` (default "hc2").

    Returns:
        The estimate, of one action: `theta` (1, d), `intercept` (1,), `std_error`, `interval()`.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(0, 1, 50_000)
    >>> errors_in_variables((x + rng.normal(0, 1, x.size))[:, None], 2 * x, reliability=0.5).theta.round(1)
    array([[2.]])
    """
    options = checked_options(ridge=ridge, intercept=intercept, guard=guard, sandwich=sandwich)
    x = checks.floats("predicted", predicted, (None, None))
    if (error_cov is None) == (reliability is None):
        got = "neither" if error_cov is None else "both"
        checks.refuse("the error", "be given once, as `error_cov` or as `reliability`", got)
    model = error_cov if isinstance(error_cov, ErrorModel) else None
    cov = model.error_cov if model is not None else _from_reliability(x, reliability) if reliability is not None else error_cov
    n = len(x)
    rounds = check_rounds(x, np.zeros(n, dtype=np.int64), outcome, np.ones(n), cov, n_actions=1)  # type: ignore[arg-type]
    clusters = None if unit is None else cluster_numbers(unit, n)
    return estimates_of(rounds, 1, ("naive",), options, model=model, clusters=clusters)["naive"]


def _from_reliability(x: Floats, reliability: ArrayLike) -> Floats:
    """Σe,t of each row, diagonal with (1 - reliability) (x̃ - mean)²: its mean is (1 - reliability) var x̃, and its spread between rows
    puts the uncertainty of that variance into the standard errors, (n, d, d)."""
    given, d = checks.regular("reliability", reliability), x.shape[1]
    share = checks.floats("reliability", np.full(d, given) if given.ndim == 0 else given, (d,))
    if not ((share > 0) & (share <= 1)).all():
        checks.refuse("reliability", "be above 0 and at most 1", checks.shown(share[~((share > 0) & (share <= 1))][0]))
    found, each = np.zeros((*x.shape, d)), np.arange(d)
    found[:, each, each] = (1 - share) * (x - x.mean(axis=0)) ** 2
    return found
