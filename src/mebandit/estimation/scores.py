"""The scores ψ of the rounds of a log, and the sandwich covariance that follows from them."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from mebandit import kernels
from mebandit.estimation.centred import from_centred, linear
from mebandit.estimation.leverage import Leverage, leverage_of
from mebandit.estimation.methods import RECIPES
from mebandit.estimation.moments import Crossproducts
from mebandit.estimation.nuisance import NuisanceJacobian
from mebandit.estimation.solving import Fit
from mebandit.estimation.student import in_groups
from mebandit.kernels import layout
from mebandit.values import Booleans, Floats, Integers


class Scoring(NamedTuple):
    """What the score of a round is computed with, an entry for each method; see `kernels.add_scores`. Functions of the regressors are given
    by their coefficients, see `mebandit.estimation.centred`."""

    weighting: Integers
    """`layout.UNIT`, `INVERSE` or `PSEUDO`, (methods,)"""
    theta: Floats
    """(methods, K, p)"""
    fitted: Floats
    """v'θ, less the outcome regression z'β of "dr", (methods, K, ...)"""
    varying: bool
    """whether Σe differs between rounds"""
    error: Floats
    """Σe θ without an intercept, zero where it differs between rounds, (methods, K, d)"""
    kappa: Floats
    """the share of the error covariance that was subtracted, (methods, K)"""
    plain: Booleans
    """whether the paper's formula was solved without the guard, (methods, K)"""
    beta: Floats
    """z'β, the outcome regressions for the pseudo-outcomes, (K, ...)"""
    calibrated: Booleans
    """whether the method regresses on x̂, (methods,)"""
    to_calibrated: Floats
    """x̂ - the mean of x̃, (d, ...); empty where every round has its own map"""
    center: Floats
    """the mean of x̃, and of the columns of the baseline, (d + b,)"""
    jacobian: NuisanceJacobian
    leverage: Leverage


def scoring_of(
    fits: Mapping[str, Fit],
    products: Crossproducts,
    *,
    beta: Floats,
    to_calibrated: Floats,
    error_cov: Floats | None,
    jacobian: NuisanceJacobian,
    sandwich: str,
) -> Scoring:
    """The scoring of the fits of several methods.

    Args:
        fits: What was solved, by method.
        products: The crossproducts of the log.
        beta: The outcome regressions, (K, d + 1).
        to_calibrated: The map from (1, x̃, r) to (1, x̂, r); empty where every round has its own.
        error_cov: Σe; None where it differs between rounds.
        jacobian: The nuisance Jacobian of regression calibration.
        sandwich: How scores are corrected, one of `leverage.SANDWICHES`.
    """
    d, mean, theta = products.context_dim, products.mean_and_cov[0], np.stack([fit.theta for fit in fits.values()])
    first, raw = d + 1 - theta.shape[2], from_centred(mean)
    near = (to_calibrated[:-1, :-1] if to_calibrated.size else np.eye(d + 1)) @ raw[: d + 1]
    regressors = [(near if method == "rc" else raw[: d + 1])[first:] for method in fits]
    fitted = np.stack(
        [theta[g] @ v - (beta @ raw if method == "dr" else 0.0) for g, (method, v) in enumerate(zip(fits, regressors, strict=True))]
    )
    error = np.zeros((len(fits), len(theta[0]), d)) if error_cov is None else theta[:, :, 1 - first :] @ error_cov
    return Scoring(
        weighting=np.array([RECIPES[method][0] for method in fits]),
        theta=theta,
        fitted=linear(fitted),
        varying=error_cov is None,
        error=error,
        kappa=np.stack([fit.kappa for fit in fits.values()]),
        plain=np.stack([(fit.report == layout.SOLVED) & (method == "meb") for method, fit in fits.items()]),
        beta=linear(beta @ raw),
        calibrated=np.array([method == "rc" for method in fits]),
        to_calibrated=linear(
            (near - np.pad(mean[:d, None], ((1, 0), (0, mean.size))))[1:] if to_calibrated.size else np.empty((0, mean.size + 1))
        ),
        center=mean,
        jacobian=jacobian,
        leverage=leverage_of(fits, products, regressors, error, sandwich),
    )


def new_tile(n_actions: int, columns: int, d: int, p: int, *, alike: bool) -> kernels.Tile:
    """The working memory of `kernels.add_scores`.

    Args:
        n_actions: K.
        columns: The number of features, and of columns of the baseline.
        d: The number of features.
        p: The number of coefficients of an action.
        alike: Whether all rounds of a tile have the same place in the sums.
    """
    fives, n = -(-columns // kernels.FIVE) * kernels.FIVE, kernels.TILE
    return kernels.Tile(
        begin=np.zeros(n_actions + 1, dtype=np.int64),
        order=np.empty(n, dtype=np.uint32),
        place=np.empty(1 if alike else n, dtype=np.int64),
        x=np.zeros((fives, n)),
        near=np.zeros((fives, n)),
        offered=np.empty((n_actions, n)),
        error=np.empty((d, n)),
        psi=np.empty((n_actions * p, n)),
        product=np.empty(d),
        rows=np.ones((9, n)),
    )


class Scores(NamedTuple):
    """Sums of ψψ' over rounds, or of ψ by cluster; ψ_t = w x (x'θ - y) - s Σe,t θ, actions stacked."""

    meat: Floats
    """Σ ψψ', upper triangle, (methods, K p, K p)"""
    totals: Floats
    """Σ ψ by cluster, (methods, clusters, K p); no clusters: rounds count as independent"""
    groups: Floats
    """Σ ψ by group of rounds, (methods, groups, K p); empty with clusters"""
    run: int
    """rounds that follow each other and are in one group: several where a log is long"""
    products: Floats
    """Σ vv' by cluster, see `kernels.add_unit_products`; empty without clusters, or where they are not kept"""

    def middle(self, g: int) -> Floats:
        """The middle of the sandwich of method g, Σ ψψ' with ψ summed within clusters first, (K p, K p)."""
        upper = np.triu(self.meat[g])
        return np.asarray(self.totals[g].T @ self.totals[g] if self.totals.size else upper + np.triu(upper, 1).T)

    def grouped(self, g: int) -> Floats:
        """ψ of method g by cluster or by group of rounds, of which there are at most `student.GROUPS`, (groups, K p)."""
        if not self.totals.size:
            return np.asarray(self.groups[g])
        return in_groups(self.totals[g])

    @property
    def by_cluster(self) -> Floats:
        """All that is kept by cluster, in one array, (clusters, ...)."""
        m, n, size = self.totals.shape
        products = self.products.reshape(n, -1) if self.products.size else np.empty((n, 0))
        return np.hstack([np.moveaxis(self.totals, 0, 1).reshape(n, m * size), products])

    def with_clusters(self, by_cluster: Floats) -> Self:
        """The same with what is kept by cluster, as `by_cluster` has it."""
        if not len(by_cluster):
            return self
        m, n, size = len(self.totals), len(by_cluster), self.meat.shape[1]
        totals, rest = by_cluster[:, : m * size].reshape(n, m, size), by_cluster[:, m * size :]
        k = self.products.shape[2]
        products = rest.reshape(n, 3, k, -1) if rest.size else self.products
        return self._replace(totals=np.ascontiguousarray(np.moveaxis(totals, 1, 0)), products=products)


def influence(fit: Fit, scores: Floats) -> Floats:
    """What rounds or clusters with the scores ψ, (n, K p), add to the error of θ̂: -A^-1 ψ, (n, K p); NaN for actions without a solution."""
    k, p = fit.theta.shape
    found = np.full((len(scores), k, p), np.nan)
    for a, inverse in fit.inverses.items():
        found[:, a] = -scores[:, a * p : (a + 1) * p] @ inverse.T
    return found.reshape(len(scores), k * p)


def sandwich(fit: Fit, middle: Floats) -> Floats:
    """A^-1 (Σ ψψ') A^-T, A the matrix that was solved with, (K p, K p); NaN for actions without a solution."""
    k, p = fit.theta.shape
    covariance, inverses = np.full((k, p, k, p), np.nan), fit.inverses.items()
    for a, left in inverses:
        for b, right in inverses:
            covariance[a, :, b] = left @ middle[a * p : (a + 1) * p, b * p : (b + 1) * p] @ right.T
    return covariance.reshape(k * p, k * p)
