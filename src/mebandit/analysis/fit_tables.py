"""The tables of an analysis."""

from typing import TYPE_CHECKING

import numpy as np

from mebandit.analysis.fit_result import Analysis
from mebandit.estimation.result import Estimate, t_interval
from mebandit.reports.table import Table
from mebandit.values import Floats

if TYPE_CHECKING:
    import pandas as pd


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
    """A number above its standard error; a dash where it means nothing."""
    if not np.isfinite(value):
        return "-"
    return f"{digits(value, std_error)}\n±{digits(std_error, std_error)}"


def contrasts_of(analysis: Analysis) -> list[tuple[int, int]]:
    """Which differences between actions are shown: all if there are few actions, else those with action 0."""
    k = analysis.n_actions
    return [(a, b) for a in range(k) for b in range(a)] if k <= 3 else [(a, 0) for a in range(1, k)]


def pair_name(analysis: Analysis, a: int, b: int) -> str:
    """The difference between two actions, by their labels or numbers."""
    return f"{analysis.called(a)} - {analysis.called(b)}"


def meaningful(analysis: Analysis, found: Estimate, actions: list[int], values: Floats) -> Floats:
    """Numbers of some actions, NaN where the guard decided them, unless stabilised estimates were asked for."""
    hidden = analysis.settings.get("guard") != "always" and bool(found.guarded[actions].any())
    return np.full_like(values, np.nan) if hidden else values


def coefficients(analysis: Analysis) -> Table:
    """θ ± its standard error, a row for each action and feature, a column for each method."""
    rows = []
    for a in range(analysis.n_actions):
        found = [(meaningful(analysis, e, [a], theta), error) for e in analysis.estimates.values() for theta, error, _ in [fitted(e, a)]]
        for i, name in enumerate(names_of(analysis)):
            rows.append([analysis.called(a), name, *(pair(theta[i], error[i]) for theta, error in found)])
    return Table(["action", "feature", *analysis.estimates], rows)


def names_of(analysis: Analysis) -> list[str]:
    """Of all that was fitted for an action."""
    return [*(["(intercept)"] if analysis.best.has_intercept else []), *analysis.features]


def fitted(found: Estimate, a: int) -> tuple[Floats, Floats, Floats]:
    """What was fitted for action a, the intercept first if there is one, standard errors, and their degrees of freedom."""
    first = 0 if found.has_intercept else 1
    errors = np.r_[found.intercept_std_error[a], found.std_error[a]]
    return np.r_[found.intercept[a], found.theta[a]][first:], errors[first:], np.r_[found.intercept_df[a], found.df[a]][first:]


def difference(found: Estimate, a: int, b: int) -> tuple[Floats, Floats, Floats]:
    """The same for action a less action b."""
    first, c = 0 if found.has_intercept else 1, found.contrast(a, b)
    df = np.r_[c.intercept_df, np.broadcast_to(c.df, c.theta.shape)]
    return np.r_[c.intercept, c.theta][first:], np.r_[c.intercept_std_error, c.std_error][first:], df[first:]


def at_scales(analysis: Analysis, method: str) -> dict[float, Floats]:
    """What a method fits for all actions with each multiple of Σe, (K, p)."""
    first, levels = 0 if analysis.best.has_intercept else 1, analysis.intercept_sensitivity[method]
    return {scale: np.c_[levels[scale], theta][:, first:] for scale, theta in analysis.sensitivity[method].items()}


def interval_ends(found: tuple[Floats, Floats, Floats], level: float) -> Floats:
    """The interval of each, by Student's t, (p, 2)."""
    return t_interval(*found, level)


def contrasts(analysis: Analysis, level: float) -> Table:
    """θ_a - θ_b by the estimate to read first with its interval, and what the other methods say; * marks an interval that excludes
    zero, a dash a number that means nothing."""
    best, rows = analysis.best, []
    others = [method for method in analysis.estimates if method != best.method]
    for a, b in contrasts_of(analysis):
        theta, error, df = difference(best, a, b)
        theta = meaningful(analysis, best, [a, b], theta)
        values = [meaningful(analysis, own, [a, b], difference(own, a, b)[0]) for own in (analysis.estimates[method] for method in others)]
        for i, (name, ends) in enumerate(zip(names_of(analysis), interval_ends((theta, error, df), level), strict=True)):
            mark = " *" if ends[0] * ends[1] > 0 else ""
            interval = f"[{digits(ends[0], error[i])}, {digits(ends[1], error[i])}]{mark}" if np.isfinite(theta[i]) else "-"
            rows.append(
                [pair_name(analysis, a, b), name, digits(theta[i], error[i]), interval, *(digits(other[i], error[i]) for other in values)]
            )
    return Table(["actions", "feature", best.method, f"{100 * level:g} % interval", *others], rows)


def sensitivity(analysis: Analysis) -> Table:
    """How every difference between actions would change with other multiples of Σe; a dash stands for stabilised estimates."""
    best, rows = analysis.best, []
    by_scale, guarded = at_scales(analysis, best.method), analysis.sensitivity_guarded[best.method]
    for a, b in contrasts_of(analysis):
        se = difference(best, a, b)[1]
        hidden = [analysis.settings.get("guard") != "always" and bool(own[[a, b]].any()) for own in guarded.values()]
        for i, name in enumerate(names_of(analysis)):
            values = ["-" if no else digits(found[a, i] - found[b, i], se[i]) for found, no in zip(by_scale.values(), hidden, strict=True)]
            rows.append([pair_name(analysis, a, b), name, *values])
    return Table(["actions", "feature", *(f"{scale:g} Σe" for scale in by_scale)], rows)


def joint_tests(analysis: Analysis) -> Table:
    """The joint tests of the estimate to read first; a dash where the data do not allow one, or the guard decided the coefficients."""
    rows = []
    for hypothesis, test in analysis.joint_tests():
        shown = ["-"] * 3
        if test is not None and (analysis.settings.get("guard") == "always" or not analysis.best.guarded.any()):
            of = f"{test.denominator_df:.1f}" if np.isfinite(test.denominator_df) else "∞"
            shown = [f"{test.statistic:.2f}", f"{test.df}, {of}", f"{test.p_value:.4f}" if test.p_value >= 1e-4 else "< 0.0001"]
        rows.append([hypothesis, *shown])
    return Table(["hypothesis", "Wald statistic", "degrees of freedom", "p"], rows)


def tidy(analysis: Analysis, level: float) -> dict[str, "pd.DataFrame"]:
    """Estimates, contrasts, sensitivity and diagnostics as tidy tables, by name."""
    import pandas as pd

    estimates, differences, scales = [], [], []
    named = analysis.actions or range(analysis.n_actions)
    for method, e in analysis.estimates.items():
        by_scale = at_scales(analysis, method)
        for a in range(analysis.n_actions):
            found = fitted(e, a)
            rows = zip(names_of(analysis), *found[:2], interval_ends(found, level), strict=True)
            estimates += [[method, named[a], name, value, se, *ends] for name, value, se, ends in rows]
            for i, name in enumerate(names_of(analysis)):
                scales += [[method, named[a], name, scale, found[a, i]] for scale, found in by_scale.items()]
            for b in range(a):
                found = difference(e, a, b)
                rows = zip(names_of(analysis), *found[:2], interval_ends(found, level), strict=True)
                differences += [[method, named[a], named[b], name, value, se, *ends] for name, value, se, ends in rows]
    ends = ["theta", "std_error", "low", "high"]
    return {
        "estimates": pd.DataFrame(estimates, columns=["method", "action", "feature", *ends]),
        "contrasts": pd.DataFrame(differences, columns=["method", "action", "minus", "feature", *ends]),
        "sensitivity": pd.DataFrame(scales, columns=["method", "action", "feature", "multiple_of_error_cov", "theta"]),
        "diagnostics": pd.DataFrame([f[:3] for f in analysis.diagnostics], columns=["name", "verdict", "sentence"]),
    }
