"""Measure whether a decision takes longer when the store holds a million of them.

python scripts/fill_store.py                              SQLite
python scripts/fill_store.py --postgresql

Two servers run side by side, one on a store with a million decisions and outcomes, the other on one with a few. They are asked in turns,
so that other work on the machine slows both alike.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sqlalchemy import text
from tests.service.servers import postgresql

from mebandit.experiments.bench import service as bench
from mebandit.service.store.database import Database
from mebandit.service.store.schema import decision

TURNS = 10
CLIENTS = 8


def main() -> None:
    """Fill a store, and measure beside an empty one."""
    parser = argparse.ArgumentParser(description="Measure decisions beside a million of them.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    options = parser.parse_args()
    bench.SECONDS = options.seconds
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mb"))
        stores = [f"{folder}/small.db", f"{folder}/large.db"]
        if options.postgresql:
            database = postgresql(f"{folder}/pg")
            stack.callback(database.cleanup)
            for name in ("small", "large"):
                database.psql(f"CREATE DATABASE {name}")
            stores = [str(database.get_uri(name)) for name in ("small", "large")]
        servers = [stack.enter_context(bench.serving(store, 1)) for store in stores]
        for port, _ in servers:
            bench.ask(port, "decisions", iter(asked("first", 200)), 1)
        seconds = fill(stores[1], options.rows)
        kind = "PostgreSQL" if options.postgresql else "SQLite"
        print(f"{kind}: {options.rows:,} decisions with their outcomes were added in {seconds:.0f} s.")
        report([port for port, _ in servers])


def asked(name: str, n: int) -> list[bytes]:
    """Requests under the names that participants and days give."""
    return [
        json.dumps({"decision": f"u{i % 100}-{name}-{i}", "unit": f"u{i % 100}", "context": {"stress": 0.5}}).encode() for i in range(n)
    ]


def fill(store: str, rows: int) -> float:
    """Copy a decision of a store under a million names, each with an outcome; how long that took."""
    begun = time.perf_counter()
    database = Database(store)
    columns = [column.name for column in decision.columns if column.name not in ("id", "name", "unit")]
    series = "generate_series(1, :n) AS s(i)"
    if not database.is_postgresql:
        series = "(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < :n) SELECT i FROM s) AS s"
    name = "'u' || (i % 100) || '-day-' || i"
    copied = f"SELECT {name}, 'u' || (i % 100), {', '.join(columns)} FROM {series}, (SELECT * FROM decision LIMIT 1) AS one"
    told = f"SELECT 'walk', {name}, 1, 0.5, true, 'client', '2026-03-01T00:00:00.000000Z' FROM {series}"
    with database._transaction() as connection:
        connection.execute(text(f"INSERT INTO decision (name, unit, {', '.join(columns)}) {copied}"), {"n": rows})
        connection.execute(
            text(f"INSERT INTO outcome (experiment, decision, revision, value, final, source, received_at) {told}"), {"n": rows}
        )
    database.close()
    return time.perf_counter() - begun


def report(ports: list[int]) -> None:
    """Ask both servers in turns, and print what a decision took."""
    took: tuple[list[float], list[float]] = [], []
    for turn in range(TURNS):
        for port, times in zip(ports, took, strict=True):
            times.append(1e3 / bench.ask(port, "decisions", iter(asked(f"turn{turn}", 50_000)), CLIENTS).rate)
    small, large = median(took[0]), median(took[1])
    ratio = median(b / a for a, b in zip(*took, strict=True))
    words = f"{small:.2f} ms in a small store, {large:.2f} ms in the large one: {ratio:.2f} times as long"
    print(f"By {CLIENTS} clients in {TURNS} turns, a decision takes {words}.")


if __name__ == "__main__":
    main()
