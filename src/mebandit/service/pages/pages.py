"""The pages that show."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from mebandit import checks
from mebandit.runtime.escaping import in_cell
from mebandit.service.app.deciding import X
from mebandit.service.checks.learned import LEVEL, effects_over_time, fitted_from
from mebandit.service.messages import Name
from mebandit.service.pages import figures, views
from mebandit.service.pages.page import FOLDER, HEADERS, Paged, shown
from mebandit.service.pages.session import Session, session_of
from mebandit.service.service import Live, NotFound, Service
from mebandit.service.store import watching

routes = APIRouter(route_class=Paged, include_in_schema=False)
Signed = Annotated[Session, Depends(session_of)]
Search = Annotated[str, Query(max_length=200)]
Before = Annotated[int | None, Query(ge=1, le=2**53)]
STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def live_of(request: Request, x: str) -> Live:
    """An experiment as it stands now."""
    return service_of(request).reload(x)


@routes.get("/")
def home() -> Response:
    """To the dashboard."""
    return RedirectResponse("/dashboard", 303)


@routes.get("/static/{name}")
def static(name: Annotated[str, Path(pattern="^[a-z.]{1,40}$")]) -> Response:
    """The style sheet and the script."""
    if name not in STATIC:
        checks.refuse("the address", "be that of a file", name, error=NotFound)
    return FileResponse(FOLDER / "static" / name, media_type=STATIC[name], headers={"X-Content-Type-Options": "nosniff"})


@routes.get("/dashboard")
def every(request: Request, session: Signed) -> Response:
    """All experiments."""
    service = service_of(request)
    service.refresh()
    with service.database.read() as connection:
        watched, opened = watching.all_watched(connection), views.open_incidents(connection)
    rows = [
        {"name": name, "status": live.status, "standing": views.standing(watched.get(name)), "open": opened.get(name, 0)}
        for name, live in sorted(service.known().items())
    ]
    return shown("experiments.html", session, rows=rows)


@routes.get("/dashboard/{x}")
def one(request: Request, x: X, session: Signed) -> Response:
    """One experiment at a glance."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        standing = views.standing(watching.watched(connection, x))
        opened = list(watching.open_of_checks(connection, x).values())
    made = standing.decisions - standing.modes.get("unavailable", 0)
    share = f"{standing.modes.get('fallback', 0) / made:.1%}" if made else "none"
    given: dict[str, Any] = {"live": live, "standing": standing, "open": opened, "fallback_share": share}
    return shown("experiment.html", session, x=x, here="", figure=figures.by_day(standing.days), modes=figures.MODES, **given)


@routes.get("/dashboard/{x}/units")
def units(request: Request, x: X, session: Signed, q: Search = "", after: Search = "") -> Response:
    """Participants."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        rows = views.units_of(connection, live, after=after, search=q)
    following = rows[-1]["unit"] if len(rows) == views.PAGE else None
    return shown("units.html", session, x=x, here="/units", rows=rows, q=q, next=following)


@routes.get("/dashboard/{x}/units/{unit}")
def unit_page(request: Request, x: X, unit: Name, session: Signed) -> Response:
    """One participant."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        rows, events = views.decisions_of(connection, live, unit=unit), views.unit_events(connection, x, unit)
    if not rows and not events:
        checks.refuse("participant", "be one that this experiment knows", unit, error=NotFound)
    return shown("unit.html", session, x=x, here="/units", unit=unit, told=live.units.get(unit), rows=rows, events=events)


@routes.get("/dashboard/{x}/decisions")
def decisions(request: Request, x: X, session: Signed, mode: Search = "", before: Search = "", name: Search = "") -> Response:
    """Decisions, the newest first, or the one of a name."""
    live, name = live_of(request, x), name.strip()
    if name and service_of(request).known_decision(live, name) is not None:
        return RedirectResponse(f"/dashboard/{x}/decisions/{name}", 303)
    with service_of(request).database.read() as connection:
        rows = views.decisions_of(connection, live, mode=mode, before=before)
    following = rows[-1]["received_at"] if len(rows) == views.PAGE else None
    return shown("decisions.html", session, x=x, here="/decisions", rows=rows, mode=mode, name=name, next=following)


@routes.get("/dashboard/{x}/decisions/{decision}")
def decision_page(request: Request, x: X, decision: Name, session: Signed) -> Response:
    """One decision, with everything that led to it, and its replay."""
    live = live_of(request, x)
    row = service_of(request).known_decision(live, decision)
    if row is None:
        checks.refuse("decision", "be one that was made", decision, error=NotFound)
    with service_of(request).database.read() as connection:
        found = views.story(connection, live, row)
    text = json.dumps(found.request, indent=2, ensure_ascii=False)
    return shown("decision.html", session, x=x, here="/decisions", story=found, request_text=text)


@routes.get("/dashboard/{x}/learned")
def learned(request: Request, x: X, session: Signed, what: Search = "average", before: Before = None) -> Response:
    """What was learned, and the versions."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        row = watching.watched(connection, x)
        fitted = fitted_from(None if row is None else json.loads(row["sums"]).get("fitted"))
        over_time, versions = effects_over_time(connection, x), views.versions_of(connection, x, before)
        parameters = views.parameters(connection, live, int(live.row["active"])) if live.trouble is None else []
    choices = ["average", *live.experiment.features]
    what = what if what in choices else "average"
    actions = live.experiment.actions
    drawn = [(action, figures.over_time(over_time, action, what)) for action in actions[1:]]
    given: dict[str, Any] = {
        "live": live,
        "versions": versions,
        "parameters": parameters,
        "choices": choices,
        "what": what,
        "against": actions[0],
    }
    given |= {"effects": beside(fitted.effects if fitted else []), "findings": fitted.findings if fitted else []}
    given |= {"figures": [pair for pair in drawn if pair[1] is not None], "rounds": fitted.rounds if fitted else 0}
    following = versions[-1]["number"] if len(versions) == views.PAGE else None
    return shown("learned.html", session, x=x, here="/learned", level=f"{LEVEL:.0%}", next=following, **given)


def beside(effects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The estimates of one coefficient side by side."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in effects:
        found.setdefault((each["action"], each["what"]), {"action": each["action"], "what": each["what"]})[each["method"]] = each
    return list(found.values())


@routes.get("/dashboard/{x}/error")
def error_model(request: Request, x: X, session: Signed) -> Response:
    """The error model, held against truths."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        row = watching.watched(connection, x)
        pairs = views.pairs_of(connection, live)
        last = views.decisions_of(connection, live)
    told = live.experiment.configuration.error
    names = live.experiment.features
    cov = next((json.loads(each["error_cov"]) for each in last if each["error_cov"]), None)
    drawn = []
    for feature, own in sorted(pairs.items()):
        i = names.index(feature)
        sd = cov[i][i] ** 0.5 if cov is not None else 0.0
        said = f"The last {len(own)} truths. The inner band is the told error of the newest decision, ± 1.96 × {sd:.3g}."
        drawn.append((feature, figures.against_truth(own, feature, sd), said))
    about = ("told error", "drift", "error")
    results = [each for each in views.standing(row).results if each["name"] in about or each["name"].startswith("error of ")]
    shown_error = told if told == "per decision" else json.dumps(told.model_dump(mode="json"))
    return shown("error.html", session, x=x, here="/error", error=shown_error, figures=drawn, results=results)


@routes.get("/dashboard/{x}/incidents")
def incidents(request: Request, x: X, session: Signed, q: Search = "", kind: Search = "", before: Before = None) -> Response:
    """Incidents, searchable."""
    live_of(request, x)
    with service_of(request).database.read() as connection:
        rows = views.incidents_of(connection, x, search=q, before=before, grave=kind == watching.FOUND)
    following = rows[-1]["id"] if len(rows) == views.PAGE else None
    return shown("incidents.html", session, x=x, here="/incidents", rows=rows, q=q, grave=kind == watching.FOUND, next=following)


@routes.get("/dashboard/{x}/incidents.csv")
def incidents_csv(request: Request, x: X, session: Signed, q: Search = "") -> Response:
    """The newest incidents for a spreadsheet."""
    live_of(request, x)
    with service_of(request).database.read() as connection:
        rows = views.incidents_of(connection, x, search=q, before=None, grave=False)
    names = "id", "at", "state", "closed_at", "kind", "subject", "said", "units", "decisions"
    noted = [row | {"notes": "; ".join(note["said"] for note in row["notes"])} for row in rows]
    return as_csv("incidents", (*names, "notes"), noted)


@routes.get("/dashboard/{x}/audit")
def audit(request: Request, x: X, session: Signed, q: Search = "", before: Before = None) -> Response:
    """The audit of an experiment, searchable."""
    live_of(request, x)
    with service_of(request).database.read() as connection:
        rows = views.audit_of(connection, x, search=q, before=before)
    following = rows[-1]["id"] if len(rows) == views.PAGE else None
    return shown("audit.html", session, x=x, here="/audit", rows=rows, q=q, next=following)


@routes.get("/dashboard/{x}/audit.csv")
def audit_csv(request: Request, x: X, session: Signed, q: Search = "") -> Response:
    """The newest rows of the audit for a spreadsheet."""
    live_of(request, x)
    with service_of(request).database.read() as connection:
        rows = views.audit_of(connection, x, search=q, before=None)
    return as_csv("audit", ("id", "at", "by", "what", "detail", "hash"), rows)


def as_csv(name: str, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> Response:
    """Rows for a spreadsheet, which computes none of their texts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([in_cell(value) if isinstance(value := row[each], str) else value for each in columns])
    named = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=HEADERS | named)


@routes.get("/dashboard/{x}/configuration")
def configuration(request: Request, x: X, session: Signed) -> Response:
    """The configuration with its hash."""
    live = live_of(request, x)
    with service_of(request).database.read() as connection:
        row = views.configuration_of(connection, live)
    same = sha256(row["body"].encode()).hexdigest() == row["hash"]
    text = json.dumps(json.loads(row["body"]), indent=2, ensure_ascii=False)
    return shown("configuration.html", session, x=x, here="/configuration", row=row, live=live, same=same, text=text)
