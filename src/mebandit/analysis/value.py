"""What a policy would have earned, from a log that another policy made, with intervals.

With ρ = π_e(a | x̃)/π(a) the ratio of the policy's probability to the logged one, z = (1, x̃), and β_a least squares of r on z in action a:

    weighted         V = mean of ρ r
    self-normalised  V = Σ ρ r / Σ ρ
    dr               V = mean of y,  y = Σ_a π_e(a | x̃) z'β_a + ρ (r - z'β_a)

The direct part of dr must predict E[r | x̃, a], so it is the regression on x̃. ⟨θ_a, x̃⟩ is another thing: θ is about x, and
E[x | x̃] is not x̃. With z'β_a in its place dr is right whatever β_a is, because the propensities are known; a good β_a makes it vary less.

All are means of ψ_t whose expectation given the past is the value, so that Σ (ψ_t - V)²/n² estimates their variance also where earlier
rounds decided later ones; ψ is summed within units first where there are units. The log is gone through twice.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.analysis.diagnostics import percent
from mebandit.analysis.target_policies import Fitted, Frame, LinearRule, Reader, Seen, named, reader_of
from mebandit.estimation.correction import Correction
from mebandit.estimation.estimators import Options, calibrated_products, calibration_of, of_usable_sizes, outcome_regressions, solve_log
from mebandit.estimation.moments import Crossproducts
from mebandit.logs.reading import ByUnit, Reading, by_unit, open_reading
from mebandit.logs.source import Block
from mebandit.measurement import ErrorModel
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.values import Floats

ESTIMATORS = ("weighted", "self-normalised", "dr")

FEW, HEAVY = 100.0, 0.1
"""fewer effective rounds than this, or a larger share of one round in all weight, is poor overlap; conventions"""


@dataclass(frozen=True)
class Figure:
    """A number with its standard error."""

    value: float
    std_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A normal confidence interval."""
        level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
        half = float(kernels.normal_quantile(0.5 + level / 2)) * self.std_error
        return self.value - half, self.value + half

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        return {"value": self.value, "std_error": self.std_error, "interval": list(self.interval(level))}


@dataclass(frozen=True)
class Estimated(Figure):
    """The value of a policy by one estimator, and how far it is above the logged policy's."""

    difference: Figure

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        return super().to_plain(level) | {"difference": self.difference.to_plain(level)}


@dataclass(frozen=True, eq=False)
class Value:
    """What a policy would have earned per round."""

    name: str
    policy: Any
    """as it was given; of a `Fitted` one, the `LinearRule` that was learned"""
    estimates: dict[str, Estimated]
    """by estimator: weighted, self-normalised, dr"""
    logged: Figure
    """the mean reward of the rounds, which is what the logged policy earned"""
    rounds: int
    units: int
    """clusters behind the standard errors; 0: rounds stand alone"""
    effective: float
    """(Σρ)²/Σρ²: how many equally weighted rounds say as much"""
    largest_share: float
    """of one round in Σρ"""
    mean_weight: Figure
    """mean of ρ, whose expectation is 1 less `unsupported`"""
    unsupported: float
    """mean probability that the policy gives to actions which the logged policy never takes there, as far as the log tells"""
    warnings: tuple[str, ...]
    level: float = 0.95

    @property
    def best(self) -> Estimated:
        """The estimate to read first: dr."""
        return self.estimates["dr"]

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        plain = {
            "estimates": {name: found.to_plain(self.level) for name, found in self.estimates.items()},
            "logged": self.logged.to_plain(self.level),
            "rounds": self.rounds,
            "units": self.units,
            "effective": self.effective,
            "largest_share": self.largest_share,
            "mean_weight": self.mean_weight.to_plain(self.level),
            "unsupported": self.unsupported,
            "warnings": list(self.warnings),
        }
        if isinstance(self.policy, LinearRule):
            plain["theta"] = np.asarray(self.policy.theta).tolist()
        return plain

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.rounds:,} rounds that count as {self.effective:,.0f} equally weighted ones"]
        for name, found in self.estimates.items():
            (low, high), more = found.interval(self.level), found.difference
            below, above = more.interval(self.level)
            lines.append(
                f"  {name:16s}{found.value:9.4f} [{low:.4f}, {high:.4f}]   beyond the log {more.value:+.4f} [{below:+.4f}, {above:+.4f}]"
            )
        return "\n".join([*lines, *(f"  Note: {words}" for words in self.warnings)])


@dataclass(frozen=True, eq=False)
class Values(Mapping[str, Value]):
    """The values of several policies from the same rounds, by name."""

    found: dict[str, Value]
    faults: int
    """rows that were set aside"""
    moments: Floats = field(repr=False)
    """Σ gg' over rounds or units, g = (1, r, and for every policy ρ, ρ r, y), r less its mean"""
    influences: dict[tuple[str, str], Floats] = field(repr=False)
    """ψ = influence'g by policy and estimator"""
    first: int = 0
    """the row of the log, from 0, with which the rounds begin: those before were for learning"""

    def __getitem__(self, name: str) -> Value:
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def contrast(self, a: str, b: str, estimator: str = "dr") -> Figure:
        """How much more policy a would have earned than b; the rounds are the same, so that what they share cancels."""
        checks.one_of("estimator", estimator, ESTIMATORS)
        for name in (a, b):
            checks.one_of("policy", name, self.found)
        c = self.influences[a, estimator] - self.influences[b, estimator]
        value = self.found[a].estimates[estimator].value - self.found[b].estimates[estimator].value
        return Figure(value, _spread(c, self.moments, self.found[a].rounds))

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it: policies.<name>.estimates.<estimator>.value, .std_error, .interval, .difference, ..."""
        one = next(iter(self.found.values()))
        return {
            "format": "mebandit-value",
            "version": 1,
            "rounds": one.rounds,
            "units": one.units,
            "rows_set_aside": self.faults,
            "first_row": self.first + 1,
            "level": one.level,
            "logged": one.logged.to_plain(one.level),
            "policies": {name: found.to_plain() for name, found in self.found.items()},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), allow_nan=False, indent=2)

    def __str__(self) -> str:
        return "\n".join(map(str, self.found.values()))


class Settings(TypedDict, total=False):
    """The keywords of `value`."""

    predicted: str | Sequence[str] | None
    action: str
    reward: str
    propensity: str | Sequence[str] | None
    unit: str | None
    n_actions: int | None
    error_cov: ArrayLike | ErrorModel | Path | None
    error_columns: str | Sequence[str] | None
    learn_share: float
    level: float
    on_bad: str
    set_aside: str | Path | None
    workers: Workers
    progress: Show


@overload
def value(log: Any, policy: Mapping[str, Any], **settings: Unpack[Settings]) -> Values: ...
@overload
def value(log: Any, policy: Any, **settings: Unpack[Settings]) -> Value: ...
@of_usable_sizes()
def value(
    log: Any,
    policy: Any,
    *,
    predicted: str | Sequence[str] | None = None,
    action: str = "action",
    reward: str = "reward",
    propensity: str | Sequence[str] | None = None,
    unit: str | None = None,
    n_actions: int | None = None,
    error_cov: ArrayLike | ErrorModel | Path | None = None,
    error_columns: str | Sequence[str] | None = None,
    learn_share: float = 0.5,
    level: float = 0.95,
    on_bad: str = "refuse",
    set_aside: str | Path | None = None,
    workers: Workers = None,
    progress: Show = None,
) -> Value | Values:
    """What a policy would have earned per round, by three estimators with intervals; for policies by name, a table of them.

    `log` and its columns are as in `mebandit.fit`. `policy` is "uniform" (all allowed actions alike), a number (always that action), (K,)
    probabilities, a `LinearRule`, a `Fitted` rule (θ from the first `learn_share` of the rows, all values from the rest), or a function
    from predictions (n, d) to probabilities (n, K), which several threads may call. All of them read x̃ alone; the head of
    `mebandit.analysis.target_policies` says why. `error_cov` or `error_columns` are needed only by rules that use them. Memory does not grow with
    the number of rows, and the result does not depend on `workers`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, action = rng.normal(0, 1, 10_000), rng.integers(0, 2, 10_000)
    >>> log = {"stress": x, "action": action, "reward": np.where(action == 1, x, 0.5), "propensity": np.full(x.size, 0.5)}
    >>> found = value(log, LinearRule([[0.0], [1.0]]), predicted="stress")
    >>> round(found.best.value, 2), found.best.std_error < found.estimates["weighted"].std_error
    (0.65, True)
    """
    checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    share = checks.number("learn_share", learn_share, "be between 0.05 and 0.95", 0.05, 0.95)
    reading = open_reading(
        log,
        predicted=predicted,
        action=action,
        reward=reward,
        propensity=propensity,
        unit=unit,
        n_actions=n_actions,
        error_cov=error_cov,
        error_columns=error_columns,
        error_needed=False,
        workers=workers,
        progress=progress,
    )
    found = _Valuation(reading, named(policy), share, level).values(on_bad, set_aside)
    return found if isinstance(policy, Mapping) else next(iter(found.found.values()))


def learn_then_value(
    log: Any,
    *,
    method: str = "dr",
    context: str = "blp",
    floor: float = 0.0,
    ridge: float = 0.0,
    intercept: bool = False,
    **settings: Unpack[Settings],
) -> Value:
    """Learn a rule from the first half of a log and value it on the second: `value(log, Fitted(...))`.

    θ from the same rounds would look better than it is; see `Fitted`. The result's `policy` is the rule that was learned.
    """
    rule = Fitted(method=method, context=context, floor=floor, ridge=ridge, intercept=intercept)
    found: Value = value(log, rule, **settings)
    return found


class Window(NamedTuple):
    """The rows of a log from `low` to before `high`."""

    low: int
    high: int

    def of(self, block: Block) -> Block:
        """The rows of a block that are inside. Rows that were set aside shift the count within their block: every row still is
        in one window only."""
        rounds, n = block.rounds, block.rounds.rewards.size
        i, j = (min(max(edge - block.start, 0), n) for edge in self)
        if (i, j) == (0, n):
            return block
        kept = rounds._replace(
            predicted=np.ascontiguousarray(rounds.predicted[:, i:j]),
            actions=rounds.actions[i:j],
            rewards=rounds.rewards[i:j],
            propensities=rounds.propensities[i:j],
            errors=rounds.errors[i:j] if len(rounds.errors) == n > 1 else rounds.errors,
            allowed=rounds.allowed[i:j] if len(rounds.allowed) == n > 1 else rounds.allowed,
        )
        return block._replace(start=block.start + i, rounds=kept, unit=block.unit[i:j], forecast=block.forecast[i:j])


def forecast_of(block: Block, n_actions: int) -> Floats:
    """The logged probability of every action, (n, K); no column where only that of the action taken is known. Of two actions, both are."""
    if block.forecast.shape[1] or n_actions > 2:
        return block.forecast
    p, a = block.rounds.propensities, block.rounds.actions
    return np.column_stack([np.where(a == b, p, 1.0 - p) for b in (0, 1)])


class Sums(NamedTuple):
    """What the last time through a log gives; g = (1, r, and for every policy ρ, ρ r, y)."""

    moments: Floats
    """Σ gg'"""
    by_unit: ByUnit
    """Σ g by unit, (units, size)"""
    largest: Floats
    """the largest ρ, by policy"""
    unsupported: Floats
    """Σ of the probability given to actions that the logged policy never takes there, by policy"""


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
        rows = int(counted.sums.rounds.sum()) + len(counted.faults)
        raw, window, targets = counted.sums, Window(0, rows), self.targets
        if any(isinstance(policy, Fitted) for policy in targets.values()):
            cut = int(self.share * rows)
            window = Window(cut, rows)
            first, raw = self._halves(cut, rows)
            targets = {name: self._learned(p, first, Window(0, cut)) if isinstance(p, Fitted) else p for name, p in targets.items()}
        error = reading.error.settled(raw)
        frame = self._frame(raw, error if reading.error_known else None)
        readers = [reader_of(name, policy, frame) for name, policy in targets.items()]
        beta, center = outcome_regressions(raw), float(raw.full[0].sum(axis=0)[0, -1] / max(raw.rounds.sum(), 1.0))
        beta[:, 0] -= center
        sums = reading.source.through(lambda block: self._sum(window.of(block), error, readers, beta, center), _merge_sums, "values")
        return _assembled(sums, targets, center, len(counted.faults), window.low, self.level, reading.source.columns.unit is not None)

    def _frame(self, raw: Crossproducts, error: Correction | None) -> Frame:
        return Frame(self.reading.source.n_actions, error, *(raw if error is None else error.unbiased(raw)).mean_and_cov)

    def _halves(self, cut: int, rows: int) -> tuple[Crossproducts, Crossproducts]:
        """The crossproducts of the rows before and after the cut."""
        reading, windows = self.reading, (Window(0, cut), Window(cut, rows))

        def work(block: Block) -> tuple[Crossproducts, Crossproducts]:
            first, second = (reading.products(window.of(block)) for window in windows)
            return first, second

        first, second = self.reading.source.through(work, lambda a, b: (a[0].merge(b[0]), a[1].merge(b[1])), "splitting")
        for part in (first, second):
            if not part.rounds.sum():
                checks.refuse("the log", "have rounds to learn from and rounds to value on", f"{rows} rows")
        return first, second

    def _learned(self, policy: Fitted, raw: Crossproducts, window: Window) -> LinearRule:
        """The rule that the first rows teach."""
        if not self.reading.error_known:
            remedy = "Give error_cov (--error-cov, --error-model), or the columns that hold it (--error-columns); 0 for none."
            checks.refuse("the error covariance", "be known, to be corrected for", "nothing", remedy)
        error = self.reading.error.settled(raw)
        products, constant = error.unbiased(raw), None if error.varying else error.mean_cov
        prepared = calibration_of(products, constant)
        calibrated = None
        if policy.method == "rc" and error.varying:
            reading, k = self.reading, self.reading.source.n_actions

            def work(block: Block) -> Crossproducts:
                return calibrated_products(reading.ready(window.of(block), error), prepared, k)

            calibrated = self.reading.source.through(work, Crossproducts.merge, "calibrating")
        options = Options(policy.ridge, policy.intercept)
        solution = solve_log(products, (policy.method,), error_cov=constant, calibrated=calibrated, options=options)
        theta = solution.fits[policy.method].theta
        zero = np.zeros(len(theta))
        return policy.rule(theta[:, int(policy.intercept) :], theta[:, 0] if policy.intercept else zero, prepared)

    def _sum(self, block: Block, error: Correction, readers: list[Reader], beta: Floats, center: float) -> Sums:
        """Σ gg' of a block, and by unit."""
        rounds, size = block.rounds, 2 + 3 * len(readers)
        n, k = rounds.rewards.size, self.reading.source.n_actions
        ready, forecast = self.reading.ready(block, error), forecast_of(block, k)
        seen = Seen(rounds.predicted.T, ready.predicted.T, ready.errors, np.broadcast_to(rounds.allowed, (n, k)), block.start)
        r, t = rounds.rewards - center, np.arange(n)
        fitted = beta[:, 0] + np.einsum("td,kd->tk", seen.predicted, beta[:, 1:])
        never = forecast == 0.0 if forecast.shape[1] else np.zeros((n, k), dtype=np.bool_)
        g, largest, unsupported = np.empty((size, n)), np.zeros(len(readers)), np.zeros(len(readers))
        g[0], g[1] = 1.0, r
        for i, reader in enumerate(readers):
            π_e = reader(seen) if n else np.zeros((0, k))
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


def _merge_sums(first: Sums, second: Sums) -> Sums:
    return Sums(
        first.moments + second.moments,
        first.by_unit.merge(second.by_unit),
        np.maximum(first.largest, second.largest),
        first.unsupported + second.unsupported,
    )


def _spread(c: Floats, moments: Floats, n: int) -> float:
    """The standard error of a mean of ψ = c'g: sqrt(c'Mc)/n, M = Σ gg' over rounds or units."""
    return float(np.sqrt(max(float(c @ moments @ c), 0.0)) / n)


def _influences(i: int, sums: Floats, center: float) -> dict[str, tuple[float, Floats]]:
    """V and c for each estimator of policy i, with ψ - V = c'g; see the head of this file, with r = center + g_1."""
    n, (ρ, ρr, y) = sums[0], (2 + 3 * i, 3 + 3 * i, 4 + 3 * i)
    unit = np.eye(sums.size)
    mean, ratio, robust = (sums[ρr] + center * sums[ρ]) / n, sums[ρr] / sums[ρ], sums[y] / n
    return {
        "weighted": (float(mean), unit[ρr] + center * unit[ρ] - mean * unit[0]),
        "self-normalised": (float(center + ratio), (unit[ρr] - ratio * unit[ρ]) * n / sums[ρ]),
        "dr": (float(center + robust), unit[y] - robust * unit[0]),
    }


class Totals(NamedTuple):
    """The sums in full."""

    full: Floats
    """Σ gg' over rounds"""
    meat: Floats
    """Σ gg' over rounds, or over units of their sums"""
    center: float
    """what was taken off r"""

    @property
    def n(self) -> int:
        return int(self.full[0, 0])

    def mean(self, i: int) -> Figure:
        """The mean of g_i."""
        at = float(self.full[0, i]) / self.n
        return Figure(at, _spread(np.eye(len(self.full))[i] - at * np.eye(len(self.full))[0], self.meat, self.n))


def _assembled(sums: Sums, targets: dict[str, Any], center: float, faults: int, first: int, level: float, clustered: bool) -> Values:
    """Values and their standard errors from the sums."""
    full = sums.moments
    if full[0, 0] < 2:
        checks.refuse("the log", "have at least two rounds to value on", f"{full[0, 0]:g}")
    units = int((sums.by_unit.totals[:, 0] > 0).sum()) if clustered else 0
    if clustered and units < 2:
        checks.refuse("unit", "name at least two units", f"{units}", "One cluster says nothing about the spread between clusters.")
    totals = Totals(full, sums.by_unit.totals.T @ sums.by_unit.totals if clustered else full, center)
    found: dict[str, Value] = {}
    influences: dict[tuple[str, str], Floats] = {}
    for i, (name, policy) in enumerate(targets.items()):
        if not full[0, 2 + 3 * i] > 0:
            checks.refuse(f"policy {name!r}", "share actions with the log", "one that takes none of the logged actions")
        estimates, cs = _estimates(i, totals)
        influences |= {(name, estimator): c for estimator, c in cs.items()}
        found[name] = _value(i, name, policy, estimates, totals, sums, units, level)
    return Values(found, faults, totals.meat, influences, first)


def _estimates(i: int, totals: Totals) -> tuple[dict[str, Estimated], dict[str, Floats]]:
    """The estimates of policy i, each with its difference to the logged policy, and their influences."""
    unit, n = np.eye(len(totals.full)), totals.n
    logged = totals.center + totals.mean(1).value
    own = unit[1] - totals.mean(1).value * unit[0]
    estimates, cs = {}, {}
    for estimator, (V, c) in _influences(i, totals.full[0], totals.center).items():
        difference = Figure(V - logged, _spread(c - own, totals.meat, n))
        estimates[estimator], cs[estimator] = Estimated(V, _spread(c, totals.meat, n), difference), c
    return estimates, cs


def _value(i: int, name: str, policy: Any, estimates: dict[str, Estimated], totals: Totals, sums: Sums, units: int, level: float) -> Value:
    """The value of policy i with what is to be said about it."""
    r, ρ = totals.mean(1), 2 + 3 * i
    weight, total = totals.mean(ρ), float(totals.full[0, ρ])
    effective, share = total**2 / float(totals.full[ρ, ρ]), float(sums.largest[i]) / total
    unsupported = float(sums.unsupported[i]) / totals.n
    return Value(
        name=name,
        policy=policy,
        estimates=estimates,
        logged=Figure(totals.center + r.value, r.std_error),
        rounds=totals.n,
        units=units,
        effective=effective,
        largest_share=share,
        mean_weight=weight,
        unsupported=unsupported,
        warnings=_notes(effective, share, weight, unsupported) + _flattery(policy, totals.n),
        level=level,
    )


def _flattery(policy: Any, rounds: int) -> tuple[str, ...]:
    """A sentence on a θ that was, as it seems, fitted to the rounds on which it is valued."""
    if not (isinstance(policy, LinearRule) and policy.fitted_to == rounds):
        return ()
    remedy = "Learn it from the first half of the log and value it on the second (Fitted(), --theta fit)."
    return (f"θ was fitted to {rounds:,} rounds, as many as are valued here: if they are the same, they flatter it. {remedy}",)


def _notes(effective: float, share: float, weight: Figure, unsupported: float) -> tuple[str, ...]:
    """Sentences on what makes a value doubtful."""
    notes = []
    if unsupported > 0:
        notes.append(
            f"The policy gives {percent(unsupported)} of its probability to actions that the logged policy never takes there: "
            "what they earn is not in the log."
        )
    if effective < FEW or share > HEAVY:
        notes.append(
            f"The overlap is poor: the log counts as {effective:,.0f} equally weighted rounds, and one round has {percent(share)} of "
            "all weight. The intervals may be too short."
        )
    off = abs(weight.value + unsupported - 1.0)
    if off > 4.0 * weight.std_error + 1e-9:
        notes.append(
            f"The mean weight is {weight.value:.3f} ± {weight.std_error:.3f}, and should be {1.0 - unsupported:.3f}: the logged "
            "propensities are not those the actions were drawn with, or the policy takes actions that could not be drawn."
        )
    return tuple(notes)
