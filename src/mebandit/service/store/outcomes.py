"""Outcomes in the store: revisions of a value, each a row of its own; and what else is told of a decision afterwards."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Table, delete, func, insert, select

from mebandit.service.store.database import Row, all_rows, insert_new, now
from mebandit.service.store.decisions import ROOM
from mebandit.service.store.schema import decision, delivery, learned, outcome, to_learn, truth


class NewOutcome(NamedTuple):
    """An outcome to be stored."""

    experiment: str
    decision: str
    revision: int
    value: float | None
    final: bool
    learns_from: frozenset[str]
    """the modes of decisions that the experiment learns from"""
    source: str = "client"


class Told(NamedTuple):
    """What became of something that was told of a decision."""

    status: str
    """stored, duplicate, conflict or unknown"""
    note: str | None = None


UNKNOWN = Told("unknown", "decision must be one that was made; got a name that this experiment does not have.")


def store_outcomes(connection: Connection, items: Sequence[NewOutcome]) -> list[Told]:
    """Write revisions that are new; final ones of decisions that are learned from enter the queue of the trainer."""
    experiments = {item.experiment for item in items}
    results: list[Told] = [UNKNOWN] * len(items)
    for x in sorted(experiments):
        numbered = [(i, item) for i, item in enumerate(items) if item.experiment == x]
        for i, told in zip([i for i, _ in numbered], _store(connection, x, [item for _, item in numbered]), strict=True):
            results[i] = told
    return results


def _store(connection: Connection, x: str, items: list[NewOutcome]) -> list[Told]:
    names = sorted({item.decision for item in items})
    made = {row["name"]: row for row in _named(connection, decision, decision.c.name, x, names)}
    done = {row["decision"] for row in _named(connection, learned, learned.c.decision, x, names)}
    asked: dict[tuple[str, int], dict[str, Any]] = {}
    for item in items:
        if item.decision in made:
            row = {"experiment": x, "decision": item.decision, "revision": item.revision, "value": item.value, "final": item.final}
            asked.setdefault((item.decision, item.revision), row | {"source": item.source, "received_at": now()})
    new: set[tuple[str, int]] = set()
    if asked:
        rows = [asked[key] for key in sorted(asked)]
        written = connection.execute(insert_new(connection, outcome).returning(outcome.c.decision, outcome.c.revision), rows)
        new = {(name, revision) for name, revision in written}
    old = {(row["decision"], row["revision"]): row for row in _named(connection, outcome, outcome.c.decision, x, names)}
    results, queue = [], []
    for item in items:
        key = item.decision, item.revision
        if item.decision not in made:
            results.append(UNKNOWN)
            continue
        known = old[key]
        if (known["value"], known["final"]) != (item.value, item.final):
            received = f"another value or another `final` than the stored ones ({known['value']}, {str(known['final']).lower()})"
            results.append(Told("conflict", f"revision {item.revision} must be as it was; got {received}. Send a higher revision."))
        elif key not in new:
            results.append(Told("duplicate"))
        else:
            new.discard(key)
            results.append(Told("stored", "The outcome was learned before this revision came." if item.decision in done else None))
            row = made[item.decision]
            learns = row["mode"] in item.learns_from and row["predicted"] is not None and row["action"] is not None
            if item.final and item.value is not None and learns and item.decision not in done:
                queue.append({"experiment": x, "decision": item.decision})
    if queue:
        connection.execute(insert_new(connection, to_learn), queue)
    return results


def _named(connection: Connection, table: Table, column: Column[Any], x: str, names: list[str]) -> list[Row]:
    """The rows of an experiment about some decisions."""
    rows: list[Row] = []
    for start in range(0, len(names), ROOM):
        asked = select(table).where(table.c.experiment == x, column.in_(names[start : start + ROOM]))
        rows += all_rows(connection, asked)
    return rows


def store_told(connection: Connection, items: Sequence[tuple[Table, dict[str, Any]]]) -> list[Told]:
    """Deliveries and truths: rows about decisions that were made."""
    results = []
    for table, row in items:
        found = select(decision.c.id).where(decision.c.experiment == row["experiment"], decision.c.name == row["decision"])
        if connection.execute(found).first() is None:
            results.append(UNKNOWN)
            continue
        same = [table.c[name] == value for name, value in row.items()]
        if connection.execute(select(table.c.id).where(*same)).first() is not None:
            results.append(Told("duplicate"))
            continue
        connection.execute(insert(table).values(**row, received_at=now()))
        results.append(Told("stored"))
    return results


def learnable(connection: Connection, x: str, most: int) -> tuple[list[str], list[Row]]:
    """The first names in the queue, and their rounds in the order in which their outcomes came: decisions with the last final revision of
    their outcome. A name has no round where its outcome was taken back."""
    asked = select(to_learn.c.decision).where(to_learn.c.experiment == x).order_by(to_learn.c.id).limit(most)
    names = list(connection.execute(asked).scalars())
    rounds = rounds_of(connection, x, names)
    return names, [rounds[name] for name in names if name in rounds]


def rounds_of(connection: Connection, x: str, names: list[str]) -> dict[str, Row]:
    """Decisions with the last final revision of their outcome, by name, where that has a value."""
    found: dict[str, Row] = {}
    for start in range(0, len(names), ROOM):
        asked = (
            select(decision, outcome.c.revision, outcome.c.value)
            .join(outcome, (outcome.c.experiment == decision.c.experiment) & (outcome.c.decision == decision.c.name))
            .where(decision.c.experiment == x, decision.c.name.in_(names[start : start + ROOM]), outcome.c.final.is_(True))
            .order_by(outcome.c.revision)
        )
        for row in all_rows(connection, asked):
            found[row["name"]] = row
    return {name: row for name, row in found.items() if row["value"] is not None}


def n_to_learn(connection: Connection, x: str) -> int:
    """How many outcomes wait for the trainer."""
    return connection.execute(select(func.count()).select_from(to_learn).where(to_learn.c.experiment == x)).scalar_one()


def leave_queue(connection: Connection, x: str, names: Iterable[str]) -> None:
    """Take decisions out of the trainer's queue."""
    waiting = list(names)
    for start in range(0, len(waiting), ROOM):
        connection.execute(delete(to_learn).where(to_learn.c.experiment == x, to_learn.c.decision.in_(waiting[start : start + ROOM])))


def without_outcome(connection: Connection, x: str, since: str, until: str, most: int) -> list[Row]:
    """Decisions received in [since, until) that randomised an action and have no final outcome."""
    closed = select(outcome.c.id).where(outcome.c.experiment == x, outcome.c.decision == decision.c.name, outcome.c.final.is_(True))
    asked = (
        select(decision.c.name, decision.c.received_at)
        .where(decision.c.experiment == x, decision.c.received_at >= since, decision.c.received_at < until)
        .where(decision.c.action.is_not(None), ~closed.exists())
        .order_by(decision.c.received_at)
        .limit(most)
    )
    return all_rows(connection, asked)


TOLD = {"deliveries": delivery, "truths": truth}


def revisions_of(connection: Connection, x: str, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], float]:
    """The values of some revisions."""
    names = sorted({name for name, _ in wanted})
    rows = _named(connection, outcome, outcome.c.decision, x, names)
    return {(row["decision"], row["revision"]): row["value"] for row in rows}
