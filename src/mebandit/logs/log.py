"""A stored log with the meaning of its columns, as one value: `Log`."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.correction import Correction
from mebandit.logs.cells import kind_of, numbers
from mebandit.logs.coding import Coding, Found, action_number, expanded, looked_at, with_actions
from mebandit.logs.columns import Columns, check_names, check_types, found_columns, with_error
from mebandit.logs.parts import first_rows, name_of, parts_of, schema_of
from mebandit.logs.pieces import Unparsable, batches_of
from mebandit.logs.small import read_matrix
from mebandit.logs.source import Source
from mebandit.measurement import ErrorModel, join
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
    error_cov: ArrayLike | Mapping[str, float] | ErrorModel | Path | str | None
    error_columns: str | Sequence[str] | Mapping[str, str] | None
    n_actions: int | None
    probability_of: int | str | None
    action_labels: str | Sequence[str] | None
    categorical: str | Sequence[str] | None
    available: str | None
    time: str | None
    missing_outcomes: str
    observed: str | None
    baseline: str | Sequence[str] | None


MISSING = ("refuse", "leave-out")
"""what becomes of rows without a reward"""

USUAL = (("action", "action"), ("reward", "reward"), ("missing_outcomes", "refuse"))
"""arguments that say what a log is supposed to be anyway"""


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """A stored log: where its rows are, which column holds what, and what is known of the error of the predictions.

    Columns are looked for when the log is named, and rows are read when it is analysed; categories, labels and dates are looked for when it
    is named, too. A column whose argument is left out is looked for under the name that `read_journal(...).to_parquet(...)` gives it.

    Args:
        source: A path (.parquet, .csv, .tsv, a journal .jsonl, or a folder of Parquet and CSV files), several of them, a table (pandas,
            pyarrow), arrays by name, or the rounds that `read_journal` and `simulate_log` return.
        predicted: The columns of the predicted context x̃, names in a list or with commas (default: predicted_0, predicted_1, ...). A column
            of words is a category: it becomes a feature for each label but one, the reference. Of dates, the days since the first count.
            True and False are 1 and 0.
        action: The column of the action taken, a number from 0 or a label (default "action").
        reward: The column of the reward (default "reward").
        propensity: The column of the probability of the action taken; or K columns, one for each action, 0 where it was not allowed
            (default: "propensity", else propensity_0, propensity_1, ...).
        unit: The column of the participant or cluster of each row; clusters the standard errors (default None: rows are independent).
        error_cov: Σe, the covariance of the prediction's error: a number (times the identity), (d,) variances, (d, d), variances by the
            name of the feature (features that are not named are seen without error), an `ErrorModel` of all or of some features, or the
            path of a .csv or .json file with one of these (default None: not known, or in `error_columns`).
        error_columns: The columns of Σe of each row: d variances, or the lower triangle row by row, or variances by the name of the
            feature. A number stands for a constant column. Beside them, `error_cov` may only be an `ErrorModel` of reported variances
            (default: error_cov_0_0, ... if they are there).
        n_actions: K, the number of actions (default: 2, or the number of propensity columns or of labels).
        probability_of: The action, by label or number, whose probability is in the propensity column, whichever was taken (default None:
            the column has the probability of the action taken). There must be two actions.
        action_labels: The labels of the actions, in the order of their numbers; the first one means no treatment (default: those in the
            log, in the order of the alphabet).
        categorical: Columns of x̃ that are categories though they hold numbers, or whose reference is given, as in "location=home"
            (default: columns of words; their reference is the first label in the alphabet).
        available: The column that says whether the participant was available, True or False, 1 or 0. Elsewhere nothing was randomised:
            action 0 was taken, or none (default None: always).
        time: The column of the time of each decision: numbers, dates, or times such as 2024-03-01 08:30 (default None: rows are in the
            order of time).
        missing_outcomes: Whether rows without a reward are an error, "refuse" (default), or are left out, counted, and reported,
            "leave-out" (a complete-case analysis).
        observed: The column of the probability that the outcome of a round is observed, given its action and context, from a model of your
            own. `fit` then weights the rounds with an outcome by its inverse, in meb and dr (default None: no weights).
        baseline: Further columns of numbers, with or without error, for the working model of the reward, such as the last reward. They
            must be known before the action is drawn. They make the standard errors of dr smaller, in `fit` and in `value`. What dr
            estimates stays the same, even if that model is wrong, because the probabilities are known (default None).

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
    error_cov: ArrayLike | Mapping[str, float] | ErrorModel | Path | str | None = None
    error_columns: str | Sequence[str] | Mapping[str, str] | None = None
    n_actions: int | None = None
    probability_of: int | str | None = None
    action_labels: str | Sequence[str] | None = None
    categorical: str | Sequence[str] | None = None
    available: str | None = None
    time: str | None = None
    missing_outcomes: str = "refuse"
    observed: str | None = None
    baseline: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        checks.one_of("missing_outcomes", self.missing_outcomes, MISSING)
        if self.observed is not None and self.missing_outcomes != "leave-out":
            checks.refuse("observed", "go with `missing_outcomes='leave-out'`", f"it with `missing_outcomes={self.missing_outcomes!r}`")
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

    @property
    def columns(self) -> Columns:
        """Which columns hold what: those that were named, and those that were found. Features that are made from categories stand in the
        place of their columns."""
        return self._meant[0]

    @property
    def coding(self) -> Coding:
        """How cells that are not numbers become numbers."""
        return self._meant[1]

    @cached_property
    def _schemas(self) -> list[Any]:
        """The names and types of the columns of each part."""
        return [schema_of(part) for part in self.parts]

    @cached_property
    def _named(self) -> Columns:
        """The columns as the log has them, but for those of Σe."""
        given = {
            "predicted": _names("predicted", self.predicted),
            "action": _name("action", self.action),
            "reward": _name("reward", self.reward),
            "propensity": _names("propensity", self.propensity),
            "unit": _name("unit", self.unit),
            "available": _name("available", self.available),
            "time": _name("time", self.time),
            "observed": _name("observed", self.observed),
            "baseline": _names("baseline", self.baseline),
        }
        first = self.parts[0]
        found = found_columns(given, self._schemas[0].names, name_of(first))
        for part, schema in zip(self.parts, self._schemas, strict=True):
            check_names(schema, found, name_of(part))
        return found

    @cached_property
    def _meant(self) -> tuple[Columns, Coding]:
        """The columns with features in the place of categories, and how these are coded."""
        named = self._named
        given = _names("action_labels", self.action_labels)
        kinds, wanted = self._kinds, references_of(_names("categorical", self.categorical), named.predicted)
        categories = [name for name in named.predicted if kinds[name] == "words" or name in wanted]
        worded = kinds[named.action] == "words"
        looked_for = [*categories, *([named.action] if worded and given is None else [])]
        dated = [name for name in named.predicted if kinds[name] == "date" and name not in wanted]
        timed = dict.fromkeys(dated, True) | ({named.time: kinds[named.time] != "number"} if named.time else {})
        found = self._looked_through(looked_for, timed) if looked_for or timed else Found({}, {})
        columns, coding = expanded(named, kinds, found, wanted)
        coding = with_actions(coding, named.action, given, worded=worded, found=found.labels.get(named.action, set()))
        if self.probability_of is not None:
            columns, coding = self._of_one_action(columns, coding)
        return with_error(columns, _error_names(self.error_columns), self._schemas[0].names, known=self.error_cov is not None), coding

    @cached_property
    def stored(self) -> Columns:
        """The columns as the log has them."""
        named, (columns, coding) = self._named, self._meant
        words = [made.column for made in coding.features.values()] + ([named.action] if coding.worded else [])
        stored = replace(named, error=columns.error, words=frozenset(words))
        for part, schema in zip(self.parts, self._schemas, strict=True):
            check_names(schema, stored, name_of(part))
            check_types(schema, stored, name_of(part))
        return stored

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """What the columns hold that may be other than numbers: "number", "date" or "words", by the first rows that have something."""
        asked = list(dict.fromkeys([*self._named.predicted, self._named.action, *([self._named.time] if self._named.time else [])]))
        kinds: dict[str, str] = {}
        for part in self.parts:
            unknown = [name for name in asked if name not in kinds]
            if not unknown:
                break
            rows = first_rows(part, unknown)
            kinds |= {name: kind_of(rows[name]) for name in rows.column_names if rows[name].null_count < rows.num_rows}
        return {name: kinds.get(name, "number") for name in asked}

    def _looked_through(self, worded: list[str], timed: dict[str, bool]) -> Found:
        """The labels and the ends of times in the whole log."""
        words = frozenset([*worded, *timed])
        only = Columns(predicted=(), action=[*worded, *timed][0], reward=[*worded, *timed][0], propensity=(), words=words)
        source = Source(self.parts, only, 2, None, False)
        return source.through_batches(lambda batch, *_: looked_at(batch, worded, timed), Found.merge, "labels")

    def _of_one_action(self, columns: Columns, coding: Coding) -> tuple[Columns, Coding]:
        """With the probability of one action in the place of that of the action taken."""
        k = self._actions_in(columns, coding)
        if k != 2 or len(columns.propensity) != 1:
            remedy = "Name a propensity column for each action."
            got = f"{k} actions" if k != 2 else f"{len(columns.propensity)} propensity columns"
            if k > 2 and coding.actions:
                shown = ", ".join(map(repr, coding.actions[:5])) + (", ..." if k > 5 else "")
                got, remedy = f"{got} ({shown})", f"{remedy} If a label is misspelled, give `action_labels`, and its row is named."
            checks.refuse("probability_of", "go with two actions and one propensity column", got, remedy)
        if columns.propensity[0] in (*columns.predicted, columns.action, columns.reward):
            checks.refuse("propensity", "be a column that is not a feature too, beside `probability_of`", columns.propensity[0])
        return columns, replace(coding, probability_of=action_number("probability_of", self.probability_of, coding.actions, k))

    def _actions_in(self, columns: Columns, coding: Coding) -> int:
        """K, as given, or by the labels or the columns of propensities."""
        given = len(columns.propensity)
        k = checks.integer("n_actions", self.n_actions if self.n_actions is not None else max(given, len(coding.actions), 2), 2)
        if given not in (1, k):
            checks.refuse("propensity", f"name one column, or one for each of the {k} actions", f"{given} columns")
        if coding.actions and len(coding.actions) != k:
            checks.refuse("n_actions", f"be the number of labels, {len(coding.actions)}", k)
        return k

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
        k = self._actions_in(self.columns, self.coding)
        source = Source(self.parts, self.columns, k, checked(workers), progress, stored=self.stored, coding=self.coding)
        source.without_missing = self.missing_outcomes == "leave-out"
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


def _error_names(given: Any) -> tuple[str, ...] | dict[str, str] | None:
    """The columns of Σe; by feature, if names are given with them, as in "stress=variance"."""
    if isinstance(given, Mapping):
        return {name: str(_name("error_columns", column if isinstance(column, str) else str(column))) for name, column in given.items()}
    names = _names("error_columns", given)
    if names and all("=" in name for name in names):
        return {feature.strip(): column.strip() for feature, column in (name.rsplit("=", 1) for name in names)}
    return names


def references_of(given: tuple[str, ...] | None, predicted: Sequence[str]) -> dict[str, str | None]:
    """Columns that are called categorical, each with its reference where that is named."""
    found: dict[str, str | None] = {}
    for text in given or ():
        name, reference = (text, None) if text in predicted or "=" not in text else (part.strip() for part in text.split("=", 1))
        found[str(checks.one_of("categorical", name, predicted))] = reference
    return found


def error_of(given: Any, columns: Columns) -> Correction | None:
    """What is known of the error, from `error_cov` and from columns of the log; None: nothing."""
    d = len(columns.predicted)
    if isinstance(given, (str, Path)):
        path = Path(given)
        given = ErrorModel.load(path) if path.suffix == ".json" else read_error_cov(path, d)
    if isinstance(given, Mapping):
        for name in given:
            checks.one_of("error_cov", name, columns.predicted)
        rule = "be a variance of at least 0"
        given = [checks.number(f"error_cov[{name!r}]", given.get(name, 0.0), rule, 0.0) for name in columns.predicted]
    model = given if isinstance(given, ErrorModel) else None
    if model is not None:
        if set(model.features) < set(columns.predicted) and model.features:
            model = given = join(model, features=columns.predicted)  # features that it does not cover have no error
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
