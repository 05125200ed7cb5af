"""Routes called without FastAPI's resolution of dependencies, which takes longer than a decision; their description is FastAPI's."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from mebandit.service.app.guard import ROLE_OF, admitted

NAME = re.compile(r"[A-Za-z0-9_.:@~-]{1,200}")


class Direct(APIRoute):
    """A route with the arguments (request, x, body) whose only dependency is the role of the caller."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What is called for a request."""
        endpoint, role = self.endpoint, ROLE_OF[self.dependencies[0].dependency]
        message: type[BaseModel] = endpoint.__annotations__["body"]

        async def handle(request: Request) -> Response:
            await admitted(request, role)
            name = request.path_params["x"]
            if NAME.fullmatch(name) is None:
                fault = {"type": "pattern", "loc": ("path", "x"), "msg": "String should be a name of letters, digits and _ . : @ ~ -"}
                raise RequestValidationError([fault | {"input": name}])
            try:
                body = message.model_validate_json(await request.body())
            except ValidationError as error:
                found = error.errors(include_url=False)[0]
                raise RequestValidationError([dict(found) | {"loc": ("body", *found["loc"])}]) from error
            answer: Response = await endpoint(request, name, body)
            return answer

        return handle
