"""Student's t distribution, and the degrees of freedom of a variance that is a sum of squared scores."""

import math

import numpy as np

from mebandit import kernels
from mebandit.measurement.hypotheses import chi_square_tail
from mebandit.values import Floats

GROUPS = 512
"""groups into which the scores of a log are summed, at most: below 513 rounds or clusters each is its own"""
NORMAL_FROM = 1e6
"""degrees of freedom from which t counts as normal"""


def satterthwaite(influence: Floats, weights: Floats) -> Floats:
    """Degrees of freedom of V = Σ v_g, v_g = (l'i_g)², so that V has about the mean and variance of a chi-square: 2 V² / Var(V).

    Var(V) = Σ v_g² - V²/G for G groups, so df = G for normal scores, and less the heavier their tails are. df is at least 1, and at most G.

    Args:
        influence: i_g, what each group of rounds or cluster adds to the error of the coefficients, (G, n).
        weights: l, by row, (m, n).

    Returns:
        df for each row of weights, (m,).
    """
    n = len(influence)
    v = (influence @ weights.T) ** 2
    total = v.sum(axis=0)
    share = np.divide(v, total, out=np.full_like(v, 1.0 / max(n, 1)), where=total > 0)
    return np.asarray(np.clip(2.0 / np.maximum((share**2).sum(axis=0) - 1.0 / n, 2.0 / n), 1.0, n))


def in_groups(scores: Floats) -> Floats:
    """Scores of clusters, or what they add up to in groups of clusters where these are more than `GROUPS`, (groups, m).

    Args:
        scores: A row for each cluster, (clusters, m).
    """
    if len(scores) <= GROUPS:
        return scores
    padded = np.pad(scores, ((0, -len(scores) % GROUPS), (0, 0)))
    return np.asarray(padded.reshape(-1, GROUPS, padded.shape[1]).sum(axis=0))


def t_quantile(probability: float, df: Floats) -> Floats:
    """The quantile of Student's t, for any array of degrees of freedom of at least 1; infinity is the normal distribution.

    Newton's method on the distribution function from Hill's (1970) expansion about the normal quantile.

    Args:
        probability: Between 0.5 and 1.
        df: Degrees of freedom; NaN gives NaN.

    >>> [round(float(t), 4) for t in t_quantile(0.975, np.array([1.0, 2.0, 10.0, np.inf]))]
    [12.7062, 4.3027, 2.2281, 1.96]
    """
    z = float(kernels.normal_quantile(probability))
    return np.array([z if ν >= NORMAL_FROM else _quantile(probability, float(ν), z) for ν in np.ravel(df)]).reshape(np.shape(df))


def f_tail(statistic: float, numerator: int, denominator: float) -> float:
    """P(F > statistic) of Fisher's F = I_x(denominator/2, numerator/2) with x = denominator / (denominator + numerator statistic).

    Args:
        statistic: The value to exceed, at least 0.
        numerator: Degrees of freedom above the line.
        denominator: Those below; from a million on they count as infinite, and numerator F as chi-square.
    """
    if denominator >= NORMAL_FROM:
        return chi_square_tail(numerator * statistic, numerator)
    return incomplete_beta(denominator / (denominator + numerator * statistic), denominator / 2, numerator / 2)


def _quantile(probability: float, ν: float, z: float) -> float:
    """One quantile, by Newton's steps within a bracket."""
    if math.isnan(ν):
        return ν
    low, high = 0.0, 1.0
    while _upper_tail(high, ν) > 1 - probability:
        high *= 2.0
    t = min(max(z * (1 + (z * z + 1) / (4 * ν)), low), high)
    for _ in range(200):
        gap = _upper_tail(t, ν) - (1 - probability)
        low, high = (t, high) if gap > 0 else (low, t)
        step = t + gap / _density(t, ν)
        new = step if low < step < high else 0.5 * (low + high)
        if abs(new - t) <= 1e-14 * max(t, 1e-300):
            break
        t = new
    return t


def _density(t: float, ν: float) -> float:
    return math.exp(math.lgamma((ν + 1) / 2) - math.lgamma(ν / 2) - 0.5 * math.log(ν * math.pi) - (ν + 1) / 2 * math.log1p(t * t / ν))


def _upper_tail(t: float, ν: float) -> float:
    """P(T > t) = I_x(ν/2, 1/2) / 2 with x = ν / (ν + t²), t >= 0."""
    return 0.5 * incomplete_beta(ν / (ν + t * t), ν / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction.

    Args:
        x: Between 0 and 1.
        a: Above 0.
        b: Above 0.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        for step in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 / (1 + step * d)
            c = 1 + step / c
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return front * value
