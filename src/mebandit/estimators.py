"""From running sums to parameters: least squares, the naive correction, the paper's estimator, and method of moments in general.

For arm a, with weights w_t = 1{a_t = a} (ridge, naive) or 1{a_t = a} π^nd_t(a)/π_t(a) (meb), all of them solve

    (Σ w x̃x̃' + ridge I - C) θ_a = Σ w x̃ r

and differ in C: nothing (ridge); Σ 1{a_t = a} Σe,t (naive, eq. naive-estimator); Σ_t π^nd_t(a) Σe,t (meb, eq. proposed-estimator,
with an estimate in place of Σe,t also eq. proposed-estimator-estimated-Sigma). Two more are ours.

dr, doubly robust: the rounds in which arm a was not played say something about it too. With c_t = π^nd_t(a), u_t = 1{a_t = a}/π_t(a), z =
(1, x̃), β_a from least squares of r on z in the arm, and the pseudo-outcome y_t = z'β_a + u_t (r_t - z'β_a) for every round,

    (Σ c (x̃x̃' - Σe,t)) θ_a = Σ c x̃ y.

E[y_t | x_t, x̃_t] = ⟨θ_a, x_t⟩ whatever β_a is, because the propensities are known; a good β_a only makes it less variable.

rc, regression calibration: least squares of r on x̂_t, the best linear predictor of x_t (`mebandit.denoise`), in the arm. It needs no
propensities and varies least, and it is right where E[x | x̃] is linear, as for normal contexts; elsewhere it is biased.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import _kernels, checks
from mebandit.denoise import calibrated
from mebandit.moments import Moments, Rounds, add_rounds, check_rounds, zeros
from mebandit.values import Booleans, Floats, Integers

RECIPES = {
    "ridge": (_kernels.UNIT, _kernels.NO_CORRECTION),
    "naive": (_kernels.UNIT, _kernels.PLAYED),
    "meb": (_kernels.INVERSE, _kernels.OFFERED),
    "dr": (_kernels.PSEUDO, _kernels.PLAYED),
    "rc": (_kernels.PSEUDO, _kernels.PLAYED),
    "auto": (_kernels.PSEUDO, _kernels.PLAYED),
}
"""method -> how a round is weighted, what is taken out"""

READS = {"dr": _kernels.READS_ROBUST, "rc": _kernels.READS_CALIBRATED, "auto": _kernels.READS_BETTER}
"""which of their two fits a policy with these methods acts on"""

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
    fit[:, :p] = moments.cross
    for arm in range(k):
        _kernels.solve_arm(arm, ridge, correction, GUARDS[guard], moments.sums.ravel(), fit.ravel(), p, k, work)
    report = fit[:, p + size + _kernels.REPORT].astype(np.int64)
    kappa = fit[:, p + size + _kernels.KAPPA].copy()
    if (report == _kernels.SINGULAR).any():
        arm = int(np.argmax(report == _kernels.SINGULAR))
        raise _unidentified(arm, int(moments.rounds[arm]))
    taken = moments.played_error * kappa[:, None, None]
    plain = report == _kernels.SOLVED
    if correction == _kernels.OFFERED:
        taken[plain] = moments.offered_error[plain]
    return Fit(fit[:, :p].copy(), moments.gram + ridge * np.eye(p) - taken, report, kappa)


def _unidentified(arm: int, rounds: int) -> checks.SingularMoments:
    return checks.SingularMoments(
        f"theta of action {arm} must be identified by the data; got {rounds} rounds with that action, whose "
        f"Gram matrix is singular. Give more rounds, drop features that repeat others, or set ridge > 0."
    )


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
    `method` is "ridge", "naive", "meb", "dr" or "rc"; see the head of this file for the formulas. `stabilizer` is π^nd, (K,) or (T, K);
    a constant one cancels, one that differs between rounds weights them. `allowed` is (T, K); without it an action of propensity zero in
    (T, K) propensities was not allowed. `guard`: "auto" is the formula itself wherever its matrix is safely positive definite and Fuller's
    modification elsewhere, "always" the modification everywhere, "never" the bare formula. `unit` (T,) clusters the standard errors; those
    of "rc" leave out the uncertainty of the calibration.

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
    checks.one_of("method", method, METHODS)
    checks.one_of("guard", guard, GUARDS)
    ridge = checks.number("ridge", ridge, "be a number of at least 0", 0.0)
    intercept = checks.truth("intercept", intercept)
    rounds = check_rounds(predicted, actions, rewards, propensities, error_cov, n_actions=n_actions, allowed=allowed, stabilizer=stabilizer)
    counted = np.bincount(rounds.actions, minlength=n_actions).astype(float)
    if ridge == 0 and counted.min() == 0:
        raise _unidentified(int(counted.argmin()), 0)
    regression = _doubly_robust(rounds, n_actions) if method == "dr" else _by_arm(rounds, n_actions, method)
    p = rounds.predicted.shape[1] + bool(intercept)
    moments = zeros(n_actions, p)
    for part in regression.parts:
        moments = add_rounds(moments, part, weighting=regression.weighting, correction=regression.correction)
    fit = solve(moments, correction=regression.correction, ridge=ridge, guard=guard)
    covariance = _sandwich(fit, regression, clusters=_clusters(unit, rounds.rewards.size))
    return _assemble(fit, moments, covariance, method=method, intercept=intercept, counted=counted)


METHODS = ("ridge", "naive", "meb", "dr", "rc")


class Regression(NamedTuple):
    """A weighted regression for every arm, corrected for error: what is summed up, and what each round is to each arm."""

    parts: list[Rounds]
    weighting: int
    correction: int
    regressors: Floats
    """x̃, or x̂, (T, d)"""
    error_cov: Floats
    outcomes: Floats
    """what is regressed, (T, K): the reward, or a pseudo-outcome"""
    weights: Floats
    """w, (T, K)"""
    offered: Floats
    """π^nd(a) where a was allowed, (T, K): what multiplies Σe,t in the paper's correction"""


def _by_arm(rounds: Rounds, n_actions: int, method: str) -> Regression:
    """Every arm from the rounds in which it was played."""
    n = rounds.rewards.size
    if method == "rc":
        rounds = rounds._replace(predicted=calibrated(rounds.predicted, rounds.error_cov), error_cov=np.zeros_like(rounds.error_cov[:1]))
    weighting, correction = RECIPES["ridge" if method == "rc" else method]
    nd, played = _offered(rounds), rounds.actions[:, None] == np.arange(n_actions)
    weights = played * (nd / rounds.propensities[:, None] if weighting == _kernels.INVERSE else 1.0)
    outcomes = np.broadcast_to(rounds.rewards[:, None], (n, n_actions))
    return Regression([rounds], weighting, correction, rounds.predicted, rounds.error_cov, outcomes, weights, nd)


def _doubly_robust(rounds: Rounds, n_actions: int) -> Regression:
    """Every arm from all rounds in which it was allowed, with its pseudo-outcome."""
    n = rounds.rewards.size
    nd, z = _offered(rounds), np.hstack([np.ones((n, 1)), rounds.predicted])
    outcomes, parts = np.empty((n, n_actions)), []
    for a in range(n_actions):
        played = rounds.actions == a
        beta = np.linalg.lstsq(z[played], rounds.rewards[played], rcond=None)[0]
        guess = z @ beta
        outcomes[:, a] = guess + played / rounds.propensities * (rounds.rewards - guess)
        inside = nd[:, a] > 0
        parts.append(
            Rounds(
                predicted=rounds.predicted[inside],
                actions=np.full(inside.sum(), a),
                rewards=outcomes[inside, a],
                propensities=np.ones(inside.sum()),
                error_cov=rounds.error_cov[inside] if len(rounds.error_cov) > 1 else rounds.error_cov,
                allowed=np.ones((1, n_actions), dtype=np.bool_),
                stabilizer=nd[inside],
            )
        )
    return Regression(parts, _kernels.INVERSE, _kernels.PLAYED, rounds.predicted, rounds.error_cov, outcomes, nd, nd)


def _offered(rounds: Rounds) -> Floats:
    """π^nd_t(a) where a was allowed, else 0, (T, K)"""
    t = np.arange(rounds.rewards.size)
    return rounds.stabilizer[t % len(rounds.stabilizer)] * rounds.allowed[t % len(rounds.allowed)]


def solved_estimate(moments: Moments, *, method: str, ridge: float, guard: str, intercept: bool) -> Estimate:
    """The estimate from running sums alone; its covariance, which needs the rounds themselves, is NaN."""
    correction = _kernels.NO_CORRECTION if method == "rc" else RECIPES[method][1]
    fit = solve(moments, correction=correction, ridge=ridge, guard=guard)
    size = moments.n_actions * moments.n_features
    return _assemble(fit, moments, np.full((size, size), np.nan), method=method, intercept=intercept, counted=moments.rounds.copy())


def _assemble(fit: Fit, moments: Moments, covariance: Floats, *, method: str, intercept: bool, counted: Floats) -> Estimate:
    per_weight = fit.matrix / np.where(moments.weight > 0, moments.weight, 1.0)[:, None, None]
    return Estimate(
        theta=fit.theta[:, int(intercept) :],
        intercept=fit.theta[:, 0] if intercept else np.zeros(moments.n_actions),
        covariance=covariance,
        method=method,
        guarded=fit.report == _kernels.GUARDED,
        diagnostics={
            "rounds": counted,
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


def _sandwich(fit: Fit, regression: Regression, *, clusters: Integers | None) -> Floats:
    """A^-1 (Σ ψψ') A^-T with ψ_t = w x (x'θ - y) - s Σe,t θ, arms stacked; ψ summed within clusters first.

    s is what multiplies Σe,t in the matrix that was solved with: κ w, or π^nd(a) in the paper's own.
    """
    k, p = fit.theta.shape
    n, d = regression.regressors.shape
    z = regression.regressors if p == d else np.hstack([np.ones((n, 1)), regression.regressors])
    psi = np.empty((n, k, p))
    for a in range(k):
        w = regression.weights[:, a]
        s = fit.kappa[a] * w
        if regression.correction == _kernels.OFFERED and fit.report[a] == _kernels.SOLVED:
            s = regression.offered[:, a]
        psi[:, a] = (w * (z @ fit.theta[a] - regression.outcomes[:, a]))[:, None] * z
        psi[:, a, p - d :] -= s[:, None] * (regression.error_cov @ fit.theta[a, p - d :])
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
