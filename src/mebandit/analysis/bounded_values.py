"""Confidence sequences for the values of policies from bounded rewards: valid at every look, for any number of rounds.

With rewards r' in [0, 1] and ξ_t = ρ_t r'_t, whose expectation given the past is the value V, and any λ_t in (0, 1) and μ_t in [0, 1] that
depend on earlier rounds only,

    exp(Σ λ (ξ - V) - Σ ψ(λ) (ξ - μ)²),     ψ(λ) = -log(1 - λ) - λ,

is at most a supermartingale that begins at 1, because exp(λ x - ψ(λ) x²) <= 1 + λ x for x >= -1 (Fan, Grama and Liu 2015). So it
exceeds 1/α at any round with probability at most α (Ville), and V is above

    L_t = (Σ λ ξ - log(1/α) - Σ ψ(λ) (ξ - μ)²) / Σ λ

in all rounds together with probability 1 - α: the predictable plug-in empirical-Bernstein sequence of Waudby-Smith and Ramdas, for weights
of any size. An upper end is 1 less the lower one for 1 - r', since the weights have mean 1. μ_t is the mean of min(ξ, 1) so far and

    λ_t = min(sqrt(2 log(1/α) / (s²_{t-1} t log(1 + t))), 1/2),     s² the mean of (ξ - μ)² so far.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from mebandit import checks
from mebandit.values import Floats

LOOKS = 50
"""looks that are kept, evenly spaced"""


class Weighted(NamedTuple):
    """The rewards of a log and the weights of some policies, block by block, in the order of the log."""

    times: list[Floats]
    """when decisions were made; empty arrays if that is not known"""
    rewards: list[Floats]
    weights: list[Floats]
    """ρ, (policies, n) each"""

    def merge(self, other: Self) -> "Weighted":
        """Those of both."""
        return Weighted(self.times + other.times, self.rewards + other.rewards, self.weights + other.weights)


@dataclass(frozen=True)
class Band:
    """A confidence sequence for the value of a policy."""

    rounds: Floats
    """rounds up to each look"""
    low: Floats
    high: Floats
    """the ends at each look: of all bands up to it the highest lower and the lowest upper end, which hold together too"""

    @property
    def last(self) -> tuple[float, float]:
        """The interval at the end of the log."""
        return float(self.low[-1]), float(self.high[-1])

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"rounds": self.rounds.tolist(), "low": self.low.tolist(), "high": self.high.tolist()}


def checked_bounds(given: Any, unit: str | None) -> tuple[float, float]:
    """The smallest and the largest possible reward, for rounds that are independent given the past.

    Args:
        given: Both of them.
        unit: The column of the participant, which there may not be.
    """
    if unit is not None:
        remedy = "Use `interval(anytime=True)`, which sums over participants first."
        checks.refuse("reward_bounds", "go without `unit`", f"it with unit={unit!r}", remedy)
    low, high = checks.floats("reward_bounds", given, (2,))
    if not low < high:
        checks.refuse("reward_bounds", "be the smallest and the largest possible reward", f"{low:g} and {high:g}")
    return float(low), float(high)


def bands(found: Weighted, bounds: tuple[float, float], level: float) -> list[Band]:
    """The band of each policy, in the order of time, or of rows where that is not known.

    Args:
        found: Rewards and weights.
        bounds: The smallest and the largest possible reward.
        level: Confidence level.
    """
    low, high = bounds
    r, ρ, times = np.concatenate(found.rewards), np.hstack(found.weights), np.concatenate(found.times)
    outside = (r < low) | (r > high)
    if outside.any():
        checks.refuse("all rewards", f"be within reward_bounds, {low:g} to {high:g}", f"{r[outside][0]:g}")
    if times.size:
        order = np.argsort(times, kind="stable")
        r, ρ = r[order], ρ[:, order]
    share = (r - low) / (high - low)
    n = len(r)
    looks = np.unique(np.maximum(np.round(np.linspace(0, n, min(LOOKS, n) + 1)[1:]).astype(np.int64), 1))
    made = []
    for own in ρ:
        lower = low + (high - low) * lower_ends(own * share, (1 - level) / 2)
        upper = high - (high - low) * lower_ends(own * (1 - share), (1 - level) / 2)
        made.append(Band(looks.astype(np.float64), lower[looks - 1], upper[looks - 1]))
    return made


def lower_ends(ξ: Floats, α: float) -> Floats:
    """The largest L up to each round, at least 0, (n,); see the head of this file.

    Args:
        ξ: Numbers of at least 0 whose expectation given the earlier ones is the same, at most 1, (n,).
        α: The probability with which any lower end may be too high.
    """
    t = np.arange(1, len(ξ) + 1)
    μ = (0.5 + np.cumsum(np.minimum(ξ, 1.0)) - np.minimum(ξ, 1.0)) / t
    squares = (ξ - μ) ** 2
    s2 = (0.25 + np.cumsum(squares) - squares) / t
    λ = np.minimum(np.sqrt(2 * np.log(1 / α) / (s2 * t * np.log1p(t))), 0.5)
    ψ = -np.log1p(-λ) - λ
    ends = (np.cumsum(λ * ξ) - np.log(1 / α) - np.cumsum(ψ * squares)) / np.cumsum(λ)
    return np.asarray(np.maximum.accumulate(np.maximum(ends, 0.0)))
