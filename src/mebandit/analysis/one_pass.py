"""A log that is gone through once: fourth moments for all estimates and standard errors, and the counts behind the diagnostics.

That is enough where Σe is one for all rounds, rounds stand alone, every action was always allowed and there are few features.
"""

from typing import NamedTuple

import numpy as np

from mebandit import _kernels
from mebandit.analysis.diagnostics import Tally, tally_of
from mebandit.analysis.reading import Reading
from mebandit.analysis.source import Block
from mebandit.correction import Correction
from mebandit.fourth_moments import MOST_FEATURES, FourthMoments, Units, fourth_moments, units_of
from mebandit.moments import Crossproducts, Rounds
from mebandit.values import Floats

SAMPLE = 1 << 16
"""rounds, evenly spread over the log, that stay in memory for what cannot be counted before θ is known"""


class Uneven(Exception):
    """Some round did not allow all actions: what it offered is then not told by sums over what was taken."""


class Start(NamedTuple):
    """What is known before the log is gone through."""

    units: Units
    """of x̃ and r in the fourth moments"""
    measured: Units
    """of unbiased x̃ in the tally"""
    rows: int


class Once(NamedTuple):
    """What one time through a log gives."""

    start: Start
    moments: FourthMoments
    tally: Tally
    sample: tuple[Floats, ...]
    """x̃ of some rounds, a row for each feature, block by block"""

    @property
    def rounds(self) -> Floats:
        return self.moments.rounds

    @property
    def products(self) -> Crossproducts:
        return self.moments.crossproducts(self.start.units)

    def merge(self, other: "Once") -> "Once":
        return Once(self.start, self.moments.merge(other.moments), self.tally.merge(other.tally), self.sample + other.sample)

    def tally_with(self, theta: Floats, error: Correction) -> Tally:
        """With the rounds of the sample in which two actions are close; `theta` is (K, p)."""
        x, k = np.hstack(self.sample), len(theta)
        none = np.empty(0)
        seen = Rounds(
            x, np.empty(0, dtype=np.int64), none, none, np.empty((1, 0)), np.ones((1, k), dtype=np.bool_), np.full((1, k), 1.0 / k)
        )
        close = np.zeros_like(self.tally.close)
        _kernels.count_close(close, theta, False, error.ready(seen))
        return self.tally._replace(close=close)


def start_of(reading: Reading) -> Start | None:
    """What going through a log once begins with; None where it takes more than once, or the number of its rows is not known."""
    source = reading.source
    if reading.error.varying or source.columns.unit is not None or len(source.columns.predicted) > MOST_FEATURES or source.rows is None:
        return None
    block = source.first()
    if block is None:
        return None
    center, scale = units_of(reading.error.ready(block.rounds))
    return Start(units_of(block.rounds), Units(center[:-1], scale[:-1]), source.rows)


def gathered(block: Block, reading: Reading, start: Start, floor: float | None) -> Once:
    """What a block is to all that is gathered."""
    rounds, k = block.rounds, reading.source.n_actions
    if len(rounds.allowed) > 1:
        raise Uneven
    moments = fourth_moments(rounds, k, start.units)
    tally = tally_of(block, reading.error.ready(rounds), k, start.rows, start.measured, floor)
    step = max(-(-start.rows // SAMPLE), 1)
    return Once(start, moments, tally, (rounds.predicted[:, -block.start % step :: step].copy(),))
