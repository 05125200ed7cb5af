"""The nuisance Jacobian of regression calibration: x̂ is computed with an estimated mean and covariance, which moves θ."""

from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.estimation.best_linear import Calibration
from mebandit.estimation.moments import Crossproducts, Rounds, pack, triangle
from mebandit.values import Floats


class NuisanceJacobian(NamedTuple):
    """The derivative of the mean score ψ of regression calibration with respect to the nuisance parameters μ and Sx.

    x̂_t = x̃_t - G_t y_t with y_t = x̃_t - μ, H_t = (Sx + Σe,t)^-1 and G_t = Σe,t H_t, so dx̂_t = G_t (dμ + dSx H_t y_t). With v = x̂ (after
    a 1 if there is an intercept) and the residual ρ_t = v_t'θ_a - r_t, the mean of ψ_a = 1{a_t = a} v ρ moves by

        N_a dμ + Σ_jk N_a,jk dSx,jk,    N_a = mean 1{a_t = a} (ρ dv/dx̂ + vθ_a') G,    N_a,jk = its column j times (H y)_k, under the mean.

    As μ and Sx are means of x̃ and of yy' - Σe,t, every round adds N_a y + Σ_jk N_a,jk (yy' - Σe,t - Sx)_jk to ψ_a. Empty without "rc".
    """

    center: Floats
    """μ, (d,)"""
    spread: Floats
    """Sx = cov(x̃) - mean Σe, packed, (d (d + 1) / 2,)"""
    slope: Floats
    """with respect to μ and the packed Sx, (K p, d + d (d + 1) / 2)"""


NO_JACOBIAN = NuisanceJacobian(np.zeros(0), np.zeros(0), np.zeros((0, 0)))


class JacobianSums(NamedTuple):
    """The sums over rounds from which a `NuisanceJacobian` is computed; those of two logs are merged by adding."""

    by_mean: Floats
    """Σ N_a, (K, p, d)"""
    by_spread: Floats
    """Σ N_a,jk, (K, p, d, d)"""
    by_scale: Floats
    """the derivative of Σ ψ_a with respect to the logarithm of the error variances of feature j, with Sx fixed, (K, p, d)"""

    def merge(self, other: "JacobianSums") -> "JacobianSums":
        """The sums of both logs together."""
        return JacobianSums(*(a + b for a, b in zip(self, other, strict=True)))


def jacobian_sums(rounds: Rounds, prepared: Calibration, theta: Floats) -> JacobianSums:
    """The sums over rounds that each have their own Σe,t, at θ of regression calibration, (K, p)."""
    d = len(rounds.predicted)
    sums = JacobianSums(np.zeros((*theta.shape, d)), np.zeros((*theta.shape, d, d)), np.zeros((*theta.shape, d)))
    kernels.add_lever(sums, theta, prepared.mean, prepared.scale, pack(prepared.context_cov), rounds)
    return sums


def jacobian_of(products: Crossproducts, by_mean: Floats, by_spread: Floats, error_cov: Floats) -> NuisanceJacobian:
    """The Jacobian from its sums over rounds, see `JacobianSums`; `error_cov` is the mean Σe, (d, d)."""
    d, total = products.dim, products.full[0].sum(axis=0)
    n = max(total[0, 0], 1.0)
    mean = total[0, 1:-1] / n
    rows, columns = triangle(d)
    both = by_spread + np.swapaxes(by_spread, 2, 3)
    folded = np.where(rows == columns, 0.5, 1.0) * both[:, :, rows, columns]
    spread = total[1:-1, 1:-1] / n - np.outer(mean, mean) - error_cov
    return NuisanceJacobian(mean, pack(spread), np.concatenate([by_mean, folded], axis=2).reshape(-1, d + rows.size) / n)


def jacobian_for_one_cov(
    products: Crossproducts, prepared: Calibration, to_calibrated: Floats, error_cov: Floats, theta: Floats
) -> NuisanceJacobian:
    """The Jacobian where Σe, and so G and H, are the same in all rounds; `to_calibrated` maps (1, x̃, r) to (1, x̂, r)."""
    d, unit, first = products.dim, products.full[0], products.dim + 1 - theta.shape[1]
    center = np.eye(d + 2)[1:-1]
    center[:, 0] = -prepared.mean
    to_v = to_calibrated[first:-1]
    G, H = prepared.gain(error_cov), prepared.precision(error_cov)
    moved = np.vstack([np.zeros((1 - first, d)), G])  # dv/dx̂ G
    residual = theta @ to_v - np.eye(d + 2)[-1]  # of (1, x̃, r), (K, d + 2)
    sums = np.einsum("ki,kij,jl->kl", residual, unit, np.vstack([np.eye(d + 2)[:1], center]).T)  # Σ ρ (1, y)
    along = theta[:, 1 - first :] @ G
    slopes = sums[:, :1, None] * moved + (unit[:, 0] @ to_v.T)[:, :, None] * along[:, None, :]
    by_h = sums[:, 1:] @ H
    v_by_h = to_v @ unit @ center.T @ H
    shifts = moved[None, :, :, None] * by_h[:, None, None, :] + v_by_h[:, :, None, :] * along[:, None, :, None]
    return jacobian_of(products, slopes, shifts, error_cov)
