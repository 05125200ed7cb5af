"""Functions of the regressors as the compiled code reads them: by their coefficients of 1, y and yy', y = x̃ - its mean, in fives.

In y a log with a mean far from zero loses no digits.
"""

import numpy as np

from mebandit import kernels
from mebandit.values import Floats


def from_centred(mean: Floats) -> Floats:
    """The matrix that maps (1, y) to (1, x̃), (d + 1, d + 1)."""
    raw = np.eye(mean.size + 1)
    raw[1:, 0] = mean
    return raw


def linear(coefficients: Floats) -> Floats:
    """c'(1, y), (..., d + 1), filled up with zeros for the features that make the last five, see `kernels.log.linear`."""
    return np.ascontiguousarray(np.pad(coefficients, [(0, 0)] * (coefficients.ndim - 1) + [(0, _missing(coefficients))]))


def quadratic(matrices: Floats) -> Floats:
    """(1, y)'A (1, y) for matrices A, (..., d + 1, d + 1), that may have no symmetry: all of it above the diagonal, filled up likewise."""
    folded = np.triu(matrices) + np.triu(np.swapaxes(matrices, -1, -2), 1)
    missing = (0, _missing(matrices))
    return np.ascontiguousarray(np.pad(folded, [(0, 0)] * (matrices.ndim - 2) + [missing, missing]))


def _missing(coefficients: Floats) -> int:
    """How many features make the last five."""
    return (1 - coefficients.shape[-1]) % kernels.FIVE
