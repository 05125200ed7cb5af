"""A trial in participants, days and decision points: how many rounds a participant gives."""

import math
from dataclasses import dataclass
from typing import TypedDict

from mebandit import checks


class DurationOptions(TypedDict, total=False):
    """The keywords of `plan` that say how long the trial is for each participant."""

    days: float | None
    """days of the trial (default None: the plan is in rounds)"""
    decision_points: float
    """decision points a day (default 1)"""
    availability: float | None
    """share of the decision points at which participants are available (default: the pilot's, else 1)"""
    attrition: float
    """share of the participants who leave before the end, at times spread evenly over the trial (default 0)"""
    missing: float | None
    """share of the outcomes that will be missing (default: the pilot's, else 0)"""


@dataclass(frozen=True, kw_only=True)
class Duration:
    """How long a trial is for each participant, and what is lost of it."""

    days: float
    decision_points: float
    """a day"""
    availability: float
    """share of the decision points at which a participant is available"""
    attrition: float
    """share of the participants who leave before the end, at times spread evenly over the trial"""
    missing: float
    """share of the outcomes that are missing"""

    @property
    def rounds(self) -> float:
        """Rounds that a participant gives to the analysis, on average."""
        return self.days * self.decision_points * self.availability * (1.0 - self.attrition / 2.0) * (1.0 - self.missing)

    def participants(self, rounds: float) -> int:
        """How many participants give so many rounds."""
        return max(2, math.ceil(rounds / self.rounds * (1 - 1e-12)))

    def describe(self) -> str:
        """The trial of a participant in words."""
        words = f"{self.days:g} days x {self.decision_points:g} decision points"
        losses = {"available at": self.availability, "leave before the end": self.attrition, "outcomes missing": self.missing}
        said = [f"{100 * share:.3g} % {what}" for what, share in losses.items() if share != (1.0 if what == "available at" else 0.0)]
        said = [text.replace("available at", "of the points available") for text in said]
        return words + (f" ({', '.join(said)})" if said else "") + f", {self.rounds:.4g} rounds each"


def duration_of(
    *,
    days: float | None = None,
    decision_points: float = 1.0,
    availability: float | None = None,
    attrition: float = 0.0,
    missing: float | None = None,
    usual: tuple[float, float] = (1.0, 0.0),
) -> Duration | None:
    """The duration that is asked for; None: the plan is in rounds.

    Args:
        days: As in `DurationOptions`.
        decision_points: Likewise.
        availability: Likewise.
        attrition: Likewise.
        missing: Likewise.
        usual: Availability and share of missing outcomes of the pilot.
    """
    if days is None:
        if decision_points != 1.0 or availability is not None or attrition or missing is not None:
            checks.refuse("days", "be given with decision_points, availability, attrition or missing", "nothing")
        return None
    return Duration(
        days=checks.number("days", days, "be a number of at least 1", 1.0),
        decision_points=checks.number("decision_points", decision_points, "be a number above 0", 1e-6),
        availability=checks.number("availability", usual[0] if availability is None else availability, "be a share above 0", 1e-6, 1.0),
        attrition=checks.number("attrition", attrition, "be a share from 0 to 1", 0.0, 1.0),
        missing=checks.number("missing", usual[1] if missing is None else missing, "be a share from 0 to below 1", 0.0, 1.0 - 1e-6),
    )
