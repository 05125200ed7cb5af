"""The demonstration `mebandit demo --service`: a store with a trial that has run for three weeks, and goes on while one looks at it.

A sensor has begun to drift, the service was out of reach for most of a day, and outcomes come late. What goes on is asked over HTTP, as an
app would ask."""

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from mebandit.client import Client, Refused, Unreachable
from mebandit.experiments.running_trial import BASELINE, EFFECT, ERROR_VAR, NAME, RunningTrial
from mebandit.service.store import experiments

DAYS, DRIFT_AT, OUTAGE_AT = 21, 17, 14
OUTAGE_DAYS = 0.75
DRIFT = 2.2
"""what the sensor that drifts adds in the end"""
SECOND = "sleep"
"""a second experiment, in which nothing is wrong"""


def make_store(path: Path, *, participants: int = 30, days: int = DAYS, seed: int = 1) -> None:
    """A store with two trials that have run for some days.

    Args:
        path: of the SQLite file, which must not be there.
        participants: of each trial.
        days: how long they have run; what goes wrong does so at the same share of them.
        seed: of the random numbers.
    """
    end = datetime.now(UTC)
    healthy = RunningTrial(str(path), end - timedelta(days=days / 3), participants // 2, seed=seed + 1, name=SECOND)
    healthy.run(days / 3, check_every=6)
    healthy.close()
    trial = RunningTrial(str(path), end - timedelta(days=days), participants, seed=seed)
    usual = trial.faults
    try:
        trial.run(days * OUTAGE_AT / DAYS, check_every=6)
        trial.faults = replace(usual, external=True, unasked=0.85, no_outcome=0.6)
        trial.run(OUTAGE_DAYS, check_every=1)
        trial.faults = usual
        trial.run(days * (DRIFT_AT - OUTAGE_AT) / DAYS - OUTAGE_DAYS, check_every=3)
        steps = 8
        for i in range(1, steps + 1):
            trial.faults = replace(usual, shift=DRIFT * i / steps)
            trial.run(days * (DAYS - DRIFT_AT) / DAYS / steps, check_every=1)
        gone = trial.units[-1]
        told = trial.service.found(NAME).units[gone] | {"status": "withdrawn"}
        trial.database.run(lambda connection: experiments.save_unit(connection, NAME, gone, told, "trial team"))
        trial.service.reload(NAME)
        trial.watcher.check(NAME)
    finally:
        trial.close()


class Living(threading.Thread):
    """An app that asks for decisions and reports outcomes until it is stopped.

    Args:
        address: of the service.
        key: with the roles decide and outcome.
        seconds: between two decisions.
        shift: what its sensor adds to stress.
        seed: of the random numbers.
    """

    def __init__(self, address: str, key: str, *, seconds: float = 2.0, shift: float = DRIFT, seed: int = 1) -> None:
        super().__init__(name="app", daemon=True)
        self.address, self.key, self.seconds, self.shift = address, key, seconds, shift
        self.random, self._ending = np.random.default_rng(seed), threading.Event()

    def stop(self) -> None:
        """End after what is being done."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """Ask, and report some time later."""
        waiting: list[tuple[str, float]] = []
        number = 0
        fallback = {"none": 0.5, "prompt": 0.5}
        with Client(self.address, NAME, key=self.key, fallback=fallback) as client:
            while not self._ending.wait(self.seconds):
                number += 1
                x = np.array([1.0, self.random.normal(0.8, 1.0), self.random.normal()])
                at = datetime.now(UTC)
                name = f"live-{at:%Y-%m-%dT%H%M%S}-{number}"
                stress = float(x[1] + self.shift + self.random.normal(0, np.sqrt(ERROR_VAR)))
                context = {"stress": round(stress, 4), "steps": round(float(x[2]), 4)}
                unit = f"p{self.random.integers(1, 30):03d}"
                try:
                    answer = client.decide(name, context, unit=unit, at=at.isoformat(), observed_at={"stress": at.isoformat()})
                except (Refused, Unreachable):
                    continue  # the experiment was stopped, or the service is not there yet
                if answer["action"] is not None and self.random.uniform() < 0.9:
                    effect = x @ EFFECT if answer["action"] == "prompt" else 0.0
                    waiting.append((name, float(x @ BASELINE + effect + self.random.normal())))
                with suppress(Refused, Unreachable):
                    if len(waiting) > 5:
                        client.report(*waiting.pop(0))
