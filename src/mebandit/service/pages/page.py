"""How a page is answered: its template, its headers, and what comes instead of it where something is wrong."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from mebandit.checks import MebanditError
from mebandit.service.app.problems import TITLES, status_of
from mebandit.service.pages.session import Session, SignIn, session_of, to_sign_in
from mebandit.service.store.database import in_utc

FOLDER = Path(__file__).parent
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "form-action 'self'",
        "frame-ancestors 'none'", "base-uri 'none'",
    )
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""of every page: nothing but our own script and style sheet, in no other page's frame, and kept by no cache"""


def short_time(at: str | None) -> str:
    """A time of the store as people read it."""
    return "never" if not at else f"{at[:10]} {at[11:16]}"


def number(value: Any) -> str:
    """A number with four digits."""
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, (int, float)) and isfinite(value) else str(value)


TEMPLATES = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
TEMPLATES.filters |= {"time": short_time, "number": number}


def shown(template: str, session: Session | None = None, *, status: int = 200, **values: Any) -> Response:
    """A page. Everything that a template inserts is escaped."""
    known: dict[str, Any] = {"session": session, "status": status, "x": None, "here": None, "now": in_utc(datetime.now(UTC))}
    return HTMLResponse(TEMPLATES.get_template(template).render(known | values), status, HEADERS)


def trouble(request: Request, status: int, detail: str) -> Response:
    """The page of an error."""
    try:
        session = session_of(request)
    except (SignIn, HTTPException):
        session = None
    return shown("problem.html", session, status=status, title=TITLES.get(status, "Error"), detail=detail)


class Paged(APIRoute):
    """A route whose errors are pages, and which asks those who have no session to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What is called for a request."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except SignIn:
                return to_sign_in(request)
            except RequestValidationError:
                return trouble(request, 404, "the address must be that of a page; got another one.")
            except HTTPException as error:
                return trouble(request, error.status_code, str(error.detail))
            except MebanditError as error:
                return trouble(request, status_of(error), str(error))

        return handle
