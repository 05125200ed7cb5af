"""What people do on the pages: sign in and out, and act on an experiment. Every action is confirmed, has a reason, and is audited."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import Connection, select

from mebandit import checks
from mebandit.service import incidents
from mebandit.service.app.deciding import X
from mebandit.service.app.direct import NAME
from mebandit.service.pages.page import Paged, shown
from mebandit.service.pages.pages import Signed, live_of, service_of
from mebandit.service.pages.session import COOKIE, Session, begun, check_form, check_origin, form_of, session_of, set_cookie
from mebandit.service.service import Live, NotFound
from mebandit.service.store import experiments
from mebandit.service.store.records import write_audit
from mebandit.service.store.schema import decision

routes = APIRouter(route_class=Paged, include_in_schema=False)
LONGEST = 1000
"""characters of a reason"""


def wanted_back(back: str) -> str:
    """Where to go after signing in: a page of the dashboard, and nowhere else."""
    inside = back == "/dashboard" or (back.startswith("/dashboard/") and "\\" not in back and "//" not in back)
    return back if inside and back.isprintable() else "/dashboard"


@routes.get("/sign-in")
def ask_key(back: Annotated[str, Query(max_length=500)] = "/dashboard") -> Response:
    """The page that asks for a key."""
    return shown("sign-in.html", back=wanted_back(back), wrong="")


@routes.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session by a key."""
    check_origin(request)
    fields = await form_of(request)
    service = service_of(request)
    await run_in_threadpool(service.refresh)
    key, back = service.whose(fields.get("key", "").strip()), wanted_back(fields.get("back", ""))
    if key is None or not key.roles & {"read", "operate"}:
        wrong = "This is no valid key." if key is None else "This key has neither the role read nor operate."
        return shown("sign-in.html", status=403, back=back, wrong=wrong)
    answer = RedirectResponse(back, 303)
    set_cookie(request, answer, begun(request.app.state.session_secret, key, time.time()))
    return answer


@routes.post("/sign-out")
async def sign_out(request: Request, session: Signed) -> Response:
    """End a session."""
    check_form(request, session, await form_of(request))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def operating(request: Request) -> Session:
    """A session whose key may act; else the refusal enters the audit."""
    session = session_of(request)
    if not session.may("operate"):
        call = f"{request.method} {request.url.path}"
        name = session.key.name
        service_of(request).database.run(lambda c: write_audit(c, name, "refused", None, call=call, needs="operate"))
        raise HTTPException(403, f"the key must have the role 'operate'; got {name!r} with {', '.join(sorted(session.key.roles))}.")
    return session


Operating = Annotated[Session, Depends(operating)]
Fields = Mapping[str, str]


class Action(NamedTuple):
    """Something that an operator can do."""

    title: str
    words: Callable[[Live, Fields], str]
    """what it means"""
    sure: str
    """what is confirmed"""
    act: Callable[[Connection, Live, Fields, str, str], Any]
    """does it: connection, experiment, fields, reason, who"""
    fields: tuple[str, ...] = ()
    """what the address and the form carry"""
    back: Callable[[Fields], str] = lambda _: ""
    """the page of the experiment to go back to"""
    asked: str = "Reason"


def _status(to: str) -> Callable[[Connection, Live, Fields, str, str], Any]:
    return lambda connection, live, _, reason, by: experiments.change_status(connection, live.name, to, reason, by)


def _version(text: str) -> int | None:
    """The number of a version; None: the latest."""
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        checks.refuse("version", "be a number, or latest", text)
    return int(text)


def _withdraw(connection: Connection, live: Live, fields: Fields, reason: str, by: str) -> None:
    unit = fields["unit"]
    known = experiments.units_of(connection, live.name, unit).get(unit)
    if known is None and not _has_decided(connection, live.name, unit):
        checks.refuse("participant", "be one that this experiment knows", unit, error=NotFound)
    told = known or {"timezone": "UTC", "start": None, "end": None, "group": None, "times": None}
    experiments.save_unit(connection, live.name, unit, dict(told) | {"status": "withdrawn"}, by)
    write_audit(connection, by, "withdrawn", live.name, unit=unit, reason=reason)


def _has_decided(connection: Connection, x: str, unit: str) -> bool:
    asked = select(decision.c.id).where(decision.c.experiment == x, decision.c.unit == unit).limit(1)
    return connection.execute(asked).first() is not None


def _note(connection: Connection, live: Live, fields: Fields, reason: str, by: str) -> None:
    number = fields["incident"]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        checks.refuse("incident", "be a number", number)
    incidents.note(connection, live.name, int(number), reason, by)


ACTIONS: dict[str, Action] = {
    "start": Action(
        "Start",
        lambda live, _: f"{live.name} begins to decide and to learn. Its configuration can then not be changed any more.",
        "It is approved, and shall begin.",
        _status("running"),
    ),
    "pause": Action(
        "Pause",
        lambda live, _: f"{live.name} goes on to answer, but by its fallback, until it is resumed.",
        "The fallback shall decide until further notice.",
        _status("paused"),
    ),
    "resume": Action(
        "Resume",
        lambda live, _: f"Version {live.row['active']} of {live.name} decides again.",
        "The reason for the pause is gone.",
        _status("running"),
    ),
    "stop": Action(
        "Stop",
        lambda live, _: f"{live.name} ends. It decides nothing any more, and cannot be started again. Outcomes are still taken in.",
        "It shall end for good.",
        _status("stopped"),
    ),
    "activate": Action(
        "Activate a version",
        lambda live, fields: (
            f"The latest version of {live.name} decides, and each that follows."
            if fields["version"] == "latest"
            else f"Version {fields['version']} of {live.name} decides until another is activated. Now version {live.row['active']} decides."
        ),
        "This version shall decide.",
        lambda connection, live, fields, reason, by: experiments.activate(connection, live.name, _version(fields["version"]), reason, by),
        ("version",),
        lambda _: "/learned",
    ),
    "withdraw": Action(
        "Withdraw a participant",
        lambda live, fields: f"{fields['unit']} gets no action of {live.name} any more. What is stored of this participant stays.",
        "This participant takes part no more.",
        _withdraw,
        ("unit",),
        lambda fields: f"/units/{fields['unit']}",
    ),
    "note": Action(
        "Note on an incident",
        lambda _, fields: f"What is known of incident {fields['incident']}. Notes are added, and never changed.",
        "This is right.",
        _note,
        ("incident",),
        lambda fields: f"/incidents#i{fields['incident']}",
        "Note",
    ),
}


def _action(what: str, given: Fields) -> tuple[Action, dict[str, str]]:
    if what not in ACTIONS:
        checks.refuse("the address", "be that of an action", what, error=NotFound)
    found = ACTIONS[what]
    fields = {name: given.get(name, "") for name in found.fields}
    for name, value in fields.items():
        if NAME.fullmatch(value) is None:
            checks.refuse(name, "be a name or a number", value)
    return found, fields


@routes.get("/dashboard/{x}/do/{what}")
def confirm(request: Request, x: X, what: str, session: Operating) -> Response:
    """The page that asks whether one is sure."""
    live = live_of(request, x)
    action, fields = _action(what, request.query_params)
    given: dict[str, Any] = {
        "title": action.title,
        "words": action.words(live, fields),
        "sure": action.sure,
        "asked": action.asked,
        "fields": fields,
    }
    return shown("confirm.html", session, x=x, what=what, back=f"/dashboard/{x}{action.back(fields)}", **given)


@routes.post("/dashboard/{x}/do/{what}")
async def act(request: Request, x: X, what: str, session: Operating) -> Response:
    """Act, once it is confirmed."""
    given = await form_of(request)
    check_form(request, session, given)
    live = await run_in_threadpool(live_of, request, x)
    action, fields = _action(what, given)
    reason = given.get("reason", "").strip()
    if not reason or len(reason) > LONGEST or "\0" in reason:
        checks.refuse("the reason", f"have 1 to {LONGEST} characters", f"{len(reason)}")
    if given.get("sure") != "yes":
        checks.refuse("the action", "be confirmed", "a form without the mark")
    service = service_of(request)
    await run_in_threadpool(service.database.run, lambda connection: action.act(connection, live, fields, reason, session.key.name))
    await run_in_threadpool(service.reload, x)
    return RedirectResponse(f"/dashboard/{x}{action.back(fields)}", 303)


@routes.post("/dashboard/{x}/check")
async def check_now(request: Request, x: X, session: Operating) -> Response:
    """Make the checks of an experiment now."""
    check_form(request, session, await form_of(request))
    await run_in_threadpool(live_of, request, x)
    await run_in_threadpool(request.app.state.watcher.check, x)
    return RedirectResponse(f"/dashboard/{x}", 303)
