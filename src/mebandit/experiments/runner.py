"""Runs the cells of an experiment, and stores their results in a folder. A second run computes only what is missing.

Several runs may share a folder, on one machine or on several, without a lock. The results of a cell are a function of its fingerprint,
which is part of their file names, and files are written in full or not at all; so it does not matter which run writes them. Each run
decides at its beginning which cells it computes, whatever the other runs do.
"""

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mebandit.checks import LogError, Refusal
from mebandit.runtime.files import seal, unseal, writable_folder, write_whole
from mebandit.runtime.progress import progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.simulation import gpu
from mebandit.simulation.simulate import compile_ahead

if TYPE_CHECKING:
    import pandas as pd


class CellData(NamedTuple):
    """The results of cells, in tidy tables. For several cells, the first columns are the name and the labels of the cell."""

    curves: "pd.DataFrame"
    """columns policy, measure, time, mean, std_error"""
    replicates: "pd.DataFrame"
    """columns policy, replicate, time (the horizon and the milestones), and every measure"""


class Cell(Protocol):
    """A unit of work whose results are stored together."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def labels(self) -> Mapping[str, Any]:
        """Columns that tell this cell from others in tables."""
        ...

    @property
    def fingerprint(self) -> str:
        """A text that changes with everything that could change the results."""
        ...

    @property
    def replicates(self) -> int:
        """The number of independent runs."""
        ...

    def play(self, replicate: int) -> Any:
        """The result of one replicate: a pure function of the cell and the number."""
        ...

    def data(self, played: Iterable[Any]) -> CellData:
        """The results of the cell, from those of its replicates, in their order."""
        ...


class Effort(NamedTuple):
    """The cost of computing some cells, when they were computed. The time of a cell begins when the one before it was finished."""

    policy_rounds: int
    """rounds played, by all policies in all replicates"""
    seconds: float

    @property
    def words(self) -> str:
        """The cost in words."""
        rate = self.policy_rounds / max(self.seconds, 1e-9)
        return f"{self.policy_rounds / 1e6:,.1f} million policy rounds in {self.seconds:.1f} s, {rate / 1e6:.2f} million per second"


TABLES = tuple(f"{table}.csv" for table in CellData._fields)
SEAL = "effort.json"
"""the file with the checksums of the tables, which is written last: once it exists, the cell is finished"""


def _path(folder: Path, cell: Cell, ending: str) -> Path:
    return folder / "cells" / f"{cell.fingerprint}.{ending}"


def _damaged(cell: Cell, path: Path, how: str) -> LogError:
    what, rule, remedy = f"the results of cell {cell.name!r}", "be as they were written", "They have to be computed again."
    return LogError(Refusal(what, rule, f"{path}, which {how}", remedy))


def _read(path: Path, cell: Cell) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise _damaged(cell, path, "is missing") from error
    except OSError as error:
        raise _damaged(cell, path, f"cannot be read ({error.strerror})") from error


def _read_seal(folder: Path, cell: Cell) -> tuple[Effort, dict[str, str]]:
    """The cost of a finished cell, and the checksums of its tables."""
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
    """The tables of a finished cell, whose checksums are right."""
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
    """Whether the undamaged results of a cell are in the folder. If they are damaged, the reason is added to `damaged`."""
    if not os.path.exists(_path(folder, cell, SEAL)):
        return False
    try:
        _read_tables(folder, cell)
    except LogError as error:
        damaged.append(str(error))
        return False
    return True


def _unfinished(cells: Sequence[Cell], folder: Path) -> dict[str, Cell]:
    """The cells whose results are not in the folder, by fingerprint. Warns of damaged results."""
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
    """The results of cells. Those that an earlier run has finished are read, the others are computed.

    Args:
        cells: What to run.
        folder: Where results are stored.
        workers: Threads, or a Dask cluster; see `mebandit.simulate`.
        engine: What simulates: "cpu", "cuda" or "auto". Cells that are not simulations of policies are computed on the CPU.
        progress: Whether to show a progress bar; by default on a terminal.
        started: Called with every cell, and whether it was finished before, when its turn comes.
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
"""a cell, and the number of one of its replicates"""


class _Pieces:
    """The replicates of some cells, in order: an iterator, since there may be very many."""

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
    """The results of the replicates of a cell, from a stream of (piece, result). Refuses results of another cell."""
    for replicate in range(cell.replicates):
        (owner, number), found = next(stream)
        if owner is not cell or number != replicate:
            raise RuntimeError(f"replicate {replicate} of cell {cell.name!r} was due; got replicate {number} of cell {owner.name!r}")
        yield found


def read_cells(cells: Sequence[Cell], folder: Path) -> CellData:
    """The results of finished cells in joined tables, whose first columns are the name and the labels of the cell."""
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
    """The cost of computing some finished cells."""
    each = [_read_seal(folder, cell)[0] for cell in cells]
    return Effort(sum(e.policy_rounds for e in each), sum(e.seconds for e in each))


def _write(cell: Cell, data: CellData, folder: Path, seconds: float) -> None:
    """Store the results of a cell; the file with the checksums comes last."""
    rounds = data.replicates["policy"].nunique() * cell.replicates * int(data.replicates["time"].max())
    tables = {ending: table.to_csv(index=False).encode() for ending, table in zip(TABLES, data, strict=True)}
    for ending, content in tables.items():
        write_whole(_path(folder, cell, ending), content)
    checksums = {ending: _checksum(content) for ending, content in tables.items()}
    of = {"cell": cell.name, "fingerprint": cell.fingerprint, "checksums": checksums}
    write_whole(_path(folder, cell, SEAL), seal(of | Effort(rounds, seconds)._asdict()))


def summary_of(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of the last recorded round of every curve."""
    last = curves.groupby("cell", sort=False)["time"].transform("max")
    return curves[curves["time"] == last].drop(columns="time").reset_index(drop=True)
