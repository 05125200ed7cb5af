"""What a check reads, and what it says."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from mebandit.service.service import Live
from mebandit.service.store.database import Row, all_rows, in_utc
from mebandit.service.store.schema import decision, pulse
from mebandit.values import GREEN, RED, YELLOW

LAST = 2_000
"""decisions that a check looks at, at most"""
NEWEST = 100
"""decisions that count as recent, however old they are"""
RECENT = timedelta(days=1)
"""how old other recent decisions may be"""
FEW = 20
"""decisions below which a share says nothing"""


class Result(NamedTuple):
    """What a check found."""

    name: str
    level: str
    """green, yellow or red"""
    value: float | None
    limit: float | None
    """of the value, beyond which the level is red; None: the level does not follow from one number"""
    said: str
    """what was found, in a sentence"""
    remedy: str = ""
    """what to do"""
    units: frozenset[str] = frozenset()
    """participants affected, of those that were looked at"""
    decisions: int = 0
    """decisions affected, of those that were looked at"""
    values: Mapping[str, list[float]] = {}
    """further numbers, by name"""

    def plain(self) -> dict[str, Any]:
        """The result as JSON can hold it."""
        return self._asdict() | {"units": len(self.units), "values": dict(self.values)}


def level(value: float, limits: tuple[float, float]) -> str:
    """Large is bad: yellow from the first limit on, red from the second."""
    return GREEN if value < limits[0] else YELLOW if value < limits[1] else RED


class Look:
    """What the checks of one experiment read: each part once, when it is first needed.

    Args:
        connection: to the store.
        live: the experiment.
        now: the time.
        sums: what was summed up of all its decisions, see `Sums`.
        fitted: what `fit` said of the rounds that were learned, see `learned.Fitted`; None: nothing yet.
    """

    def __init__(self, connection: Connection, live: Live, now: datetime, sums: Any, fitted: Any = None) -> None:
        self.connection, self.live, self.now = connection, live, now
        self.sums, self.fitted = sums, fitted
        self.x, self.configuration = live.name, live.experiment.configuration

    @cached_property
    def recent(self) -> list[Row]:
        """The decisions of the last day, and of the last hundred, the newest first."""
        since = in_utc(self.now - RECENT)
        return [row for i, row in enumerate(self.last) if i < NEWEST or row["received_at"] >= since]

    @cached_property
    def last(self) -> list[Row]:
        """The last decisions, the newest first."""
        asked = select(decision).where(decision.c.experiment == self.x, decision.c.received_at <= in_utc(self.now))
        return all_rows(self.connection, asked.order_by(decision.c.received_at.desc(), decision.c.id.desc()).limit(LAST))

    @cached_property
    def requests(self) -> list[dict[str, Any]]:
        """What was asked in `recent`."""
        return [json.loads(row["request"]) for row in self.recent]

    @cached_property
    def pulses(self) -> list[dict[str, Any]]:
        """What the processes counted in the last day, the oldest first."""
        since = in_utc(self.now - RECENT)
        asked = select(pulse.c.body).where(pulse.c.experiment == self.x, pulse.c.at >= since, pulse.c.at <= in_utc(self.now))
        asked = asked.order_by(pulse.c.id)
        return [json.loads(body) for body in self.connection.execute(asked).scalars()]

    def hours_since(self, at: str) -> float:
        """Hours from a time of the store until now."""
        return (self.now - datetime.fromisoformat(at)).total_seconds() / 3600


def units_of(rows: list[Row]) -> frozenset[str]:
    """The participants of some decisions."""
    return frozenset(row["unit"] for row in rows if row["unit"])


def in_words(hours: float) -> str:
    """A span of time, such as "3 minutes"."""
    for size, name in ((1 / 3600, "second"), (1 / 60, "minute"), (1.0, "hour"), (24.0, "day")):
        if hours < size * {"second": 120, "minute": 120, "hour": 72, "day": float("inf")}[name]:
            n = hours / size
            return f"{n:.0f} {name}{'' if round(n) == 1 else 's'}"
    return ""
