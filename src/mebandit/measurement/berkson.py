"""Berkson error that is corrected as if it were classical: by how much that over-corrects, and the warning about it."""

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.model import ErrorModel
from mebandit.measurement.parameters import identity_rows
from mebandit.values import Floats


class BerksonWarning(UserWarning):
    """A correction for classical error is applied although validation pairs show Berkson error."""


class Overcorrection(NamedTuple):
    """What a correction for classical error does where the error is Berkson."""

    matrix: Floats
    """(M - Σe)⁻¹ M, (d, d): the estimate tends to this times θ; NaN if M - Σe is not positive definite"""
    factor: float
    """its largest eigenvalue, the factor of the worst direction of θ in any units; infinite if M - Σe is not positive definite"""


def overcorrection(error: "ErrorModel | ArrayLike", second_moment: ArrayLike) -> Overcorrection:
    """The limit of an estimate that subtracts Σe although the error is Berkson: θ̂ tends to (M - Σe)⁻¹ M θ with M = E[x̃x̃'].

    Args:
        error: Σe (a number, d variances or a matrix), or an error model that is used as classical.
        second_moment: M, the mean of x̃x̃' in the log, (d, d).

    Returns:
        The matrix (M - Σe)⁻¹ M and its largest eigenvalue.

    >>> round(overcorrection([[0.3]], [[0.7]]).factor, 3)
    1.75
    """
    d = len(checks.floats("second_moment", second_moment, (None, None)))
    M = checks.covariance("second_moment", second_moment, d)
    if isinstance(error, ErrorModel) and not identity_rows(error.slope).all():
        remedy = "Give the covariance that would be subtracted, or from_validation(..., assume='classical')."
        checks.refuse("error", "be a covariance or a model that is used as classical", f"one of kind {error.kind!r}", remedy)
    Σ = checks.covariance("error", error.error_cov if isinstance(error, ErrorModel) else error, d)
    scale = np.sqrt(np.where(np.diag(M) > 0, np.diag(M), 1.0))
    values, vectors = np.linalg.eigh(M / np.outer(scale, scale))
    if values[0] <= 1e-12:
        return Overcorrection(np.full((d, d), np.nan), math.inf)
    W = vectors / np.sqrt(values) / scale[:, None]  # W'MW = I
    share = float(np.linalg.eigvalsh(W.T @ Σ @ W)[-1])
    if share >= 1 - 1e-12:
        return Overcorrection(np.full((d, d), np.nan), math.inf)
    return Overcorrection(np.asarray(np.linalg.solve(M - Σ, M), dtype=np.float64), 1 / (1 - max(share, 0.0)))


def warn_if_berkson(model: ErrorModel, second_moment: ArrayLike, *, error_cov: ArrayLike | None = None) -> str:
    """Warn if a covariance is subtracted from raw predictions although the pairs behind a model show that their error is Berkson.

    That is so if the model is used as classical, or of reported variances; and for every model if a covariance from elsewhere is
    subtracted.

    Args:
        model: The error model.
        second_moment: The mean of x̃x̃' in the log, or the covariance of x̃ if an intercept is fitted, (d, d).
        error_cov: The covariance from elsewhere that is subtracted, (d, d); None (the default) if it is the model's.

    Returns:
        The text of the `BerksonWarning`, or "" if there is none.
    """
    if model.verdict != "berkson" or (error_cov is None and not model.is_doubted):
        return ""
    factor = overcorrection(model if error_cov is None else error_cov, second_moment).factor
    if factor == 1.0:  # nothing is subtracted
        return ""
    size = f"over-corrects by a factor of up to {factor:.3g}"
    if math.isinf(factor):
        size = "diverges, because the second moment of the predictions minus the error covariance is not positive definite"
    words = (
        "the validation pairs say that the error is Berkson: the prediction is already a conditional mean of the truth, least squares on "
        f"it is right without a correction, and subtracting the error covariance {size}. "
        "Use method='ridge' without correction, or from_validation(predicted, truth) with its unbias(predicted)."
    )
    warnings.warn(words, BerksonWarning, stacklevel=2)
    return words
