"""The report page of `mebandit simulate`: a table and a figure for each cell."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mebandit.experiments.spec import SimulationCell
from mebandit.reports.page import Page
from mebandit.reports.table import Table
from mebandit.runtime.files import write_whole
from mebandit.simulation.results import draw_curves

if TYPE_CHECKING:
    import pandas as pd


def write(curves: "pd.DataFrame", cells: Sequence[SimulationCell], folder: Path, *, command: str, seconds: float) -> Path:
    """Write report.html: for each cell regret and estimation error at the last round, and the curves of regret.

    Args:
        curves: The curves of all cells.
        cells: The cells.
        folder: Where to write.
        command: The command that made the page.
        seconds: How long it took.
    """
    simulation = cells[0].simulation
    page = Page("Simulation")
    page.text(
        f"{simulation['horizon']:,} rounds, {simulation['replicates']} replicates on common random numbers. Regret is per round, at the "
        "true context; the clipped one is against the best policy that keeps the floor. Standard errors in parentheses."
    )
    for cell in cells:
        own = curves[curves["cell"] == cell.name]
        last = own[own["time"] == own["time"].max()].set_index(["policy", "measure"])
        names = list(dict.fromkeys(own["policy"]))
        muted = {i for i, name in enumerate(names) if name not in cell.policies}
        rows = [[name, *(_entry(last, name, m) for m in ("clipped_regret", "standard_regret", "estimation_error"))] for name in names]
        learners = [i for i in range(len(names)) if i not in muted]
        best = min(learners, key=lambda i: last.loc[(names[i], "clipped_regret"), "mean"])
        page.heading(cell.name)
        page.table(Table(["policy", "clipped regret", "standard regret", "error of θ̂"], rows, {(best, 1)}, muted))
        page.figure(
            draw_curves(own, "clipped_regret", references=[name for i, name in enumerate(names) if i in muted]),
            f"Average clipped regret over time: {cell.name}.",
        )
    path = folder / "report.html"
    write_whole(path, page.render(command=command, seed=simulation["seed"], seconds=seconds))
    return path


def _entry(last: "pd.DataFrame", policy: str, measure: str) -> str:
    """A mean with its standard error."""
    mean, se = (float(last[column].loc[(policy, measure)]) for column in ("mean", "std_error"))
    return f"{mean:.4f} ({se:.4f})" if mean == mean else ""
