"""The commands that simulate: `mebandit demo`, `mebandit simulate spec.toml`, `mebandit paper table1a`."""

from pathlib import Path
from time import monotonic

import click
from rich.console import Console

from mebandit.cli.options import engine_option, workers_options
from mebandit.cli.terminal import commands, listed, print_table
from mebandit.experiments import simulate_page
from mebandit.experiments.demo import SEED, run_demo
from mebandit.experiments.demo import write_report as demo_page
from mebandit.experiments.paper.catalogue import EXPERIMENTS, run_experiments
from mebandit.experiments.paper.options import PROTOCOLS, QUICK, PaperOptions
from mebandit.experiments.runner import run_cells, summary_of
from mebandit.experiments.spec import read_spec
from mebandit.runtime.escaping import as_csv
from mebandit.runtime.files import writable_folder, write_whole
from mebandit.runtime.workers import Workers


@commands.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder for the report page.")
@click.option("--seed", type=int, default=SEED, show_default=True, help="The same seed gives the same numbers.")
@click.option("--service", is_flag=True, help="Serve the dashboard of a simulated trial that runs while you look at it, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="With --service: the port to listen on.")
def demo(out: Path, seed: int, service: bool, port: int) -> None:
    """See in a minute what measurement error does to a bandit.

    Simulates the paper's policy beside the usual ones, prints a comparison and writes a report page. With --service it makes a store with
    a simulated trial instead (OUT/trial.db), in which a sensor has begun to drift, and serves its dashboard.
    """
    folder = writable_folder(out)
    if service:
        from mebandit.cli.serving import serve_demo

        serve_demo(folder, seed=seed, port=port)
        return
    found = run_demo(seed=seed)
    for scene in (found.usual, found.twisted):
        print_table(scene.title, scene.header, scene.rows, scene.references)
    Console().print(f"\n{found.verdict}\n", highlight=False, markup=False)
    click.echo(f"Report page: {demo_page(found, folder, seed=seed).resolve()}")


@commands.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Folder for tables and figures.")
@workers_options
@engine_option
def simulate(spec: Path, out: Path, workers: Workers, engine: str) -> None:
    """Simulate policies in environments that a TOML file describes.

    SPEC names environments, a grid over their settings, and policies. Each point of the grid is a cell. Finished cells are kept in the
    output folder: after an interruption, the same command continues. An example:

    \b
      [simulation]
      horizon = 10000
      replicates = 20
      [environment]
      kind = "Gaussian"
      [grid]
      error_cov = [0.1, 1.0, 2.0]
      [[policy]]
      kind = "meb"
      [[policy]]
      kind = "lin_ucb"
      [[policy]]
      kind = "mine:EpsilonGreedy"

    The last policy is your own: a class or function in mine.py beside SPEC, or in an installed module. Environments may be your own too.
    Python code is run, so read a SPEC that others wrote before you run it.
    """
    cells = read_spec(spec)
    folder = writable_folder(out)
    begun = monotonic()

    def started(cell: object, finished: bool) -> None:
        number = next(counter)
        click.echo(f"cell {number}/{len(cells)}  {getattr(cell, 'name', '')}" + ("  (already done)" if finished else ""), err=True)

    counter = iter(range(1, len(cells) + 1))
    curves = run_cells(cells, folder, workers=workers, engine=engine, started=started).curves
    summary = summary_of(curves)
    write_whole(folder / "curves.csv", as_csv(curves))
    write_whole(folder / "summary.csv", as_csv(summary))
    regret = summary[summary["measure"] == "clipped_regret"]
    columns = (regret[name] for name in ("cell", "policy", "mean", "std_error"))
    rows = [[str(cell), str(policy), f"{mean + 0.0:.4f}", f"{se:.4f}"] for cell, policy, mean, se in zip(*columns, strict=True)]
    print_table("Average clipped regret", ["cell", "policy", "mean", "± s.e."], rows, set())
    page = simulate_page.write(curves, cells, folder, command=f"mebandit simulate {spec}", seconds=monotonic() - begun)
    click.echo(f"Tables: {(folder / 'summary.csv').resolve()}, curves.csv\nReport page: {page.resolve()}")


@commands.command(
    help=f"""Reproduce the tables and figures of the paper.

{listed({name: experiment.subject for name, experiment in EXPERIMENTS.items()} | {"all": "all of these"})}

The printed numbers of Table 1 are not the quantity that the text defines, so there are two protocols: `published` reproduces the printed
numbers, `as_written` follows the text. Finished cells are kept: after an interruption, the same command continues.
"""
)
@click.argument("experiment", type=click.Choice((*EXPERIMENTS, "all")), metavar="EXPERIMENT")
@click.option("--protocol", type=click.Choice((*PROTOCOLS, "both")), default=PaperOptions.protocol, show_default=True)
@click.option(
    "--replicates", type=click.IntRange(min=2), default=None, help="Independent runs per cell; by default what each experiment needs."
)
@click.option("--quick", is_flag=True, help=f"{QUICK} replicates, unless --replicates says otherwise: all in about a minute.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=PaperOptions.seed, show_default=True, help="The same seed gives the same CSV."
)
@workers_options
@engine_option
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Folder for tables and figures.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="MODULE:NAME",
    help="A policy of your own that plays along in table1a: a class or function of a module in the working directory, or of an installed "
    "one. Several may be given.",
)
@click.option(
    "--heartsteps-csv",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cleaned HeartSteps V1 data (CSV): its rows are then simulated beside the built-in description of the data.",
)
def paper(
    experiment: str,
    protocol: str,
    replicates: int | None,
    quick: bool,
    seed: int,
    workers: Workers,
    engine: str,
    out: Path,
    policies: tuple[str, ...],
    heartsteps_csv: Path | None,
) -> None:
    """Run experiments and print their tables."""
    options = PaperOptions(
        protocol=protocol, replicates=replicates, quick=quick, seed=seed, policies=policies, heartsteps_csv=heartsteps_csv
    )
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    for outcome in run_experiments(names, out, options, workers=workers, engine=engine).values():
        for section in outcome.sections:
            shown = section.brief or section.table
            print_table(section.title + section.brief_title, shown.header, shown.rows, set(shown.muted))
            Console().print(f"{section.finding}\n", highlight=False, markup=False)
        Console().print(f"Computed: {outcome.effort}.\n", style="dim", highlight=False, markup=False)
    click.echo(f"Tables and figures: {out.resolve()}\nReport page: {(out / 'report.html').resolve()}")
