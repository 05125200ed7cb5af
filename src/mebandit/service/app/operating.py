"""The calls of those who run an experiment, and of those who watch it."""

import json
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select

from mebandit import checks
from mebandit.service import log, messages
from mebandit.service.app.deciding import PROBLEMS, X, json_response
from mebandit.service.app.guard import needs
from mebandit.service.messages import Activation, Change, Configuration, NewKey, Unit
from mebandit.service.service import Live, NotFound, Service, new_key, read_version
from mebandit.service.store import experiments
from mebandit.service.store.database import all_rows
from mebandit.service.store.records import Key
from mebandit.service.store.schema import audit

Page = Annotated[int, Query(ge=0, le=2**53, description="rows after this id or number")]
Most = Annotated[int, Query(ge=1, le=1000)]
UnitName = messages.Name
routes = APIRouter(prefix="/v1", responses=PROBLEMS)
OPERATE, READ = needs("operate"), needs("read")


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def shown(live: Live) -> dict[str, Any]:
    """An experiment as it stands, see `messages.Experiment`."""
    return {
        "experiment": live.name,
        "status": live.status,
        "configuration": json.loads(live.experiment.body),
        "configuration_hash": live.experiment.hash,
        "secret_hash": live.row["secret_hash"],
        "version": live.row["active"],
        "latest": live.row["latest"],
        "pinned": live.row["pinned"],
    }


@routes.get("/experiments", summary="All experiments", tags=["experiments"], dependencies=[READ])
def every(request: Request) -> dict[str, list[messages.Experiment]]:
    """Every experiment of the store, as it stands."""
    service = service_of(request)
    service.refresh()
    return {"experiments": [messages.Experiment(**shown(live)) for _, live in sorted(service.known().items())]}


@routes.put("/experiments/{x}", response_model=messages.Experiment, summary="Create an experiment", tags=["experiments"])
def configure(request: Request, x: X, body: Configuration, key: Key = OPERATE) -> Response:
    """Create a draft, or change one. Once an experiment runs, its configuration stays as it is."""
    return json_response(shown(service_of(request).configure(x, body, key.name)))


@routes.get("/experiments/{x}", response_model=messages.Experiment, summary="An experiment", tags=["experiments"], dependencies=[READ])
def one(request: Request, x: X) -> Response:
    """An experiment as it stands."""
    return json_response(shown(service_of(request).reload(x)))


@routes.post("/experiments/{x}/state", response_model=messages.Experiment, summary="Start, pause or stop", tags=["experiments"])
def change(request: Request, x: X, body: Change, key: Key = OPERATE) -> Response:
    """Let an experiment run, pause or stop. A paused one decides by its fallback; a stopped one decides nothing any more."""
    service = service_of(request)
    service.found(x)
    service.database.run(lambda c: experiments.change_status(c, x, body.to, body.reason, key.name))
    return json_response(shown(service.reload(x)))


@routes.put("/experiments/{x}/units/{unit}", summary="Register a unit", tags=["experiments"])
def register(request: Request, x: X, unit: UnitName, body: Unit, key: Key = OPERATE) -> Unit:
    """What is known of a participant. Nothing is overwritten: each call adds a row. A withdrawn unit gets no action any more."""
    service = service_of(request)
    service.found(x)
    told = body.model_dump(mode="json")
    service.database.run(lambda c: experiments.save_unit(c, x, unit, told, key.name))
    service.reload(x)
    return body


@routes.get("/experiments/{x}/decisions/{decision}", summary="A decision", tags=["decisions"], dependencies=[READ])
def stored(request: Request, x: X, decision: messages.Name) -> messages.Answer:
    """A decision that was made."""
    service = service_of(request)
    live = service.found(x)
    row = service.known_decision(live, decision)
    if row is None:
        checks.refuse("decision", "be one that was made", decision, error=NotFound)
    return messages.Answer(**live.experiment.answer(row, True))


@routes.post("/experiments/{x}/train", summary="Learn now", tags=["versions"], dependencies=[OPERATE])
def train(request: Request, x: X) -> dict[str, int]:
    """Learn all outcomes that wait, whatever the cadence."""
    service_of(request).found(x)
    count = request.app.state.trainer.train(x)
    return {"learned": count, "latest": int(service_of(request).found(x).row["latest"])}


@routes.get("/experiments/{x}/versions", summary="All versions", tags=["versions"], dependencies=[READ])
def versions(request: Request, x: X, after: Page = 0, most: Most = 100) -> dict[str, Any]:
    """Versions with at least the number `after`, in order."""
    service = service_of(request)
    service.found(x)
    return {"versions": [_version(row) for row in service.versions_since(x, after - 1, most)]}


def _version(row: dict[str, Any]) -> dict[str, Any]:
    return {"version": row["number"]} | {part: row[part] for part in ("learned", "fingerprint", "made_at")}


@routes.get("/experiments/{x}/versions/{n}", summary="A version", tags=["versions"], dependencies=[READ])
def version(request: Request, x: X, n: Annotated[int, messages.Field(ge=0, le=2**31 - 1)]) -> dict[str, Any]:
    """What a version has learned: its parameters by action and feature, and what speaks against trusting them."""
    service = service_of(request)
    live = service.found(x)
    with service.database.read() as connection:
        found = read_version(connection, x, live.experiment, n)
        row = experiments.version_of(connection, x, n)
    experiment, policy = live.experiment, live.experiment.policy
    theta = policy.theta(found.state)
    parameters = {a: dict(zip(experiment.features, t, strict=True)) for a, t in zip(experiment.actions, theta.tolist(), strict=True)}
    findings = [{"name": each.name, "verdict": each.verdict, "said": each.sentence} for each in policy.diagnostics(found.state)]
    return _version(dict(row or {})) | {"parameters": parameters, "diagnostics": findings}


@routes.post("/experiments/{x}/activate", summary="Choose the version that decides", tags=["versions"])
def activate(request: Request, x: X, body: Activation, key: Key = OPERATE) -> dict[str, int]:
    """Go back to an earlier version, which then decides until another is activated; or let the latest decide, and each that follows."""
    service = service_of(request)
    service.found(x)
    wanted = None if body.version == "latest" else body.version
    number = service.database.run(lambda c: experiments.activate(c, x, wanted, body.reason, key.name))
    service.reload(x)
    return {"version": number}


FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
LOG: dict[int | str, dict[str, Any]] = {200: {"description": "the log", "content": {media: {"schema": {}} for media in FORMATS.values()}}}


@routes.get(
    "/experiments/{x}/log", summary="The log", tags=["watching"], dependencies=[READ], responses=LOG, response_class=StreamingResponse
)
def log_of(
    request: Request, x: X, format: Literal["parquet", "csv", "jsonl"] = "jsonl", rows: Literal["usable", "all"] = "usable"
) -> Response:
    """A row for each decision with its outcome, as `mebandit fit` and `mebandit value` read it. `rows=all` also has decisions without a
    usable context."""
    service = service_of(request)
    experiment = service.found(x).experiment
    found = log.rows(service.database, x, experiment, every=rows == "all")
    named = {"Content-Disposition": f'attachment; filename="log.{format}"'}
    if format == "jsonl":
        return StreamingResponse(log.as_json_lines(found), media_type=FORMATS[format], headers=named)
    if format == "csv":
        return StreamingResponse(log.as_csv(experiment, found), media_type=FORMATS[format], headers=named)
    file = TemporaryFile()  # noqa: SIM115  closed when the answer was sent
    log.write_parquet(experiment, found, file)
    file.seek(0)
    return StreamingResponse(file, media_type=FORMATS[format], headers=named)


@routes.get("/audit", summary="The audit", tags=["watching"], dependencies=[READ])
def audited(request: Request, after: Page = 0, most: Most = 100) -> dict[str, Any]:
    """Who changed what, when and why; each row holds the hash of the row before."""
    with service_of(request).database.read() as connection:
        found = all_rows(connection, select(audit).where(audit.c.id > after).order_by(audit.c.id).limit(most))
    return {"audit": [row | {"detail": json.loads(row["detail"])} for row in found]}


@routes.post("/keys", summary="Make a key", tags=["keys"])
def make_key(request: Request, body: NewKey, key: Key = OPERATE) -> dict[str, str]:
    """A new key, which is shown this once."""
    made = new_key()
    service_of(request).make_key(body.name, made, body.roles, by=key.name)
    return {"name": body.name, "key": made}


@routes.post("/keys/{name}/revoke", summary="Revoke a key", tags=["keys"])
def revoke_key(
    request: Request, name: Annotated[str, messages.Field(pattern="^[A-Za-z0-9 _.-]{1,100}$")], key: Key = OPERATE
) -> dict[str, str]:
    """End the validity of a key."""
    service_of(request).revoke_key(name, by=key.name)
    return {"name": name}
