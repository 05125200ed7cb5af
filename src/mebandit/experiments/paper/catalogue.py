"""All experiments of `mebandit paper`, by name, and what a run of them writes to a folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from mebandit import __version__, checks
from mebandit.experiments.paper import estimated_variance, estimation_error, examples, more_actions, ours, rates, table1, updates, worlds
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import CellData, effort, read_cells, run_cells
from mebandit.reports.page import Page, Section
from mebandit.runtime.escaping import as_csv
from mebandit.runtime.files import writable_folder, write_whole
from mebandit.runtime.workers import Workers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or an experiment on its theory."""

    subject: str
    """what it shows, in a few words"""
    cells: Callable[[PaperOptions], Sequence[Any]]
    """what is simulated"""
    table: "Callable[[CellData], pd.DataFrame]"
    """the CSV file, from the results of the cells"""
    sections: "Callable[[pd.DataFrame, CellData], list[Section]]"
    """the part of the report page, from the CSV and the results"""


EXPERIMENTS: dict[str, Experiment] = {
    "table1a": Experiment("regret in the synthetic world, and as published", table1.cells_of_1a, table1.table_1a, table1.sections_1a),
    "table1b": Experiment("regret in HeartSteps V1, and as published", table1.cells_of_1b, table1.table_1b, table1.sections_1b),
    "figures": Experiment("estimation error over time", estimation_error.cells, estimation_error.table, estimation_error.sections),
    "examples": Experiment("Examples 2.1, B.1 and B.2", examples.cells, examples.table, examples.sections),
    "rates": Experiment("regret against the horizon, and the bound's rate", rates.cells, rates.table, rates.sections),
    "estimated-variance": Experiment(
        "Σe estimated, or wrong", estimated_variance.cells, estimated_variance.table, estimated_variance.sections
    ),
    "updates": Experiment("solving for θ rarely", updates.cells, updates.table, updates.sections),
    "k-arms": Experiment("2, 3, 5 and 10 actions", more_actions.cells, more_actions.table, more_actions.sections),
    "ours": Experiment("meb_dr beside the paper's policies", ours.cells, ours.table, ours.sections),
    "worlds": Experiment("meb_dr beside simple policies in 77 worlds", worlds.cells, worlds.table, worlds.sections),
}
TITLE = "Online learning in bandits with predicted context: the paper, reproduced"
INTRODUCTION = (
    "This page reproduces every table and figure of Guo, Xu and Murphy (AISTATS 2024), and tests what the paper says as theory. In the "
    "tables, ± is a standard error over replicates, and the best learner is bold. A published number is below ours, with the difference "
    "in parentheses, in combined standard errors. The standard error of a published mean of 100 runs is taken to be our standard deviation "
    "/ √100. The printed numbers of Table 1 are not what the text of the paper says they are. So there are two protocols: published is how "
    "the printed numbers can be reproduced, and as_written is what the text describes. The paper's full table has numbers in parentheses, "
    "which are not standard deviations of these quantities. Our standard deviations are in the CSV files and, folded, on the report page."
)


class Outcome(NamedTuple):
    """The results of one experiment."""

    table: "pd.DataFrame"
    sections: list[Section]
    effort: str


def run_experiments(
    names: Sequence[str],
    folder: str | Path,
    options: PaperOptions,
    *,
    workers: Workers = None,
    engine: str = "cpu",
    progress: bool | None = None,
) -> dict[str, Outcome]:
    """Run experiments. Writes to a folder: a CSV and figures for each, and one report page. Finished cells are not computed again.

    Args:
        names: Keys of `EXPERIMENTS`.
        folder: Where results are written, and looked for.
        options: What the user chose.
        workers: Threads, or a Dask cluster; see `mebandit.simulate`.
        engine: What simulates: "cpu", "cuda" or "auto".
        progress: Whether to show a progress bar; by default on a terminal.

    Returns:
        The results, by name.
    """
    begun = monotonic()
    chosen = {name: EXPERIMENTS[checks.one_of("experiment", name, EXPERIMENTS)] for name in names}
    if options.policies and set(names) != {"table1a"}:
        checks.refuse("policies", "go with the experiment table1a alone", ", ".join(names))
    planned = {name: experiment.cells(options) for name, experiment in chosen.items()}
    folder = writable_folder(folder)
    run_cells([cell for cells in planned.values() for cell in cells], folder, workers=workers, engine=engine, progress=progress)
    found = {}
    for name, experiment in chosen.items():
        data = read_cells(planned[name], folder)
        table = experiment.table(data)
        found[name] = Outcome(table, experiment.sections(table, data), effort(planned[name], folder).words)
        write_whole(folder / f"{name}.csv", as_csv(table))
        for section in found[name].sections:
            for file, picture in section.pictures.items():
                for kind, content in picture._asdict().items():
                    write_whole(folder / f"{file}.{kind}", content)
    page = Page(TITLE).text(INTRODUCTION)
    for finding in found.values():
        for section in finding.sections:
            page.section(section)
        page.text(f"Computed: {finding.effort}.")
    command = f"mebandit paper {names[0] if len(names) == 1 else 'all'} {options.command}"
    write_whole(folder / "report.html", page.render(command=command, seed=options.seed, seconds=monotonic() - begun))
    return found


def as_markdown(found: dict[str, Outcome], *, command: str, folder: str) -> str:
    """The results as a page of the documentation, in Markdown, with links to pictures in a folder."""
    made = f"Computed by `{command}` with mebandit {__version__}, and written to this page by `scripts/write_reproduction.py`."
    parts = [f"# {TITLE}", INTRODUCTION, made]
    for finding in found.values():
        parts += [section.as_markdown(folder) for section in finding.sections]
        parts.append(f"*Computed: {finding.effort}.*")
    return "\n\n".join(parts) + "\n"
