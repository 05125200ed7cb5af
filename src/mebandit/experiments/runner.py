"""Run the cells of an experiment into a folder. A finished cell is a file; a second run computes only what is missing."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mebandit.checks import LogError
from mebandit.experiments.spec import Cell
from mebandit.simulate import simulate

if TYPE_CHECKING:
    import pandas as pd


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


def cell_path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.fingerprint}.csv"


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    started: Callable[[Cell, bool], None] | None = None,
) -> "pd.DataFrame":
    """The curves of every cell, in one tidy table: cell, policy, measure, time, mean, std_error; also in `curves.csv` and `summary.csv`.

    `started(cell, finished_before)` is called as each cell's turn comes.
    """
    import pandas as pd

    folder = writable_folder(folder)
    (folder / "cells").mkdir(exist_ok=True)
    parts = []
    for cell in cells:
        path = cell_path(folder, cell)
        if started is not None:
            started(cell, path.exists())
        if not path.exists():
            results = simulate(cell.environment, cell.policies, cell=cell.world_key, workers=workers, progress=progress, **cell.simulation)
            curves = results.curves()
            curves.insert(0, "cell", cell.name)
            write_whole(path, curves.to_csv(index=False))
        parts.append(pd.read_csv(path, float_precision="round_trip"))
    table = pd.concat(parts, ignore_index=True)
    write_whole(folder / "curves.csv", table.to_csv(index=False))
    write_whole(folder / "summary.csv", summary_of(table).to_csv(index=False))
    return table


def summary_of(curves: "pd.DataFrame") -> "pd.DataFrame":
    """The last recorded round of every curve."""
    last = curves.groupby("cell", sort=False)["time"].transform("max")
    return curves[curves["time"] == last].drop(columns="time").reset_index(drop=True)
