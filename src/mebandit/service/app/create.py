"""The app of one process: its calls, its trainer, and when it is ready."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, Response

from mebandit.service.app import deciding, operating, watching
from mebandit.service.app.deciding import PROBLEMS
from mebandit.service.app.direct import Direct
from mebandit.service.app.guard import Limit
from mebandit.service.app.metrics import Metrics
from mebandit.service.app.problems import handle_problems, problem
from mebandit.service.pages import acting, pages
from mebandit.service.pages.session import secret_of
from mebandit.service.service import Service, first_key
from mebandit.service.store.database import Database
from mebandit.service.trainer import Trainer
from mebandit.service.watcher import Watcher

STORE, KEY = "MEBANDIT_STORE", "MEBANDIT_API_KEY"
"""environment variables: how a process that serves learns of its store, and the key of the operator"""
ABOUT = """Decisions on contexts that are predicted with error. Every decision and every outcome is on disk before it is answered. A retry
gets the stored answer. Every decision can be proved afterwards (`mebandit replay`)."""


def create(store: str | None = None) -> FastAPI:
    """An app on a store.

    Args:
        store: path of a SQLite file or address of a PostgreSQL database. None: what the environment says.
    """
    address = store or os.environ[STORE]

    @asynccontextmanager
    async def serving(app: FastAPI) -> AsyncIterator[None]:
        database = await run_in_threadpool(Database, address)
        await run_in_threadpool(first_key, database, os.environ.get(KEY))
        app.state.service = service = await run_in_threadpool(Service, database)
        app.state.session_secret = await run_in_threadpool(secret_of, database)
        app.state.trainer = Trainer(service)
        app.state.trainer.start()
        app.state.watcher = Watcher(service)
        app.state.watcher.start()
        app.state.ready = True
        yield
        app.state.ready = False
        await run_in_threadpool(app.state.watcher.stop)
        await run_in_threadpool(app.state.trainer.stop)
        await run_in_threadpool(database.close)

    from mebandit import __version__

    app = FastAPI(title="mebandit", version=__version__, description=ABOUT, lifespan=serving, redoc_url=None)
    app.state.metrics, app.state.ready = Metrics(), False
    app.add_middleware(Direct, routes=deciding.routes.routes)
    app.add_middleware(Limit)
    app.include_router(deciding.routes)
    app.include_router(operating.routes)
    app.include_router(watching.routes)
    app.include_router(pages.routes)
    app.include_router(acting.routes)
    handle_problems(app)

    @app.get("/healthz", tags=["watching"], summary="Whether the process lives")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get(
        "/readyz", tags=["watching"], summary="Whether it can decide", response_class=PlainTextResponse, responses={503: PROBLEMS[503]}
    )
    async def readyz(request: Request) -> Response:
        try:
            await run_in_threadpool(_ask, request.app.state.service)
        except Exception as error:
            return problem(503, f"the service must reach its store; got {str(error).rstrip('.')}.")
        return PlainTextResponse("ready")

    @app.get("/metrics", tags=["watching"], summary="Counters for Prometheus", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")

    return app


def _ask(service: Service) -> None:
    with service.database.read():
        pass
