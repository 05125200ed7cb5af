"""The best linear predictor of a context from its prediction with error: what regression calibration reads in place of x̃.

x̂_t = μ + Sx (Sx + Σe,t)^-1 (x̃_t - μ) = x̃_t - Σe,t (Sx + Σe,t)^-1 (x̃_t - μ),  μ = mean x̃,  Sx = cov(x̃) - mean Σe.

It is E[x | x̃] for normal contexts and errors, the linear function of x̃ with the smallest mean squared error in any case, and x̃ itself
where Σe = 0. Policies compute it round by round (`context="blp"`); here it is computed for a whole log.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.estimation.moments import Crossproducts, Rounds, crossproducts, pack, unpack
from mebandit.values import Floats


def best_linear_predictor(predicted: ArrayLike, error_cov: ArrayLike) -> Floats:
    """The best linear predictor of the context in every round of a log: x̂_t = μ + Sx (Sx + Σe,t)^-1 (x̃_t - μ).

    μ is the mean of x̃ and Sx = cov(x̃) - mean Σe. Negative eigenvalues of Sx count as zero.

    Args:
        predicted: x̃, (T, d), of two rounds at least.
        error_cov: Σe: a number, a vector of d variances or a matrix (d, d) for all rounds, or (T, d, d), one for each.

    Returns:
        x̂, (T, d).

    Raises:
        InvalidInput: An argument has another shape, or `error_cov` is no covariance.
        SingularMoments: The numbers are too large or too small to be computed with.

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
    """What x̂ is computed with: μ and Sx. Each coordinate is measured in its own unit, `scale`, so that units do not matter."""

    mean: Floats
    """μ, (d,)"""
    scale: Floats
    """the standard deviation of each coordinate of x̃, 1 for constants, (d,)"""
    context_cov: Floats
    """Sx in units of scale, (d, d)"""

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
            return affine_map(x, np.eye(self.mean.size) - gain, gain @ self.mean)
        out = np.empty_like(x)
        kernels.calibrate_rounds(x, errors, self.mean, self.scale, pack(self.context_cov), out)
        return out

    def as_matrix(self, error_cov: Floats) -> Floats:
        """The matrix that maps (1, x̃, r) to (1, x̂, r) where Σe is the same in all rounds, (d + 2, d + 2)."""
        gain = self.gain(error_cov)
        matrix = np.eye(self.mean.size + 2)
        matrix[1:-1, 1:-1] -= gain
        matrix[1:-1, 0] = gain @ self.mean
        return matrix


def affine_map(x: Floats, matrix: Floats, offset: Floats) -> Floats:
    """offset + matrix x for every column of x."""
    out = np.empty_like(x)
    kernels.affine(x, matrix, offset, out)
    return out


def calibration(mean: Floats, cov: Floats, error: Floats) -> Calibration:
    """From the mean and covariance of x̃ and the mean Σe. A constant must have a variance of exactly 0, without rounding."""
    variance = np.diag(cov)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    values, vectors = np.linalg.eigh((cov - error) / np.outer(scale, scale))
    return Calibration(mean, scale, (vectors * np.maximum(values, 0.0)) @ vectors.T)


def calibration_of(products: Crossproducts, error_cov: Floats | None) -> Calibration:
    """What x̂ is computed with, from the crossproducts of a log; `error_cov` is Σe, (d, d), or None where it varies between rounds."""
    return calibration(*products.context.mean_and_cov, products.mean_error(error_cov))


def calibrated_products(rounds: Rounds, calibration: Calibration, n_actions: int) -> Crossproducts:
    """The crossproducts of a log with x̂ in place of x̃."""
    seen = calibration.apply(rounds.context.predicted, rounds.errors)
    return crossproducts(rounds._replace(predicted=seen, errors=np.zeros((1, rounds.errors.shape[1]))), n_actions, varying=False)
