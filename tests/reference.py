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

    def __init__(self, k: int, d: int, *, floor: float = 0.2, memory: float = 20.0, ridge: float = 1e-6, width: float = 0.6) -> None:
        self.k, self.d, self.floor, self.memory, self.ridge, self.width = k, d, floor, memory, ridge, width
        self.x: list[Floats] = []
        self.sigma: list[Floats] = []
        self.rounds: list[tuple[float, float, Floats, Floats, int, float, float]] = []
        """weight in the doubly robust fit, weight in the regression, x̃, z, action, propensity, reward"""
        self.cubes: list[Floats] = []
        self.innovations: list[tuple[Floats, Floats]] = []
        self.slopes, self.theta_dr = np.zeros((k, 1 + d)), np.zeros((k, d))
        self.stale, self.stale_dr = np.full(k, np.inf), np.inf
        """rounds since they were solved for"""
        self.inverse = np.zeros((k, 1 + d, 1 + d))
        self.center, self.spread, self.middle, self.noise, self.pull = np.zeros(d), np.zeros(d), 0.0, 0.0, 1.0
        self.Sx: Floats | None = None
        self.follows = False
        self.refitted_at = 0
        self.alpha = np.zeros(d)
        self.share = self.drift = 0.0
        self.mean0, self.error0 = np.zeros(d), np.zeros((d, d))
        """what z is relative to"""
        self.evidence = self.evidence_sq = 0.0
        self.left: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
        """what z leaves of a reward, b'g that the departure would explain, and what chance adds to (b'g)²; of curve and drift"""

    def recent_mean(self) -> Floats:
        weights = (1 - 1 / self.memory) ** np.arange(len(self.x))[::-1]
        return np.asarray(weights @ np.array(self.x) / weights.sum())

    def calibrated(self, x: Floats, sigma: Floats) -> tuple[Floats, Floats, float]:
        """z = A⁻¹ (x̂ - m) + m with x̂ = m + Sx (Sx + Σe)⁻¹ (x̃ - m) + λ h, A = Sx (Sx + Σ0)⁻¹; g = A⁻¹ h; and the precision of the round."""
        if self.Sx is None:
            return x.copy(), np.zeros(self.d), 1.0
        Sx, mean = self.Sx, self.mean0 if self.follows else np.mean(self.x, axis=0)
        alike = np.allclose(sigma, self.error0, rtol=1e-9, atol=0)
        if alike and not self.follows and not self.alpha.any():
            return x.copy(), np.zeros(self.d), 1.0
        total = Sx + sigma
        inverse = np.linalg.inv(total + 1e-6 * np.diag(np.diag(total)))
        z = x.copy() if alike else x - (sigma - self.error0) @ inverse @ (x - mean)
        h = np.zeros(self.d)
        if self.follows:
            h = sigma @ inverse @ (self.recent_mean() - mean)
        else:
            for i in np.flatnonzero(self.alpha):
                if sigma[i, i] > 0:
                    sd, most = np.sqrt(total[i, i]), 3 * np.sqrt(sigma[i, i])
                    away = np.clip(x[i] - mean[i], -3 * sd, 3 * sd)
                    h[i] = np.clip(departure(away, self.alpha[i], total[i, i], sigma[i, i]), -most, most)
        g = h + self.error0 @ np.linalg.solve(self.reliable(Sx), h)
        w = 1.0
        if not alike and self.noise > 0:
            b, C = self.slopes[:, 1:].T, sigma - self.error0
            lost = np.sum(b * (C @ b)) - np.sum((C @ b) * (inverse @ C @ b))
            left = self.noise + lost / self.k
            w = float(np.clip(self.noise / left, 0.05, 20)) if left > 0 else 20.0
        return z + (self.drift if self.follows else self.share) * g, g, w

    def reliability(self, sigma: Floats) -> float:
        """The mean of Sx_jj / (Sx_jj + Σe_jj) over the coordinates, of which 1 is the first of z; 1 where there is no error."""
        assert self.Sx is not None
        own, error = np.diag(self.Sx), np.diag(sigma)
        return float((1 + np.sum(np.where(error == 0, 1.0, own / np.where(error == 0, 1.0, own + error)))) / (1 + self.d))

    def reliable(self, Sx: Floats) -> Floats:
        """Sx with a little more on its diagonal, so that no feature is less reliable than 0.4."""
        total = np.diag(Sx + self.error0)
        return Sx + np.diag(np.maximum(0.02 * total, 0.4 * total - np.diag(Sx)))

    def departure_noise(self) -> float:
        """The variance of b'Σ0 Sx⁻¹ μ for the mean μ of so many rounds, averaged over the actions."""
        assert self.Sx is not None
        V0 = self.Sx + self.error0
        y = np.linalg.solve(self.reliable(self.Sx), self.error0 @ self.slopes[:, 1:].T)
        return float(np.sum(y * (V0 @ y)) / self.k / (2 * self.memory - 1))

    def propensities(self, x: Floats, sigma: Floats) -> Floats:
        z = np.append(1, self.calibrated(x, sigma)[0])
        robust = self.evidence > 2.5 * np.sqrt(self.evidence_sq)
        bonus = self.width * np.sqrt(self.noise) * np.sqrt(np.einsum("i,kij,j->k", z, self.inverse, z))
        scores = self.theta_dr @ x if robust else self.slopes @ z + bonus
        best = np.isclose(scores, scores.max(), rtol=0, atol=1e-13)
        return np.where(best, (1 - self.k * self.floor) / best.sum() + self.floor, self.floor)

    def learn(self, x: Floats, sigma: Floats, action: int, pi: float, r: float) -> None:
        n, (z, g, w) = len(self.x), self.calibrated(x, sigma)
        departed, used = self.slopes[action, 1:] @ g, self.drift if self.follows else self.share
        if n + 1 >= 2 * (self.d + 1) * self.k and departed != 0:
            e = float(r - self.slopes[action] @ np.append(1, z) + used * departed)
            self.left[self.follows].append((e, float(departed), self.departure_noise() if self.follows else 0.0))
        f = self.slopes @ np.append(1, z)
        y = f + (np.arange(self.k) == action) * (r - f) / pi
        first, second = int(np.argmax(f)), int(np.argmax(self.theta_dr @ x))
        if first != second:
            self.evidence = 0.998 * self.evidence + y[second] - y[first]
            self.evidence_sq = 0.998**2 * self.evidence_sq + (y[second] - y[first]) ** 2
        settled = 1.0 if (z == x).all() else (n + 1) / (n + 1 + 10 * (self.d + 1))
        c = 1.0 if w == 1 else self.reliability(sigma) / self.reliability(self.error0)
        self.rounds.append((c, settled * w, x, np.append(1, z), action, pi, r))
        if n >= 10:
            mean, sd = np.mean(self.x, axis=0), np.std(self.x, axis=0)
            cut = np.clip(x - mean, -5 * sd, 5 * sd)
            self.cubes.append(cut**3 - 3 * sd**2 * cut)
        if n > 0:
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
            doubt = 2 * noise.mean() * (kept + (1 - kept) / on.sum())
            k3 = np.maximum(1 - doubt / np.maximum(g**2, 1e-300), 0) * g * sd[on] ** 3
            alpha[on] = np.clip(np.cbrt(k3 / 2), -np.sqrt(signal[on]), np.sqrt(signal[on]))
        return np.where(alpha**2 < 0.1 * sd**2, 0.0, alpha)

    def regress(self, a: int) -> float:
        """b = A⁻¹ (Σ w z r + κ₀ r̄ u), A = Σ w zz' + κ₀ uu' + κ D, u = (1, m). Returns the smallest penalised sum of squares about r̄."""
        on = np.append(True, self.spread > 0)
        u = np.append(1, self.center) * on
        A, c, square = np.outer(u, u) + self.pull * np.diag(np.append(0, self.spread)), self.middle * u, 0.0
        for _, w, _, z, action, _, r in self.rounds:
            if action == a:
                A, c, square = A + w * np.outer(z, z), c + w * z * r, square + w * (r - self.middle) ** 2
        self.slopes[a], self.inverse[a] = 0, np.eye(1 + self.d)
        self.inverse[a][np.ix_(on, on)] = np.linalg.inv(A[np.ix_(on, on)])
        self.inverse[a][~on] = self.inverse[a][:, ~on] = 0
        self.slopes[a][on] = self.inverse[a][np.ix_(on, on)] @ c[on]
        centred = self.slopes[a] - self.middle * np.eye(1 + self.d)[0]
        return float(square - centred @ A @ centred)

    def refit_context(self) -> None:
        """Sx, whether the forgetting mean predicts better, and the curve."""
        d = self.d
        if self.Sx is None:
            self.mean0, self.error0 = np.mean(self.x, axis=0), np.mean(self.sigma, axis=0)
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

    def refit_prior(self) -> None:
        """What the regressions are drawn to, and how firmly: a step of the EM algorithm for the evidence."""
        self.center, self.spread = np.mean(self.x, axis=0), np.var(self.x, axis=0)
        self.spread[self.spread <= 1e-10 * np.mean(np.square(self.x), axis=0)] = 0
        w, r = np.array([(weight, reward) for _, weight, *_, reward in self.rounds]).T
        self.middle = float(w @ r / (w.sum() + 1))
        self.noise = sum(self.regress(a) for a in range(self.k)) / max(len(r) - 1, 1)
        if self.noise <= 1e-12 * (w @ (r - self.middle) ** 2) / max(len(r) - 1, 1):
            self.noise = 0.0
        else:
            doubt = [np.diag(inverse)[1:] * (self.spread > 0) for inverse in self.inverse]
            moments = [self.spread @ (b[1:] ** 2 / self.noise + v) for b, v in zip(self.slopes, doubt, strict=True)]
            self.pull = float(np.clip((self.k * (self.spread > 0).sum() + 4) / (sum(moments) + 4), 0.01, 100))

    def refit(self, action: int) -> None:
        n = len(self.x)
        self.stale[action] += 1
        self.stale_dr += 1
        if n <= 30 or not 0.98 * n < self.refitted_at <= n:
            self.refitted_at = n
            if len(self.innovations) >= 2 * (self.d + 1) + 2:
                self.refit_context()
            self.refit_prior()
            self.stale[:] = self.stale_dr = np.inf
        if self.left[False]:
            self.share = share(*np.array(self.left[False]).T[:2])
        if self.left[True]:
            e, departed, noise = np.array(self.left[True]).T
            kept = 0.995 ** np.arange(len(e))[::-1]
            weight, information = 4 * (kept @ e**2) / kept.sum(), kept @ (departed**2 - noise)
            if information >= 0:
                self.drift = float(np.clip((kept @ (departed * e) + 0.75 * weight) / (information + weight), -1, 1))
        for a in range(self.k):
            if self.stale[a] > 0 and self.stale[a] >= 0.01 * sum(taken == a for *_, taken, _, _ in self.rounds):
                self.regress(a)
                self.stale[a] = 0
        if self.stale_dr >= 0.01 * n:
            self.theta_dr, self.stale_dr = self.theta(), 0

    def theta(self) -> Floats:
        """The doubly robust θ of all rounds so far, (K, d)."""
        x, sigma = np.array(self.x), np.array(self.sigma)
        c = np.array([w for w, *_ in self.rounds])
        G = np.einsum("t,tij->ij", c, x[:, :, None] * x[:, None, :] - sigma) + self.ridge * np.eye(self.d)
        m = np.zeros((self.k, self.d))
        for w, _, seen_x, z, taken, pi, r in self.rounds:
            f = self.slopes @ z
            m += w * np.outer(f + (np.arange(self.k) == taken) * (r - f) / pi, seen_x)
        return np.asarray(np.linalg.solve(G, m.T).T)
