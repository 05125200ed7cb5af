"""Score tests of assumptions about an error, with the chi-square distribution."""

import math
from typing import NamedTuple

import numpy as np

from mebandit.values import Floats, Integers


class ChiSquare(NamedTuple):
    """The result of a chi-square test."""

    statistic: float
    df: int
    """degrees of freedom"""
    p_value: float
    """the probability of a larger statistic if the hypothesis is true"""

    def __str__(self) -> str:
        p = f"p = {self.p_value:.2g}" if self.p_value >= 1e-4 else "p < 0.0001"
        return f"chi-square {self.statistic:.4g} on {self.df}, {p}"


def chi_square_tail(statistic: float, df: int) -> float:
    """P(χ²_df > statistic) = Q(a, x), the regularized upper incomplete gamma function at a = df/2, x = statistic/2.

    Args:
        statistic: The value to exceed; 1 is returned for values up to 0.
        df: Degrees of freedom; 1 is returned for 0.

    >>> round(chi_square_tail(3.841458820694124, 1), 12)
    0.05
    """
    a, x = df / 2, statistic / 2
    if df == 0 or x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # P = front Σ_n x^n / (a (a+1) ... (a+n))
        term = total = 1 / a
        n = 0
        while term > 1e-17 * total:
            n += 1
            term *= x / (a + n)
            total += term
        return max(0.0, 1 - front * total)
    return front * _continued_fraction(a, x)


def _continued_fraction(a: float, x: float) -> float:
    """1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...))), by the modified method of Lentz."""
    b = x + 1 - a
    c, d = 1e300, 1 / b
    value = d
    for n in range(1, 10_000):
        step = -n * (n - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def score_test(s: Floats) -> ChiSquare:
    """The test that the rows of s, (n, m), have mean zero: W = (Σ s_i)' (Σ s_i s_i')⁻¹ (Σ s_i), approximately χ²_m if they do.

    The variance is computed under the hypothesis. W is then never above n, and in small samples the test keeps its level. Directions in
    which s vanishes (a coordinate that repeats others) do not count.
    """
    size = np.sqrt(np.sum(s**2, axis=0))
    s = s[:, size > 0] / size[size > 0]  # units do not matter
    values, vectors = np.linalg.eigh(s.T @ s)
    real = values > 1e-9
    statistic = float(np.sum((vectors.T[real] @ s.sum(axis=0)) ** 2 / values[real]))
    df = int(real.sum())
    return ChiSquare(statistic, df, chi_square_tail(statistic, df))


def regression_test(D: Floats, z: Floats, clusters: Integers | None = None) -> ChiSquare:
    """The test that every coefficient of D, (n, m), on z, (n, p), is zero: E[z D'] = 0. The variance of D may be anything.

    Args:
        D: The outcomes.
        z: The regressors.
        clusters: The number of the cluster of each row, (n,), within which rows may be correlated; None (default): they are independent.
    """
    Q = np.linalg.qr(z)[0]  # in this basis of the regressors the hypothesis is the same and the numbers are harmless
    s = np.einsum("ip,im->ipm", Q, D).reshape(len(D), -1)
    if clusters is None:
        return score_test(s)
    sums = np.zeros((int(clusters.max()) + 1, s.shape[1]))
    np.add.at(sums, clusters, s)
    return score_test(sums)
