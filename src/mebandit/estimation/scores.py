"""The scores ψ of the rounds of a log, and the sandwich covariance that follows from them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mebandit.estimation.methods import RECIPES
from mebandit.estimation.nuisance import NuisanceJacobian
from mebandit.estimation.solving import Fit
from mebandit.kernels import layout
from mebandit.values import Booleans, Floats, Integers


class Scoring(NamedTuple):
    """What the score of a round is computed with, an entry for each method; see `kernels.add_scores`."""

    weighting: Integers
    """`layout.UNIT`, `INVERSE` or `PSEUDO`, (methods,)"""
    theta: Floats
    """(methods, K, p)"""
    kappa: Floats
    """the share of the error covariance that was subtracted, (methods, K)"""
    plain: Booleans
    """whether the paper's formula was solved without the guard, (methods, K)"""
    beta: Floats
    """outcome regressions for the pseudo-outcomes, (K, d + 1)"""
    calibrated: Booleans
    """whether the method regresses on x̂, (methods,)"""
    to_calibrated: Floats
    """the map from (1, x̃) to x̂, (d, d + 1); empty where every round has its own"""
    jacobian: NuisanceJacobian


def scoring_of(fits: Mapping[str, Fit], *, beta: Floats, to_calibrated: Floats, jacobian: NuisanceJacobian) -> Scoring:
    """The scoring of the fits of several methods; `to_calibrated` maps (1, x̃, r) to (1, x̂, r), or is empty."""
    return Scoring(
        weighting=np.array([RECIPES[method][0] for method in fits]),
        theta=np.stack([fit.theta for fit in fits.values()]),
        kappa=np.stack([fit.kappa for fit in fits.values()]),
        plain=np.stack([(fit.report == layout.SOLVED) & (method == "meb") for method, fit in fits.items()]),
        beta=beta,
        calibrated=np.array([method == "rc" for method in fits]),
        to_calibrated=np.ascontiguousarray(to_calibrated[1:-1, :-1]),
        jacobian=jacobian,
    )


class Scores(NamedTuple):
    """Sums of ψψ' over rounds, or of ψ by cluster; ψ_t = w x (x'θ - y) - s Σe,t θ, actions stacked."""

    meat: Floats
    """Σ ψψ', upper triangle, (methods, K p, K p)"""
    totals: Floats
    """Σ ψ by cluster, (methods, clusters, K p); no clusters: rounds count as independent"""

    def middle(self, g: int) -> Floats:
        """The middle of the sandwich of method g, Σ ψψ' with ψ summed within clusters first, (K p, K p)."""
        upper = np.triu(self.meat[g])
        return np.asarray(self.totals[g].T @ self.totals[g] if self.totals.size else upper + np.triu(upper, 1).T)


def sandwich(fit: Fit, middle: Floats) -> Floats:
    """A^-1 (Σ ψψ') A^-T, A the matrix that was solved with, (K p, K p); NaN for actions without a solution."""
    k, p = fit.theta.shape
    covariance, inverses = np.full((k, p, k, p), np.nan), fit.inverses.items()
    for a, left in inverses:
        for b, right in inverses:
            covariance[a, :, b] = left @ middle[a * p : (a + 1) * p, b * p : (b + 1) * p] @ right.T
    return covariance.reshape(k * p, k * p)
