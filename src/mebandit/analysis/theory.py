"""The paper's guarantees as functions: bounds on estimation error and regret, and the conditions under which they are stated.

The theorems hold for some absolute constants C, C', C_1 that the paper does not give; they are arguments here, 1 by default, so only
rates and proportions mean something. The forms for K actions (App. C) are used throughout; for K = 2 they are those of Section 2.
Where an assumption fails (ρ >= 1, or no signal) a bound is infinite.
"""

from math import cbrt, ceil, inf, log, pow, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.environments.base import checked_tape, mean_rewards
from mebandit.values import Floats, Tape

SETTINGS = ("standard", "clipped")


class Constants(NamedTuple):
    """The constants of Assumptions 1 to 3, with w = √d x and w̃ = √d x̃."""

    dim: int
    n_actions: int
    largest_context: float
    """the largest |x̃_t|; Assumption 1 asks for at most 1"""
    theta_bound: float
    """R_θ: |θ_a| <= R_θ"""
    reward_bound: float
    """R: |r_t| <= R"""
    fourth_moment: float
    """ξ: E (u'w̃)⁴ <= ξ for unit vectors u"""
    second_moment: float
    """ν: E w̃w̃' <= ν I"""
    signal: float
    """λ0: (1/t) Σ π^nd(a) ww' >= λ0 I for all t >= √T"""
    error_ratio: float
    """ρ: |⟨θ_a - θ_b, ε⟩| <= ρ |⟨θ_a - θ_b, x⟩|; Assumption 3 asks for less than 1"""

    @property
    def hold(self) -> bool:
        """Whether Assumptions 1 to 3 do, after rescaling x̃ if it is bounded at all."""
        return self.largest_context <= 1 + 1e-9 and self.signal > 0 and self.error_ratio < 1


def constants_of(tape: Tape) -> Constants:
    """The constants as realised on a tape of simulated rounds, for π^nd = 1/K."""
    if not isinstance(tape, Tape) or np.ndim(tape.context) != 2 or np.ndim(tape.theta) != 3 or not len(tape.context):
        checks.refuse("tape", "be the Tape of at least one round", checks.shown(tape))
    tape = checked_tape("tape", tape, np.shape(tape.theta)[1], np.shape(tape.context)[1], len(tape.context))
    if tape.carry_index >= 0:
        checks.refuse("tape", "hold finished contexts", "one in which past actions drive a feature")
    x, seen = tape.context, tape.context + tape.error
    n, d = x.shape
    k = tape.theta.shape[-2]
    w = sqrt(d) * seen
    grams = np.cumsum(d * x[:, :, None] * x[:, None, :], axis=0)[ceil(sqrt(n)) - 1 :]
    eigenvalues = np.linalg.eigvalsh(grams / np.arange(ceil(sqrt(n)), n + 1)[:, None, None])
    rewards = mean_rewards(tape) + tape.noise
    ratio = 0.0
    for a in range(k):
        for b in range(a):
            delta = np.broadcast_to(tape.theta[:, a] - tape.theta[:, b], (n, d))
            moved, gap = (np.abs(np.einsum("td,td->t", delta, v)) for v in (tape.error, x))
            if (moved > 0).any():
                ratio = max(ratio, float((moved[moved > 0] / np.maximum(gap[moved > 0], 1e-300)).max()))
    return Constants(
        dim=d,
        n_actions=k,
        largest_context=float(np.linalg.norm(seen, axis=1).max()),
        theta_bound=float(np.linalg.norm(tape.theta, axis=-1).max()),
        reward_bound=float(np.abs(rewards).max()),
        fourth_moment=_largest_fourth_moment(w),
        second_moment=float(np.linalg.eigvalsh(w.T @ w / n)[-1]),
        signal=float(eigenvalues[:, 0].min()) / k,
        error_ratio=ratio,
    )


def _largest_fourth_moment(w: Floats) -> float:
    """max over unit u of mean (u'w)⁴, by the power iteration u <- mean (u'w)³ w, which never decreases it, from every axis."""
    best = 0.0
    for u in np.linalg.eigh(w.T @ w)[1].T:
        for _ in range(50):
            u = ((w @ u) ** 3) @ w
            u = u / max(float(np.linalg.norm(u)), 1e-300)
        best = max(best, float(((w @ u) ** 4).mean()))
    return best


def least_propensity(t: int, known: Constants, *, C1: float = 1.0) -> float:
    """What Theorem 2.1 asks of q_t, the smallest probability so far: C1 max{d (d + log t) / (λ0 t), ξ (d + log t) / (λ0² t)}."""
    t = checks.integer("t", t, 1, 2**62)
    if not known.signal > 0:
        return inf
    d, grown = known.dim, known.dim + log(t)
    return C1 * max(d * grown / (known.signal * t), known.fourth_moment * grown / (known.signal**2 * t))


def estimation_bound(t: int, q: float, known: Constants, *, C: float = 1.0, deviation: float = 0.0) -> float:
    """Theorem 2.1: with probability 1 - 4K/t² every |θ̂_a - θ_a| is at most this, q the smallest probability so far.

    C (R + R_θ) d/λ0 max{(d + log t)/(q t), (√ν + √ξ)/√d √((d + log t)/(q t))}, and with an estimated Σe (App. F) another
    2 R_θ d/λ0 |Δ_t|, `deviation` being |Δ_t(a)|, the norm of the weighted mean error of Σ̂e so far.
    """
    t, q = checks.integer("t", t, 1, 2**62), checks.number("q", q, "be in (0, 1]", 1e-300, 1.0)
    if not known.signal > 0:
        return inf
    d, lam = known.dim, known.signal
    ratio = (d + log(t)) / (q * t)
    spread = (sqrt(known.second_moment) + sqrt(known.fourth_moment)) / sqrt(d)
    own = C * (known.reward_bound + known.theta_bound) * d / lam * max(ratio, spread * sqrt(ratio))
    return own + 2 * known.theta_bound * d / lam * deviation


def regret_from_errors(errors: ArrayLike, known: Constants, *, setting: str, floor: ArrayLike, warmup: int) -> float:
    """Theorem 2.2 (App. C for K actions): the regret that errors of estimation can cause at most.

    errors[t] is max_a |θ̂_a - θ_a| of the fit that round t + 1 reads (the latest one: so also App. E.4), floor the p0 of every round.
    standard: 2 T0 R_θ + 2/(1-ρ) Σ_{t > T0} [(K-1) p0(t) R_θ + error]; clipped: 2 T0 R_θ + 2 (1 - K p0)/(1-ρ) Σ_{t > T0} error.
    """
    checks.one_of("setting", setting, SETTINGS)
    warmup = checks.integer("warmup", warmup, 0, 2**62)
    k, rho, bound = known.n_actions, known.error_ratio, known.theta_bound
    if not rho < 1:
        return inf
    e = checks.floats("errors", errors, (None,))[warmup:]
    p0 = np.broadcast_to(np.asarray(floor, dtype=float), (warmup + e.size,))[warmup:]
    each = (k - 1) * p0 * bound + e if setting == "standard" else (1 - k * p0) * e
    return float(2 * warmup * bound + 2 / (1 - rho) * each.sum())


def regret_bound(
    horizon: int,
    known: Constants,
    *,
    setting: str,
    floor: float = 0.2,
    refit_share: float | None = None,
    deviations: float = 0.0,
    C: float = 1.0,
) -> float:
    """Corollary 2.1, for K actions: the regret of MEB with the schedules `standard` or `clipped`, with probability 1 - 8K/√T.

    With L = (√ν + √ξ + 1)(R + R_θ)/((1-ρ) λ0) √(1 + log T / d):
    standard: C d T^(2/3) {(K-1) R_θ/(1-ρ) + L};  clipped: C d T^(1/2) {R_θ + (1 - K p0) L/√p0}.
    `refit_share` is α of App. E.4, where the fit read in round t is never older than α t: R_θ/α joins the first term, L is divided by
    α^(1/3) or √α. `deviations` is Σ_t max_a |Δ_t(a)| of App. F, where Σe is estimated.
    """
    checks.one_of("setting", setting, SETTINGS)
    d, k, rho = known.dim, known.n_actions, known.error_ratio
    horizon, floor = checks.integer("horizon", horizon, 1, 2**62), _checked_floor(floor, k)
    if refit_share is not None:
        checks.number("refit_share", refit_share, "be in (0, 1]", 1e-300, 1.0)
    if not (rho < 1 and known.signal > 0):
        return inf
    alpha = 1.0 if refit_share is None else float(refit_share)
    late = 0.0 if refit_share is None else known.theta_bound / alpha
    spread = (sqrt(known.second_moment) + sqrt(known.fourth_moment) + 1) * (known.reward_bound + known.theta_bound)
    L = spread / ((1 - rho) * known.signal) * sqrt(1 + log(horizon) / d)
    estimated = 4 * known.theta_bound * d / ((1 - rho) * known.signal) * deviations
    if setting == "standard":
        inner = late + (k - 1) * known.theta_bound / (1 - rho) + L / cbrt(alpha)
        return C * d * cbrt(horizon) ** 2 * inner + estimated
    inner = (late or known.theta_bound) + (1 - k * floor) * L / sqrt(alpha * floor)
    return C * d * sqrt(horizon) * inner + (1 - k * floor) * estimated


def least_horizon(horizon: int, known: Constants, *, setting: str, floor: float = 0.2, refit_share: float = 1.0, C: float = 1.0) -> float:
    """What Corollary 2.1 asks T to exceed (C is the paper's C'; α of App. E.4 divides it).

    standard: C max{(1 + λ0^(-9/4)) (d + log T)³, (ξ/λ0)^(9/4) (d + log T)^(4/3)};
    clipped: C max{(d + log T)²/(λ0 p0)², ξ²/λ0⁴ (1 + log T / d)²}.
    """
    checks.one_of("setting", setting, SETTINGS)
    horizon, floor = checks.integer("horizon", horizon, 1, 2**62), _checked_floor(floor, known.n_actions)
    checks.number("refit_share", refit_share, "be in (0, 1]", 1e-300, 1.0)
    if not known.signal > 0:
        return inf
    d, lam, xi = known.dim, known.signal, known.fourth_moment
    grown = d + log(horizon)
    if setting == "standard":
        return C / refit_share * max((1 + pow(lam, -9 / 4)) * grown**3, pow(xi / lam, 9 / 4) * pow(grown, 4 / 3))
    return C / refit_share * max((grown / (lam * floor)) ** 2, (xi / lam**2 * grown / d) ** 2)


def _checked_floor(floor: float, n_actions: int) -> float:
    return checks.number("floor", floor, f"be in (0, 1/n_actions] = (0, {1 / n_actions:g}]", 1e-300, 1 / n_actions)
