"""From running sums to parameters: least squares, the naive correction, the paper's estimator, and method of moments in general.

For arm a, with weights w_t = 1{a_t = a} (ridge, naive) or 1{a_t = a} π^nd_t(a)/π_t(a) (meb), all of them solve

    (Σ w x̃x̃' + ridge I - C) θ_a = Σ w x̃ r

and differ in C: nothing (ridge); Σ 1{a_t = a} Σe,t (naive, eq. naive-estimator); Σ_t π^nd_t(a) Σe,t (meb, eq. proposed-estimator,
with an estimate in place of Σe,t also eq. proposed-estimator-estimated-Sigma). Two more are ours.

dr, doubly robust: the rounds in which arm a was not played say something about it too. With c_t = π^nd_t(a), u_t = 1{a_t = a}/π_t(a), z =
(1, x̃), β_a from least squares of r on z in the arm, and the pseudo-outcome y_t = z'β_a + u_t (r_t - z'β_a) for every round,

    (Σ c (x̃x̃' - Σe,t)) θ_a = Σ c x̃ y.

E[y_t | x_t, x̃_t] = ⟨θ_a, x_t⟩ whatever β_a is, because the propensities are known; a good β_a only makes it less variable.

rc, regression calibration: least squares of r on x̂_t, the best linear predictor of x_t (`estimation.best_linear`), in the arm. It needs no
propensities and varies least, and it is right where E[x | x̃] is linear, as for normal contexts; elsewhere it is biased.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.estimation.best_linear import Calibration, calibration
from mebandit.estimation.correction import Correction
from mebandit.estimation.moments import Crossproducts, Moments, Rounds, check_rounds, crossproducts, pack, triangle, unpack
from mebandit.estimation.nuisance import NO_LEVER, Lever, LeverSums, constant_lever, lever_of
from mebandit.kernels import layout
from mebandit.measurement import ErrorModel, warn_if_berkson
from mebandit.values import Booleans, Floats, Integers

RECIPES = {
    "ridge": (layout.UNIT, layout.NO_CORRECTION),
    "naive": (layout.UNIT, layout.PLAYED),
    "meb": (layout.INVERSE, layout.OFFERED),
    "dr": (layout.PSEUDO, layout.PLAYED),
    "rc": (layout.PSEUDO, layout.PLAYED),
    "auto": (layout.PSEUDO, layout.PLAYED),
}
"""method -> how a round is weighted, what is taken out"""

READS = {"dr": layout.READS_ROBUST, "rc": layout.READS_CALIBRATED, "auto": layout.READS_BETTER}
"""which of their two fits a policy with these methods acts on"""

GUARDS = {"auto": layout.GUARD_AUTO, "always": layout.GUARD_ALWAYS, "never": layout.GUARD_NEVER}


class Fit(NamedTuple):
    """What the solver found for each arm."""

    theta: Floats
    """(K, p), the intercept first if there is one"""
    matrix: Floats
    """the matrix that was solved with, (K, p, p)"""
    report: Integers
    """`layout.SOLVED`, `GUARDED` or `SINGULAR`, (K,)"""
    kappa: Floats
    """the share of the error covariance that was taken out, (K,)"""

    @property
    def inverses(self) -> dict[int, Floats]:
        """of the matrices, by arm, where there is a solution"""
        return {int(a): _inverse(self.matrix[a]) for a in np.flatnonzero(self.report != layout.SINGULAR)}


def _inverse(matrix: Floats) -> Floats:
    """NaN where there is none."""
    try:
        return np.asarray(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def solve(
    moments: Moments, *, correction: int, ridge: float = 0.0, guard: str = "auto", strict: bool = True, origin: Floats | None = None
) -> Fit:
    """Solve for every arm from running sums; see the head of this file, and `mebandit.estimate` for arrays.

    Where there is no solution, that is an error if `strict`, else NaN. `origin` are the Gram matrices (K, p, p) that those of the sums were
    made from, where they were: it is their rounding that must not decide.
    """
    moments.check()
    k, p = moments.n_actions, moments.n_features
    size = p * (p + 1) // 2
    fit = np.zeros((k, kernels.fit_width(p)))
    work, aside = np.empty(kernels.work_size(k, p)), np.empty(kernels.aside_size(p))
    fit[:, :p], sums = moments.cross, np.array(moments.sums, order="C").ravel()
    for arm in range(k):
        kernels.solve_once(arm, ridge, correction, GUARDS[guard], sums, fit.ravel(), p, k, work, aside)
    report = fit[:, p + size + layout.REPORT].astype(np.int64)
    kappa = fit[:, p + size + layout.KAPPA].copy()
    taken = moments.played_error * kappa[:, None, None]
    plain = report == layout.SOLVED
    if correction == layout.OFFERED:
        taken[plain] = moments.offered_error[plain]
    matrix = moments.gram + ridge * np.eye(p) - taken
    if guard == "never" or origin is not None:  # elimination then stops at an exact zero only, or knows nothing of the rounding
        report[_is_singular(matrix, (moments.gram if origin is None else origin) + ridge * np.eye(p))] = layout.SINGULAR
    singular = report == layout.SINGULAR
    if singular.any() and strict:
        arm = int(np.argmax(singular))
        raise _unidentified(arm, int(moments.rounds[arm]))
    fit[singular, :p] = np.nan
    return Fit(fit[:, :p].copy(), matrix, report, kappa)


def _is_singular(matrix: Floats, gram: Floats) -> Booleans:
    """Whether rounding alone keeps matrices (K, p, p) from being singular, in the units in which the diagonal of `gram` is 1, or theirs
    where that is larger."""
    diagonal = np.maximum(np.einsum("kii->ki", gram), np.einsum("kii->ki", matrix))
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = matrix / size[:, :, None] / size[:, None, :]
    lost = np.asarray(~np.isfinite(scaled).all(axis=(1, 2)))
    values = np.abs(np.linalg.eigvalsh(np.where(lost[:, None, None], 0.0, scaled)))
    return np.asarray(values.min(axis=1) <= 1e-13 * np.maximum(values.max(axis=1), 1.0))


def _unidentified(arm: int, rounds: int) -> checks.SingularMoments:
    return checks.SingularMoments(
        f"theta of action {arm} must be identified by the data; got {rounds} rounds with that action, whose "
        f"Gram matrix is singular. Give more rounds, drop features that repeat others, or set ridge > 0."
    )


@dataclass(frozen=True)
class Contrast:
    """The difference θ_a - θ_b with its standard error, each (d,), and that of the intercepts, zero unless they were fitted."""

    theta: Floats
    std_error: Floats
    intercept: float = 0.0
    intercept_std_error: float = 0.0

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
    model_covariance: Floats | None = None
    """the part of `covariance` that comes from an estimated error model: more rounds do not make it smaller"""

    @property
    def has_intercept(self) -> bool:
        """Whether intercepts were fitted."""
        return len(self.covariance) > self.theta.size

    @property
    def std_error(self) -> Floats:
        """Sandwich standard errors of θ, valid when earlier rounds decided later ones, (K, d)"""
        return self._std_errors[:, -self.theta.shape[1] :]

    @property
    def intercept_std_error(self) -> Floats:
        """Of the intercepts, (K,); zero unless they were fitted"""
        return self._std_errors[:, 0] if self.has_intercept else np.zeros(len(self.theta))

    @property
    def _std_errors(self) -> Floats:
        """Of all fitted coefficients, (K, p); a variance that rounding made negative is 0."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0)).reshape(len(self.theta), -1)

    def interval(self, level: float = 0.95) -> Floats:
        """Normal confidence intervals for θ, (K, d, 2)."""
        return _interval(self.theta, self.std_error, level)

    def contrast(self, a: int, b: int) -> Contrast:
        """θ_a - θ_b: what arm a does more than arm b."""
        k, d = self.theta.shape
        a, b = checks.integer("a", a, 0, k - 1), checks.integer("b", b, 0, k - 1)
        blocks = self.covariance.reshape(k, self.covariance.shape[0] // k, k, -1)
        spread = blocks[a, :, a] + blocks[b, :, b] - blocks[a, :, b] - blocks[b, :, a]
        error = np.sqrt(np.maximum(np.diag(spread), 0.0))
        level, level_error = self.intercept[a] - self.intercept[b], error[0] if self.has_intercept else 0.0
        return Contrast(self.theta[a] - self.theta[b], error[-d:], float(level), float(level_error))


def _interval(center: Floats, std_error: Floats, level: float) -> Floats:
    level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    half = kernels.normal_quantile(0.5 + level / 2) * std_error
    return np.stack([center - half, center + half], axis=-1)


def estimate(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike | ErrorModel,
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
    action or (T, K) for all; error_cov is Σe, (d, d), or Σe,t by round, (T, d, d), known or estimated (Sec. 2.4), or an `ErrorModel`, whose
    own uncertainty is then part of the standard errors.
    `method` is "ridge", "naive", "meb", "dr" or "rc"; see the head of this file for the formulas. `stabilizer` is π^nd, (K,) or (T, K);
    a constant one cancels, one that differs between rounds weights them. `allowed` is (T, K); without it an action of propensity zero in
    (T, K) propensities was not allowed. `guard`: "auto" is the formula itself wherever its matrix is safely positive definite and Fuller's
    modification elsewhere, "always" the modification everywhere, "never" the bare formula. `unit` (T,) clusters the standard errors.

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
    options = Options(
        ridge=checks.number("ridge", ridge, "be a number of at least 0", 0.0),
        intercept=checks.truth("intercept", intercept),
        guard=checks.one_of("guard", guard, GUARDS),
    )
    model, given = (error_cov, error_cov.error_cov) if isinstance(error_cov, ErrorModel) else (None, error_cov)
    names = list(getattr(predicted, "column_names", getattr(predicted, "columns", [])))  # of a table
    if model is not None and names and all(isinstance(name, str) for name in names):
        model.check_features("error_cov", names)
    rounds = check_rounds(predicted, actions, rewards, propensities, given, n_actions=n_actions, allowed=allowed, stabilizer=stabilizer)
    return estimates_of(rounds, n_actions, (method,), options, model=model, clusters=_clusters(unit, rounds.rewards.size))[method]


METHODS = ("ridge", "naive", "meb", "dr", "rc")
PREFERRED = ("dr", "meb", "rc", "naive", "ridge")
"""methods in the order in which one would read them"""


class Options(NamedTuple):
    """How every method is solved."""

    ridge: float = 0.0
    intercept: bool = False
    guard: str = "auto"


def estimates_of(
    rounds: Rounds,
    n_actions: int,
    methods: Sequence[str],
    options: Options,
    *,
    model: ErrorModel | None = None,
    clusters: Integers | None = None,
    strict: bool = True,
) -> dict[str, Estimate]:
    """The estimates of several methods from rounds in memory; `mebandit.fit` takes the same steps through a log that need not be."""
    with of_usable_sizes():
        found = _estimates_of(rounds, n_actions, methods, options, model, clusters, strict)
    if strict and not all(np.isfinite(estimate.covariance).all() for estimate in found.values()):
        raise checks.SingularMoments(TOO_FAR_APART.format("standard errors that are not finite"))
    return found


TOO_FAR_APART = (
    "the numbers of a log must be of sizes that can be computed with together; got {}. Measure features and rewards in units in which they "
    "are neither very large nor very small."
)


@contextmanager
def of_usable_sizes() -> Iterator[None]:
    """Say in a sentence that numbers have left the floating-point range on the way to an estimate."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except np.linalg.LinAlgError as error:
        raise checks.SingularMoments(TOO_FAR_APART.format("matrices that are not finite")) from error


def _estimates_of(
    rounds: Rounds,
    n_actions: int,
    methods: Sequence[str],
    options: Options,
    model: ErrorModel | None,
    clusters: Integers | None,
    strict: bool,
) -> dict[str, Estimate]:
    """The steps of `estimates_of`."""
    varying = len(rounds.errors) > 1
    raw = crossproducts(rounds, n_actions, varying=varying)
    correction = Correction(unpack(rounds.errors[0], len(rounds.predicted)), varying, model).settled(raw)
    products, ready = correction.unbiased(raw), correction.ready(rounds)
    if model is not None and set(methods) != {"ridge"}:
        warn_if_berkson(model, second_moment(products, options.intercept))
    constant = None if varying else correction.mean_cov
    calibrated = calibrated_products(ready, calibration_of(products, None), n_actions) if "rc" in methods and varying else None
    solution = solve_log(products, methods, error_cov=constant, calibrated=calibrated, options=options, strict=strict)
    if solution.lacks_lever:
        solution = solution.with_lever(solution.lever_sums(ready), products)
    scores = solution.no_scores(0 if clusters is None else int(clusters.max()) + 1)
    solution.add_scores(scores, ready, clusters)
    return with_model_uncertainty(solution, scores, raw, correction)


def second_moment(products: Crossproducts, intercept: bool) -> Floats:
    """The mean of x̃x̃', or, where an intercept takes out the mean, the covariance of x̃, (d, d)."""
    sums = products.full[0].sum(axis=0)
    sums = sums / max(sums[0, 0], 1.0)
    return np.asarray(sums[1:-1, 1:-1] - (np.outer(sums[0, 1:-1], sums[0, 1:-1]) if intercept else 0.0))


def calibration_of(products: Crossproducts, error_cov: Floats | None) -> Calibration:
    """What x̂ is computed with, from the crossproducts of a log."""
    return calibration(*products.mean_and_cov, products.mean_error(error_cov))


def calibrated_products(rounds: Rounds, calibration: Calibration, n_actions: int) -> Crossproducts:
    """The crossproducts of a log with x̂ in the place of x̃."""
    seen = calibration.apply(rounds.predicted, rounds.errors)
    return crossproducts(rounds._replace(predicted=seen, errors=np.zeros((1, rounds.errors.shape[1]))), n_actions, varying=False)


def normal_equations(products: Crossproducts, method: str, *, error_cov: Floats | None, intercept: bool, beta: Floats) -> Moments:
    """Running sums from which `solve` finds a method's θ, see the head of this file; for "rc", `products` are those of x̂."""
    unit, weighted, twice, offered = products.full
    errors = products.weighted_errors(error_cov)
    if method == "meb":
        return _as_moments(weighted, products.squares[0], errors[1], errors[2], products.rounds, intercept)
    if method == "dr":
        return _as_moments(_robust(weighted, twice, offered, beta), products.squares[1], errors[2], errors[2], products.rounds, intercept)
    return _as_moments(unit, products.rounds, errors[0], errors[0], products.rounds, intercept)


def _robust(weighted: Floats, twice: Floats, offered: Floats, beta: Floats) -> Floats:
    """Σ c vv' with the pseudo-outcome y = z'β + u (r - z'β) in the place of r, (K, d + 2, d + 2), z = (1, x̃).

    Σ c z y = O β + Σ c u z (r - z'β) and Σ c y² = β'O β + 2 β'Σ c u z (r - z'β) + Σ c u² (r - z'β)², O = Σ c zz' over all rounds.
    """
    tables = offered.copy()
    fitted = np.einsum("kij,kj->ki", offered[:, :-1, :-1], beta)
    left = weighted[:, :-1, -1] - np.einsum("kij,kj->ki", weighted[:, :-1, :-1], beta)
    residual = np.hstack([-beta, np.ones((len(beta), 1))])
    squared = np.einsum("ki,kij,kj->k", residual, twice, residual)
    tables[:, :-1, -1] = tables[:, -1, :-1] = fitted + left
    tables[:, -1, -1] = np.einsum("ki,ki->k", beta, fitted + 2 * left) + squared
    return tables


def outcome_regressions(products: Crossproducts) -> Floats:
    """β_a: least squares of r on z = (1, x̃) in the rounds of each action, (K, d + 1); of several solutions one of least length."""
    unit = products.full[0]
    beta = np.zeros((products.n_actions, products.dim + 1))
    for a, table in enumerate(unit):
        n = table[0, 0]
        if n > 0:
            mean, r = table[0, 1:-1] / n, table[0, -1] / n
            cov, cross = table[1:-1, 1:-1] / n - np.outer(mean, mean), table[1:-1, -1] / n - mean * r
            still = np.diag(cov) <= 1e-13 * mean**2  # which is what rounding makes of 0
            cov[still], cov[:, still], cross[still] = 0.0, 0.0, 0.0
            scale = calibration(mean, cov, np.zeros_like(cov)).scale
            slope = np.linalg.pinv(cov / np.outer(scale, scale), rcond=1e-10, hermitian=True) @ (cross / scale) / scale
            beta[a] = np.append(r - mean @ slope, slope)
    return beta


def _as_moments(tables: Floats, squares: Floats, errors: Floats, offered: Floats, counts: Floats, intercept: bool) -> Moments:
    """Sums of vv', v = (1, x̃, r), as rows of running sums, with or without the 1 among the features."""
    k, first = len(tables), 0 if intercept else 1
    features = slice(first, -1)
    pad = ((0, 0), (int(intercept), 0), (int(intercept), 0))
    played, available = (pack(np.pad(matrix, pad)) for matrix in (errors, offered))
    head = np.column_stack([counts, tables[:, 0, 0], squares, tables[:, 0, features], pack(tables[:, features, features])])
    rows = np.hstack([head, played, tables[:, 0, -1:], tables[:, -1, -1:], tables[:, features, -1]])
    sums = np.zeros((2 * k + 1, rows.shape[1]))
    sums[:k] = rows
    sums[k : 2 * k, head.shape[1] : head.shape[1] + played.shape[1]] = available
    return Moments(sums, k, tables.shape[1] - 1 - first)


def solve_log(
    products: Crossproducts,
    methods: Sequence[str],
    *,
    error_cov: Floats | None,
    options: Options,
    calibrated: Crossproducts | None = None,
    strict: bool = True,
) -> "Solution":
    """θ by every method from the crossproducts of a log.

    `error_cov` is Σe where it is one for all rounds, None where the crossproducts hold what varied; then "rc" needs the crossproducts of
    x̂ too, `calibrated`, since they are no function of those of x̃.
    """
    if options.ridge == 0 and products.rounds.min() == 0:
        raise _unidentified(int(products.rounds.argmin()), 0)
    if strict:
        check_digits(products)
    prepared = calibration_of(products, error_cov)
    beta = outcome_regressions(products) if "dr" in methods else np.zeros((products.n_actions, products.dim + 1))
    equations = partial(normal_equations, error_cov=error_cov, intercept=options.intercept, beta=beta)
    moments, fits = {}, {}
    to_calibrated = _calibrating(prepared, error_cov) if "rc" in methods and error_cov is not None else np.empty((0, 0))
    for method in methods:
        given = products
        if method == "rc" and error_cov is not None:
            given = products.mapped(to_calibrated)
        elif method == "rc" and calibrated is not None:
            given = calibrated
        moments[method] = equations(given, method)
        correction = layout.NO_CORRECTION if method == "rc" else RECIPES[method][1]
        fits[method] = solve(
            moments[method],
            correction=correction,
            ridge=options.ridge,
            guard=options.guard,
            strict=strict,
            origin=None if given is products else equations(products, method).gram,
        )
    lever = NO_LEVER
    if "rc" in fits and error_cov is not None:
        lever = constant_lever(products, prepared, to_calibrated, error_cov, fits["rc"].theta)
    scoring = Scoring(
        weighting=np.array([layout.UNIT if method == "rc" else RECIPES[method][0] for method in fits]),
        theta=np.stack([fit.theta for fit in fits.values()]),
        kappa=np.stack([fit.kappa for fit in fits.values()]),
        plain=np.stack([(fit.report == layout.SOLVED) & (method == "meb") for method, fit in fits.items()]),
        beta=beta,
        calibrated=np.array([method == "rc" for method in fits]),
        to_calibrated=np.ascontiguousarray(to_calibrated[1:-1, :-1]),
        lever=lever,
    )
    return Solution(moments, fits, prepared, scoring, products.rounds.copy(), options)


LOST = 1e-4
"""the relative error of a corrected Gram matrix from rounding alone beyond which nothing is estimated"""


def digits_lost(products: Crossproducts) -> Floats:
    """How large rounding is beside the spread of each feature, (d,): about 2e-16 (m/s)² in the Gram matrix and 2e-16 (m/s)(m_r/s_r) in its
    products with the reward, with the mean m and standard deviation s of a feature, m_r and s_r of the reward. Constants lose nothing."""
    sums = products.full[0].sum(axis=0)
    n = max(sums[0, 0], 1.0)
    mean = sums[0, 1:] / n
    variance = np.diag(sums)[1:] / n - mean**2
    ratio = np.abs(mean) / np.sqrt(np.maximum(variance, 1e-16 * np.maximum(mean**2, 1e-300)))
    moving = variance[:-1] > 1e-14 * mean[:-1] ** 2
    return np.where(moving, 2.2e-16 * ratio[:-1] * np.maximum(ratio[:-1], ratio[-1]), 0.0)


def check_digits(products: Crossproducts) -> None:
    """Refuse what rounding has spoilt."""
    lost = digits_lost(products)
    if lost.max() > LOST:
        i = int(lost.argmax())
        remedy = "Subtract a constant from both: with an intercept or a constant feature nothing but the intercept changes."
        rule = "not be as far from 0 beside their spread, for the estimates to keep their digits"
        raise checks.SingularMoments(f"feature {i} and the rewards must {rule}; got a relative error of {lost[i]:.1g}. {remedy}")


def _calibrating(prepared: Calibration, error_cov: Floats) -> Floats:
    """The matrix that maps (1, x̃, r) to (1, x̂, r), for one Σe."""
    gain = prepared.gain(error_cov)
    matrix = np.eye(prepared.mean.size + 2)
    matrix[1:-1, 1:-1] -= gain
    matrix[1:-1, 0] = gain @ prepared.mean
    return matrix


class Scoring(NamedTuple):
    """How ψ of a round is computed, an entry for each method; see `kernels.add_scores`."""

    weighting: Integers
    theta: Floats
    """(methods, K, p)"""
    kappa: Floats
    """the share of the error covariance that was taken out, (methods, K)"""
    plain: Booleans
    """whether the paper's formula was solved as it stands, (methods, K)"""
    beta: Floats
    """(K, d + 1), for pseudo-outcomes"""
    calibrated: Booleans
    """whether the method regresses on x̂"""
    to_calibrated: Floats
    """the map from (1, x̃) to x̂, (d, d + 1); empty where every round has its own"""
    lever: Lever


class Scores(NamedTuple):
    """Sums of ψψ' over rounds, or of ψ by unit; ψ_t = w x (x'θ - y) - s Σe,t θ, actions stacked."""

    meat: Floats
    """Σ ψψ', upper triangle, (methods, K p, K p)"""
    totals: Floats
    """Σ ψ by unit, (methods, units, K p); no units: rounds stand alone"""


@dataclass(frozen=True)
class Solution:
    """θ by every method, and what the scores of the rounds need: a log is gone through once for θ and once more for its uncertainty."""

    moments: dict[str, Moments]
    fits: dict[str, Fit]
    calibration: Calibration
    scoring: Scoring
    rounds: Floats
    options: Options
    by_scale: Floats | None = None
    """dθ of "rc" by the scale of each feature's error variances, (K p, d), where Σe,t varies"""

    def no_scores(self, units: int = 0) -> Scores:
        """The scores before any round."""
        size = next(iter(self.fits.values())).theta.size
        return Scores(np.zeros((len(self.fits), size, size)), np.zeros((len(self.fits), units, size)))

    @property
    def lacks_lever(self) -> bool:
        """Whether regression calibration was solved with a Σe for each round: its lever then takes the rounds themselves."""
        return "rc" in self.fits and not self.scoring.to_calibrated.size

    def lever_sums(self, rounds: Rounds) -> LeverSums:
        """What some rounds are to the lever."""
        d, theta = len(rounds.predicted), self.fits["rc"].theta
        sums = LeverSums(np.zeros((*theta.shape, d)), np.zeros((*theta.shape, d, d)), np.zeros((*theta.shape, d)))
        mean, scale, context_cov = self.calibration
        kernels.add_lever(sums, theta, mean, scale, pack(context_cov), rounds)
        return sums

    def with_lever(self, sums: LeverSums, products: Crossproducts) -> "Solution":
        """With the lever of all rounds; `products` are those of the log."""
        Σ = products.mean_error(None)
        lever = lever_of(products, sums.by_mean, sums.by_spread, Σ)
        through_Sx = np.einsum("kijl,jl->kij", sums.by_spread, Σ) + np.einsum("kilj,lj->kij", sums.by_spread, Σ)  # Sx = cov(x̃) - mean Σe
        moved, solved = np.full_like(sums.by_scale, np.nan), self.fits["rc"].report != layout.SINGULAR
        moved[solved] = -np.linalg.solve(self.fits["rc"].matrix[solved], (sums.by_scale - through_Sx / 2)[solved])
        return replace(self, scoring=self.scoring._replace(lever=lever), by_scale=moved.reshape(-1, len(Σ)))

    def add_scores(self, scores: Scores, rounds: Rounds, unit: Integers | None = None) -> None:
        """Take rounds into the scores; `unit` numbers the unit of each."""
        units = np.empty(0, dtype=np.int64) if unit is None else unit
        seen = np.empty((len(rounds.predicted), 0))
        if self.scoring.calibrated.any() and not self.scoring.to_calibrated.size:
            seen = self.calibration.apply(rounds.predicted, rounds.errors)
        kernels.add_scores(scores.meat, scores.totals, units, self.scoring, seen, rounds)

    def estimates(self, scores: Scores) -> dict[str, Estimate]:
        """A^-1 (Σ ψψ') A^-T for every method, A the matrix that was solved with; ψ summed within units first. NaN for actions without a
        solution."""
        found = {}
        for g, (method, fit) in enumerate(self.fits.items()):
            upper = np.triu(scores.meat[g])
            meat = scores.totals[g].T @ scores.totals[g] if scores.totals.size else upper + np.triu(upper, 1).T
            k, p = fit.theta.shape
            covariance, inverses = np.full((k, p, k, p), np.nan), fit.inverses.items()
            for a, left in inverses:
                for b, right in inverses:
                    covariance[a, :, b] = left @ meat[a * p : (a + 1) * p, b * p : (b + 1) * p] @ right.T
            flat = covariance.reshape(k * p, k * p)
            found[method] = _assemble(fit, self.moments[method], flat, method=method, intercept=self.options.intercept, counted=self.rounds)
        return found


def with_model_uncertainty(solution: Solution, scores: Scores, raw: Crossproducts, correction: Correction) -> dict[str, Estimate]:
    """Estimates whose covariances include what the uncertainty of an estimated error model adds: J Var(φ̂) J', J = dθ/dφ.

    The derivative is taken by central differences, on the crossproducts: the log need not be read again. They do not suffice for "rc"
    where Σe,t varies; there it is `Solution.by_scale`.
    """
    model, estimates, options = correction.model, solution.estimates(scores), solution.options
    if model is None or not model.parameters_cov.any():
        return estimates
    spread = np.sqrt(np.diag(model.parameters_cov))
    J = {method: np.zeros((len(found.covariance), spread.size)) for method, found in estimates.items()}
    methods = [method for method in estimates if not (correction.varying and method == "rc")]
    base = _solved_with(model, raw, correction, methods, options)
    for i in np.flatnonzero(spread > 0):
        step = np.zeros(spread.size)
        step[i] = 0.1 * spread[i]
        ends = [_solved_with(model.at(model.parameters + sign * step), raw, correction, methods, options) for sign in (-1.0, 1.0)]
        for method in methods:
            J[method][:, i] = _slope(base[method], ends[0][method], ends[1][method], step[i])
    if solution.by_scale is not None:  # a scale is as large a part of itself as the diagonal of Ω that it goes with
        rows, columns = triangle(model.dim)
        variance = np.diag(model.raw_cov)
        J["rc"][:, -rows.size :][:, rows == columns] = solution.by_scale / np.where(variance > 0, variance, np.inf)
    added = {method: J[method] @ model.parameters_cov @ J[method].T for method in estimates}
    return {m: replace(found, covariance=found.covariance + added[m], model_covariance=added[m]) for m, found in estimates.items()}


def _solved_with(model: ErrorModel, raw: Crossproducts, correction: Correction, methods: Sequence[str], options: Options) -> dict[str, Fit]:
    """The fits of a log with another error model of the same kind."""
    if not methods:
        return {}
    if correction.varying and correction.model is not None:
        root = np.sqrt(np.divide(model.scale, correction.model.scale, out=np.ones(model.dim), where=correction.model.scale > 0))
        moved = raw._replace(errors=raw.errors * pack(np.outer(root, root)))
        return solve_log(moved, methods, error_cov=None, options=options, strict=False).fits
    other = correction.with_model(model).settled(raw)
    return solve_log(other.unbiased(raw), methods, error_cov=other.mean_cov, options=options, strict=False).fits


def _slope(base: Fit, low: Fit, high: Fit, step: float) -> Floats:
    """dθ/dφ from θ at φ - step, φ and φ + step; a side on which the guard decides otherwise for an arm is across a jump, and not used."""
    below, above = ((fit.report == base.report)[:, None] for fit in (low, high))
    down, up = np.where(below, low.theta, base.theta), np.where(above, high.theta, base.theta)
    return np.asarray((up - down) / (step * np.maximum(1.0 * below + above, 1.0))).ravel()


def solved_estimate(moments: Moments, *, method: str, ridge: float, guard: str, intercept: bool) -> Estimate:
    """The estimate from running sums alone; its covariance, which needs the rounds themselves, is NaN."""
    correction = layout.NO_CORRECTION if method == "rc" else RECIPES[method][1]
    with of_usable_sizes():
        fit = solve(moments, correction=correction, ridge=ridge, guard=guard)
    size = moments.n_actions * moments.n_features
    return _assemble(fit, moments, np.full((size, size), np.nan), method=method, intercept=intercept, counted=moments.rounds.copy())


def _assemble(fit: Fit, moments: Moments, covariance: Floats, *, method: str, intercept: bool, counted: Floats) -> Estimate:
    with np.errstate(over="ignore"):
        per_weight = fit.matrix / np.where(moments.weight > 0, moments.weight, 1.0)[:, None, None]
    per_weight = np.clip(per_weight, -1e300, 1e300)
    return Estimate(
        theta=fit.theta[:, int(intercept) :],
        intercept=fit.theta[:, 0] if intercept else np.zeros(moments.n_actions),
        covariance=covariance,
        method=method,
        guarded=fit.report == layout.GUARDED,
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
    try:
        labels = np.asarray(unit)
    except ValueError:
        checks.refuse("unit", f"have shape ({n_rounds},)", checks.shown(unit))
    if labels.shape != (n_rounds,):
        checks.refuse("unit", f"have shape ({n_rounds},)", f"shape {labels.shape}")
    try:
        units, index = np.unique(labels, return_inverse=True)
    except TypeError:
        checks.refuse("unit", "be labels of one type", checks.shown(labels))
    if units.size < 2:
        checks.refuse("unit", "name at least two units", f"{units.size}", "One cluster says nothing about the spread between clusters.")
    return index.astype(np.int64)


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
    x, y = rounds.predicted[:, played].T, rounds.rewards[played]
    means = []
    for i, f in enumerate(functions):
        values = np.asarray(f(x, y), dtype=float)
        if values.shape[:1] != (len(y),):
            checks.refuse(f"functions[{i}]", f"return one row for each of the {len(y)} rounds", f"shape {values.shape}")
        means.append(np.tensordot(w, values, axes=1))
    return solve(*means)
