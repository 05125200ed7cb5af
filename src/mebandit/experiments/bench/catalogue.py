"""All benchmarks of `mebandit bench`, by name, and what a run of them writes to a folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from mebandit import __version__, checks
from mebandit.experiments.bench import live, logs, scaling, service, simulating, starting
from mebandit.experiments.bench.measuring import BenchOptions, Done, machine
from mebandit.reports.page import Section
from mebandit.runtime.files import writable_folder, write_whole
from mebandit.runtime.progress import progress_bar
from mebandit.simulation.simulate import compile_ahead


@dataclass(frozen=True)
class Benchmark:
    """One subject that is measured."""

    subject: str
    """what it measures, in a few words"""
    steps: Callable[[BenchOptions], int]
    """into how many steps the progress bar divides it"""
    run: Callable[[BenchOptions, Done], list[Section]]
    """measures, calls `Done` after every step, and returns the part of the report"""


BENCHMARKS: dict[str, Benchmark] = {
    "live": Benchmark("live rounds, beside other installed libraries", live.steps, live.run),
    "simulate": Benchmark("simulated rounds per second, for each policy", simulating.steps, simulating.run),
    "scale": Benchmark("cost and memory by features, actions and rounds", scaling.steps, scaling.run),
    "start": Benchmark("first call of a process, with and without a cache", starting.steps, starting.run),
    "service": Benchmark("decisions over HTTP, beside bare commits of the database", service.steps, service.run),
    "logs": Benchmark("analysis of a log, beside pyarrow reading it", logs.steps, logs.run),
}


def run_benchmarks(names: Sequence[str], folder: str | Path, options: BenchOptions, *, progress: bool | None = None) -> list[Section]:
    """Run benchmarks. Writes RESULTS.md and its pictures to a folder.

    Args:
        names: Keys of `BENCHMARKS`; all of them if empty.
        folder: Where results are written.
        options: What the user chose.
        progress: Whether to show a progress bar; by default on a terminal.
    """
    begun = monotonic()
    chosen = [BENCHMARKS[checks.one_of("benchmark", name, BENCHMARKS)] for name in dict.fromkeys(names or BENCHMARKS)]
    folder = writable_folder(folder)
    where = machine()
    compile_ahead(progress)
    sections: list[Section] = []
    with progress_bar(sum(each.steps(options) for each in chosen), "measuring", progress) as done:
        for each in chosen:
            sections += each.run(options, done)
    for section in sections:
        for name, drawn in section.pictures.items():
            write_whole(folder / f"{name}.png", drawn.png)
    command = " ".join(["mebandit bench", *(names if len(chosen) < len(BENCHMARKS) else ())])
    write_whole(folder / "RESULTS.md", as_markdown(sections, command=command, where=where, seconds=monotonic() - begun))
    return sections


def as_markdown(sections: Sequence[Section], *, command: str, where: str, seconds: float) -> str:
    """The results in Markdown, with the command and the machine that gave them."""
    head = [
        "# Benchmarks",
        f"Measured by `{command}` with mebandit {__version__} in {seconds:.0f} s, and written to this page by it. {where}",
        "Times are medians over turns, with the best turn in parentheses. The machine may be shared: compare ratios within a table, not "
        "times between runs.",
        "Simulation on a GPU is measured by `python benchmarks/gpu.py`: [GPU.md](GPU.md).",
    ]
    return "\n\n".join([*head, *(section.as_markdown(".") for section in sections)]) + "\n"
