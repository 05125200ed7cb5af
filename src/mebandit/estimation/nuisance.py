"""The nuisance Jacobian of regression calibration: x̂ is computed with an estimated mean and covariance, which moves θ."""

from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.estimation.best_linear import Calibration
from mebandit.estimation.centred import quadratic
from mebandit.estimation.moments import Crossproducts, Rounds, pack, triangle
from mebandit.values import Floats


class NuisanceJacobian(NamedTuple):
    """The derivative of the mean score ψ of regression calibration with respect to the nuisance parameters μ and Sx.

    x̂_t = x̃_t - G_t y_t with y_t = x̃_t - μ, H_t = (Sx + Σe,t)^-1 and G_t = Σe,t H_t, so dx̂_t = G_t (dμ + dSx H_t y_t). With v = x̂ (after
    a 1 if there is an intercept) and the residual ρ_t = v_t'θ_a - r_t, the mean of ψ_a = 1{a_t = a} v ρ moves by

        N_a dμ + Σ_jk N_a,jk dSx,jk,    N_a = mean 1{a_t = a} (ρ dv/dx̂ + vθ_a') G,    N_a,jk = its column j times (H y)_k, under the mean.

    As μ and Sx are means of x̃ and of yy' - Σe,t, every round adds N_a y + Σ_jk N_a,jk (yy' - Σe,t - Sx)_jk to ψ_a. Empty without "rc".
    """

    table: Floats
    """N_a y + Σ_jk N_a,jk (yy' - Sx)_jk, and less Σe where that is the same in all rounds, as a quadratic function of y, see
    `mebandit.estimation.centred`, (K p, ...)"""
    by_error: Floats
    """what the packed Σe,t subtract from that where they differ between rounds, (K p, d (d + 1) / 2)"""


NO_JACOBIAN = NuisanceJacobian(np.zeros((0, 0, 0)), np.zeros((0, 0)))


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
    kernels.add_jacobian(sums, theta, prepared.mean, prepared.scale, pack(prepared.context_cov), rounds)
    return sums


def jacobian_of(products: Crossproducts, by_mean: Floats, by_spread: Floats, error_cov: Floats | None) -> NuisanceJacobian:
    """The Jacobian from its sums over rounds, see `JacobianSums`; `error_cov` is Σe, (d, d), or None where it varies."""
    d, total = products.dim, products.full[0].sum(axis=0)
    n = max(total[0, 0], 1.0)
    mean = total[0, 1:-1] / n
    cov = total[1:-1, 1:-1] / n - np.outer(mean, mean)
    expected = cov if error_cov is not None else cov - products.mean_error(None)
    table, own = np.zeros((*by_mean.shape[:2], d + 1, d + 1)), by_spread / n
    table[:, :, 0, 1:] = by_mean / n
    table[:, :, 1:, 1:] = own
    table[:, :, 0, 0] = -np.einsum("kijl,jl->ki", own, expected)
    by_error = pack(own + np.swapaxes(own, -1, -2)) * np.where(np.equal(*triangle(d)), 0.5, 1.0)
    rows = len(by_error[0]) * len(by_error)
    return NuisanceJacobian(quadratic(table).reshape(rows, *quadratic(table).shape[2:]), by_error.reshape(rows, -1))


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
