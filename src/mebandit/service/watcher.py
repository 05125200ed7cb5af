"""The watcher: computes the checks of all experiments again and again, opens and closes incidents, and tells webhooks.

One process at a time checks, by the same kind of lease as the trainer's. Each process stores what it counted of its own answers.
"""

import json
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

from sqlalchemy import insert, select

from mebandit.service import incidents, webhooks
from mebandit.service.checks.every import checked
from mebandit.service.checks.learned import Fitted, fit_again, fitted_from
from mebandit.service.checks.look import Look, Result
from mebandit.service.checks.sums import Sums
from mebandit.service.service import Live, Service
from mebandit.service.store import experiments, watching
from mebandit.service.store.database import in_utc
from mebandit.service.store.schema import WATCH, decision, effect

EVERY = 30.0
"""seconds between two looks"""
PAUSE = 0.5
"""seconds between two looks for notices"""
LEASE = 120.0
"""seconds after which a watcher that does not answer is replaced"""
AT_ONCE = 100_000
"""decisions that are summed up together"""
SETTLED = timedelta(seconds=10)
"""age from which a decision is summed up on PostgreSQL, where one may be committed after another with a larger number"""

logger = logging.getLogger("mebandit.service")


class Watcher(threading.Thread):
    """Checks the experiments of a service.

    Args:
        service: whose experiments it checks.
        every: seconds between two looks.
    """

    def __init__(self, service: Service, *, every: float = EVERY) -> None:
        super().__init__(name="watcher", daemon=True)
        self.service, self.database, self.every = service, service.database, every
        self.holder = token_hex(8)
        self._known: dict[str, tuple[int, Sums, Fitted | None]] = {}
        self._one, self._ending = threading.Lock(), threading.Event()

    def stop(self) -> None:
        """End after what is being done."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """Look again and again. An error is logged and tried again: it must not end the checks."""
        looked = time.monotonic()
        while not self._ending.wait(PAUSE):
            try:
                webhooks.send_due(self.database, self._ending)
                if time.monotonic() - looked >= self.every:
                    looked = time.monotonic()
                    self.look()
            except Exception as error:
                logger.warning("checking: %s", error)
                self._ending.wait(1.0)

    def look(self) -> None:
        """Check all experiments that are under way, unless another process does."""
        self._store_pulses()
        for name, live in sorted(self.service.known().items()):
            if live.status in ("running", "paused") and not self._ending.is_set():
                self.check(name)

    def _store_pulses(self) -> None:
        counts = self.service.pulse.taken()
        if counts:
            self.database.run(lambda connection: watching.save_pulses(connection, self.holder, counts))

    def check(self, name: str, now: datetime | None = None) -> list[dict[str, Any]] | None:
        """Compute the checks of an experiment and store them; None while another process checks.

        Args:
            name: of the experiment.
            now: the time, for trials that are simulated; None: that of the clock.
        """
        with self._one:
            token = self.database.run(lambda c: experiments.take_lease(c, WATCH, self.holder, time.time(), LEASE))
            if token is None:
                return None
            if now is None:
                self._store_pulses()
            live = self.service.reload(name)
            at = now or datetime.now(UTC)
            upto, sums = self._summed_up(live, at)
            with self.database.read() as connection:
                known = self._known[name][2]
                fitted = fit_again(connection, name, live.experiment, known)
                results = checked(Look(connection, live, at, sums, fitted))
            self._known[name] = upto, sums, fitted
            return self._store(live, results, at, token)

    def _store(self, live: Live, results: list[Result], at: datetime, token: int) -> list[dict[str, Any]]:
        upto, sums, fitted = self._known[live.name]
        plain = [each.plain() for each in results]

        def store(connection: Any) -> None:
            if not experiments.holds_lease(connection, WATCH, token):
                return
            kept = {"sums": sums.plain(), "fitted": None if fitted is None else fitted.plain()}
            watching.save_watched(connection, live.name, upto=upto, at=in_utc(at), sums=json.dumps(kept), results=json.dumps(plain))
            watching.save_history(connection, live.name, plain, at)
            incidents.follow(connection, live.name, results, at)
            if fitted is not None and fitted.effects:
                self._store_effects(connection, live, fitted, at)
            experiments.give_lease_back(connection, WATCH, token)

        self.database.run(store)
        return plain

    def _store_effects(self, connection: Any, live: Live, fitted: Fitted, at: datetime) -> None:
        """Keep what was estimated, once for each fit."""
        same = (effect.c.experiment == live.name) & (effect.c.learned >= fitted.learned)
        version = int(live.row["latest"])
        if connection.execute(
            select(effect.c.version).where(same | ((effect.c.experiment == live.name) & (effect.c.version == version)))
        ).first():
            return
        row = {"experiment": live.name, "version": version, "learned": fitted.learned, "at": in_utc(at)}
        connection.execute(insert(effect).values(**row, body=json.dumps(fitted.plain()["effects"])))

    def _summed_up(self, live: Live, at: datetime) -> tuple[int, Sums]:
        """The sums of all decisions up to now; those that are new since the last look are read."""
        name, experiment = live.name, live.experiment
        known = self._known.get(name)
        with self.database.read() as connection:
            row = watching.watched(connection, name)
            if known is None or (row is not None and row["upto"] > known[0]):
                told = json.loads(row["sums"]) if row is not None else {}
                sums = Sums(len(experiment.actions), experiment.policy.floor_at(1), told.get("sums"))
                known = (0 if row is None else row["upto"]), sums, fitted_from(told.get("fitted"))
            upto, sums, fitted = known
            names = "id", "name", "mode", "action", "propensities", "allowed", "received_at"
            asked = select(*(decision.c[each] for each in names)).where(decision.c.experiment == name)
            if self.database.is_postgresql:
                asked = asked.where(decision.c.received_at < in_utc(at - SETTLED))
            while rows := connection.execute(asked.where(decision.c.id > upto).order_by(decision.c.id).limit(AT_ONCE)).all():
                sums.add(row[1:] for row in rows)
                upto = rows[-1].id
                if len(rows) < AT_ONCE:
                    break
        self._known[name] = upto, sums, fitted
        return upto, sums
