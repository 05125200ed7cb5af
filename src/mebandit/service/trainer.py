"""The trainer: learns outcomes that have come, in an order that it writes down, and lets the new version decide.

One process at a time trains an experiment. It takes a lease, whose number grows with every new holder; a version is stored only while
the number is still the trainer's own. So a trainer that was held up, and believed dead, can publish nothing.
"""

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex

from sqlalchemy import Connection

from mebandit.checks import InvalidInput, MebanditError
from mebandit.live.version import Version
from mebandit.service.service import DECIDING, Live, Service, read_version, state_text
from mebandit.service.store import experiments, outcomes
from mebandit.service.store.database import Row, in_utc
from mebandit.service.store.experiments import NewVersion
from mebandit.service.store.outcomes import NewOutcome
from mebandit.service.store.records import open_incident

AT_ONCE = 1000
"""rounds of one version"""
LEASE = 10.0
"""seconds after which a trainer that does not answer is replaced"""
PAUSE = 0.2
"""seconds between two looks at what other processes did"""
OVERLAP = timedelta(hours=1)
"""how far the search for outcomes that never came goes back each time"""

logger = logging.getLogger("mebandit.service")


class Trainer(threading.Thread):
    """Trains the experiments of a service whenever their cadence says so, closes what waited too long, and takes in changes.

    Args:
        service: whose experiments it trains.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(name="trainer", daemon=True)
        self.service, self.database = service, service.database
        self.holder = token_hex(8)
        self._heads: dict[str, tuple[int, Version]] = {}
        self._trained: dict[str, float] = {}
        self._closed: dict[str, str] = {}
        self._looked = 0.0
        self._one = threading.Lock()
        self._news, self._ending = threading.Event(), threading.Event()

    def tell(self) -> None:
        """Say that there may be something to learn."""
        self._news.set()

    def stop(self) -> None:
        """End after what is being done."""
        self._ending.set()
        self._news.set()
        self.join()

    def run(self) -> None:
        """Look for work until it is stopped. An error is logged and tried again: it must not end the training."""
        while not self._ending.is_set():
            self._news.wait(PAUSE)
            self._news.clear()
            try:
                self.look()
            except Exception as error:
                logger.warning("training: %s", error)
                self._ending.wait(1.0)

    def look(self) -> None:
        """Do once what is due."""
        clock = time.monotonic()
        if clock - self._looked >= PAUSE:
            self.service.refresh()
            self._looked = clock
        for name, live in self.service.known().items():
            if live.status in DECIDING:
                self._close_out(live)
                if self._due(live):
                    self.train(name)

    def _due(self, live: Live) -> bool:
        cadence = live.experiment.configuration.cadence
        if cadence.by_hand:
            return False
        if cadence.seconds is not None and time.monotonic() - self._trained.get(live.name, 0.0) < cadence.seconds:
            return False
        with self.database.read() as connection:
            return outcomes.n_to_learn(connection, live.name) >= (cadence.outcomes or 1)

    def train(self, name: str) -> int:
        """Learn all outcomes that wait; how many that were. Nothing while another process trains the experiment."""
        total = 0
        with self._one:
            while (count := self._step(name)) > 0:
                total += count
            self._trained[name] = time.monotonic()
        return total

    def _step(self, name: str) -> int:
        """One new version."""
        token = self.database.run(lambda c: experiments.take_lease(c, name, self.holder, time.time(), LEASE))
        if token is None:
            return 0
        live = self.service.found(name)
        with self.database.read() as connection:
            row = experiments.pointer(connection, name)
            names, waiting = outcomes.learnable(connection, name, AT_ONCE)
            done = experiments.learned_among(connection, name, names)
            number, head = self._head(connection, live, 0 if row is None else row["latest"])
        rounds, bad = self._learnable(live, head, [each for each in waiting if each["name"] not in done])
        new = head.after([live.experiment.round(each) for each in rounds])
        made = NewVersion(number + 1, new.learned, new.fingerprint, state_text(new))

        def publish(connection: Connection) -> None:
            outcomes.leave_queue(connection, name, names)
            for each, why in bad:
                open_incident(connection, name, "not learned", f"The outcome could not be learned: {why}", each["name"])
            if rounds:
                experiments.publish(connection, name, made, rounds, token)
            experiments.give_lease_back(connection, name, token)

        try:
            self.database.run(publish)
        except experiments.Conflict as lost:
            logger.warning("training %s: %s", name, lost)
            return 0
        if rounds:
            self._heads[name] = made.number, new
            self.service.reload(name)
        return len(rounds)

    def _head(self, connection: Connection, live: Live, latest: int) -> tuple[int, Version]:
        """The latest version."""
        known = self._heads.get(live.name)
        if known is None or known[0] != latest:
            known = latest, read_version(connection, live.name, live.experiment, latest)
        return known

    def _learnable(self, live: Live, head: Version, rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, str]]]:
        """The rounds that the policy takes, and those that it refuses, each with the reason."""
        try:
            head.after([live.experiment.round(row) for row in rows])
            return list(rows), []
        except InvalidInput:
            good: list[Row] = []
            bad: list[tuple[Row, str]] = []
        for row in rows:
            try:
                head = head.after([live.experiment.round(row)])
                good.append(row)
            except InvalidInput as error:
                bad.append((row, str(error)))
        return good, bad

    def _close_out(self, live: Live) -> None:
        """Close the outcomes that were waited for long enough."""
        waiting = live.experiment.configuration.outcomes
        if waiting.wait_hours is None:
            return
        until = datetime.now(UTC) - timedelta(hours=waiting.wait_hours)
        with self.database.read() as connection:
            rows = outcomes.without_outcome(connection, live.name, self._closed.get(live.name, ""), in_utc(until), AT_ONCE)
        modes = live.experiment.learns_from
        closing = [NewOutcome(live.name, row["name"], 0, waiting.then, True, modes, "close-out") for row in rows]
        try:
            for answer in [self.database.submit(outcomes.store_outcomes, each) for each in closing]:
                answer.result()
        except MebanditError as error:
            logger.warning("closing outcomes: %s", error)
            return
        self._closed[live.name] = in_utc(until - OVERLAP) if len(rows) < AT_ONCE else rows[-1]["received_at"]
