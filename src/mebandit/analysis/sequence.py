"""Confidence sequences of effects: estimates and bands over the rounds of a log, which hold at every look together."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from mebandit import checks
from mebandit.analysis.effects import Effect, average_effect, effects_of
from mebandit.analysis.fit import Steps
from mebandit.analysis.plain import without_nan
from mebandit.estimation.estimate import checked_options
from mebandit.estimation.leverage import Sandwich
from mebandit.estimation.methods import METHODS, Guard, Method
from mebandit.estimation.precision import of_usable_sizes
from mebandit.logs.log import Log, LogColumns, log_of
from mebandit.logs.reading import Reading, reading_of
from mebandit.logs.window import Window
from mebandit.reports.figures import canvas, plain, save_figure
from mebandit.runtime.escaping import in_figure
from mebandit.runtime.workers import Workers

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd

MOST_LOOKS, MOST_PANELS = 1000, 6


class Look(NamedTuple):
    """What the rounds up to a look say."""

    rounds: int
    """the rounds that were used"""
    until: float
    """rows of the log up to the look; with a time column, the share of its time"""
    effects: tuple[tuple[int, Effect], ...]
    """the effects of each action against the first: the average effect, and what each feature changes; empty where the rounds do not
    identify them, or the guard decided them"""


@dataclass(frozen=True)
class ConfidenceSequence:
    """Effects over the rounds of a log, with bands that hold at every look."""

    looks: tuple[Look, ...]
    """in the order of time or of rows"""
    method: str
    """how θ was estimated"""
    actions: tuple[str, ...]
    """names of the actions"""
    by_time: bool
    """whether looks are in the order of a time column, and not of rows"""
    level: float = 0.95
    """confidence level of the bands"""

    def table(self) -> "pd.DataFrame":
        """A row for each look and effect: low and high are the band, once_low and once_high the interval of one look alone."""
        import pandas as pd

        rows = []
        for look in self.looks:
            for a, effect in look.effects:
                band, once = effect.interval(self.level, anytime=True), effect.interval(self.level)
                names = [self.actions[a], self.actions[0], effect.name]
                rows.append([look.rounds, look.until, *names, effect.value, effect.std_error, *band, *once])
        ends = ["low", "high", "once_low", "once_high"]
        return pd.DataFrame(rows, columns=["rounds", "until", "action", "minus", "effect", "value", "std_error", *ends])

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it: looks is a list of rounds, until and effects."""
        rows = self.table()
        return {
            "format": "mebandit-sequence",
            "version": 1,
            "method": self.method,
            "level": self.level,
            "order": "time" if self.by_time else "rows",
            "looks": [
                {"rounds": look.rounds, "until": look.until, "effects": own.drop(columns=["rounds", "until"]).to_dict("records")}
                for look in self.looks
                for own in [rows[(rows["until"] == look.until) & (rows["rounds"] == look.rounds)]]
            ],
        }

    def to_json(self) -> str:
        """`to_plain` as a JSON text."""
        return json.dumps(without_nan(self.to_plain()), allow_nan=False, indent=2)

    def __str__(self) -> str:
        """The effects at the last look, with both intervals, and from which look on the band excludes zero."""
        rows, lines = self.table(), []
        for (action, minus, name), own in rows.groupby(["action", "minus", "effect"], sort=False):
            last, outside = own.iloc[-1], own[(own["low"] > 0) | (own["high"] < 0)]
            wider = (last["high"] - last["low"]) / (last["once_high"] - last["once_low"]) if last["std_error"] > 0 else 1.0
            since = f"excludes 0 from {outside['rounds'].iloc[0]:,} rounds on" if len(outside) else "never excludes 0"
            band, once = (f"[{last[low]:.3f}, {last[high]:.3f}]" for low, high in (("low", "high"), ("once_low", "once_high")))
            lines.append(
                f"{action} - {minus}, {name}: {last['value']:.3f}, band {band} {since}; at one look {once}, {wider:.2f} times narrower"
            )
        order = "time" if self.by_time else "rows"
        bands = f"{100 * self.level:g} % bands that hold at all looks together"
        head = f"{len(self.looks)} looks in the order of {order}, by {self.method}; {bands}"
        return "\n".join([head, *(lines or ["No look identifies the effects."])])

    def plot(self, path: str | Path | None = None) -> "matplotlib.figure.Figure":
        """The figure of estimates and bands over the rounds; the darker lines are the intervals of one look alone.

        Args:
            path: Where to save it, .pdf, .svg or .png; None (default): nowhere.
        """
        groups = list(self.table().groupby(["action", "minus", "effect"], sort=False))[:MOST_PANELS]
        wide = min(max(len(groups), 1), 3)
        tall = max(-(-len(groups) // wide), 1)
        figure = canvas(3.6 * wide, 2.8 * tall)
        grid = figure.subplots(tall, wide, squeeze=False).ravel()
        for axes, ((action, minus, name), own) in zip(grid, groups, strict=False):
            _draw(axes, own)
            axes.set_title(in_figure(f"{action} - {minus}: {name}"), fontsize=10)
        for axes in grid[len(groups) :]:
            axes.set_visible(False)
        if path is not None:
            save_figure(figure, path)
        return figure


def _draw(axes: "matplotlib.axes.Axes", own: "pd.DataFrame") -> None:
    """One effect. The first bands are so wide that they would crush all others: the axis shows the second half of them."""
    x, low, high = own["rounds"], own["low"], own["high"]
    axes.fill_between(x, low, high, color="#2f6db0", alpha=0.2, linewidth=0)
    axes.plot(x, own["once_low"], color="#2f6db0", linewidth=0.7, linestyle="--")
    axes.plot(x, own["once_high"], color="#2f6db0", linewidth=0.7, linestyle="--")
    axes.plot(x, own["value"], color="#2f6db0", linewidth=1.6)
    axes.axhline(0, color="0.6", linewidth=0.8)
    later = own.iloc[len(own) // 2 :]
    bottom, top = min(later["low"].min(), 0.0), max(later["high"].max(), 0.0)
    if np.isfinite([bottom, top]).all() and top > bottom:
        room = 0.4 * (top - bottom)
        axes.set_ylim(bottom - room, top + room)
    axes.set_xlabel("rounds", fontsize=9)
    plain(axes)


@of_usable_sizes()
def confidence_sequence(
    log: Any,
    *,
    looks: int = 50,
    method: Method = "dr",
    ridge: float = 0.0,
    intercept: bool = False,
    guard: Guard = "auto",
    sandwich: Sandwich = "hc2",
    level: float = 0.95,
    workers: Workers = None,
    **columns: Unpack[LogColumns],
) -> ConfidenceSequence:
    """Effects over the rounds of a log, with bands that contain the truth at every look together: asymptotic confidence sequences.

    Each look uses the rounds up to it, as if the log had ended there: in the order of the time column, or of the rows if there is none.
    One may stop at any look. Rows may be in the order of decisions, or in that in which late rewards came, if how late a reward comes
    does not depend on it. With `unit` the sequence is one over participants: take its looks as new participants are complete.

    Args:
        log: As in `fit`.
        looks: How many there are, evenly spaced (default 50).
        method: How θ is estimated (default "dr").
        ridge: As in `fit` (default 0).
        intercept: As in `fit` (default False).
        guard: As in `fit` (default "auto"). Looks at which the guard decides have no band.
        sandwich: As in `fit` (default "hc2").
        level: Confidence level of the bands (default 0.95).
        workers: As in `fit` (default None: all cores).
        **columns: Columns and error of the log, as in `Log`. Rows that break a rule are left out.

    Returns:
        The sequence, with `table()`, `plot()` and `to_json()`; printed, it tells the last look.

    >>> rng = np.random.default_rng(0)
    >>> x, action = rng.normal(1, 1, 1000), rng.integers(0, 2, 1000)
    >>> log = {"x": x + rng.normal(0, 0.5, 1000), "action": action, "reward": action * x, "propensity": np.full(1000, 0.5)}
    >>> found = confidence_sequence(log, predicted="x", error_cov=0.25, looks=10)
    >>> found.table()["rounds"].unique().tolist()
    [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    """
    count = checks.integer("looks", looks, 1, MOST_LOOKS)
    level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    options = checked_options(ridge=ridge, intercept=intercept, guard=guard, sandwich=sandwich)
    chosen, stored = checks.one_of("method", method, METHODS), log_of(log, columns)
    reading = reading_of(stored, only_available=True, workers=workers, progress=False)
    rows = reading.counted().rows
    by_time = stored.columns.time is not None
    found = []
    for i in range(1, count + 1):
        until = i / count if by_time else max(round(rows * i / count), 1)
        edge = np.inf if i == count else until
        source = replace(reading.source, window=Window(-np.inf, edge))
        found.append(
            _look(replace(reading, source=source), stored, Steps(replace(reading, source=source), options, (chosen,), None), until)
        )
    named = stored.coding.actions or tuple(map(str, range(reading.source.n_actions)))
    return ConfidenceSequence(tuple(found), chosen, named, by_time, level)


def _look(reading: Reading, stored: Log, steps: Steps, until: float) -> Look:
    """What the rounds up to a look say; nothing where they identify nothing."""
    try:
        seen = steps.seen()
    except (checks.SingularMoments, checks.InvalidInput, checks.LogError):
        return Look(0, until, ())
    found, effects = seen.estimate, []
    if found.guarded.any() and steps.options.guard != "always":
        return Look(seen.rounds, until, ())
    for a in range(1, len(found.theta)):
        average = average_effect(found, a, 0, seen.mean, seen.mean_cov)
        effects += [(a, effect) for effect in effects_of(found, a, 0, stored.columns.predicted, average)]
    known = [(a, effect) for a, effect in effects if np.isfinite(effect.value) and np.isfinite(effect.std_error)]
    return Look(seen.rounds, until, tuple(known))
