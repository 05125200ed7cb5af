"""Checks of participants: decisions that were due and not made, and participants without data."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from datetime import time as Clock
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import func, select

from mebandit.service.checks.look import Look, Result, in_words, level
from mebandit.service.store.database import all_rows, in_utc
from mebandit.service.store.schema import audit, decision, outcome
from mebandit.values import GREEN, RED, YELLOW

MISSED = 0.1, 0.25
"""shares of the decisions due in a day that were not made"""
FEW_DUE = 10
"""decisions due below which a share says nothing"""
AHEAD = timedelta(days=2)
"""how early a decision may be made for the time at which it is due"""
SILENT_DAYS = 3.0
"""days after which a participant without a decision counts as silent"""
SILENT = 0.1, 0.3
"""shares of silent participants"""
QUIET = 3.0, 10.0
"""of the longest pause between the last decisions; the present one beyond which it is"""
SHORTEST_PAUSE_HOURS = 0.25


def due(look: Look) -> Result:
    """Decisions that the calendar of each participant has for the last day, and that were not made. Without a calendar: whether decisions
    have stopped to come."""
    if look.live.status not in ("running", "paused"):
        return Result("decisions due", GREEN, None, MISSED[1], f"The experiment is {look.live.status}.")
    calendar = look.configuration.calendar
    times = calendar.times if calendar is not None else []
    units = {unit: told for unit, told in look.live.units.items() if told["status"] == "active" and (told.get("times") or times)}
    if not units:
        return _silence(look)
    grace = timedelta(minutes=calendar.grace_minutes if calendar is not None else 60)
    begin = max(look.now - timedelta(days=1), _begun(look))
    expected = expected_of(units, times, begin, look.now - grace)
    made = _made(look, expected, begin, grace)
    missed = {unit: len(points) - made.get(unit, 0) for unit, points in expected.items()}
    n, n_missed = sum(map(len, expected.values())), sum(missed.values())
    share = n_missed / max(n, 1)
    verdict = level(share, MISSED) if n >= FEW_DUE else GREEN
    affected = frozenset(unit for unit, count in missed.items() if count)
    said = f"{n_missed:,} of {n:,} decisions due in the last day were not made, for {len(affected):,} of {len(units):,} participants."
    remedy = "" if verdict == GREEN else "See whether whatever calls the service still runs, and whether it knows these participants."
    return Result("decisions due", verdict, share, MISSED[1], said, remedy, affected, n_missed)


def _begun(look: Look) -> datetime:
    """When the experiment began to run: its first change of status, or its first decision if that is older."""
    started = select(audit.c.at).where(audit.c.experiment == look.x, audit.c.what == "status").order_by(audit.c.id).limit(1)
    first = select(decision.c.received_at).where(decision.c.experiment == look.x).order_by(decision.c.received_at).limit(1)
    found = [each for each in (look.connection.execute(asked).scalar() for asked in (started, first)) if each is not None]
    return datetime.fromisoformat(min(found)) if found else look.now


def expected_of(units: Mapping[str, Mapping[str, Any]], times: list[str], begin: datetime, end: datetime) -> dict[str, list[datetime]]:
    """The times in (begin, end] at which decisions are due, by unit, in UTC.

    Args:
        units: what is known of each: time zone, start, end, and its own times of day if it has any.
        times: the times of day of the others, such as "08:00".
        begin: of the span.
        end: of the span.
    """
    by_day: dict[tuple[str, tuple[str, ...]], list[datetime]] = {}
    found = {}
    for unit, told in units.items():
        key = told["timezone"], tuple(told.get("times") or times)
        points = by_day.get(key)
        if points is None:
            points = by_day[key] = _points(zone_of(key[0]), key[1], begin, end)
        start, over = told.get("start"), told.get("end")
        if start is None and over is None:
            found[unit] = points
            continue
        low = datetime.fromisoformat(start) if start else begin
        high = datetime.fromisoformat(over) if over else end
        found[unit] = [point for point in points if low <= point <= high]
    return found


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its name; UTC for one that this machine does not know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _points(zone: ZoneInfo, times: tuple[str, ...], begin: datetime, end: datetime) -> list[datetime]:
    day, last = begin.astimezone(zone).date(), end.astimezone(zone).date()
    points = []
    while day <= last:
        points += [_instant(day, each, zone) for each in times]
        day += timedelta(days=1)
    return sorted(point for point in points if begin < point <= end)


def _instant(day: date, at: str, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, Clock.fromisoformat(at), zone).astimezone(UTC)


def _made(look: Look, expected: Mapping[str, list[datetime]], begin: datetime, grace: timedelta) -> dict[str, int]:
    """How many of the times have a decision for them, within the grace, by unit."""
    asked = select(decision.c.unit, decision.c.decided_for).where(
        decision.c.experiment == look.x, decision.c.received_at >= in_utc(begin - AHEAD), decision.c.received_at <= in_utc(look.now)
    )
    hit: dict[str, set[int]] = defaultdict(set)
    for unit, at in look.connection.execute(asked):
        points = expected.get(unit)
        if points:
            time = datetime.fromisoformat(at)
            i = bisect_right(points, time)
            for j in (i - 1, i):
                if 0 <= j < len(points) and abs(points[j] - time) <= grace:
                    hit[unit].add(j)
                    break
    return {unit: len(each) for unit, each in hit.items()}


def _silence(look: Look) -> Result:
    """Whether the time since the last decision is much longer than any pause between the last decisions."""
    times = [datetime.fromisoformat(row["received_at"]) for row in look.last]
    no_calendar = "No participant has a calendar."
    if len(times) < 50:
        return Result("decisions due", GREEN, None, None, f"{no_calendar} There are too few decisions to say how often they come.")
    longest = max((a - b).total_seconds() / 3600 for a, b in pairwise(times))
    since = max((look.now - times[0]).total_seconds() / 3600, 0.0)
    limits = tuple(max(factor * longest, SHORTEST_PAUSE_HOURS * factor) for factor in QUIET)
    verdict = level(since, (limits[0], limits[1]))
    said = f"{no_calendar} The last decision was made {in_words(since)} ago; the longest pause before was {in_words(longest)}."
    remedy = "" if verdict == GREEN else "See whether whatever calls the service still runs."
    return Result("decisions due", verdict, since, limits[1], said, remedy)


def silent(look: Look) -> Result:
    """Participants of whom there should be data and is none: active and registered, but no decision for three days; or ten decisions and
    more without any outcome, where outcomes are usual."""
    since = look.now - timedelta(days=SILENT_DAYS)
    active = {unit for unit, told in look.live.units.items() if _present(told, since, look.now)}
    if _begun(look) > since or look.live.status not in ("running", "paused"):
        active = set()
    last = look.connection.execute(
        select(func.max(decision.c.id)).where(decision.c.experiment == look.x, decision.c.received_at < in_utc(since))
    ).scalar()
    asked = select(decision.c.unit, func.max(decision.c.id)).where(decision.c.experiment == look.x).group_by(decision.c.unit)
    seen = {unit for unit, newest in look.connection.execute(asked) if last is None or newest > last} if active else set()
    gone = active - seen
    mute, told = _mute(look)
    share = max(len(gone) / max(len(active), 1), len(mute) / max(told, 1))
    verdict = level(share, SILENT) if max(len(active), told) >= 5 else YELLOW if gone or mute else GREEN
    if verdict == RED and len(gone) + len(mute) < 2:
        verdict = YELLOW
    said = f"{len(gone):,} of {len(active):,} active participants had no decision in {SILENT_DAYS:g} days"
    said += f"; {len(mute):,} of {told:,} with ten recent decisions and more have no outcome."
    some = ", ".join(sorted(gone | mute)[:5])
    remedy = "" if verdict == GREEN else f"See whether they still take part, and whether their devices work: {some}."
    return Result("participants without data", verdict, share, SILENT[1], said, remedy, frozenset(gone | mute))


def _present(told: Mapping[str, Any], since: datetime, now: datetime) -> bool:
    """Whether a participant takes part since a time."""
    start, end = told.get("start"), told.get("end")
    begun = start is None or datetime.fromisoformat(start) <= since
    return told["status"] == "active" and begun and (end is None or datetime.fromisoformat(end) >= now)


def _mute(look: Look) -> tuple[set[str], int]:
    """Participants with ten of the last decisions and more but no outcome of them; and how many have so many decisions."""
    by_unit: dict[str, list[str]] = defaultdict(list)
    for row in look.last[len(look.last) // 4 :]:  # the newest may still wait for their outcome
        if row["unit"] and row["action"] is not None:
            by_unit[row["unit"]].append(row["name"])
    many = {unit: names for unit, names in by_unit.items() if len(names) >= 10}
    if not many:
        return set(), 0
    names = [name for each in many.values() for name in each]
    told: set[str] = set()
    for start in range(0, len(names), 500):
        asked = select(outcome.c.decision).where(outcome.c.experiment == look.x, outcome.c.decision.in_(names[start : start + 500]))
        told.update(row["decision"] for row in all_rows(look.connection, asked.where(outcome.c.source == "client")))
    if len(told) < 0.2 * len(names):
        return set(), len(many)  # hardly any outcome comes: that is the check of outcomes
    return {unit for unit, own in many.items() if not told.intersection(own)}, len(many)
