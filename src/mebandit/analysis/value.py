"""`value`: what a policy would have earned, from a log that another policy made. The formulas are in `value_estimators`.

The log is read three times: for the regressions of the reward on the prediction, for the sums from which the estimates follow, and for the
scores of the rounds, from which standard errors follow (`value_scores`). With clusters their sums have that already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, overload

import numpy as np

from mebandit import checks
from mebandit.analysis.bounded_values import Weighted, bands, checked_bounds
from mebandit.analysis.linear_rule import Fitted, LinearRule
from mebandit.analysis.logged_context import Frame
from mebandit.analysis.target_policies import named, prepared
from mebandit.analysis.value_estimators import assembled, means_of, merged
from mebandit.analysis.value_result import Value, Values
from mebandit.analysis.value_rounds import Scored, Valued, outcomes_of
from mebandit.estimation.best_linear import calibrated_products, calibration_of
from mebandit.estimation.correction import Correction
from mebandit.estimation.leverage import SANDWICHES, Sandwich
from mebandit.estimation.methods import Method, Options
from mebandit.estimation.moments import Crossproducts
from mebandit.estimation.precision import of_usable_sizes
from mebandit.estimation.solution import solve_log
from mebandit.logs.log import Log, LogColumns, log_of
from mebandit.logs.reading import Reading, reading_of, refuse_unknown_error
from mebandit.logs.source import Block
from mebandit.logs.window import EVERYTHING, Window
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers


class ValueOptions(LogColumns, total=False):
    """The keywords of `value`."""

    learn_share: float
    level: float
    on_bad: str
    set_aside: str | Path | None
    workers: Workers
    progress: Show
    sandwich: Sandwich
    reward_bounds: tuple[float, float] | None


@overload
def value(log: Any, policy: Mapping[str, Any], **options: Unpack[ValueOptions]) -> Values: ...
@overload
def value(log: Any, policy: Any, **options: Unpack[ValueOptions]) -> Value: ...
@of_usable_sizes()
def value(
    log: Any,
    policy: Any,
    *,
    learn_share: float = 0.5,
    level: float = 0.95,
    on_bad: str = "refuse",
    set_aside: str | Path | None = None,
    workers: Workers = None,
    progress: Show = None,
    sandwich: Sandwich = "hc2",
    reward_bounds: tuple[float, float] | None = None,
    **columns: Unpack[LogColumns],
) -> Value | Values:
    """What a policy would have earned per round, by three estimators (ips, snips, dr) with intervals; memory does not grow with the rows.

    Args:
        log: A `Log`; or what `Log` takes as its source, with its columns as further keywords. Only policies that read Σe need it.
        policy: One policy, or several in a dict by name. A policy is one of these:

            - "uniform": all allowed actions with the same probability;
            - a number or a label: always that action; "1 when available" or "send when available": that action wherever it is allowed, and
              elsewhere what is;
            - (K,) probabilities, the same in all rounds; a `LinearRule`;
            - a `Fitted` rule: θ is estimated from the first `learn_share` of the rows, and all values from the rest;
            - a `Learner`, as it has learned up to now; or `(policy, state)`, or `(policy, state, time)`, with any object that has the
              methods of a `Policy`. It is asked for its propensities in each row and does not learn from them. Its schedules read `time`,
              the number of the decision (default: the row's number in the log; a Learner's next decision);
            - a function from predictions (n, d) to probabilities (n, K).

            A policy reads x̃ and Σe, as the logging policy did. Several threads may call it.
        learn_share: The share of the rows, or of the time, the first ones, from which a `Fitted` rule is estimated (default 0.5).
        level: Confidence level (default 0.95).
        on_bad: As in `fit` (default "refuse").
        set_aside: As in `fit` (default None).
        workers: As in `fit` (default None: all cores). The result does not depend on it.
        progress: As in `fit` (default None).
        sandwich: How standard errors are corrected, as in `estimate` (default "hc2").
        reward_bounds: The smallest and the largest possible reward: values then have a `band`, an empirical-Bernstein confidence sequence
            (default None), for rounds without `unit`. Memory then grows with the rows.
        **columns: Columns and error of the log, as in `Log`; they replace those of a `Log` that was given.

    Returns:
        A `Value`; for policies by name, `Values`, with `contrast(a, b)` between any two policies.

    >>> x, action = np.random.default_rng(0).normal(0, 1, 10_000), np.random.default_rng(1).integers(0, 2, 10_000)
    >>> log = {"stress": x, "action": action, "reward": np.where(action == 1, x, 0.5), "propensity": np.full(x.size, 0.5)}
    >>> found = value(log, LinearRule([[0.0], [1.0]]), predicted="stress")
    >>> round(found.best.value, 2), found.best.std_error < found.estimates["ips"].std_error
    (0.65, True)
    """
    checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    share = checks.number("learn_share", learn_share, "be between 0.05 and 0.95", 0.05, 0.95)
    stored = _unweighted(log_of(log, columns))
    bounds = None if reward_bounds is None else checked_bounds(reward_bounds, stored.unit)
    reading = reading_of(stored, error_needed=False, workers=workers, progress=progress)
    found = _Valuation(reading, named(policy), share, level, checks.one_of("sandwich", sandwich, SANDWICHES), bounds).values(
        on_bad, set_aside
    )
    return found if isinstance(policy, Mapping) else next(iter(found.found.values()))


def _unweighted(log: Log) -> Log:
    """A log without weights for missing outcomes, which values do not have."""
    if log.observed is not None:
        checks.refuse("observed", "be left out for values, which have no weights for missing outcomes", repr(log.observed))
    return log


def learn_then_value(
    log: Any,
    *,
    method: Method = "dr",
    context: str = "blp",
    floor: float = 0.0,
    ridge: float = 0.0,
    intercept: bool = False,
    **options: Unpack[ValueOptions],
) -> Value:
    """Estimate a rule from the first half of a log and its value from the second: `value(log, Fitted(...))`.

    From the same rounds, its value would look better than it is; see `Fitted`.

    Args:
        log: As in `value`.
        method: The estimator of θ: "ridge", "naive", "meb", "dr" (default) or "rc".
        context: What the rule reads: "blp" (default), the best linear predictor of x, or "predicted", x̃.
        floor: The rule's smallest probability of an allowed action (default 0).
        ridge: As in `fit` (default 0).
        intercept: Fit an intercept for every action (default False).
        **options: The other keywords of `value`, and columns and error of the log, as in `Log`.

    Returns:
        The value; its `policy` is the rule that was estimated.
    """
    rule = Fitted(method=method, context=context, floor=floor, ridge=ridge, intercept=intercept)
    found: Value = value(log, rule, **options)
    return found


@dataclass(frozen=True)
class _Valuation:
    """The steps from a log to values."""

    reading: Reading
    targets: dict[str, Any]
    share: float
    level: float
    sandwich: str
    bounds: tuple[float, float] | None

    def values(self, on_bad: str, set_aside: str | Path | None) -> Values:
        reading = self.reading
        counted = reading.count(on_bad=on_bad, set_aside=set_aside)
        rows, timed = counted.rows, reading.source.columns.time is not None
        raw, window, targets, used = counted.sums, EVERYTHING, self.targets, 0
        if any(isinstance(policy, Fitted) for policy in targets.values()):
            before, window = EVERYTHING.cut(self.share if timed else int(self.share * rows))
            first, raw = self._halves(before, window)
            used = int(first.rounds.sum()) if timed else int(self.share * rows)
            targets = {name: self._learned(p, first, before) if isinstance(p, Fitted) else p for name, p in targets.items()}
        error = reading.error.completed(raw)
        frame = self._frame(raw, error if reading.error_known else None)
        policies = [prepared(name, policy, frame) for name, policy in targets.items()]
        outcomes = outcomes_of(raw)
        clustered = reading.source.columns.unit is not None
        task = Valued(reading, window, error, policies, outcomes, self.sandwich, counted.rows, len(counted.contexts.places))
        sums = reading.source.through(task.sum, merged, "values")
        units = len(sums.by_unit.places) if clustered else 0
        if clustered and units < 2:
            checks.refuse("unit", "name at least two units", f"{units}", "One cluster says nothing about the spread between clusters.")
        means = means_of(sums, targets, outcomes.center)
        if clustered:
            spread = task.spread_of_units(sums, means)
        else:
            scored = reading.source.through(lambda block: task.score(block, means), Scored.merge, "standard errors")
            spread = scored.spread(means.n, self.sandwich)
        found = assembled(
            means,
            spread,
            sums,
            targets,
            center=outcomes.center,
            faults=len(counted.faults),
            first=used,
            level=self.level,
            units=units,
        )
        return found if self.bounds is None else self._with_bands(found, task, self.bounds)

    def _with_bands(self, found: Values, task: Valued, bounds: tuple[float, float]) -> Values:
        """Values with their empirical-Bernstein sequences, for which the log is read once more."""
        weighted = self.reading.source.through(task.weighted, Weighted.merge, "bands")
        banded = zip(found.found.items(), bands(weighted, bounds, self.level), strict=True)
        return replace(found, found={name: replace(one, band=band) for (name, one), band in banded})

    def _frame(self, raw: Crossproducts, error: Correction | None) -> Frame:
        mean, cov = (raw if error is None else error.unbiased_products(raw)).context.mean_and_cov
        return Frame(self.reading.source.n_actions, error, mean, cov, self.reading.source.coding.actions)

    def _halves(self, *windows: Window) -> tuple[Crossproducts, Crossproducts]:
        """The crossproducts of the rows before and after the cut."""
        reading = self.reading

        def work(block: Block) -> tuple[Crossproducts, Crossproducts]:
            first, second = (reading.products(window.of(block)) for window in windows)
            return first, second

        first, second = self.reading.source.through(work, lambda a, b: (a[0].merge(b[0]), a[1].merge(b[1])), "splitting")
        for part in (first, second):
            if not part.rounds.sum():
                rows = f"{first.rounds.sum() + second.rounds.sum():g} rows"
                checks.refuse("the log", "have rounds to estimate θ from and rounds to estimate values from", rows)
        return first, second

    def _learned(self, policy: Fitted, raw: Crossproducts, window: Window) -> LinearRule:
        """The rule that is estimated from the first rows."""
        if not self.reading.error_known:
            refuse_unknown_error()
        error = self.reading.error.completed(raw)
        products, constant = error.unbiased_products(raw), None if error.varying else error.mean_cov
        calibration = calibration_of(products, constant)
        calibrated = None
        if policy.method == "rc" and error.varying:
            reading, k = self.reading, self.reading.source.n_actions

            def work(block: Block) -> Crossproducts:
                return calibrated_products(reading.ready(window.of(block), error), calibration, k)

            calibrated = self.reading.source.through(work, Crossproducts.merge, "calibrating")
        options = Options(policy.ridge, policy.intercept)
        solution = solve_log(products, (policy.method,), error_cov=constant, calibrated=calibrated, options=options)
        theta = solution.fits[policy.method].theta
        zero = np.zeros(len(theta))
        return policy.rule(theta[:, int(policy.intercept) :], theta[:, 0] if policy.intercept else zero, calibration)
