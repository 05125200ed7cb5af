"""The values of policies as tables, a figure and a page: terminal, files and report show the same."""

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING

from mebandit.analysis.value_result import ESTIMATORS, Figure, Values
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import picture
from mebandit.reports.page import Page
from mebandit.reports.table import Table
from mebandit.runtime.escaping import as_csv, in_figure
from mebandit.runtime.files import write_together

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd


def headline(values: Values) -> str:
    """Which rounds were used, and the value of the logged policy, in a sentence or two."""
    one = next(iter(values.values()))
    units = f" of {one.units:,} units" if one.units else ""
    before = f" after the first {values.first:,} rows, which were used to estimate the rule" if values.first else ""
    aside = f" {values.faults:,} rows were set aside." if values.faults else ""
    return (
        f"{one.rounds:,} rounds{units}{before}. The logged policy earned {_words(one.logged, one.level, _digits(values))} per round.{aside}"
    )


def table(values: Values) -> Table:
    """One row for each policy and estimator."""
    digits, rows = _digits(values), []
    for name, found in values.items():
        for estimator, own in found.estimates.items():
            cells = _cells(own, found.level, digits) + _cells(own.difference, found.level, digits)
            rows.append([name, estimator, *cells, f"{found.effective:,.0f}"])
    header = ["policy", "estimator", "value", "± s.e.", "from", "to", "difference", "± s.e.", "from", "to", "effective sample size"]
    return Table(header, rows, best={(i, 2) for i, row in enumerate(rows) if row[1] == "dr"})


def brief(values: Values) -> Table:
    """The table in a form narrow enough for a terminal."""
    rows = [[row[0] if row[1] == ESTIMATORS[0] else "", row[1], row[2], *row[4:7], *row[8:10]] for row in table(values).rows]
    return Table(["policy", "estimator", "value", "from", "to", "difference", "from", "to"], rows)


def differences(values: Values, estimators: Sequence[str] = ESTIMATORS) -> Table:
    """The differences in value between all pairs of policies, from the same rounds."""
    level, rows = next(iter(values.values())).level, []
    found = [(a, b, e, values.contrast(a, b, e)) for a, b in values.pairs for e in estimators]
    least = min((figure.std_error for *_, figure in found if figure.std_error > 0), default=1.0)
    digits = min(max(1 - floor(log10(least)), 0), 8)
    for a, b, estimator, figure in found:
        low, high = figure.interval(level)
        rows.append([a, b, estimator, *_cells(figure, level, digits), "*" if low * high > 0 else ""])
    return Table(["policy", "minus", "estimator", "difference", "± s.e.", "from", "to", ""], rows)


def anytime(values: Values) -> Table:
    """Intervals that hold at every look, a row for each policy; empirical-Bernstein ones where the bounds of the rewards were given."""
    digits, level = _digits(values), next(iter(values.values())).level
    rows = []
    for name, found in values.items():
        low, high = found.best.interval(level, anytime=True)
        bounded = [f"{end:.{digits}f}" for end in found.band.last] if found.band is not None else []
        rows.append([name, f"{found.best.value:.{digits}f}", f"{low:.{digits}f}", f"{high:.{digits}f}", *bounded])
    bounded = ["bounded rewards, from", "to"] if any(found.band is not None for found in values.values()) else []
    return Table(["policy", "dr", "from", "to", *bounded], rows)


def _digits(values: Values) -> int:
    """Decimals that show two figures of the smallest standard error of a value."""
    least = min((own.std_error for found in values.values() for own in found.estimates.values() if own.std_error > 0), default=1.0)
    return min(max(1 - floor(log10(least)), 0), 8)


def _cells(figure: Figure, level: float, digits: int) -> list[str]:
    return [f"{number + 0.0:.{digits}f}" for number in (figure.value, figure.std_error, *figure.interval(level))]


def _words(figure: Figure, level: float, digits: int) -> str:
    value, _, low, high = _cells(figure, level, digits)
    return f"{value} ({low} to {high})"


def notes(values: Values) -> list[str]:
    """What makes a value doubtful, by policy."""
    return [f"{name}: {words}" for name, found in values.items() for words in found.warnings]


def forest(values: Values) -> "matplotlib.figure.Figure":
    """Values with their intervals by policy and estimator; the line is what the logged policy earned."""
    from matplotlib.figure import Figure as Canvas

    one = next(iter(values.values()))
    figure = Canvas(figsize=(7.5, 1.2 + 0.62 * len(values)), layout="constrained")
    axes = figure.subplots()
    low, high = one.logged.interval(one.level)
    colours = colours_of(ESTIMATORS)
    axes.axvspan(low, high, color="#6b7480", alpha=0.25, lw=0)
    axes.axvline(one.logged.value, color="#6b7480", lw=1, label="logged policy")
    for j, estimator in enumerate(ESTIMATORS):
        for i, found in enumerate(values.values()):
            own = found.estimates[estimator]
            start, stop = own.interval(found.level)
            at = i + 0.22 * (j - 1)
            axes.plot([start, stop], [at, at], color=colours[estimator], lw=2, label=estimator if i == 0 else None)
            axes.plot(own.value, at, "o", color=colours[estimator], ms=4.5)
    axes.set_yticks(range(len(values)), list(map(in_figure, values)))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlabel(f"reward per round, {100 * one.level:g} % intervals")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


FILES = ("value.json", "value.csv", "differences.csv", "value.png", "value.svg", "value.html")
"""what is written to a folder"""


def write(values: Values, folder: Path, *, command: str, seconds: float) -> Path:
    """value.json, value.csv, the figure and the page."""
    figure, shown = forest(values), table(values)
    drawn = picture(figure)
    page = Page("What policies would have earned").text(headline(values)).table(shown)
    page.figure(figure, "The value of each policy by each estimator, with intervals, beside that of the logged policy.")
    for words in notes(values):
        page.text(words)
    page.text(
        "ips: inverse propensity score estimate, the mean of ρ r with ρ the policy's probability divided by the logged one. "
        "snips: self-normalised, Σ ρ r / Σ ρ. dr: doubly robust, a regression of the reward on the prediction, corrected by weighted "
        "residuals; read this one first. difference: from the value of the logged policy, estimated from the same rounds."
    )
    if values.pairs:
        page.heading("Differences between policies").table(differences(values))
        page.text("The first policy less the second, from the same rounds, so that common noise cancels. * marks an interval without zero.")
    contents: dict[str, str | bytes] = {
        "value.json": values.to_json() + "\n",
        "value.csv": as_csv(tidy(values)),
        "differences.csv": as_csv(tidy_differences(values)),
        "value.png": drawn.png,
        "value.svg": drawn.svg,
    }
    write_together(folder, contents | {"value.html": page.render(command=command, seconds=seconds)})
    return folder / "value.html"


def tidy(values: Values) -> "pd.DataFrame":
    """The numbers in full, a row for each policy and estimator."""
    import pandas as pd

    figures = ("value", "std_error", "low", "high")
    rows = []
    for name, found in values.items():
        for estimator, own in found.estimates.items():
            more = own.difference
            numbers = [own.value, own.std_error, *own.interval(found.level), more.value, more.std_error, *more.interval(found.level)]
            rows.append([name, estimator, *numbers])
    header = ["policy", "estimator", *figures, "difference", *(f"difference_{figure}" for figure in figures[1:])]
    return pd.DataFrame(rows, columns=header)


def tidy_differences(values: Values) -> "pd.DataFrame":
    """The differences between policies in full, a row for each pair and estimator."""
    import pandas as pd

    level = next(iter(values.values())).level
    rows = []
    for a, b in values.pairs:
        for estimator in ESTIMATORS:
            figure = values.contrast(a, b, estimator)
            rows.append([a, b, estimator, figure.value, figure.std_error, *figure.interval(level)])
    return pd.DataFrame(rows, columns=["policy", "minus", "estimator", "difference", "std_error", "low", "high"])
