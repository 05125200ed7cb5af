"""`mebandit demo`, `mebandit simulate spec.toml` and `mebandit paper table1a`."""

from pathlib import Path
from time import monotonic

import click
from rich.console import Console

from mebandit.cli.options import engine_option, workers_options
from mebandit.cli.terminal import commands, print_table
from mebandit.runtime.workers import Workers


@commands.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder for the report page.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same numbers.")
def demo(out: Path, seed: int) -> None:
    """See in a minute what measurement error does to a bandit.

    Compares the paper's policy with the usual ones in simulation, prints the comparison and writes a report page.
    """
    from mebandit.experiments.demo import run_demo, write_report
    from mebandit.runtime.files import writable_folder

    folder = writable_folder(out)
    found = run_demo(seed=seed)
    for scene in (found.usual, found.twisted):
        print_table(scene.title, scene.header, scene.rows, scene.references)
    Console().print(f"\n{found.verdict}\n", highlight=False, markup=False)
    click.echo(f"Report page: {write_report(found, folder, seed=seed).resolve()}")


@commands.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Folder for tables and figures.")
@workers_options
@engine_option
def simulate(spec: Path, out: Path, workers: Workers, engine: str) -> None:
    """Run the experiment that a TOML file describes.

    SPEC names environments, a grid over their settings, and policies. Finished cells are kept in the output folder: after an interruption,
    the same command goes on where it stopped. An example:

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
    """
    from mebandit.experiments.runner import run_cells, summary_of
    from mebandit.experiments.spec import read_spec
    from mebandit.experiments.sweep import write_report
    from mebandit.runtime.escaping import as_csv
    from mebandit.runtime.files import writable_folder, write_whole

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
    page = write_report(curves, cells, folder, command=f"mebandit simulate {spec}", seconds=monotonic() - begun)
    click.echo(f"Tables: {(folder / 'summary.csv').resolve()}, curves.csv\nReport page: {page.resolve()}")


EXPERIMENTS = ("table1a", "table1b", "figures", "examples", "rates", "estimated-variance", "updates", "k-arms", "ours", "all")


@commands.command()
@click.argument("experiment", type=click.Choice(EXPERIMENTS))
@click.option("--protocol", type=click.Choice(["published", "as_written", "both"]), default="both", show_default=True)
@click.option(
    "--replicates", type=click.IntRange(min=2), default=None, help="Independent runs per cell; by default what each experiment needs."
)
@click.option("--quick", is_flag=True, help="Three replicates, unless --replicates says otherwise: all in about a minute.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="The same seed gives the same CSV.")
@workers_options
@engine_option
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Folder for tables and figures.")
@click.option(
    "--heartsteps-csv",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cleaned HeartSteps V1 CSV, to play its own rows beside the built-in description.",
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
    heartsteps_csv: Path | None,
) -> None:
    """Compute the paper again: its tables and figures, and what it states as theory.

    \b
      table1a, table1b      average regret, ours beside the published numbers
      figures               estimation error over time, 3 x 3 for both environments
      examples              Examples 2.1, B.1 and B.2
      rates                 regret against the horizon, with the bound's rate
      estimated-variance    an error covariance that is estimated, or wrong
      updates               solving for θ rarely
      k-arms                2, 3, 5 and 10 arms
      ours                  meb_dr beside the paper's policies, in Table 1 and in harder worlds

    The printed numbers of Table 1 are not what the text says they are, so there are two protocols: `published` is how they can be
    reproduced, `as_written` what the text describes. Finished cells are kept; after an interruption the same command goes on.
    """
    from mebandit.experiments.paper.catalogue import EXPERIMENTS, run_experiments
    from mebandit.experiments.paper.options import Options

    options = Options(protocol=protocol, replicates=replicates, quick=quick, seed=seed, heartsteps_csv=heartsteps_csv)
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    for finding in run_experiments(names, out, options, workers=workers, engine=engine).values():
        for section in finding.sections:
            shown = section.brief or section.table
            print_table(section.title + section.brief_title, shown.header, shown.rows, set(shown.muted))
            Console().print(f"{section.finding}\n", highlight=False, markup=False)
        Console().print(f"Computed: {finding.effort}.\n", style="dim", highlight=False, markup=False)
    click.echo(f"Tables and figures: {out.resolve()}\nReport page: {(out / 'report.html').resolve()}")
