"""Small-sample corrections of the sandwich covariance: scores divided by what the leverage of a round or cluster takes from them.

θ̂ solves M θ = m, and a round pulls it towards itself: the residual in its score ψ_t is too small. With the derivative of its own fitted
values, H_t = w x̃x̃'M^-1, or H_g = Σ_g w x̃x̃'M^-1 for a cluster g,

    hc2:  (I - H)^-1/2 ψ    unbiased in a regression with equal variances; CR2 or Kauermann-Carroll of clusters
    hc3:  (I - H)^-1 ψ      close to the jackknife, conservative; Mancl-DeRouen of clusters
    hc0:  ψ                 the plain sandwich.

"dr" has a second regression, whose residuals are too small as well. With hc2 and hc3 its pseudo-outcomes y = z'β + u (r - z'β) use β
without the round or cluster. What leaving it out of β changes in all other pseudo-outcomes is added to ψ_t:
Σ c (1 - u) x̃z' (β_(-t) - β).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from mebandit import kernels
from mebandit.estimation.centred import from_centred, linear, quadratic
from mebandit.estimation.methods import RECIPES
from mebandit.estimation.moments import Crossproducts, order_of, unpack
from mebandit.estimation.solving import Fit
from mebandit.kernels import layout
from mebandit.values import Floats

Sandwich = Literal["hc2", "hc3", "hc0"]
SANDWICHES: tuple[Sandwich, ...] = get_args(Sandwich)
KINDS = {"hc0": 0, "hc2": 2, "hc3": 3}
MOST_ENTRIES = 1 << 23
"""of the products of all clusters together: where clusters are more, the leverage of each is small and is left alone"""


class Leverage(NamedTuple):
    """What scores are corrected with, see `kernels.add_scores`: functions of the regressors by their coefficients, see
    `mebandit.estimation.centred`."""

    kind: int
    """0: not at all; 2 or 3"""
    own: Floats
    """v'M^-1 v, v the regressors of the method, (methods, K, ...)"""
    precision: Floats
    """M^-1 v without the row of an intercept, (methods, K, d, ...)"""
    along: Floats
    """v'M^-1 Σe θ where Σe is the same in all rounds, (methods, K, ...)"""
    outcome: Floats
    """z'(Σ zz')^-1 z of the outcome regressions of "dr", z = (1, x̃) or (1, x̃, s) with a baseline s, (K, ...)"""
    outcome_effect: Floats
    """E z, E = Σ c (1 - u) x̃z' (Σ zz')^-1, (K, p, ...)"""
    cross: Floats
    """v'M^-1 E z, M that of "dr", (K, ...)"""
    outcome_precision: Floats
    """(Σ zz')^-1, (K, d + 1, d + 1)"""


def leverage_of(fits: Mapping[str, Fit], products: Crossproducts, regressors: Sequence[Floats], error: Floats, sandwich: str) -> Leverage:
    """What scores are corrected with.

    Args:
        fits: What was solved, by method.
        products: The crossproducts of the log.
        regressors: The maps from (1, y) to the regressors v, (p, d + 1), by method.
        error: Σe θ without an intercept, (methods, K, d); zero where it differs between rounds.
        sandwich: One of `SANDWICHES`.
    """
    k, p = next(iter(fits.values())).theta.shape
    d, size = products.context_dim, products.dim + 1
    first, outcome, effect, cross = p - d, np.zeros((k, size, size)), np.zeros((k, p, size)), np.zeros((k, size, size))
    raw, maps = from_centred(products.mean_and_cov[0]), np.stack(regressors)
    precision = np.zeros((len(fits), k, p, p))
    for g, fit in enumerate(fits.values()):
        for a, inverse in fit.inverses.items():
            precision[g, a] = np.nan_to_num(inverse)
    mapped = precision @ maps[:, None]  # M^-1 v as functions of (1, y)
    if "dr" in fits:
        unit, weighted, _, offered = products.full
        outcome = np.stack([pinv(table[:-1, :-1]) for table in unit])
        effect = (offered - weighted)[:, d + 1 - p : d + 1, :-1] @ outcome @ raw
        cross = np.swapaxes(mapped[list(fits).index("dr")], -1, -2) @ effect
    return Leverage(
        kind=KINDS[sandwich],
        own=quadratic(np.swapaxes(maps, -1, -2)[:, None] @ mapped),
        precision=linear(mapped[:, :, first:]),
        along=linear(np.einsum("gki,gkij->gkj", np.nan_to_num(error), mapped[:, :, first:])),
        outcome=quadratic(raw.T @ outcome @ raw),
        outcome_effect=linear(effect),
        cross=quadratic(cross),
        outcome_precision=outcome,
    )


def pinv(matrix: Floats) -> Floats:
    """The inverse, in units in which the diagonal is one, of what is not rounding."""
    size = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    return np.asarray(np.linalg.pinv(matrix / np.outer(size, size), rcond=1e-10, hermitian=True) / np.outer(size, size))


def corrects_clusters(n_clusters: int, n_actions: int, dim: int) -> bool:
    """Whether the products of all clusters are kept, from which their leverage is computed."""
    return n_clusters * 3 * n_actions * ((dim + 2) * (dim + 3) // 2) <= MOST_ENTRIES


def clusters_corrected(
    totals: Floats, by_cluster: Floats, fits: Mapping[str, Fit], leverage: Leverage, beta: Floats, to_calibrated: Floats, dim: int
) -> Floats:
    """The scores of clusters, (methods, clusters, K p), corrected for their leverage.

    Args:
        totals: Σ ψ by method and cluster, (methods, clusters, K p).
        by_cluster: Σ vv' by cluster, packed, (clusters, 3, K, (d + 2)(d + 3) / 2), see `kernels.add_unit_products`.
        fits: What was solved, by method.
        leverage: What scores are corrected with.
        beta: The outcome regressions of "dr", (K, d + 1).
        to_calibrated: The map from (1, x̃, r) to (1, x̂, r) for "rc"; empty where it differs between rounds, and "rc" is not corrected.
        dim: The number of features, d.
    """
    p = next(iter(fits.values())).theta.shape[1]
    tables = unpack(by_cluster, order_of(by_cluster.shape[3]))
    features, corrected = slice(dim + 1 - p, dim + 1), totals.copy()
    context = np.r_[: dim + 1, tables.shape[-1] - 1]
    for g, (method, fit) in enumerate(fits.items()):
        weighting = RECIPES[method][0]
        own = tables[:, {layout.UNIT: 0, layout.INVERSE: 1, layout.PSEUDO: 2}[weighting]]
        if method == "rc":
            if not to_calibrated.size:
                continue
            own = to_calibrated @ own[..., context[:, None], context] @ to_calibrated.T
        for a in np.flatnonzero(fit.report != layout.SINGULAR):
            at = slice(a * p, (a + 1) * p)
            scores = corrected[g, :, at]
            if method == "dr":
                scores = scores + _without_own(tables[:, :, a], leverage.outcome_precision[a], beta[a], features)
            corrected[g, :, at] = freed(scores, own[:, a, features, features], fit.matrix[a], -0.5 if leverage.kind == 2 else -1.0)
    return corrected


def _without_own(tables: Floats, precision: Floats, beta: Floats, features: slice) -> Floats:
    """Σ c (1 - u) x̃z' (β_(-g) - β) over the rounds outside cluster g, for every g, (clusters, p)."""
    unit, weighted, offered = np.moveaxis(tables, 1, 0)
    own = unit[:, :-1, :-1]
    residual = unit[:, :-1, -1] - own @ beta
    effect = (offered - weighted)[:, features, :-1]
    scores = freed(residual, own, pinv(precision), -1.0)
    return np.asarray(np.einsum("gij,gj->gi", effect.sum(axis=0) - effect, -scores @ precision))


def freed(scores: Floats, own: Floats, matrix: Floats, power: float) -> Floats:
    """(I - H)^power ψ with H = G_g M^-1 for all clusters, in the basis in which M is I; ψ where M is not positive definite."""
    size = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    real = values > 1e-10
    if values[0] < -1e-10 or not real.any():
        return scores
    root = size[:, None] * vectors[:, real] * np.sqrt(values[real])
    inverse = vectors[:, real].T / np.sqrt(values[real])[:, None] / size
    shares, axes = np.linalg.eigh(inverse @ own @ inverse.T)
    left = 1.0 - np.clip(shares, 0.0, kernels.LARGEST_LEVERAGE)
    turned = np.einsum("gji,gj->gi", axes, scores @ inverse.T) * left**power
    return np.asarray(np.einsum("gij,gj->gi", axes, turned) @ root.T)
