"""A log as checked blocks of arrays, which can be read several times, so that memory does not grow with the log.

Parsing a CSV takes longer than the computation that follows, so small CSV files are parsed once and stay in memory. Everything else is
read again each time.

A row that breaks a rule is a `Fault` with its file, row, column and value; rows are counted from 1, the first after the header. The caller
decides what happens to these rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from sys import getrefcount
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mebandit import checks, kernels
from mebandit.checks import LogError
from mebandit.estimation.moments import Rounds, triangle
from mebandit.kernels import limits
from mebandit.logs.cells import empty_cells, holds_integers, labels
from mebandit.logs.coding import Coding, where_available
from mebandit.logs.columns import Columns, constant
from mebandit.logs.fault import Fault, fault_of
from mebandit.logs.left_out import LEAST_OBSERVED, LeftOut, counted, nothing_left_out
from mebandit.logs.parts import check_readable_elsewhere, name_of
from mebandit.logs.pieces import (
    CSV,
    PARQUET,
    Piece,
    Unparsable,
    batches_of,
    csv_pieces,
    expected_pieces,
    parquet_pieces,
    table_pieces,
    version_of,
)
from mebandit.logs.window import EVERYTHING, Window
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Threads, Workers, hired
from mebandit.values import Floats, Integers

T = TypeVar("T")

MOST = 8
"""default number of reading threads; each decodes so much at a time that all of them stay within a gigabyte"""

ROOM = 256 << 20
"""bytes of CSV files that stay in memory between two readings of a log; parsed, they take about half as much"""


class Room:
    """Memory that blocks use one after the other: the system takes longer to hand out new memory than a block takes to be written."""

    def __init__(self) -> None:
        self._numbers = np.empty((0, 0))

    def of(self, rows: int, columns: int) -> Floats:
        """An array of any content; a new one if anything still holds the one before."""
        if self._numbers.shape != (rows, columns) or getrefcount(self._numbers) > 2:  # by this object and by the call
            self._numbers = np.empty((rows, columns))
        return self._numbers


class Block(NamedTuple):
    """Consecutive rows of a log that break no rule."""

    start: int
    """rows of the log before this block"""
    rounds: Rounds
    units: list[Any]
    """the labels of the units in this block"""
    unit: Integers
    """for each row, which of these it belongs to; empty if there are no units"""
    faults: list[Fault]
    """rows that break a rule; they are not among the rounds"""
    forecast: Floats
    """the logged probability of every action, (n, K); no column if only that of the action taken is known"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1); NaN where the log was checked before"""
    times: Floats
    """when each decision was made, from 0 at the first of the log to 1 at the last; empty if the log has no time"""
    left_out: LeftOut
    """rows that are no faults and yet not among the rounds"""


@dataclass
class Source:
    """A log whose rows can be read several times."""

    parts: list[Any]
    """paths of files, or tables in memory by name"""
    columns: Columns
    n_actions: int
    workers: Workers = None
    progress: Show = None
    careful: set[Path] = field(default_factory=set)
    """CSV files that must be read as text, because some cells are not numbers"""
    versions: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """size and time of each file when it was first read"""
    kept: dict[int, list[tuple[Piece, int]]] = field(default_factory=dict)
    """the pieces of parts that stay in memory, and their rows"""
    stored: Columns | None = None
    """the columns as the log has them, where they differ from those that its cells are coded to"""
    coding: Coding = field(default_factory=Coding)
    """how cells become numbers"""
    without_unavailable: bool = False
    """whether rows are left out in which the participant was not available; otherwise the action 0 was the only one allowed there"""
    without_missing: bool = False
    """whether rows without a reward are left out; otherwise they break a rule"""
    checked: bool = False
    """whether all of the log was read before, and no row breaks a rule or is left out"""
    window: Window = EVERYTHING
    """the rows, or the stretch of time, that blocks hold"""

    def __getstate__(self) -> dict[str, Any]:
        """What a worker on another machine needs to read a piece."""
        return self.__dict__ | {"parts": [], "careful": set(), "versions": {}, "kept": {}, "workers": None, "progress": None}

    def through(self, work: Callable[[Block], T], merge: Callable[[T, T], T], what: str) -> T:
        """work(block) over all blocks, merged in the order of the log, by any number of workers."""
        return self.through_batches(lambda *where: work(self.window.of(self._block(*where))), merge, what)

    def through_batches(self, work: Callable[[Any, Piece, int, Sequence[Fault], Room], T], merge: Callable[[T, T], T], what: str) -> T:
        """work(record batch, its piece, rows of its file before it, torn rows in it, memory), merged in the order of the log."""

        def fold(piece: Piece) -> T | None:
            found, start, torn, room = None, piece.start, piece.torn, Room()
            if self.columns.time is None and piece.before + start >= self.window.high:
                return None
            for batch in batches_of(piece):
                part = work(batch, piece, start, torn, room)
                found = part if found is None else merge(found, part)
                start, torn = start + batch.num_rows, ()
            return found

        while True:
            try:
                return self._merged(fold, merge, what)
            except Unparsable as error:
                self.careful.add(error.args[0])

    def _merged(self, fold: Callable[[Piece], T | None], merge: Callable[[T, T], T], what: str) -> T:
        bar, found = progress_bar(self._expected, what, self.progress), None
        with hired(self.workers, most=MOST) as pool, bar as done:
            if not pool.here:
                check_readable_elsewhere(self.parts)
            threads = pool.number if isinstance(pool, Threads) else MOST
            for part in pool.in_order(fold, self.pieces(threads), done):
                found = _joined(found, part, merge)
        if found is None:
            raise LogError(f"the log must hold at least one round; got none in {', '.join(map(name_of, self.parts))}.")
        return found

    @cached_property
    def _expected(self) -> int:
        """Pieces of the log, more or less."""
        return max(sum(map(expected_pieces, self.parts)), 1)

    def pieces(self, workers: int) -> Iterator[Piece]:
        before, room = 0, ROOM
        for number, part in enumerate(self.parts):
            is_csv = not isinstance(part, tuple) and part.suffix in CSV
            found = self.kept[number] if number in self.kept else self._pieces_of(part, before, workers)
            room -= self.versions[part][0] if is_csv else 0
            handed, rows = [], 0
            for piece, size in found:
                yield piece
                rows += size
                if is_csv and room >= 0:
                    handed.append((piece, size))
            if handed:
                self.kept[number] = handed
            before += rows

    def _pieces_of(self, part: Any, before: int, workers: int) -> Iterator[tuple[Piece, int]]:
        """The pieces of a part and their rows; a file that is read again must be the one that was read before."""
        columns = self.stored or self.columns
        if isinstance(part, tuple):
            return table_pieces(part, columns, before)
        found = version_of(part)
        if self.versions.setdefault(part, found) != found:
            raise LogError(f"{part} must stay as it is until its analysis is over; got one that was changed meanwhile.")
        if part.suffix in PARQUET:
            return parquet_pieces(part, columns, before, workers=workers)
        return csv_pieces(part, columns, before, careful=part in self.careful)

    def _block(self, batch: Any, piece: Piece, start: int, torn: Sequence[Fault], room: Room) -> Block:
        """The rows of a record batch that break no rule, as arrays, and a fault for each of the others."""
        columns, n, d, k = self.columns, batch.num_rows, len(self.columns.predicted), self.n_actions
        names = columns.numbers  # the features come first
        values, ends = room.of(len(names), n), np.full((2, len(names)), np.nan)
        for i, name in enumerate(names):  # copied even where that is not needed: kernels are compiled for one kind of array
            self.coding.write(values[i], batch, name, columns)
            if not self.checked:
                ends[:, i] = ends_of(values[i])  # while it is in the cache
        unit, units = labels(batch.column(columns.unit)) if columns.unit else (np.empty(0, dtype=np.int64), [])
        times = self.coding.times(batch, columns.time) if columns.time else np.empty(0)
        rows, left_out = self._kept_rows(batch, values, dict(zip(names, values, strict=True)), times)
        if rows.size < n:
            values, times = np.ascontiguousarray(values[:, rows]), times[rows] if columns.time else times
            unit = unit[rows] if columns.unit else unit
        if not self.checked and (rows.size < n or not self.coding.is_plain or columns.available):
            ends = np.stack([ends_of(column) for column in values], axis=1)
        faulty = np.isnan(times) if columns.time else np.zeros(rows.size, dtype=np.bool_)
        faulty |= unit < 0 if columns.unit else False
        if columns.observed:
            seen = values[names.index(columns.observed)]
            faulty |= ~((seen >= LEAST_OBSERVED) & (seen <= 1.0))
        faults = list(torn)
        wide = d + len(columns.baseline)
        faulty |= ~(np.abs(values[d:wide]) <= limits.LARGEST).all(axis=0)
        if not (self.checked or self._are_good(batch, ends, unit, times)) and kernels.mark_faults(
            values[:d], *self._given(values, names), k, faulty
        ):
            numbered = _row_numbers(n, start, torn)[rows]
            said = partial(fault_of, batch, columns=columns, coding=self.coding, n_actions=k, file=piece.file)
            faults += [said(int(rows[t]), row=int(numbered[t])) for t in np.flatnonzero(faulty)]
            values, unit = np.ascontiguousarray(values[:, ~faulty]), unit[~faulty] if columns.unit else unit
            times = times[~faulty] if columns.time else times
            ends = np.stack([ends_of(column) for column in values], axis=1)
        played, rewards, propensities, error = self._given(values, names)
        actions = played.astype(np.int64)
        if len(columns.propensity) == 1:
            taken, forecast = propensities[:, 0], propensities[:, :0]
            allowed = checks.possible(taken, actions, k)
        else:
            taken, forecast, allowed = propensities[np.arange(actions.size), actions], propensities, propensities > 0
            allowed = np.ones((1, k), dtype=np.bool_) if allowed.all() else allowed
        weight = np.ones(1) if columns.observed is None else 1.0 / values[names.index(columns.observed)]
        stabilizer = np.repeat(weight[:, None] / k, k, axis=1)
        rounds = Rounds(values[:wide], actions, rewards, taken, packed_errors(error, d), allowed, stabilizer)
        own = ends[:, [*range(d), names.index(columns.reward)]]
        return Block(piece.before + start, rounds, units, unit, faults, forecast, own, times, left_out)

    def _kept_rows(self, batch: Any, values: Floats, row: dict[str, Floats], times: Floats) -> tuple[Integers, LeftOut]:
        """Which rows of a batch are looked at, and what is counted of the others. The numbers of the rest are completed in place: the
        probability of the action taken, and action 0 with probability 1 where the participant was not available.

        Args:
            batch: The record batch.
            values: Its numbers, (columns, n).
            row: The same, by the name of the column.
            times: When each decision was made; empty if that is not known.
        """
        columns, n = self.columns, batch.num_rows
        if not (columns.available or self.without_missing) and self.coding.probability_of is None:
            return np.arange(n), nothing_left_out(self.n_actions)
        action = row[columns.action]
        kept = np.ones(n, dtype=np.bool_)
        if self.coding.probability_of is not None:
            row[columns.propensity[0]][:] = self.coding.taken(row[columns.propensity[0]], action)
        if columns.available:
            free, unknown = where_available(batch.column(columns.available))
            closed = ~(free | unknown)
            nothing = empty_cells(batch.column(columns.action))
            action[unknown | (closed & ~nothing & (action != 0.0))] = np.nan  # found to be faulty, and worded, with the others
            action[closed & nothing] = 0.0
            for b, name in enumerate(columns.propensity):
                row[name][closed] = float(b == 0)
            if self.without_unavailable:
                kept &= ~closed | np.isnan(action)
        missing = kept & empty_cells(batch.column(columns.reward)) if self.without_missing else np.zeros(n, dtype=np.bool_)
        left_out = counted(n - int(kept.sum()), missing, kept, action, times, self.n_actions)
        return np.flatnonzero(kept & ~missing), left_out

    def _are_good(self, batch: Any, ends: Floats, unit: Integers, times: Floats) -> bool:
        """Whether the smallest and the largest value of every column show that all rows are good; if not, each row must be checked."""
        within = self._limits is not None and bool(((ends[0] >= self._limits[0]) & (ends[1] <= self._limits[1])).all())
        known = not (unit < 0).any() and not np.isnan(times).any()
        return within and known and (self.coding.worded or holds_integers(batch.column(self.columns.action)))

    @cached_property
    def _limits(self) -> Floats | None:
        """The smallest and the largest allowed value of each column of numbers; None if some rule involves several columns."""
        columns, numbers, large = self.columns, self.columns.numbers, limits.LARGEST
        fixed = [number for number in map(constant, columns.error) if number is not None]
        if len(columns.propensity) > 1 or len(columns.error) > len(columns.predicted) or not all(0 <= number <= large for number in fixed):
            return None
        rules = [(name, 0.0, large) for name in columns.error if name in numbers]
        rules += [(columns.observed, LEAST_OBSERVED, 1.0)] if columns.observed else []
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
            fixed = constant(name)
            error[:, i] = row[name] if fixed is None else fixed
        without_negligible(error, len(columns.predicted))
        several = len(columns.propensity) > 1
        propensities = np.column_stack([row[name] for name in columns.propensity]) if several else row[columns.propensity[0]][:, None]
        return row[columns.action], row[columns.reward], propensities, error


def _joined(found: T | None, part: T | None, merge: Callable[[T, T], T]) -> T | None:
    if found is None or part is None:
        return part if found is None else found
    return merge(found, part)


def ends_of(x: Floats) -> tuple[float, float]:
    """The smallest and the largest number; NaN if there is a NaN; (inf, -inf) of an empty array."""
    return x.min(initial=np.inf), x.max(initial=-np.inf)


def wider(ends: Floats, others: Floats) -> Floats:
    """The smaller and the larger of two such pairs, (2, n)."""
    return np.stack([np.minimum(ends[0], others[0]), np.maximum(ends[1], others[1])])


def without_negligible(error: Floats, d: int) -> None:
    """Error columns, d variances or a lower triangle row by row, in place as `checks.negligible_as_zero` has them."""
    if not error.shape[1]:
        return
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


def _row_numbers(n: int, start: int, torn: Sequence[Fault]) -> Integers:
    """The rows of a file that n parsed rows are, counted from 1: those that could not be parsed count too."""
    broken = {fault.row for fault in torn}
    return np.array([row for row in range(start + 1, start + n + len(broken) + 1) if row not in broken][:n], dtype=np.int64)


def forecast_of(block: Block, n_actions: int) -> Floats:
    """The logged probability of every action, (n, K); no column where only that of the action taken is known. Of two actions, both are."""
    if block.forecast.shape[1] or n_actions > 2:
        return block.forecast
    p, a = block.rounds.propensities, block.rounds.actions
    return np.column_stack([np.where(a == b, p, 1.0 - p) for b in (0, 1)])
