"""The records of who did what: the audit with its hash chain, incidents, and the keys of the service."""

import hmac
import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, text, update

from mebandit.service.store.database import all_rows, now
from mebandit.service.store.schema import api_key, audit, incident

START = "0" * 64
"""the hash before the first row of the audit"""


class Key(NamedTuple):
    """Who calls."""

    name: str
    roles: frozenset[str]


def link(row: dict[str, Any]) -> str:
    """The hash of a row of the audit, which holds the hash of the row before."""
    return sha256(json.dumps([row[name] for name in ("previous", "at", "by", "what", "experiment", "detail")]).encode()).hexdigest()


def write_audit(connection: Connection, by: str, what: str, x: str | None = None, **detail: Any) -> None:
    """Add a row to the audit."""
    if connection.dialect.name == "postgresql":  # one row after the other, also of several processes
        connection.execute(text("SELECT pg_advisory_xact_lock(730002)"))
    last = connection.execute(select(audit.c.hash).order_by(audit.c.id.desc()).limit(1)).scalar()
    row = {"at": now(), "by": by, "what": what, "experiment": x, "detail": json.dumps(detail, sort_keys=True), "previous": last or START}
    connection.execute(insert(audit).values(**row, hash=link(row)))


def broken_link(connection: Connection) -> str:
    """What is wrong with the first row of the audit that was changed, or before which one is missing; nothing if all is as written."""
    last = START
    for row in all_rows(connection, select(audit).order_by(audit.c.id)):
        if row["previous"] != last or row["hash"] != link(dict(row)):
            return f"audit row {row['id']} must continue the chain of hashes; got one that was changed, or rows before it are missing."
        last = row["hash"]
    return ""


def incident_row(x: str, kind: str, said: str, subject: str | None = None) -> dict[str, Any]:
    """Something that people should look at, as a row."""
    return {"experiment": x, "kind": kind, "subject": subject, "at": now(), "said": said}


def open_incident(connection: Connection, x: str, kind: str, said: str, subject: str | None = None) -> None:
    connection.execute(insert(incident).values(**incident_row(x, kind, said, subject)))


def hashed(key: str) -> str:
    """A key as the store has it. Keys that we make have 256 random bits, so that a plain hash suffices."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_keys(connection: Connection) -> dict[str, Key]:
    """The keys that are valid, by their hashes."""
    rows = all_rows(connection, select(api_key).where(api_key.c.revoked_at.is_(None)))
    return {row["hash"]: Key(row["name"], frozenset(json.loads(row["roles"]))) for row in rows}


def whose(keys: dict[str, Key], given: str) -> Key | None:
    """Whose key that is; every stored hash is compared, in a time that does not depend on where they differ."""
    wanted, found = hashed(given), None
    for known, key in keys.items():
        if hmac.compare_digest(known, wanted):
            found = key
    return found


def write_key(connection: Connection, name: str, key: str, roles: Iterable[str]) -> bool:
    """Store a key under a name; whether the name was free."""
    if connection.execute(select(api_key.c.name).where(api_key.c.name == name)).first() is not None:
        return False
    connection.execute(insert(api_key).values(name=name, hash=hashed(key), roles=json.dumps(sorted(roles)), created_at=now()))
    return True


def revoke_key(connection: Connection, name: str) -> bool:
    """End the validity of a key; whether there was a valid one of that name."""
    ended = connection.execute(update(api_key).where(api_key.c.name == name, api_key.c.revoked_at.is_(None)).values(revoked_at=now()))
    return ended.rowcount == 1
