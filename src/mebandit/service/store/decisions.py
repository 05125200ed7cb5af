"""Decisions in the store: written once under their name, and read back for whoever asks again."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select

from mebandit.service.store.database import Row, all_rows, insert_new
from mebandit.service.store.schema import decision, experiment, incident

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
    epochs = epochs_of(connection, {item.row["experiment"] for item in items})
    current = [item.epoch == epochs.get(item.row["experiment"]) for item in items]
    wanted: dict[tuple[str, str], NewDecision] = {}
    for item, fresh in zip(items, current, strict=True):
        if fresh:
            wanted.setdefault(key_of(item.row), item)
    new: set[tuple[str, str]] = set()
    if wanted:
        rows = [wanted[key].row for key in sorted(wanted)]  # in one order, so that two processes cannot wait for each other
        made = connection.execute(insert_new(connection, decision).returning(decision.c.experiment, decision.c.name), rows)
        new = {(x, name) for x, name in made}
    found = {key: dict(row) for key, row in decisions_named(connection, {key_of(item.row) for item in items} - new).items()}
    opened = [row for key in sorted(new) for row in wanted[key].incidents]
    if opened:
        connection.execute(insert(incident), opened)
    results: list[Stored | None] = []
    for item, fresh in zip(items, current, strict=True):
        key = key_of(item.row)
        if key in found:
            results.append(Stored(found[key], False))
        elif not fresh:
            results.append(None)
        else:
            results.append(Stored(wanted[key].row, item is wanted[key]))
    return results


def key_of(row: dict[str, Any] | Row) -> tuple[str, str]:
    return row["experiment"], row["name"]


def epochs_of(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """How often people have changed each of some experiments."""
    found = connection.execute(select(experiment.c.name, experiment.c.epoch).where(experiment.c.name.in_(sorted(names))))
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
    return json.dumps(values.tolist(), separators=(",", ":"))
