"""`Estimate`: reward parameters with their uncertainty, the value that every estimation returns."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.anytime import multiples
from mebandit.estimation.moments import Moments
from mebandit.estimation.simultaneous import common_level
from mebandit.estimation.solving import Fit, condition
from mebandit.estimation.student import f_tail, satterthwaite, t_quantile
from mebandit.kernels import layout
from mebandit.values import Booleans, Floats

LEAST_KAPPA = 0.7
"""the share of the error covariance that the guard must take off for intervals to hold: with less, 95 % intervals held in 63 to 92 % of
simulated small trials, with more in 94 % and above"""


class WaldTest(NamedTuple):
    """The result of a joint test of several coefficients."""

    statistic: float
    """W, chi-square in large samples"""
    df: int
    """the number of combinations that were tested"""
    denominator_df: float
    """the degrees of freedom of the covariance in Fisher's F; infinite for the chi-square distribution"""
    p_value: float
    """the probability of a larger statistic if all combinations are 0"""


@dataclass(frozen=True)
class Contrast:
    """The difference in parameters between two actions, θ_a - θ_b."""

    theta: Floats
    """θ_a - θ_b, (d,)"""
    std_error: Floats
    """its standard errors, (d,)"""
    intercept: float = 0.0
    """the difference of the intercepts; zero unless they were fitted"""
    intercept_std_error: float = 0.0
    """its standard error; zero unless intercepts were fitted"""
    df: Floats | float = np.inf
    """degrees of freedom of the standard errors, (d,); infinite for the normal approximation"""
    intercept_df: float = np.inf
    """those of the intercept's standard error"""
    size: float = np.inf
    """the number of rounds, or of clusters, of the log"""
    covariance: Floats = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """of θ_a - θ_b, (d, d)"""

    def interval(self, level: float = 0.95, *, anytime: bool = False, simultaneous: bool = False) -> Floats:
        """Confidence intervals for θ_a - θ_b by Student's t.

        Args:
            level: Confidence level, between 0 and 1; 0.95 by default.
            anytime: Whether they hold at every look, as in `Estimate.interval`; False by default.
            simultaneous: Whether all d hold together, as in `Estimate.interval`; False by default.

        Returns:
            Lower and upper ends, (d, 2).
        """
        level = common_level(checked_level(level), self.covariance) if simultaneous else level
        return t_interval(self.theta, self.std_error, self.df, level, looks_until=self.size if anytime else None)


@dataclass(frozen=True)
class Estimate:
    """Reward parameters of every action, their uncertainty, and how they were found."""

    theta: Floats
    """θ, (K, d)"""
    intercept: Floats
    """the expected reward at context zero, (K,); zero unless intercepts were fitted"""
    covariance: Floats
    """covariance of all fitted coefficients, actions stacked, (K p, K p) with p = d, or d + 1 with the intercept first"""
    method: str
    """one of "ridge", "naive", "meb", "dr" and "rc"; a learner's may be "auto"."""
    guarded: Booleans
    """whether the estimate of each action is the stabilised (Fuller-type) one, because the method's matrix was not safely positive
    definite, (K,)"""
    diagnostics: dict[str, Floats]
    """figures that tell whether the estimate can be trusted, by name.

    Of each action, (K,): `rounds` in which it was taken; `n_effective`, the number of equally weighted rounds that carry the same
    information, (Σ w)²/Σ w²; `smallest_eigenvalue` of the corrected Gram matrix per unit of weight; `condition`, the condition number of
    that matrix with features scaled to a diagonal of one; `kappa`, the share of the error covariance that was subtracted. From
    `mebandit.estimate` also `smallest_propensity`, the smallest probability with which the action was taken (NaN if it never was), and, of
    each feature, (d,), `rounding_error`: its relative rounding error in double precision.
    """
    model_covariance: Floats | None = None
    """the part of `covariance` that comes from an estimated error model; more rounds do not reduce it"""
    model_df: float = np.inf
    """degrees of freedom of that part: the pairs, or participants with pairs, beyond the coefficients estimated from them"""
    clusters: int = 0
    """the number of clusters; 0: rounds count as independent"""
    influence: Floats | None = field(default=None, repr=False)
    """what each cluster, or each of at most 512 groups of rounds, adds to the error of the coefficients, (groups, K p); from its squares
    follow the degrees of freedom. None: intervals use the normal approximation"""

    @property
    def without_interval(self) -> Booleans:
        """Actions whose intervals and tests are withheld (NaN): the guard took off less than 70 % of their error covariance, because their
        effective rounds are few. Their estimates are then biased towards those of least squares by more than standard errors say, (K,)."""
        return np.asarray(self.guarded & (self.diagnostics["kappa"] < LEAST_KAPPA))

    @property
    def has_intercept(self) -> bool:
        """Whether intercepts were fitted."""
        return len(self.covariance) > self.theta.size

    @property
    def std_error(self) -> Floats:
        """Standard errors of θ, (K, d): sandwich estimates, valid also when earlier rounds decided which actions later rounds took."""
        return self._std_errors[:, -self.theta.shape[1] :]

    @property
    def intercept_std_error(self) -> Floats:
        """Standard errors of the intercepts, (K,); zero unless they were fitted."""
        return self._std_errors[:, 0] if self.has_intercept else np.zeros(len(self.theta))

    @property
    def _std_errors(self) -> Floats:
        """Of all fitted coefficients, (K, p); a variance that rounding made negative is 0."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0)).reshape(len(self.theta), -1)

    def interval(self, level: float = 0.95, *, anytime: bool = False, simultaneous: bool = False) -> Floats:
        """Confidence intervals for θ by Student's t: θ ± t std_error, t the quantile with `df` degrees of freedom.

        Args:
            level: Confidence level, between 0 and 1; 0.95 by default.
            anytime: Whether they hold at every look at a growing log, an asymptotic confidence sequence, and not at one look alone (False
                by default). At least 1.5 times as wide, and many times as wide in the first dozens of rounds. What an estimated error model
                adds counts as if it were of new rounds.
            simultaneous: Whether all K d intervals hold together with probability `level`, and not each of them (False by default): max-t
                intervals from the joint covariance, simulated with a fixed seed.

        Returns:
            Lower and upper ends, (K, d, 2).
        """
        if simultaneous:
            own = np.arange(len(self.covariance)).reshape(len(self.theta), -1)[:, -self.theta.shape[1] :].ravel()
            level = common_level(checked_level(level), self.covariance[np.ix_(own, own)])
        return t_interval(self.theta, self.std_error, self.df, level, looks_until=self.size if anytime else None)

    @property
    def size(self) -> float:
        """The number of clusters of the log, or of rounds if they are independent; infinite if it is not known."""
        return float(self.clusters or self.diagnostics["rounds"].sum())

    @property
    def df(self) -> Floats:
        """Degrees of freedom of the standard errors of θ by Satterthwaite's approximation, (K, d); infinite with `sandwich="hc0"`."""
        return self._df.reshape(len(self.theta), -1)[:, -self.theta.shape[1] :]

    @property
    def intercept_df(self) -> Floats:
        """Degrees of freedom of the standard errors of the intercepts, (K,)."""
        return self._df.reshape(len(self.theta), -1)[:, 0]

    @property
    def _df(self) -> Floats:
        return self.degrees_of_freedom(np.eye(len(self.covariance)))

    def degrees_of_freedom(self, weights: Floats) -> Floats:
        """Degrees of freedom of the standard errors of linear combinations of the coefficients.

        Args:
            weights: A row for each combination, with a weight for each coefficient in the order of `covariance`, (m, K p).

        Returns:
            Satterthwaite's df = 2 V² / Var(V) of each variance V, (m,). With an estimated error model V is the sum of two variances, and
            1/df that of (V_i/V)²/df_i. NaN where actions `without_interval` have a part.
        """
        withheld = np.repeat(self.without_interval, len(self.covariance) // len(self.theta))
        return np.where((weights[:, withheld] != 0).any(axis=1), np.nan, self._satterthwaite(weights))

    def _satterthwaite(self, weights: Floats) -> Floats:
        """The degrees of freedom, whatever the guard did."""
        if self.influence is None or not len(self.influence):
            return np.full(len(weights), np.inf)
        known = np.isfinite(self.influence).all(axis=0)
        df = satterthwaite(np.where(known, self.influence, 0.0), weights)
        if self.model_covariance is not None:
            whole, added = (np.einsum("mi,ij,mj->m", weights, C, weights) for C in (self.covariance, self.model_covariance))
            share = np.divide(added, whole, out=np.zeros_like(whole), where=whole > 0)
            df = 1.0 / ((1 - share) ** 2 / df + share**2 / self.model_df)
        return np.asarray(df)

    def wald(self, weights: ArrayLike) -> WaldTest:
        """The joint test that several linear combinations of the coefficients are 0: W = (Lβ)'(L Cov L')^-1 (Lβ).

        Args:
            weights: L, a row for each combination, with a weight for each coefficient in the order of `covariance`, (m, K p).

        Returns:
            The test. W/m is held against Fisher's F with m and the smallest of the rows' degrees of freedom ν, times (ν - m + 1)/ν, as in
            Hotelling's test.
        """
        L = checks.floats("weights", weights, (None, len(self.covariance)))
        fitted = np.column_stack([self.intercept, self.theta]) if self.has_intercept else self.theta
        return joint_test(L @ fitted.ravel(), L @ self.covariance @ L.T, float(self.degrees_of_freedom(L).min()))

    def contrast(self, a: int, b: int) -> Contrast:
        """The difference in effect between two actions, θ_a - θ_b, with its standard errors.

        Args:
            a: An action, from 0 to K - 1.
            b: The action to compare it with.
        """
        k, d = self.theta.shape
        a, b = checks.integer("a", a, 0, k - 1), checks.integer("b", b, 0, k - 1)
        blocks = self.covariance.reshape(k, self.covariance.shape[0] // k, k, -1)
        spread = blocks[a, :, a] + blocks[b, :, b] - blocks[a, :, b] - blocks[b, :, a]
        error = np.sqrt(np.maximum(np.diag(spread), 0.0))
        level, level_error = self.intercept[a] - self.intercept[b], error[0] if self.has_intercept else 0.0
        df = self.degrees_of_freedom(np.kron(np.eye(k)[a] - np.eye(k)[b], np.eye(len(error))))
        own = spread[-d:, -d:]
        return Contrast(self.theta[a] - self.theta[b], error[-d:], float(level), float(level_error), df[-d:], float(df[0]), self.size, own)


def joint_test(value: Floats, covariance: Floats, ν: float) -> WaldTest:
    """The joint test that several numbers are 0, see `Estimate.wald`.

    Args:
        value: Their estimates, (m,).
        covariance: Of these, (m, m).
        ν: The smallest degrees of freedom among them.
    """
    m = len(value)
    if not ν >= m or np.linalg.matrix_rank(covariance, hermitian=True) < m:
        rule = "be linearly independent combinations, fewer than the degrees of freedom of their standard errors"
        checks.refuse("weights", rule, f"{m} rows with {ν:.3g} degrees of freedom")
    statistic = float(value @ np.linalg.solve(covariance, value))
    left = ν - m + 1 if np.isfinite(ν) else ν
    scaled = statistic / m * (left / ν if np.isfinite(ν) else 1.0)
    return WaldTest(statistic, m, left, f_tail(scaled, m, left))


def checked_level(level: float) -> float:
    """A confidence level."""
    return checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)


def t_interval(center: Floats, std_error: Floats, df: Floats | float, level: float, *, looks_until: float | None = None) -> Floats:
    """Confidence intervals by Student's t, (..., 2).

    Args:
        center: The estimates.
        std_error: Their standard errors.
        df: Degrees of freedom of these.
        level: Confidence level, between 0 and 1.
        looks_until: The rounds, or clusters, up to now, for an interval that holds at every look; None (default): at one.
    """
    level, df = checked_level(level), np.asarray(df, dtype=np.float64)
    half = (t_quantile(0.5 + level / 2, df) if looks_until is None else multiples(looks_until, level, df)) * std_error
    return np.stack([center - half, center + half], axis=-1)


class Scalar(Protocol):
    """One number that was estimated."""

    @property
    def value(self) -> float: ...
    @property
    def std_error(self) -> float: ...
    @property
    def df(self) -> float: ...
    @property
    def size(self) -> float: ...


def scalar_interval(found: Scalar, level: float, *, anytime: bool) -> tuple[float, float]:
    """`t_interval` of one number.

    Args:
        found: The number, with its standard error, degrees of freedom and rounds or clusters.
        level: Confidence level, between 0 and 1.
        anytime: Whether the interval holds at every look at a growing log.
    """
    looks_until = found.size if anytime else None
    low, high = t_interval(np.asarray(found.value), np.asarray(found.std_error), found.df, level, looks_until=looks_until)
    return float(low), float(high)


def assembled(
    fit: Fit,
    moments: Moments,
    covariance: Floats,
    *,
    influence: Floats | None,
    clusters: int = 0,
    method: str,
    intercept: bool,
    counted: Floats,
) -> Estimate:
    """The estimate of a method from what was solved; `counted` are the rounds in which each action was taken, (K,)."""
    with np.errstate(over="ignore"):
        per_weight = fit.matrix / np.where(moments.weight > 0, moments.weight, 1.0)[:, None, None]
    per_weight = np.clip(per_weight, -1e300, 1e300)
    return Estimate(
        theta=fit.theta[:, int(intercept) :],
        intercept=fit.theta[:, 0] if intercept else np.zeros(moments.n_actions),
        covariance=covariance,
        influence=influence,
        clusters=clusters,
        method=method,
        guarded=fit.report == layout.GUARDED,
        diagnostics={
            "rounds": counted,
            "n_effective": moments.n_effective,
            "smallest_eigenvalue": np.linalg.eigvalsh(per_weight)[:, 0].astype(np.float64),
            "condition": condition(fit.matrix),
            "kappa": fit.kappa,
        },
    )
