"""From a log to estimates: every method side by side, with intervals, contrasts, sensitivity to Σe, and diagnostics.

The log is read in blocks, twice: first for the crossproducts, from which θ follows, then for the scores ψ, from which its standard errors
follow, and for the diagnostics. Where Σe varies between rounds, regression calibration reads it two times more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from mebandit import checks, kernels
from mebandit.analysis.diagnostics import diagnose
from mebandit.analysis.diagnostics.finding import Evidence, Pairs
from mebandit.analysis.diagnostics.tally import Tally, tally_of
from mebandit.analysis.fit_result import Analysis
from mebandit.estimation.best_linear import calibrated_products, calibration_of
from mebandit.estimation.correction import Correction
from mebandit.estimation.equations import second_moment
from mebandit.estimation.error_model_variance import with_model_uncertainty
from mebandit.estimation.estimate import checked_options
from mebandit.estimation.leverage import Sandwich
from mebandit.estimation.methods import METHODS, PREFERRED, Guard, Method, Options
from mebandit.estimation.moments import Crossproducts
from mebandit.estimation.nuisance import JacobianSums
from mebandit.estimation.precision import check_digits, of_usable_sizes
from mebandit.estimation.result import Estimate
from mebandit.estimation.scores import Scores
from mebandit.estimation.solution import Solution, solve_log
from mebandit.kernels import layout
from mebandit.logs.log import Log, LogColumns, log_of
from mebandit.logs.reading import ByUnit, Counted, Reading, by_unit, reading_of
from mebandit.logs.source import Block
from mebandit.measurement import ErrorModel, warn_if_berkson
from mebandit.runtime.progress import Show, compiling_notice
from mebandit.runtime.workers import Workers
from mebandit.values import Floats

SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
"""multiples of Σe for the sensitivity of every coefficient"""


@of_usable_sizes()
def fit(
    log: Any,
    *,
    methods: Method | Sequence[Method] = METHODS,
    ridge: float = 0.0,
    intercept: bool = False,
    guard: Guard = "auto",
    floor: float | None = None,
    validation: ErrorModel | None = None,
    on_bad: str = "refuse",
    set_aside: str | Path | None = None,
    workers: Workers = None,
    progress: Show = None,
    sandwich: Sandwich = "hc2",
    **columns: Unpack[LogColumns],
) -> Analysis:
    """Analyse a log of any size: θ by every method with intervals, contrasts, sensitivity to Σe, and diagnostics.

    Args:
        log: A `Log`; or what `Log` takes as its source, with its columns as further keywords.
        methods: One or several of "ridge", "naive", "meb", "dr", "rc" (default: all).
        ridge: Added to the diagonal of each action's matrix when θ is solved for, at least 0 (default 0).
        intercept: Fit an intercept for every action (default False).
        guard: "auto" (default): the formula wherever its matrix is safely positive definite, elsewhere the stabilised (Fuller-type)
            estimate; "always": the stabilised estimate everywhere; "never": the formula everywhere.
        floor: Exploration floor of the logging policy; rounds below it are reported (default None: not known).
        validation: An error model from validation pairs or replicates, of all features or of some. The diagnostics compare Σe with it, and
            where it says that the error is Berkson, a warning tells what the correction does (default None).
        on_bad: What happens to rows that break a rule: "refuse" (default) raises an error that names the first such row; "set-aside" writes
            them to the file `set_aside` and goes on without them.
        set_aside: The CSV file for these rows (default None).
        workers: A number of threads; or the address of a Dask scheduler, or its Client, whose workers read Parquet files for themselves.
            None (default): all cores. The result does not depend on it.
        progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.
        sandwich: How standard errors are corrected, as in `estimate`: "hc2" (default), "hc3" or "hc0".
        **columns: Columns and error of the log, as in `Log`; they replace those of a `Log` that was given.

    Returns:
        The estimates by method, `best` among them, the diagnostics, and `to_json()`; printed, it is a report.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(1, 1, 20_000)
    >>> action = rng.integers(0, 2, 20_000)
    >>> log = {"stress": x + rng.normal(0, 0.7, x.size), "action": action, "reward": np.where(action == 1, 2.0, -1.0) * x}
    >>> found = fit(log | {"propensity": np.full(x.size, 0.5)}, predicted="stress", error_cov=0.49)
    >>> found.estimates["meb"].theta.round(1).ravel()
    array([-1.,  2.])
    """
    chosen, stored = _chosen(methods), log_of(log, columns)
    if "dr" not in chosen and stored.columns.baseline:
        checks.refuse("baseline", "go with the method 'dr', the only one that reads it", f"the methods {', '.join(chosen)}")
    floor = None if floor is None else checks.number("floor", floor, "be a probability", 0.0, 1.0)
    options = checked_options(ridge=ridge, intercept=intercept, guard=guard, sandwich=sandwich)
    reading = reading_of(stored, only_available=True, workers=workers, progress=progress)
    told = _checked_validation(validation, reading.source.columns.predicted)
    settings = {"methods": list(chosen), **options._asdict(), "floor": floor}
    settings |= {"set_aside": str(set_aside)} if on_bad == "set-aside" else {}
    compile_ahead(progress)
    return Steps(reading, options, chosen, floor).analysis(told, settings, on_bad=on_bad, set_aside=set_aside)


def _chosen(methods: Any) -> tuple[str, ...]:
    """The names of methods, each of a method that there is."""
    if not isinstance(methods, (str, Sequence)):
        checks.refuse("methods", "be names of methods", checks.shown(methods))
    chosen = (methods,) if isinstance(methods, str) else tuple(methods)
    for method in chosen or ("",):
        checks.one_of("methods", method, METHODS)
    return chosen


def _checked_validation(validation: Any, features: tuple[str, ...]) -> tuple[Pairs, ...]:
    """What validation data say of some or all features; models that say nothing of the error's size or kind are refused."""
    if validation is None:
        return ()
    parts = validation.pieces if isinstance(validation, ErrorModel) else ()
    told = [part for part in parts if part.model.verdict or part.model.kind == "replicates"]
    if not told:
        got = f"one of kind {validation.kind!r}" if isinstance(validation, ErrorModel) else checks.shown(validation)
        checks.refuse("validation", "be an error model from pairs of prediction and truth, or from replicates", got)
    if not (validation.features and set(validation.features) < set(features)):
        validation.check_features("validation", features)
    places = np.array([features.index(name) for name in validation.features or features], dtype=np.int64)
    return tuple(Pairs(part.model, places[part.places]) for part in told)


def compile_ahead(progress: Show = None) -> None:
    """Compile what a log needs, on one of four rounds, and say so if that takes long; at once where a cache is found."""

    def compiled() -> bool:
        return bool(kernels.add_predictions.signatures)

    if compiled():
        return
    even, numbers = np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 5.0])
    log = {"x": numbers, "action": even, "reward": numbers, "propensity": np.full(4, 0.5)}
    with compiling_notice(compiled, progress):
        reading = reading_of(Log(log, predicted="x", error_cov=0.0), workers=1, progress=False)
        reading.count()
        Steps(reading, Options(), METHODS, None).analysis((), {})


class Scored(NamedTuple):
    """What the second time through a log gives."""

    meat: Floats
    groups: Floats
    by_unit: ByUnit
    tally: Tally

    def merge(self, other: "Scored") -> "Scored":
        meat, groups, tally = self.meat + other.meat, self.groups + other.groups, self.tally.merge(other.tally)
        return Scored(meat, groups, self.by_unit.merge(other.by_unit), tally)


class Uncertainty(NamedTuple):
    """What standard errors and diagnostics are made of, beside the crossproducts."""

    scores: Scores
    tally: Tally
    units: int
    """clusters; 0: rounds stand alone"""


class Seen(NamedTuple):
    """What a log says up to some row or time."""

    estimate: Estimate
    mean: Floats
    """the mean context, (d,)"""
    mean_cov: Floats
    """its covariance, (d, d)"""
    rounds: int
    units: int
    """clusters; 0: rounds stand alone"""


@dataclass(frozen=True)
class Steps:
    """The steps of an analysis."""

    reading: Reading
    options: Options
    methods: tuple[str, ...]
    floor: float | None

    def seen(self) -> Seen:
        """The first method's estimate alone."""
        counted = self.reading.counted()
        error = self.reading.error.completed(counted.sums)
        self._check_features(counted.sums.context)
        products, method = error.unbiased_products(counted.sums), self.methods[0]
        constant, calibrated = None if error.varying else error.mean_cov, None
        if error.varying and method == "rc":
            calibrated = self._calibrated(products, error)[1.0]
        solution = solve_log(products, (method,), error_cov=constant, calibrated=calibrated, options=self.options)
        solution = self._with_jacobian(solution, products, error)
        known = self._uncertainty(solution, error, counted)
        found = with_model_uncertainty(solution, known.scores, counted.sums, error)[method]
        mean, rounds = products.context.mean_and_cov[0], int(counted.sums.rounds.sum())
        return Seen(found, mean, counted.spread_of_mean(error), rounds, known.units)

    def analysis(self, validation: tuple[Pairs, ...], settings: dict[str, Any], **rules: Any) -> Analysis:
        counted = self.reading.count(**rules)
        whole, faults, left_out = counted[:3]
        error = self.reading.error.completed(whole)
        raw = whole.context
        self._check_features(raw)
        self._check_constants(raw, error)
        solutions = self._solved(error.unbiased_products(whole), error)
        products = error.unbiased_products(raw)
        solution = self._with_jacobian(solutions[1.0], products, error)
        known = self._uncertainty(solution, error, counted)
        estimates = with_model_uncertainty(solution, known.scores, whole, error)
        total = raw.full[0].sum(axis=0)
        warned, pairs = "", tuple[Pairs, ...]()
        if self.methods != ("ridge",):  # which takes nothing out
            warned, pairs = _said_by_pairs(error, validation, second_moment(products, self.options.intercept))
        by_scale = {method: {scale: found.fits[method] for scale, found in solutions.items()} for method in self.methods}
        first = int(self.options.intercept)
        features, tally, units = self.reading.source.columns.predicted, known.tally, known.units
        coding = self.reading.source.coding
        evidence = Evidence(
            features, products, solution, estimates, tally, error, self.floor, units, faults, warned, pairs, left_out, coding
        )  # fmt: skip
        return Analysis(
            estimates=estimates,
            features=features,
            rounds=int(total[0, 0]),
            units=units,
            faults=len(faults),
            left_out=left_out,
            actions=coding.actions,
            references=coding.references,
            mean_context=products.mean_and_cov[0],
            mean_context_cov=counted.spread_of_mean(error),
            outcome=self.reading.source.columns.reward,
            sensitivity={m: {scale: fit.theta[:, first:] for scale, fit in own.items()} for m, own in by_scale.items()},
            intercept_sensitivity={
                m: {scale: fit.theta[:, :first].sum(axis=1) for scale, fit in own.items()} for m, own in by_scale.items()
            },
            sensitivity_guarded={m: {scale: fit.report == layout.GUARDED for scale, fit in own.items()} for m, own in by_scale.items()},
            diagnostics=diagnose(evidence),
            error=error,
            mean_reward=float(total[0, -1] / total[0, 0]),
            propensity_histogram=tally.propensity,
            settings=settings,
        )

    def _uncertainty(self, solution: Solution, error: Correction, counted: Counted) -> Uncertainty:
        """From a second time through the log."""
        scored = self.reading.source.through(lambda block: self._score(block, solution, error, counted), Scored.merge, "standard errors")
        self._check_units(scored.by_unit)
        scores = solution.no_scores(in_all=len(counted.contexts.places))._replace(meat=scored.meat, groups=scored.groups)
        return Uncertainty(scores.with_clusters(scored.by_unit.totals), scored.tally, len(scored.by_unit.places))

    def _check_features(self, raw: Crossproducts) -> None:
        """Features that rounding has spoilt are refused, and those that others add up to: without a ridge there is then no one answer."""
        check_digits(raw)
        first = 0 if self.options.intercept else 1
        names = ["the intercept", *map(repr, self.reading.source.columns.predicted)][first:]
        gram = raw.full[0].sum(axis=0)[first:-1, first:-1]
        length = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        values, vectors = np.linalg.eigh(gram / np.outer(length, length))
        if values[0] > 1e-14 * values[-1] or self.options.ridge > 0 or raw.rounds.sum() < len(names):
            return
        repeated = [name for name, part in zip(names, np.abs(vectors[:, 0]), strict=True) if part > 1e-5]
        got = f"{', '.join(repeated[:-1])} and {repeated[-1]}, of which each follows from the others"
        remedy = "Leave one out, or set `ridge` above 0."
        if "the intercept" in repeated:
            remedy = "Fit no intercept beside them, leave one out, or subtract a constant from what is far from 0 beside its spread."
        if len(repeated) == 1:
            got = f"{repeated[0]}, which is always 0"
            remedy = "Leave it out (a class that is never predicted: merge it with another one), or set `ridge` above 0."
        raise checks.SingularMoments(f"features must differ, for their coefficients to be identified; got {got}. {remedy}")

    def _check_units(self, by_unit: ByUnit) -> None:
        if self.reading.source.columns.unit is not None and len(by_unit.places) < 2:
            remedy = "One cluster says nothing about the spread between clusters."
            checks.refuse("unit", "name at least two units", len(by_unit.places), remedy)

    def _check_constants(self, raw: Crossproducts, error: Correction) -> None:
        """An error variance for a feature that never varies, which a single number for all features gives to a column of ones."""
        odd = raw.constant & (np.diag(error.mean_cov) > 0) & (raw.rounds.sum() > 1)
        if odd.any():
            name = self.reading.source.columns.predicted[int(odd.argmax())]
            remedy = "Give a variance for each feature, 0 for those without error (`error_cov=[0, 0.5]`)."
            checks.refuse(
                f"the error variance of {name!r}",
                "be 0, since it is the same in all rounds",
                f"{np.diag(error.mean_cov)[odd][0]:.3g}",
                remedy,
            )

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
            constant = None if error.varying else error.mean_cov
            solve_log(products, self.methods, error_cov=constant, calibrated=calibrated.get(1.0), options=self.options)  # says why
        return solutions

    def _calibrated(self, products: Crossproducts, error: Correction) -> dict[float, Crossproducts]:
        """The crossproducts of x̂ for multiples of Σe,t: they need the rounds themselves."""
        prepared = {scale: calibration_of(products._replace(errors=scale * products.errors), None) for scale in SCALES}

        def work(block: Block) -> dict[float, Crossproducts]:
            rounds = self.reading.ready(block, error)
            return {
                scale: calibrated_products(rounds._replace(errors=scale * rounds.errors), calibration, self.reading.source.n_actions)
                for scale, calibration in prepared.items()
            }

        return self.reading.source.through(work, lambda a, b: {scale: a[scale].merge(b[scale]) for scale in a}, "calibrating")

    def _with_jacobian(self, solution: Solution, products: Crossproducts, error: Correction) -> Solution:
        """With what the uncertainty of the calibration does to rc, where Σe,t varies: that needs the rounds themselves, and θ."""
        if not solution.lacks_jacobian:
            return solution

        def work(block: Block) -> JacobianSums:
            return solution.jacobian_sums(self.reading.ready(block, error))

        return solution.with_jacobian(self.reading.source.through(work, JacobianSums.merge, "calibrating"), products)

    def _score(self, block: Block, solution: Solution, error: Correction, counted: Counted) -> Scored:
        rounds = self.reading.ready(block, error)
        clustered = self.reading.source.columns.unit is not None
        scores = solution.no_scores(len(block.units) if clustered else 0, in_all=len(counted.contexts.places), rounds=counted.rows)
        solution.add_scores(scores, rounds, block.unit if clustered else None, first=block.start)
        mean, k = solution.calibration.mean, self.reading.source.n_actions
        rounds = rounds.context
        tally = tally_of(block, rounds, k, counted.rows, mean, self.floor, varying=error.varying, ends=counted.ends)
        alike = k == 2 and len(rounds.allowed) == 1 and rounds.allowed.all() and not error.varying
        (kernels.count_close_pairs if alike else kernels.count_close)(tally.close, _preferred(solution), rounds)
        return Scored(scores.meat, scores.groups, by_unit(block, scores.by_cluster), tally)


def _preferred(solution: Solution) -> Floats:
    """θ of the method that one would read first, (K, p)."""
    return next(solution.fits[method].theta for method in PREFERRED if method in solution.fits)


def _said_by_pairs(error: Correction, validation: tuple[Pairs, ...], moment: Floats) -> tuple[str, tuple[Pairs, ...]]:
    """The warning about Berkson error, if any; and what pairs of prediction and truth say, where Σe is taken out of raw predictions.

    What the pairs behind the error itself say against it comes first; a model that unbiases predictions is not held against others."""
    model = error.model
    if model is not None:
        warned = warn_if_berkson(model, moment)
        if warned or (model.is_doubted and model.verdict == "biased"):
            return warned, (Pairs(model, np.arange(model.dim)),)
    if model is not None and model.unbiases:
        return "", ()
    warned, comparable = "", []
    for pairs in validation:
        own = np.ix_(pairs.places, pairs.places)
        warned = warned or warn_if_berkson(pairs.model, moment[own], error_cov=error.mean_cov[own])
        if not (error.varying and pairs.model.kind == "reported" and pairs.model.verdict in ("classical", "undecided")):  # of other rounds
            comparable.append(pairs)
    return warned, tuple(comparable)
