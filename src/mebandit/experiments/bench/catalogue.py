"""The parts of `mebandit bench` by name, and what a run of them leaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from mebandit import __version__, checks
from mebandit.experiments.bench import live, logs, scaling, simulating, starting
from mebandit.experiments.bench.measuring import Done, Options, machine
from mebandit.reports.page import Section
from mebandit.runtime.files import writable_folder, write_whole
from mebandit.runtime.progress import progress_bar
from mebandit.simulation.simulate import compile_ahead


@dataclass(frozen=True)
class Part:
    """One thing that is measured."""

    steps: Callable[[Options], int]
    """how many times `run` will say that it has come further"""
    run: Callable[[Options, Done], list[Section]]


PARTS = {
    "live": Part(live.steps, live.run),
    "simulate": Part(simulating.steps, simulating.run),
    "scale": Part(scaling.steps, scaling.run),
    "start": Part(starting.steps, starting.run),
    "logs": Part(logs.steps, logs.run),
}


def run_parts(names: Sequence[str], folder: str | Path, options: Options, *, progress: bool | None = None) -> list[Section]:
    """Measure, and write RESULTS.md and its pictures into a folder."""
    begun = monotonic()
    parts = [PARTS[checks.one_of("part", name, PARTS)] for name in dict.fromkeys(names)]
    folder = writable_folder(folder)
    where = machine()
    compile_ahead(progress)
    sections: list[Section] = []
    with progress_bar(sum(part.steps(options) for part in parts), "measuring", progress) as done:
        for part in parts:
            sections += part.run(options, done)
    for section in sections:
        for name, drawn in section.pictures.items():
            write_whole(folder / f"{name}.png", drawn.png)
    command = " ".join(["mebandit bench", *(names if len(parts) < len(PARTS) else ())])
    write_whole(folder / "RESULTS.md", as_markdown(sections, command=command, where=where, seconds=monotonic() - begun))
    return sections


def as_markdown(sections: Sequence[Section], *, command: str, where: str, seconds: float) -> str:
    head = [
        "# Benchmarks",
        f"Measured by `{command}` with mebandit {__version__} in {seconds:.0f} s, and written to this page by it. {where}",
        "Times are medians over turns, with the best turn in parentheses. The machine may be shared: compare ratios within a table, not "
        "times between runs.",
        "Simulation on a graphics processor is measured by `python benchmarks/gpu.py`: [GPU.md](GPU.md).",
    ]
    return "\n\n".join([*head, *(section.as_markdown(".") for section in sections)]) + "\n"
