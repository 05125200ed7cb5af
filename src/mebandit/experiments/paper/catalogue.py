"""The experiments by name: what `mebandit paper NAME` runs, writes and shows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from mebandit import checks
from mebandit.experiments.paper import table1
from mebandit.experiments.paper.published import POLICIES
from mebandit.experiments.report import Page
from mebandit.experiments.runner import CellData, run_cells, writable_folder, write_whole
from mebandit.experiments.spec import Cell

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

PROTOCOLS = (*table1.PROTOCOLS, "both")
REPLICATES = 100


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person can ask for."""

    protocol: str = "both"
    replicates: int = REPLICATES
    seed: int = 1
    heartsteps_csv: Path | None = None

    def __post_init__(self) -> None:
        checks.one_of("protocol", self.protocol, PROTOCOLS)
        checks.integer("replicates", self.replicates, 2)
        checks.integer("seed", self.seed, 0)

    @property
    def protocols(self) -> tuple[str, ...]:
        return table1.PROTOCOLS if self.protocol == "both" else (self.protocol,)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: Callable[[Options], list[Cell]]
    table: "Callable[[CellData], pd.DataFrame]"


def _cells_1a(options: Options) -> list[Cell]:
    shape = {"replicates": options.replicates, "seed": options.seed}
    return [cell for protocol in options.protocols for cell in table1.cells_1a(protocol, **shape)]


def _cells_1b(options: Options) -> list[Cell]:
    sources = [table1.Source()] + ([table1.Source(options.heartsteps_csv)] if options.heartsteps_csv is not None else [])
    shape = {"replicates": options.replicates, "seed": options.seed}
    return [cell for p in options.protocols for source in sources for cell in table1.cells_1b(p, source=source, **shape)]


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1a", "Table 1(a): the synthetic environment", _cells_1a, table1.table_1a),
        Experiment("table1b", "Table 1(b): HeartSteps V1", _cells_1b, table1.table_1b),
    )
}


def run_experiments(
    names: list[str], folder: str | Path, options: Options, *, workers: int | None = None, progress: bool | None = None
) -> "dict[str, pd.DataFrame]":
    """Run experiments into a folder: a CSV and figures for each, and one report page. Returns the tables by name."""
    begun = monotonic()
    folder = writable_folder(folder)
    chosen = [EXPERIMENTS[checks.one_of("experiment", name, EXPERIMENTS)] for name in names]
    planned = {experiment.name: experiment.cells(options) for experiment in chosen}
    run_cells([cell for cells in planned.values() for cell in cells], folder, workers=workers, progress=progress)
    tables, page = {}, Page("Online learning in bandits with predicted context: the paper, computed again")
    page.text(
        f"{options.replicates} replicates. Each entry: ours ± its standard error, below it the published number. Bold: the best learner."
    )
    for experiment in chosen:
        data = run_cells(planned[experiment.name], folder, progress=False)
        table = experiment.table(data)
        tables[experiment.name] = table
        write_whole(folder / f"{experiment.name}.csv", table.to_csv(index=False))
        figure = draw_comparison(table, experiment.title)
        for ending in ("png", "svg"):
            figure.savefig(folder / f"{experiment.name}.{ending}", dpi=150)
        for part in compare(experiment, table):
            page.heading(part.title).text(part.note).table(part.header, part.rows, best=part.best)
        page.figure(figure)
    command = f"mebandit paper {' '.join(names)} --protocol {options.protocol} --replicates {options.replicates}"
    write_whole(folder / "report.html", page.render(command=command, seed=options.seed, seconds=monotonic() - begun))
    return tables


@dataclass(frozen=True)
class Comparison:
    """One protocol's part of a table, ready to be shown: a row per cell, a column per policy."""

    title: str
    note: str
    header: list[str]
    rows: list[list[str]]
    brief: list[list[str]]
    """the rows without standard errors and references, for a terminal"""
    best: set[tuple[int, int]]


def compare(experiment: Experiment, table: "pd.DataFrame") -> list[Comparison]:
    """For each protocol (and source): ours with standard errors, the published numbers, and the best learner."""
    groups = [name for name in ("protocol", "source") if name in table.columns]
    found = []
    for key, part in table.groupby(groups, sort=False):
        labels = {name: str(value) for name, value in zip(groups, key, strict=True)}
        extra = [policy for policy in dict.fromkeys(part["policy"]) if policy not in POLICIES]
        rows, brief, best = [], [], set()
        for i, ((sigma_eta, sigma_e2), cell) in enumerate(part.groupby(["sigma_eta", "sigma_e2"], sort=False)):
            own = cell.set_index("policy")
            best.add((i, 2 + int(own["mean"].loc[list(POLICIES)].to_numpy().argmin())))
            ours = [f"{own['mean'][p]:.3f} ± {own['std_error'][p]:.3f}\n{own['published'][p]:.3f}" for p in POLICIES]
            brief.append([f"{sigma_eta:g}", f"{sigma_e2:g}", *(f"{own['mean'][p]:.3f}|{own['published'][p]:.3f}" for p in POLICIES)])
            rows.append([f"{sigma_eta:g}", f"{sigma_e2:g}", *ours, *(f"{own['mean'][p]:.3f}" for p in extra)])
        title = f"{experiment.title}, protocol {labels['protocol']}" + (f", from the {labels['source']}" if "source" in labels else "")
        header = ["σ_η", "σ_ε²", *POLICIES, *extra]
        found.append(Comparison(title, table1.NOTES[experiment.name, labels["protocol"]], header, rows, brief, best))
    return found


def draw_comparison(table: "pd.DataFrame", title: str) -> "matplotlib.figure.Figure":
    """Ours against the published number, policy by policy, with two standard errors; on the line they agree."""
    from matplotlib.figure import Figure

    protocols = list(dict.fromkeys(table["protocol"]))
    figure = Figure(figsize=(5.2 * len(protocols), 4.6), layout="constrained")
    for axes, protocol in zip(figure.subplots(1, len(protocols), squeeze=False)[0], protocols, strict=True):
        part = table[(table["protocol"] == protocol) & table["published"].notna()]
        for i, policy in enumerate(POLICIES):
            own = part[part["policy"] == policy]
            axes.errorbar(own["published"], own["mean"], yerr=2 * own["std_error"], fmt="o", ms=5, color=f"C{i}", label=policy, lw=1)
        ends = [0.8 * float(part[["published", "mean"]].min().min()), 1.25 * float(part[["published", "mean"]].max().max())]
        axes.plot(ends, ends, color="0.6", lw=1, zorder=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("published")
        axes.set_ylabel("computed again")
        axes.set_title(f"{title}\nprotocol {protocol}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    return figure
