"""An error covariance that is known from elsewhere."""

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.model import ErrorModel, make_model


def from_known(cov: ArrayLike, dim: int | None = None) -> ErrorModel:
    """Classical error, x̃ = x + ε with ε uncorrelated with x, of a known covariance.

    Args:
        cov: Σe: a number (with `dim`), a vector of d variances, or a matrix (d, d).
        dim: The number of coordinates d; by default the size of `cov`.

    Returns:
        A model of the kind "known".

    >>> from_known([0.0, 0.3]).error_cov
    array([[0. , 0. ],
           [0. , 0.3]])
    """
    size = checks.regular("cov", cov).shape
    if dim is None and np.ndim(cov) == 0:
        checks.refuse("dim", "be given with a covariance that is a single number", "None", "Or give a vector or a matrix.")
    d = checks.integer("dim", size[0] if dim is None else dim, 1)
    return make_model("known", checks.covariance("cov", cov, d).copy())
