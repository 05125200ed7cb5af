"""Servers that are killed, requests that are repeated, and several processes on one PostgreSQL."""

from pathlib import Path
from typing import Any

from mebandit.client import Client
from mebandit.service.replay import replay
from mebandit.service.store.database import Database
from tests.service.killing import Killed, kill_again, repeat
from tests.service.servers import KEY, Launcher, begin, free_port


def check(found: Killed) -> None:
    assert found.faults == []
    assert found.replayed.difference == ""
    assert found.replayed.decisions >= found.decisions > 0
    assert found.replayed.rounds >= found.outcomes > 0


def test_twenty_kills_lose_nothing_on_sqlite(launcher: Launcher, store: str) -> None:
    check(kill_again(launcher, store, kills=20, seed=1))


def test_ten_kills_of_two_workers_and_of_the_database_lose_nothing_on_postgresql(launcher: Launcher, postgres: Any) -> None:
    postgres.psql("CREATE DATABASE kills")
    found = kill_again(launcher, address(postgres, "kills"), kills=10, servers=2, database=postgres, seed=2)
    assert 0 < found.of_database < 10
    check(found)


def address(postgres: Any, name: str) -> str:
    return str(postgres.get_uri(name))


def test_a_repeated_request_makes_one_decision_also_by_two_workers(launcher: Launcher, postgres: Any) -> None:
    postgres.psql("CREATE DATABASE repeats")
    store = address(postgres, "repeats")
    servers = [launcher.start(store, free_port()) for _ in range(2)]
    with servers[0].client() as client:
        begin(client)
    found = repeat(store, [server.port for server in servers], names=300)
    assert found.alike
    assert (found.decisions, found.new) == (300, 300)
    assert found.refused == found.others > 0
    for server in servers:
        server.kill()
    database = Database(store)
    again = replay(database)
    database.close()
    assert (again.difference, again.decisions) == ("", 300)


def test_what_a_client_decides_offline_is_delivered_later(launcher: Launcher, store: str, tmp_path: Path) -> None:
    server = launcher.start(store)
    with server.client() as client:
        begin(client)
    kept = tmp_path / "offline.jsonl"
    given: dict[str, Any] = {"key": KEY, "fallback": {"none": 0.25, "prompt": 0.75}, "offline": kept}
    with Client(server.address, "walk", timeout=30, **given) as online:
        assert online.decide("a", {"stress": 0.5})["mode"] == "warmup"
    server.kill()
    mine = Client(server.address, "walk", timeout=0.3, **given)
    made = mine.decide("b", {"stress": 0.5}, unit="u1")
    assert (made["mode"], made["probabilities"]) == ("external", {"none": 0.25, "prompt": 0.75})
    assert mine.decide("c", {"stress": 0.5}, allowed=["none"])["action"] == "none"
    assert mine.report("b", 1.0) == "kept"
    later = Client(server.address, "walk", timeout=30, **given)
    assert later.decide("b")["action"] == made["action"], "the file is read by the next process"
    again = launcher.start(store, server.port)
    assert (later.flush(), later.waiting, kept.read_text()) == (2, 0, "")
    stored = later.call("GET", "/decisions/b")
    assert stored | {"notes": []} == made | {"replayed": True, "reason": None}
    assert later.report("a", 2.0) == "stored"
    mine.close()
    later.close()
    again.kill()


def test_a_worker_knows_at_once_what_another_has_changed(launcher: Launcher, store: str) -> None:
    """Both have read the experiment before each change, and neither looks for changes before it answers."""
    servers = [launcher.start(store, free_port()) for _ in range(2)]
    with servers[0].client() as first, servers[1].client() as second:
        for i in range(5):
            path = f"/v1/experiments/e{i}"
            begin(first, f"e{i}")
            assert second.post(f"{path}/decisions", json={"decision": "a"}).status_code == 200
            first.post(f"{path}/state", json={"to": "paused", "reason": "a fault"})
            assert second.post(f"{path}/decisions", json={"decision": "b"}).json()["reason"] == "The experiment is paused."
            first.put(f"{path}/units/u", json={"status": "withdrawn"})
            assert second.post(f"{path}/decisions", json={"decision": "c", "unit": "u"}).json()["mode"] == "unavailable"
            second.post(f"{path}/state", json={"to": "stopped", "reason": "over"})
            assert first.post(f"{path}/decisions", json={"decision": "d"}).status_code == 409
    for server in servers:
        server.kill()
