"""Servers and databases that the tests of a module share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.servers import Launcher, Server, postgresql


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    made = Launcher()
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server; its socket must have a short path."""
    folder = tempfile.mkdtemp(prefix="mb")
    made = postgresql(folder)
    yield made
    made.cleanup()


@pytest.fixture(scope="module")
def server(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a SQLite file."""
    made = launcher.start(str(tmp_path_factory.mktemp("store") / "trial.db"))
    yield made
    made.kill()


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "trial.db")
