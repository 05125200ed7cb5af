"""The figure of the effects alone, made to be printed: one method, labels, intervals, and the numbers beside them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mebandit import checks
from mebandit.analysis.effects import AVERAGE, Effect, effects_of
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.fit_tables import contrasts_of, digits
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, plain
from mebandit.runtime.escaping import in_figure

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def draw_effects(
    analysis: Analysis, *, level: float, method: str | None, outcome: str | None, labels: Mapping[str, str] | None
) -> "matplotlib.figure.Figure":
    """The average effect of each action against the first, and what each feature changes of it.

    Args:
        analysis: The analysis.
        level: Confidence level of the intervals.
        method: Whose estimates; None: those to read first.
        outcome: What the reward is called, with its unit; None: the name of its column.
        labels: What features are called, with their units, by their names; None: by their names.
    """
    level = checks.number("level", level, "be between 0 and 1", 1e-9, 1 - 1e-9)
    found = analysis.best if method is None else analysis.estimates[checks.one_of("method", method, analysis.estimates)]
    named = dict(labels or {})
    for name in named:
        checks.one_of("labels", name, [AVERAGE, *analysis.features])
    pairs = [pair for pair in contrasts_of(analysis) if pair[1] == 0]
    height = 0.9 + len(pairs) * (0.45 + 0.3 * (1 + len(analysis.features)))
    figure = canvas(7.0, height)
    grid = figure.subplots(len(pairs), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (a, b) in zip(grid, pairs, strict=True):
        own = effects_of(found, a, b, analysis.features, analysis.average_effect(a, b, method=found.method))
        _draw(axes, own, [_called(analysis, effect, named) for effect in own], level, colours_of([found.method])[found.method])
        axes.set_title(
            in_figure(f"{analysis.called(a, beside='action ')} − {analysis.called(b, beside='action ')}"), fontsize=10, loc="left"
        )
    what = in_figure(outcome or analysis.outcome)
    grid[-1].set_xlabel(f"difference in {what}, {100 * level:g} % intervals ({found.method})")
    return figure


def _called(analysis: Analysis, effect: Effect, named: Mapping[str, str]) -> str:
    """What a row of the figure is called: the label of a category stands beside its reference."""
    if effect.name in named:
        return named[effect.name]
    if effect.name == AVERAGE:
        return "average effect"
    column, _, label = effect.name.partition("=")
    if label and column in analysis.references:
        return f"{column}: {label} instead of {analysis.references[column]}"
    return f"change per 1 of {effect.name}"


def _draw(axes: "matplotlib.axes.Axes", effects: list[Effect], names: list[str], level: float, colour: str) -> None:
    """Points with intervals, and the numbers to the right of them."""
    for i, effect in enumerate(effects):
        low, high = effect.interval(level)
        first = effect.name == AVERAGE
        axes.plot([low, high], [i, i], color=colour, linewidth=2.4 if first else 1.6, solid_capstyle="butt")
        axes.plot(effect.value, i, "D" if first else "o", color=colour, markersize=6 if first else 5)
        shown = f"{digits(effect.value, effect.std_error)} [{digits(low, effect.std_error)}, {digits(high, effect.std_error)}]"
        axes.annotate(
            shown, (1.0, i), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.axvline(0.0, color="0.35", linewidth=0.8, linestyle=(0, (4, 2)))
    axes.set_yticks(np.arange(len(names)), list(map(in_figure, names)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    plain(axes, grid="x")
    axes.spines["left"].set_visible(False)
