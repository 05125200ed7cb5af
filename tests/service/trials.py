"""A simulated trial that runs through the parts of the service."""

from pathlib import Path
from typing import Any

import numpy as np

from mebandit.service.log import rows, write_parquet
from mebandit.service.messages import Configuration, Outcome, Request
from mebandit.service.service import Service
from mebandit.service.store import experiments
from mebandit.service.store.database import Database
from mebandit.service.store.decisions import store_decisions
from mebandit.service.store.outcomes import store_outcomes
from mebandit.service.trainer import Trainer
from tests.service.servers import WALK

EFFECT = np.array([[0.2, 0.5], [0.6, -0.4]])
"""theta of each action: of the constant and of stress"""


def trial(store: str, n: int, seed: int, **changes: Any) -> None:
    """A trial of n decisions: some contexts are missing, some units unavailable, some outcomes late, missing, or wrong until they are
    revised. It is paused for a tenth of its time, in which the fallback decides."""
    database = Database(store)
    service = Service(database)
    service.configure("walk", Configuration.model_validate(WALK | {"cadence": {"by_hand": True}} | changes), "test")

    def change(to: str) -> None:
        database.run(lambda c: experiments.change_status(c, "walk", to, "the trial", "test"))
        service.reload("walk")

    change("running")
    trainer, random = Trainer(service), np.random.default_rng(seed)
    waiting: list[Outcome] = []
    for start in range(0, n, 10):
        for to, place in (("paused", n // 2), ("running", n // 2 + n // 10)):
            if start == place // 10 * 10:
                change(to)
        live = service.found("walk")
        asked, contexts = [], random.uniform(0.2, 0.8, 10)
        for i, stress in enumerate(contexts, start=start):
            seen = None if random.uniform() < 0.1 else float(stress + random.normal(0, 0.2))
            request = Request(decision=f"d{i}", unit=f"u{i % 20}", context={"stress": seen}, available=bool(random.uniform() > 0.1))
            asked.append(database.submit(store_decisions, live.prepared(request)))
        for stress, answer in zip(contexts, asked, strict=True):
            stored = answer.result()
            assert stored is not None
            if stored.row["action"] is not None and random.uniform() > 0.1:
                value = float(EFFECT[stored.row["action"]] @ [1.0, stress] + random.normal(0, 0.3))
                name, wrong = stored.row["name"], random.uniform() < 0.1
                waiting += [Outcome(decision=name, value=value + 1, revision=1)] if wrong else []
                waiting.append(Outcome(decision=name, value=value, revision=1 + wrong))
        random.shuffle(waiting)
        late, waiting = waiting[:5], waiting[5:]
        for told in [database.submit(store_outcomes, live.outcome(each)) for each in waiting]:
            told.result()
        waiting = late
        trainer.train("walk")
    for each in waiting:
        database.write(store_outcomes, service.found("walk").outcome(each))
    trainer.train("walk")
    database.close()


def run(store: str, n: int, seed: int) -> None:
    """A trial of `meb_dr` whose contexts have no range, so that the fallback does not depend on them."""
    features = [{"name": "one", "constant": 1}, {"name": "stress"}]
    trial(store, n, seed, features=features, policy={"kind": "meb_dr", "floor": 0.2, "warmup": 20})


def exported(store: str) -> Path:
    """The log of a store as a Parquet file beside it."""
    path = Path(store).with_suffix(".parquet")
    database = Database(store)
    experiment = Service(database).found("walk").experiment
    with path.open("wb") as file:
        write_parquet(experiment, rows(database, "walk", experiment, every=False), file)
    database.close()
    return path
