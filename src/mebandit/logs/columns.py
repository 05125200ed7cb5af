"""Which columns of a log hold what: found by name, and checked against what a file has."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mebandit import checks
from mebandit.checks import LogError


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a log hold what."""

    predicted: tuple[str, ...]
    """x̃, one column for each feature"""
    action: str = "action"
    reward: str = "reward"
    propensity: tuple[str, ...] = ("propensity",)
    """π(a) of the action taken; or π of every action in turn, zero where it was not allowed"""
    unit: str | None = None
    """participant or cluster identifier, for clustered standard errors"""
    error: tuple[str, ...] = ()
    """Σe of each row: a variance for each feature (a number stands for a constant column), or the lower triangle row by row"""

    @property
    def numbers(self) -> list[str]:
        """the columns that hold numbers, each once"""
        named = [*self.predicted, self.action, self.reward, *self.propensity, *(name for name in self.error if constant(name) is None)]
        return list(dict.fromkeys(named))

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*self.numbers, *([self.unit] if self.unit else [])]))


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


def check_schema(schema: Any, columns: Columns, where: str) -> None:
    import pyarrow as pa

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
        if not any(test(kind) for test in tests):
            raise LogError(f"{where} column {name!r} must hold numbers; got {kind}.")
    if columns.unit and not _has_labels(schema.field(columns.unit).type):
        raise LogError(f"{where} column {columns.unit!r} must hold one name in each row; got {schema.field(columns.unit).type}.")


def _has_labels(kind: Any) -> bool:
    """Whether Arrow can tell the different values of a column of this type."""
    import pyarrow as pa

    try:
        pa.array([], kind).dictionary_encode()
    except pa.ArrowException:
        return False
    return True


def found_columns(given: Mapping[str, Any], names: Sequence[str], where: str, *, error_known: bool) -> Columns:
    """The columns as given, and those that were not under their usual names."""

    def numbered(stem: str) -> tuple[str, ...]:
        matching = [name for name in names if re.fullmatch(stem + r"_\d+", name)]
        return tuple(sorted(matching, key=lambda name: int(name.rsplit("_", 1)[1])))

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "predicted" not in chosen:
        chosen["predicted"] = numbered("predicted")
        if not chosen["predicted"]:
            found = f"none, and {where} has no predicted_0 either. {listed(names)}"
            raise LogError(f"the columns of the predicted context must be named; got {found}")
    d = len(chosen["predicted"])
    if "propensity" not in chosen and "propensity" not in names:
        chosen["propensity"] = numbered("propensity") or ("propensity",)
    triangle = tuple(f"error_cov_{i}_{j}" for i in range(d) for j in range(i + 1))
    if "error" not in chosen and not error_known and set(triangle) <= set(names):
        chosen["error"] = triangle
    columns = Columns(**chosen)
    for what, named in (("predicted", columns.predicted), ("propensity", columns.propensity)):
        if len(set(named)) < len(named):
            checks.refuse(what, "name each column once", ", ".join(named))
    stated = [number for number in map(constant, columns.error) if number is not None]
    if len(columns.error) == d and min(stated, default=0.0) < 0:
        checks.refuse("the error columns", "be variances of at least 0", f"{min(stated):g}")
    if columns.error and len(columns.error) not in (d, d * (d + 1) // 2):
        rule = f"name {d} columns of variances, or the {d * (d + 1) // 2} of a lower triangle"
        checks.refuse(
            "the error columns",
            rule,
            f"{len(columns.error)}: {', '.join(columns.error)}",
            "A number stands for a constant column: 0 for a feature without error.",
        )
    return columns
