"""What the pages show, read from the store. Every question is bounded, so that a page of a large store is there at once."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, or_, select

from mebandit.checks import MebanditError
from mebandit.service import incidents
from mebandit.service.replay import Different, compare
from mebandit.service.service import Live, read_version
from mebandit.service.store import experiments, watching
from mebandit.service.store.database import Row, all_rows, first_row
from mebandit.service.store.schema import (
    audit,
    decision,
    delivery,
    incident,
    learned,
    outcome,
    policy_version,
    truth,
    unit_event,
)
from mebandit.values import GREEN, RED, YELLOW

PAGE = 50
"""rows of a page"""
QUESTIONS = (
    (
        "Is it running as designed?",
        ("status", "decisions due", "fallback", "staleness", "ranges", "outcomes", "learning", "version", "latency",
         "repeated requests", "participants without data"),
    ),
    ("Are the probabilities what they should be?", ("floor", "randomisation")),
    ("Is what was learned sound?", ("effective rounds",)),
    ("Is the error model still right?", ("told error", "drift", "error")),
)  # fmt: skip
"""what a dashboard answers, in this order, and the checks that answer it"""


class Standing(NamedTuple):
    """How an experiment stands."""

    level: str
    """green, yellow, red, or unknown before the first check"""
    at: str | None
    results: list[dict[str, Any]]
    modes: Mapping[str, int]
    days: Mapping[str, Mapping[str, int]]

    @property
    def grave(self) -> list[dict[str, Any]]:
        """The checks that are not green, the worst first."""
        return sorted((each for each in self.results if each["level"] != GREEN), key=lambda each: (RED, YELLOW).index(each["level"]))

    @property
    def decisions(self) -> int:
        """All decisions that were summed up."""
        return sum(self.modes.values())

    def grouped(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """The results by the question that they answer."""
        rest, found = list(self.results), []
        for question, names in QUESTIONS:
            own = [each for each in rest if each["name"] in names or each["name"].partition(" of ")[0] in names]
            rest = [each for each in rest if each not in own]
            found.append((question, own))
        if rest:
            found.append(("Other checks", rest))
        return found


def standing(row: Mapping[str, Any] | None) -> Standing:
    """How an experiment stands, from a row of the table `watch`."""
    if row is None:
        return Standing("unknown", None, [], {}, {})
    results, sums = json.loads(row["results"]), json.loads(row["sums"]).get("sums", {})
    levels = [each["level"] for each in results]
    worst = next((level for level in (RED, YELLOW) if level in levels), GREEN)
    return Standing(worst, row["at"], results, sums.get("modes", {}), sums.get("days", {}))


def open_incidents(connection: Connection) -> dict[str, int]:
    """How many incidents are open, by experiment."""
    return {x: len(watching.open_of_checks(connection, x)) for x in connection.execute(select(incident.c.experiment).distinct()).scalars()}


# ---- incidents and audit ----


def incidents_of(connection: Connection, x: str, *, search: str, before: int | None, grave: bool) -> list[dict[str, Any]]:
    """Incidents, the newest first.

    Args:
        connection: to the store.
        x: the experiment.
        search: words that the sentence, the kind or the subject must have.
        before: only those with a smaller number.
        grave: only those that a check opened.
    """
    asked = select(incident).where(incident.c.experiment == x)
    if search:
        asked = asked.where(or_(*(incident.c[name].icontains(search, autoescape=True) for name in ("said", "kind", "subject"))))
    if before is not None:
        asked = asked.where(incident.c.id < before)
    if grave:
        asked = asked.where(incident.c.kind == watching.FOUND)
    rows = all_rows(connection, asked.order_by(incident.c.id.desc()).limit(PAGE))
    events = watching.events_of(connection, [row["id"] for row in rows])
    return [incidents.shown(row, events.get(row["id"], [])) for row in rows]


def audit_of(connection: Connection, x: str | None, *, search: str, before: int | None) -> list[Row]:
    """Rows of the audit, the newest first."""
    asked = select(audit)
    if x is not None:
        asked = asked.where(audit.c.experiment == x)
    if search:
        asked = asked.where(or_(*(audit.c[name].icontains(search, autoescape=True) for name in ("what", "by", "detail"))))
    if before is not None:
        asked = asked.where(audit.c.id < before)
    rows = all_rows(connection, asked.order_by(audit.c.id.desc()).limit(PAGE))
    return [row | {"detail": ", ".join(f"{k}: {v}" for k, v in json.loads(row["detail"]).items())} for row in rows]


# ---- participants ----


def units_of(connection: Connection, live: Live, *, after: str, search: str) -> list[dict[str, Any]]:
    """A page of participants in the order of their names, registered ones and those of decisions alone.

    Args:
        connection: to the store.
        live: the experiment.
        after: only names after this one.
        search: how the names begin.
    """
    registered = sorted(name for name in live.units if name.startswith(search))
    names = set(registered[bisect_right(registered, after) :][:PAGE])
    last = after
    for _ in range(PAGE):  # the next name is one step in the index, however many decisions there are
        asked = select(func.min(decision.c.unit)).where(
            decision.c.experiment == live.name, decision.c.unit > last, decision.c.unit >= search
        )
        found = connection.execute(asked).scalar()
        if found is None or not found.startswith(search):
            break
        last = found
        names.add(found)
    chosen = sorted(names)[:PAGE]
    own = (decision.c.experiment == live.name) & decision.c.unit.in_(chosen)
    counts = {
        unit: (n, newest)
        for unit, n, newest in connection.execute(
            select(decision.c.unit, func.count(), func.max(decision.c.id)).where(own).group_by(decision.c.unit)
        )
    }
    newest = all_rows(connection, select(decision).where(decision.c.id.in_([each for _, each in counts.values()])))
    rows = {row["unit"]: row for row in newest}
    return [
        {"unit": unit, "told": live.units.get(unit), "decisions": counts.get(unit, (0, 0))[0], "last": rows.get(unit)} for unit in chosen
    ]


def unit_events(connection: Connection, x: str, unit: str) -> list[dict[str, Any]]:
    """What was told of a participant, the newest first."""
    asked = select(unit_event).where(unit_event.c.experiment == x, unit_event.c.unit == unit).order_by(unit_event.c.id.desc()).limit(PAGE)
    return [row | {"body": json.loads(row["body"])} for row in all_rows(connection, asked)]


def decisions_of(connection: Connection, live: Live, *, unit: str | None = None, mode: str = "", before: str = "") -> list[dict[str, Any]]:
    """Decisions, the newest first, each with its last outcome."""
    asked = select(decision).where(decision.c.experiment == live.name)
    if unit is not None:
        asked = asked.where(decision.c.unit == unit).order_by(decision.c.id.desc())
    else:
        asked = asked.order_by(decision.c.received_at.desc(), decision.c.id.desc())
    if before:
        asked = asked.where(decision.c.received_at < before)
    rows = all_rows(connection, asked.limit(20 * PAGE if mode else PAGE))
    rows = [row for row in rows if not mode or row["mode"] == mode][:PAGE]
    told = outcomes_of(connection, live.name, [row["name"] for row in rows])
    return [row | {"answer": live.experiment.answer(row, True), "outcome": told.get(row["name"])} for row in rows]


def outcomes_of(connection: Connection, x: str, names: Sequence[str]) -> dict[str, Row]:
    """The last revision of the outcomes of some decisions."""
    asked = select(outcome).where(outcome.c.experiment == x, outcome.c.decision.in_(list(names))).order_by(outcome.c.revision)
    return {row["decision"]: row for row in all_rows(connection, asked)}


# ---- one decision ----


class Story(NamedTuple):
    """Everything that led to a decision, and what became of it."""

    row: Row
    answer: dict[str, Any]
    request: dict[str, Any]
    context: list[dict[str, Any]]
    """by feature: what was sent, what was used, and the standard deviation of its error"""
    shares: list[dict[str, Any]]
    """by action: the probability, and the piece of (0, 1) in which a draw chooses it"""
    outcomes: list[Row]
    deliveries: list[dict[str, Any]]
    truths: list[Row]
    learned: Row | None
    replay: str
    """the difference that a replay found; empty if there is none"""


def story(connection: Connection, live: Live, row: Row) -> Story:
    """All that is stored of a decision, and its replay."""
    experiment, request = live.experiment, json.loads(row["request"])
    predicted = json.loads(row["predicted"]) if row["predicted"] else [None] * len(experiment.features)
    cov = json.loads(row["error_cov"]) if row["error_cov"] else None
    context = [
        {
            "feature": feature.name,
            "sent": feature.constant if feature.constant is not None else request["context"].get(feature.name),
            "used": predicted[i],
            "sd": None if cov is None else cov[i][i] ** 0.5,
            "observed": request["observed_at"].get(feature.name),
        }
        for i, feature in enumerate(experiment.configuration.features)
    ]
    shares, total = [], 0.0
    for action, share in zip(experiment.actions, json.loads(row["propensities"] or "[]"), strict=False):
        shares.append({"action": action, "share": share, "low": total, "high": total + share})
        total += share

    def told(table: Table) -> list[Row]:
        own = (table.c.experiment == live.name) & (table.c.decision == row["name"])
        return all_rows(connection, select(table).where(own).order_by(table.c.received_at))

    order = first_row(connection, select(learned).where(learned.c.experiment == live.name, learned.c.decision == row["name"]))
    deliveries = [each | {"body": json.loads(each["body"])} for each in told(delivery)]
    answer = experiment.answer(row, True)
    return Story(row, answer, request, context, shares, told(outcome), deliveries, told(truth), order, again(connection, live, row))


def again(connection: Connection, live: Live, row: Row) -> str:
    """What differs when a decision is computed again from its request and its version; nothing if every bit is the same."""
    try:
        version = live.experiment.first if row["version"] is None else read_version(connection, live.name, live.experiment, row["version"])
        compare(row, live.experiment, version)
    except (Different, MebanditError) as error:
        return str(error)
    return ""


# ---- what was learned ----


def versions_of(connection: Connection, x: str, before: int | None = None, most: int = PAGE) -> list[Row]:
    """Versions, the newest first."""
    asked = select(policy_version).where(policy_version.c.experiment == x)
    if before is not None:
        asked = asked.where(policy_version.c.number < before)
    return all_rows(connection, asked.order_by(policy_version.c.number.desc()).limit(most))


def parameters(connection: Connection, live: Live, number: int) -> list[tuple[str, list[float]]]:
    """What a version has learned: θ by action."""
    version = read_version(connection, live.name, live.experiment, number)
    theta = live.experiment.policy.theta(version.state)
    return list(zip(live.experiment.actions, theta.tolist(), strict=True))


def pairs_of(connection: Connection, live: Live, most: int = 300) -> dict[str, list[tuple[float, float]]]:
    """The last truths with their predictions, by feature."""
    asked = (
        select(truth.c.feature, truth.c.value, decision.c.predicted)
        .join(decision, (decision.c.experiment == truth.c.experiment) & (decision.c.name == truth.c.decision))
        .where(truth.c.experiment == live.name, decision.c.predicted.is_not(None))
        .order_by(truth.c.id.desc())
        .limit(most)
    )
    found: dict[str, list[tuple[float, float]]] = {}
    for feature, value, predicted in connection.execute(asked):
        found.setdefault(feature, []).append((value, json.loads(predicted)[live.experiment.features.index(feature)]))
    return found


def configuration_of(connection: Connection, live: Live) -> Row:
    """The configuration as it is stored."""
    return experiments.configuration_of(connection, live.name, live.row["configuration"])
