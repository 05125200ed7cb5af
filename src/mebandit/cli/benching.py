"""`mebandit bench`."""

from pathlib import Path

import click
from rich.console import Console

from mebandit.cli.terminal import commands, listed, print_table
from mebandit.experiments.bench.catalogue import BENCHMARKS, run_benchmarks
from mebandit.experiments.bench.measuring import BenchOptions, machine


@commands.command(
    help=f"""Measure how fast mebandit is on this machine, beside other libraries.

{listed({name: benchmark.subject for name, benchmark in BENCHMARKS.items()})}

Without BENCHMARKS all are run, which takes a few minutes. What is compared takes turns, so that other work on the machine slows all alike.
"""
)
@click.argument("benchmarks", nargs=-1, type=click.Choice(tuple(BENCHMARKS)), metavar="[BENCHMARKS]...")
@click.option("--repeats", type=click.IntRange(min=1), default=BenchOptions.repeats, show_default=True, help="Turns of each measurement.")
@click.option("--rows", type=click.IntRange(min=100), default=BenchOptions.rows, show_default=True, help="Rows of the log to analyse.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, executable=True),
    help="Another Python interpreter whose libraries are measured too; may be repeated.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("benchmarks"), show_default=True, help="Folder for RESULTS.md and its pictures."
)
def bench(benchmarks: tuple[str, ...], repeats: int, rows: int, pythons: tuple[str, ...], out: Path) -> None:
    """Run benchmarks and print their tables."""
    Console().print(machine(), highlight=False, markup=False, style="dim")
    for section in run_benchmarks(benchmarks, out, BenchOptions(repeats=repeats, rows=rows, pythons=pythons)):
        print_table(section.title, section.table.header, section.table.rows, set())
        Console().print(f"{section.finding}\n", highlight=False, markup=False)
    click.echo(f"Tables and figures: {(out / 'RESULTS.md').resolve()}")
