"""Sessions of the dashboard: a key signs in, a signed cookie says so afterwards, and a token of the session protects every action."""

import base64
import hashlib
import hmac
import json
import time
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select

from mebandit.service.service import Service
from mebandit.service.store.database import Database
from mebandit.service.store.records import Key
from mebandit.service.store.schema import SESSION_SECRET, setting

COOKIE = "mebandit_session"
HOURS = 12.0
"""that a session lasts"""


class Session(NamedTuple):
    """Who is signed in."""

    key: Key
    token: str
    """what the forms of this session carry"""

    def may(self, role: str) -> bool:
        """Whether the key has a role."""
        return role in self.key.roles


class SignIn(Exception):
    """There is no session."""


def secret_of(database: Database) -> bytes:
    """What the sessions of a store are signed with."""
    with database.read() as connection:
        return str(connection.execute(select(setting.c.value).where(setting.c.name == SESSION_SECRET)).scalar_one()).encode()


def signed(secret: bytes, what: str, text: str) -> str:
    """The HMAC of a text for a purpose."""
    return hmac.new(secret, f"{what}:{text}".encode(), hashlib.sha256).hexdigest()


def begun(secret: bytes, key: Key, clock: float) -> str:
    """The value of the cookie of a new session."""
    told = {"key": key.name, "until": clock + 3600 * HOURS, "nonce": token_hex(16)}
    body = base64.urlsafe_b64encode(json.dumps(told).encode()).decode()
    return f"{body}.{signed(secret, 'session', body)}"


def read(secret: bytes, cookie: str, clock: float) -> str | None:
    """The name of the key of a session; None where the cookie is not ours, or has expired."""
    body, _, mac = cookie.partition(".")
    if not hmac.compare_digest(mac.encode(), signed(secret, "session", body).encode()):
        return None
    told: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
    return str(told["key"]) if told["until"] > clock else None


def session_of(request: Request) -> Session:
    """The session of a request, whose key must still be valid."""
    service: Service = request.app.state.service
    secret, cookie = request.app.state.session_secret, request.cookies.get(COOKIE, "")
    name = read(secret, cookie, time.time()) if cookie else None
    key = None if name is None else service.key_named(name)
    if key is None:
        raise SignIn
    if not key.roles & {"read", "operate"}:
        raise HTTPException(403, f"the key must have the role 'read'; got {key.name!r} with {', '.join(sorted(key.roles))}.")
    return Session(key, signed(secret, "form", cookie))


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, each once."""
    body = (await request.body()).decode("utf-8", errors="replace")
    return {name: values[-1] for name, values in parse_qs(body, keep_blank_values=True, max_num_fields=50).items()}


def check_origin(request: Request) -> None:
    """Refuse forms that another site sends."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    same = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not same or site not in ("same-origin", "none"):
        raise HTTPException(403, "the form must come from this site; got one from another.")


def check_form(request: Request, session: Session, fields: dict[str, str]) -> None:
    """Refuse an action whose form this session did not get."""
    check_origin(request)
    if not hmac.compare_digest(fields.get("token", "").encode(), session.token.encode()):
        raise HTTPException(403, "the form must be one of this session; got an old one. Load the page again.")


def to_sign_in(request: Request) -> Response:
    """To the page that asks for a key, and back afterwards."""
    back = request.url.path if request.method == "GET" else "/dashboard"
    return RedirectResponse(f"/sign-in?back={quote(back)}", 303)


def set_cookie(request: Request, answer: Response, value: str) -> None:
    """Give a browser its session."""
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, value, max_age=int(3600 * HOURS), path="/", secure=secure, httponly=True, samesite="strict")
