"""The calls that decide, and those that tell what became of a decision."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from mebandit import checks
from mebandit.checks import InvalidInput
from mebandit.service import messages
from mebandit.service.app.guard import needs
from mebandit.service.messages import Answer, Deliveries, External, Outcomes, Results, Truths
from mebandit.service.service import DECIDING, Live, Service
from mebandit.service.store.decisions import NewDecision, Stored, store_decisions
from mebandit.service.store.experiments import Conflict
from mebandit.service.store.outcomes import TOLD, Told, store_outcomes, store_told

X = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:@~-]{1,200}$", description="name of the experiment", examples=["walk"])]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": said, "content": {"application/problem+json": {"schema": messages.Problem.model_json_schema()}}}
    for status, said in {
        400: "not JSON",
        401: "no valid key",
        403: "the key lacks the role",
        404: "no such experiment",
        409: "contradicts what is stored",
        413: "too large",
        422: "not of the described form, or against a rule that the form cannot say",
        503: "the store cannot be reached; nothing was stored",
    }.items()
}
routes = APIRouter(prefix="/v1/experiments/{x}", responses=PROBLEMS)
TRIES = 10
"""of a decision whose experiment is changed meanwhile"""


def json_response(body: Any) -> Response:
    return Response(json.dumps(body), media_type="application/json")


async def experiment(request: Request, x: str) -> tuple[Service, Live]:
    """The experiment of a call. One that does not decide is looked up: another process may have started it."""
    service: Service = request.app.state.service
    live = service.live(x)
    if live is None or live.status not in DECIDING:
        live = await run_in_threadpool(service.reload, x)
    return service, live


async def decided(service: Service, live: Live, asked: messages.Request) -> dict[str, Any]:
    """The answer to a request, stored."""
    while live.status in DECIDING:
        item = live.prepared(asked)
        stored = await service.database.ask(store_decisions, item)
        if stored is not None:
            return service.settled(asked, stored, live)
        live = await run_in_threadpool(service.reload, live.name)
    return await _made_before(service, live, asked)


async def _made_before(service: Service, live: Live, asked: messages.Request) -> dict[str, Any]:
    """An experiment that does not run makes no decision, but a retry gets the answer that is stored."""
    row = await run_in_threadpool(service.known_decision, live, asked.decision)
    if row is None:
        checks.refuse("experiment", "be running, to decide", f"{live.name!r}, which is {live.status}", error=Conflict)
    return service.settled(asked, Stored(dict(row), False), live)


@routes.post("/decisions", response_model=Answer, summary="Make a decision", tags=["decisions"], dependencies=[needs("decide")])
async def decide(request: Request, x: X, body: messages.Request) -> Response:
    """Draw an action, store it with the probabilities that it was drawn with, and answer. The same name with the same body gets the same
    answer however often it is sent; with another body it gets 409."""
    begun = time.perf_counter()
    service, live = await experiment(request, x)
    answer = await decided(service, live, body)
    metrics = request.app.state.metrics
    metrics.decisions.labels(answer["mode"], str(answer["replayed"]).lower()).inc()
    metrics.latency.observe(time.perf_counter() - begun)
    service.pulse.took(x, time.perf_counter() - begun)
    return json_response(answer)


@routes.post(
    "/decisions:batch",
    response_model=dict[str, list[Answer]],
    summary="Make many decisions",
    tags=["decisions"],
    dependencies=[needs("decide")],
)
async def decide_many(request: Request, x: X, body: messages.Requests) -> Response:
    """Many decisions, such as the future slots of a schedule; each is made and stored as if it came alone. If one of them is refused, those
    before it may be stored: send the same request again once it is mended."""
    service, live = await experiment(request, x)
    for asked in body.decisions:
        live.experiment.allowed(asked)  # refuse before anything is stored
    answers = await asyncio.gather(*(decided(service, live, asked) for asked in body.decisions), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    for answer in answers:
        request.app.state.metrics.decisions.labels(answer["mode"], str(answer["replayed"]).lower()).inc()  # type: ignore[index]
    return json_response({"decisions": answers})


@routes.post(
    "/decisions:external",
    response_model=Results,
    summary="Take in decisions that a client made",
    tags=["decisions"],
    dependencies=[needs("decide")],
)
async def take_in(request: Request, x: X, body: External) -> Response:
    """Decisions that a client made by itself while it could not reach the service, with the probabilities that it drew them with. They are
    learned from only if the experiment's `learns_from` says so."""
    service, live = await experiment(request, x)
    if live.status == "draft":
        checks.refuse("experiment", "have begun, to take in decisions", f"{x!r}, which is a draft", error=Conflict)
    return json_response({"results": await asyncio.gather(*(_external(service, live, made) for made in body.decisions))})


async def _external(service: Service, live: Live, made: messages.Made) -> dict[str, Any]:
    try:
        for _ in range(TRIES):
            item = live.external(made)
            stored: Stored | None = await service.database.ask(store_decisions, item)
            if stored is not None:
                return {"decision": made.decision, **_told(item, stored)._asdict()}
            live = await run_in_threadpool(service.reload, live.name)
    except InvalidInput as error:
        return {"decision": made.decision, "status": "refused", "note": str(error)}
    return {"decision": made.decision, "status": "refused", "note": "The experiment was changed meanwhile. Send it again."}


def _told(item: NewDecision, stored: Stored) -> Told:
    if stored.new:
        return Told("stored")
    if stored.row["request"] == item.row["request"]:
        return Told("duplicate")
    return Told("conflict", f"decision {item.row['name']} must have the same contents whenever it is sent; got another one.")


@routes.post("/outcomes", response_model=Results, summary="Report outcomes", tags=["outcomes"], dependencies=[needs("outcome")])
async def report(request: Request, x: X, body: Outcomes) -> Response:
    """Outcomes of decisions, each answered by itself. A correction is a higher revision. Only final values are learned; null says
    that there is none."""
    service, live = await experiment(request, x)
    waiting = [service.database.ask(store_outcomes, live.outcome(each)) for each in body.outcomes]
    results = [
        {"decision": each.decision, **told._asdict()} for each, told in zip(body.outcomes, await asyncio.gather(*waiting), strict=True)
    ]
    for result in results:
        request.app.state.metrics.outcomes.labels(result["status"]).inc()
    request.app.state.trainer.tell()
    return json_response({"results": results})


@routes.post("/deliveries", response_model=Results, summary="Report deliveries", tags=["outcomes"], dependencies=[needs("outcome")])
async def deliver(request: Request, x: X, body: Deliveries) -> Response:
    """What was really done with decisions. The policy learns from the action that was drawn, whatever became of it."""
    service, live = await experiment(request, x)
    rows: list[tuple[str, Any]] = []
    for each in body.deliveries:
        if each.action is not None and each.action not in live.experiment.actions:
            words = f"action must be one of the experiment ({', '.join(live.experiment.actions)}); got {each.action}."
            rows.append((each.decision, Told("refused", words)))
            continue
        told = json.dumps(each.model_dump(mode="json", exclude={"decision", "status"}), sort_keys=True)
        rows.append((each.decision, {"experiment": x, "decision": each.decision, "status": each.status, "body": told}))
    return await _tell(service, TOLD["deliveries"], rows)


@routes.post("/truths", response_model=Results, summary="Report true features", tags=["outcomes"], dependencies=[needs("outcome")])
async def tell_truths(request: Request, x: X, body: Truths) -> Response:
    """True values of features that became known later. They show whether the error that was told is still right."""
    service, live = await experiment(request, x)
    rows: list[tuple[str, Any]] = []
    for each in body.truths:
        for feature, value in each.values.items():
            if feature not in live.experiment.features:
                words = f"values must name features of the experiment ({', '.join(live.experiment.features)}); got {feature}."
                rows.append((each.decision, Told("refused", words)))
                continue
            rows.append((each.decision, {"experiment": x, "decision": each.decision, "feature": feature, "value": float(value)}))
    return await _tell(service, TOLD["truths"], rows)


async def _tell(service: Service, table: Any, rows: Sequence[tuple[str, Any]]) -> Response:
    """Store rows about decisions; those that were refused already are answered in their place."""
    submitted = [None if isinstance(row, Told) else service.database.ask(store_told, (table, row)) for _, row in rows]
    results = []
    for (name, row), each in zip(rows, submitted, strict=True):
        told: Told = row if each is None else await each
        results.append({"decision": name, **told._asdict()})
    return json_response({"results": results})
