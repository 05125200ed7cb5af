"""Run the cells of an experiment into a folder. A finished cell is a few files; a second run computes only what is missing."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mebandit import cuda
from mebandit.files import writable_folder, write_whole
from mebandit.progress import progress_bar
from mebandit.simulate import compile_ahead
from mebandit.workers import Workers, hired

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


FILES = ("replicates.csv", "curves.csv", "effort.json")
"""what a finished cell leaves, in the order of writing"""


def finished(folder: Path, cell: Cell) -> bool:
    """Whether a cell's results are in the folder, each file of the size it was written with."""
    if not all(_path(folder, cell, ending).exists() for ending in FILES):
        return False
    sizes = json.loads(_path(folder, cell, FILES[-1]).read_text()).get("bytes", {})
    return all(sizes.get(ending) == _path(folder, cell, ending).stat().st_size for ending in FILES[:-1])


def _path(folder: Path, cell: Cell, ending: str) -> Path:
    return folder / "cells" / f"{cell.fingerprint}.{ending}"


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

    `started(cell, finished_before)` is called as each cell's turn comes. A cell that is not a contest of policies (`mebandit.simulate`) is
    computed on the processor, whatever the engine.
    """
    folder = Path(folder)
    missing = {cell.fingerprint: cell for cell in cells if not finished(folder, cell)}
    contests = {name: cell.contest for name, cell in missing.items() if engine != "cpu" and hasattr(cell, "contest")}
    elsewhere = {name: contest for name, contest in contests.items() if cuda.chosen(engine, [contest])}
    folder = writable_folder(folder)
    (folder / "cells").mkdir(exist_ok=True)
    pieces = [(cell, replicate) for name, cell in missing.items() if name not in elsewhere for replicate in range(cell.replicates)]
    total = len(pieces) + sum(missing[name].replicates for name in elsewhere)
    with hired(workers) as pool, progress_bar(total, "simulating", progress) as done:
        if pieces and pool.here:
            compile_ahead(progress)
        played, begun = pool.in_order(_play, pieces, done), monotonic()
        launched = cuda.played(list(elsewhere.values()), done, progress)
        for cell in cells:
            if started is not None:
                started(cell, finished(folder, cell))
            if not finished(folder, cell):
                stream = launched if cell.fingerprint in elsewhere else played
                _write(cell, cell.data(islice(stream, cell.replicates)), folder, monotonic() - begun)
                begun = monotonic()
    return read_cells(cells, folder)


def _play(piece: tuple[Cell, int]) -> Any:
    cell, replicate = piece
    return cell.play(replicate)


def read_cells(cells: Sequence[Cell], folder: Path) -> CellData:
    """The results of finished cells, joined, with each cell's name and labels in front."""
    import pandas as pd

    tables = []
    for table in CellData._fields:
        parts = [pd.read_csv(_path(folder, cell, f"{table}.csv")).assign(cell=cell.name, **cell.labels) for cell in cells]
        joined = pd.concat(parts, ignore_index=True)
        front = ["cell", *dict.fromkeys(label for cell in cells for label in cell.labels)]
        tables.append(joined[[*front, *(column for column in joined.columns if column not in front)]])
    return CellData(*tables)


def effort(cells: Sequence[Cell], folder: Path) -> Effort:
    """What the cells took to compute."""
    each = [json.loads(_path(folder, cell, "effort.json").read_text()) for cell in cells]
    return Effort(sum(e["policy_rounds"] for e in each), sum(e["seconds"] for e in each))


def _write(cell: Cell, data: CellData, folder: Path, seconds: float) -> None:
    rounds = data.replicates["policy"].nunique() * cell.replicates * int(data.replicates["time"].max())
    taken = Effort(rounds, seconds)
    contents = {"replicates.csv": data.replicates.to_csv(index=False).encode(), "curves.csv": data.curves.to_csv(index=False).encode()}
    for ending, content in contents.items():
        write_whole(_path(folder, cell, ending), content)
    sizes = {ending: len(content) for ending, content in contents.items()}
    write_whole(_path(folder, cell, "effort.json"), json.dumps({"cell": cell.name, "bytes": sizes} | taken._asdict()))


def summary_of(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The last recorded round of every curve."""
    last = curves.groupby("cell", sort=False)["time"].transform("max")
    return curves[curves["time"] == last].drop(columns="time").reset_index(drop=True)
