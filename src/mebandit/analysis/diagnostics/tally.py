"""What is counted for the diagnostics while a log is read."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.estimation.moments import Rounds, pack, unpack
from mebandit.logs.source import Block, ends_of
from mebandit.values import Floats, Integers

BINS, LEVELS, SEGMENTS = 20, 10, 20


class Tally(NamedTuple):
    """What is counted while the log is read; merged by adding up, but `least` and `ends`, the furthest."""

    propensity: Floats
    """rounds by action and propensity of the action taken, (K, 20)"""
    least: Floats
    """the smallest propensity with which each action was taken, (K,)"""
    below: Floats
    """rounds whose propensity is below the floor, (1,)"""
    forecast: Floats
    """by action and level of its propensity: rounds, rounds with that action, Σ π, Σ π (1 - π), (K, 10, 4); of two only the second"""
    chance: Floats
    """by action, where all π are known: Σ w zz', w = 1/π_t(a) - 1, z = (1, x̃), packed, (K, ...)"""
    segments: Floats
    """by twentieth of the log: Σ zz' and, where it varies, Σ Σe, packed, (20, ...)"""
    powers: Floats
    """Σ y³ and Σ y⁴, y = x̃ - its mean, (2, d)"""
    close: Floats
    """rounds with a choice; those where the two best actions differ by less than 1 and 1.96 s.d. of the error in that direction, (3,)"""
    reported: Floats
    """with v the reported variance: Σ v, Σ v², Σ y², Σ v y², Σ v³, Σ v⁴, (d, 6)"""
    readings: Floats
    """of two actions, by what one propensity column may be the probability of (action 0, action 1, the action taken) and by level of the
    probability q of action 1 that follows: rounds with action 1, Σ q, Σ q (1 - q), (3, 10, 3)"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1)"""

    def mapped(self, matrix: Floats) -> "Tally":
        """Of z -> matrix z, for a matrix that leaves 1 as it is, but for powers, ends and what depends on the error."""
        zz = self.chance.shape[1]
        chance, segments = (pack(matrix @ unpack(sums, len(matrix)) @ matrix.T) for sums in (self.chance, self.segments[:, :zz]))
        return self._replace(chance=chance, segments=np.hstack([segments, self.segments[:, zz:]]))

    def merge(self, other: "Tally") -> "Tally":
        added = [a + b for a, b in zip(self, other, strict=True)]
        ends = np.stack([np.minimum(self.ends[0], other.ends[0]), np.maximum(self.ends[1], other.ends[1])])
        return Tally(*added)._replace(least=np.minimum(self.least, other.least), ends=ends)


def empty_tally(n_actions: int, d: int) -> Tally:
    size = (d + 1) * (d + 2) // 2
    return Tally(
        propensity=np.zeros((n_actions, BINS)),
        least=np.ones(n_actions),
        below=np.zeros(1),
        forecast=np.zeros((n_actions, LEVELS, 4)),
        chance=np.zeros((n_actions, size)),
        segments=np.zeros((SEGMENTS, size + d * (d + 1) // 2)),
        powers=np.zeros((2, d)),
        close=np.zeros(3),
        reported=np.zeros((d, 6)),
        readings=np.zeros((3, LEVELS, 3)),
        ends=np.outer([np.inf, -np.inf], np.ones(d + 1)),
    )


def tally_of(
    block: Block, rounds: Rounds, n_actions: int, rows: int, mean: Floats, floor: float | None, *, varying: bool, reading: int | None = None
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
        reading: The action whose probability the log states; None: that of the action taken.
    """
    tally = empty_tally(n_actions, len(rounds.predicted))
    tally.ends[:] = block.ends
    if rounds.predicted is not block.rounds.predicted:
        tally.ends[:, :-1] = np.stack([ends_of(x) for x in rounds.predicted], axis=1)
    if n_actions == 2 and not block.forecast.shape[1]:
        tally.readings[:] = _readings(rounds.actions, rounds.propensities, reading)
    kernels.count_probabilities(tally, rounds.actions, rounds.propensities, block.forecast, floor or 0.0)
    if block.times.size:
        block, rounds = in_order_of_time(block, rounds)
    for part, begin, end in parts_of(block, rows):
        kernels.add_chance(tally.chance, begin, end, rounds, block.forecast)
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


def _readings(actions: Integers, taken: Floats, reading: int | None) -> Floats:
    """`Tally.readings` of some rounds, from the probabilities of the actions taken."""
    stated = taken if reading is None else np.where(actions == reading, taken, 1.0 - taken)
    found = np.zeros((3, LEVELS, 3))
    for i, q in enumerate((1.0 - stated, stated, np.where(actions == 1, stated, 1.0 - stated))):
        level = np.minimum((q * LEVELS + 1e-6).astype(np.int64), LEVELS - 1)
        for j, values in enumerate((actions == 1, q, q * (1.0 - q))):
            found[i, :, j] = np.bincount(level, values, LEVELS)
    return found
