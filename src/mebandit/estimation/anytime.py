"""Confidence sequences: intervals that hold at every look, from an asymptotic boundary for sums of scores."""

import math

import numpy as np

from mebandit.estimation.student import t_quantile
from mebandit.values import Floats

NARROWEST = 500
"""rounds (or clusters) at which the band is about as narrow as it can be"""
LARGEST_MULTIPLE = 8.0
"""beyond which the tail of the normal distribution is not told apart from 0"""


def boundary(n: float, level: float, *, narrowest: float = NARROWEST) -> float:
    """By how many standard errors θ̂ may be off after n rounds, if it shall not be at any n with probability `level`.

    The normal mixture boundary of Robbins, as in the asymptotic confidence sequences of Waudby-Smith et al.: with α = 1 - level,

        b² = (1 + 1/(n ρ²)) log((1 + n ρ²)/α²),     ρ² = (-2 log α + log(1 - 2 log α)) / n*,

    where n* (`narrowest`) is set in advance. θ̂ - θ is a sum of scores, martingale differences, so a Brownian motion approximates its
    path, and the mixture of exponential martingales of that motion crosses 1/α with probability at most α.

    Args:
        n: Rounds, or clusters, up to now.
        level: Confidence level, between 0 and 1.
        narrowest: n*.

    >>> [round(boundary(n, 0.95), 2) for n in (50, 500, 5000)]
    [3.86, 3.04, 3.24]
    """
    α = 1 - level
    ρ2 = (-2 * math.log(α) + math.log(1 - 2 * math.log(α))) / narrowest
    return math.sqrt((1 + 1 / (n * ρ2)) * math.log((1 + n * ρ2) / α**2))


def two_sided_level(multiple: float) -> float:
    """The level whose normal interval is this many standard errors wide to each side; with it Student's t widens a boundary.

    Args:
        multiple: A boundary.
    """
    return math.erf(min(multiple, LARGEST_MULTIPLE) / math.sqrt(2.0))


def multiples(n: float, level: float, df: Floats) -> Floats:
    """`boundary` with standard errors of so many degrees of freedom: Student's quantile of the same probability.

    Args:
        n: Rounds, or clusters, up to now.
        level: Confidence level, between 0 and 1.
        df: Degrees of freedom.
    """
    wide = two_sided_level(boundary(n, level))
    return np.asarray(t_quantile(0.5 + wide / 2, df)) if wide < 1 - 1e-15 else np.full(np.shape(df), np.inf)
