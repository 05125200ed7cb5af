"""What the uncertainty of an estimated error model adds to the covariance of θ, by the delta method."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mebandit.estimation.correction import Correction
from mebandit.estimation.methods import Options
from mebandit.estimation.moments import Crossproducts, pack, triangle
from mebandit.estimation.result import Estimate
from mebandit.estimation.scores import Scores
from mebandit.estimation.solution import Solution, solve_log
from mebandit.estimation.solving import Fit
from mebandit.measurement import ErrorModel
from mebandit.values import Floats


def with_model_uncertainty(solution: Solution, scores: Scores, raw: Crossproducts, correction: Correction) -> dict[str, Estimate]:
    """The estimates of a solution, with J Var(φ̂) J' added to their covariances: J = dθ/dφ, φ the parameters of the error model.

    J is computed by central differences on the crossproducts, so the log is not read again. That does not suffice for "rc" where Σe,t
    varies; there J is `Solution.by_scale`.

    Args:
        solution: All methods, solved.
        scores: The scores of all rounds.
        raw: The crossproducts of the predictions as they are in the log.
        correction: What is known of the prediction error.
    """
    model, estimates = correction.model, solution.estimates(scores)
    if model is None or not model.parameters_cov.any():
        return estimates
    J = _jacobians(solution, raw, correction, model)
    added = {method: J[method] @ model.parameters_cov @ J[method].T for method in estimates}
    df = float(max(model.notes.get("participants", model.sample_size) - model.dim - 1, 1)) if model.sample_size else np.inf
    return {
        m: replace(found, covariance=found.covariance + added[m], model_covariance=added[m], model_df=df) for m, found in estimates.items()
    }


def _jacobians(solution: Solution, raw: Crossproducts, correction: Correction, model: ErrorModel) -> dict[str, Floats]:
    """dθ/dφ by method, (K p, parameters)."""
    options, spread = solution.options, np.sqrt(np.diag(model.parameters_cov))
    J = {method: np.zeros((fit.theta.size, spread.size)) for method, fit in solution.fits.items()}
    methods = [method for method in J if not (correction.varying and method == "rc")]
    base = _solved_with(model, raw, correction, methods, options)
    for i in np.flatnonzero(spread > 0):
        step = np.zeros(spread.size)
        step[i] = 0.1 * spread[i]
        ends = [_solved_with(model.at(model.parameters + sign * step), raw, correction, methods, options) for sign in (-1.0, 1.0)]
        for method in methods:
            J[method][:, i] = _slope(base[method], ends[0][method], ends[1][method], step[i])
    if solution.by_scale is not None:  # relative changes of a scale are those of the element of Ω's diagonal that belongs to it
        rows, columns = triangle(model.dim)
        variance = np.diag(model.raw_cov)
        J["rc"][:, -rows.size :][:, rows == columns] = solution.by_scale / np.where(variance > 0, variance, np.inf)
    return J


def _solved_with(model: ErrorModel, raw: Crossproducts, correction: Correction, methods: Sequence[str], options: Options) -> dict[str, Fit]:
    """The fits of a log with another error model of the same kind."""
    if not methods:
        return {}
    if correction.varying and correction.model is not None:
        root = np.sqrt(np.divide(model.scale, correction.model.scale, out=np.ones(model.dim), where=correction.model.scale > 0))
        moved = raw._replace(errors=raw.errors * pack(np.outer(root, root)))
        return solve_log(moved, methods, error_cov=None, options=options, strict=False).fits
    other = correction.with_model(model).completed(raw)
    return solve_log(other.unbiased_products(raw), methods, error_cov=other.mean_cov, options=options, strict=False).fits


def _slope(base: Fit, low: Fit, high: Fit, step: float) -> Floats:
    """dθ/dφ from θ at φ - step, φ and φ + step. A side on which an arm's guard decides otherwise lies across a jump and is not used."""
    below, above = ((fit.report == base.report)[:, None] for fit in (low, high))
    down, up = np.where(below, low.theta, base.theta), np.where(above, high.theta, base.theta)
    return np.asarray((up - down) / (step * np.maximum(1.0 * below + above, 1.0))).ravel()
