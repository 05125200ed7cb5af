"""The best linear predictor of a context from its prediction with error: what a decision, or a regression, should read instead of x̃.

x̂_t = μ + Sx (Sx + Σe,t)^-1 (x̃_t - μ) = x̃_t - Σe,t (Sx + Σe,t)^-1 (x̃_t - μ),  μ = mean x̃,  Sx = cov(x̃) - mean Σe.

It is E[x | x̃] for normal contexts and errors, the linear function of x̃ nearest to x in any case, and x̃ itself where Σe = 0. Policies
compute it as they go (`context="blp"`); here it is for a whole log.
"""

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.values import Floats


def best_linear_predictor(predicted: ArrayLike, error_cov: ArrayLike) -> Floats:
    """x̂_t for every round of a log, (T, d); `error_cov` is Σe, (d, d), or Σe,t by round, (T, d, d).

    Where cov(x̃) - mean Σe is not positive semidefinite, its negative eigenvalues are taken as zero.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(3, 1, (5000, 1))
    >>> noisy = x + np.random.default_rng(1).normal(0, 1, x.shape)
    >>> float(best_linear_predictor(noisy, 1.0).std().round(1))
    0.7
    """
    x = checks.floats("predicted", predicted, (None, None))
    checks.integer("the number of rounds", len(x), 2)
    return calibrated(x, checks.covariances("error_cov", error_cov, x.shape[1], len(x)))


def calibrated(x: Floats, errors: Floats) -> Floats:
    """`best_linear_predictor` of checked arrays, `errors` (T or 1, d, d)."""
    n, d = x.shape
    mean = x.mean(axis=0)
    scale = x.std(axis=0)
    scale[scale == 0] = 1.0  # units do not matter, so each coordinate is measured in its own
    away, errors = (x - mean) / scale, errors / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(away.T @ away / n - errors.mean(axis=0))
    Sx = (vectors * np.maximum(values, 0.0)) @ vectors.T
    gain = errors @ np.linalg.pinv(Sx + errors, hermitian=True)
    return np.asarray(x - scale * np.einsum("tij,tj->ti", np.broadcast_to(gain, (n, d, d)), away))
