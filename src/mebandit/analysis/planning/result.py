"""What `plan` returns: a number of rounds, why that number, and how it is shown."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mebandit.analysis.plain import without_nan
from mebandit.analysis.planning.accuracy import Accuracy, quantile
from mebandit.analysis.planning.duration import Duration
from mebandit.analysis.planning.formulas import Design
from mebandit.analysis.planning.goal import Goal
from mebandit.reports.figures import save_figure
from mebandit.reports.page import Page
from mebandit.reports.table import Table

if TYPE_CHECKING:
    import matplotlib.figure

POWERS = (0.7, 0.8, 0.9, 0.95)
WIDTHS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""multiples of the wanted half-width, for the table"""
LONGEST, LARGEST = 500_000, 2e7
"""trials of more rounds, or of more numbers in their Σe,t, are not simulated"""


class Check(NamedTuple):
    """What simulated trials of some number of rounds gave, with Monte-Carlo standard errors."""

    rounds: int
    replicates: int
    power: float
    power_se: float
    half_width: float
    half_width_se: float
    coverage: float
    coverage_se: float
    unidentified: int
    """trials in which θ was not identified; they count as not significant and not covering"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A number of rounds for a trial, and the reasons for it."""

    rounds: int
    """the planned number: that of the formula, raised if simulated trials fell short"""
    formula: int
    """by formula alone"""
    worst: int | None
    """by formula if every action always had the floor's probability: an upper bound for any policy with this floor"""
    simulated: tuple[Check, ...]
    """by number of rounds; empty if nothing was simulated"""
    goal: Goal
    """what the trial is for: a half-width or a power, and for which coefficient"""
    method: str
    """how the trial will be analysed: "dr", "meb" or "rc", as in `plan`"""
    accuracy: Accuracy
    """the variance of the estimate after any number of rounds, design effect included"""
    design_effect: float
    """the factor by which correlated rounds within users increase the variance; 1: rounds are independent"""
    design: Design | None
    """the assumed world and policy; None: the plan is from a pilot"""
    pilot_rounds: int = 0
    """rounds of the pilot; 0 (the default): no pilot"""
    pilot_units: int = 0
    """participants or clusters of the pilot; 0 (the default): no pilot, or its rounds are independent"""
    duration: Duration | None = None
    """how long the trial is for each participant; None (the default): the plan is in rounds"""

    @property
    def participants(self) -> int | None:
        """The number of participants; None if the plan is in rounds."""
        return None if self.duration is None else self.duration.participants(self.rounds)

    @property
    def at_rounds(self) -> Check | None:
        """What simulated trials of `rounds` rounds gave."""
        n = independent(self.rounds, self.design_effect)
        return next((check for check in self.simulated if check.rounds == n), None)

    def describe(self) -> str:
        """The plan in words."""
        words = [self._asked, self._found]
        if self.design_effect > 1:
            words.append(f"A design effect of {self.design_effect:.2f} for correlated rounds within users is included.")
        check = self.at_rounds
        if check is not None:
            words.append(_in_words(check, self))
        elif self.design is None:
            least = quantile(1 - self.goal.alpha / 2) * np.sqrt(self.accuracy.fixed)
            if least > 0.01 * (abs(self.goal.effect) if self.goal.tests else self.goal.target):
                words.append(f"The error model is uncertain too: no number of rounds brings the half-width below {least:.3g}.")
            if self.pilot_units > 1:
                words.append(self._doubt)
            words.append("A pilot shows how variable the estimate is, but not how contexts are distributed, so no trials were simulated.")
        else:
            words.append(
                "No trials were simulated."
                if can_be_simulated(self.rounds, self.design.dim)
                else "Trials of that many rounds are too long to be simulated."
            )
        return " ".join(words)

    @property
    def _doubt(self) -> str:
        """What the uncertainty of a clustered standard error, 1/√(2 m) of it for m degrees of freedom, does to the plan."""
        off = 1 / np.sqrt(2 * self.accuracy.pilot_df)
        words = f"The pilot's standard error, from {self.pilot_units:,} participants, is itself uncertain by about {100 * off:.0f} %"
        if not self.goal.tests:
            return f"{words}, and so is the half-width."
        ends = [self.goal.reached(self.accuracy.if_variance_were((1 + sign * off) ** 2), self.rounds) for sign in (1, -1)]
        on_average = "The power is on average over pilots of this size"
        return (
            f"{words}. {on_average}; if this one is that much too small or too large, it is {100 * ends[0]:.0f} or {100 * ends[1]:.0f} %."
        )

    @property
    def _asked(self) -> str:
        goal = self.goal
        if goal.tests:
            return f"To detect {goal.name} = {goal.effect:g} at level {goal.alpha:g} with power {goal.power:g}, estimated by {self.method}:"
        sure = "" if goal.assurance is None else f" at most, with a probability of {100 * goal.assurance:g} %"
        interval = f"a {100 * (1 - goal.alpha):g} % interval of {goal.name} with half-width {goal.half_width:g}{sure}"
        return f"For {interval}, estimated by {self.method}:"

    @property
    def _found(self) -> str:
        source = "by formula" if self.design is not None else f"from a pilot of {self.pilot_rounds:,} rounds"
        if self.pilot_units and self.duration is not None:
            source += f" of {self.pilot_units:,} participants"
        elif self.pilot_units:
            units = max(-(-self.rounds * self.pilot_units // self.pilot_rounds), 2)  # one says nothing of the spread between them
            source += f" of {self.pilot_units:,} participants: about {units:,} participants with the pilot's number of rounds each"
        raised = (
            "" if self.rounds == self.formula else f" ({self.formula:,} {source}; raised because simulated trials fell short of the goal)"
        )
        bound = "" if self.worst is None else f" If every action always had the floor's probability, {self.worst:,} rounds would be needed."
        if self.duration is not None:
            return (
                f"{self.participants:,} participants x {self.duration.describe()}: {self.rounds:,} rounds{raised or ' ' + source}.{bound}"
            )
        return f"{self.rounds:,} rounds{raised or ' ' + source}.{bound}"

    def needed(self) -> Table:
        """Rounds for several powers or half-widths, by formula times what the simulation added."""
        goal, raised = self.goal, self.rounds / self.formula
        aims = sorted({*POWERS, goal.power}) if goal.tests else [goal.target * m for m in WIDTHS]
        counts = [goal.rounds(self.accuracy, aim) for aim in aims]
        rows = [[f"{aim:.3g}", *(f"{round(n):,}" if n else "never" for n in (m, m * raised))] for aim, m in zip(aims, counts, strict=True)]
        header = ["power" if goal.tests else "half-width", "rounds by formula", "rounds to plan for"]
        if self.duration is not None:
            header.append("participants")
            for row, n in zip(rows, counts, strict=True):
                row.append(f"{self.duration.participants(n * raised):,}" if n else "never")
        best = {(i, j) for i, aim in enumerate(aims) if aim == goal.target for j in range(len(header))}
        return Table(header, rows, best)

    def checked(self) -> Table:
        """The simulated trials."""
        rows = []
        for c in self.simulated:
            expected = self.goal.reached(self.accuracy, c.rounds * self.design_effect)
            found, se = (c.power, c.power_se) if self.goal.tests else (c.half_width, c.half_width_se)
            shown = [f"{found:.3g} ± {se:.2g}", f"{100 * c.coverage:.1f} ± {100 * c.coverage_se:.1f}"]
            rows.append([f"{c.rounds:,}", f"{expected:.3g}", *shown])
        what = "power" if self.goal.tests else "half-width"
        rounds = "rounds" if self.design_effect == 1 else "independent rounds"
        return Table([rounds, f"{what} by formula", f"{what} simulated", "coverage, %"], rows)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        goal = {name: getattr(self.goal, name) for name in self.goal.__dataclass_fields__}
        same = ("rounds", "formula", "worst", "method", "design_effect", "pilot_rounds", "pilot_units")
        plain = {name: getattr(self, name) for name in same}
        plain |= asdict(self.accuracy) | {
            "participants": self.participants,
            "duration": None if self.duration is None else asdict(self.duration),
        }
        found = {"format": "mebandit-plan", "version": 1, "goal": goal} | plain | {"simulated": [c._asdict() for c in self.simulated]}
        return dict(without_nan(found))

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), allow_nan=False, indent=2)

    def plot(self, *, path: str | Path | None = None) -> "matplotlib.figure.Figure":
        """Power or half-width against the number of rounds; saved if a path is given."""
        from mebandit.analysis.planning.figure import draw  # which is about this class

        figure = draw(self)
        if path is not None:
            save_figure(figure, path)
        return figure

    def page(self) -> Page:
        """The plan as a report page."""
        page = (
            Page("How many rounds?")
            .text(self.describe())
            .figure(self.plot(), "What a number of rounds gives.")
            .heading("Rounds needed")
            .table(self.needed())
        )
        if self.simulated:
            page.heading("Simulated trials").table(self.checked())
            page.text("± is one Monte-Carlo standard error. Each trial was run with the intended policy and analysed like a real one.")
        return page


def _in_words(check: Check, plan: Plan) -> str:
    goal = plan.goal
    trials = f"{check.replicates} simulated trials" + (f" of {check.rounds:,} independent rounds" if plan.design_effect > 1 else "")
    covers = f"the coverage of the interval is {100 * check.coverage:.1f} ± {100 * check.coverage_se:.1f} %"
    if goal.tests:
        return f"In {trials} the power is {check.power:.3f} ± {check.power_se:.3f}, and {covers}."
    kind = "mean half-width is" if goal.assurance is None else f"half-width that {100 * goal.assurance:g} % of them keep is"
    return f"In {trials} the {kind} {check.half_width:.3g} ± {check.half_width_se:.2g}, and {covers}."


def independent(rounds: int, design_effect: float) -> int:
    """How many independent rounds say as much."""
    return max(1, round(rounds / design_effect))


def can_be_simulated(rounds: int, dim: int) -> bool:
    """Whether trials of so many rounds are simulated."""
    return rounds <= LONGEST and rounds * dim**2 <= LARGEST
