"""A diagnostic's result, what the diagnostics read, and how a verdict follows from a number.

Green: nothing to report. Yellow: read the estimates with this in mind. Red: do not trust the estimates until this is resolved.
The limits between them are conventions, written beside each diagnostic.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mebandit.analysis.diagnostics.tally import Tally
from mebandit.estimation.best_linear import Calibration
from mebandit.estimation.correction import Correction
from mebandit.estimation.moments import Crossproducts
from mebandit.estimation.result import Estimate
from mebandit.estimation.solution import Solution
from mebandit.logs.coding import Coding
from mebandit.logs.fault import Fault
from mebandit.logs.left_out import LeftOut
from mebandit.measurement import ErrorModel
from mebandit.values import GREEN, RED, YELLOW, Integers

PLAIN = Coding()


ROUNDING = 1e-9
"""of a number that is held against a limit"""


class Pairs(NamedTuple):
    """What pairs of prediction and truth say of some features."""

    model: ErrorModel
    places: Integers
    """the numbers of these features, in the order of the model's"""


class Evidence(NamedTuple):
    """What the diagnostics read."""

    features: tuple[str, ...]
    products: Crossproducts
    solution: Solution
    estimates: dict[str, Estimate]
    tally: Tally
    error: Correction
    """what was taken out, with the mean Σe"""
    floor: float | None
    units: int
    """clusters behind the standard errors; 0: rounds stand alone"""
    faults: Sequence[Fault] = ()
    """rows that were set aside"""
    berkson: str = ""
    """the warning, where Σe is subtracted though pairs of prediction and truth say that the error is Berkson"""
    pairs: tuple[Pairs, ...] = ()
    """what pairs say, where Σe is subtracted from predictions as they are"""
    left_out: LeftOut | None = None
    """rows without an outcome, or without an available participant"""
    coding: Coding = PLAIN
    """what the log says of its actions and their probabilities"""

    def action(self, a: int) -> str:
        """An action by its label, or its number."""
        return repr(self.coding.actions[a]) if self.coding.actions else str(a)

    @property
    def calibration(self) -> Calibration:
        return self.solution.calibration


def judged(value: float, yellow: float, red: float) -> str:
    """Small is bad: red below `red`, yellow below `yellow`, by more than rounding."""
    value *= 1 + ROUNDING
    return RED if not value >= red else YELLOW if value < yellow else GREEN


def percent(share: float) -> str:
    """A share in words, with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def gravity(verdict: str) -> int:
    return (GREEN, YELLOW, RED).index(verdict)
