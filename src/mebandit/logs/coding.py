"""What the cells of a log mean as numbers: categories, dates, labels of actions, the probability of one action, availability.

A feature that is a category with L labels becomes L - 1 features, `location=work` and so on, each 1 where the category has that label. The
label without a feature is the reference. A date becomes the number of days since the first one in the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.logs.cells import days, labels, numbers, write_numbers
from mebandit.logs.columns import Columns
from mebandit.values import Booleans, Floats, Integers

MOST_CATEGORIES = 50
"""labels of a categorical column, at most"""


class Category(NamedTuple):
    """1 where a column has a label, else 0; NaN where it has none."""

    column: str
    label: str


class Day(NamedTuple):
    """Days since the first date of a column."""

    column: str
    first: float


@dataclass(frozen=True, kw_only=True)
class Coding:
    """How the cells of a log become numbers."""

    features: Mapping[str, Category | Day] = field(default_factory=dict)
    """the features that are not numbers in the log, by name"""
    references: Mapping[str, str] = field(default_factory=dict)
    """the reference of each categorical column"""
    actions: tuple[str, ...] = ()
    """the labels of the actions, in the order of their numbers; empty: actions have no labels"""
    worded: bool = False
    """whether the action column holds labels, not numbers"""
    probability_of: int | None = None
    """the action whose probability is in the propensity column; None: the action taken"""
    weighted: bool = False
    """whether rounds are weighted by the inverse probability that their outcome is observed"""
    dated: bool = False
    """whether the time column holds dates"""
    span: tuple[float, float] = (0.0, 0.0)
    """the first and the last time of the log"""

    @property
    def is_plain(self) -> bool:
        """Whether all cells are the numbers that they stand for."""
        return not self.features and not self.worded and self.probability_of is None

    def column_of(self, name: str) -> str:
        """The column in the log that a feature is made from."""
        return self.features[name].column if name in self.features else name

    def write(self, out: Floats, batch: Any, name: str, columns: Columns) -> None:
        """The numbers that a column of a batch stands for, into an array; NaN where a cell breaks a rule."""
        made = self.features.get(name)
        if made is None and name == columns.action and self.worded:
            out[:] = self._action_numbers(batch.column(name))
        elif made is None:
            write_numbers(out, batch.column(name))
        elif isinstance(made, Day):
            out[:] = days(batch.column(made.column)) - made.first
        else:
            place, found = _named(batch.column(made.column))
            own = found.index(made.label) if made.label in found else -2
            out[:] = np.where(place < 0, np.nan, place == own)

    def _action_numbers(self, column: Any) -> Floats:
        """The number of each action, by its label; NaN where it is none of them."""
        place, found = _named(column)
        known = np.array([self.actions.index(label) if label in self.actions else np.nan for label in found] + [np.nan])
        return np.asarray(known[place])

    def taken(self, propensities: Floats, actions: Floats) -> Floats:
        """The probability of the action taken, from that of one action; 0 where it was not possible."""
        if self.probability_of is None:
            return propensities
        return np.where(actions == self.probability_of, propensities, 1.0 - propensities)

    def times(self, batch: Any, name: str) -> Floats:
        """When each decision was made, from 0 at the first to 1 at the last; NaN where that is not known."""
        first, last = self.span
        found = days(batch.column(name)) if self.dated else numbers(batch.column(name))
        return np.asarray((found - first) / (last - first if last > first else 1.0))


class Found(NamedTuple):
    """What a first look through a log finds in the columns that are not numbers."""

    labels: dict[str, set[str]]
    """the labels of each column of categories, and of the actions"""
    ends: dict[str, tuple[float, float]]
    """the smallest and the largest value of each column of times and dates"""

    def merge(self, other: "Found") -> "Found":
        both = {name: own | other.labels[name] for name, own in self.labels.items()}
        ends = {name: (min(low, other.ends[name][0]), max(high, other.ends[name][1])) for name, (low, high) in self.ends.items()}
        return Found(both, ends)


def looked_at(batch: Any, worded: Sequence[str], timed: Mapping[str, bool]) -> Found:
    """The labels, and the ends of times, in a batch of a log.

    Args:
        batch: A record batch.
        worded: The columns that hold labels.
        timed: The columns that hold times, each with whether these are dates.
    """
    found = {name: set(_named(batch.column(name))[1]) - {""} for name in worded}
    ends = {}
    for name, dated in timed.items():
        values = days(batch.column(name)) if dated else numbers(batch.column(name))
        ends[name] = (float(np.fmin.reduce(values, initial=np.inf)), float(np.fmax.reduce(values, initial=-np.inf)))
    return Found(found, ends)


def _named(column: Any) -> tuple[Integers, list[Any]]:
    """`labels`, with an empty text as no label."""
    place, found = labels(column)
    return (np.where(place == found.index(""), -1, place), found) if "" in found else (place, found)


def expanded(columns: Columns, kinds: Mapping[str, str], found: Found, wanted: Mapping[str, str | None]) -> tuple[Columns, Coding]:
    """The columns with features in place of categories and dates, and how these are made.

    Args:
        columns: The columns as the log has them.
        kinds: What each of them holds: "number", "date" or "words".
        found: What a first look found.
        wanted: The columns that the user calls categorical, each with its reference if that is given.
    """
    names: list[str] = []
    features: dict[str, Category | Day] = {}
    references = {}
    for name in columns.predicted:
        if kinds[name] == "date" and name not in wanted:
            features[name] = Day(name, found.ends[name][0])
            names.append(name)
        elif kinds[name] == "words" or name in wanted:
            references[name] = reference = _reference(name, found.labels[name], wanted.get(name))
            own = {f"{name}={label}": Category(name, label) for label in sorted(found.labels[name]) if label != reference}
            features |= own
            names += own
        else:
            names.append(name)
    coding = Coding(features=features, references=references, weighted=columns.observed is not None)
    if columns.time is not None:
        coding = replace(coding, dated=kinds[columns.time] != "number", span=found.ends[columns.time])
    return replace(columns, predicted=tuple(names)), coding


def _reference(name: str, labels: set[str], given: str | None) -> str:
    """The label of a category that has no feature: the given one, else the first in the alphabet."""
    if not 2 <= len(labels) <= MOST_CATEGORIES:
        received = f"{len(labels)} in {name!r}" + (f" ({', '.join(map(repr, sorted(labels)[:3]))}, ...)" if len(labels) > 2 else "")
        remedy = "Leave the column out, or merge labels." if len(labels) > 2 else "Leave the column out."
        checks.refuse("categories", f"have 2 to {MOST_CATEGORIES} labels", received, remedy)
    if given is None:
        return min(labels)
    return checks.one_of(f"the reference of {name!r}", given, sorted(labels))


def with_actions(coding: Coding, action: str, given: Sequence[str] | None, *, worded: bool, found: set[str]) -> Coding:
    """The coding with the labels of the actions: the given ones, else those in the log in the order of the alphabet."""
    if given is not None and len(set(given)) < max(len(given), 2):
        checks.refuse("action_labels", "name each action once, two at least", ", ".join(given))
    if not worded:
        return replace(coding, actions=tuple(given or ()))
    chosen = tuple(sorted(found)) if given is None else tuple(given)
    if len(chosen) < 2:
        remedy = "Name all of them by `action_labels`."
        checks.refuse("the actions", "have two labels at least", f"{', '.join(map(repr, chosen)) or 'none'} in {action!r}", remedy)
    if len(chosen) > MOST_CATEGORIES:
        rule = f"have at most {MOST_CATEGORIES} labels"
        checks.refuse("the actions", rule, f"{len(chosen)} in {action!r}", "Number them from 0, or name them by `action_labels`.")
    return replace(coding, actions=chosen, worded=True)


def action_number(what: str, given: Any, actions: Sequence[str], n_actions: int) -> int:
    """The number of an action that is given by its number or by its label.

    Args:
        what: The argument that a refusal names.
        given: A label, a number, or a number as text.
        actions: The labels, if there are any.
        n_actions: K.
    """
    if isinstance(given, str):
        if given in actions:
            return actions.index(given)
        if given.isascii() and given.isdecimal() and len(given) < 10:
            return checks.integer(what, int(given), 0, n_actions - 1)
        known = f"one of {', '.join(actions)}, or a number" if actions else "the number of an action"
        checks.refuse(what, f"be {known} from 0 to {n_actions - 1}", repr(given))
    return checks.integer(what, given, 0, n_actions - 1)


def where_available(column: Any) -> tuple[Booleans, Booleans]:
    """Where the participant was available, and where the log does not say so."""
    found = numbers(column)
    return found == 1.0, ~np.isin(found, (0.0, 1.0))
