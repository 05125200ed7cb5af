"""Webhooks: addresses that are told when incidents open and close, again and again until they answer."""

import hashlib
import hmac
import logging
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from secrets import token_urlsafe
from typing import Any

from sqlalchemy import Connection, insert, select, update

from mebandit import checks
from mebandit.service.service import NotFound
from mebandit.service.store import watching
from mebandit.service.store.database import Database, Row, now
from mebandit.service.store.experiments import Conflict
from mebandit.service.store.records import write_audit
from mebandit.service.store.schema import notice, webhook

SECONDS = 5.0
"""that an address has to answer"""
WAITS = 2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0
"""seconds before each further try; then the notice is given up"""
SIGNATURE = "X-Mebandit-Signature"
"""header: sha256= and the HMAC of the body with the secret of the webhook"""

logger = logging.getLogger("mebandit.service")


class Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a notice goes to the address that was given, or nowhere."""

    def redirect_request(self, *_: Any) -> None:
        """No further request."""


OPENER = urllib.request.build_opener(Straight, urllib.request.ProxyHandler({}))


def send_due(database: Database, ending: threading.Event) -> None:
    """Send the notices that are due.

    Args:
        database: the store.
        ending: when it is set, no further notice is sent.
    """
    with database.read() as connection:
        rows = watching.due_notices(connection, time.time())
    for row in rows:
        if ending.is_set():
            return
        if database.run(partial(_take, row=row)):
            database.run(partial(_note, row=row, failed=_send(row)))


def _take(connection: Connection, row: Row) -> bool:
    """Count the try before it is made, so that no two processes make it."""
    tries = row["tries"]
    wait = WAITS[min(tries, len(WAITS) - 1)]
    taken = update(notice).where(notice.c.id == row["id"], notice.c.tries == tries, notice.c.delivered_at.is_(None))
    return connection.execute(taken.values(tries=tries + 1, due=time.time() + wait)).rowcount == 1


def _send(row: Row) -> str | None:
    """Why a notice was not taken; None: it was."""
    body = row["body"].encode()
    signature = "sha256=" + hmac.new(row["secret"].encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", SIGNATURE: signature, "X-Mebandit-Notice": str(row["id"])}
    try:
        with OPENER.open(urllib.request.Request(row["address"], body, headers, method="POST"), timeout=SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    except (OSError, ValueError) as error:
        return type(error).__name__


def _note(connection: Connection, row: Row, failed: str | None) -> None:
    if failed is None:
        connection.execute(update(notice).where(notice.c.id == row["id"]).values(delivered_at=now()))
    elif row["tries"] + 1 > len(WAITS):
        connection.execute(update(notice).where(notice.c.id == row["id"]).values(failed=failed))
        logger.warning("webhook %s: a notice was given up (%s)", row["webhook"], failed)


def add(connection: Connection, name: str, address: str, by: str) -> str:
    """Tell an address of incidents from now on; the secret that its notices are signed with, which is shown once."""
    if connection.execute(select(webhook.c.name).where(webhook.c.name == name)).first() is not None:
        checks.refuse("the name of a webhook", "be one that no other webhook had", name, error=Conflict)
    secret = token_urlsafe(32)
    connection.execute(insert(webhook).values(name=name, address=address, secret=secret, created_at=now(), by=by))
    write_audit(connection, by, "webhook made", None, name=name, address=address)
    return secret


def end(connection: Connection, name: str, by: str) -> None:
    """Tell an address no more."""
    ended = connection.execute(update(webhook).where(webhook.c.name == name, webhook.c.ended_at.is_(None)).values(ended_at=now()))
    if not ended.rowcount:
        checks.refuse("the name of a webhook", "be that of one that is told", name, error=NotFound)
    write_audit(connection, by, "webhook ended", None, name=name)
