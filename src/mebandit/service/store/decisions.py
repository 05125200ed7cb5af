"""Decisions in the store: written once under their name, and read back for whoever asks again."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.dialects import postgresql

from mebandit.service.store.database import Row, all_rows, insert_new
from mebandit.service.store.schema import decision, experiment, incident

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
encode = json.JSONEncoder(separators=(",", ":")).encode
EPOCHS = select(experiment.c.name, experiment.c.epoch).where(experiment.c.name.in_(bindparam("names", expanding=True)))
ROOM = 500
"""names in one question to the database"""


class NewDecision(NamedTuple):
    """A decision to be stored."""

    row: dict[str, Any]
    """as the table has it"""
    epoch: int
    """of the experiment, as the one who decided knew it"""
    incidents: tuple[dict[str, Any], ...] = ()
    """rows of incidents that this decision opens, if it is new"""


class Stored(NamedTuple):
    """A decision in the store."""

    row: dict[str, Any]
    new: bool
    """whether it was written now; else it was there already"""


def store_decisions(connection: Connection, items: Sequence[NewDecision]) -> list[Stored | None]:
    """Write decisions whose names are new, and read the others. None: the experiment was changed since, decide again."""
    wanted: dict[tuple[str, str], NewDecision] = {}
    for item in items:
        known = wanted.setdefault(key_of(item.row), item)
        if known.epoch < item.epoch:
            wanted[key_of(item.row)] = item
    new = _insert(connection, [wanted[key] for key in sorted(wanted)])  # in one order, so that two processes cannot wait for each other
    others = wanted.keys() - new
    found = decisions_named(connection, others) if others else {}
    opened = [row for key in sorted(new) for row in wanted[key].incidents]
    if opened:
        connection.execute(insert(incident), opened)
    results: list[Stored | None] = []
    for item in items:
        key = key_of(item.row)
        if key in new:
            results.append(Stored(wanted[key].row, item is wanted[key]))
        else:
            results.append(Stored(found[key], False) if key in found else None)
    return results


def _insert(connection: Connection, items: list[NewDecision]) -> set[tuple[str, str]]:
    """Insert decisions that are not there, of experiments that were not changed since; the keys of those that were inserted."""
    if connection.dialect.name == "postgresql":
        made = connection.exec_driver_sql(INSERT_JSON, (encode([item.row | {"epoch": item.epoch} for item in items]),))
        return {(x, name) for x, name in made}
    epochs = epochs_of(connection, {item.row["experiment"] for item in items})
    rows = [item.row for item in items if item.epoch == epochs.get(item.row["experiment"])]
    inserted = insert_new(connection, decision).returning(decision.c.experiment, decision.c.name)
    return {(x, name) for x, name in connection.execute(inserted, rows)} if rows else set()


def _insert_json() -> str:
    """The same for PostgreSQL: one statement, which takes any number of rows as one text. So it is prepared once."""
    types = {column.name: str(column.type.compile(DIALECT)) for column in decision.columns if column.name != "id"}
    typed = ", ".join(f"{name} {kind}" for name, kind in (types | {"epoch": "INTEGER"}).items())
    current = "experiment ON experiment.name = sent.experiment AND experiment.epoch = sent.epoch"
    rows = f"SELECT {', '.join(f'sent.{name}' for name in types)} FROM json_to_recordset(%s::json) AS sent({typed}) JOIN {current}"
    return f"INSERT INTO decision ({', '.join(types)}) {rows} ON CONFLICT DO NOTHING RETURNING experiment, name"


INSERT_JSON = _insert_json()


def key_of(row: dict[str, Any] | Row) -> tuple[str, str]:
    return row["experiment"], row["name"]


def epochs_of(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """How often people have changed each of some experiments."""
    found = connection.execute(EPOCHS, {"names": sorted(names)})
    return {row.name: row.epoch for row in found}


def decisions_named(connection: Connection, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Row]:
    """The decisions of these experiments and names that are there."""
    by_experiment: dict[str, list[str]] = {}
    for x, name in sorted(keys):
        by_experiment.setdefault(x, []).append(name)
    found = {}
    for x, names in by_experiment.items():
        for start in range(0, len(names), ROOM):
            asked = select(decision).where(decision.c.experiment == x, decision.c.name.in_(names[start : start + ROOM]))
            found.update({key_of(row): row for row in all_rows(connection, asked)})
    return found


def numbers(values: Any) -> str:
    """Numbers as JSON, every bit kept."""
    return encode(values.tolist())
