"""What a process of the service knows: its experiments, ready to decide, and the keys of those who may call it."""

import json
import secrets
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from mebandit import checks
from mebandit.checks import InvalidInput, MebanditError
from mebandit.live.version import Version
from mebandit.policies import states
from mebandit.service.experiment import Experiment, canonical
from mebandit.service.messages import Configuration, Made, Outcome, Request
from mebandit.service.pulse import Pulse
from mebandit.service.store import experiments, outcomes, records
from mebandit.service.store.database import Database, Row
from mebandit.service.store.decisions import NewDecision, Stored, decisions_named
from mebandit.service.store.experiments import Conflict, Draft, NewVersion
from mebandit.service.store.records import Key, incident_row
from mebandit.values import Observation, Round

ROLES = frozenset(("decide", "outcome", "operate", "read"))
DECIDING = "running", "paused"
"""the status in which an experiment decides"""


class NotFound(MebanditError):
    """There is nothing of that name."""


class Live(NamedTuple):
    """An experiment as a process knows it."""

    name: str
    experiment: Experiment
    row: Row
    """its pointers"""
    version: Version
    """what decides"""
    trouble: str | None
    """why the policy cannot decide"""
    units: dict[str, dict[str, Any]]

    @property
    def status(self) -> str:
        return str(self.row["status"])

    def prepared(self, request: Request) -> NewDecision:
        """A decision for a request, to be stored."""
        received, trouble = datetime.now(UTC), self.trouble
        if self.status == "paused":
            trouble = "The experiment is paused."
        given: dict[str, Any] = {"name": self.name, "received": received, "number": int(self.row["active"])}
        unit = self.units.get(request.unit or "", {})
        if unit.get("status") == "withdrawn":
            row = self.experiment.decide(request, version=self.version, trouble=trouble, **given) | WITHDRAWN
        else:
            try:
                row = self.experiment.decide(request, version=self.version, trouble=trouble, **given)
            except InvalidInput:
                raise
            except Exception as error:  # trouble never stops a trial
                row = self.experiment.decide(request, version=self.version, trouble=f"The policy failed ({error}).", **given)
        row["configuration"] = self.row["configuration"]
        opened = row["mode"] == "fallback" and self.status != "paused"
        return NewDecision(row, self.row["epoch"], (self.incident(row),) if opened else ())

    def external(self, request: Made) -> NewDecision:
        """A decision that a client made by itself, to be stored."""
        row = self.experiment.external(request, name=self.name, received=datetime.now(UTC))
        return NewDecision(row | {"configuration": self.row["configuration"]}, self.row["epoch"])

    def incident(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The incident that a decision by the fallback opens, as a row."""
        return incident_row(self.name, "fallback", f"The fallback decided: {row['reason']}", row["name"])

    def outcome(self, given: Outcome) -> outcomes.NewOutcome:
        """An outcome, to be stored."""
        value = None if given.value is None else float(given.value)
        return outcomes.NewOutcome(self.name, given.decision, given.revision, value, given.final, self.experiment.learns_from)


UNDRAWN = {"version": None, "action": None, "allowed": None, "propensities": None, "uniform": None, "auxiliary": None}
WITHDRAWN = UNDRAWN | {"mode": "unavailable", "reason": "The unit was withdrawn."}


class Service:
    """The experiments of a store, as this process knows them. Threads share it.

    Args:
        database: where everything is stored.
    """

    def __init__(self, database: Database) -> None:
        self.database, self.pulse = database, Pulse()
        self._known: dict[str, Live] = {}
        self._keys: dict[str, Key] = {}
        self._loading = threading.Lock()
        self.refresh()

    # ---- experiments ----

    def live(self, name: str) -> Live | None:
        """An experiment that this process knows already."""
        return self._known.get(name)

    def known(self) -> dict[str, Live]:
        """All experiments that this process knows."""
        return dict(self._known)

    def found(self, name: str) -> Live:
        """An experiment, read from the store if this process does not know it yet."""
        return self._known.get(name) or self.reload(name)

    def reload(self, name: str) -> Live:
        """Read what holds of an experiment now; its compiled code is ready when this returns."""
        with self._loading, self.database.read() as connection:
            row = experiments.pointer(connection, name)
            if row is None:
                checks.refuse("experiment", "be one that was created", name, error=NotFound)
            self._known[name] = found = self._read(connection, row, self._known.get(name))
            return found

    def refresh(self) -> None:
        """Take in what other processes have changed."""
        with self.database.read() as connection:
            rows, self._keys = experiments.pointers(connection), records.read_keys(connection)
        for name, row in rows.items():
            known = self._known.get(name)
            if known is None or any(known.row[part] != row[part] for part in ("epoch", "active", "latest")):
                self.reload(name)

    def _read(self, connection: Connection, row: Row, known: Live | None) -> Live:
        name = row["name"]
        if known is not None and known.row["configuration"] == row["configuration"]:
            experiment = known.experiment
        else:
            body, known = experiments.configuration_of(connection, name, row["configuration"])["body"], None
            experiment = Experiment(Configuration.model_validate_json(body), bytes.fromhex(row["secret"]))
            warm(experiment)
        units = known.units if known is not None and known.row["epoch"] == row["epoch"] else experiments.units_of(connection, name)
        if known is not None and known.trouble is None and known.row["active"] == row["active"]:
            return Live(name, experiment, row, known.version, None, units)
        try:
            return Live(name, experiment, row, read_version(connection, name, experiment, row["active"]), None, units)
        except (MebanditError, KeyError, TypeError, ValueError) as error:
            trouble = f"Version {row['active']} cannot be read ({str(error).rstrip('.')})."
            return Live(name, experiment, row, experiment.first, trouble, units)

    def configure(self, name: str, configuration: Configuration, by: str) -> Live:
        """Create an experiment, or change one that is a draft."""
        with self.database.read() as connection:
            known = experiments.pointer(connection, name)
        secret = secrets.token_bytes(32) if known is None else bytes.fromhex(known["secret"])
        experiment = Experiment(configuration, secret)
        warm(experiment)
        first = NewVersion(0, 0, experiment.first.fingerprint, state_text(experiment.first))
        draft = Draft(name, experiment.body, experiment.hash, secret.hex(), sha256(secret).hexdigest(), first, by)
        self.database.run(lambda connection: experiments.save_draft(connection, draft))
        return self.reload(name)

    # ---- decisions ----

    def settled(self, asked: Request, stored: Stored, live: Live) -> dict[str, Any]:
        """The answer to a request whose decision is in the store now; refused where the name was used for another request."""
        if not stored.new and stored.row["request"] != canonical(asked):
            self.pulse.conflicted(live.name)
            rule = "have the same contents whenever it is sent"
            checks.refuse(f"decision {asked.decision}", rule, "another request of this name", "Give it a new name.", error=Conflict)
        self.pulse.answered(live.name, repeated=not stored.new)
        return live.experiment.answer(stored.row, not stored.new)

    def known_decision(self, live: Live, name: str) -> Row | None:
        """A decision that was made before."""
        with self.database.read() as connection:
            return decisions_named(connection, [(live.name, name)]).get((live.name, name))

    def versions_since(self, name: str, after: int, most: int) -> list[dict[str, Any]]:
        """The versions of an experiment after a number."""
        with self.database.read() as connection:
            return [dict(row) for row in experiments.versions_of(connection, name, after=after, most=most)]

    # ---- keys ----

    def whose(self, key: str) -> Key | None:
        """Whose key that is."""
        return records.whose(self._keys, key)

    def key_named(self, name: str) -> Key | None:
        """A key that is valid, by its name."""
        return next((key for key in self._keys.values() if key.name == name), None)

    def make_key(self, name: str, key: str, roles: Iterable[str], *, by: str) -> None:
        """Store a key."""
        self.database.run(lambda connection: _make_key(connection, name, key, roles, by))
        self.refresh()

    def revoke_key(self, name: str, *, by: str) -> None:
        """End the validity of a key."""

        def revoke(connection: Connection) -> None:
            if not records.revoke_key(connection, name):
                checks.refuse("the name of a key", "be that of a valid key", name, error=NotFound)
            records.write_audit(connection, by, "key revoked", name=name)

        self.database.run(revoke)
        self.refresh()


def first_key(database: Database, given: str | None) -> str | None:
    """Make sure that a store has an operator's key: the one given, or a new one if there is none. A new key, to be shown once."""

    def make(connection: Connection) -> str | None:
        known = records.read_keys(connection)
        key = given or (None if known else new_key())
        if key is None or records.whose(known, key) is not None:
            return None
        name = f"operator {records.hashed(key)[:8]}" if known else "operator"
        _make_key(connection, name, key, ROLES, "mebandit serve")
        return None if given else key

    return database.run(make)


def _make_key(connection: Connection, name: str, key: str, roles: Iterable[str], by: str) -> None:
    if not records.write_key(connection, name, key, roles):
        checks.refuse("the name of a key", "be one that no other key had", name, error=Conflict)
    records.write_audit(connection, by, "key made", name=name, roles=sorted(roles))


def new_key() -> str:
    """A key of 256 random bits."""
    return f"mb_{secrets.token_urlsafe(32)}"


def state_text(version: Version) -> str:
    """What a version has learned, as JSON."""
    return json.dumps(states.to_plain(version.state))


def read_version(connection: Connection, name: str, experiment: Experiment, number: int) -> Version:
    """A version from its stored state, or computed from an earlier one that is stored."""
    row = experiments.version_of(connection, name, number)
    if row is None:
        checks.refuse("version", "be one that was stored", number, error=NotFound)
    start, begun = experiment.first, experiments.nearest_state(connection, name, number)
    if begun is not None:
        known = states.from_plain(json.loads(begun["body"]), experiment.policy.init())
        start = Version(experiment.policy, known, learned=begun["learned"], secret=experiment.secret)
    version = start.after(rounds_between(connection, name, experiment, start.learned, row["learned"]))
    if version.fingerprint != row["fingerprint"]:
        checks.refuse(f"version {number}", f"have the fingerprint {row['fingerprint']}", version.fingerprint, error=checks.LogError)
    return version


def rounds_between(connection: Connection, name: str, experiment: Experiment, after: int, until: int) -> list[Round]:
    """The rounds after < seq <= until in the order in which they were learned, each with the revision that was learned."""
    if after >= until:
        return []
    order = experiments.order_of(connection, name, after, until)
    values = outcomes.revisions_of(connection, name, [(row["decision"], row["revision"]) for row in order])
    decided = decisions_named(connection, [(name, row["decision"]) for row in order])
    return [experiment.round(decided[name, row["decision"]] | {"value": values[row["decision"], row["revision"]]}) for row in order]


def warm(experiment: Experiment) -> None:
    """Have the code of an experiment's policy compiled, by a decision and a round that nobody sees."""
    d, n_actions = len(experiment.features), len(experiment.actions)
    x, s = np.zeros(d), 0.01 * np.eye(d)
    pi = np.full(n_actions, 1 / n_actions)
    seen = Observation(x, s, np.ones(n_actions, dtype=np.bool_), 1, 0.5)
    experiment.first.after([Round(seen, 0, pi, 0.0)]).decide("warm", x, s)
