"""`mebandit bench`."""

from pathlib import Path

import click
from rich.console import Console

from mebandit.cli.terminal import commands, print_table

PARTS = ("live", "simulate", "scale", "start", "logs")


@commands.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True, help="How often each takes its turn.")
@click.option("--rows", type=click.IntRange(min=100), default=2_000_000, show_default=True, help="Rows of the log that is analysed.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, executable=True),
    help="Another Python interpreter in which to look for libraries to compare with; may be given several times.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("benchmarks"), show_default=True, help="Folder for RESULTS.md and its pictures."
)
def bench(parts: tuple[str, ...], repeats: int, rows: int, pythons: tuple[str, ...], out: Path) -> None:
    """Measure what things cost here, beside what others take for the same.

    \b
      live        decide and learn, round by round, beside the libraries that are installed
      simulate    simulated rounds per second on one core, for each policy
      scale       how cost and memory grow with features, actions, rounds and refits
      start       the first call in a new process, with a compile cache and without
      logs        rows per second of the analysis of a log, beside pyarrow reading it

    All of them if none is named, in a few minutes. Those that are compared take turns, so that a busy machine slows all of them alike.
    """
    from mebandit.experiments.bench.catalogue import run_parts
    from mebandit.experiments.bench.measuring import Options, machine

    Console().print(machine(), highlight=False, markup=False, style="dim")
    for section in run_parts(parts or PARTS, out, Options(repeats=repeats, rows=rows, pythons=pythons)):
        print_table(section.title, section.table.header, section.table.rows, set())
        Console().print(f"{section.finding}\n", highlight=False, markup=False)
    click.echo(f"Tables and figures: {(out / 'RESULTS.md').resolve()}")
