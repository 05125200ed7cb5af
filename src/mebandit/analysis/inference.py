"""From a log to estimates: every method side by side, with intervals, contrasts, sensitivity to Σe, and diagnostics.

The log is gone through twice in blocks: once for the crossproducts, from which θ follows, and once for the scores ψ, from which its
standard errors follow, and for the diagnostics. Where Σe varies between rounds, regression calibration needs one more time.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import _kernels, checks
from mebandit.analysis.diagnostics import Evidence, Finding, Tally, diagnose, empty_tally
from mebandit.analysis.formats import Columns, Fault
from mebandit.analysis.source import Block, Source, open_log
from mebandit.checks import LogError
from mebandit.correction import Correction
from mebandit.estimators import (
    METHODS,
    Estimate,
    Options,
    Scores,
    Solution,
    calibrated_products,
    calibration_of,
    solve_log,
    with_model_uncertainty,
)
from mebandit.files import write_whole
from mebandit.measurement import ErrorModel, warn_if_berkson
from mebandit.moments import Crossproducts, Rounds, crossproducts, merge
from mebandit.values import Floats

SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
"""multiples of Σe for the sensitivity of every coefficient"""


@dataclass(frozen=True)
class Analysis:
    """What a log says."""

    estimates: dict[str, Estimate]
    """by method"""
    features: tuple[str, ...]
    rounds: int
    units: int
    """how many clusters the standard errors are based on; 0: rounds stand alone"""
    faults: int
    """rows that were set aside"""
    sensitivity: dict[str, dict[float, Floats]]
    """θ (K, d) by method and multiple of Σe; NaN where there is no solution"""
    diagnostics: tuple[Finding, ...]
    error: Correction
    mean_reward: float
    propensity_histogram: Floats
    """rounds by action and twentieth of the propensity of the action taken, (K, 20)"""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def n_actions(self) -> int:
        return len(next(iter(self.estimates.values())).theta)

    @property
    def best(self) -> Estimate:
        """The estimate to read first: dr, else meb, else what there is."""
        return next(self.estimates[method] for method in ("dr", "meb", "rc", "naive", "ridge") if method in self.estimates)

    @property
    def verdict(self) -> str:
        """The gravest verdict among the diagnostics."""
        return self.diagnostics[0].verdict

    def __str__(self) -> str:
        from mebandit.analysis.page import describe  # which is about this class

        return describe(self)

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """Everything as JSON can hold it: estimates.<method>.theta, .std_error and .interval, contrasts, sensitivity, diagnostics."""
        contrasts = {
            f"{a}-{b}": {
                method: {"theta": c.theta.tolist(), "std_error": c.std_error.tolist(), "interval": c.interval(level).tolist()}
                for method, c in ((method, found.contrast(a, b)) for method, found in self.estimates.items())
            }
            for a in range(self.n_actions)
            for b in range(a)
        }
        plain = {
            "format": "mebandit-fit",
            "version": 1,
            "rounds": self.rounds,
            "units": self.units,
            "rows_set_aside": self.faults,
            "n_actions": self.n_actions,
            "features": list(self.features),
            "mean_reward": self.mean_reward,
            "error": self.error.to_plain(),
            "level": level,
            "estimates": {method: _estimate_plain(found, level) for method, found in self.estimates.items()},
            "contrasts": contrasts,
            "sensitivity": {
                method: {f"{scale:g}": theta.tolist() for scale, theta in by_scale.items()} for method, by_scale in self.sensitivity.items()
            },
            "diagnostics": [finding._asdict() for finding in self.diagnostics],
            "settings": self.settings,
        }
        return dict(_without_nan(plain))

    def to_json(self, level: float = 0.95) -> str:
        return json.dumps(self.to_plain(level), allow_nan=False, indent=2)


def _estimate_plain(found: Estimate, level: float) -> dict[str, Any]:
    return {
        "theta": found.theta.tolist(),
        "std_error": found.std_error.tolist(),
        "interval": found.interval(level).tolist(),
        "intercept": found.intercept.tolist(),
        "intercept_std_error": found.intercept_std_error.tolist(),
        "guarded": found.guarded.tolist(),
        "diagnostics": {name: values.tolist() for name, values in found.diagnostics.items()},
    }


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def fit(
    log: Any,
    *,
    predicted: str | Sequence[str] | None = None,
    action: str = "action",
    reward: str = "reward",
    propensity: str | Sequence[str] | None = None,
    unit: str | None = None,
    error_cov: ArrayLike | ErrorModel | Path | None = None,
    error_columns: str | Sequence[str] | None = None,
    validation: ErrorModel | None = None,
    n_actions: int | None = None,
    methods: str | Sequence[str] = METHODS,
    ridge: float = 0.0,
    intercept: bool = False,
    guard: str = "auto",
    floor: float | None = None,
    on_bad: str = "refuse",
    set_aside: str | Path | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Analysis:
    """Analyse a log: estimates by every method with intervals, contrasts, sensitivity to Σe, diagnostics.

    `log` is a path (.parquet, .csv, .tsv, a folder of these, a journal .jsonl), several of them, a table (pandas, pyarrow) or arrays by
    name. `predicted`, `action`, `reward`, `propensity` (one column for the action taken, or one for each action), `unit` name its columns.
    The error is `error_cov` (a number, a vector, a matrix, the path of a CSV of these, or an `ErrorModel`), or `error_columns` by round:
    a variance for each feature, or the lower triangle of a covariance; with an `ErrorModel` of reported variances also both.
    `validation` is what validation pairs say (`measurement.from_validation`): if that is Berkson error, a warning tells what the correction
    does. `floor` is the smallest probability that the policy promised. `on_bad="set-aside"` puts rows that break a rule into the file
    `set_aside` and goes on without them; by default the first of them is an error. Memory does not grow with the number of rows.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(1, 1, 20_000)
    >>> action = rng.integers(0, 2, 20_000)
    >>> log = {"stress": x + rng.normal(0, 0.7, x.size), "action": action, "reward": np.where(action == 1, 2.0, -1.0) * x}
    >>> found = fit(log | {"propensity": np.full(x.size, 0.5)}, predicted="stress", error_cov=0.49)
    >>> found.estimates["meb"].theta.round(1).ravel()
    array([-1.,  2.])
    """
    chosen = (methods,) if isinstance(methods, str) else tuple(methods)
    for method in chosen or ("",):
        checks.one_of("methods", method, METHODS)
    checks.one_of("on_bad", on_bad, ("refuse", "set-aside"))
    if on_bad == "set-aside" and set_aside is None:
        checks.refuse("set_aside", "be the file for rows that are set aside", "nothing")
    if floor is not None:
        floor = checks.number("floor", floor, "be a probability", 0.0, 1.0)
    options = Options(checks.number("ridge", ridge, "be a number of at least 0", 0.0), checks.truth("intercept", intercept), guard)
    checks.one_of("guard", guard, ("auto", "always", "never"))
    names = {"predicted": _names(predicted), "action": action, "reward": reward, "propensity": _names(propensity), "unit": unit}
    source = open_log(log, names | {"error": _names(error_columns)}, n_actions=n_actions, error_known=error_cov is not None)
    source.workers = None if workers is None else checks.integer("workers", workers, 1)
    source.progress = progress
    if isinstance(error_cov, Path):
        error_cov = read_error_cov(error_cov, len(source.columns.predicted))
    error = error_of(error_cov, source.columns)
    settings = {"methods": list(chosen), "ridge": options.ridge, "intercept": options.intercept, "guard": guard, "floor": floor}
    settings |= {"set_aside": str(set_aside)} if on_bad == "set-aside" else {}
    return _Pass(source, error, options, chosen, floor).analysis(on_bad, set_aside, validation, settings)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Column names from a list, or from one text with commas."""
    if given is None:
        return None
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)


def error_of(given: Any, columns: Columns) -> Correction:
    """What was given as `error_cov`, and the columns of the log that say more."""
    d = len(columns.predicted)
    model = given if isinstance(given, ErrorModel) else None
    if model is not None and model.dim != d:
        checks.refuse("the error model", f"be of the log's {d} features", f"one of {model.dim}")
    if columns.error:
        if given is not None and (model is None or model.kind != "reported"):
            remedy = "Only a model of reported variances (measurement.from_variances) goes with columns."
            checks.refuse("the error", "be given once", "both error_cov and error columns", remedy)
        return Correction(np.zeros((d, d)), True, model)
    if given is None:
        remedy = "Give error_cov (--error-cov, --error-model), or the columns that hold it (--error-columns); 0 for none."
        checks.refuse("the error covariance", "be known, to be corrected for", "nothing", remedy)
    if model is not None:
        return Correction(model.error_cov, False, model)
    return Correction(checks.covariance("error_cov", given, d), False)


def read_error_cov(path: str | Path, d: int) -> Floats:
    """A covariance from a CSV of numbers without a header: d rows of d, one row of d variances, or one number."""
    try:
        values = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"{path} must be a CSV of numbers without a header; got one that cannot be read ({reason}).") from error
    if values.shape not in ((d, d), (1, d), (1, 1)):
        rule = f"hold {d} x {d} numbers, {d} variances in one row, or one number"
        raise LogError(f"{path} must {rule}; got {values.shape[0]} x {values.shape[1]}.")
    return checks.covariance(str(path), values if values.shape == (d, d) else values[0] if values.size > 1 else float(values[0, 0]), d)


class Counted(NamedTuple):
    """What the first time through a log gives."""

    products: Crossproducts
    faults: list[Fault]


class Scored(NamedTuple):
    """What the second time gives."""

    scores: Scores
    units: dict[Any, int]
    """the place of each unit in the scores' totals"""
    tally: Tally


@dataclass(frozen=True)
class _Pass:
    """The steps of an analysis."""

    source: Source
    error: Correction
    options: Options
    methods: tuple[str, ...]
    floor: float | None

    def analysis(self, on_bad: str, set_aside: str | Path | None, validation: ErrorModel | None, settings: dict[str, Any]) -> Analysis:
        counted = self.source.through(self._count, _merge_counted, "reading")
        self._report(counted.faults, on_bad, set_aside)
        raw = counted.products
        error = self.error.settled(raw)
        products = error.unbiased(raw)
        solutions = self._solved(products, error)
        solution, first = solutions[1.0], int(self.options.intercept)
        scored = self.source.through(lambda block: self._score(block, solution, error, raw), _merge_scored, "standard errors")
        estimates = with_model_uncertainty(solution.estimates(scored.scores), raw, error, self.options)
        total = raw.full[0].sum(axis=0)
        second_moment = products.full[0].sum(axis=0)[1:-1, 1:-1] / total[0, 0]
        if error.model is not None:
            warn_if_berkson(error.model, second_moment)
        if validation is not None and error.model is None:
            warn_if_berkson(validation, second_moment, error_cov=error.mean_cov)
        evidence = Evidence(self.source.columns.predicted, products, solution, scored.tally, error.mean_cov, self.floor, error.varying)
        return Analysis(
            estimates=estimates,
            features=self.source.columns.predicted,
            rounds=int(total[0, 0]),
            units=len(scored.units),
            faults=len(counted.faults),
            sensitivity={m: {scale: found.fits[m].theta[:, first:] for scale, found in solutions.items()} for m in self.methods},
            diagnostics=diagnose(evidence),
            error=error,
            mean_reward=float(total[0, -1] / total[0, 0]),
            propensity_histogram=scored.tally.propensity,
            settings=settings,
        )

    def _count(self, block: Block) -> Counted:
        rounds = self.error.scaled(block.rounds)
        return Counted(crossproducts(rounds, self.source.n_actions, varying=self.error.varying), block.faults)

    def _report(self, faults: list[Fault], on_bad: str, set_aside: str | Path | None) -> None:
        """Say what is wrong with the log and stop, or put the rows that are into a file."""
        if faults and on_bad == "refuse":
            others = len(faults) - 1
            more = "" if not others else " 1 more row breaks a rule." if others == 1 else f" {others:,} more rows break a rule."
            remedy = "Correct the log, or set such rows aside (on_bad='set-aside', --on-bad set-aside)."
            raise LogError(f"{faults[0]}{more} {remedy}")
        if on_bad == "set-aside" and set_aside is not None:
            write_whole(Path(set_aside), faults_csv(faults))

    def _solved(self, products: Crossproducts, error: Correction) -> dict[float, Solution]:
        """θ for multiples of Σe; a method that has no solution is NaN, unless none has one."""
        calibrated: dict[float, Crossproducts] = {}
        if error.varying and "rc" in self.methods:
            calibrated = self._calibrated(products, error)
        solutions = {}
        for scale in SCALES:
            constant = None if error.varying else scale * error.mean_cov
            given = products._replace(errors=scale * products.errors)
            solutions[scale] = solve_log(
                given, self.methods, error_cov=constant, calibrated=calibrated.get(scale), options=self.options, strict=False
            )
        if not any(np.isfinite(fit.theta).all() for fit in solutions[1.0].fits.values()):
            solve_log(products, self.methods, error_cov=None if error.varying else error.mean_cov, options=self.options)  # says why
        return solutions

    def _calibrated(self, products: Crossproducts, error: Correction) -> dict[float, Crossproducts]:
        """The crossproducts of x̂ for multiples of Σe,t: they need the rounds themselves."""
        prepared = {scale: calibration_of(products._replace(errors=scale * products.errors), None) for scale in SCALES}

        def work(block: Block) -> dict[float, Crossproducts]:
            rounds = self._ready(block, error)
            return {
                scale: calibrated_products(rounds._replace(errors=scale * rounds.errors), calibration, self.source.n_actions)
                for scale, calibration in prepared.items()
            }

        return self.source.through(work, lambda a, b: {scale: merge(a[scale], b[scale]) for scale in a}, "calibrating")

    def _ready(self, block: Block, error: Correction) -> Rounds:
        """The rounds of a block with unbiased predictions and their error covariance."""
        return error.ready(self.error.scaled(block.rounds))

    def _score(self, block: Block, solution: Solution, error: Correction, raw: Crossproducts) -> Scored:
        rounds = self._ready(block, error)
        clustered = self.source.columns.unit is not None
        scores = solution.no_scores(len(block.units) if clustered else 0)
        solution.add_scores(scores, rounds, block.unit if clustered else None)
        tally = empty_tally(self.source.n_actions, len(rounds.predicted))
        fitted = next(solution.fits[method] for method in ("dr", "meb", "rc", "naive", "ridge") if method in solution.fits)
        _kernels.add_tally(
            tally,
            block.start,
            max(int(raw.rounds.sum()), 1),
            0.0 if self.floor is None else self.floor,
            fitted.theta,
            solution.calibration.mean,
            solution.calibration.scale,
            rounds,
            block.forecast,
        )
        return Scored(scores, {label: i for i, label in enumerate(block.units)}, tally)


def faults_csv(faults: list[Fault]) -> str:
    """Faulty rows as a CSV."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(Fault._fields)
    writer.writerows(faults)
    return text.getvalue()


def _merge_counted(first: Counted, second: Counted) -> Counted:
    return Counted(merge(first.products, second.products), first.faults + second.faults)


def _merge_scored(first: Scored, second: Scored) -> Scored:
    """Scores of both; units are found by their labels."""
    units, totals = first.units, first.scores.totals
    if second.units:
        units = dict(units)
        places = np.array([units.setdefault(label, len(units)) for label in second.units], dtype=np.int64)
        grown = np.zeros((totals.shape[0], len(units), totals.shape[2]))
        grown[:, : totals.shape[1]] = totals
        grown[:, places] += second.scores.totals
        totals = grown
    return Scored(Scores(first.scores.meat + second.scores.meat, totals), units, first.tally.merge(second.tally))
