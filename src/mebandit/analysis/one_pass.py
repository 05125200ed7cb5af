"""A log that is gone through once: fourth moments for all estimates and standard errors, and the counts behind the diagnostics.

That is enough where Σe is one for all rounds, rounds stand alone, every action was always allowed and there are few features and actions.
"""

from typing import NamedTuple

import numpy as np

from mebandit import _kernels
from mebandit.analysis.diagnostics import Tally, count_rounds, parts_of, tally_of_ends
from mebandit.analysis.reading import Reading
from mebandit.analysis.source import Block
from mebandit.correction import Correction
from mebandit.denoise import Calibration
from mebandit.fourth_moments import FourthMoments, are_few, no_fourth_moments
from mebandit.moments import Rounds
from mebandit.values import Floats

SAMPLE = 1 << 16
"""rounds, evenly spread over the log, that stay in memory for what cannot be counted before θ is known"""


FAR = 1000.0
"""standard deviations of a feature: its fourth power then has four digits left about the mean"""


class Uneven(Exception):
    """Some round did not allow all actions: what it offered is then not told by sums over what was taken."""


class Once(NamedTuple):
    """What one time through a log gives."""

    moments: FourthMoments
    tally: Tally
    """of x̃ as it is, but for the ends, which are of unbiased predictions; without powers and, of two actions, chance"""
    sample: tuple[Floats, ...]
    """x̃ of some rounds, a row for each feature, block by block"""

    @property
    def rounds(self) -> Floats:
        return self.moments.rounds

    def merge(self, other: "Once") -> "Once":
        return Once(self.moments.merge(other.moments), self.tally.merge(other.tally), self.sample + other.sample)

    def is_far(self, calibration: Calibration) -> bool:
        """Whether a feature is so far from 0 that powers of it do not tell its skewness."""
        far = np.abs(calibration.mean) > FAR * calibration.scale
        return bool((far & ~self.moments.products.constant).any())

    def tally_with(self, theta: Floats, error: Correction, mean: Floats) -> Tally:
        """Of unbiased predictions, with powers about their mean, and the rounds of the sample in which two actions are close; `theta` is
        (K, p)."""
        x, k = np.hstack(self.sample), len(theta)
        none, always = np.empty(0), np.ones((1, k), dtype=np.bool_)
        seen = Rounds(x, np.empty(0, dtype=np.int64), none, none, np.empty((1, 0)), always, np.full((1, k), 1.0 / k))
        close = np.zeros_like(self.tally.close)
        _kernels.count_close(close, theta, False, error.ready(seen))
        away = error.unbiasing[1:-1].copy()
        away[:, 0] -= mean
        raw = self.tally._replace(chance=self.moments.chance) if k == 2 else self.tally
        return raw.mapped(error.unbiasing[:-1, :-1])._replace(close=close, powers=self.moments.powers(away))


def known_rows(reading: Reading) -> int | None:
    """The number of rows of a log for which one time may do; it must be known, for the tally of its parts and for the sample."""
    source = reading.source
    if not are_few(source.n_actions, len(source.columns.predicted)) or reading.error.varying or source.columns.unit is not None:
        return None
    return source.rows


def gathered(block: Block, reading: Reading, rows: int, floor: float | None) -> Once:
    """What a block is to all that is gathered from so many rows."""
    rounds, k = block.rounds, reading.source.n_actions
    if not (len(rounds.allowed) == 1 and rounds.allowed.all()):
        raise Uneven
    moments, tally = no_fourth_moments(k, len(rounds.predicted)), tally_of_ends(block, reading.error.ready(rounds), k)
    for part, begin, end in parts_of(block, rows):
        before = moments.second
        levels = moments.add(rounds, begin, end)
        tally.segments[part, : before.size] = moments.second - before
        if block.forecast.size and k > 2:
            _kernels.add_chance(tally.chance, begin, end, rounds, block.forecast)
        else:
            _kernels.count_probabilities(tally, *levels.rounds, block.forecast[:0], floor or 0.0)
            begin = levels.end
        count_rounds(tally, block, begin, end, floor)
    step = max(-(-rows // SAMPLE), 1)
    return Once(moments, tally, (rounds.predicted[:, -block.start % step :: step].copy(),))
