"""Run the cells of an experiment into a folder. A finished cell is a few files; a second run computes only what is missing.

Several runs may share a folder, on one machine or on several, without a lock. For a cell's results are a function of its fingerprint, under
which they are kept, and files are written whole; so it does not matter which run writes them. A run decides once, at its beginning, which
cells it computes, and computes them whatever the others do.
"""

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mebandit.checks import LogError
from mebandit.runtime.files import seal, unseal, writable_folder, write_whole
from mebandit.runtime.progress import progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.simulation import gpu
from mebandit.simulation.simulate import compile_ahead

if TYPE_CHECKING:
    import pandas as pd


class CellData(NamedTuple):
    """What cells gave, in tidy tables. For several cells the first columns are each cell's name and labels."""

    curves: "pd.DataFrame"
    """policy, measure, time, mean, std_error"""
    replicates: "pd.DataFrame"
    """policy, replicate, time (the horizon and the milestones), and every measure"""


class Cell(Protocol):
    """One piece of work with results of its own."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, Any]:
        """columns that tell this cell from others in tables"""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change the cell's results."""
        ...

    @property
    def replicates(self) -> int: ...

    def play(self, replicate: int) -> Any:
        """What one replicate gives: a pure function of the cell and the number."""
        ...

    def data(self, played: Iterable[Any]) -> CellData:
        """The results, from what the replicates gave, in their order."""
        ...


class Effort(NamedTuple):
    """What it took to compute some cells, whenever that was: for each, the time since the one before it was finished."""

    policy_rounds: int
    """rounds played, by all policies in all replicates"""
    seconds: float

    @property
    def words(self) -> str:
        rate = self.policy_rounds / max(self.seconds, 1e-9)
        return f"{self.policy_rounds / 1e6:,.1f} million policy rounds in {self.seconds:.1f} s, {rate / 1e6:.2f} million per second"


TABLES = tuple(f"{table}.csv" for table in CellData._fields)
SEAL = "effort.json"
"""written last, with the checksums of the tables: once it is there, the cell is finished"""


def _path(folder: Path, cell: Cell, ending: str) -> Path:
    return folder / "cells" / f"{cell.fingerprint}.{ending}"


def _damaged(cell: Cell, path: Path, how: str) -> LogError:
    rule = "be as they were written"
    return LogError(f"the results of cell {cell.name!r} must {rule}; got {path}, which {how}. They have to be computed again.")


def _read(path: Path, cell: Cell) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(cell, path, "is missing") from error
    except OSError as error:
        raise _damaged(cell, path, f"cannot be read ({error.strerror})") from error


def _read_seal(folder: Path, cell: Cell) -> tuple[Effort, dict[str, str]]:
    """What a finished cell took, and the checksums of its tables."""
    path = _path(folder, cell, SEAL)
    content = _read(path, cell)
    try:
        body, right = unseal(content)
        if right and body["fingerprint"] == cell.fingerprint:
            return Effort(int(body["policy_rounds"]), float(body["seconds"])), dict(body["checksums"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(cell, path, "has no checksums: it is damaged or of an early version") from error
    raise _damaged(cell, path, "has changed since")


def _read_tables(folder: Path, cell: Cell) -> dict[str, bytes]:
    """The tables of a finished cell, found to be as they were written."""
    checksums, tables = _read_seal(folder, cell)[1], {}
    for ending in TABLES:
        path = _path(folder, cell, ending)
        tables[ending] = _read(path, cell)
        if checksums.get(ending) != _checksum(tables[ending]):
            raise _damaged(cell, path, "has changed since")
    return tables


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _finished(cell: Cell, folder: Path, damaged: list[str]) -> bool:
    """Whether a cell's results are in the folder, as they were written; if they are damaged, `damaged` grows by what is wrong."""
    if not os.path.exists(_path(folder, cell, SEAL)):
        return False
    try:
        _read_tables(folder, cell)
    except LogError as error:
        damaged.append(str(error))
        return False
    return True


def _unfinished(cells: Sequence[Cell], folder: Path) -> dict[str, Cell]:
    """The cells whose results are not in the folder, by fingerprint; a warning says if some are there but damaged."""
    damaged: list[str] = []
    known = {cell.fingerprint: cell for cell in cells}
    missing = {name: cell for name, cell in known.items() if not _finished(cell, folder, damaged)}
    if damaged:
        all_of_them = f" This concerns {len(damaged)} cells." if len(damaged) > 1 else ""
        warnings.warn(damaged[0] + all_of_them, stacklevel=3)
    return missing


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    workers: Workers = None,
    engine: str = "cpu",
    progress: bool | None = None,
    started: Callable[[Cell, bool], None] | None = None,
) -> CellData:
    """The results of every cell: computed, or read where an earlier run has finished it, on whichever engine.

    `started(cell, finished_before)` is called as each cell's turn comes. A cell that is not a contest of policies is
    computed on the processor, whatever the engine.
    """
    folder = Path(folder)
    missing = _unfinished(cells, folder)
    contests = {name: cell.contest for name, cell in missing.items() if engine != "cpu" and hasattr(cell, "contest")}
    elsewhere = {name: contest for name, contest in contests.items() if gpu.chosen(engine, [contest])}
    folder = writable_folder(folder)
    writable_folder(folder / "cells")
    here, there = [cell for name, cell in missing.items() if name not in elsewhere], [missing[name] for name in elsewhere]
    total = sum(cell.replicates for cell in missing.values())
    with hired(workers) as pool, progress_bar(total, "simulating", progress) as done:
        if here and pool.here:
            compile_ahead(progress)
        played = zip(_Pieces(here), pool.in_order(_play, _Pieces(here), done), strict=True)
        launched = zip(_Pieces(there), gpu.played(list(elsewhere.values()), done, progress), strict=True)
        begun = monotonic()
        for cell in cells:
            owed = missing.pop(cell.fingerprint, None)
            if started is not None:
                started(cell, owed is None)
            if owed is not None:
                data = owed.data(_own(owed, launched if owed.fingerprint in elsewhere else played))
                if not _finished(owed, folder, []):  # by another run meanwhile
                    _write(owed, data, folder, monotonic() - begun)
                begun = monotonic()
    return read_cells(cells, folder)


Piece = tuple[Cell, int]
"""a replicate of a cell"""


class _Pieces:
    """The replicates of some cells, in order. There may be very many, so they are made one after the other."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._left = sum(cell.replicates for cell in cells)
        self._each = ((cell, replicate) for cell in cells for replicate in range(cell.replicates))

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        piece = next(self._each)
        self._left -= 1
        return piece

    def __length_hint__(self) -> int:
        return self._left


def _play(piece: Piece) -> Any:
    cell, replicate = piece
    return cell.play(replicate)


def _own(cell: Cell, stream: Iterator[tuple[Piece, Any]]) -> Iterator[Any]:
    """What the replicates of a cell gave, from a stream in which each result comes with its piece: no other cell's results pass."""
    for replicate in range(cell.replicates):
        (owner, number), found = next(stream)
        if owner is not cell or number != replicate:
            raise RuntimeError(f"replicate {replicate} of cell {cell.name!r} was due; got replicate {number} of cell {owner.name!r}")
        yield found


def read_cells(cells: Sequence[Cell], folder: Path) -> CellData:
    """The results of finished cells, joined, with each cell's name and labels in front."""
    import pandas as pd

    stored = [_read_tables(folder, cell) for cell in cells]
    front = ["cell", *dict.fromkeys(label for cell in cells for label in cell.labels)]
    joined = []
    for ending in TABLES:
        read = [pd.read_csv(io.BytesIO(tables[ending])) for tables in stored]
        whole = pd.concat([t.assign(cell=cell.name, **cell.labels) for t, cell in zip(read, cells, strict=True)], ignore_index=True)
        joined.append(whole[[*front, *(column for column in whole.columns if column not in front)]])
    return CellData(*joined)


def effort(cells: Sequence[Cell], folder: Path) -> Effort:
    """What the cells took to compute."""
    each = [_read_seal(folder, cell)[0] for cell in cells]
    return Effort(sum(e.policy_rounds for e in each), sum(e.seconds for e in each))


def _write(cell: Cell, data: CellData, folder: Path, seconds: float) -> None:
    """Keep a cell's results, the seal last."""
    rounds = data.replicates["policy"].nunique() * cell.replicates * int(data.replicates["time"].max())
    tables = {ending: table.to_csv(index=False).encode() for ending, table in zip(TABLES, data, strict=True)}
    for ending, content in tables.items():
        write_whole(_path(folder, cell, ending), content)
    checksums = {ending: _checksum(content) for ending, content in tables.items()}
    of = {"cell": cell.name, "fingerprint": cell.fingerprint, "checksums": checksums}
    write_whole(_path(folder, cell, SEAL), seal(of | Effort(rounds, seconds)._asdict()))


def summary_of(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The last recorded round of every curve."""
    last = curves.groupby("cell", sort=False)["time"].transform("max")
    return curves[curves["time"] == last].drop(columns="time").reset_index(drop=True)
