"""Rows that break a rule, and the sentence that names the rule."""

from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.kernels import limits
from mebandit.logs.cells import numbers
from mebandit.logs.columns import Columns, constant


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


def fault_of(batch: Any, t: int, *, columns: Columns, n_actions: int, file: str, row: int) -> Fault:
    """What is wrong with a row, in words: the first rule that it breaks."""
    k = n_actions

    def cell(name: str) -> tuple[float, str]:
        raw = batch.column(name)[t].as_py()
        value = float(numbers(batch.column(name).slice(t, 1))[0])
        return value, "nothing" if raw is None else repr(raw)

    number = f"be a finite number of at most {limits.LARGEST:g} in size"
    for name in (*columns.predicted, columns.reward):
        value, shown = cell(name)
        if not abs(value) <= limits.LARGEST:
            return Fault(file, row, name, number, shown)
    a, shown = cell(columns.action)
    if not (0 <= a <= k - 1 and a == np.floor(a)):
        remedy = "" if k > 2 else " (the first action is 0; for more than two actions, give n_actions)"
        return Fault(file, row, columns.action, f"be a whole number from 0 to {k - 1}{remedy}", shown)
    given = {name: cell(name) for name in columns.propensity}
    if len(given) == 1:
        name, (value, shown) = next(iter(given.items()))
        if not 0 < value <= 1:
            return Fault(file, row, name, "be in (0, 1], the probability that the action was drawn with", shown)
        if value < limits.LEAST:
            return Fault(file, row, name, f"be at least {limits.LEAST:g}", shown)
    else:
        for name, (value, shown) in given.items():
            if not 0 <= value <= 1 + limits.ROUNDED:
                return Fault(file, row, name, "be a probability", shown)
        total, taken = sum(value for value, _ in given.values()), columns.propensity[int(a)]
        if not given[taken][0] >= limits.LEAST:
            return Fault(file, row, taken, "be positive, since its action was taken", given[taken][1])
        if abs(total - 1) > limits.ROUNDED:
            rule = f"sum to 1, but for rounding of at most {limits.ROUNDED:g}"
            return Fault(file, row, ", ".join(columns.propensity), rule, f"{total:.6g}")
    if columns.unit and batch.column(columns.unit)[t].as_py() is None:
        return Fault(file, row, columns.unit, "name a unit", "nothing")
    for name in columns.error:
        if constant(name) is None:
            value, shown = cell(name)
            if not abs(value) <= limits.LARGEST or (len(columns.error) == len(columns.predicted) and value < 0):
                return Fault(file, row, name, "be a variance of at least 0", shown)
    shown = checks.shown(np.array([cell(name)[0] if constant(name) is None else float(name) for name in columns.error]))
    return Fault(file, row, ", ".join(columns.error), "be the lower triangle of a positive semidefinite matrix", shown)
