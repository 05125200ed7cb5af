"""The proof: every decision and every version of a store is computed again from what was asked and told, and compared bit for bit."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, text

from mebandit.checks import InvalidInput, MebanditError
from mebandit.live.version import Version
from mebandit.policies import states
from mebandit.service.experiment import Experiment
from mebandit.service.messages import Configuration, Made, Request
from mebandit.service.service import WITHDRAWN, rounds_between
from mebandit.service.store import experiments
from mebandit.service.store.database import Database, Row, all_rows
from mebandit.service.store.records import broken_link
from mebandit.service.store.schema import configuration, decision, policy_version, state

AT_ONCE = 1000
"""rows that are read together"""
COMPARED = "unit", "decided_for", "mode", "reason", "version", "action", "allowed", "propensities", "uniform", "auxiliary"
SEEN = "predicted", "error_cov", "notes"


class Replayed(NamedTuple):
    """What a replay found."""

    difference: str
    """the first row that is not what it must be, in a sentence; empty if all are"""
    experiments: int = 0
    versions: int = 0
    rounds: int = 0
    decisions: int = 0


class Different(Exception):
    """A row is not what it must be."""


def replay(database: Database) -> Replayed:
    """Compute everything in a store again.

    Args:
        database: the store. A service may be writing to it.
    """
    counts = {"experiments": 0, "versions": 0, "rounds": 0, "decisions": 0}
    with database.read() as connection:
        broken = broken_link(connection)
        if broken:
            return Replayed(broken)
        try:
            for name, row in sorted(experiments.pointers(connection).items()):
                counts["experiments"] += 1
                _replay_one(connection, name, row, counts)
        except Different as found:
            return Replayed(str(found), **counts)
    return Replayed("", **counts)


def _replay_one(connection: Connection, name: str, row: Row, counts: dict[str, int]) -> None:
    known = _configurations(connection, name, row)
    experiment = known[row["configuration"]]
    counts["decisions"] += _replay_decisions(connection, name, known, None, experiment.first)
    version = experiment.first
    for made in _versions(connection, name):
        n, count = made["number"], made["learned"]
        where = f"experiment {name!r}, version {n}"
        try:
            version = version.after(rounds_between(connection, name, experiment, version.learned, count))
        except (KeyError, TypeError, ValueError, MebanditError) as error:
            raise Different(f"{where} must be the fold of the rounds up to {count}; got one of them missing or wrong ({error}).") from error
        if version.learned != count:
            raise Different(f"{where} must know {count} rounds; got {version.learned} in the order of learning.")
        if version.fingerprint != made["fingerprint"]:
            raise Different(f"{where} must have the fingerprint {version.fingerprint}; got {made['fingerprint']}.")
        _compare_state(connection, name, n, version, where)
        counts["decisions"] += _replay_decisions(connection, name, known, n, version)
        counts["versions"] += 1
    counts["rounds"] += version.learned


def _configurations(connection: Connection, name: str, row: Row) -> dict[int, Experiment]:
    """The configurations of an experiment by number, each compared with its hash."""
    secret = bytes.fromhex(row["secret"])
    if sha256(secret).hexdigest() != row["secret_hash"]:
        raise Different(f"experiment {name!r} must have the secret that was published as {row['secret_hash']}; got another one.")
    found = {}
    for each in all_rows(connection, select(configuration).where(configuration.c.experiment == name)):
        if sha256(each["body"].encode()).hexdigest() != each["hash"]:
            raise Different(f"experiment {name!r}, configuration {each['number']} must have the hash {each['hash']}; got another text.")
        found[each["number"]] = Experiment(Configuration.model_validate_json(each["body"]), secret)
    return found


def _versions(connection: Connection, name: str) -> Iterator[Row]:
    """The versions of an experiment, without gaps."""
    last = -1
    while rows := experiments.versions_of(connection, name, after=last, most=AT_ONCE):
        for row in rows:
            if row["number"] != last + 1:
                raise Different(f"experiment {name!r}, version {last + 1} must be there; got {row['number']} as the next one.")
            last = row["number"]
            yield row


def _compare_state(connection: Connection, name: str, number: int, version: Version, where: str) -> None:
    """Compare what the cache holds of a version, if it holds anything."""
    body = connection.execute(select(state.c.body).where(state.c.experiment == name, state.c.version == number)).scalar()
    try:
        same = body is None or states.same(states.from_plain(json.loads(body), version.policy.init()), version.state)
    except (ValueError, MebanditError):
        same = False
    if not same:
        raise Different(f"{where} must be stored as it is computed; got another state.")


def _replay_decisions(connection: Connection, name: str, known: Mapping[int, Experiment], number: int | None, version: Version) -> int:
    """Compute the decisions of a version again; `None`: those that no version made. How many they are."""
    after, count = 0, 0
    asked = select(decision).where(decision.c.experiment == name, decision.c.version == number).order_by(decision.c.id).limit(AT_ONCE)
    while rows := all_rows(connection, asked.where(decision.c.id > after)):
        for row in rows:
            compare(row, known[row["configuration"]], version)
        after, count = rows[-1]["id"], count + len(rows)
    return count


def compare(row: Row, experiment: Experiment, version: Version) -> None:
    """Compute a decision again from its request and the version that made it; `Different` where a bit differs."""
    where = f"experiment {row['experiment']!r}, decision {row['name']!r}"
    try:
        again = _again(row, experiment, version)
    except (ValueError, InvalidInput) as error:
        raise Different(f"{where} must have a request that can be answered; got {error}") from error
    for column in (*COMPARED, *SEEN):
        if again[column] != row[column]:
            raise Different(f"{where} must have {column} {again[column]!r}; got {row[column]!r}.")
    if row["version"] is not None and row["number"] != version.learned + 1:
        raise Different(f"{where} must have number {version.learned + 1}; got {row['number']}.")


def _again(row: Row, experiment: Experiment, version: Version) -> dict[str, Any]:
    """The row of a decision, from its request."""
    received = datetime.fromisoformat(row["received_at"])
    if row["mode"] == "external":
        return experiment.external(Made.model_validate_json(row["request"]), name=row["experiment"], received=received)
    request = Request.model_validate_json(row["request"])
    if request.decision != row["name"]:
        raise ValueError(f"a request of the name {request.decision!r}")
    given = {"name": row["experiment"], "received": received, "version": version, "number": row["version"] or 0}
    again = experiment.decide(request, trouble=None, **given)
    if row["mode"] == "fallback" and again["mode"] in ("learned", "warmup", "fallback") and again["reason"] != row["reason"]:
        return experiment.decide(request, trouble=row["reason"], **given)  # the experiment was paused, or its version could not be read
    if row["mode"] == "unavailable" and row["reason"] == WITHDRAWN["reason"]:
        return again | WITHDRAWN
    return again


def check(database: Database) -> list[str]:
    """What is wrong with a store at rest, without computing decisions again: damaged pages, a broken audit, rows without their like."""
    found = []
    with database.read() as connection:
        if not database.is_postgresql:
            said = connection.execute(text("PRAGMA integrity_check")).scalars().all()
            found += [f"the file must be undamaged; got: {each}." for each in said if each != "ok"]
        found += [each for each in [broken_link(connection)] if each]
        for name, row in experiments.pointers(connection).items():
            asked = select(policy_version.c.learned).where(policy_version.c.experiment == name, policy_version.c.number == row["latest"])
            count, order = connection.execute(asked).scalar(), experiments.order_of(connection, name, 0)
            if [each["seq"] for each in order] != list(range(1, (count or 0) + 1)):
                found.append(f"experiment {name!r} must have an order of learning from 1 to {count}; got {len(order)} rows.")
    return found
