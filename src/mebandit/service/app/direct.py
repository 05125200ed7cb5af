"""The calls that are made most often, served without FastAPI's routing and resolution of dependencies, which take longer than a decision.

FastAPI has the same routes: it describes them, and answers what does not come in this form.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from mebandit.checks import MebanditError
from mebandit.service.app.guard import ROLE_OF, admitted
from mebandit.service.app.problems import invalid, problem, refused

NAME = re.compile(r"[A-Za-z0-9_.:@~-]{1,200}")
PATH = re.compile(rf"(/v1/experiments)/({NAME.pattern})(/[a-z:]+)")


class Call(NamedTuple):
    """What a route does with a message."""

    endpoint: Any
    """a coroutine function of the request, the name of the experiment, and the message"""
    role: str
    """that the caller must have"""
    message: type[BaseModel]


def call_of(route: APIRoute) -> Call:
    """A route with the arguments (request, x, body), whose only dependency is the role of the caller."""
    return Call(route.endpoint, ROLE_OF[route.dependencies[0].dependency], route.endpoint.__annotations__["body"])


class Direct:
    """Serves POST on some routes by itself, and hands everything else on."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self._calls = {route.path: call_of(route) for route in routes if isinstance(route, APIRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        call = self._calls.get(f"{found[1]}/{{x}}{found[3]}") if found else None
        if found is None or call is None:
            await self.app(scope, receive, send)
            return
        answer = await served(call, Request(scope, receive, send), found[2])
        await answer(scope, receive, send)


async def served(call: Call, request: Request, name: str) -> Response:
    """The answer to a request, whatever comes of it; a fault of our own is raised."""
    try:
        await admitted(request, call.role)
        answer: Response = await call.endpoint(request, name, call.message.model_validate_json(await request.body()))
        return answer
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        return invalid(RequestValidationError([dict(found) | {"loc": ("body", *found["loc"])}]))
    except MebanditError as error:
        return refused(error)
    except HTTPException as error:
        return problem(error.status_code, str(error.detail), dict(error.headers or {}))
