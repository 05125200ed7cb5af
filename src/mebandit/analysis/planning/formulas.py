"""The variance of an estimate from n rounds that are yet to come: Cov θ̂ ≈ V / n, with V in closed form for normal contexts.

With x ~ N(μ, Sx), ε ~ N(0, Σe) and reward noise of standard deviation σ, write

    G = Sx + μμ'       C = Sx + Σe        M = G + Σe = E x̃x̃'      W = Σe C^-1 Σe = Var E[ε | x̃]
    w = Σe C^-1 (x̃ - μ) = E[ε | x̃]       x̂ = x̃ - w              τ_a² = θ_a'(Σe - W)θ_a + σ² = Var(r | x̃) under action a

and π_a(x̃) for the probabilities with which the policy ends up playing. Then V = A^-1 E[ψψ'] A^-T, actions stacked, with

    meb   A_a = G     E ψ_aψ_a' = E[x̃x̃' ((w'θ_a)² + τ_a²) / π_a] - Σeθ_aθ_a'Σe          E ψ_aψ_b' = -Σeθ_aθ_b'Σe
    dr    A_a = G     E ψ_aψ_b' = M θ_a'Wθ_b + Σeθ_bθ_a'Σe + 1{a = b} τ_a² E[x̃x̃' / π_a]
    rc    A_a = E[π_a x̂x̂'],  b_a = C^-1 Σeθ_a,  p_a = E[π_a x̂],  Q_a = E[π_a x̂(x̃ - μ)'] C^-1,
          E ψ_aψ_b' = 1{a = b} τ_a² A_a + p_a p_b' b_a'Cb_b + Q_a (C b_a'Cb_b + C b_b b_a' C) Q_b'

For a constant π all expectations are closed; (w'θ)² is quadratic in x̃, so that meb's is then (1/π)(M (θ'Σeθ + σ²) + 2 Σeθθ'Σe) - Σeθθ'Σe.
In dr, z'β = θ_a'x̂ since E[r | x̃] is affine. The last two terms of rc come from estimating μ and C; they nearly cancel between
actions. A learning policy is replaced by its limit: the best action by the true θ has the probability 1 - (K - 1) p0, and every other p0.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mebandit import checks, kernels
from mebandit.estimation.methods import Method
from mebandit.values import Floats

POLICIES = ("meb", "meb_dr", "constant")
METHODS: tuple[Method, ...] = ("meb", "dr", "rc")
DRAWS = 1 << 16
"""predictions over which a learning policy's probabilities are averaged, each with its mirror image"""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A trial to come: the assumed world, and how actions will be chosen."""

    theta: Floats
    """θ, (K, d)"""
    mean: Floats
    """μ, (d,)"""
    cov: Floats
    """Sx, (d, d); zero for a constant feature"""
    error_cov: Floats
    """Σe, (d, d)"""
    noise_sd: float
    policy: str
    floor: float
    probabilities: Floats
    """of the actions under the policy "constant", (K,)"""

    @property
    def n_actions(self) -> int:
        return len(self.theta)

    @property
    def dim(self) -> int:
        return int(self.theta.shape[1])

    @cached_property
    def signal(self) -> Floats:
        """G = E xx', (d, d)"""
        return self.cov + np.outer(self.mean, self.mean)

    @cached_property
    def gain(self) -> Floats:
        """Σe C^-1: E[ε | x̃] = gain (x̃ - μ), (d, d)"""
        return np.asarray(self.error_cov @ np.linalg.pinv(self.cov + self.error_cov, hermitian=True))

    @property
    def residual(self) -> Floats:
        """τ_a² = θ_a'(Σe - W)θ_a + σ², (K,)"""
        left = self.error_cov - self.gain @ self.error_cov
        return np.asarray(np.einsum("ki,ij,kj->k", self.theta, left, self.theta) + self.noise_sd**2)

    def played_with(self, probability: float) -> "Design":
        """The same trial if every action always had this probability: its variance bounds that of a policy with this floor."""
        return replace(self, policy="constant", probabilities=np.full(self.n_actions, probability))


def predictions(design: Design, draws: int = DRAWS) -> Floats:
    """x̃ - μ for draws that are always the same, each followed by its mirror image, (2 draws, d)."""
    half = np.empty((draws, design.dim))
    kernels.fill_normals(0, 0, 0, kernels.AUXILIARY, half)
    values, vectors = np.linalg.eigh(design.cov + design.error_cov)
    away = half @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.concatenate([away, -away])


def played(design: Design, away: Floats) -> tuple[Floats, Floats]:
    """π_a(x̃) and 1/π_a(x̃) where the policy ends up, each (n, K); equally good actions share."""
    if design.policy == "constant":
        pi = np.broadcast_to(design.probabilities, (len(away), design.n_actions))
        return pi, 1.0 / pi
    seen = design.mean + (away - away @ design.gain.T if design.policy == "meb_dr" else away)
    scores = seen @ design.theta.T
    best = scores >= scores.max(axis=1, keepdims=True) - 1e-9 * np.abs(scores).max()
    lot = best / best.sum(axis=1, keepdims=True)
    high = 1.0 - (design.n_actions - 1) * design.floor
    return design.floor + lot * (high - design.floor), 1.0 / design.floor + lot * (1.0 / high - 1.0 / design.floor)


def variance(design: Design, method: str) -> Floats:
    """V with Cov θ̂ ≈ V / n after n rounds, actions stacked, (K, d, K, d)."""
    k, d = design.theta.shape
    away = predictions(design)
    psi = {"meb": _meb_scores, "dr": _dr_scores, "rc": _rc_scores}[method](design, away)
    bread = np.zeros((k, d, k, d))
    for a in range(k):
        gram = design.signal if method != "rc" else _calibrated_gram(design, away)[a]
        try:
            bread[a, :, a] = np.linalg.inv(gram)
        except np.linalg.LinAlgError:
            rule = "vary in all directions, beyond rounding, where every action is taken"
            raise checks.SingularMoments(f"the contexts of the planned trial must {rule}; got a singular matrix for action {a}.") from None
    flat = bread.reshape(k * d, k * d)
    return np.asarray(flat @ psi.reshape(k * d, k * d) @ flat.T).reshape(k, d, k, d)


def _meb_scores(design: Design, away: Floats) -> Floats:
    """E ψψ' of meb, (K, d, K, d)."""
    bias = design.theta @ design.error_cov
    found: Floats = -np.einsum("ai,bj->aibj", bias, bias)
    explained = (away @ design.gain.T) @ design.theta.T
    for a, tau_sq in enumerate(design.residual):
        if design.policy == "constant":
            own = second_moment(design) * (design.theta[a] @ bias[a] + design.noise_sd**2) + 2 * np.outer(bias[a], bias[a])
            own = own / design.probabilities[a]
        else:
            own = _averaged(design, away, (explained[:, a] ** 2 + tau_sq) * played(design, away)[1][:, a])
        found[a, :, a] += own
    return found


def _dr_scores(design: Design, away: Floats) -> Floats:
    """E ψψ' of dr, (K, d, K, d)."""
    bias = design.theta @ design.error_cov
    shared = bias @ design.gain.T @ design.theta.T  # θ_a'Wθ_b
    found: Floats = np.einsum("ab,ij->aibj", shared, second_moment(design)) + np.einsum("bi,aj->aibj", bias, bias)
    for a, tau_sq in enumerate(design.residual):
        if design.policy == "constant":
            found[a, :, a] += tau_sq * second_moment(design) / design.probabilities[a]
        else:
            found[a, :, a] += tau_sq * _averaged(design, away, played(design, away)[1][:, a])
    return found


def _rc_scores(design: Design, away: Floats) -> Floats:
    """E ψψ' of rc, (K, d, K, d)."""
    C = design.cov + design.error_cov
    inverse = np.linalg.pinv(C, hermitian=True)
    b = design.theta @ design.error_cov @ inverse
    x_hat, pi = design.mean + away - away @ design.gain.T, played(design, away)[0]
    p = pi.T @ x_hat / len(away)
    Q = np.einsum("na,ni,nj->aij", pi, x_hat, away, optimize=True) / len(away) @ inverse
    bCb = b @ C @ b.T
    found: Floats = np.einsum("ai,bj,ab->aibj", p, p, bCb) + np.einsum("aij,jk,blk,ab->aibl", Q, C, Q, bCb)
    found += np.einsum("aij,bj,ak,blk->aibl", Q, b @ C, b @ C, Q)
    for a, gram in enumerate(_calibrated_gram(design, away)):
        found[a, :, a] += design.residual[a] * gram
    return found


def second_moment(design: Design) -> Floats:
    """M = E x̃x̃', (d, d)"""
    return design.signal + design.error_cov


def _averaged(design: Design, away: Floats, weight: Floats) -> Floats:
    """E[x̃x̃' weight]."""
    x = design.mean + away
    return np.asarray((x * weight[:, None]).T @ x / len(x))


def _calibrated_gram(design: Design, away: Floats) -> Floats:
    """E[π_a x̂x̂'], (K, d, d)"""
    x_hat = design.mean + away - away @ design.gain.T
    return np.stack([(x_hat * chance[:, None]).T @ x_hat / len(x_hat) for chance in played(design, away)[0].T])
