"""Rows that break a rule, and the sentence that names the rule."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.kernels import limits
from mebandit.logs.cells import empty_cells
from mebandit.logs.coding import Category, Coding, where_available
from mebandit.logs.columns import Columns, constant
from mebandit.logs.left_out import LEAST_OBSERVED


class Fault(NamedTuple):
    """A row that breaks a rule."""

    file: str
    row: int
    column: str
    rule: str
    value: str

    def __str__(self) -> str:
        column = f" column {self.column!r}" if self.column else ""
        return f"{self.file} row {self.row}{column} must {self.rule}; got {self.value}."


class Broken(NamedTuple):
    """A rule that a cell, or several, break."""

    column: str
    rule: str
    value: str


def fault_of(batch: Any, t: int, *, columns: Columns, coding: Coding, n_actions: int, file: str, row: int) -> Fault:
    """What is wrong with a row, in words: the first rule that it breaks."""
    broken = _Row(batch.slice(t, 1), columns, coding, n_actions).broken()
    return Fault(file, row, *broken)


@dataclass(frozen=True)
class _Row:
    """A row that breaks a rule, as the log has it."""

    cells: Any
    """a record batch of one row"""
    columns: Columns
    coding: Coding
    n_actions: int

    def broken(self) -> Broken:
        """The first rule that it breaks."""
        checked = (self.numbers, self.action, self.propensities, self.unit_and_time, self.observed, self.error)
        return next(found for check in checked if (found := check()) is not None)

    def number(self, name: str) -> float:
        """What a cell stands for."""
        value = np.empty(1)
        self.coding.write(value, self.cells, name, self.columns)
        return float(value[0])

    def shown(self, name: str) -> str:
        """A cell as the log has it."""
        raw = self.cells.column(self.coding.column_of(name))[0].as_py()
        return "nothing" if raw is None or raw == "" else repr(raw)

    def numbers(self) -> Broken | None:
        for name in (*self.columns.predicted, *self.columns.baseline, self.columns.reward):
            if not abs(self.number(name)) <= limits.LARGEST:
                made = self.coding.features.get(name)
                rule = "name a category" if isinstance(made, Category) else "be a date or a time such as 2024-03-01 or 2024-03-01 08:30"
                rule = f"be a finite number of at most {limits.LARGEST:g} in size" if made is None else rule
                return Broken(self.coding.column_of(name), rule, self.shown(name))
        return None

    @property
    def is_available(self) -> bool:
        return self.columns.available is None or bool(where_available(self.cells.column(self.columns.available))[0][0])

    def action(self) -> Broken | None:
        name, free, k = self.columns.action, self.is_available, self.n_actions
        if self.columns.available and where_available(self.cells.column(self.columns.available))[1][0]:
            return Broken(self.columns.available, "be True or False", self.shown(self.columns.available))
        if not free and empty_cells(self.cells.column(name))[0]:
            return None
        a = self.number(name)
        if not (0 <= a <= k - 1 and a == np.floor(a)):
            remedy = "" if k > 2 else " (the first action is 0; for more than two actions, give n_actions)"
            rule = f"be one of {', '.join(self.coding.actions)}" if self.coding.worded else f"be a whole number from 0 to {k - 1}{remedy}"
            return Broken(name, rule, self.shown(name))
        if not free and a != 0:
            return Broken(name, f"be {self._called(0)}, or empty, where the participant was not available", self.shown(name))
        return None

    def _called(self, action: int) -> str:
        return repr(self.coding.actions[action]) if self.coding.actions else str(action)

    def propensities(self) -> Broken | None:
        if not self.is_available:
            return None
        given = {name: self.number(name) for name in self.columns.propensity}
        if self.coding.probability_of is not None:
            return self._of_one_action(*next(iter(given.items())), self.coding.probability_of)
        if len(given) == 1:
            name, value = next(iter(given.items()))
            if not 0 < value <= 1:
                return Broken(name, "be in (0, 1], the probability that the action was drawn with", self.shown(name))
            return Broken(name, f"be at least {limits.LEAST:g}", self.shown(name)) if value < limits.LEAST else None
        for name, value in given.items():
            if not 0 <= value <= 1 + limits.ROUNDED:
                return Broken(name, "be a probability", self.shown(name))
        total, taken = sum(given.values()), self.columns.propensity[int(self.number(self.columns.action))]
        if not given[taken] >= limits.LEAST:
            return Broken(taken, "be positive, since its action was taken", self.shown(taken))
        if abs(total - 1) > limits.ROUNDED:
            rule = f"sum to 1, but for rounding of at most {limits.ROUNDED:g}"
            return Broken(", ".join(self.columns.propensity), rule, f"{total:.6g}")
        return None

    def _of_one_action(self, name: str, value: float, action: int) -> Broken | None:
        """Of a column with the probability of one action."""
        whose, a = f"the probability of action {self._called(action)}", self.number(self.columns.action)
        if not 0 <= value <= 1:
            return Broken(name, f"be in [0, 1], {whose}", self.shown(name))
        if self.coding.taken(np.array([value]), np.array([a]))[0] >= limits.LEAST:
            return None
        side = "above 0" if a == action else "below 1"
        return Broken(name, f"be {side}, {whose}, since action {self._called(int(a))} was taken", self.shown(name))

    def unit_and_time(self) -> Broken | None:
        unit, time = self.columns.unit, self.columns.time
        if unit and self.cells.column(unit)[0].as_py() is None:
            return Broken(unit, "name a unit", "nothing")
        if time and np.isnan(self.coding.times(self.cells, time)[0]):
            rule = "be a date or a time such as 2024-03-01 or 2024-03-01 08:30" if self.coding.dated else "be a number"
            return Broken(time, rule, self.shown(time))
        return None

    def observed(self) -> Broken | None:
        name = self.columns.observed
        if name is None or LEAST_OBSERVED <= self.number(name) <= 1:
            return None
        return Broken(name, f"be in [{LEAST_OBSERVED:g}, 1], the probability that the outcome is observed", self.shown(name))

    def error(self) -> Broken:
        """What is left to be wrong."""
        columns = self.columns
        values = [self.number(name) if constant(name) is None else float(name) for name in columns.error]
        for name, value in zip(columns.error, values, strict=True):
            outside = not abs(value) <= limits.LARGEST or (len(columns.error) == len(columns.predicted) and value < 0)
            if constant(name) is None and outside:
                return Broken(name, "be a variance of at least 0", self.shown(name))
        return Broken(", ".join(columns.error), "be the lower triangle of a positive semidefinite matrix", checks.shown(np.array(values)))
