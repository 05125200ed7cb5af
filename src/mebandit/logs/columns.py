"""Which columns of a log hold what: found by name, and checked against what a file has."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mebandit import checks
from mebandit.checks import LogError


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a log hold what."""

    predicted: tuple[str, ...]
    """x̃, one column for each feature"""
    baseline: tuple[str, ...] = ()
    """columns that the working model of the reward reads beside x̃"""
    action: str = "action"
    reward: str = "reward"
    propensity: tuple[str, ...] = ("propensity",)
    """π(a) of the action taken; or π of every action in turn, zero where it was not allowed"""
    unit: str | None = None
    """participant or cluster identifier, for clustered standard errors"""
    error: tuple[str, ...] = ()
    """Σe of each row: a variance for each feature (a number stands for a constant column), or the lower triangle row by row"""
    available: str | None = None
    """whether the participant was available, so that the action was randomised"""
    time: str | None = None
    """when the decision was made"""
    observed: str | None = None
    """the probability that the outcome is observed, for weights"""
    words: frozenset[str] = frozenset()
    """which of the columns are read as text: categories, labels of actions, dates"""

    @property
    def numbers(self) -> list[str]:
        """the columns that are numbers to the estimators, each once, the features first, then the baseline"""
        named = [*self.predicted, *self.baseline, self.action, self.reward, *self.propensity]
        errors = [name for name in self.error if constant(name) is None]
        return list(dict.fromkeys([*named, *errors, *([self.observed] if self.observed else [])]))

    @property
    def texts(self) -> list[str]:
        """the columns that are read as text where a file has no types, each once"""
        return list(dict.fromkeys([*filter(None, (self.unit, self.available, self.time)), *sorted(self.words)]))

    @property
    def all(self) -> list[str]:
        """all columns, each once"""
        return list(dict.fromkeys([*self.numbers, *self.texts]))


def constant(name: str) -> float | None:
    """The number that a column's name stands for, if it is one."""
    try:
        return float(name)
    except ValueError:
        return None


def listed(names: Sequence[str]) -> str:
    if not names:
        return "It has no columns."
    return f"It has {', '.join(map(repr, names[:30]))}{', ...' if len(names) > 30 else ''}."


def check_names(schema: Any, columns: Columns, where: str) -> None:
    """Refuse a table that lacks one of the columns, or has two of its name."""
    for name in columns.all:
        if name not in schema.names:
            near = [other for other in schema.names if name and name in other] or difflib.get_close_matches(name.strip(), schema.names, n=1)
            hint = f" Is it {near[0]!r}?" if near else ""
            if near and near[0].strip() == name:
                hint = f" Take the blanks out of the name {near[0]!r} in its header."
            if any(";" in other for other in schema.names[:1]):
                hint = " Its columns seem to be separated by semicolons; separate them by commas."
            said = next((f" (or name another with `{what}`)" for what in ("action", "reward", "propensity") if name == what), "")
            raise LogError(f"{where} must have a column {name!r}{said}; got none of that name.{hint} {listed(schema.names)}")
        if schema.names.count(name) > 1:
            raise LogError(f"{where} must have one column {name!r}; got {schema.names.count(name)} of that name.")


def check_types(schema: Any, columns: Columns, where: str) -> None:
    """Refuse columns of types that hold neither numbers nor, where that is meant, words."""
    import pyarrow as pa

    for name in columns.numbers:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (
            pa.types.is_floating,
            pa.types.is_integer,
            pa.types.is_boolean,
            pa.types.is_decimal,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_null,
        )
        if name not in columns.words and not any(test(kind) for test in tests):
            raise LogError(f"{where} column {name!r} must hold numbers; got {kind}.")
    for name in columns.texts:
        if not _has_labels(schema.field(name).type):
            raise LogError(f"{where} column {name!r} must hold one name in each row; got {schema.field(name).type}.")


def _has_labels(kind: Any) -> bool:
    """Whether Arrow can tell the different values of a column of this type."""
    import pyarrow as pa

    try:
        pa.array([], kind).dictionary_encode()
    except pa.ArrowException:
        return False
    return True


def found_columns(given: Mapping[str, Any], names: Sequence[str], where: str) -> Columns:
    """The columns as given, and those that were not under their usual names, but for those of Σe.

    Args:
        given: The fields of `Columns`, None where nothing was given.
        names: The columns that a log has.
        where: The name of the log.
    """

    def numbered(stem: str) -> tuple[str, ...]:
        matching = [name for name in names if re.fullmatch(stem + r"_\d+", name)]
        return tuple(sorted(matching, key=lambda name: int(name.rsplit("_", 1)[1])))

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "predicted" not in chosen:
        chosen["predicted"] = numbered("predicted")
        if not chosen["predicted"]:
            found = f"none, and {where} has no predicted_0 either. {listed(names)}"
            raise LogError(f"the columns of the predicted context must be named; got {found}")
    if "propensity" not in chosen and "propensity" not in names:
        chosen["propensity"] = numbered("propensity") or ("propensity",)
    columns = Columns(**chosen)
    for name in columns.baseline:
        if name in (*columns.predicted, columns.action, columns.reward):
            checks.refuse("baseline", "name columns beside the features, the action and the reward", repr(name))
    for what, named in (("predicted", columns.predicted), ("baseline", columns.baseline), ("propensity", columns.propensity)):
        if len(set(named)) < len(named):
            checks.refuse(what, "name each column once", ", ".join(named))
    return columns


def with_error(columns: Columns, given: Mapping[str, str] | tuple[str, ...] | None, names: Sequence[str], *, known: bool) -> Columns:
    """The columns with those of Σe: as given, or under their usual names unless Σe is known.

    Args:
        columns: The columns of a log, with its features.
        given: d columns of variances, those of a lower triangle, or the variance's column for some of the features, by name.
        names: The columns that the log has.
        known: Whether Σe is given otherwise.
    """
    d = len(columns.predicted)
    if isinstance(given, Mapping):
        for name in given:
            checks.one_of("error_columns", name, columns.predicted)
        given = tuple(given.get(name, "0") for name in columns.predicted)
    triangle = tuple(f"error_cov_{i}_{j}" for i in range(d) for j in range(i + 1))
    if not given and not known and set(triangle) <= set(names):
        given = triangle
    columns = replace(columns, error=given or ())
    stated = [number for number in map(constant, columns.error) if number is not None]
    if len(columns.error) == d and min(stated, default=0.0) < 0:
        checks.refuse("the error columns", "be variances of at least 0", f"{min(stated):g}")
    if columns.error and len(columns.error) not in (d, d * (d + 1) // 2):
        checks.refuse(
            "the error columns",
            f"name {d} columns of variances, or the {d * (d + 1) // 2} of a lower triangle",
            f"{len(columns.error)}: {', '.join(columns.error)}",
            "A number stands for a constant column: 0 for a feature without error.",
        )
    return columns
