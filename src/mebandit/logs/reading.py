"""From arguments to a log that can be read: its columns, its error, and what becomes of rows that break a rule.

What every analysis of a log does first is here: find the columns, settle what is known of the error, go through the log once for its
crossproducts, and refuse faulty rows or set them aside.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.correction import Correction
from mebandit.estimation.moments import Crossproducts, Rounds, crossproducts
from mebandit.logs.formats import Columns, Fault, read_matrix
from mebandit.logs.source import Block, Source, open_log
from mebandit.measurement import ErrorModel
from mebandit.runtime.escaping import in_cell
from mebandit.runtime.files import begins_with, check_output, write_whole
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers, checked
from mebandit.values import Floats


class Counted(NamedTuple):
    """What the first time through the log gives."""

    sums: Crossproducts
    faults: list[Fault]

    def merge(self, other: "Counted") -> "Counted":
        return Counted(self.sums.merge(other.sums), self.faults + other.faults)


@dataclass(frozen=True)
class Reading:
    """A log with what is known of its error."""

    source: Source
    error: Correction
    """as given: what only the log can say, `Correction.completed` adds"""
    error_known: bool = True
    """whether anything was said of the error; else it counts as zero"""

    def count(self, *, on_bad: str = "refuse", set_aside: str | Path | None = None, may_set_aside: bool = True) -> Counted:
        """The crossproducts of the log; rows that break a rule are refused, or put into a file, if the caller offers that."""
        checks.one_of("on_bad", on_bad, ("refuse", "set-aside"))
        if on_bad == "set-aside" and set_aside is None:
            checks.refuse("set_aside", "be the file for rows that are set aside", "nothing")
        if on_bad == "refuse" and set_aside is not None:
            remedy = "Add on_bad='set-aside' (--on-bad set-aside)."
            checks.refuse("set_aside", "go with setting bad rows aside", f"{set_aside} where the first of them is an error", remedy)
        if on_bad == "set-aside" and set_aside is not None:
            check_output(set_aside, self.source.parts, ours=begins_with(",".join(Fault._fields)))
        counted = self.source.through(lambda block: Counted(self.products(block), block.faults), Counted.merge, "reading")
        if counted.faults and on_bad == "refuse":
            others = len(counted.faults) - 1
            more = "" if not others else " 1 more row breaks a rule." if others == 1 else f" {others:,} more rows break a rule."
            remedy = "Correct the log."
            if may_set_aside:
                remedy = "Correct the log, or set such rows aside (on_bad='set-aside', --on-bad set-aside)."
            raise LogError(f"{counted.faults[0]}{more} {remedy}")
        if set_aside is not None and on_bad == "set-aside":
            write_whole(Path(set_aside), _as_csv(counted.faults))
        if not counted.sums.rounds.any():
            raise LogError(f"the log must hold at least one row that breaks no rule; got {len(counted.faults):,} that do, in {set_aside}.")
        return counted

    def products(self, block: Block) -> Crossproducts:
        """The crossproducts of a block, of the predictions as they are."""
        return crossproducts(self.error.rescaled(block.rounds), self.source.n_actions, varying=self.error.varying)

    def ready(self, block: Block, error: Correction) -> Rounds:
        """The rounds of a block with unbiased predictions and their error covariance; `error` is the settled one."""
        return error.unbiased_rounds(self.error.rescaled(block.rounds))


def open_reading(
    log: Any,
    *,
    predicted: str | Sequence[str] | None = None,
    action: str = "action",
    reward: str = "reward",
    propensity: str | Sequence[str] | None = None,
    unit: str | None = None,
    n_actions: int | None = None,
    error_cov: Any = None,
    error_columns: str | Sequence[str] | None = None,
    error_needed: bool = True,
    workers: Workers = None,
    progress: Show = None,
) -> Reading:
    """The log that the arguments of `mebandit.fit` name; nothing but its columns has been looked at."""
    names = {
        "predicted": _names("predicted", predicted),
        "action": _name("action", action),
        "reward": _name("reward", reward),
        "propensity": _names("propensity", propensity),
        "unit": _name("unit", unit),
        "error": _names("error_columns", error_columns),
    }
    source = open_log(log, names, n_actions=n_actions, error_known=error_cov is not None)
    source.workers = checked(workers)
    source.progress = progress
    d = len(source.columns.predicted)
    if error_cov is None and not source.columns.error and not error_needed:
        return Reading(source, Correction(np.zeros((d, d)), False), error_known=False)
    if isinstance(error_cov, (str, Path)):
        path = Path(error_cov)
        error_cov = ErrorModel.load(path) if path.suffix == ".json" else read_error_cov(path, d)
    return Reading(source, error_of(error_cov, source.columns))


def _name(what: str, given: Any) -> str | None:
    """The name of a column."""
    if given is not None and not (isinstance(given, str) and given.strip()):
        checks.refuse(what, "be the name of a column", checks.shown(given))
    return given


def _names(what: str, given: Any) -> tuple[str, ...] | None:
    """Column names from a list, or from one text with commas; a number stands for itself."""
    if given is None:
        return None
    try:
        listed = given.split(",") if isinstance(given, str) else list(given)
        names = tuple(str(name).strip() if isinstance(name, (str, int, float)) else "" for name in listed)
    except TypeError:
        names = ("",)
    if not all(names):
        checks.refuse(what, "be names of columns, in a list or with commas between them", checks.shown(given))
    return names


def error_of(given: Any, columns: Columns) -> Correction:
    """What was given as `error_cov`, and the columns of the log that say more."""
    d = len(columns.predicted)
    model = given if isinstance(given, ErrorModel) else None
    if model is not None:
        model.check_features("the error model", columns.predicted)
    if columns.error:
        if given is not None and (model is None or model.kind != "reported"):
            remedy = "Only a model of reported variances (measurement.from_variances) goes with columns."
            checks.refuse("the error", "be given once", "both error_cov and error columns", remedy)
        return Correction(np.zeros((d, d)), True, model)
    if given is None:
        remedy = "Give error_cov (--error-cov, --error-model), or the columns that hold it (--error-columns); 0 for none."
        checks.refuse("the error covariance", "be known, to be corrected for", "nothing", remedy)
    if model is not None:
        return Correction(model.error_cov, False, model)
    return Correction(checks.covariance("error_cov", given, d), False)


def read_error_cov(path: str | Path, d: int) -> Floats:
    """A covariance from a CSV of numbers without a header: d rows of d, one row of d variances, or one number."""
    values = read_matrix(Path(path))
    if values.shape not in ((d, d), (1, d), (1, 1)):
        rule = f"hold {d} x {d} numbers, {d} variances in one row, or one number"
        raise LogError(f"{path} must {rule}; got {values.shape[0]} x {values.shape[1]}.")
    return checks.covariance(str(path), values if values.shape == (d, d) else values[0] if values.size > 1 else float(values[0, 0]), d)


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
