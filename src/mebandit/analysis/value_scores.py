"""The scores of off-policy values: what each round or cluster adds to their errors, corrected for small samples.

With ρ and y as in `value_estimators`, sums over a round or cluster g of n_g of the n rounds, and the mean reward R of the log,

    logged   (Σ_g r - n_g R) / n                h = n_g / n
    ips      (Σ_g ρ r - n_g V) / n              h = n_g / n
    snips    Σ_g ρ (r - V) / Σ ρ                h = Σ_g ρ / Σ ρ
    dr       (Σ_g y - n_g V + c_g) / n          h = n_g / n
    weight   (Σ_g ρ - n_g mean ρ) / n           h = n_g / n

each divided by sqrt(1 - h) with hc2, by 1 - h with hc3, and by 1 with hc0: h is the leverage of g, by which its own residual is too small.
c_g is what leaving g out of the outcome regressions β changes, as in `estimation.leverage`, (E_b - E_gb)'(β_b - β_b(-g)) summed over the
actions b, where E_b = Σ (π_e(b | x̃) - 1{a = b} ρ) z is the derivative of Σ y with respect to β_b. It is 0 with hc0.
"""

from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.analysis.value_result import ESTIMATORS
from mebandit.estimation.leverage import KINDS, freed, pinv
from mebandit.values import Floats, Integers

PER_POLICY = 4
"""columns of scores: one for each of `ESTIMATORS`, and the mean weight"""


class Outcomes(NamedTuple):
    """The outcome regressions of dr."""

    beta: Floats
    """β, of the reward less `center`, (K, d + 1)"""
    precision: Floats
    """(Σ zz')^-1, (K, d + 1, d + 1)"""
    center: float
    """the mean reward of the log, which is taken off all rewards"""


class Means(NamedTuple):
    """What scores are measured from: the estimates, and the sums that leverage is a share of."""

    n: float
    reward: float
    """R, less the center"""
    weight: Floats
    """Σ ρ by policy"""
    values: Floats
    """V by policy and estimator, (policies, 3); ips is of r itself, snips and dr of r less the center"""
    effect: Floats
    """E, (policies, K, d + 1)"""


def places(i: int) -> dict[str, int]:
    """The column of the scores of each estimator of policy i, and of its mean weight."""
    return {name: 1 + PER_POLICY * i + j for j, name in enumerate((*ESTIMATORS, "weight"))}


def scores_of(sums: Floats, left_out: Floats, means: Means, center: float, sandwich: str) -> Floats:
    """The scores of rounds or clusters, (groups, 1 + 4 policies).

    Args:
        sums: Sums of (1, r, and for every policy ρ, ρ r, y) over each, r and y less the center, (groups, 2 + 3 policies).
        left_out: c by policy, (groups, policies).
        means: What scores are measured from.
        center: The mean reward that was taken off.
        sandwich: "hc0", "hc2" or "hc3".
    """
    n_g, R_g, n = sums[:, 0], sums[:, 1], means.n
    found, share = np.empty((len(sums), 1 + PER_POLICY * len(means.values))), np.empty((len(sums), 1 + PER_POLICY * len(means.values)))
    share[:] = n_g[:, None] / n
    found[:, 0] = (R_g - n_g * means.reward) / n
    for i, (ips, snips, dr) in enumerate(means.values):
        ρ, ρr, y = sums[:, 2 + 3 * i], sums[:, 3 + 3 * i], sums[:, 4 + 3 * i]
        total, at = means.weight[i], places(i)
        found[:, at["ips"]] = (ρr + center * ρ - n_g * ips) / n
        found[:, at["snips"]] = (ρr - snips * ρ) / total
        found[:, at["dr"]] = (y - n_g * dr + left_out[:, i]) / n
        found[:, at["weight"]] = (ρ - n_g * total / n) / n
        share[:, at["snips"]] = ρ / total
    if not KINDS[sandwich]:
        return found
    left = 1.0 - np.minimum(share, kernels.LARGEST_LEVERAGE)
    return np.asarray(found / (np.sqrt(left) if sandwich == "hc2" else left))


def rounds_left_out(π_e: Floats, ρ: Floats, z: Floats, actions: Integers, residual: Floats, outcomes: Outcomes, effect: Floats) -> Floats:
    """c of single rounds for one policy, (n,).

    Args:
        π_e: The probabilities of the policy, (n, K).
        ρ: Its weights, (n,).
        z: (1, x̃), (n, d + 1).
        actions: Actions taken, (n,).
        residual: r - z'β_a, (n,).
        outcomes: The outcome regressions.
        effect: E of the policy, (K, d + 1).
    """
    moved = np.einsum("tij,tj->ti", outcomes.precision[actions], z)
    h = np.clip(np.einsum("ti,ti->t", moved, z), 0.0, kernels.LARGEST_LEVERAGE)
    own = π_e[np.arange(len(ρ)), actions] - ρ
    return np.asarray(residual / (1 - h) * (np.einsum("ti,ti->t", moved, effect[actions]) - own * h))


def clusters_left_out(tables: Floats, effects: Floats, outcomes: Outcomes, effect: Floats) -> Floats:
    """c of clusters, (clusters, policies).

    Args:
        tables: Σ_g vv', v = (1, x̃, r less the center), over the rounds of each action, (clusters, K, d + 2, d + 2).
        effects: E_g, (clusters, policies, K, d + 1).
        outcomes: The outcome regressions.
        effect: E, (policies, K, d + 1).
    """
    found = np.zeros(effects.shape[:2])
    for b, (beta, precision) in enumerate(zip(outcomes.beta, outcomes.precision, strict=True)):
        own = tables[:, b, :-1, :-1]
        scores = freed(tables[:, b, :-1, -1] - own @ beta, own, pinv(precision), -1.0)
        found += np.einsum("gpi,gi->gp", effect[:, b] - effects[:, :, b], scores @ precision)
    return found
