"""What the wrong correction does: Berkson error treated as classical."""

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.model import ErrorModel, identity_rows
from mebandit.values import Floats


class BerksonWarning(UserWarning):
    """A correction for classical error is made where the data say that the error is Berkson."""


class Overcorrection(NamedTuple):
    """What a correction for classical error does where the error is Berkson."""

    matrix: Floats
    """(M - Σe)⁻¹ M: the estimate tends to this times θ, (d, d); NaN if M - Σe is not positive definite"""
    factor: float
    """its largest eigenvalue: how much the worst direction of θ is blown up, in any units; infinite if M - Σe is not positive definite"""


def overcorrection(error: "ErrorModel | ArrayLike", second_moment: ArrayLike) -> Overcorrection:
    """What happens if Σe is subtracted though the error is Berkson: θ̂ tends to (M - Σe)⁻¹ M θ with M = E[x̃x̃'].

    `error` is Σe, or a model that is used as if its error were classical; `second_moment` is M, the mean of x̃x̃' in the log, (d, d).

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
    """Warn where a covariance is subtracted from raw predictions though the pairs behind `model` say that their error is Berkson.

    That is so if the model is used as classical, or reports variances; or, for a model of any use, if `error_cov`, a covariance from
    elsewhere, is subtracted. `second_moment` is the mean of x̃x̃' in the log, or the covariance of x̃ where an intercept is fitted. Returns
    the warning, or nothing.
    """
    if model.verdict != "berkson" or (error_cov is None and not model.is_doubted):
        return ""
    factor = overcorrection(model if error_cov is None else error_cov, second_moment).factor
    if factor == 1.0:  # nothing is subtracted
        return ""
    size = f"over-corrects by a factor of up to {factor:.3g}"
    if math.isinf(factor):
        size = "explodes, because what is left of the second moment of the predictions is not positive definite"
    words = (
        "the validation pairs say that the error is Berkson: the prediction is already a conditional mean of the truth, least squares on "
        f"it is right as it is, and subtracting the error covariance {size}. "
        "Use method='ridge' without correction, or from_validation(predicted, truth) with its unbias(predicted)."
    )
    warnings.warn(words, BerksonWarning, stacklevel=2)
    return words
