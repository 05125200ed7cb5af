"""The figures of an analysis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.fit_tables import at_scales, contrasts_of, difference, fitted, interval_ends, names_of
from mebandit.reports.colours import PALETTE, colours_of
from mebandit.reports.figures import Picture, picture
from mebandit.runtime.escaping import in_figure
from mebandit.values import Floats

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def draw_forest(analysis: Analysis, level: float) -> "matplotlib.figure.Figure":
    """θ by every method: by action, and the differences between actions. An intercept would crush the scale; the tables have it."""
    from matplotlib.figure import Figure

    first = len(names_of(analysis)) - len(analysis.features)
    factors, names = _on_one_axis(analysis)
    panels = [
        (in_figure(analysis.called(a, beside="action ")), {m: fitted(e, a) for m, e in analysis.estimates.items()})
        for a in range(analysis.n_actions)
    ]
    panels += [(_pair(analysis, a, b), {m: difference(e, a, b) for m, e in analysis.estimates.items()}) for a, b in contrasts_of(analysis)]
    wide, d = min(len(panels), 3), len(analysis.features)
    tall = -(-len(panels) // wide)
    figure = Figure(figsize=(3.4 * wide + 1.2, tall * (0.9 + 0.16 * d * (len(analysis.estimates) + 1))), layout="constrained")
    grid = np.atleast_1d(figure.subplots(tall, wide, sharey=True, squeeze=False)).ravel()
    for axes, (title, by_method) in zip(grid, panels, strict=False):
        _forest(
            axes,
            {m: (found[0][first:], interval_ends(found, level)[first:]) for m, found in by_method.items()},
            factors[first:],
            names[first:],
        )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"coefficient, {100 * level:g} % interval", fontsize=9)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(analysis.estimates), frameon=False)
    return figure


def _pair(analysis: Analysis, a: int, b: int) -> str:
    return in_figure(f"{analysis.called(a, beside='action ')} - {analysis.called(b, beside='action ')}")


def _on_one_axis(analysis: Analysis) -> tuple[Floats, list[str]]:
    """Powers of ten that bring the coefficients of all features to one axis, and names that say so: "steps, per 1,000"."""
    arms = [fitted(analysis.best, a) for a in range(analysis.n_actions)]
    reach = np.nan_to_num(np.max([np.abs(theta) + 2 * error for theta, error, _ in arms], axis=0))
    smaller = np.divide(reach.max(), 3 * reach, out=np.ones(reach.size), where=reach > 0)  # up to 30 times is still easy to see
    names, powers = names_of(analysis), np.clip(np.floor(np.log10(smaller)), 0, 9).astype(int)
    powers[: len(names) - len(analysis.features)] = 0  # an intercept is per 1
    return 10.0**powers, [f"{name}, per {10 ** int(k):,}" if k else name for name, k in zip(names, powers, strict=True)]


def _forest(axes: "matplotlib.axes.Axes", by_method: Mapping[str, tuple[Floats, Floats]], factors: Floats, names: list[str]) -> None:
    step, colours = 0.8 / len(by_method), colours_of(by_method)
    for g, (method, (center, interval)) in enumerate(by_method.items()):
        y = np.arange(len(names)) + (g - (len(by_method) - 1) / 2) * step
        half = factors * np.abs(interval.T - center)
        axes.errorbar(factors * center, y, xerr=half, fmt="o", markersize=4, linewidth=1.6, color=colours[method], label=method)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(names)), list(map(in_figure, names)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)


def draw_sensitivity(analysis: Analysis) -> "matplotlib.figure.Figure":
    """The differences between actions against the multiple of Σe that is taken out, as far as the guard does not decide."""
    from matplotlib.figure import Figure

    pairs = contrasts_of(analysis)[:3]  # more would be too small to read; the table has them all
    figure = Figure(figsize=(3.4 * len(pairs) + 2.2, 3.4), layout="constrained")
    grid = figure.subplots(1, len(pairs), squeeze=False)[0]
    best = analysis.best
    by_scale = at_scales(analysis, best.method)
    factors, names = _on_one_axis(analysis)
    colours = [PALETTE["grey"]] * (len(names) - len(analysis.features)) + list(colours_of(analysis.features).values())
    for axes, (a, b) in zip(grid, pairs, strict=True):
        error = factors * difference(best, a, b)[1]
        lines = np.array([factors * (found[a] - found[b]) for found in by_scale.values()])
        beyond = np.array([own[[a, b]].any() for own in analysis.sensitivity_guarded[best.method].values()])
        lines[beyond & ~beyond.all()] = np.nan
        for i, name in enumerate(names):
            axes.plot(list(by_scale), lines[:, i], marker="o", markersize=3.5, color=colours[i], label=in_figure(name))
            axes.fill_between(list(by_scale), lines[:, i] - error[i], lines[:, i] + error[i], color=colours[i], alpha=0.12, linewidth=0)
        axes.axvline(1, color="0.6", linewidth=0.8)
        axes.set_xlabel("multiple of Σe")
        axes.set_title(f"{_pair(analysis, a, b)} ({best.method})", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    grid[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw_propensities(analysis: Analysis) -> "matplotlib.figure.Figure":
    """With which probability the actions were taken, and how often they came at each level of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = analysis.propensity_histogram
    edges = np.linspace(0, 1, counts.shape[1] + 1)
    bottom = np.zeros(counts.shape[1])
    called = [analysis.called(a, beside="action ") for a in range(len(counts))]
    colours = colours_of(called)
    for a, own in enumerate(counts):
        left.bar(edges[:-1] + 0.025, own, width=0.046, bottom=bottom, color=colours[called[a]], label=in_figure(called[a]))
        bottom += own
    left.set_xlabel("probability of the action that was taken")
    left.set_ylabel("rounds")
    left.legend(frameon=False, fontsize=8)
    found = next(f for f in analysis.diagnostics if f.name == "probability and frequency").values
    stated, observed, rounds = (np.array(found[name], dtype=float) for name in ("stated", "observed", "rounds"))
    right.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    spread = 2 * np.sqrt(stated * (1 - stated) / np.maximum(rounds, 1))
    right.errorbar(stated, observed, yerr=spread, fmt="o", markersize=4, color=PALETTE["blue"])
    right.set_xlabel(f"logged probability of {in_figure(analysis.called(analysis.n_actions - 1, beside='action '))}")
    right.set_ylabel("how often it was taken")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, 1)
    if not np.isfinite(stated).any():
        right.set_visible(False)
    return figure


def draw_drift(analysis: Analysis) -> "matplotlib.figure.Figure":
    """The mean of every feature along the log, in its standard deviations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 2.8), layout="constrained")
    axes = figure.subplots()
    found = next(f for f in analysis.diagnostics if f.name == "drift of x̃").values
    colours = colours_of(found)
    for name, away in found.items():
        axes.plot((np.arange(len(away)) + 0.5) / len(away), away, marker="o", markersize=3, color=colours[name], label=in_figure(name))
    axes.axhline(0, color="0.6", linewidth=0.8)
    bound = max(0.5, 1.1 * max((abs(v) for away in found.values() for v in away), default=0.0))
    axes.set(xlim=(0, 1), ylim=(-bound, bound), xlabel="part of the log", ylabel="mean of x̃, in s.d.")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def pictures(analysis: Analysis, level: float) -> dict[str, Picture]:
    """All figures, by name."""
    return {
        "forest": picture(draw_forest(analysis, level)),
        "sensitivity": picture(draw_sensitivity(analysis)),
        "propensities": picture(draw_propensities(analysis)),
        "drift": picture(draw_drift(analysis)),
    }
