"""An analysis for people: tables, figures, and a page with all of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mebandit.analysis.fit import Analysis
from mebandit.estimation.estimators import Contrast, Estimate
from mebandit.reports.page import Page, Picture, Table, picture
from mebandit.runtime.escaping import as_csv, in_figure
from mebandit.runtime.files import write_together
from mebandit.values import Booleans, Floats

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd

SAYS = {
    "ridge": "least squares on x̃, as if it were x: biased towards zero by the error",
    "naive": "the textbook correction: biased, because the policy has read x̃",
    "meb": "the paper's estimator: weights by 1/π, takes Σe out",
    "dr": "doubly robust: as meb, and uses the rounds of the other actions too",
    "rc": "regression calibration: least squares on the best linear predictor of x; right if E[x | x̃] is linear",
}
COLORS = {"ridge": "#9aa3ad", "naive": "#e0a458", "meb": "#4c78a8", "dr": "#2a9d5c", "rc": "#a05195"}


def digits(value: float, std_error: float) -> str:
    """A number with as many digits as its standard error supports: down to its second."""
    if not np.isfinite(value):
        return "-"
    if not (np.isfinite(std_error) and std_error > 0):
        return f"{value:.3f}"
    last = int(np.floor(np.log10(std_error))) - 1
    if last >= -6 or value == 0:
        return f"{value:.{min(max(-last, 0), 6)}f}"
    return f"{value:.{int(np.clip(np.floor(np.log10(abs(value))) - last, 0, 6))}e}"


def pair(value: float, std_error: float) -> str:
    """A number above its standard error."""
    return f"{digits(value, std_error)}\n±{digits(std_error, std_error)}"


def contrasts_of(analysis: Analysis) -> list[tuple[int, int]]:
    """Which differences between actions are shown: all if there are few actions, else those with action 0."""
    k = analysis.n_actions
    return [(a, b) for a in range(k) for b in range(a)] if k <= 3 else [(a, 0) for a in range(1, k)]


def coefficients(analysis: Analysis) -> Table:
    """θ ± its standard error, a row for each action and feature, a column for each method."""
    rows = []
    for a in range(analysis.n_actions):
        found = [_coefficients(e, a) for e in analysis.estimates.values()]
        for i, name in enumerate(names_of(analysis)):
            rows.append([str(a), name, *(pair(theta[i], error[i]) for theta, error in found)])
    return Table(["action", "feature", *analysis.estimates], rows)


def names_of(analysis: Analysis) -> list[str]:
    """Of all that was fitted for an action."""
    return [*(["(intercept)"] if analysis.best.has_intercept else []), *analysis.features]


def _coefficients(found: Estimate, a: int) -> tuple[Floats, Floats]:
    """What was fitted for action a, the intercept first if there is one, and standard errors."""
    first = 0 if found.has_intercept else 1
    return np.r_[found.intercept[a], found.theta[a]][first:], np.r_[found.intercept_std_error[a], found.std_error[a]][first:]


def _differences(found: Estimate, a: int, b: int) -> tuple[Floats, Floats]:
    """The same for action a less action b."""
    first, c = 0 if found.has_intercept else 1, found.contrast(a, b)
    return np.r_[c.intercept, c.theta][first:], np.r_[c.intercept_std_error, c.std_error][first:]


def _at_scales(analysis: Analysis, method: str) -> dict[float, Floats]:
    """What a method fits for all actions with each multiple of Σe, (K, p)."""
    first, levels = 0 if analysis.best.has_intercept else 1, analysis.intercept_sensitivity[method]
    return {scale: np.c_[levels[scale], theta][:, first:] for scale, theta in analysis.sensitivity[method].items()}


def _ends(found: tuple[Floats, Floats], level: float) -> Floats:
    """The normal interval of each, (p, 2)."""
    return Contrast(*found).interval(level)


def remarks(analysis: Analysis) -> str:
    """What the table of coefficients cannot show: where the guard decided, and where there is no solution."""
    guarded = _by_action({m: e.guarded for m, e in analysis.estimates.items()})
    missing = _by_action({m: np.isnan(e.theta.sum(axis=1)) for m, e in analysis.estimates.items()})
    words = []
    if guarded:
        words.append(f"Decided by the guard, since Σe is nearly all of x̃ or more: {', '.join(guarded)}. Do not trust these.")
    if missing:
        words.append(f"No solution: {', '.join(missing)}. The data do not identify θ of every action, or not with this Σe.")
    return " ".join(words)


def _by_action(marked: dict[str, Booleans]) -> list[str]:
    """The methods with marked actions, and these."""
    return [f"{method} (action {', '.join(map(str, np.flatnonzero(own)))})" for method, own in marked.items() if own.any()]


def unbiased(analysis: Analysis) -> str:
    """Where the error model unbiases predictions: what x̃ then is; and that Berkson error asks for no correction."""
    model = analysis.error.model
    if model is None or not model.unbiases:
        return ""
    words = f"By the error model ({model.kind}), x̃ is here the unbiased prediction, in ridge as in all methods."
    if model.kind == "berkson":
        words += (
            " With Berkson error, least squares on the predictions as they are needs no correction and varies less: "
            "error_cov=0, methods='ridge' (--error-cov 0 --method ridge)."
        )
    return words


def contrasts(analysis: Analysis, level: float) -> Table:
    """θ_a - θ_b by the estimate to read first with its interval, and what the other methods say; * marks an interval without zero, ? one in
    which the guard decided."""
    best, rows = analysis.best, []
    others = [method for method in analysis.estimates if method != best.method]
    for a, b in contrasts_of(analysis):
        theta, error = _differences(best, a, b)
        values = [_differences(analysis.estimates[method], a, b)[0] for method in others]
        for i, (name, ends) in enumerate(zip(names_of(analysis), _ends((theta, error), level), strict=True)):
            mark = " ?" if best.guarded[[a, b]].any() else "" if not ends[0] * ends[1] > 0 else " *"
            interval = f"[{digits(ends[0], error[i])}, {digits(ends[1], error[i])}]{mark}"
            rows.append([f"{a} - {b}", name, digits(theta[i], error[i]), interval, *(digits(other[i], error[i]) for other in values)])
    return Table(["actions", "feature", best.method, f"{100 * level:g} % interval", *others], rows)


def sensitivity(analysis: Analysis) -> Table:
    """How every difference between actions would change if Σe were another multiple of what was given; ? where the guard decided."""
    best, rows = analysis.best, []
    by_scale, guarded = _at_scales(analysis, best.method), analysis.sensitivity_guarded[best.method]
    for a, b in contrasts_of(analysis):
        se = _differences(best, a, b)[1]
        marks = [" ?" if own[[a, b]].any() else "" for own in guarded.values()]
        for i, name in enumerate(names_of(analysis)):
            values = [digits(found[a, i] - found[b, i], se[i]) + mark for found, mark in zip(by_scale.values(), marks, strict=True)]
            rows.append([f"{a} - {b}", name, *values])
    return Table(["actions", "feature", *(f"{scale:g} Σe" for scale in by_scale)], rows)


def draw_forest(analysis: Analysis, level: float) -> "matplotlib.figure.Figure":
    """Every coefficient by every method: θ by action, and the differences between actions."""
    from matplotlib.figure import Figure

    factors, names = _on_one_axis(analysis)
    panels = [(f"action {a}", {m: _coefficients(e, a) for m, e in analysis.estimates.items()}) for a in range(analysis.n_actions)]
    panels += [
        (f"action {a} - action {b}", {m: _differences(e, a, b) for m, e in analysis.estimates.items()}) for a, b in contrasts_of(analysis)
    ]
    wide, d = min(len(panels), 3), len(names)
    tall = -(-len(panels) // wide)
    figure = Figure(figsize=(3.4 * wide + 1.2, tall * (0.9 + 0.16 * d * (len(analysis.estimates) + 1))), layout="constrained")
    grid = np.atleast_1d(figure.subplots(tall, wide, sharey=True, squeeze=False)).ravel()
    for axes, (title, by_method) in zip(grid, panels, strict=False):
        _forest(axes, {m: (found[0], _ends(found, level)) for m, found in by_method.items()}, factors, names)
        axes.set_title(title, fontsize=10)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(analysis.estimates), frameon=False)
    return figure


def _on_one_axis(analysis: Analysis) -> tuple[Floats, list[str]]:
    """Powers of ten that bring the coefficients of all features to one axis, and names that say so: "steps, per 1,000"."""
    arms = [_coefficients(analysis.best, a) for a in range(analysis.n_actions)]
    reach = np.nan_to_num(np.max([np.abs(theta) + 2 * error for theta, error in arms], axis=0))
    smaller = np.divide(reach.max(), 3 * reach, out=np.ones(reach.size), where=reach > 0)  # up to 30 times is still easy to see
    names, powers = names_of(analysis), np.clip(np.floor(np.log10(smaller)), 0, 9).astype(int)
    powers[: len(names) - len(analysis.features)] = 0  # an intercept is per 1
    return 10.0**powers, [f"{name}, per {10 ** int(k):,}" if k else name for name, k in zip(names, powers, strict=True)]


def _forest(axes: "matplotlib.axes.Axes", by_method: Mapping[str, tuple[Floats, Floats]], factors: Floats, names: list[str]) -> None:
    step = 0.8 / len(by_method)
    for g, (method, (center, interval)) in enumerate(by_method.items()):
        y = np.arange(len(names)) + (g - (len(by_method) - 1) / 2) * step
        half = factors * np.abs(interval.T - center)
        axes.errorbar(factors * center, y, xerr=half, fmt="o", markersize=4, linewidth=1.6, color=COLORS[method], label=method)
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
    by_scale = _at_scales(analysis, best.method)
    factors, names = _on_one_axis(analysis)
    for axes, (a, b) in zip(grid, pairs, strict=True):
        error = factors * _differences(best, a, b)[1]
        lines = np.array([factors * (found[a] - found[b]) for found in by_scale.values()])
        beyond = np.array([own[[a, b]].any() for own in analysis.sensitivity_guarded[best.method].values()])
        lines[beyond & ~beyond.all()] = np.nan
        for i, name in enumerate(names):
            axes.plot(list(by_scale), lines[:, i], marker="o", markersize=3.5, color=f"C{i % 10}", label=in_figure(name))
            axes.fill_between(list(by_scale), lines[:, i] - error[i], lines[:, i] + error[i], color=f"C{i % 10}", alpha=0.12, linewidth=0)
        axes.axvline(1, color="0.6", linewidth=0.8)
        axes.set_xlabel("multiple of Σe")
        axes.set_title(f"action {a} - action {b} ({best.method})", fontsize=10)
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
    for a, own in enumerate(counts):
        left.bar(edges[:-1] + 0.025, own, width=0.046, bottom=bottom, color=f"C{a}", label=f"action {a}")
        bottom += own
    left.set_xlabel("probability of the action that was taken")
    left.set_ylabel("rounds")
    left.legend(frameon=False, fontsize=8)
    found = next(f for f in analysis.diagnostics if f.name == "probability and frequency").values
    stated, observed, rounds = (np.array(found[name], dtype=float) for name in ("stated", "observed", "rounds"))
    right.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    spread = 2 * np.sqrt(stated * (1 - stated) / np.maximum(rounds, 1))
    right.errorbar(stated, observed, yerr=spread, fmt="o", markersize=4, color="#4c78a8")
    right.set_xlabel(f"logged probability of action {analysis.n_actions - 1}")
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
    for i, (name, away) in enumerate(found.items()):
        axes.plot((np.arange(len(away)) + 0.5) / len(away), away, marker="o", markersize=3, color=f"C{i % 10}", label=in_figure(name))
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


def tidy(analysis: Analysis, level: float) -> dict[str, "pd.DataFrame"]:
    """Estimates, contrasts, sensitivity and diagnostics as tidy tables, by name."""
    import pandas as pd

    estimates, differences, scales = [], [], []
    for method, e in analysis.estimates.items():
        by_scale = _at_scales(analysis, method)
        for a in range(analysis.n_actions):
            found = _coefficients(e, a)
            rows = zip(names_of(analysis), *found, _ends(found, level), strict=True)
            estimates += [[method, a, name, value, se, *ends] for name, value, se, ends in rows]
            for i, name in enumerate(names_of(analysis)):
                scales += [[method, a, name, scale, found[a, i]] for scale, found in by_scale.items()]
            for b in range(a):
                found = _differences(e, a, b)
                rows = zip(names_of(analysis), *found, _ends(found, level), strict=True)
                differences += [[method, a, b, name, value, se, *ends] for name, value, se, ends in rows]
    ends = ["theta", "std_error", "low", "high"]
    return {
        "estimates": pd.DataFrame(estimates, columns=["method", "action", "feature", *ends]),
        "contrasts": pd.DataFrame(differences, columns=["method", "action", "minus", "feature", *ends]),
        "sensitivity": pd.DataFrame(scales, columns=["method", "action", "feature", "multiple_of_error_cov", "theta"]),
        "diagnostics": pd.DataFrame([f[:3] for f in analysis.diagnostics], columns=["name", "verdict", "sentence"]),
    }


def headline(analysis: Analysis) -> str:
    """What was analysed, in a sentence or two."""
    error = "an error covariance for each round" if analysis.error.varying else "one error covariance"
    if analysis.error.model is not None:
        exact = [repr(name) for name, variance in zip(analysis.features, np.diag(analysis.error.mean_cov), strict=True) if variance == 0]
        error = f"an error model ({analysis.error.model.kind}" + (f"; no error in {', '.join(exact)})" if exact else ")")
    clusters = f", standard errors clustered by {analysis.units:,} units" if analysis.units else ""
    aside = "" if not analysis.faults else " 1 row was set aside." if analysis.faults == 1 else f" {analysis.faults:,} rows were set aside."
    features = "1 feature" if len(analysis.features) == 1 else f"{len(analysis.features)} features"
    return (
        f"{analysis.rounds:,} rounds, {analysis.n_actions} actions, {features}, {error}{clusters}; "
        f"mean reward {analysis.mean_reward:.4g}.{aside}"
    )


def describe(analysis: Analysis, level: float = 0.95) -> str:
    """The tables and verdicts as text."""
    lines = [f"{f.verdict:7s} {f.name}: {f.sentence}" for f in analysis.diagnostics]
    tables = [coefficients(analysis).as_text(), remarks(analysis), unbiased(analysis), contrasts(analysis, level).as_text()]
    return "\n\n".join([headline(analysis), *filter(None, tables), "\n".join(lines)])


TABLES = ("estimates", "contrasts", "sensitivity", "diagnostics")
FIGURES = ("forest", "sensitivity", "propensities", "drift")
FILES = ("fit.json", *(f"{name}.csv" for name in TABLES), *(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")), "report.html")
"""what is written to a folder"""


def write(analysis: Analysis, folder: Path, *, level: float, command: str, seconds: float) -> Path:
    """Everything into a folder: fit.json, a CSV for each table, a PNG and an SVG for each figure, and report.html; returns the page."""
    figures = pictures(analysis, level)
    contents: dict[str, str | bytes] = {"fit.json": analysis.to_json(level) + "\n"}
    contents |= {f"{name}.csv": as_csv(table) for name, table in tidy(analysis, level).items()}
    contents |= {f"{name}.{kind}": content for name, drawn in figures.items() for kind, content in drawn._asdict().items()}
    page = Page("What the log says").text(headline(analysis))
    grave = [f for f in analysis.diagnostics if f.verdict == "red"]
    if grave:
        page.text("Settle this first, it makes the estimates doubtful.").verdicts([(f.verdict, f.name, f.sentence) for f in grave])
    page.heading("Coefficients").text(
        f"θ ± standard error. Intervals in the figure are of {100 * level:g} %. Read {analysis.best.method} first; the others are there "
        "to see what the error does, and whether it matters how it is taken out."
    )
    page.table(coefficients(analysis))
    if remarks(analysis):
        page.text(remarks(analysis))
    page.picture(figures["forest"])
    page.table(Table(["method", "what it is"], [[method, SAYS[method]] for method in analysis.estimates]))
    if unbiased(analysis):
        page.text(unbiased(analysis))
    page.heading("Differences between actions").text(
        "What one action does more than another; * marks an interval without zero, ? one in which the guard decided: do not trust it."
    )
    page.table(contrasts(analysis, level))
    page.heading("If the error were larger or smaller").text(
        "The same differences with another multiple of the error covariance. Where a line is steep, much depends on Σe. "
        "Bands are one standard error, that of the estimate with 1 Σe. Where ? stands, x̃ varies less than its error would, and the guard "
        "decided; lines end before."
    )
    page.table(sensitivity(analysis)).picture(figures["sensitivity"])
    page.heading("Diagnostics").verdicts([(f.verdict, f.name, f.sentence) for f in analysis.diagnostics])
    page.picture(figures["propensities"]).picture(figures["drift"])
    write_together(folder, contents | {"report.html": page.render(command=command, seconds=seconds)})
    return folder / "report.html"
