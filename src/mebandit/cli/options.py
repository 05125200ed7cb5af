"""The options that several commands share: which log, what its columns are, what is known of its error, and what to do with bad rows."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mebandit.checks import InvalidInput, LogError
from mebandit.measurement import ErrorModel
from mebandit.runtime.files import parse_toml

if TYPE_CHECKING:
    from mebandit.logs.log import Log

Command = Callable[..., None]

COLUMN_KEYS = (
    "predicted",
    "categorical",
    "action",
    "action_labels",
    "reward",
    "propensity",
    "probability_of",
    "available",
    "unit",
    "time",
    "error_cov",
    "error_columns",
    "n_actions",
    "missing_outcomes",
    "observed",
    "baseline",
    "floor",
)
"""what a TOML file may say of a log"""


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def log_options(command: Command) -> Command:
    """What a log is: its columns, what is known of their error, and what becomes of rows that break a rule. The same for all commands that
    read one."""
    return _with(command, *COLUMN_OPTIONS, *ERROR_OPTIONS, *ROW_OPTIONS)


log_argument = click.argument("log", nargs=-1, required=True, type=click.Path(path_type=Path))
"""the files of a log"""


COLUMN_OPTIONS = (
    click.option(
        "--predicted",
        help="Columns of the predicted context, separated by commas; those of words become a feature for each label but one."
        "  [default: predicted_0, predicted_1, ...]",
    ),
    click.option("--categorical", help="Columns of numbers that are categories, or any with its reference: location=home."),
    click.option("--action", help="Column of the action taken: 0, 1, ..., or labels.  [default: action]"),
    click.option(
        "--action-labels",
        help="Labels of the actions with commas, the one for no treatment first.  [default: those in the log, by the alphabet]",
    ),
    click.option("--reward", help="Column of the reward.  [default: reward]"),
    click.option("--propensity", help="Column of the probability of the action taken; or one column for each action, separated by commas."),
    click.option("--probability-of", help="The action, by label or number, whose probability --propensity is, whichever was taken."),
    click.option(
        "--available", help="Column that says whether the participant was available (True or 1), so that actions were randomised."
    ),
    click.option("--unit", help="Column of the participant or cluster identifier; standard errors are clustered by it."),
    click.option("--time", help="Column of the time of each decision: numbers, or dates such as 2024-03-01.  [default: the order of rows]"),
    click.option(
        "--missing-outcomes",
        type=click.Choice(["refuse", "leave-out"]),
        help="What to do with rows without a reward: stop with an error, or leave them out and report them.  [default: refuse]",
    ),
    click.option(
        "--observed", help="Column of the probability that the outcome is observed: weights of meb and dr where some are left out."
    ),
    click.option(
        "--baseline",
        help="Further columns for the working model of the reward, separated by commas: smaller standard errors of dr. They must be known "
        "before the action is drawn.",
    ),
    click.option(
        "--columns",
        type=click.Path(path_type=Path),
        help=f"A TOML file with any of: {', '.join(COLUMN_KEYS)} (the exploration floor of the logging policy).",
    ),
    click.option(
        "--n-actions", type=click.IntRange(min=2), help="Number of actions.  [default: 2, or the number of propensity columns or labels]"
    ),
)

ERROR_OPTIONS = (
    click.option(
        "--error-cov",
        help="Σe, the covariance of the prediction error: a number, d variances separated by commas, variances by name (stress=0.25, no "
        "error elsewhere), rows separated by semicolons, or a CSV of d or d x d numbers.",
    ),
    click.option(
        "--error-columns",
        help="Columns of Σe of each round: d variances (a number stands for a constant column), by name (stress=column), or a lower "
        "triangle.",
    ),
    click.option("--error-model", type=click.Path(path_type=Path), help="An error model file, made by `mebandit error-model`."),
)

ROW_OPTIONS = (
    click.option(
        "--on-bad",
        type=click.Choice(["refuse", "set-aside"]),
        default="refuse",
        show_default=True,
        help="What to do with rows that break a rule: stop with an error, or write them to --set-aside and go on.",
    ),
    click.option(
        "--set-aside",
        type=click.Path(path_type=Path),
        help="CSV file for rows that break a rule.  [default: set_aside.csv, in --out if that is a folder]",
    ),
)


def sandwich_option(command: Command) -> Command:
    """How standard errors are corrected."""
    text = "Small-sample correction of standard errors; hc0: none."
    return click.option("--sandwich", type=click.Choice(["hc2", "hc3", "hc0"]), default="hc2", show_default=True, help=text)(command)


def threads_option(command: Command) -> Command:
    """How many threads compute."""
    text = "Number of threads; all cores by default. The results do not depend on it."
    return click.option("--workers", type=click.IntRange(min=1), help=text)(command)


def workers_options(command: Command) -> Command:
    """Who computes, threads or a cluster: one argument `workers`, as in Python."""

    @wraps(command)
    def hiring(*arguments: Any, workers: int | None, scheduler: str | None, **given: Any) -> None:
        if workers is not None and scheduler is not None:
            raise InvalidInput("the workers must be named once; got both --workers, threads of this machine, and --scheduler, a cluster.")
        command(*arguments, workers=workers if scheduler is None else scheduler, **given)

    text = "Compute on the Dask cluster of this scheduler, such as tcp://host:8786. The results do not depend on it."
    return threads_option(click.option("--scheduler", metavar="ADDRESS", help=text)(hiring))


def engine_option(command: Command) -> Command:
    """What simulates: the CPU or a GPU."""
    text = "Simulate on the CPU (cpu), on an NVIDIA GPU (cuda), or on the GPU if there is one (auto)."
    return click.option("--engine", type=click.Choice(["cpu", "cuda", "auto"]), default="cpu", show_default=True, help=text)(command)


def log_arguments(given: dict[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """What the Python functions take, from the options above; those that were not given are left out, others stay as they are."""
    arguments = columns_file(given.pop("columns", None)) | {name: value for name, value in given.items() if value is not None}
    cov, model = arguments.pop("error_cov", None), arguments.pop("error_model", None)
    if cov is not None and model is not None:
        raise InvalidInput("the error must be given once; got both --error-cov and --error-model.")
    if cov is not None or model is not None:
        arguments["error_cov"] = covariance(cov) if model is None else ErrorModel.load(model)
    if arguments.get("on_bad") == "set-aside":
        arguments.setdefault("set_aside", (folder or Path()) / "set_aside.csv")
    return arguments


def stored_log(paths: tuple[Path, ...], arguments: dict[str, Any]) -> "Log":
    """The log with its columns, which are taken out of the arguments."""
    from mebandit.logs.log import Log, LogColumns

    return Log([str(path) for path in paths], **{name: arguments.pop(name) for name in LogColumns.__annotations__ if name in arguments})


def covariance(text: Any) -> Any:
    """A covariance from its text: a number, some with commas, rows with semicolons, variances by name, or the file that holds them."""
    if not isinstance(text, str):
        return text
    if "=" in text and not Path(text).exists():
        try:
            return {name.strip(): float(value) for name, value in (part.rsplit("=", 1) for part in text.split(","))}
        except ValueError:
            raise InvalidInput(f"--error-cov must give variances by name, such as stress=0.25,steps=1; got {text!r}.") from None
    try:
        rows = [[float(part) for part in row.split(",")] for row in text.split(";")]
    except ValueError:
        return Path(text)
    if len(rows) > 1:
        return rows
    return rows[0] if len(rows[0]) > 1 else rows[0][0]


def whole(text: str) -> bool:
    """Whether a text is a whole number of usable size, and nothing else."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def columns_file(path: Path | None) -> dict[str, Any]:
    """What a TOML file says of a log."""
    if path is None:
        return {}
    try:
        found = parse_toml(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LogError(f"--columns must be a TOML file that can be read; got {path} ({error}).") from error
    for name in found:
        if name not in COLUMN_KEYS:
            raise LogError(f"{path} must have keys among {', '.join(map(repr, COLUMN_KEYS))}; got {name!r}.")
    return found
