"""A log as checked blocks of arrays, gone through again and again, so that memory does not grow with the log.

To parse a CSV costs more than what is then computed, so small ones are parsed once and stay in memory. All else is read again.

A row that breaks a rule is a `Fault` with its file, row, column and value; rows are counted from 1, the first after the header. What
happens to faulty rows is for the reader of the blocks to say, but none goes unnoticed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mebandit import checks, kernels
from mebandit.checks import LogError
from mebandit.estimation.moments import Rounds, triangle
from mebandit.kernels import limits
from mebandit.logs import formats
from mebandit.logs.formats import Columns, Fault, Piece
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Threads, Workers, hired
from mebandit.values import Floats, Integers

T = TypeVar("T")

MOST = 8
"""threads that read, if nobody says how many; what each decodes at a time is sized so that as many stay within a gigabyte"""

MOST_ACTIONS = 2048
"""of so many actions the probabilities take a gigabyte for each block of rows"""

ROOM = 256 << 20
"""bytes of CSV files that stay in memory, where they take about half as many, from one time through a log to the next"""


class Block(NamedTuple):
    """Some rows of a log, in their order, all good."""

    start: int
    """rows of the log before this block"""
    rounds: Rounds
    units: list[Any]
    """the labels of the units in this block"""
    unit: Integers
    """for each row, which of these it belongs to; empty if there are no units"""
    faults: list[Fault]
    """rows that were left out"""
    forecast: Floats
    """the probability of every action, (n, K), or no column where only that of the action taken is known"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1)"""


@dataclass
class Source:
    """A log that can be gone through again and again."""

    parts: list[Any]
    """paths of files, or tables in memory by name"""
    columns: Columns
    n_actions: int
    workers: Workers = None
    progress: Show = None
    careful: set[Path] = field(default_factory=set)
    """CSV files that have to be read as text, because some of it is no number"""
    versions: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """size and time of each file when it was first read"""
    kept: dict[int, list[tuple[Piece, int]]] = field(default_factory=dict)
    """the pieces of parts that stay in memory, and their rows"""

    def __getstate__(self) -> dict[str, Any]:
        """What a worker elsewhere needs: how rows are read. Which rows, a piece says."""
        return self.__dict__ | {"parts": [], "careful": set(), "versions": {}, "kept": {}, "workers": None, "progress": None}

    def through(self, work: Callable[[Block], T], merge: Callable[[T, T], T], what: str) -> T:
        """work(block) over all blocks, merged in the order of the log, whoever the workers."""

        def fold(piece: Piece) -> T | None:
            found, start, torn = None, piece.start, piece.torn
            for batch in formats.batches_of(piece):
                part = work(self._block(batch, piece, start, torn))
                found = part if found is None else merge(found, part)
                start, torn = start + batch.num_rows, ()
            return found

        while True:
            try:
                return self._merged(fold, merge, what)
            except formats.Unparsable as error:
                self.careful.add(error.args[0])

    def _merged(self, fold: Callable[[Piece], T | None], merge: Callable[[T, T], T], what: str) -> T:
        bar, found = progress_bar(self._expected, what, self.progress), None
        with hired(self.workers, most=MOST) as pool, bar as done:
            if not pool.here:
                formats.check_readable_elsewhere(self.parts)
            threads = pool.number if isinstance(pool, Threads) else MOST
            for part in pool.in_order(fold, self._pieces(threads), done):
                found = _joined(found, part, merge)
        if found is None:
            raise LogError(f"the log must hold at least one round; got none in {', '.join(map(formats.name_of, self.parts))}.")
        return found

    @cached_property
    def _expected(self) -> int:
        """Pieces of the log, more or less."""
        return max(sum(map(formats.expected_pieces, self.parts)), 1)

    def _pieces(self, workers: int) -> Iterator[Piece]:
        before, room = 0, ROOM
        for number, part in enumerate(self.parts):
            is_csv = not isinstance(part, tuple) and part.suffix in formats.CSV
            pieces = self.kept[number] if number in self.kept else self._pieces_of(part, before, workers)
            room -= self.versions[part][0] if is_csv else 0
            handed, rows = [], 0
            for piece, size in pieces:
                yield piece
                rows += size
                if is_csv and room >= 0:
                    handed.append((piece, size))
            if handed:
                self.kept[number] = handed
            before += rows

    def _pieces_of(self, part: Any, before: int, workers: int) -> Iterator[tuple[Piece, int]]:
        """The pieces of a part and their rows; a file that is read again must be the one that was read before."""
        if isinstance(part, tuple):
            return formats.table_pieces(part, self.columns, before)
        found = formats.version_of(part)
        if self.versions.setdefault(part, found) != found:
            raise LogError(f"{part} must stay as it is until its analysis is over; got one that was changed meanwhile.")
        if part.suffix in formats.PARQUET:
            return formats.parquet_pieces(part, self.columns, before, workers=workers)
        return formats.csv_pieces(part, self.columns, before, careful=part in self.careful)

    def _block(self, batch: Any, piece: Piece, start: int, torn: Sequence[Fault]) -> Block:
        """The good rows of a record batch as arrays, and what is wrong with the others."""
        columns, n, d, k = self.columns, batch.num_rows, len(self.columns.predicted), self.n_actions
        names = columns.numbers  # the features come first
        values, ends = np.empty((len(names), n)), np.empty((2, len(names)))
        for i, name in enumerate(names):  # copied even where that is not needed: kernels are compiled for one kind of array
            formats.write_numbers(values[i], batch.column(name))
            ends[:, i] = ends_of(values[i])  # while it is in the cache
        unit, units = _labels(batch.column(columns.unit)) if columns.unit else (np.empty(0, dtype=np.int64), [])
        faulty = np.zeros(n, dtype=np.bool_) if columns.unit is None else unit < 0
        faults = list(torn)
        if not self._are_good(batch, ends, unit) and kernels.mark_faults(values[:d], *self._given(values, names), k, faulty):
            numbered = _row_numbers(n, start, torn)
            faults += [self._fault(batch, int(t), piece.file, int(numbered[t])) for t in np.flatnonzero(faulty)]
            values, unit = np.ascontiguousarray(values[:, ~faulty]), unit[~faulty] if columns.unit else unit
            ends = np.stack([ends_of(column) for column in values], axis=1)
        played, rewards, propensities, error = self._given(values, names)
        actions = played.astype(np.int64)
        if len(columns.propensity) == 1:
            taken, forecast = propensities[:, 0], propensities[:, :0]
            allowed = checks.possible(taken, actions, k)
        else:
            taken, forecast, allowed = propensities[np.arange(actions.size), actions], propensities, propensities > 0
            allowed = np.ones((1, k), dtype=np.bool_) if allowed.all() else allowed
        rounds = Rounds(values[:d], actions, rewards, taken, packed_errors(error, d), allowed, np.full((1, k), 1.0 / k))
        return Block(piece.before + start, rounds, units, unit, faults, forecast, ends[:, [*range(d), names.index(columns.reward)]])

    def _are_good(self, batch: Any, ends: Floats, unit: Integers) -> bool:
        """Whether all rows are, as the smallest and the largest value of every column tell where each has its own rule, and actions are
        integers."""
        within = self._limits is not None and bool(((ends[0] >= self._limits[0]) & (ends[1] <= self._limits[1])).all())
        return within and not (unit < 0).any() and formats.holds_integers(batch.column(self.columns.action))

    @cached_property
    def _limits(self) -> Floats | None:
        """The least and the most that may be in each column of numbers; None where rules are about several columns."""
        columns, numbers, large = self.columns, self.columns.numbers, limits.LARGEST
        fixed = [constant for constant in map(formats.constant, columns.error) if constant is not None]
        if (
            len(columns.propensity) > 1
            or len(columns.error) > len(columns.predicted)
            or not all(0 <= constant <= large for constant in fixed)
        ):
            return None
        rules = [(name, 0.0, large) for name in columns.error if name in numbers]
        rules += [(columns.action, 0.0, self.n_actions - 1.0), (columns.propensity[0], limits.LEAST, 1.0)]
        ends = np.outer([-large, large], np.ones(len(numbers)))
        for name, least, most in rules:
            i = numbers.index(name)
            ends[:, i] = max(ends[0, i], least), min(ends[1, i], most)
        return ends

    def _given(self, values: Floats, names: Sequence[str]) -> tuple[Floats, Floats, Floats, Floats]:
        """Actions, rewards, propensities (n, 1 or K) and what varies in the error (n, ...), from the columns of numbers."""
        columns, row = self.columns, dict(zip(names, values, strict=True))
        error = np.empty((values.shape[1], len(columns.error)))
        for i, name in enumerate(columns.error):
            fixed = formats.constant(name)
            error[:, i] = row[name] if fixed is None else fixed
        without_negligible(error, len(columns.predicted))
        several = len(columns.propensity) > 1
        propensities = np.column_stack([row[name] for name in columns.propensity]) if several else row[columns.propensity[0]][:, None]
        return row[columns.action], row[columns.reward], propensities, error

    def _fault(self, batch: Any, t: int, file: str, row: int) -> Fault:
        """What is wrong with a row, in words: the first rule that it breaks."""
        columns, k = self.columns, self.n_actions

        def cell(name: str) -> tuple[float, str]:
            raw = batch.column(name)[t].as_py()
            value = float(formats.numbers(batch.column(name).slice(t, 1))[0])
            return value, "nothing" if raw is None else repr(raw)

        number = f"be a finite number of at most {limits.LARGEST:g} in size"
        for name in (*columns.predicted, columns.reward):
            value, shown = cell(name)
            if not abs(value) <= limits.LARGEST:
                return Fault(file, row, name, number, shown)
        a, shown = cell(columns.action)
        if not (0 <= a <= k - 1 and a == np.floor(a)):
            remedy = "" if k > 2 else " (the first action is 0; for more than two, give n_actions)"
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
            if formats.constant(name) is None:
                value, shown = cell(name)
                if not abs(value) <= limits.LARGEST or (len(columns.error) == len(columns.predicted) and value < 0):
                    return Fault(file, row, name, "be a variance of at least 0", shown)
        shown = checks.shown(np.array([cell(name)[0] if formats.constant(name) is None else float(name) for name in columns.error]))
        return Fault(file, row, ", ".join(columns.error), "be the lower triangle of a positive semidefinite matrix", shown)


def _joined(found: T | None, part: T | None, merge: Callable[[T, T], T]) -> T | None:
    if found is None or part is None:
        return part if found is None else found
    return merge(found, part)


def ends_of(x: Floats) -> tuple[float, float]:
    """The smallest and the largest number, NaN if there is one among them; the wrong way round where there is none."""
    return x.min(initial=np.inf), x.max(initial=-np.inf)


def without_negligible(error: Floats, d: int) -> None:
    """Error columns, d variances or a lower triangle row by row, in place as `checks.negligible_as_zero` has them."""
    rows, columns = (np.arange(d), np.arange(d)) if error.shape[1] == d else np.tril_indices(d)
    for i in np.flatnonzero(rows == columns)[: error.shape[1]]:
        negligible = error[:, i] < limits.LEAST_VARIANCE
        if negligible.any():
            negligible &= error[:, i] > 0
            error[np.ix_(negligible, (rows == rows[i]) | (columns == rows[i]))] = 0.0


def packed_errors(error: Floats, d: int) -> Floats:
    """Error columns, d variances or a lower triangle row by row, as packed covariances; one of zeros if there are none."""
    if error.shape[1] == 0:
        return np.zeros((1, d * (d + 1) // 2))
    rows, columns = triangle(d)
    packed = np.zeros((len(error), rows.size))
    if error.shape[1] == d:
        packed[:, rows == columns] = error
    else:
        packed[:] = error[:, columns * (columns + 1) // 2 + rows]
    return packed


def _labels(column: Any) -> tuple[Integers, list[Any]]:
    """For each row the number of its label, -1 if it has none, and the labels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    encoded = column.dictionary_encode()
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    labels, place = np.unique([_label(value) for value in encoded.dictionary.to_pylist()], return_inverse=True)
    return np.where(indices < 0, -1, place[np.maximum(indices, 0)] if place.size else -1), labels.tolist()


def _label(value: object) -> str:
    """A unit's label as text, so that 7 in one file and "7" in another are one unit."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _row_numbers(n: int, start: int, torn: Sequence[Fault]) -> Integers:
    """The rows of a file that n parsed rows are, counted from 1: those that could not be parsed count too."""
    broken = {fault.row for fault in torn}
    return np.array([row for row in range(start + 1, start + n + len(broken) + 1) if row not in broken][:n], dtype=np.int64)


def open_log(log: Any, columns: Mapping[str, Any], *, n_actions: int | None = None, error_known: bool = False) -> Source:
    """The log behind a path, several paths, a folder, a table or arrays by name; columns are found and checked, nothing is read yet.

    `columns` has the fields of `Columns`, as far as they are known; what is missing is looked for under the names that
    `mebandit.read_journal(...).to_parquet(...)` gives: predicted_0, ..., propensity_0, ..., and error_cov_0_0, ... unless `error_known`.
    """
    parts = formats.parts_of(log)
    names = formats.schema_of(parts[0]).names
    found = _columns(columns, names, formats.name_of(parts[0]), error_known)
    for part in parts:
        formats.check_schema(formats.schema_of(part), found, formats.name_of(part))
    given = len(found.propensity)
    if n_actions is None:
        n_actions = given if given > 1 else 2
    n_actions = checks.integer("n_actions", n_actions, 2)
    if given not in (1, n_actions):
        checks.refuse("propensity", f"name one column, or one for each of the {n_actions} actions", f"{given} columns")
    source = Source(parts, found, n_actions)
    if n_actions > MOST_ACTIONS:
        rule = f"be at most {MOST_ACTIONS:,}, so that their probabilities fit into memory"
        checks.refuse("n_actions", rule, f"{n_actions} for a log whose largest action is {_largest_action(source)}")
    return source


def _largest_action(source: Source) -> str:
    """The largest number among the actions of a log, which may not be one of an action."""
    while True:
        try:
            batches = (batch for piece in source._pieces(1) for batch in formats.batches_of(piece))
            largest = max(
                (float(np.fmax.reduce(formats.numbers(batch.column(source.columns.action)), initial=-np.inf)) for batch in batches),
                default=np.nan,
            )
            return f"{largest:g}"
        except formats.Unparsable as error:
            source.careful.add(error.args[0])


def _columns(given: Mapping[str, Any], names: Sequence[str], where: str, error_known: bool) -> Columns:
    """The columns as given, and those that were not under their usual names."""

    def numbered(stem: str) -> tuple[str, ...]:
        matching = [name for name in names if re.fullmatch(stem + r"_\d+", name)]
        return tuple(sorted(matching, key=lambda name: int(name.rsplit("_", 1)[1])))

    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "predicted" not in chosen:
        chosen["predicted"] = numbered("predicted")
        if not chosen["predicted"]:
            found = f"none, and {where} has no predicted_0 either. {formats.listed(names)}"
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
    stated = [constant for constant in map(formats.constant, columns.error) if constant is not None]
    if len(columns.error) == d and min(stated, default=0.0) < 0:
        checks.refuse("the error columns", "be variances of at least 0", f"{min(stated):g}")
    if columns.error and len(columns.error) not in (d, d * (d + 1) // 2):
        rule = f"name {d} columns of variances, or the {d * (d + 1) // 2} of a lower triangle"
        checks.refuse(
            "the error columns",
            rule,
            f"{len(columns.error)}: {', '.join(columns.error)}",
            "A number may stand for a column: 0 for a feature without error.",
        )
    return columns
