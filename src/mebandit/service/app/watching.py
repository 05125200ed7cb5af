"""The calls for those who watch: checks, incidents, and webhooks that are told of them."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from mebandit import checks
from mebandit.service import incidents, messages, webhooks
from mebandit.service.app.deciding import PROBLEMS, X
from mebandit.service.app.guard import needs
from mebandit.service.app.operating import Most, Page, service_of
from mebandit.service.service import Service
from mebandit.service.store import watching
from mebandit.service.store.database import Unavailable, all_rows
from mebandit.service.store.records import Key
from mebandit.service.store.schema import incident

routes = APIRouter(prefix="/v1", responses=PROBLEMS, tags=["watching"])
OPERATE, READ = needs("operate"), needs("read")
Number = Annotated[int, messages.Field(ge=1, le=2**53)]


def last_results(service: Service, x: str) -> dict[str, Any]:
    """The last results of the checks; nothing before they were made first."""
    with service.database.read() as connection:
        row = watching.watched(connection, x)
    if row is None:
        return {"at": None, "checks": [], "decisions": {}}
    modes = json.loads(row["sums"]).get("sums", {}).get("modes", {})
    return {"at": row["at"], "checks": json.loads(row["results"]), "decisions": modes}


@routes.get("/experiments/{x}/checks", summary="Whether it runs as designed", dependencies=[READ])
async def checks_of(request: Request, x: X) -> dict[str, Any]:
    """The last results of the checks, each with a level, a value, its limit, the sentence that says why, and what to do; made every half
    minute. `POST .../checks:run` makes them now."""
    service = service_of(request)
    await run_in_threadpool(service.found, x)
    return await run_in_threadpool(last_results, service, x)


@routes.post("/experiments/{x}/checks:run", summary="Check now", dependencies=[READ])
async def check_now(request: Request, x: X) -> dict[str, Any]:
    """Make all checks of an experiment now, and store what they find."""
    service = service_of(request)
    await run_in_threadpool(service.found, x)
    if await run_in_threadpool(request.app.state.watcher.check, x) is None:
        checks.refuse("the checks", "be made by one process at a time", "another that makes them", "Ask again.", error=Unavailable)
    return await run_in_threadpool(last_results, service, x)


@routes.get("/experiments/{x}/incidents", summary="Incidents", dependencies=[READ])
def incidents_of(
    request: Request,
    x: X,
    after: Page = 0,
    most: Most = 100,
    search: Annotated[str, Query(max_length=200, description="words that the sentence must have")] = "",
) -> dict[str, Any]:
    """What people should look at, in the order in which it happened. `state`: open or closed for what a check found, `noted` for what
    happened once."""
    service = service_of(request)
    service.found(x)
    asked = select(incident).where(incident.c.experiment == x, incident.c.id > after)
    if search:
        asked = asked.where(incident.c.said.icontains(search, autoescape=True))
    with service.database.read() as connection:
        rows = all_rows(connection, asked.order_by(incident.c.id).limit(most))
        events = watching.events_of(connection, [row["id"] for row in rows])
    return {"incidents": [incidents.shown(row, events.get(row["id"], [])) for row in rows]}


@routes.post("/experiments/{x}/incidents/{number}/notes", summary="Note something on an incident")
def add_note(request: Request, x: X, number: Number, body: messages.Note, key: Key = OPERATE) -> dict[str, int]:
    """Write down what is known of an incident. Notes are added, never changed."""
    service = service_of(request)
    service.found(x)
    service.database.run(lambda connection: incidents.note(connection, x, number, body.said, key.name))
    return {"incident": number}


@routes.get("/webhooks", summary="All webhooks", dependencies=[READ])
def all_webhooks(request: Request) -> dict[str, list[dict[str, str]]]:
    """The addresses that are told of incidents."""
    with service_of(request).database.read() as connection:
        rows = watching.webhooks_of(connection)
    return {"webhooks": [{name: row[name] for name in ("name", "address", "created_at", "by")} for row in rows]}


@routes.post("/webhooks", summary="Make a webhook")
def make_webhook(request: Request, body: messages.NewWebhook, key: Key = OPERATE) -> dict[str, str]:
    """Tell an address of every incident that opens or closes. Each notice is signed with the secret, which is shown this once:
    `X-Mebandit-Signature: sha256=` and the HMAC of the body. A notice is sent again for some hours until it is answered with a status of
    200 to 299."""
    secret = service_of(request).database.run(lambda connection: webhooks.add(connection, body.name, body.address, key.name))
    return {"name": body.name, "secret": secret}


@routes.post("/webhooks/{name}/end", summary="End a webhook")
def end_webhook(
    request: Request, name: Annotated[str, messages.Field(pattern="^[A-Za-z0-9 _.-]{1,100}$")], key: Key = OPERATE
) -> dict[str, str]:
    """Tell an address no more."""
    service_of(request).database.run(lambda connection: webhooks.end(connection, name, key.name))
    return {"name": name}
