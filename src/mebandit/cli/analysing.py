"""`mebandit fit log.parquet` and `mebandit error-model pairs.csv`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mebandit import checks, measurement
from mebandit.checks import InvalidInput, LogError
from mebandit.cli.naming import in_options
from mebandit.cli.options import log_argument, log_arguments, log_options, sandwich_option, stored_log, workers_options
from mebandit.cli.terminal import commands, print_table
from mebandit.estimation.methods import METHODS, PREFERRED
from mebandit.measurement import ErrorModel
from mebandit.measurement.files import FORMAT
from mebandit.runtime.files import begins_with, check_output


@commands.command()
@log_argument
@log_options
@workers_options
@click.option(
    "--validation",
    type=click.Path(path_type=Path),
    help="An error model file from validation data, with which the assumed error is compared.",
)
@click.option("--method", multiple=True, type=click.Choice(METHODS), help="Estimation method; repeat for several.  [default: all]")
@click.option("--intercept", is_flag=True, help="Fit an intercept for every action.")
@click.option("--ridge", type=float, default=0.0, show_default=True, help="Ridge penalty.")
@click.option(
    "--guard",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to stabilise an estimate (Fuller).",
)
@sandwich_option
@click.option("--floor", type=float, help="Exploration floor of the logging policy; violations are reported.")
@click.option(
    "--anytime",
    is_flag=True,
    help="Also bands over time that hold at every look, in the order of --time or of the rows; by dr, or --method.",
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: estimates.<method>.theta, .std_error, .interval, ...")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for CSV tables, figures and a report page.")
def fit(log: tuple[Path, ...], level: float, as_json: bool, out: Path | None, anytime: bool, **given: Any) -> None:
    """Estimate reward models from a log, with confidence intervals and diagnostics.

    LOG is a Parquet or CSV file, a folder of these, a journal (.jsonl), or several; it may be larger than memory. Each row is a round: the
    predicted context, the action, the probability with which it was drawn, the reward.

    \b
      mebandit fit log.parquet --predicted x0,x1 --propensity propensity --error-cov 0.1,0.5
      mebandit fit trial.jsonl --unit unit --time time --out analysis
      mebandit fit logs/ --columns columns.toml --error-model model.json --json
    """
    from mebandit.analysis import fit_page as page
    from mebandit.analysis import fit_tables
    from mebandit.runtime.files import folder_for_results

    begun, written = monotonic(), None
    checks.number("--level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    with folder_for_results(out, log, page.FILES + (page.ANYTIME if anytime else ())) as folder:
        looks = _over_time(log, level, dict(given)) if anytime else None
        found = _analysis(log, folder, given)
        if folder is not None:
            command = shlex.join(["mebandit", *sys.argv[1:]])
            written = page.write(found, folder, level=level, command=command, seconds=monotonic() - begun, looks=looks)
    if as_json:
        click.echo(page.as_json(found, level, looks))
        return
    Console().print(page.headline(found), highlight=False, markup=False, soft_wrap=True)
    best = found.best.method
    shown = [
        ("Coefficients, ± standard error", fit_tables.coefficients(found)),
        ("Differences between actions", fit_tables.contrasts(found, level)),
        (f"Differences between actions by {best}, with other multiples of the error covariance", fit_tables.sensitivity(found)),
    ]
    for title, table in shown:
        print_table(*_narrow(title, table), set())
    if page.averages(found, level):
        Console().print(page.averages(found, level) + "\n", highlight=False, markup=False)
    tests = fit_tables.joint_tests(found)
    print_table("Joint tests (Wald)", tests.header, tests.rows, set())
    if looks is not None:
        Console().print(f"{looks}\n", highlight=False, markup=False, soft_wrap=True)
    if page.remarks(found):
        Console().print(page.remarks(found), style="bold red", highlight=False, markup=False)
    if page.unbiased(found):
        Console().print(page.unbiased(found), highlight=False, markup=False)
    _print_verdicts([(f.verdict, f.name, f.sentence) for f in found.diagnostics])
    if found.faults:
        click.echo(f"Rows set aside: {found.settings['set_aside']}")
    if written is not None:
        click.echo(f"Tables and figures: {written.parent.resolve()}\nReport page: {written.resolve()}")


def _over_time(log: tuple[Path, ...], level: float, given: dict[str, Any]) -> Any:
    """The bands over time, by the method to read first."""
    from mebandit.analysis.sequence import confidence_sequence

    chosen = given["method"] or METHODS
    arguments = log_arguments(given)
    kept = {name: arguments[name] for name in ("ridge", "intercept", "guard", "sandwich", "workers") if name in arguments}
    method = next(name for name in PREFERRED if name in chosen)
    return confidence_sequence(stored_log(log, arguments), method=method, level=level, **kept)


def _narrow(title: str, table: Any) -> tuple[str, list[str], list[list[str]]]:
    """A table without its first column where that says the same in all rows; the title says it instead."""
    firsts = {row[0] for row in table.rows}
    if len(firsts) != 1:
        return title, table.header, table.rows
    return f"{title}: {firsts.pop()}", table.header[1:], [row[1:] for row in table.rows]


def _analysis(log: tuple[Path, ...], folder: Path | None, given: dict[str, Any]) -> Any:
    from mebandit.analysis.fit import fit

    validation, methods = given.pop("validation"), given.pop("method") or METHODS
    checked = None if validation is None else ErrorModel.load(validation)
    arguments = log_arguments(given, folder)
    found = fit(stored_log(log, arguments), validation=checked, methods=methods, **arguments)
    return replace(found, diagnostics=tuple(each._replace(sentence=in_options(each.sentence)) for each in found.diagnostics))


COLOURS = {"green": "green", "yellow": "yellow", "red": "bold red"}


def _print_verdicts(findings: list[tuple[str, str, str]]) -> None:
    table = Table(title="Diagnostics", title_justify="left", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for verdict, name, sentence in findings:
        table.add_row(Text(verdict, style=COLOURS[verdict]), Text(name), Text(sentence))
    Console().print(table)


@commands.command("error-model")
@click.argument("evidence", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--predicted", help="Columns of the predictions, with commas.")
@click.option("--truth", help="Columns of the truth, in the same order: EVIDENCE holds validation pairs.")
@click.option("--variances", help="With --truth: columns of the error variances that are reported with the predictions.")
@click.option("--subject", help="Column of the subject: rows of the same subject are readings of the same truth (replicates).")
@click.option("--averaged", type=click.IntRange(min=1), help="With --subject: readings that the log's prediction averages.  [default: 1]")
@click.option("--confusion", is_flag=True, help="EVIDENCE holds a row of counts or probabilities of predicted classes for each true class.")
@click.option("--reference", type=click.IntRange(min=0), help="With --confusion: the class, from 0, that has no column, for an intercept.")
@click.option("--join", is_flag=True, help="EVIDENCE are error models of different features, whose errors are uncorrelated.")
@click.option(
    "--assume", type=click.Choice(["classical", "berkson", "biased"]), help="With --truth: override the test and assume this error type."
)
@click.option(
    "--features",
    help="Names of the features in the log, separated by commas, if different from --predicted; with --join, all features, in order.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file for `mebandit fit --error-model`.")
def error_model(evidence: tuple[Path, ...], out: Path, **given: Any) -> None:
    """Estimate the error of predictions from validation pairs, replicates or a confusion matrix; or join error models.

    \b
      mebandit error-model pairs.csv --predicted x0,x1 --truth t0,t1 --out model.json
      mebandit error-model pairs.csv --predicted x0,x1 --truth t0,t1 --variances v0,v1 --out model.json
      mebandit error-model readings.csv --predicted x0,x1 --subject person --out model.json
      mebandit error-model counts.csv --confusion --features idle,active --out model.json
      mebandit error-model stress.json steps.json --join --features one,stress,steps --out model.json
    """
    kind = _kind_of_evidence(given)
    check_output(out, evidence, ours=begins_with(FORMAT))
    columns, names = _split(given["predicted"]), _split(given["features"])
    if kind == "join":
        model = _joined(evidence, names)
    elif len(evidence) == 1:
        model = _learned(kind, evidence[0], columns, given).named(*(names or columns))
    else:
        raise InvalidInput(f"the evidence must be one file with --{kind}; got {len(evidence)}. --join joins models made from one each.")
    model.save(out)
    click.echo(model.describe())
    if model.is_doubted:
        click.echo(f"\n`mebandit fit LOG --error-model {out}` subtracts it nevertheless, with a warning.")
    else:
        click.echo(f"\nOn the command line, `mebandit fit LOG --error-model {out}` does this, given the uncorrected predictions.")
    click.echo(f"Error model: {out.resolve()}")


GOES_WITH = {
    "truth": ("predicted", "variances", "assume", "features"),
    "subject": ("predicted", "averaged", "features"),
    "confusion": ("features", "reference"),
    "join": ("features",),
}
"""the options that say what the evidence is, each with those that say more of it"""


def _kind_of_evidence(given: dict[str, Any]) -> str:
    """Which of `GOES_WITH` was given; options that do not belong to it are refused."""
    said = {name for name, value in given.items() if value is not None and value is not False}
    kinds = [kind for kind in GOES_WITH if kind in said]
    if len(kinds) != 1:
        received = " and ".join(f"--{kind}" for kind in kinds) or "none"
        expected = "--truth columns, a --subject column, a --confusion matrix, models to --join"
        raise InvalidInput(f"the evidence must be one of: {expected}; got {received}.")
    kind = kinds[0]
    if kind in ("truth", "subject") and "predicted" not in said:
        raise InvalidInput(f"--predicted must name the columns of the predictions, with --{kind}; got nothing.")
    for name in sorted(said - {kind, *GOES_WITH[kind]}):
        homes = " or ".join(f"--{home}" for home, options in GOES_WITH.items() if name in options)
        raise InvalidInput(f"--{name} must go with {homes}; got it with --{kind}.")
    if "variances" in said and "assume" in said:
        raise InvalidInput("--assume must go without --variances, which are of classical error; got both.")
    return kind


def _split(text: str | None) -> list[str]:
    """Names with commas between them."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def _joined(paths: tuple[Path, ...], features: list[str]) -> ErrorModel:
    """The models of some files as one."""
    models = [ErrorModel.load(path) for path in paths]
    for path, model in zip(paths, models, strict=True):
        if features and not model.features:
            raise InvalidInput(f"{path} must have names, to find its place among --features; got none. Make it again with --features.")
    return measurement.join(*models, features=features or None)


def _learned(kind: str, path: Path, names: list[str], given: dict[str, Any]) -> ErrorModel:
    """The error model that a file is evidence of."""
    from mebandit.logs.small import read_matrix, read_numbers

    if kind == "confusion":
        return measurement.from_confusion(read_matrix(path), reference=given["reference"])
    if kind == "subject":
        return measurement.from_replicates(_stacked(path, names, given["subject"]), averaged=given["averaged"] or 1)
    x, truth = read_numbers(path, names), read_numbers(path, _split(given["truth"]))
    if given["variances"] is None:
        return measurement.from_validation(x, truth, assume=given["assume"])
    return measurement.from_variances(read_numbers(path, _split(given["variances"])), predicted=x, truth=truth)


def _stacked(path: Path, names: list[str], subject: str) -> Any:
    """Readings (subjects, readings, features) from rows with a subject's label; NaN where one has fewer than others."""
    import numpy as np

    from mebandit.logs.small import read_labels, read_numbers

    x, labels = read_numbers(path, names), read_labels(path, subject)
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.max() < 2:
        raise LogError(f"{path} must have a row for each reading, two or more of a subject; got one row of each in {subject!r}.")
    readings = np.full((counts.size, counts.max(), len(names)), np.nan)
    seen = np.zeros(counts.size, dtype=int)
    for row, who in zip(x, place, strict=True):
        readings[who, seen[who]] = row
        seen[who] += 1
    return readings
