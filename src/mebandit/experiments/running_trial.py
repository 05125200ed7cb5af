"""A simulated trial that runs through the decision service: its decisions, outcomes and truths are stored as a real one's, at the times
at which they would have come. Faults can be switched on while it runs, so that one can see what the checks say of each."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import insert, update

from mebandit.service.messages import Configuration, Made, Outcome, Request
from mebandit.service.service import Live, Service
from mebandit.service.store import experiments
from mebandit.service.store.database import Database, in_utc
from mebandit.service.store.decisions import NewDecision, store_decisions
from mebandit.service.store.outcomes import store_outcomes
from mebandit.service.store.schema import outcome, policy_version, pulse, truth
from mebandit.service.trainer import Trainer
from mebandit.service.watcher import Watcher

NAME = "walk"
ERROR_VAR = 0.25
"""variance of predicted stress given true stress"""
TIMES = ["08:30", "13:00", "18:30"]
ZONES = "America/New_York", "America/Chicago", "America/Los_Angeles"
BASELINE = np.array([2.0, -0.4, 0.3])
"""expected outcome without a message, as a function of (1, stress, steps)"""
EFFECT = np.array([0.5, -0.4, 0.1])
"""what a message adds"""
CONFIGURATION: dict[str, Any] = {
    "actions": ["none", "prompt"],
    "features": [
        {"name": "one", "constant": 1},
        {"name": "stress", "range": [-6, 8], "max_age_hours": 6},
        {"name": "steps", "range": [-6, 6]},
    ],
    "policy": {"kind": "meb_dr", "floor": 0.1, "warmup": 60},
    "error": {"cov": {"stress": ERROR_VAR}},
    "fallback": {"none": 0.5, "prompt": 0.5},
    "cadence": {"seconds": 600},
    "calendar": {"times": TIMES, "grace_minutes": 60},
}


@dataclass
class Faults:
    """What is wrong from some moment on; the defaults are those of a healthy trial."""

    unasked: float = 0.02
    """share of due decisions that nobody asks for"""
    missing: float = 0.02
    """share of contexts without stress"""
    age_hours: float = 0.3
    """mean age of stress"""
    outside: float = 0.001
    """share of contexts in another unit of measurement"""
    no_outcome: float = 0.1
    """share of decisions without an outcome"""
    delay_hours: float = 2.0
    """mean time until an outcome comes"""
    shift: float = 0.0
    """what a sensor that drifts adds to predicted stress"""
    error_var: float = ERROR_VAR
    """the real variance of predicted stress given true stress"""
    flipped: float = 0.0
    """share of decisions whose stored action is not the one that was drawn"""
    below: float = 0.0
    """share of decisions whose stored probabilities are below the floor"""
    silent: float = 0.0
    """share of participants who take part no more"""
    seconds: float = 0.02
    """mean time that a decision takes"""
    repeated: float = 0.01
    """share of requests that are sent twice"""
    conflicts: float = 0.0
    """share of requests that contradict an earlier one"""
    effect: float = 0.0
    """what a message adds besides, for everyone"""
    untrained: bool = False
    """whether the trainer stands still"""
    external: bool = False
    """whether clients cannot reach the service, and decide by themselves"""


@dataclass
class RunningTrial:
    """A trial on a store.

    Args:
        store: path of a SQLite file or address of a PostgreSQL database.
        begin: when it begins; simulated times must end before now.
        participants: how many take part.
        seed: of the random numbers.
        name: of the experiment.
        changes: to the configuration.
        faults: what is wrong.
    """

    store: str
    begin: datetime
    participants: int = 30
    seed: int = 1
    name: str = NAME
    changes: Mapping[str, Any] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.database = Database(self.store)
        self.restart()
        self.now, self.count = self.begin, 0
        self.units = [f"p{i + 1:03d}" for i in range(self.participants)]
        self.level = dict(zip(self.units, self.random.normal(0.8, 0.4, self.participants), strict=True))
        self._late: list[tuple[datetime, Outcome]] = []
        self._started = in_utc(datetime.now(UTC) - timedelta(seconds=1))
        self.service.configure(self.name, Configuration.model_validate(CONFIGURATION | dict(self.changes)), "trial team")
        for i, unit in enumerate(self.units):
            told = {"timezone": ZONES[i % len(ZONES)], "start": self.begin.isoformat(), "end": None, "group": f"site {i % 2 + 1}"}
            self.database.run(self._registered(unit, told | {"times": None, "status": "active"}))
        self.database.run(lambda c: experiments.change_status(c, self.name, "running", "approved", "trial team"))
        self.service.reload(self.name)

    def _registered(self, unit: str, told: dict[str, Any]) -> Callable[[Any], None]:
        return lambda connection: experiments.save_unit(connection, self.name, unit, told, "trial team")

    def restart(self) -> None:
        """Know no more than the store does."""
        self.service = Service(self.database)
        self.trainer, self.watcher = Trainer(self.service), Watcher(self.service)

    def close(self) -> None:
        """Close the store."""
        self.database.close()

    def run(self, days: float, *, check_every: int = 0) -> list[list[dict[str, Any]]]:
        """Go on for some days.

        Args:
            days: how many.
            check_every: decision points between two looks of the checks; 0: none.

        Returns:
            What the checks found at each look.
        """
        looks = []
        for _ in range(round(days * 24)):
            self.hour()
            self.count += 1
            if check_every and self.count % (8 * check_every) == 0:
                looks.append(self.watcher.check(self.name, self.now) or [])
        return looks

    def hour(self) -> None:
        """What happens in an hour: decisions for those whose time it is, outcomes that come, and training."""
        begin, self.now = self.now, self.now + timedelta(hours=1)
        live = self.service.found(self.name)
        due = self._due(live, begin)
        made = [(unit, at, *self._asked(unit, at)) for unit, at in due if self.random.uniform() >= self.faults.unasked]
        if made:
            self._decide(live, made)
        came = [each for time, each in self._late if time <= self.now]
        self._late = [pair for pair in self._late if pair[0] > self.now]
        for answer in [self.database.submit(store_outcomes, live.outcome(each)) for each in came]:
            answer.result()
        if came and not self.faults.untrained:
            self.trainer.train(self.name)
        self._set_times()

    def _due(self, live: Live, begin: datetime) -> list[tuple[str, datetime]]:
        from mebandit.service.checks.participants import expected_of

        present = self.units[: round(len(self.units) * (1 - self.faults.silent))]
        told = {unit: live.units[unit] for unit in present if live.units[unit]["status"] == "active"}
        found = expected_of(told, live.experiment.configuration.calendar.times if live.experiment.configuration.calendar else TIMES,
                            begin, self.now)  # fmt: skip
        return sorted(((unit, at) for unit, points in found.items() for at in points), key=lambda pair: pair[1])

    def _asked(self, unit: str, at: datetime) -> tuple[Request, np.ndarray[Any, Any]]:
        """A request, and the true context behind it."""
        faults, draw = self.faults, self.random
        x = np.array([1.0, self.level[unit] + draw.normal(0, 0.9), draw.normal(0, 1)])
        predicted = float(x[1] + draw.normal(0, np.sqrt(faults.error_var)) + faults.shift)
        context: dict[str, Any] = {"stress": round(predicted, 4), "steps": round(float(x[2]), 4)}
        if draw.uniform() < faults.outside:
            context["stress"] = 60.0 * abs(predicted) + 10
        if draw.uniform() < faults.missing:
            context["stress"] = None
        seen = at - timedelta(hours=min(float(draw.exponential(faults.age_hours)), 400.0))
        name = f"{unit}-{at:%Y-%m-%dT%H%M}"
        told = {"decision": name, "unit": unit, "at": at.isoformat(), "available": bool(draw.uniform() > 0.08), "context": context}
        told |= {"observed_at": {"stress": seen.isoformat()}, "predictor": "stressnet-3.1"}
        return Request.model_validate(told), x

    def _decide(self, live: Live, made: list[Any]) -> None:
        items, true = [], {}
        for unit, at, request, x in made:
            received = at + timedelta(seconds=float(self.random.uniform(0, 60)))
            row = self._row(live, request, received) | {"configuration": live.row["configuration"]}
            row = self._spoiled(live, row)
            incidents = (live.incident(row) | {"at": in_utc(received)},) if row["mode"] == "fallback" else ()
            items.append(self.database.submit(store_decisions, NewDecision(row, live.row["epoch"], incidents)))
            true[request.decision] = unit, x, received
        for item in items:
            stored = item.result()
            if stored is not None and stored.row["action"] is not None:
                self._follow(stored.row, *true[stored.row["name"]])
        self._beat(len(made), made[-1][1])

    def _row(self, live: Live, request: Request, received: datetime) -> dict[str, Any]:
        if not self.faults.external:
            given: dict[str, Any] = {"version": live.version, "number": int(live.row["active"]), "trouble": live.trouble}
            return live.experiment.decide(request, name=self.name, received=received, **given)
        told = request.model_dump(mode="json") | {"action": str(self.random.choice(live.experiment.actions))}
        even = dict.fromkeys(live.experiment.actions, 1 / len(live.experiment.actions))
        told = {name: value for name, value in told.items() if value is not None} | {"probabilities": even}
        return live.experiment.external(Made.model_validate(told), name=self.name, received=received)

    def _spoiled(self, live: Live, row: dict[str, Any]) -> dict[str, Any]:
        """A row as a service with a defect would store it."""
        if row["mode"] == "learned" and self.random.uniform() < self.faults.below:
            row = row | {"propensities": json.dumps([0.99, 0.01])}
        if row["action"] is not None and self.random.uniform() < self.faults.flipped:
            row = row | {"action": 1 - row["action"]}
        return row

    def _follow(self, row: dict[str, Any], unit: str, x: Any, received: datetime) -> None:
        """What comes later of a decision: its outcome, and sometimes the true stress."""
        draw = self.random
        if draw.uniform() >= self.faults.no_outcome:
            added = x @ EFFECT + self.faults.effect if row["action"] == 1 else 0.0
            value = float(x @ BASELINE + added + draw.normal(0, 1))
            time = received + timedelta(hours=0.1 + float(draw.exponential(self.faults.delay_hours)))
            self._late.append((time, Outcome(decision=row["name"], value=round(value, 4))))
        if draw.uniform() < 0.15:
            told = {"experiment": self.name, "decision": row["name"], "feature": "stress", "value": float(x[1])}
            self.database.run(lambda c: c.execute(insert(truth).values(**told, received_at=in_utc(received))))

    def _beat(self, n: int, at: datetime) -> None:
        """What the process that served would have counted."""
        faults, draw = self.faults, self.random
        seconds = draw.exponential(faults.seconds, n)
        body: dict[str, float] = {
            "answers": n,
            "repeated": int(draw.binomial(n, faults.repeated)),
            "conflicts": int(draw.binomial(n, faults.conflicts)),
        }
        body |= {"p50": float(np.quantile(seconds, 0.5)), "p99": float(np.quantile(seconds, 0.99))}
        row = {"experiment": self.name, "process": "simulated", "at": in_utc(at), "body": json.dumps(body)}
        self.database.run(lambda c: c.execute(insert(pulse).values(**row)))

    def _set_times(self) -> None:
        """Give what was stored just now the times of the simulation."""
        at = in_utc(self.now)

        def work(connection: Any) -> None:
            connection.execute(update(outcome).where(outcome.c.received_at >= self._started).values(received_at=at))
            connection.execute(update(policy_version).where(policy_version.c.made_at >= self._started).values(made_at=at))

        self.database.run(work)
