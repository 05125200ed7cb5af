"""Who may call, and how much they may send."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mebandit.service.app.problems import problem
from mebandit.service.service import Service
from mebandit.service.store.records import Key, write_audit

LARGEST = 4 << 20
"""bytes of the largest body"""
bearer = HTTPBearer(auto_error=False, description="A key of the service. Its roles say which calls it may make.")


ROLE_OF: dict[Any, str] = {}
"""the role that a dependency asks for"""


async def admitted(request: Request, role: str) -> Key:
    """The key of the caller, which must have a role."""
    service: Service = request.app.state.service
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = service.whose(given) if scheme.lower() == "bearer" else None
    if key is None:
        words = "the request must carry a valid key (Authorization: Bearer ...); got none that is."
        raise HTTPException(401, words, {"WWW-Authenticate": "Bearer"})
    if role not in key.roles:
        call = f"{request.method} {request.url.path}"
        await run_in_threadpool(service.database.run, lambda c: write_audit(c, key.name, "refused", None, call=call, needs=role))
        raise HTTPException(403, f"the key must have the role {role!r}; got {key.name!r} with {', '.join(sorted(key.roles))}.")
    return key


def needs(role: str) -> Any:
    """A dependency: `admitted`, and the description of keys."""

    async def caller(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Key:
        return await admitted(request, role)

    ROLE_OF[caller] = role
    return Depends(caller)


class Limit:
    """Refuses bodies that are too large, before they are read to the end."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > LARGEST:
            await problem(413, f"the body must have at most {LARGEST:,} bytes; got {told.decode(errors='replace')[:20]}.")(
                scope, receive, send
            )
            return
        await self.app(scope, counted(receive), send)


def counted(receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A body that ends in an error when it grows too large."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST:
            raise HTTPException(413, f"the body must have at most {LARGEST:,} bytes; got more.")
        return message

    return limited
