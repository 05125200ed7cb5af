"""Errors as application/problem+json, each one sentence that says what, which rule, and what was received."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from mebandit import checks
from mebandit.checks import InvalidInput, MebanditError
from mebandit.service.service import NotFound
from mebandit.service.store.database import Unavailable
from mebandit.service.store.experiments import Conflict

TITLES = {
    400: "Not JSON",
    401: "Not authenticated",
    403: "Not permitted",
    404: "Not found",
    405: "No such call",
    409: "Conflict",
    413: "Too large",
    422: "Invalid request",
    503: "Unavailable",
}
WORDS = {404: "the path must be that of a call; got another one.", 405: "the call must have a method that it knows; got another one."}
STATUS: tuple[tuple[type[MebanditError], int], ...] = ((NotFound, 404), (Conflict, 409), (Unavailable, 503), (InvalidInput, 422))
"""of each kind of refusal, the first that fits"""


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says why a request was not served."""
    body = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    return JSONResponse(body, status, headers=headers, media_type="application/problem+json")


def status_of(error: MebanditError) -> int:
    """The status of a refusal of the library."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def refused(error: MebanditError) -> Response:
    """The answer to what the library refuses."""
    return problem(status_of(error), str(error))


def sentence(error: dict[str, Any]) -> str:
    """What pydantic found, in the frame of all our messages."""
    where = ".".join(str(part) for part in error["loc"][1:]) or "the body"
    said, kind = str(error["msg"]), error["type"]
    if kind == "json_invalid":
        return f"the body must be JSON; got something else ({error.get('ctx', {}).get('error', said)})."
    if kind == "missing":
        return f"{where} must be given; got nothing."
    if kind == "extra_forbidden":
        return f"{where} must be a field of this message; got another name."
    rule = said.removeprefix("Value error, ")
    for head in ("Input should ", "String should ", "List should ", "Dictionary should "):
        rule = rule.removeprefix(head)
    return f"{where} must {rule[:1].lower()}{rule[1:]}; got {checks.shown(error.get('input'))}."


def invalid(error: RequestValidationError) -> Response:
    """The answer to a request that is not of its described form: its first fault."""
    return problem(422, sentence(error.errors()[0]))


def _serves(route: BaseRoute, request: Request) -> bool:
    """Whether a route has the path of a request."""
    return route.matches(request.scope)[0] is not Match.NONE


def handle_problems(app: FastAPI) -> None:
    """Let every error of an app be answered in the same form."""

    @app.exception_handler(MebanditError)
    async def of_library(_: Request, error: MebanditError) -> Response:
        return refused(error)

    @app.exception_handler(RequestValidationError)
    async def of_types(_: Request, error: RequestValidationError) -> Response:
        return invalid(error)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 400:
            return problem(400, "the body must be JSON; got something else.")
        if error.status_code == 405:
            methods = {method for route in app.routes if _serves(route, request) for method in getattr(route, "methods", None) or ()}
            headers["Allow"] = ", ".join(sorted(methods))
        return problem(error.status_code, WORDS.get(error.status_code, str(error.detail)), headers)

    @app.exception_handler(Exception)
    async def of_ours(_: Request, error: Exception) -> Response:
        return problem(500, f"the request must be one that the service can serve; got a fault of its own ({type(error).__name__}).")
