"""Run the cells of an experiment into a folder. A finished cell is a pair of files; a second run computes only what is missing."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mebandit.checks import LogError
from mebandit.experiments.spec import Cell
from mebandit.progress import progress_bar
from mebandit.simulate import simulate

if TYPE_CHECKING:
    import pandas as pd


class CellData(NamedTuple):
    """What the cells gave, in tidy tables whose first columns are the cell's name and labels."""

    curves: "pd.DataFrame"
    """policy, measure, time, mean, std_error"""
    replicates: "pd.DataFrame"
    """policy, replicate, time (the horizon and the milestones), and every measure"""


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name, then rename it: it is there in full or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def writable_folder(path: str | Path) -> Path:
    """The folder, made if need be and found writable; or one sentence, before any computing."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".mebandit-write-test"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise LogError(f"the output folder must be writable; got {folder} ({error.strerror}).") from error
    return folder


def finished(folder: Path, cell: Cell) -> bool:
    """Whether a cell's results are in the folder."""
    return all(_path(folder, cell, table).exists() for table in CellData._fields)


def _path(folder: Path, cell: Cell, table: str) -> Path:
    return folder / "cells" / f"{cell.fingerprint}.{table}.csv"


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    started: Callable[[Cell, bool], None] | None = None,
) -> CellData:
    """The results of every cell: computed, or read where an earlier run has finished it.

    `started(cell, finished_before)` is called as each cell's turn comes.
    """
    import pandas as pd

    folder = writable_folder(folder)
    (folder / "cells").mkdir(exist_ok=True)
    missing = sum(cell.simulation["replicates"] for cell in cells if not finished(folder, cell))
    with progress_bar(missing, "simulating", progress) as advance:
        for cell in cells:
            if started is not None:
                started(cell, finished(folder, cell))
            if not finished(folder, cell):
                _run(cell, folder, workers, advance)
    tables = []
    for table in CellData._fields:
        parts = [pd.read_csv(_path(folder, cell, table)).assign(cell=cell.name, **cell.labels) for cell in cells]
        joined = pd.concat(parts, ignore_index=True)
        front = ["cell", *dict.fromkeys(label for cell in cells for label in cell.labels)]
        tables.append(joined[[*front, *(column for column in joined.columns if column not in front)]])
    return CellData(*tables)


def _run(cell: Cell, folder: Path, workers: int | None, advance: Callable[[], None]) -> None:
    results = simulate(
        cell.environment,
        cell.policies,
        cell=cell.world_key,
        workers=workers,
        progress=lambda done, total: advance(),
        **cell.simulation,
    )
    milestones = sorted({*cell.simulation.get("milestones", ()), cell.simulation["horizon"]})
    write_whole(_path(folder, cell, "replicates"), results.replicates(milestones).to_csv(index=False))
    write_whole(_path(folder, cell, "curves"), results.curves().to_csv(index=False))


def summary_of(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The last recorded round of every curve."""
    last = curves.groupby("cell", sort=False)["time"].transform("max")
    return curves[curves["time"] == last].drop(columns="time").reset_index(drop=True)
