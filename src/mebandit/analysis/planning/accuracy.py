"""How accurate the estimate of a planned trial will be, and with what probability its test will find an effect.

After n rounds the estimate has the variance s² = V/n + f, f the part that comes from the error model. Two things are not known in advance:

* The trial estimates its own standard error, s√W' with ν W' ~ χ²_ν, and compares with the quantile t of Student's t with ν degrees of
  freedom. Its power for the effect δ is therefore that of a noncentral t,  E[Φ(λ - t√W') + Φ(-λ - t√W')],  λ = |δ|/s.
* V comes from a pilot that estimated it with m degrees of freedom: V = V̂/W with m W ~ χ²_m. The power is averaged over W too. So a plan
  has its power on average over pilots, as far as each is right about V on average.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mebandit import kernels
from mebandit.estimation.student import NORMAL_FROM, t_quantile
from mebandit.values import Floats


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The variance of an estimate after any number of rounds, and what is not known about it."""

    variance: float
    """V, or a pilot's estimate V̂ of it"""
    fixed: float = 0.0
    """f, what more rounds do not reduce"""
    rounds_per_df: float = 1.0
    """rounds that give the trial's standard error one degree of freedom: those of a participant, or one"""
    pilot_df: float = math.inf
    """m; infinite where V is known"""

    def if_variance_were(self, share: float) -> Self:
        """The same if the true V were known to be this share of V̂."""
        return replace(self, variance=self.variance * share, pilot_df=math.inf)

    def half_width(self, n: float, level: float) -> float:
        """t s, at V̂."""
        return self._quantile(n, level) * math.sqrt(self.variance / n + self.fixed)

    def half_width_with(self, assurance: float, n: float, level: float) -> float:
        """The half-width that t s√W' stays below with this probability: the trial's own standard error is not known in advance, and of a
        pilot V is not either."""
        t, (own, p_own) = self._quantile(n, level), chi_square(self._df(n), step=FINE)
        pilot, p_pilot = chi_square(self.pilot_df)
        s2, below = self.variance / (pilot * n) + self.fixed, np.cumsum(p_own) - 0.5 * p_own
        low, high = 0.0, t * math.sqrt(s2.max() * own[-1])
        for _ in range(BISECTIONS if high > 0 else 0):
            middle = 0.5 * (low + high)
            shares = (middle / t) ** 2 / s2
            chance = p_pilot @ np.interp(shares, own, below, left=0.0, right=1.0)
            low, high = (middle, high) if chance < assurance else (low, middle)
        return high

    def power(self, n: float, effect: float, level: float) -> float:
        """The probability that the interval of a trial of n rounds excludes 0."""
        t, (own, p_own), (pilot, p_pilot) = self._quantile(n, level), chi_square(self._df(n)), chi_square(self.pilot_df)
        with np.errstate(divide="ignore"):  # a variance of 0
            λ = abs(effect) / np.sqrt(self.variance / (pilot[:, None] * n) + self.fixed)
        bound = t * np.sqrt(own)
        return float(p_pilot @ (_below(λ - bound) + _below(-λ - bound)) @ p_own)

    def _df(self, n: float) -> float:
        return max(1.0, n / self.rounds_per_df)

    def _quantile(self, n: float, level: float) -> float:
        return float(t_quantile((1 + level) / 2, np.asarray(self._df(n))))


FINE, BISECTIONS = 0.02, 40
"""the step of the trapezoidal rule, in standard deviations, where probabilities are read off it; halvings of an interval for a quantile"""


def chi_square(df: float, *, step: float = 0.35) -> tuple[Floats, Floats]:
    """Values of W, df W ~ χ²_df, and their probabilities: the trapezoidal rule in log W, whose error is below 1e-6 for smooth functions.

    >>> values, probabilities = chi_square(5.0)
    >>> round(float(probabilities @ values), 6), round(float(probabilities @ (values - 1) ** 2), 6)  # 1 and 2/df
    (1.0, 0.4)
    """
    if df >= NORMAL_FROM:
        return np.ones(1), np.ones(1)
    scale = math.sqrt(2 / df)
    u = np.arange(-max(8 * scale, 40 / df), 8 * scale, step * scale)
    log_density = df / 2 * (u - np.exp(u))
    weights = np.exp(log_density - log_density.max())
    return np.exp(u), weights / weights.sum()


def quantile(probability: float) -> float:
    """Of the standard normal distribution."""
    return float(kernels.normal_quantile(probability))


_below = np.frompyfunc(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)), 1, 1)
"""the standard normal distribution function"""
