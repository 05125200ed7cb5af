"""What the checks keep in the store: their results, what became of incidents, and notices to webhooks."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from mebandit.service.store.database import Row, all_rows, first_row, in_utc, now
from mebandit.service.store.schema import check_result, incident, incident_event, notice, pulse, watch, webhook

HISTORY = timedelta(hours=1)
"""how often a result is kept whose level has not changed"""
FOUND = "check"
"""the kind of an incident that a check opened; its subject is the name of the check"""


def watched(connection: Connection, x: str) -> Row | None:
    """What the checks know of an experiment."""
    return first_row(connection, select(watch).where(watch.c.experiment == x))


def all_watched(connection: Connection) -> dict[str, Row]:
    """What the checks know of all experiments, by name."""
    return {row["experiment"]: row for row in all_rows(connection, select(watch))}


def save_watched(connection: Connection, x: str, **parts: Any) -> None:
    """Store what the checks know of an experiment: `upto`, `at`, `sums` and `results`."""
    if not connection.execute(update(watch).where(watch.c.experiment == x).values(**parts)).rowcount:
        connection.execute(insert(watch).values(experiment=x, **({"upto": 0, "at": "", "sums": "{}", "results": "[]"} | parts)))


def save_history(connection: Connection, x: str, results: Iterable[Mapping[str, Any]], at: datetime) -> None:
    """Add rows for results whose level changed, or whose last row is an hour old."""
    newest = select(func.max(check_result.c.id)).where(check_result.c.experiment == x).group_by(check_result.c.name)
    last = {row["name"]: row for row in all_rows(connection, select(check_result).where(check_result.c.id.in_(newest)))}
    due = in_utc(at - HISTORY)
    rows = [
        {"experiment": x, "at": in_utc(at)} | {name: each[name] for name in ("name", "level", "value", "limit", "said", "remedy")}
        for each in results
        if each["name"] not in last or last[each["name"]]["level"] != each["level"] or last[each["name"]]["at"] <= due
    ]
    if rows:
        connection.execute(insert(check_result), rows)


def save_pulses(connection: Connection, process: str, counts: Mapping[str, Mapping[str, Any]]) -> None:
    """Store what a process counted."""
    rows = [{"experiment": x, "process": process, "at": now(), "body": json.dumps(each)} for x, each in sorted(counts.items())]
    if rows:
        connection.execute(insert(pulse), rows)


# ---- incidents ----


def open_of_checks(connection: Connection, x: str) -> dict[str, Row]:
    """The incidents that checks opened and that are not closed, by the name of the check."""
    closed = select(incident_event.c.id).where(incident_event.c.incident == incident.c.id, incident_event.c.what == "closed")
    asked = select(incident).where(incident.c.experiment == x, incident.c.kind == FOUND, ~closed.exists())
    return {row["subject"]: row for row in all_rows(connection, asked.order_by(incident.c.id))}


def events_of(connection: Connection, numbers: Iterable[int]) -> dict[int, list[Row]]:
    """What became of some incidents, in order."""
    asked = select(incident_event).where(incident_event.c.incident.in_(list(numbers))).order_by(incident_event.c.id)
    found: dict[int, list[Row]] = {}
    for row in all_rows(connection, asked):
        found.setdefault(row["incident"], []).append(row)
    return found


def add_event(
    connection: Connection, number: int, what: str, said: str, by: str, *, at: str, units: int | None = None, decisions: int | None = None
) -> None:
    """Add what became of an incident."""
    row = {"incident": number, "what": what, "said": said, "by": by, "at": at, "units": units, "decisions": decisions}
    connection.execute(insert(incident_event).values(**row))


# ---- webhooks ----


def webhooks_of(connection: Connection) -> list[Row]:
    """The webhooks that are told."""
    return all_rows(connection, select(webhook).where(webhook.c.ended_at.is_(None)).order_by(webhook.c.name))


def tell_webhooks(connection: Connection, body: Mapping[str, Any], clock: float) -> None:
    """Have a notice sent to every webhook; it is in the store as surely as what it tells of."""
    rows = [{"webhook": row["name"], "body": json.dumps(body, sort_keys=True), "tries": 0, "due": clock} for row in webhooks_of(connection)]
    if rows:
        connection.execute(insert(notice), rows)


def due_notices(connection: Connection, clock: float, most: int = 20) -> list[Row]:
    """Notices to be sent now, with the address and secret of their webhook."""
    asked = (
        select(notice, webhook.c.address, webhook.c.secret)
        .join(webhook, webhook.c.name == notice.c.webhook)
        .where(notice.c.delivered_at.is_(None), notice.c.failed.is_(None), notice.c.due <= clock, webhook.c.ended_at.is_(None))
        .order_by(notice.c.id)
        .limit(most)
    )
    return all_rows(connection, asked)
