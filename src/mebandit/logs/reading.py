"""What every analysis of a log does first: read it once for its crossproducts, and refuse rows that break a rule or set them aside."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.correction import Correction
from mebandit.estimation.moments import Crossproducts, Rounds, crossproducts
from mebandit.logs.fault import Fault
from mebandit.logs.left_out import LeftOut
from mebandit.logs.log import Log
from mebandit.logs.source import Block, Source, wider
from mebandit.runtime.escaping import in_cell
from mebandit.runtime.files import begins_with, check_output, write_whole
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.values import Floats


class Counted(NamedTuple):
    """What the first reading of a log gives."""

    sums: Crossproducts
    faults: list[Fault]
    left_out: LeftOut
    contexts: "ByUnit"
    """Σ (1, x̃) by unit, (units, d + 1); no units: nothing"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1)"""

    def merge(self, other: "Counted") -> "Counted":
        sums, left_out, contexts = self.sums.merge(other.sums), self.left_out.merge(other.left_out), self.contexts.merge(other.contexts)
        return Counted(sums, self.faults + other.faults, left_out, contexts, wider(self.ends, other.ends))

    def spread_of_mean(self, error: Correction) -> Floats:
        """The covariance of the mean prediction, unbiased, with rounds of a unit taken together, (d, d).

        Args:
            error: What is known of the error, which may unbias predictions.
        """
        mean, cov = self.sums.context.mean_and_cov
        n = max(float(self.sums.rounds.sum()), 1.0)
        own = self.contexts.totals
        away = own[:, 1:] - own[:, :1] * mean
        A = error.unbiasing[1:-1, 1:-1]
        return np.asarray(A @ (away.T @ away / n**2 if len(own) else cov / n) @ A.T)

    @property
    def rows(self) -> int:
        """All rows of the log, used or not."""
        return int(self.sums.rounds.sum()) + len(self.faults) + self.left_out.rows


@dataclass(frozen=True)
class Reading:
    """A log with what is known of its error."""

    source: Source
    error: Correction
    """as given; `Correction.completed` adds what depends on the log"""
    error_known: bool = True
    """whether anything is known of the error; if not, it is taken as zero"""

    def count(self, *, on_bad: str = "refuse", set_aside: str | Path | None = None) -> Counted:
        """The crossproducts of the log; rows that break a rule are refused, or written to a file."""
        checks.one_of("on_bad", on_bad, ("refuse", "set-aside"))
        if on_bad == "set-aside" and set_aside is None:
            checks.refuse("set_aside", "name the file for rows that break a rule", "nothing")
        if on_bad == "refuse" and set_aside is not None:
            remedy = "Add `on_bad='set-aside'`."
            checks.refuse("set_aside", "be given only together with `on_bad='set-aside'`", f"{set_aside} with `on_bad='refuse'`", remedy)
        if on_bad == "set-aside" and set_aside is not None:
            check_output(set_aside, self.source.parts, ours=begins_with(",".join(Fault._fields)))
        self.source.checked = False
        counted = self.counted()
        self.source.checked = not counted.faults and not counted.left_out.rows
        if counted.faults and on_bad == "refuse":
            others = len(counted.faults) - 1
            more = "" if not others else " 1 more row breaks a rule." if others == 1 else f" {others:,} more rows break a rule."
            raise LogError(f"{counted.faults[0]}{more} {self._remedy(counted.faults)}")
        if set_aside is not None and on_bad == "set-aside":
            write_whole(Path(set_aside), _as_csv(counted.faults))
        if not counted.sums.rounds.any():
            received = f"{len(counted.faults):,} rows, all in {set_aside}"
            if counted.left_out.rows:
                received = f"{counted.rows:,} rows, of which {counted.left_out.rows:,} lack an outcome or an available participant"
            raise LogError(f"the log must have at least one row that breaks no rule; got {received}.")
        return counted

    def counted(self) -> Counted:
        """The crossproducts of the log, and the rows that break a rule, whatever becomes of these."""
        return self.source.through(self._counted, Counted.merge, "reading")

    def _remedy(self, faults: list[Fault]) -> str:
        """What to do about rows that break a rule."""
        remedy, columns = "Correct the log, or set such rows aside (`on_bad='set-aside'`).", self.source.columns
        broken = {(fault.column, fault.value.strip("'")) for fault in faults}
        if len(columns.propensity) == 1 and broken & {(columns.propensity[0], "0"), (columns.propensity[0], "0.0")}:
            remedy += " If the column is the probability of one action, whichever was taken, say of which (`probability_of=1`)."
        if broken & {(columns.reward, empty) for empty in ("nothing", "NA", "NaN", "nan")}:
            remedy += " Rows without a reward can be left out (`missing_outcomes='leave-out'`)."
        return remedy

    def _counted(self, block: Block) -> Counted:
        """What a block adds to the first reading."""
        x = block.rounds.context.predicted
        totals = np.zeros((len(block.units), 1 + len(x)))
        if block.units:
            for i, row in enumerate((None, *x)):
                totals[:, i] = np.bincount(block.unit, row, len(block.units))
        return Counted(self.products(block), block.faults, block.left_out, by_unit(block, totals), block.ends)

    def products(self, block: Block) -> Crossproducts:
        """The crossproducts of a block, of the predictions as they are."""
        return crossproducts(self.error.rescaled(block.rounds), self.source.n_actions, varying=self.error.varying)

    def ready(self, block: Block, error: Correction) -> Rounds:
        """The rounds of a block with unbiased predictions and their error covariance; `error` is the settled one."""
        return error.unbiased_rounds(self.error.rescaled(block.rounds))


def reading_of(
    log: Log, *, error_needed: bool = True, only_available: bool = False, workers: Workers = None, progress: Show = None
) -> Reading:
    """A log that is ready to be read; without anything known of its error, that is zero, or refused if it is needed.

    Args:
        log: The log.
        error_needed: Whether the error must be known.
        only_available: Whether rows are left out in which the participant was not available.
        workers: As in `Log.open`.
        progress: As in `Log.open`.
    """
    source, d = log.open(workers, progress), len(log.columns.predicted)
    source.without_unavailable = only_available
    if log.error is not None:
        return Reading(source, log.error)
    if error_needed:
        refuse_unknown_error()
    return Reading(source, Correction(np.zeros((d, d)), False), error_known=False)


def refuse_unknown_error() -> NoReturn:
    """The error covariance is needed and not known."""
    remedy = "Give error_cov, or name the columns that hold it in error_columns; `error_cov=0` for predictions without error."
    checks.refuse("the error covariance", "be known, to be corrected for", "nothing", remedy)


def _as_csv(faults: list[Fault]) -> str:
    """Faulty rows as a CSV."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(Fault._fields)
    writer.writerows([in_cell(part) if isinstance(part, str) else part for part in fault] for fault in faults)
    return text.getvalue()


class ByUnit(NamedTuple):
    """Sums by unit, found by the units' labels."""

    places: dict[Any, int]
    """the row of each unit"""
    totals: Floats
    """(units, ...)"""

    def merge(self, other: "ByUnit") -> "ByUnit":
        """The sums of both."""
        if not other.places:
            return self
        places = dict(self.places)
        rows = np.array([places.setdefault(label, len(places)) for label in other.places], dtype=np.int64)
        totals = np.zeros((len(places), *self.totals.shape[1:]))
        totals[: len(self.totals)] = self.totals
        totals[rows] += other.totals
        return ByUnit(places, totals)


def by_unit(block: Block, totals: Floats) -> ByUnit:
    """The sums of a block's units, in the order in which it has them."""
    return ByUnit({label: i for i, label in enumerate(block.units)}, totals)
