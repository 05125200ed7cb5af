"""Make a large store, and time the first page and the checks of a server on it.

    python scripts/large_store.py large.db --participants 100000 --days 100    makes it: 10 million decisions
    python scripts/large_store.py large.db --time                              times a server on it

The rows are as the service stores them, one decision a day for each participant, nine of ten with an outcome. They are written by SQLite
itself and not by the service, so they cannot be replayed; the order of learning is there for the newest 300,000 rounds alone.
"""

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from mebandit.live.version import Version
from mebandit.service.messages import Configuration
from mebandit.service.service import Service, state_text
from mebandit.service.store import experiments
from mebandit.service.store.database import Database, in_utc
from mebandit.values import Observation, Round

NAME = "walk"
CONFIGURATION: dict[str, Any] = {
    "actions": ["none", "prompt"],
    "features": [{"name": "one", "constant": 1}, {"name": "stress", "range": [-6, 8]}],
    "policy": {"kind": "meb_dr", "floor": 0.1, "warmup": 20},
    "error": {"cov": {"stress": 0.25}},
    "fallback": {"none": 0.5, "prompt": 0.5},
    "cadence": {"by_hand": True},
    "calendar": {"times": ["09:00"], "grace_minutes": 60},
}
LEARNED = 300_000
"""rounds whose order is stored"""
COLUMNS = """experiment, name, request, unit, decided_for, received_at, configuration, mode, version, number, action, allowed, propensities,
uniform, auxiliary, predicted, error_cov, notes"""


def make(path: Path, participants: int, days: int, *, seed: int = 1) -> None:
    """Write the store."""
    if path.exists():
        sys.exit(f"{path} must not be there yet.")
    begin = (datetime.now(UTC) - timedelta(days=days)).replace(hour=9, minute=0, second=0, microsecond=0)
    units = [f"p{i:06d}" for i in range(participants)]
    _begin(path, units, begin)
    connection, random = sqlite3.connect(path, isolation_level=None), np.random.default_rng(seed)
    for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-400000"):
        connection.execute(f"PRAGMA {pragma}")
    indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = 'decision'")
    later = indexes.fetchall()
    for name, _ in later:
        connection.execute(f"DROP INDEX {name}")
    for day in range(days):
        _day(connection, begin + timedelta(days=day), units, random)
        print(f"day {day + 1} of {days}", end="\r", file=sys.stderr, flush=True)
    for _, statement in later:
        connection.execute(statement)
    total = participants * days
    query = "SELECT experiment, decision, revision FROM outcome ORDER BY id DESC LIMIT ?"
    newest = connection.execute(query, [LEARNED]).fetchall()
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO learned (experiment, decision, revision, seq) VALUES (?, ?, ?, ?)", [(*row, total - i) for i, row in enumerate(newest)]
    )
    _version(connection, random)
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.close()


def _begin(path: Path, units: list[str], begin: datetime) -> None:
    """An experiment that runs, with its participants."""
    database = Database(str(path))
    service = Service(database)
    service.configure(NAME, Configuration.model_validate(CONFIGURATION), "generator")
    database.run(lambda c: experiments.change_status(c, NAME, "running", "generated", "generator"))
    database.close()
    told = json.dumps({"timezone": "UTC", "start": None, "end": None, "group": None, "times": None, "status": "active"})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO unit_event (experiment, unit, body, at, by) VALUES (?, ?, ?, ?, 'generator')",
            [(NAME, unit, told, in_utc(begin)) for unit in units],
        )


def _day(connection: sqlite3.Connection, at: datetime, units: list[str], random: np.random.Generator) -> None:
    """The decisions and outcomes of a day."""
    n, date, decided = len(units), f"{at:%Y-%m-%d}", in_utc(at)
    x, error, u, late = random.normal(0.8, 1, n), random.normal(0, 0.5, n), random.random((n, 2)), np.sort(random.uniform(0, 900, n))
    predicted = (x + error).round(4)
    prompt = np.where(predicted < 1.2, 0.9, 0.1)
    action, fallback = (u[:, 0] >= 1 - prompt).astype(int), random.random(n) < 0.02
    reward = (2.0 - 0.4 * x + action * (0.5 - 0.4 * x) + random.normal(0, 1, n)).round(4)
    rows, told = [], []
    for i, unit in enumerate(units):
        name, stress, received = f"{date}-{unit}", predicted[i], in_utc(at + timedelta(seconds=float(late[i])))
        request = (
            f'{{"allowed": null, "at": "{at.isoformat()}", "available": true, "context": {{"stress": {stress}}}, "decision": "{name}", '
            f'"error": null, "observed_at": {{"stress": "{at.isoformat()}"}}, "predictor": "stressnet-3.1", "unit": "{unit}"}}'
        )
        pi = "[0.5,0.5]" if fallback[i] else "[0.1,0.9]" if prompt[i] == 0.9 else "[0.9,0.1]"
        mode, version = ("fallback", None) if fallback[i] else ("learned", 1)
        chosen = int(u[i, 0] >= 0.5) if fallback[i] else int(action[i])
        rows.append(
            (NAME, name, request, unit, decided, received, 1, mode, version, 1, chosen, "[0, 1]", pi, u[i, 0], u[i, 1],
             f"[1.0,{stress}]", "[[0.0,0.0],[0.0,0.25]]", "[]")
        )  # fmt: skip
        if u[i, 1] > 0.1:
            told.append((NAME, name, 1, reward[i], 1, "client", in_utc(at + timedelta(seconds=float(late[i]) + 3600 + 7200 * u[i, 1]))))
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO decision ({COLUMNS}) VALUES ({', '.join('?' * 18)})", rows)
    columns = "experiment, decision, revision, value, final, source, received_at"
    connection.executemany(f"INSERT INTO outcome ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", told)
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, random: np.random.Generator) -> None:
    """A version that decides, from some rounds of its own."""
    secret = bytes.fromhex(connection.execute("SELECT secret FROM experiment").fetchone()[0])
    from mebandit.service.experiment import Experiment

    experiment = Experiment(Configuration.model_validate(CONFIGURATION), secret)
    rounds = []
    for t in range(1, 2001):
        x, a = np.array([1.0, random.normal(0.8, 1.1)]), int(random.integers(2))
        seen = Observation(x, np.diag([0, 0.25]), np.ones(2, dtype=np.bool_), t, 0.5)
        rounds.append(Round(seen, a, np.full(2, 0.5), float(2 - 0.4 * x[1] + a * (0.5 - 0.4 * x[1]) + random.normal())))
    state = experiment.first.after(rounds).state
    version = Version(experiment.policy, state, learned=len(rounds), secret=secret)
    at = in_utc(datetime.now(UTC))
    connection.execute(
        "INSERT INTO policy_version (experiment, number, learned, fingerprint, made_at, token) VALUES (?, 1, ?, ?, ?, 0)",
        [NAME, len(rounds), version.fingerprint, at],
    )
    connection.execute("INSERT INTO state (experiment, version, body) VALUES (?, 1, ?)", [NAME, state_text(version)])
    connection.execute("UPDATE experiment SET active = 1, latest = 1")


def measure(path: Path) -> None:
    """Start a server, and time it."""
    import httpx
    from tests.service.servers import KEY, Launcher

    launcher = Launcher()
    try:
        begun = time.perf_counter()
        server = launcher.start(str(path))
        print(f"ready after {time.perf_counter() - begun:.1f} s; the store has {os.path.getsize(path) / 1e9:.1f} GB")
        with httpx.Client(base_url=server.address, timeout=3600) as client:
            client.post("/sign-in", data={"key": KEY, "back": "/dashboard"})
            bearer = {"Authorization": f"Bearer {KEY}"}
            for what in ("first checks, which sum up every decision", "checks again"):
                begun = time.perf_counter()
                found = client.post(f"/v1/experiments/{NAME}/checks:run", headers=bearer)
                seconds = time.perf_counter() - begun
                levels = [each["level"] for each in found.json()["checks"]]
                n = sum(found.json()["decisions"].values())
                print(f"{what}: {seconds:.1f} s; {levels.count('green')} of {len(levels)} green, {n:,} decisions")
            last = client.get(f"/dashboard/{NAME}/decisions").text.partition(f"/dashboard/{NAME}/decisions/")[2].partition('"')[0]
            pages = ("", f"/{NAME}", f"/{NAME}/units", f"/{NAME}/units?q=p09", f"/{NAME}/units/p000123", f"/{NAME}/decisions",
                     f"/{NAME}/decisions/{last}", f"/{NAME}/learned", f"/{NAME}/error", f"/{NAME}/incidents", f"/{NAME}/audit")  # fmt: skip
            for page in pages:
                times = []
                for _ in range(3):
                    begun = time.perf_counter()
                    assert client.get(f"/dashboard{page}").status_code == 200
                    times.append(time.perf_counter() - begun)
                print(f"/dashboard{page}: {times[0]:.2f} s, then {min(times[1:]):.2f} s")
    finally:
        launcher.close()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("store", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "large.db")
    asked.add_argument("--participants", type=int, default=100_000)
    asked.add_argument("--days", type=int, default=100)
    asked.add_argument("--time", action="store_true", help="time a server on the store instead of making it")
    given = asked.parse_args()
    if given.time:
        measure(given.store)
        return
    begun = time.monotonic()
    make(given.store, given.participants, given.days)
    print(f"{given.store}: {given.participants * given.days:,} decisions in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
