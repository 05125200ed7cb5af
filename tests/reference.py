"""Slow, obvious versions of everything, written from the paper with plain NumPy and SciPy. The library never imports this file."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, linalg, stats

Floats = NDArray[Any]


def stabilized_weights(actions: Floats, propensities: Floats, stabilizer: Floats, a: int) -> Floats:
    """π^nd_τ(a_τ) / π_τ(a_τ) 1{a_τ = a}, with π^nd by round, (T, K)."""
    t = np.arange(len(actions))
    return np.where(actions == a, stabilizer[t, actions.astype(int)] / propensities, 0.0)


def ridge_estimate(x: Floats, actions: Floats, r: Floats, a: int, ridge: float) -> Floats:
    """θ̂_{a,RLSCE}: (λ I + Σ 1{a_τ = a} x̃x̃')^-1 Σ 1{a_τ = a} x̃ r."""
    own = actions == a
    return np.linalg.solve(ridge * np.eye(x.shape[1]) + x[own].T @ x[own], x[own].T @ r[own])


def naive_estimate(x: Floats, actions: Floats, r: Floats, sigma: Floats, a: int, ridge: float) -> Floats:
    """eq. naive-estimator, with Σe by round (T, d, d)."""
    own = actions == a
    gram = sum((np.outer(xt, xt) - st for xt, st in zip(x[own], sigma[own], strict=True)), ridge * np.eye(x.shape[1]))
    return np.linalg.solve(gram, x[own].T @ r[own])


def proposed_matrix(x: Floats, actions: Floats, sigma: Floats, propensities: Floats, stabilizer: Floats, allowed: Floats, a: int) -> Floats:
    """t times the matrix of eq. proposed-estimator: Σ w x̃x̃' - Σ π^nd(a) Σe, the second over the rounds in which a was allowed."""
    w = stabilized_weights(actions, propensities, stabilizer, a)
    gram = np.zeros((x.shape[1], x.shape[1]))
    for t in range(len(x)):
        gram += w[t] * np.outer(x[t], x[t]) - allowed[t, a] * stabilizer[t, a] * sigma[t]
    return gram


def proposed_estimate(
    x: Floats,
    actions: Floats,
    r: Floats,
    sigma: Floats,
    propensities: Floats,
    stabilizer: Floats,
    allowed: Floats,
    a: int,
    ridge: float,
) -> Floats:
    """eq. proposed-estimator (both sides times t)."""
    w = stabilized_weights(actions, propensities, stabilizer, a)
    matrix = proposed_matrix(x, actions, sigma, propensities, stabilizer, allowed, a) + ridge * np.eye(x.shape[1])
    return np.linalg.solve(matrix, (w * r) @ x)


def proposed_covariance(
    x: Floats, actions: Floats, r: Floats, sigma: Floats, propensities: Floats, stabilizer: Floats, allowed: Floats, theta: Floats
) -> Floats:
    """G^-1 (Σ ψψ') G^-T with ψ_t = w x̃ (x̃'θ - r) - π^nd(a) Σe,t θ for every arm, arms stacked, round by round."""
    k, d = theta.shape
    meat, bread = np.zeros((k * d, k * d)), np.zeros((k * d, k * d))
    for t in range(len(x)):
        psi = np.zeros(k * d)
        for a in range(k):
            w = stabilizer[t, a] / propensities[t] if actions[t] == a else 0.0
            psi[a * d : (a + 1) * d] = w * x[t] * (x[t] @ theta[a] - r[t]) - allowed[t, a] * stabilizer[t, a] * sigma[t] @ theta[a]
        meat += np.outer(psi, psi)
    for a in range(k):
        own = slice(a * d, (a + 1) * d)
        bread[own, own] = np.linalg.inv(proposed_matrix(x, actions, sigma, propensities, stabilizer, allowed, a))
    return bread @ meat @ bread.T


def fuller_estimate(x: Floats, r: Floats, u: Floats, sigma: Floats) -> tuple[Floats, float]:
    """Fuller's modified estimator on weight-normalised moments, by a generalised eigenvalue. Returns θ and κ."""
    d = x.shape[1]
    total = u.sum()
    m = np.einsum("t,ti,tj->ij", u, x, x) / total
    c = np.einsum("t,ti,t->i", u, x, r) / total
    s_rr = (u * r * r).sum() / total
    s = np.einsum("t,tij->ij", u, sigma) / total
    n = total**2 / (u**2).sum()
    smallest = float(linalg.eigh(m - np.outer(c, c) / s_rr, s, eigvals_only=True)[0])
    alpha = d + 1
    kappa = 1 - alpha / n if smallest > 1 + 1 / n else smallest - (1 + alpha) / n
    return np.linalg.solve(m - kappa * s, c), kappa


def clip_two_arms(p1: float, floor: float) -> float:
    return min(max(p1, floor), 1 - floor)


def best_of_normals(mean: Floats, sd: Floats) -> Floats:
    """P(N(mean_a, sd_a²) is the largest of all), by adaptive quadrature."""

    def density(s: float, a: int) -> float:
        others = [stats.norm.cdf(s, mean[b], sd[b]) for b in range(len(mean)) if b != a]
        return float(stats.norm.pdf(s, mean[a], sd[a]) * np.prod(others))

    def chance(a: int) -> float:
        low, high = mean[a] - 9 * sd[a], mean[a] + 9 * sd[a]
        places = [m + step * s for m, s in zip(mean, sd, strict=True) for step in (-6, -3, 0, 3, 6)]
        bends = sorted({low, high, *(place for place in places if low < place < high)})
        return float(sum(integrate.quad(density, start, stop, args=(a,), limit=200)[0] for start, stop in pairwise(bends)))

    return np.array([chance(a) for a in range(len(mean))])


def oracle_regret(error_var: float, floor: float, *, bayes: bool) -> float:
    """Clipped regret per round of the oracles in the synthetic environment, whose gap δ'x ~ N(1, 5) is seen with error N(0, 5 σε²).

    (1 - 2 p0) E[|g| 1{the sign acted on differs from g's}]; E[x | x̃] shrinks g̃ towards its mean 1 by 1/(1 + σε²).
    """
    prior, noise = 5.0, 5.0 * error_var

    def loss(g: float) -> float:
        # the oracle acts on the sign of g̃, the Bayes oracle on that of 1 + (g̃ - 1)/(1 + σε²), i.e. of g̃ + σε²
        shift = error_var if bayes else 0.0
        chance_positive = stats.norm.cdf((g + shift) / np.sqrt(noise))
        wrong = chance_positive if g < 0 else 1 - chance_positive
        return float(abs(g) * wrong * stats.norm.pdf(g, 1.0, np.sqrt(prior)))

    return (1 - 2 * floor) * float(integrate.quad(loss, -25, 25, points=[0.0], limit=400)[0])
