"""A stored log with the meaning of its columns, as one value: `Log`."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.correction import Correction
from mebandit.logs.cells import numbers
from mebandit.logs.columns import Columns, check_schema, found_columns
from mebandit.logs.parts import name_of, parts_of, schema_of
from mebandit.logs.pieces import Unparsable, batches_of
from mebandit.logs.small import read_matrix
from mebandit.logs.source import Source
from mebandit.measurement import ErrorModel
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers, checked
from mebandit.values import Floats

MOST_ACTIONS = 2048
"""of so many actions the probabilities take a gigabyte for each block of rows"""


class LogColumns(TypedDict, total=False):
    """The keywords of `Log`, which `fit`, `value`, `learn_then_value` and `export` also take beside a path or a table."""

    predicted: str | Sequence[str] | None
    action: str
    reward: str
    propensity: str | Sequence[str] | None
    unit: str | None
    error_cov: ArrayLike | ErrorModel | Path | str | None
    error_columns: str | Sequence[str] | None
    n_actions: int | None


USUAL = (("action", "action"), ("reward", "reward"))
"""arguments that say what a log is supposed to be anyway"""


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """A stored log: where its rows are, which column holds what, and what is known of the error of the predictions.

    Columns are looked for when the log is named, and rows are read when it is analysed. A column whose argument is left out is looked for
    under the name that `read_journal(...).to_parquet(...)` gives it.

    Args:
        source: A path (.parquet, .csv, .tsv, a journal .jsonl, or a folder of Parquet and CSV files), several of them, a table (pandas,
            pyarrow), arrays by name, or the rounds that `read_journal` and `simulate_log` return.
        predicted: The columns of the predicted context x̃, d names in a list or with commas (default: predicted_0, predicted_1, ...).
        action: The column of the action taken, a number from 0 (default "action").
        reward: The column of the reward (default "reward").
        propensity: The column of the probability of the action taken; or K columns, one for each action, 0 where it was not allowed
            (default: "propensity", else propensity_0, propensity_1, ...).
        unit: The column of the participant or cluster of each row; clusters the standard errors (default None: rows are independent).
        error_cov: Σe, the covariance of the prediction's error: a number (times the identity), (d,) variances, (d, d), an `ErrorModel`, or
            the path of a .csv or .json file with one of these (default None: not known, or in `error_columns`).
        error_columns: The columns of Σe of each row: d variances, or the lower triangle row by row. A number stands for a constant column.
            Beside them, `error_cov` may only be an `ErrorModel` of reported variances (default: error_cov_0_0, ... if they are there).
        n_actions: K, the number of actions (default: 2, or the number of propensity columns).

    >>> log = Log({"x": [0.3, 1.2], "action": [1, 0], "reward": [1.0, 0.0], "propensity": [0.5, 0.8]}, predicted="x", error_cov=0.1)
    >>> log
    Log(<table of 2 rows>, predicted='x', error_cov=0.1)
    >>> log.columns.predicted, log.columns.propensity
    (('x',), ('propensity',))
    """

    source: Any
    _: KW_ONLY
    predicted: str | Sequence[str] | None = None
    action: str = "action"
    reward: str = "reward"
    propensity: str | Sequence[str] | None = None
    unit: str | None = None
    error_cov: ArrayLike | ErrorModel | Path | str | None = None
    error_columns: str | Sequence[str] | None = None
    n_actions: int | None = None

    def __post_init__(self) -> None:
        self.open()
        self.error  # noqa: B018  so that what is wrong with it is said here

    def __repr__(self) -> str:
        given = [(each.name, getattr(self, each.name)) for each in fields(self)[1:]]
        named = [f"{name}={checks.shown(value)}" for name, value in given if value is not None and (name, value) not in USUAL]
        return f"Log({', '.join([self._shown, *named])})"

    @property
    def _shown(self) -> str:
        """The source, without its rows."""
        rows = sum(part[1].num_rows for part in self.parts if isinstance(part, tuple))
        return f"<table of {rows:,} rows>" if rows and not isinstance(self.source, (str, Path)) else checks.shown(self.source)

    @cached_property
    def parts(self) -> list[Any]:
        """Files in the order in which they are read, or tables in memory by name."""
        return parts_of(self.source)

    @cached_property
    def columns(self) -> Columns:
        """Which columns hold what: those that were named, and those that were found."""
        given = {
            "predicted": _names("predicted", self.predicted),
            "action": _name("action", self.action),
            "reward": _name("reward", self.reward),
            "propensity": _names("propensity", self.propensity),
            "unit": _name("unit", self.unit),
            "error": _names("error_columns", self.error_columns),
        }
        first = self.parts[0]
        found = found_columns(given, schema_of(first).names, name_of(first), error_known=self.error_cov is not None)
        for part in self.parts:
            check_schema(schema_of(part), found, name_of(part))
        return found

    @cached_property
    def error(self) -> Correction | None:
        """What is known of the error; None: nothing."""
        return error_of(self.error_cov, self.columns)

    def open(self, workers: Workers = None, progress: Show = None) -> Source:
        """The rows, ready to be read.

        Args:
            workers: A number of threads; or the address of a Dask scheduler, or its Client. None (default): all cores.
            progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.
        """
        given = len(self.columns.propensity)
        wanted = self.n_actions if self.n_actions is not None else max(given, 2)
        k = checks.integer("n_actions", wanted, 2)
        if given not in (1, k):
            checks.refuse("propensity", f"name one column, or one for each of the {k} actions", f"{given} columns")
        source = Source(self.parts, self.columns, k, checked(workers), progress)
        if k > MOST_ACTIONS:
            rule = f"be at most {MOST_ACTIONS:,}, so that their probabilities fit into memory"
            checks.refuse("n_actions", rule, f"{k} for a log whose largest action is {_largest_action(source)}")
        return source


def log_of(given: Any, columns: LogColumns) -> Log:
    """The log that a function was given: a `Log`, in which keywords replace what it says, or a source with its columns."""
    if isinstance(given, Log):
        return replace(given, **columns) if columns else given
    return Log(given, **columns)


def _name(what: str, given: Any) -> str | None:
    """The name of a column."""
    if given is not None and not (isinstance(given, str) and given.strip()):
        checks.refuse(what, "be the name of a column", checks.shown(given))
    return given


def _names(what: str, given: Any) -> tuple[str, ...] | None:
    """Column names from a list, or from one text with commas; a number stands for itself."""
    if given is None:
        return None
    try:
        listed = given.split(",") if isinstance(given, str) else list(given)
        names = tuple(str(name).strip() if isinstance(name, (str, int, float)) else "" for name in listed)
    except TypeError:
        names = ("",)
    if not all(names):
        checks.refuse(what, "be names of columns, in a list or with commas between them", checks.shown(given))
    return names


def error_of(given: Any, columns: Columns) -> Correction | None:
    """What is known of the error, from `error_cov` and from columns of the log; None: nothing."""
    d = len(columns.predicted)
    if isinstance(given, (str, Path)):
        path = Path(given)
        given = ErrorModel.load(path) if path.suffix == ".json" else read_error_cov(path, d)
    model = given if isinstance(given, ErrorModel) else None
    if model is not None:
        model.check_features("the error model", columns.predicted)
    if columns.error:
        if given is not None and (model is None or model.kind != "reported"):
            remedy = "Only a model of reported variances (measurement.from_variances) goes with columns."
            checks.refuse("the error", "be given once", "both error_cov and error columns", remedy)
        return Correction(np.zeros((d, d)), True, model)
    if given is None:
        return None
    if model is not None:
        return Correction(model.error_cov, False, model)
    return Correction(checks.covariance("error_cov", given, d), False)


def read_error_cov(path: str | Path, d: int) -> Floats:
    """A covariance from a CSV of numbers without a header: d rows of d, one row of d variances, or one number."""
    values = read_matrix(Path(path))
    if values.shape not in ((d, d), (1, d), (1, 1)):
        rule = f"hold {d} x {d} numbers, {d} variances in one row, or one number"
        raise LogError(f"{path} must {rule}; got {values.shape[0]} x {values.shape[1]}.")
    return checks.covariance(str(path), values if values.shape == (d, d) else values[0] if values.size > 1 else float(values[0, 0]), d)


def _largest_action(source: Source) -> str:
    """The largest number among the actions of a log, which may not be one of an action."""
    while True:
        try:
            batches = (batch for piece in source.pieces(1) for batch in batches_of(piece))
            found = (float(np.fmax.reduce(numbers(batch.column(source.columns.action)), initial=-np.inf)) for batch in batches)
            return f"{max(found, default=np.nan):g}"
        except Unparsable as error:
            source.careful.add(error.args[0])
