"""Slow, obvious versions of everything, written from the paper with plain NumPy and SciPy. The library never imports this file."""

from collections.abc import Collection
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


def doubly_robust_estimate(
    x: Floats, actions: Floats, r: Floats, sigma: Floats, propensities: Floats, c: Floats, allowed: Floats, a: int
) -> tuple[Floats, Floats, Floats]:
    """G = Σ c (x̃x̃' - Σe), m = Σ c x̃ [z'β + u (r - z'β)], θ = G^-1 m over the rounds in which a was allowed. Returns θ, G and ψ by round.

    β is least squares of r on z = (1, x̃) in the arm, u = 1{a_t = a}/π_t(a), ψ_t = c [(x̃x̃' - Σe,t) θ - x̃ (z'β + u (r - z'β))].
    """
    z = np.column_stack([np.ones(len(x)), x])
    own = actions == a
    beta = np.linalg.lstsq(z[own], r[own], rcond=None)[0]
    G, m = np.zeros((x.shape[1], x.shape[1])), np.zeros(x.shape[1])
    outcomes = np.array([z[t] @ beta + (own[t] / propensities[t]) * (r[t] - z[t] @ beta) for t in range(len(x))])
    for t in range(len(x)):
        if allowed[t, a]:
            G += c[t] * (np.outer(x[t], x[t]) - sigma[t])
            m += c[t] * x[t] * outcomes[t]
    theta = np.linalg.solve(G, m)
    psi = np.array([allowed[t, a] * c[t] * ((np.outer(x[t], x[t]) - sigma[t]) @ theta - x[t] * outcomes[t]) for t in range(len(x))])
    return theta, G, psi


def departure(a: float, alpha: float, v: float, s: float) -> float:
    """s (ψ(a) + a/v), ψ the score of N(0, v - α²) + α (Exp - 1)."""
    if alpha < 0:
        return -departure(-a, -alpha, v, s)
    sd = np.sqrt(v - alpha**2)
    z = (a + alpha) / sd - sd / alpha
    psi = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z)) / sd - 1 / alpha
    return float(s * (psi + a / v))


def share(e: Floats, departed: Floats) -> float:
    """λ by least squares of e on θ'h, with one more round that says 1 with weight κ = 4 mean e²; cut off at 0 and 2."""
    weight = np.sqrt(4 * np.mean(e**2))
    found = np.linalg.lstsq(np.append(departed, weight)[:, None], np.append(e, weight), rcond=None)[0]
    return float(np.clip(found[0], 0, 2))


def drawn_together(g: Floats, variance: Floats) -> tuple[Floats, float]:
    """Estimates of things that may be alike, drawn to their mean as far as their variances explain how they differ (empirical Bayes).

    g_i ~ N(m, τ² + variance): the posterior mean with τ² = max(var(g) - mean variance, 0), and the share τ² / (τ² + variance) it keeps.
    """
    if len(g) < 2:
        return g, 1.0
    chance = variance.mean()
    tau_sq = max(g.var(ddof=1) - chance, 0.0)
    kept = tau_sq / (tau_sq + chance) if tau_sq > 0 else 0.0
    return g.mean() + kept * (g - g.mean()), kept


class SlowMebDr:
    """The policy meb_dr, one round at a time, with whole matrices and the history kept: nothing is updated, everything is recomputed."""

    def __init__(self, k: int, d: int, *, floor: float = 0.2, memory: float = 20.0, ridge: float = 0.1) -> None:
        self.k, self.d, self.floor, self.memory, self.ridge = k, d, floor, memory, ridge
        self.x: list[Floats] = []
        self.sigma: list[Floats] = []
        self.calibrated: list[tuple[int, float, Floats, Floats, float]] = []
        """action, weight, x̂, Σe, reward: the rounds of regression calibration"""
        self.nu = self.u = 0.0
        """the noise of the rewards by the variance of ⟨θ, x⟩, and 1 - reliability of a mean round"""
        self.rounds: list[tuple[float, Floats, Floats, int, float, float]] = []
        """c, x̃, x̂, action, propensity, reward: the rounds of the doubly robust fit"""
        self.cubes: list[Floats] = []
        self.innovations: list[tuple[Floats, Floats]] = []
        self.evidence = self.evidence_sq = 0.0
        self.theta_rc, self.theta_dr = np.zeros((k, d)), np.zeros((k, d))
        self.common = np.zeros(d)
        """what all arms together say θ is"""
        self.Sx: Floats | None = None
        self.follows = False
        self.calibrated_at = 0
        self.alpha = np.zeros(d)
        self.share = 0.0
        self.left: list[tuple[float, float]] = []
        """e, θ'h: what the linear predictor leaves of a reward, and what the curve would explain"""

    def recent_mean(self) -> Floats:
        weights = (1 - 1 / self.memory) ** np.arange(len(self.x))[::-1]
        return np.asarray(weights @ np.array(self.x) / weights.sum())

    def predictor(self, x: Floats, sigma: Floats) -> tuple[Floats, Floats]:
        """x̂ = x̃ - Σe (Sx + Σe)^-1 (x̃ - μ) + λ h, and h, the departures of skewed coordinates."""
        h = np.zeros(self.d)
        if self.Sx is None:
            return x.copy(), h
        mean = self.recent_mean() if self.follows else np.mean(self.x, axis=0)
        v = self.Sx + sigma
        linear: Floats = x - sigma @ np.linalg.solve(v + 1e-6 * np.diag(np.diag(v)), x - mean)
        for i in np.flatnonzero(self.alpha):
            if not self.follows and sigma[i, i] > 0:
                sd = np.sqrt(v[i, i])
                most = 3 * np.sqrt(sigma[i, i])
                h[i] = np.clip(departure(np.clip(x[i] - mean[i], -3 * sd, 3 * sd), self.alpha[i], v[i, i], sigma[i, i]), -most, most)
        return linear + self.share * h, h

    def reliability(self, sigma: Floats) -> float:
        own, error = np.diag(sigma if self.Sx is None else self.Sx), np.diag(sigma)
        return float(np.mean(np.where(error == 0, 1.0, own / np.where(error == 0, 1.0, own + error))))

    def propensities(self, x: Floats, sigma: Floats) -> Floats:
        robust = self.evidence > 2.5 * np.sqrt(self.evidence_sq)
        scores = self.theta_dr @ x if robust else self.theta_rc @ self.predictor(x, sigma)[0]
        best = scores == scores.max()
        return np.where(best, (1 - self.k * self.floor) / best.sum() + self.floor, self.floor)

    def learn(self, x: Floats, sigma: Floats, action: int, pi: float, r: float) -> None:
        n, (seen, h), c = len(self.x) + 1, self.predictor(x, sigma), self.reliability(sigma)
        f = self.theta_rc @ seen
        departed = self.theta_rc[action] @ h
        if n >= 2 * self.d * self.k and departed != 0:
            self.left.append((r - f[action] + self.share * departed, departed))
        y = f + (np.arange(self.k) == action) * (r - f) / pi
        first, second = int(np.argmax(f)), int(np.argmax(self.theta_dr @ x))
        if first != second and c < 1:
            self.evidence = 0.998 * self.evidence + y[second] - y[first]
            self.evidence_sq = 0.998**2 * self.evidence_sq + (y[second] - y[first]) ** 2
        precise = (self.nu + self.u) / (self.nu + 1 - c) if self.nu > 0 else 1.0
        self.calibrated.append((action, precise * n / (n + 40 * self.d * (1 - c)), seen, sigma, r))
        self.rounds.append((c, x, seen, action, pi, r))
        if len(self.x) >= 10:
            mean, sd = np.mean(self.x, axis=0), np.std(self.x, axis=0)
            cut = np.clip(x - mean, -5 * sd, 5 * sd)
            self.cubes.append(cut**3 - 3 * sd**2 * cut)
        if self.x:
            self.innovations.append((x - self.recent_mean(), sigma))
        self.x.append(x)
        self.sigma.append(sigma)
        self.refit(action)

    def curve(self, sd: Floats, signal: Floats) -> Floats:
        """α of every coordinate, from the skewness of x̃, its standard deviation and Sx_jj."""
        n, h, alpha, on = len(self.x), np.array(self.cubes).reshape(-1, self.d), np.zeros(self.d), signal > 0
        if on.any():
            noise = (h**2).sum(axis=0)[on] / n**2 / sd[on] ** 6
            g, kept = drawn_together(h.sum(axis=0)[on] / n / sd[on] ** 3, noise)
            doubt = 0.25 * noise.mean() * (kept + (1 - kept) / on.sum())
            k3 = np.maximum(1 - doubt / np.maximum(g**2, 1e-300), 0) * g * sd[on] ** 3
            alpha[on] = np.clip(np.cbrt(k3 / 2), -np.sqrt(signal[on]), np.sqrt(signal[on]))
        return np.where(alpha**2 < 0.1 * sd**2, 0.0, alpha)

    def least_squares(self, arms: Collection[int], pull: Floats) -> Floats:
        """Regression calibration from the rounds of some arms, with two ridges: one towards 0, one towards what all arms say."""
        A, b = self.ridge * np.eye(self.d) + pull, pull @ self.common
        for action, w, seen, _, r in self.calibrated:
            if action in arms:
                A, b = A + w * np.outer(seen, seen), b + w * r * seen
        return np.asarray(np.linalg.solve(A, b))

    def refit(self, action: int) -> None:
        d, stale = self.d, {action}
        if len(self.innovations) >= 2 * d + 2 and not 0.98 * len(self.x) < self.calibrated_at <= len(self.x):
            self.calibrated_at = len(self.x)
            about_recent = np.mean([np.outer(e, e) for e, _ in self.innovations], axis=0)
            about_mean = np.cov(np.array(self.x).T, bias=True).reshape(d, d)
            self.follows = bool(np.log(np.diag(about_recent) / np.diag(about_mean)).sum() < 0)
            v = about_recent if self.follows else about_mean
            mean_error = np.mean([s for _, s in self.innovations] if self.follows else self.sigma, axis=0)
            D = np.eye(d)
            if np.linalg.eigvalsh(v - mean_error + 1e-6 * np.diag(np.diag(v)))[0] <= 0:
                # take out what each coordinate can bear, and of that the largest share that leaves Sx positive definite, by bisection
                most = np.diag(np.sqrt(np.minimum(1.0, np.diag(v) / np.diag(mean_error))))
                low, high, kappa = 0.0, 1.0, 1.0
                for _ in range(12):
                    test = v - kappa * most @ mean_error @ most + 1e-6 * np.diag(np.diag(v))
                    low, high = (kappa, high) if np.linalg.eigvalsh(test)[0] > 0 else (low, kappa)
                    kappa = 0.5 * (low + high)
                D = np.sqrt(low) * most
            self.Sx = v - D @ mean_error @ D
            r = ((v - mean_error) / np.sqrt(np.outer(np.diag(v), np.diag(v))))[np.triu_indices(d, 1)]
            n = len(self.innovations) if self.follows else len(self.x)
            if d > 1:
                self.Sx[~np.eye(d, dtype=bool)] *= max(0, 1 - 2 * r.size / (n * (r**2).sum()))
            errs = np.diag(mean_error) > 0
            if errs.any():
                lost = np.minimum(np.diag(mean_error) / np.diag(v), 1)[errs]
                before, rho = np.diag(self.Sx), np.diag(self.Sx) / np.diag(v)
                rho[errs] = drawn_together(rho[errs], 2 * lost**2 / n)[0]
                scale = np.sqrt(rho * np.diag(v) / before)
                self.Sx = scale[:, None] * self.Sx * scale
            self.alpha = self.curve(np.sqrt(np.diag(about_mean)), np.diag(self.Sx))
            weights = np.array([w for _, w, *_ in self.calibrated])
            left = [w * (r - self.theta_rc[a] @ seen) ** 2 for a, w, seen, _, r in self.calibrated]
            explained = [w * self.theta_rc[a] @ self.Sx @ self.theta_rc[a] for a, w, *_ in self.calibrated]
            self.nu = self.u = 0.0
            if weights.sum() > self.k * d:
                known = self.reliability(np.average([s for *_, s, _ in self.calibrated], axis=0, weights=weights))
                variance = sum(left) / (weights.sum() - self.k * d)
                signal = (sum(explained) - variance * self.k * d / known) / weights.sum()
                if signal > 0:
                    self.u = 1 - known
                    self.nu = max(variance / signal - self.u, 0.2)
            self.common = self.least_squares(range(self.k), np.zeros((d, d)))
            stale = set(range(self.k))
        if self.left:
            self.share = share(*np.array(self.left).T)
        x, sigma = np.array(self.x), np.array(self.sigma)
        c = np.array([weight for weight, *_ in self.rounds])
        G = np.einsum("t,tij->ij", c, x[:, :, None] * x[:, None, :] - sigma) + self.ridge * np.eye(d)
        for a in range(self.k):
            if a in stale:
                self.theta_rc[a] = self.least_squares([a], d * np.mean(self.sigma, axis=0))
            m = np.zeros(d)
            for weight, seen_x, seen, action, pi, r in self.rounds:
                f = self.theta_rc[a] @ seen
                m += weight * seen_x * (f + (action == a) * (r - f) / pi)
            self.theta_dr[a] = np.linalg.solve(G, m)
