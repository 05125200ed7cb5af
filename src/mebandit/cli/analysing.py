"""`mebandit fit log.parquet` and `mebandit error-model pairs.csv`."""

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mebandit import checks, measurement
from mebandit.checks import InvalidInput
from mebandit.cli.options import bad_row_options, error_options, log_arguments, log_options, workers_options
from mebandit.cli.terminal import commands, print_table
from mebandit.files import check_output
from mebandit.measurement import ErrorModel

METHODS = ("ridge", "naive", "meb", "dr", "rc")


@commands.command()
@log_options
@workers_options
@error_options
@click.option("--validation", type=click.Path(path_type=Path), help="An error model from validation pairs, to check what is assumed.")
@click.option("--method", multiple=True, type=click.Choice(METHODS), help="Repeat for several; by default all, side by side.")
@click.option("--intercept", is_flag=True, help="Fit an intercept for every action.")
@click.option("--ridge", type=float, default=0.0, show_default=True)
@click.option("--guard", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("--floor", type=float, help="The smallest probability that the policy promised.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
@bad_row_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON: estimates.<method>.theta, .std_error, .interval, ...")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for CSV tables, figures and a report page.")
def fit(log: tuple[Path, ...], level: float, as_json: bool, out: Path | None, **given: Any) -> None:
    """Estimate reward models from a log, with intervals and diagnostics.

    LOG is a Parquet or CSV file, a folder of them, a journal (.jsonl), or several; it may be larger than memory. A row is a round: what was
    predicted, the action, the probability it was drawn with, the reward.

    \b
      mebandit fit log.parquet --predicted x0,x1 --propensity propensity --error-cov 0.1,0.5
      mebandit fit trial.jsonl --unit user --out analysis
      mebandit fit logs/ --columns columns.toml --error-model model.json --json
    """
    from mebandit.analysis import page
    from mebandit.files import writable_folder

    begun = monotonic()
    checks.number("--level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    folder = writable_folder(out) if out is not None else None
    found = _analysis(log, folder, given)
    written = None
    if folder is not None:
        command = shlex.join(["mebandit", *sys.argv[1:]])
        written = page.write(found, folder, level=level, command=command, seconds=monotonic() - begun)
    if as_json:
        click.echo(found.to_json(level))
        return
    Console().print(page.headline(found), highlight=False, markup=False, soft_wrap=True)
    best = found.best.method
    shown = [
        ("Coefficients, ± standard error", page.coefficients(found)),
        ("Differences between actions", page.contrasts(found, level)),
        (f"Differences between actions by {best}, with other multiples of the error covariance", page.sensitivity(found)),
    ]
    for title, table in shown:
        print_table(title, table.header, table.rows, set())
    if page.remarks(found):
        Console().print(page.remarks(found), style="bold red", highlight=False, markup=False)
    _print_verdicts([(f.verdict, f.name, f.sentence) for f in found.diagnostics])
    if found.faults:
        click.echo(f"Rows set aside: {found.settings['set_aside']}")
    if written is not None:
        click.echo(f"Tables and figures: {written.parent.resolve()}\nReport page: {written.resolve()}")


def _analysis(log: tuple[Path, ...], folder: Path | None, given: dict[str, Any]) -> Any:
    from mebandit.analysis.inference import fit

    validation, methods = given.pop("validation"), given.pop("method") or METHODS
    checked = None if validation is None else ErrorModel.load(validation)
    return fit([str(path) for path in log], validation=checked, methods=methods, **log_arguments(given, folder))


COLOURS = {"green": "green", "yellow": "yellow", "red": "bold red"}


def _print_verdicts(findings: list[tuple[str, str, str]]) -> None:
    table = Table(title="Diagnostics", title_justify="left", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for verdict, name, sentence in findings:
        table.add_row(Text(verdict, style=COLOURS[verdict]), Text(name), Text(sentence))
    Console().print(table)


@commands.command("error-model")
@click.argument("pairs", type=click.Path(path_type=Path))
@click.option("--predicted", required=True, help="Columns of the predictions, with commas.")
@click.option("--truth", help="Columns of the truth, in the same order: validation pairs.")
@click.option("--subject", help="Column that says which rows are readings of the same truth: replicates.")
@click.option("--averaged", type=click.IntRange(min=1), default=1, show_default=True, help="Readings that the log's prediction averages.")
@click.option("--assume", type=click.Choice(["classical", "berkson", "biased"]), help="Use it as this, whatever the pairs say.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file for `mebandit fit --error-model`.")
def error_model(pairs: Path, predicted: str, truth: str | None, subject: str | None, averaged: int, assume: str | None, out: Path) -> None:
    """Learn how wrong the predictions are, from pairs with the truth or from replicates.

    \b
      mebandit error-model pairs.csv --predicted x0,x1 --truth t0,t1 --out model.json
      mebandit error-model readings.csv --predicted x0,x1 --subject person --out model.json
    """
    from mebandit.analysis.formats import read_numbers

    if (truth is None) == (subject is None):
        raise InvalidInput("the evidence must be either --truth columns or a --subject column; got both or neither.")
    if truth is not None and averaged > 1:
        raise InvalidInput("--averaged goes with --subject, for replicates; got it with --truth.")
    if subject is not None and assume is not None:
        raise InvalidInput("--assume goes with --truth, for validation pairs; got it with --subject.")
    check_output(out, [pairs])
    names = predicted.split(",")
    if truth is not None:
        x, t = read_numbers(pairs, names), read_numbers(pairs, truth.split(","))
        model = measurement.from_validation(x, t, assume=assume)
    else:
        model = measurement.from_replicates(_stacked(pairs, names, str(subject)), averaged=averaged)
    model.save(out)
    click.echo(model.describe())
    click.echo(f"\nError model: {out.resolve()}")


def _stacked(path: Path, names: list[str], subject: str) -> Any:
    """Readings (subjects, readings, features) from rows with a subject's label; NaN where one has fewer than others."""
    import numpy as np

    from mebandit.analysis.formats import read_labels, read_numbers

    x, labels = read_numbers(path, names), read_labels(path, subject)
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    readings = np.full((counts.size, counts.max(), len(names)), np.nan)
    seen = np.zeros(counts.size, dtype=int)
    for row, who in zip(x, place, strict=True):
        readings[who, seen[who]] = row
        seen[who] += 1
    return readings
