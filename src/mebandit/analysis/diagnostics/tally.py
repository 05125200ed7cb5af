"""What is counted for the diagnostics while a log is read."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.estimation.moments import Rounds
from mebandit.logs.source import Block, ends_of, wider
from mebandit.values import Floats

BINS, LEVELS, SEGMENTS = 20, 10, 20


class Tally(NamedTuple):
    """What is counted while the log is read; merged by adding up, but `least` and `ends`, the furthest."""

    taken: Floats
    """by action and place of its propensity p: rounds, Σ p, Σ p (1 - p), (K, 41, 3); every other place is a twentieth, between two of
    those on its border"""
    least: Floats
    """the smallest propensity with which each action was taken, (K,)"""
    below: Floats
    """rounds whose propensity is below the floor, (1,)"""
    forecasts: Floats
    """where the probability π of every action is in the log, by action and level: rounds, those with that action, Σ π, Σ π (1 - π),
    (K, 10, 4)"""
    chance: Floats
    """by action, where all π are known: Σ w and Σ w y², w = 1/π_t(a) - 1, y = x̃ - its mean, (K, d + 1)"""
    segments: Floats
    """by twentieth of the log: Σ zz' and, where it varies, Σ Σe, packed, (20, ...)"""
    powers: Floats
    """Σ y³ and Σ y⁴, y = x̃ - its mean, (2, d)"""
    close: Floats
    """rounds with a choice; those where the two best actions differ by less than 1 and 1.96 s.d. of the error in that direction, (3,)"""
    reported: Floats
    """with v the reported variance: Σ v, Σ v², Σ y², Σ v y², Σ v³, Σ v⁴, (d, 6)"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1)"""

    @property
    def propensity(self) -> Floats:
        """rounds by action and twentieth of the propensity of the action taken, (K, 20)"""
        rounds = self.taken[:, :, 0]
        found = rounds[:, :-1:2] + rounds[:, 1::2]
        found[:, -1] += rounds[:, -1]
        return found

    @property
    def forecast(self) -> Floats:
        """`forecasts`; of two actions of which one probability is known, of the second, (K, 10, 4)"""
        if len(self.taken) > 2 or self.forecasts.any():
            return self.forecasts
        own, other = _by_level(self.taken[1], turned=False), _by_level(self.taken[0], turned=True)
        second = np.column_stack([own[:, 0] + other[:, 0], own[:, 0], own[:, 1:] + other[:, 1:]])
        return np.stack([np.zeros_like(second), second])

    def readings(self, column: int | None) -> Floats:
        """Of two actions, by what their one propensity column may be the probability of (action 0, action 1, the action taken) and by
        level of the probability q of action 1 that follows: rounds with action 1, Σ q, Σ q (1 - q), (3, 10, 3); zero for more actions.

        Args:
            column: The action whose probability it was taken for; None: that of the action taken.
        """
        found = np.zeros((3, LEVELS, 3))
        for a in range(2 if len(self.taken) == 2 and not self.forecasts.any() else 0):
            stated = column is None or column == a  # whether p is in the column, else 1 - p
            for i, is_q in enumerate((not stated, stated, stated == (a == 1))):
                levels = _by_level(self.taken[a], turned=not is_q)
                found[i, :, 0] += levels[:, 0] * (a == 1)
                found[i, :, 1:] += levels[:, 1:]
        return found

    def merge(self, other: "Tally") -> "Tally":
        added = [a + b for a, b in zip(self, other, strict=True)]
        return Tally(*added)._replace(least=np.minimum(self.least, other.least), ends=wider(self.ends, other.ends))


def empty_tally(n_actions: int, d: int) -> Tally:
    size = (d + 1) * (d + 2) // 2
    return Tally(
        taken=np.zeros((n_actions, 2 * BINS + 1, 3)),
        least=np.ones(n_actions),
        below=np.zeros(1),
        forecasts=np.zeros((n_actions, LEVELS, 4)),
        chance=np.zeros((n_actions, 1 + d)),
        segments=np.zeros((SEGMENTS, size + d * (d + 1) // 2)),
        powers=np.zeros((2, d)),
        close=np.zeros(3),
        reported=np.zeros((d, 6)),
        ends=np.outer([np.inf, -np.inf], np.ones(d + 1)),
    )


def tally_of(
    block: Block, rounds: Rounds, n_actions: int, rows: int, mean: Floats, floor: float | None, *, varying: bool, ends: Floats
) -> Tally:
    """What a block of a log of so many rows adds, but for `close`.

    Args:
        block: The block.
        rounds: Its rounds, with unbiased predictions.
        n_actions: K.
        rows: The number of rows of the log.
        mean: The mean of the unbiased predictions, (d,).
        floor: The floor of the logging policy; None if not known.
        varying: Whether every round has an error covariance of its own.
        ends: The smallest and the largest value of every feature and of the reward in the log, (2, d + 1).
    """
    tally = empty_tally(n_actions, len(rounds.predicted))
    tally.ends[:] = ends
    if rounds.predicted is not block.rounds.predicted:
        tally.ends[:, :-1] = np.stack([ends_of(x) for x in rounds.predicted], axis=1)
    kernels.count_propensities(tally.taken, tally.least, tally.below, rounds.actions, rounds.propensities, floor or 0.0)
    if block.forecast.shape[1]:
        kernels.count_forecasts(tally.forecasts, rounds.actions, block.forecast)
    kernels.add_chance(tally.chance, mean, rounds, block.forecast)
    if block.times.size:
        block, rounds = in_order_of_time(block, rounds)
    for part, begin, end in parts_of(block, rows):
        kernels.add_predictions(tally, part, begin, end, varying, mean, rounds)
    return tally


def parts_of(block: Block, rows: int) -> Iterator[tuple[int, int, int]]:
    """The twentieths of a log of so many rows, or of its time, that a block touches, and the first and the end of its rounds in each; one
    at least. The rounds of a block with times are in the order of time."""
    n, begin = block.rounds.rewards.size, 0
    ends = [min(-(-rows * (part + 1) // SEGMENTS) - block.start, n) for part in range(SEGMENTS - 1)]
    if block.times.size:
        ends = np.searchsorted(block.times, np.arange(1, SEGMENTS) / SEGMENTS).tolist()
    for part, end in enumerate([*ends, n]):
        if begin < end or (begin == n == 0 and part + 1 == SEGMENTS):
            yield part, begin, end
            begin = end


def in_order_of_time(block: Block, rounds: Rounds) -> tuple[Block, Rounds]:
    """The rounds of a block in the order of time."""
    order = np.argsort(block.times, kind="stable")
    forecast = block.forecast[order] if block.forecast.shape[1] else block.forecast
    return block._replace(times=block.times[order], forecast=np.ascontiguousarray(forecast)), rounds.taken(order)


def _by_level(taken: Floats, *, turned: bool) -> Floats:
    """From counts of p by place: rounds, Σ q and Σ q (1 - q) by tenth of q = p, or of 1 - p if that is `turned`, (10, 3)."""
    if turned:
        taken = np.column_stack([taken[:, 0], taken[:, 0] - taken[:, 1], taken[:, 2]])[::-1]
    tenths = np.minimum(np.arange(len(taken)) // (len(taken) // LEVELS), LEVELS - 1)
    return np.stack([np.bincount(tenths, column, LEVELS) for column in taken.T], axis=1)
