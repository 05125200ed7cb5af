"""From running sums to parameters: least squares, the naive correction, the paper's estimator, and method of moments in general.

For arm a, with weights w_t = 1{a_t = a} (ridge, naive) or 1{a_t = a} π^nd_t(a)/π_t(a) (meb), all of them solve

    (Σ w x̃x̃' + ridge I - C) θ_a = Σ w x̃ r

and differ in C: nothing (ridge); Σ 1{a_t = a} Σe,t (naive, eq. naive-estimator); Σ_t π^nd_t(a) Σe,t (meb, eq. proposed-estimator,
with an estimate in place of Σe,t also eq. proposed-estimator-estimated-Sigma).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import _kernels, checks
from mebandit.moments import Moments, Rounds, add_rounds, check_rounds, zeros
from mebandit.values import Booleans, Floats, Integers

RECIPES = {
    "ridge": (_kernels.UNIT, _kernels.NO_CORRECTION),
    "naive": (_kernels.UNIT, _kernels.PLAYED),
    "meb": (_kernels.INVERSE, _kernels.OFFERED),
}
"""method -> how a round is weighted, what is taken out"""

GUARDS = {"auto": _kernels.GUARD_AUTO, "always": _kernels.GUARD_ALWAYS, "never": _kernels.GUARD_NEVER}


class Fit(NamedTuple):
    """What the solver found for each arm."""

    theta: Floats
    """(K, p), the intercept first if there is one"""
    matrix: Floats
    """the matrix that was solved with, (K, p, p)"""
    report: Integers
    """`_kernels.SOLVED`, `GUARDED` or `SINGULAR`, (K,)"""
    kappa: Floats
    """the share of the error covariance that was taken out, (K,)"""


def solve(moments: Moments, *, correction: int, ridge: float = 0.0, guard: str = "auto") -> Fit:
    """Solve for every arm from running sums; see the head of this file, and `mebandit.estimate` for arrays."""
    k, p = moments.n_actions, moments.n_features
    size = p * (p + 1) // 2
    fit = np.zeros((k, _kernels.fit_width(p)))
    work = np.empty(_kernels.work_size(k, p))
    for arm in range(k):
        _kernels.solve_arm(arm, ridge, correction, GUARDS[guard], moments.sums.ravel(), fit.ravel(), p, k, work)
    report = fit[:, p + size + _kernels.REPORT].astype(np.int64)
    kappa = fit[:, p + size + _kernels.KAPPA].copy()
    if (report == _kernels.SINGULAR).any():
        arm = int(np.argmax(report == _kernels.SINGULAR))
        raise checks.SingularMoments(
            f"theta of action {arm} must be identified by the data; got {int(moments.rounds[arm])} rounds with that action, whose "
            f"Gram matrix is singular. Give more rounds, drop features that repeat others, or set ridge > 0."
        )
    taken = moments.played_error * kappa[:, None, None]
    plain = report == _kernels.SOLVED
    if correction == _kernels.OFFERED:
        taken[plain] = moments.offered_error[plain]
    return Fit(fit[:, :p].copy(), moments.gram + ridge * np.eye(p) - taken, report, kappa)


@dataclass(frozen=True)
class Contrast:
    """The difference θ_a - θ_b with its standard error, each (d,)."""

    theta: Floats
    std_error: Floats

    def interval(self, level: float = 0.95) -> Floats:
        """Normal confidence intervals, (d, 2)."""
        return _interval(self.theta, self.std_error, level)


@dataclass(frozen=True)
class Estimate:
    """Reward parameters for every arm, how sure they are, and how they were found."""

    theta: Floats
    """θ, (K, d)"""
    intercept: Floats
    """the reward at context zero, (K,); zero unless it was fitted"""
    covariance: Floats
    """of all fitted coefficients, arms stacked, (K p, K p) with p = d, or d + 1 with the intercept first"""
    method: str
    guarded: Booleans
    """whether the guard stepped in, (K,): there the paper's matrix was not safely positive definite"""
    diagnostics: dict[str, Floats]
    """by arm: `rounds` played, `n_effective`, `smallest_eigenvalue` of the corrected Gram per unit weight, `kappa`"""

    @property
    def std_error(self) -> Floats:
        """Sandwich standard errors of θ, valid when earlier rounds decided later ones, (K, d)"""
        k, d = self.theta.shape
        return np.sqrt(np.diag(self.covariance)).reshape(k, -1)[:, -d:]

    def interval(self, level: float = 0.95) -> Floats:
        """Normal confidence intervals for θ, (K, d, 2)."""
        return _interval(self.theta, self.std_error, level)

    def contrast(self, a: int, b: int) -> Contrast:
        """θ_a - θ_b: what arm a does more than arm b."""
        k, d = self.theta.shape
        a, b = checks.integer("a", a, 0, k - 1), checks.integer("b", b, 0, k - 1)
        blocks = self.covariance.reshape(k, self.covariance.shape[0] // k, k, -1)[:, -d:, :, -d:]
        spread = blocks[a, :, a] + blocks[b, :, b] - blocks[a, :, b] - blocks[b, :, a]
        return Contrast(self.theta[a] - self.theta[b], np.sqrt(np.maximum(np.diag(spread), 0.0)))


def _interval(center: Floats, std_error: Floats, level: float) -> Floats:
    level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    half = _kernels.normal_quantile(0.5 + level / 2) * std_error
    return np.stack([center - half, center + half], axis=-1)


def estimate(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike,
    *,
    n_actions: int = 2,
    method: str = "meb",
    ridge: float = 0.0,
    intercept: bool = False,
    stabilizer: ArrayLike | None = None,
    allowed: ArrayLike | None = None,
    guard: str = "auto",
    unit: ArrayLike | None = None,
) -> Estimate:
    """Reward parameters of every arm from a log of rounds in which the context was predicted with error.

    predicted is (T, d), actions and rewards (T,); propensities are those the actions were drawn with, (T,) for the chosen
    action or (T, K) for all; error_cov is Σe, (d, d), or Σe,t by round, (T, d, d), known or estimated (Sec. 2.4).
    `method` is "ridge", "naive" or "meb"; see the head of this file for the formulas. `stabilizer` is π^nd, (K,) or (T, K);
    a constant one cancels. `allowed` is (T, K); without it an action of propensity zero in (T, K) propensities was not allowed.
    `guard`: "auto" is the formula itself wherever its matrix is safely positive definite and Fuller's modification elsewhere,
    "always" the modification everywhere, "never" the bare formula. `unit` (T,) clusters the standard errors.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(1, 1, (20_000, 1))
    >>> actions = rng.integers(0, 2, 20_000)
    >>> rewards = np.where(actions == 1, 2.0, -1.0) * x[:, 0]
    >>> noisy = x + rng.normal(0, 0.7, x.shape)
    >>> estimate(noisy, actions, rewards, np.full(20_000, 0.5), 0.49, method="ridge").theta.round(1).ravel()
    array([-0.8,  1.6])
    >>> estimate(noisy, actions, rewards, np.full(20_000, 0.5), 0.49).theta.round(1).ravel()
    array([-1.,  2.])
    """
    weighting, correction = RECIPES[checks.one_of("method", method, RECIPES)]
    checks.one_of("guard", guard, GUARDS)
    ridge = checks.number("ridge", ridge, "be a number of at least 0", 0.0)
    intercept = checks.truth("intercept", intercept)
    rounds = check_rounds(predicted, actions, rewards, propensities, error_cov, n_actions=n_actions, allowed=allowed, stabilizer=stabilizer)
    moments = add_rounds(zeros(n_actions, rounds.predicted.shape[1] + bool(intercept)), rounds, weighting=weighting, correction=correction)
    fit = solve(moments, correction=correction, ridge=ridge, guard=guard)
    clusters = _clusters(unit, rounds.rewards.size)
    covariance = _sandwich(fit, rounds, weighting=weighting, correction=correction, clusters=clusters)
    return _assemble(fit, moments, covariance, method=method, intercept=intercept)


def solved_estimate(moments: Moments, *, method: str, ridge: float, guard: str, intercept: bool) -> Estimate:
    """The estimate from running sums alone; its covariance, which needs the rounds themselves, is NaN."""
    fit = solve(moments, correction=RECIPES[method][1], ridge=ridge, guard=guard)
    size = moments.n_actions * moments.n_features
    return _assemble(fit, moments, np.full((size, size), np.nan), method=method, intercept=intercept)


def _assemble(fit: Fit, moments: Moments, covariance: Floats, *, method: str, intercept: bool) -> Estimate:
    per_weight = fit.matrix / np.where(moments.weight > 0, moments.weight, 1.0)[:, None, None]
    return Estimate(
        theta=fit.theta[:, int(intercept) :],
        intercept=fit.theta[:, 0] if intercept else np.zeros(moments.n_actions),
        covariance=covariance,
        method=method,
        guarded=fit.report == _kernels.GUARDED,
        diagnostics={
            "rounds": moments.rounds.copy(),
            "n_effective": moments.n_effective,
            "smallest_eigenvalue": np.linalg.eigvalsh(per_weight)[:, 0].astype(np.float64),
            "kappa": fit.kappa,
        },
    )


def _clusters(unit: ArrayLike | None, n_rounds: int) -> Integers | None:
    if unit is None:
        return None
    labels = np.asarray(unit)
    if labels.shape != (n_rounds,):
        checks.refuse("unit", f"have shape ({n_rounds},)", f"shape {labels.shape}")
    try:
        units, index = np.unique(labels, return_inverse=True)
    except TypeError:
        checks.refuse("unit", "be labels of one type", checks.shown(labels))
    if units.size < 2:
        checks.refuse("unit", "name at least two units", f"{units.size}", "One cluster says nothing about the spread between clusters.")
    return index.astype(np.int64)


def _sandwich(fit: Fit, rounds: Rounds, *, weighting: int, correction: int, clusters: Integers | None) -> Floats:
    """A^-1 (Σ ψψ') A^-T with ψ_t = w z (z'θ - r) - s Σe,t θ, arms stacked; ψ summed within clusters first.

    s is what multiplies Σe,t in the matrix that was solved with: κ w for the rounds played, π^nd(a) for those offered.
    """
    k, p = fit.theta.shape
    n, d = rounds.predicted.shape
    t = np.arange(n)
    z = rounds.predicted if p == d else np.hstack([np.ones((n, 1)), rounds.predicted])
    stabilizer = rounds.stabilizer[t % len(rounds.stabilizer)]
    psi = np.empty((n, k, p))
    for a in range(k):
        played = rounds.actions == a
        w = played * (stabilizer[:, a] / rounds.propensities if weighting == _kernels.INVERSE else 1.0)
        s = fit.kappa[a] * w
        if correction == _kernels.OFFERED and fit.report[a] == _kernels.SOLVED:
            s = stabilizer[:, a] * rounds.allowed[t % len(rounds.allowed), a]
        psi[:, a] = (w * (z @ fit.theta[a] - rounds.rewards))[:, None] * z
        psi[:, a, p - d :] -= s[:, None] * (rounds.error_cov @ fit.theta[a, p - d :])
    stacked = psi.reshape(n, k * p)
    if clusters is not None:
        totals = np.zeros((clusters.max() + 1, k * p))
        np.add.at(totals, clusters, stacked)
        stacked = totals
    bread = np.zeros((k, p, k, p))
    for a in range(k):
        bread[a, :, a] = np.linalg.inv(fit.matrix[a])
    flat = bread.reshape(k * p, k * p)
    return flat @ (stacked.T @ stacked) @ flat.T


def estimate_moments(
    functions: Sequence[Callable[[Floats, Floats], Floats]],
    solve: Callable[..., Any],
    *,
    context: ArrayLike,
    actions: ArrayLike,
    outcome: ArrayLike,
    propensities: ArrayLike,
    action: int,
    n_actions: int = 2,
    stabilizer: ArrayLike | None = None,
) -> Any:
    """The off-policy method of moments of App. D.3: φ(mean of W f_1(X, Y), ..., mean of W f_m(X, Y)) for one action.

    `functions` are f_1, ..., f_m: each takes the contexts (n, d) and the outcomes (n,) of the rounds in which the action was
    taken and returns one row (a number or an array) per round. `solve` is φ and takes the m weighted means.
    W_t = 1{A_t = a} π^nd(a) / π_t(A_t), divided here by π^nd(a) so that the means are those of the outcome under action a.
    A (T, K) stabilizer weights the rounds; a constant one cancels. Rounds in which the action was not allowed (propensity zero in
    (T, K) propensities) say nothing about it and are left out.

    >>> import numpy as np
    >>> x, y = np.array([[1.0], [2.0], [3.0]]), np.array([2.0, 4.0, 6.0])
    >>> ratio = lambda xy, xx: xy / xx
    >>> float(estimate_moments([lambda x, y: x[:, 0] * y, lambda x, y: x[:, 0] ** 2], ratio,
    ...     context=x, actions=[1, 1, 1], outcome=y, propensities=[0.5, 0.5, 0.9], action=1))
    2.0
    """
    rounds = check_rounds(context, actions, outcome, propensities, 0.0, n_actions=n_actions, stabilizer=stabilizer)
    action = checks.integer("action", action, 0, n_actions - 1)
    t = np.arange(rounds.rewards.size)
    nd = rounds.stabilizer[t % len(rounds.stabilizer), action] * rounds.allowed[t % len(rounds.allowed), action]
    played = rounds.actions == action
    if not played.any():
        raise checks.SingularMoments(f"action {action} must have been taken, for its moments to be known; got no round with it.")
    w = (nd / rounds.propensities)[played] / nd.sum()
    x, y = rounds.predicted[played], rounds.rewards[played]
    means = []
    for i, f in enumerate(functions):
        values = np.asarray(f(x, y), dtype=float)
        if values.shape[:1] != (len(y),):
            checks.refuse(f"functions[{i}]", f"return one row for each of the {len(y)} rounds", f"shape {values.shape}")
        means.append(np.tensordot(w, values, axes=1))
    return solve(*means)
