"""The best linear predictor of a context from its prediction with error: what a decision, or a regression, should read instead of x̃.

x̂_t = μ + Sx (Sx + Σe,t)^-1 (x̃_t - μ) = x̃_t - Σe,t (Sx + Σe,t)^-1 (x̃_t - μ),  μ = mean x̃,  Sx = cov(x̃) - mean Σe.

It is E[x | x̃] for normal contexts and errors, the linear function of x̃ nearest to x in any case, and x̃ itself where Σe = 0. Policies
compute it as they go (`context="blp"`); here it is for a whole log.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.estimation.moments import pack, unpack
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
    errors = checks.covariances("error_cov", error_cov, x.shape[1], len(x))
    mean = x.mean(axis=0)
    away = np.where(np.ptp(x, axis=0) > 0, x - mean, 0.0)
    try:
        found = calibration(mean, away.T @ away / len(x), errors.mean(axis=0)).apply(np.ascontiguousarray(x.T), pack(errors)).T.copy()
    except np.linalg.LinAlgError:
        found = np.full_like(x, np.nan)
    if not np.isfinite(found).all():
        raise checks.SingularMoments("predicted and error_cov must be of sizes that can be computed with together; got others.")
    return found


class Calibration(NamedTuple):
    """What x̂ is computed with. Units do not matter, so each coordinate is measured in its own: `scale`."""

    mean: Floats
    scale: Floats
    context_cov: Floats
    """Sx, in units of scale"""

    def gain(self, errors: Floats) -> Floats:
        """Σe (Sx + Σe)^-1, (d, d)"""
        return np.asarray(errors @ self.precision(errors))

    def precision(self, errors: Floats) -> Floats:
        """(Sx + Σe)^-1, (d, d)"""
        scale = np.outer(self.scale, self.scale)
        return np.asarray(np.linalg.pinv(self.context_cov + errors / scale, rcond=kernels.SINGULAR_SPREAD, hermitian=True)) / scale

    def apply(self, x: Floats, errors: Floats) -> Floats:
        """x̂ for predictions, a row for each feature, (d, T), whose errors have packed covariances (T or 1, d (d + 1) / 2)."""
        if len(errors) == 1:
            gain = self.gain(unpack(errors[0], self.mean.size))
            return mapped(x, np.eye(self.mean.size) - gain, gain @ self.mean)
        out = np.empty_like(x)
        kernels.calibrate_rounds(x, errors, self.mean, self.scale, pack(self.context_cov), out)
        return out


def mapped(x: Floats, matrix: Floats, offset: Floats) -> Floats:
    """offset + matrix x for every column of x."""
    out = np.empty_like(x)
    kernels.affine(x, matrix, offset, out)
    return out


def calibration(mean: Floats, cov: Floats, error: Floats) -> Calibration:
    """From the mean and covariance of x̃ and the mean Σe; what is constant must have no variance, not even by rounding."""
    variance = np.diag(cov)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    values, vectors = np.linalg.eigh((cov - error) / np.outer(scale, scale))
    return Calibration(mean, scale, (vectors * np.maximum(values, 0.0)) @ vectors.T)
