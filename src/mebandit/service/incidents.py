"""Incidents that last: a check that turns red opens one, and it closes when the check has recovered."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from mebandit import checks
from mebandit.service.checks.look import Result
from mebandit.service.service import NotFound
from mebandit.service.store import watching
from mebandit.service.store.database import in_utc, now
from mebandit.service.store.records import incident_row, write_audit
from mebandit.service.store.schema import incident
from mebandit.values import GREEN, RED

WATCHER = "the checks"
"""who opens and closes incidents"""


def follow(connection: Connection, x: str, results: Sequence[Result], at: datetime) -> None:
    """Open incidents for checks that are red, note how many are affected, and close those of checks that are green or gone. Yellow closes
    nothing, so that a value near the limit does not open one incident after the other.

    Args:
        connection: to the store, in a transaction.
        x: the experiment.
        results: of all its checks.
        at: the time.
    """
    known, time_of = watching.open_of_checks(connection, x), in_utc(at)
    found = {each.name: each for each in results}
    events = watching.events_of(connection, [row["id"] for row in known.values()])
    for result in results:
        if result.level == RED:
            said = " ".join(filter(None, (result.said, result.remedy)))
            affected = {"units": len(result.units), "decisions": result.decisions}
            if result.name not in known:
                row = incident_row(x, watching.FOUND, said, result.name) | {"at": time_of}
                number = connection.execute(insert(incident).values(**row).returning(incident.c.id)).scalar_one()
                watching.add_event(connection, number, "opened", said, WATCHER, at=time_of, **affected)
                _tell(connection, "opened", x, number, result.name, said, time_of)
                continue
            number = known[result.name]["id"]
            most = [max((each[name] or 0 for each in events.get(number, [])), default=0) for name in ("units", "decisions")]
            if affected["units"] > 1.5 * most[0] or affected["decisions"] > 1.5 * most[1]:
                watching.add_event(connection, number, "affected", said, WATCHER, at=time_of, **affected)
    for name, row in known.items():
        if name not in found or found[name].level == GREEN:
            said = found[name].said if name in found else "The check is no longer made."
            watching.add_event(connection, row["id"], "closed", said, WATCHER, at=time_of)
            _tell(connection, "closed", x, row["id"], name, said, time_of)


def _tell(connection: Connection, what: str, x: str, number: int, check: str, said: str, at: str) -> None:
    body = {"event": f"incident {what}", "experiment": x, "incident": number, "check": check, "said": said, "at": at}
    watching.tell_webhooks(connection, body, time.time())


def note(connection: Connection, x: str, number: int, said: str, by: str) -> None:
    """Write down what people know of an incident."""
    asked = select(incident.c.id).where(incident.c.experiment == x, incident.c.id == number)
    if connection.execute(asked).first() is None:
        checks.refuse("incident", "be one of this experiment", number, error=NotFound)
    watching.add_event(connection, number, "note", said, by, at=now())
    write_audit(connection, by, "note", x, incident=number, said=said)


def shown(row: dict[str, Any], events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An incident with what became of it: whether it is open, how many are affected, and its notes."""
    whats = [each["what"] for each in events]
    state = "closed" if "closed" in whats else "open" if "opened" in whats else "noted"
    closed = next((each["at"] for each in events if each["what"] == "closed"), None)
    affected = {name: max((each[name] or 0 for each in events), default=0) for name in ("units", "decisions")}
    notes = [{name: each[name] for name in ("at", "by", "said")} for each in events if each["what"] == "note"]
    return row | {"state": state, "closed_at": closed} | affected | {"notes": notes}
