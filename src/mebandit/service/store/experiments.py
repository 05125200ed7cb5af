"""Experiments in the store: their pointers, configurations, units and versions."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from mebandit import checks
from mebandit.service.store.database import Row, all_rows, first_row, now
from mebandit.service.store.records import open_incident, write_audit
from mebandit.service.store.schema import activation, configuration, experiment, learned, lease, policy_version, state, unit_event

CHANGES = {"draft": ("running",), "running": ("paused", "stopped"), "paused": ("running", "stopped"), "stopped": ()}
"""the status that may follow each"""
KEPT_EVERY = 1000
"""rounds between versions whose states are kept for good; all others can be computed from them"""
KEPT_LAST = 3
"""states of the newest versions that are kept as well"""


class Conflict(checks.MebanditError):
    """A request contradicts what is stored."""


class Draft(NamedTuple):
    """A configuration to be stored."""

    name: str
    body: str
    hash: str
    secret: str
    secret_hash: str
    first: "NewVersion"
    by: str


class NewVersion(NamedTuple):
    """A version to be stored."""

    number: int
    learned: int
    fingerprint: str
    state: str


def pointers(connection: Connection) -> dict[str, Row]:
    """All experiments by name."""
    return {row["name"]: row for row in all_rows(connection, select(experiment))}


def pointer(connection: Connection, name: str) -> Row | None:
    """One experiment."""
    return first_row(connection, select(experiment).where(experiment.c.name == name))


def locked(connection: Connection, name: str) -> Row:
    """One experiment, which no other process changes until the end of the transaction."""
    found = first_row(connection, select(experiment).where(experiment.c.name == name).with_for_update())
    if found is None:
        checks.refuse("experiment", "be one that was created", name, error=Conflict)
    return found


def save_draft(connection: Connection, draft: Draft) -> bool:
    """Store an experiment, or another configuration of one that is a draft; whether anything is new."""
    known = first_row(connection, select(experiment).where(experiment.c.name == draft.name).with_for_update())
    number = 1
    if known is not None:
        if configuration_of(connection, draft.name, known["configuration"])["hash"] == draft.hash:
            return False
        if known["status"] != "draft":
            rule = "stay as it was when the experiment began"
            checks.refuse("configuration", rule, "another one", "Create an experiment of another name.", error=Conflict)
        number = known["configuration"] + 1
    at, row = now(), {"experiment": draft.name, "number": number, "body": draft.body, "hash": draft.hash}
    connection.execute(insert(configuration).values(**row, at=at, by=draft.by))
    if known is None:
        start = {"status": "draft", "epoch": 1, "configuration": 1, "active": 0, "latest": 0, "pinned": False}
        secrets = {"secret": draft.secret, "secret_hash": draft.secret_hash}
        connection.execute(insert(experiment).values(name=draft.name, created_at=at, **secrets, **start))
        connection.execute(insert(lease).values(experiment=draft.name, holder="", token=0, until=0.0))
    else:
        change = {"configuration": number, "epoch": experiment.c.epoch + 1}
        connection.execute(update(experiment).where(experiment.c.name == draft.name).values(**change))
        for table in (policy_version, state):  # a draft has made no decision: its empty first version is made anew
            connection.execute(delete(table).where(table.c.experiment == draft.name))
    save_version(connection, draft.name, draft.first, 0)
    write_audit(connection, draft.by, "configured", draft.name, configuration=number, hash=draft.hash)
    return True


def save_version(connection: Connection, name: str, version: NewVersion, token: int) -> None:
    """Store a version and what it has learned."""
    row = {"number": version.number, "learned": version.learned, "fingerprint": version.fingerprint}
    connection.execute(insert(policy_version).values(experiment=name, made_at=now(), token=token, **row))
    connection.execute(insert(state).values(experiment=name, version=version.number, body=version.state))


def configuration_of(connection: Connection, name: str, number: int) -> Row:
    """A configuration of an experiment by its number."""
    asked = select(configuration).where(configuration.c.experiment == name, configuration.c.number == number)
    return all_rows(connection, asked)[0]


def change_status(connection: Connection, name: str, to: str, reason: str, by: str) -> None:
    """Start, pause or stop an experiment."""
    known = locked(connection, name)
    if known["status"] == to:
        return
    if to not in CHANGES[known["status"]]:
        rule = f"be one that can follow {known['status']} ({', '.join(CHANGES[known['status']]) or 'none can'})"
        checks.refuse("the status of an experiment", rule, to, error=Conflict)
    connection.execute(update(experiment).where(experiment.c.name == name).values(status=to, epoch=experiment.c.epoch + 1))
    write_audit(connection, by, "status", name, to=to, reason=reason)
    if to == "paused":
        open_incident(connection, name, "paused", f"The experiment was paused: {reason}")


def save_unit(connection: Connection, name: str, unit: str, body: dict[str, Any], by: str) -> None:
    """A new row about a unit; the last one holds."""
    locked(connection, name)
    before = units_of(connection, name, unit).get(unit, {"status": "active"})
    decisive = "status", "start", "end"
    connection.execute(insert(unit_event).values(experiment=name, unit=unit, body=json.dumps(body, sort_keys=True), at=now(), by=by))
    if any(body.get(part) != before.get(part) for part in decisive):
        connection.execute(update(experiment).where(experiment.c.name == name).values(epoch=experiment.c.epoch + 1))
    write_audit(connection, by, "unit", name, unit=unit)


def units_of(connection: Connection, name: str, unit: str | None = None) -> dict[str, dict[str, Any]]:
    """What holds of each unit, or of one."""
    asked = select(unit_event.c.unit, unit_event.c.body).where(unit_event.c.experiment == name)
    if unit is not None:
        asked = asked.where(unit_event.c.unit == unit)
    return {each: json.loads(body) for each, body in connection.execute(asked.order_by(unit_event.c.id))}


# ---- versions ----


def versions_of(connection: Connection, name: str, *, after: int = -1, most: int | None = None) -> Sequence[Row]:
    """The versions of an experiment, in order."""
    asked = select(policy_version).where(policy_version.c.experiment == name, policy_version.c.number > after)
    return all_rows(connection, asked.order_by(policy_version.c.number).limit(most))


def version_of(connection: Connection, name: str, number: int) -> Row | None:
    """One version."""
    asked = select(policy_version).where(policy_version.c.experiment == name, policy_version.c.number == number)
    return first_row(connection, asked)


def nearest_state(connection: Connection, name: str, number: int) -> Row | None:
    """The stored state of the last version up to a number, with how many rounds it knows."""
    asked = (
        select(state, policy_version.c.learned)
        .join(policy_version, (policy_version.c.experiment == state.c.experiment) & (policy_version.c.number == state.c.version))
        .where(state.c.experiment == name, state.c.version <= number)
        .order_by(state.c.version.desc())
        .limit(1)
    )
    return first_row(connection, asked)


def order_of(connection: Connection, name: str, after: int, until: int | None = None) -> Sequence[Row]:
    """The rounds that were learned, in order: those with after < seq <= until."""
    asked = select(learned).where(learned.c.experiment == name, learned.c.seq > after)
    if until is not None:
        asked = asked.where(learned.c.seq <= until)
    return all_rows(connection, asked.order_by(learned.c.seq))


def learned_among(connection: Connection, name: str, names: Sequence[str]) -> set[str]:
    """Which of some decisions were learned."""
    asked = select(learned.c.decision).where(learned.c.experiment == name, learned.c.decision.in_(list(names)))
    return set(connection.execute(asked).scalars())


def drop_states(connection: Connection, name: str) -> None:
    """Delete cached states but those of the newest versions and of each thousandth round."""
    asked = select(state.c.version).where(state.c.experiment == name).order_by(state.c.version.desc()).offset(KEPT_LAST)
    old = list(connection.execute(asked).scalars())
    if not old:
        return
    rows = connection.execute(
        select(policy_version.c.number, policy_version.c.learned)
        .where(policy_version.c.experiment == name, policy_version.c.number.in_(old))
        .order_by(policy_version.c.number)
    )
    dropped, kept = [], -1
    active = select(experiment.c.active).where(experiment.c.name == name)
    spared = connection.execute(active).scalar_one()
    for number, count in rows:
        if count // KEPT_EVERY > kept or number in (0, spared):
            kept = max(kept, count // KEPT_EVERY)
        else:
            dropped.append(number)
    if dropped:
        connection.execute(delete(state).where(state.c.experiment == name, state.c.version.in_(dropped)))


def activate(connection: Connection, name: str, version: int | None, reason: str, by: str) -> int:
    """Let a version decide from now on; None: the latest, and each that follows. The version that decides."""
    known = locked(connection, name)
    number = known["latest"] if version is None else version
    if version_of(connection, name, number) is None:
        checks.refuse("version", f"be one of this experiment, 0 to {known['latest']}", number, error=Conflict)
    pointer = {"active": number, "pinned": version is not None, "epoch": experiment.c.epoch + 1}
    connection.execute(update(experiment).where(experiment.c.name == name).values(**pointer))
    event = {"experiment": name, "version": number, "pinned": version is not None, "at": now(), "by": by, "reason": reason}
    connection.execute(insert(activation).values(**event))
    write_audit(connection, by, "activated", name, version=number, pinned=version is not None, reason=reason)
    return number


# ---- the lease of the trainer ----


def take_lease(connection: Connection, name: str, holder: str, clock: float, seconds: float) -> int | None:
    """The fencing number of whoever trains an experiment; None while another does."""
    mine = (lease.c.experiment == name) & ((lease.c.holder == holder) | (lease.c.until < clock))
    change = {"holder": holder, "until": clock + seconds}
    before = first_row(connection, select(lease).where(mine).with_for_update())
    if before is None:
        return None
    token: int = before["token"] + (before["holder"] != holder)
    connection.execute(update(lease).where(lease.c.experiment == name).values(token=token, **change))
    return token


def holds_lease(connection: Connection, name: str, token: int) -> bool:
    """Whether nobody has taken the lease since it had this number; nobody can until the end of the transaction."""
    asked = select(lease.c.token).where(lease.c.experiment == name).with_for_update()
    return bool(connection.execute(asked).scalar() == token)


def publish(connection: Connection, name: str, version: NewVersion, rounds: Sequence[Row], token: int) -> None:
    """Store a version with the order of the rounds that it learned, and let it decide unless another is pinned."""
    if not holds_lease(connection, name, token):
        checks.refuse("the trainer", "hold the lease of the experiment", f"token {token}, which another process has passed", error=Conflict)
    start = version.learned - len(rounds)
    order = [
        {"experiment": name, "seq": start + i, "decision": row["name"], "revision": row["revision"]}
        for i, row in enumerate(rounds, start=1)
    ]
    connection.execute(insert(learned), order)
    save_version(connection, name, version, token)
    known = locked(connection, name)
    active = known["active"] if known["pinned"] else version.number
    connection.execute(update(experiment).where(experiment.c.name == name).values(latest=version.number, active=active))
    drop_states(connection, name)


def give_lease_back(connection: Connection, name: str, token: int) -> None:
    """Let another process train at once."""
    connection.execute(update(lease).where(lease.c.experiment == name, lease.c.token == token).values(until=0.0))
