"""`value`: what a policy would have earned, from a log that another policy made. The formulas are in `value_estimators`.

The log is read twice: for the regressions of the reward on the prediction, then for the sums from which the estimates follow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack, overload

import numpy as np

from mebandit import checks
from mebandit.analysis.linear_rule import Fitted, LinearRule
from mebandit.analysis.logged_context import Frame, Probabilities, Seen
from mebandit.analysis.target_policies import named, prepared
from mebandit.analysis.value_estimators import Sums, assembled, merged
from mebandit.analysis.value_result import Value, Values
from mebandit.estimation.best_linear import calibrated_products, calibration_of
from mebandit.estimation.correction import Correction
from mebandit.estimation.equations import outcome_regressions
from mebandit.estimation.methods import Method, Options
from mebandit.estimation.moments import Crossproducts
from mebandit.estimation.precision import of_usable_sizes
from mebandit.estimation.solution import solve_log
from mebandit.logs.log import Log, LogColumns, log_of
from mebandit.logs.reading import Reading, by_unit, reading_of, refuse_unknown_error
from mebandit.logs.source import Block, forecast_of
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.values import Floats


class ValueOptions(LogColumns, total=False):
    """The keywords of `value`."""

    learn_share: float
    level: float
    on_bad: str
    set_aside: str | Path | None
    workers: Workers
    progress: Show


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
    **columns: Unpack[LogColumns],
) -> Value | Values:
    """What a policy would have earned per round, by three estimators (ips, snips, dr) with intervals.

    Memory does not grow with the number of rows.

    Args:
        log: A `Log`; or what `Log` takes as its source, with its columns as further keywords. `error_cov` or `error_columns` are needed
            only by policies that read Σe.
        policy: One policy, or several in a dict by name. A policy is one of these:

            - "uniform": all allowed actions with the same probability;
            - a number or a label: always that action; "1 when available" or "send when available": that action wherever it is allowed, and
              elsewhere what is;
            - (K,) probabilities, the same in all rounds;
            - a `LinearRule`;
            - a `Fitted` rule: θ is estimated from the first `learn_share` of the rows, and all values from the rest;
            - a `Learner`, as it has learned up to now; or `(policy, state)`, or `(policy, state, time)`, with any object that has the
              methods of a `Policy`. It is asked for its propensities in each row and does not learn from them. Its schedules read `time`,
              the number of the decision (default: the row's number in the log; a Learner's next decision);
            - a function from predictions (n, d) to probabilities (n, K).

            A policy reads x̃ and Σe, as the logging policy did. Several threads may call it.
        learn_share: The share of the rows, the first ones, from which a `Fitted` rule is estimated; with a time column, the share of the
            time (default 0.5).
        level: Confidence level (default 0.95).
        on_bad: As in `fit` (default "refuse").
        set_aside: As in `fit` (default None).
        workers: As in `fit` (default None: all cores). The result does not depend on it.
        progress: As in `fit` (default None).
        **columns: Columns and error of the log, as in `Log`; they replace those of a `Log` that was given.

    Returns:
        A `Value`; for policies by name, `Values`, with `contrast(a, b)` between any two policies.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, action = rng.normal(0, 1, 10_000), rng.integers(0, 2, 10_000)
    >>> log = {"stress": x, "action": action, "reward": np.where(action == 1, x, 0.5), "propensity": np.full(x.size, 0.5)}
    >>> found = value(log, LinearRule([[0.0], [1.0]]), predicted="stress")
    >>> round(found.best.value, 2), found.best.std_error < found.estimates["ips"].std_error
    (0.65, True)
    """
    checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    share = checks.number("learn_share", learn_share, "be between 0.05 and 0.95", 0.05, 0.95)
    stored = _unweighted(log_of(log, columns))
    reading = reading_of(stored, error_needed=False, workers=workers, progress=progress)
    found = _Valuation(reading, named(policy), share, level).values(on_bad, set_aside)
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


class Window(NamedTuple):
    """A stretch of a log, from `low` to before `high`: of its rows, or of its time if it has one."""

    low: float
    high: float

    def cut(self, edge: float) -> tuple["Window", "Window"]:
        """The stretches before and after an edge."""
        return Window(self.low, edge), Window(edge, self.high)

    def of(self, block: Block) -> Block:
        """The rows of a block that are inside. Rows that are not used shift the count within their block: every row still is in one
        window only."""
        n = block.rounds.rewards.size
        if self == EVERYTHING:
            return block
        place = block.times if block.times.size else block.start + np.arange(n)
        rows = np.flatnonzero((place >= self.low) & (place < self.high))
        if rows.size == n:
            return block
        start = block.start if block.times.size else block.start + int(rows[0] if rows.size else 0)
        unit, times = block.unit[rows] if block.units else block.unit, block.times[rows] if block.times.size else block.times
        return block._replace(start=start, rounds=block.rounds.taken(rows), unit=unit, times=times, forecast=block.forecast[rows])


EVERYTHING = Window(-np.inf, np.inf)


@dataclass(frozen=True)
class _Valuation:
    """The steps from a log to values."""

    reading: Reading
    targets: dict[str, Any]
    share: float
    level: float

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
        beta, center = outcome_regressions(raw), float(raw.full[0].sum(axis=0)[0, -1] / max(raw.rounds.sum(), 1.0))
        beta[:, 0] -= center
        sums = reading.source.through(lambda block: self._sum(window.of(block), error, policies, beta, center), merged, "values")
        return assembled(sums, targets, center, len(counted.faults), used, self.level, reading.source.columns.unit is not None)

    def _frame(self, raw: Crossproducts, error: Correction | None) -> Frame:
        mean, cov = (raw if error is None else error.unbiased_products(raw)).mean_and_cov
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

    def _sum(self, block: Block, error: Correction, policies: list[Probabilities], beta: Floats, center: float) -> Sums:
        """Σ gg' of a block, and by unit."""
        rounds, size = block.rounds, 2 + 3 * len(policies)
        n, k = rounds.rewards.size, self.reading.source.n_actions
        ready, forecast = self.reading.ready(block, error), forecast_of(block, k)
        seen = Seen(rounds.predicted.T, ready.predicted.T, ready.errors, np.broadcast_to(rounds.allowed, (n, k)), block.start)
        r, t = rounds.rewards - center, np.arange(n)
        fitted = beta[:, 0] + np.einsum("td,kd->tk", seen.predicted, beta[:, 1:])
        never = forecast == 0.0 if forecast.shape[1] else np.zeros((n, k), dtype=np.bool_)
        g, largest, unsupported = np.empty((size, n)), np.zeros(len(policies)), np.zeros(len(policies))
        g[0], g[1] = 1.0, r
        for i, probabilities in enumerate(policies):
            π_e = probabilities(seen) if n else np.zeros((0, k))
            ρ = π_e[t, rounds.actions] / rounds.propensities
            g[2 + 3 * i], g[3 + 3 * i] = ρ, ρ * r
            g[4 + 3 * i] = (π_e * fitted).sum(axis=1) + ρ * (r - fitted[t, rounds.actions])
            largest[i], unsupported[i] = ρ.max(initial=0.0), π_e[never].sum()
        # loops in NumPy itself: a matrix product might use threads of its own, and add in an order that depends on them
        moments = np.einsum("it,jt->ij", g, g)
        totals = np.zeros((len(block.units), size))
        if block.units:
            for i, row in enumerate(g):
                totals[:, i] = np.bincount(block.unit, row, len(block.units))
        return Sums(moments, by_unit(block, totals), largest, unsupported)
