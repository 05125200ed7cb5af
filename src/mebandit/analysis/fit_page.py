"""An analysis for people: what a terminal shows, and a folder with tables, figures and a page."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from mebandit.analysis.fit_figures import pictures
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.fit_tables import coefficients, contrasts, digits, joint_tests, meaningful, pair_name, sensitivity, tidy
from mebandit.analysis.plain import without_nan
from mebandit.analysis.sequence import ConfidenceSequence
from mebandit.estimation.result import LEAST_KAPPA
from mebandit.reports.figures import as_pdf, picture
from mebandit.reports.page import Page
from mebandit.reports.table import Table
from mebandit.runtime.escaping import as_csv
from mebandit.runtime.files import write_together
from mebandit.values import Booleans

SAYS = {
    "ridge": "least squares on x̃, as if it were x: attenuated towards zero",
    "naive": "the textbook correction of least squares: biased, because the actions depend on x̃",
    "meb": "the paper's estimator: weighted by 1/π, corrected for Σe",
    "dr": "doubly robust: like meb, and also uses the rounds of the other actions",
    "rc": "regression calibration: least squares on the best linear predictor of x; consistent if E[x | x̃] is linear",
}


def remarks(analysis: Analysis) -> str:
    """What the table of coefficients cannot show: which estimates are stabilised, and which have no solution."""
    guarded = _by_action(analysis, {m: e.guarded for m, e in analysis.estimates.items()})
    missing = _by_action(analysis, {m: np.isnan(e.theta.sum(axis=1)) for m, e in analysis.estimates.items()})
    words = []
    if guarded:
        reason = "because Σe is nearly as large as the variation of x̃, or larger"
        words.append(f"Stabilised (Fuller-type) estimates, {reason}: {', '.join(guarded)}. Do not rely on these.")
        if analysis.settings.get("guard") != "always":
            words.append("The tables have a dash in their place; the files have their numbers.")
    withheld = _by_action(analysis, {m: e.without_interval for m, e in analysis.estimates.items()})
    if withheld:
        reason = f"the guard took off less than {100 * LEAST_KAPPA:g} % of Σe, since the effective rounds are few, which biases them"
        words.append(f"No intervals: {', '.join(withheld)}: {reason}.")
    if missing:
        words.append(f"No solution: {', '.join(missing)}. The data do not identify θ of these actions, at least not with this Σe.")
    return " ".join(words)


def averages(analysis: Analysis, level: float) -> str:
    """The average effect of each action against the first, in a sentence each, as far as the guard did not decide it."""
    words = []
    for a in range(1, analysis.n_actions):
        effect = analysis.average_effect(a, 0)
        if np.isfinite(meaningful(analysis, analysis.best, [a, 0], np.array([effect.value]))).all():
            value, low, high = (digits(number, effect.std_error) for number in (effect.value, *effect.interval(level)))
            words.append(f"{pair_name(analysis, a, 0)} {value} [{low}, {high}]")
    if not words:
        return ""
    return f"Average effect over the rounds of the log, by {analysis.best.method}: {'; '.join(words)}.{_together(analysis, level)}"


def _together(analysis: Analysis, level: float) -> str:
    """The same intervals so that all of them hold together, where there are several and the guard decided none."""
    if analysis.n_actions < 3 or (analysis.settings.get("guard") != "always" and analysis.best.guarded.any()):
        return ""
    found = analysis.average_effects()
    ends = [
        f"{pair_name(analysis, a, 0)} [{digits(low, effect.std_error)}, {digits(high, effect.std_error)}]"
        for a, (effect, (low, high)) in enumerate(zip(found.effects, found.interval(level), strict=True), 1)
    ]
    return f" Intervals that hold together with {100 * level:g} %: {'; '.join(ends)}."


def _by_action(analysis: Analysis, marked: dict[str, Booleans]) -> list[str]:
    """The methods with marked actions, and these."""
    named = {method: ", ".join(analysis.called(int(a)) for a in np.flatnonzero(own)) for method, own in marked.items() if own.any()}
    return [f"{method} (action {actions})" for method, actions in named.items()]


def unbiased(analysis: Analysis) -> str:
    """Where the error model corrects a bias: which prediction the methods use; and that Berkson error needs no correction."""
    model = analysis.error.model
    if model is None or not model.unbiases:
        return ""
    words = f"All methods, including ridge, use the bias-corrected prediction (error model: {model.kind})."
    if model.kind == "berkson":
        words += (
            " With Berkson error, least squares on the uncorrected predictions is unbiased and has a smaller variance: "
            "the method ridge with the error covariance 0."
        )
    return words


def headline(analysis: Analysis) -> str:
    """What was analysed, in a sentence or two."""
    error = "an error covariance for each round" if analysis.error.varying else "one error covariance"
    if analysis.error.model is not None:
        exact = [repr(name) for name, variance in zip(analysis.features, np.diag(analysis.error.mean_cov), strict=True) if variance == 0]
        error = f"an error model ({analysis.error.model.kind}" + (f"; no error in {', '.join(exact)})" if exact else ")")
    clusters = f", standard errors clustered by {analysis.units:,} units" if analysis.units else ""
    aside = "" if not analysis.faults else " 1 row was set aside." if analysis.faults == 1 else f" {analysis.faults:,} rows were set aside."
    if analysis.left_out is not None and analysis.left_out.unavailable:
        aside += f" {analysis.left_out.unavailable:,} rows without an available participant were left out."
    if analysis.left_out is not None and analysis.left_out.missing.any():
        aside += f" {analysis.left_out.missing.sum():,.0f} rows without an outcome were left out."
    if analysis.references:
        aside += f" Reference: {', '.join(f'{name}={label}' for name, label in analysis.references.items())}."
    actions = f"{analysis.n_actions} actions" + (f" ({', '.join(analysis.actions)})" if analysis.actions else "")
    features = "1 feature" if len(analysis.features) == 1 else f"{len(analysis.features)} features"
    return f"{analysis.rounds:,} rounds, {actions}, {features}, {error}{clusters}; mean reward {analysis.mean_reward:.4g}.{aside}"


def describe(analysis: Analysis, level: float = 0.95) -> str:
    """The tables and verdicts as text."""
    lines = [f"{f.verdict:7s} {f.name}: {f.sentence}" for f in analysis.diagnostics]
    tables = [coefficients(analysis).as_text(), remarks(analysis), unbiased(analysis), contrasts(analysis, level).as_text()]
    tables.append(averages(analysis, level))
    tables.append(joint_tests(analysis).as_text())
    return "\n\n".join([headline(analysis), *filter(None, tables), "\n".join(lines)])


def _over_time(page: Page, looks: ConfidenceSequence) -> dict[str, str | bytes]:
    """The bands over time on the page, and as files."""
    drawn = picture(looks.plot())
    page.heading("Over time").text(
        "The differences between actions as the log grew. The bands hold at all looks together: one may look as often as one likes, and "
        "stop at any look. The dashed lines are the intervals of one look alone, which do not bear that."
    )
    for line in str(looks).splitlines():
        page.text(line)
    page.picture(drawn, "Estimates, bands that hold at every look, and one-look intervals (dashed). The first bands leave the frame.")
    return {"anytime.csv": as_csv(looks.table()), "anytime.png": drawn.png, "anytime.svg": drawn.svg}


TABLES = ("estimates", "contrasts", "sensitivity", "diagnostics")
FIGURES = ("forest", "sensitivity", "propensities", "drift")
FILES = (
    "fit.json",
    *(f"effects.{kind}" for kind in ("pdf", "svg", "png")),
    *(f"{name}.csv" for name in TABLES),
    *(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")),
    "report.html",
)
"""what is written to a folder"""


ANYTIME = ("anytime.csv", "anytime.png", "anytime.svg")
"""the same of bands over time, if they were asked for"""


def as_json(analysis: Analysis, level: float, looks: ConfidenceSequence | None) -> str:
    """`Analysis.to_json`, with the bands over time if there are any, under "anytime"."""
    if looks is None:
        return analysis.to_json(level)
    return json.dumps(analysis.to_plain(level) | {"anytime": without_nan(looks.to_plain())}, allow_nan=False, indent=2)


def write(analysis: Analysis, folder: Path, *, level: float, command: str, seconds: float, looks: ConfidenceSequence | None = None) -> Path:
    """Everything into a folder: fit.json, a CSV for each table, a PNG and an SVG for each figure, and report.html; returns the page."""
    figures = pictures(analysis, level)
    contents: dict[str, str | bytes] = {"fit.json": as_json(analysis, level, looks) + "\n"}
    contents |= {f"{name}.csv": as_csv(table) for name, table in tidy(analysis, level).items()}
    contents |= {f"{name}.{kind}": content for name, drawn in figures.items() for kind, content in drawn._asdict().items()}
    effects = analysis.plot(level=level)
    drawn = picture(effects)
    contents |= {"effects.pdf": as_pdf(effects), "effects.svg": drawn.svg, "effects.png": drawn.png}
    page = Page("What the log says").text(headline(analysis))
    grave = [f for f in analysis.diagnostics if f.verdict == "red"]
    if grave:
        page.text("Resolve this first: the estimates are doubtful until then.").verdicts([(f.verdict, f.name, f.sentence) for f in grave])
    page.heading("Coefficients").text(
        f"θ ± standard error. The figure shows {100 * level:g} % intervals. Read {analysis.best.method} first; the other methods show what "
        "the error does, and whether the choice of correction matters."
    )
    page.table(replace(coefficients(analysis), hints=SAYS))
    if remarks(analysis):
        page.text(remarks(analysis))
    page.picture(figures["forest"], "Every coefficient by every method, with intervals; the table above has the numbers.")
    page.table(Table(["method", "what it is"], [[method, SAYS[method]] for method in analysis.estimates]))
    if unbiased(analysis):
        page.text(unbiased(analysis))
    page.heading("Differences between actions").text(
        averages(analysis, level) + " The table has the differences in effect between actions: * marks an interval that excludes zero; a "
        "dash stands for numbers that mean nothing."
    )
    page.table(replace(contrasts(analysis, level), hints=SAYS)).picture(
        drawn, "The average effect and what each feature changes of it, with intervals."
    )
    page.text(
        "The figure has the average effect over the rounds of the log, and what each feature changes of it. effects.pdf, effects.svg and "
        "effects.png are made to be printed."
    )
    if looks is not None:
        contents |= _over_time(page, looks)
    page.heading("Joint tests").text(
        "Wald tests of several coefficients at once, by Fisher's F with the degrees of freedom of the standard errors as denominator. "
        "No difference: the actions have the same coefficients. No moderation: no feature changes the difference."
    )
    page.table(joint_tests(analysis))
    page.heading("If the error were larger or smaller").text(
        "The same differences with other multiples of the error covariance. Where a line is steep, the result is sensitive to Σe. "
        "Bands are one standard error of the estimate with 1 Σe. A dash stands for stabilised estimates, where x̃ varies less than its "
        "error would. Lines end before them."
    )
    page.table(sensitivity(analysis)).picture(
        figures["sensitivity"], "The same numbers as lines against the multiple of the error covariance."
    )
    page.heading("Diagnostics").verdicts([(f.verdict, f.name, f.sentence) for f in analysis.diagnostics])
    page.picture(figures["propensities"], "How probable the actions taken were, and how often each came at each logged probability.")
    page.picture(figures["drift"], "The mean of each feature over the log, in its standard deviations.")
    write_together(folder, contents | {"report.html": page.render(command=command, seconds=seconds)})
    return folder / "report.html"
