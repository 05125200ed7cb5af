"""A stretch of a log: some of its rows, or of its time."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mebandit.logs.source import Block


class Window(NamedTuple):
    """A stretch of a log, from `low` to before `high`: of its rows, or of its time if it has one."""

    low: float
    high: float

    def cut(self, edge: float) -> tuple["Window", "Window"]:
        """The stretches before and after an edge."""
        return Window(self.low, edge), Window(edge, self.high)

    def of(self, block: "Block") -> "Block":
        """The rows of a block that are inside. Rows that are not used shift the count within their block: every row still is in one
        window only."""
        n = block.rounds.rewards.size
        if self == EVERYTHING:
            return block
        place = block.times if block.times.size else block.start + np.arange(n)
        rows = np.flatnonzero((place >= self.low) & (place < self.high))
        if rows.size == n:
            return block
        start = block.start if block.times.size else block.start + int(rows[0] if rows.size else 0)
        unit, times = block.unit[rows] if block.units else block.unit, block.times[rows] if block.times.size else block.times
        return block._replace(start=start, rounds=block.rounds.taken(rows), unit=unit, times=times, forecast=block.forecast[rows])


EVERYTHING = Window(-np.inf, np.inf)
