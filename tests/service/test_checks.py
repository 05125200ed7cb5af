"""The checks, incidents and webhooks: what they say of simulated faults, and how often they speak without one."""

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import exp
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mebandit.experiments.check_table import FAULTS, play
from mebandit.service import incidents, webhooks
from mebandit.service.checks.context import error_of
from mebandit.service.checks.look import Result, in_words
from mebandit.service.checks.participants import expected_of
from mebandit.service.checks.sums import BLOCK, LAMBDA, Martingale, Sums
from mebandit.service.store import watching
from mebandit.service.store.database import Database, in_utc
from mebandit.service.store.records import open_incident
from mebandit.values import GREEN, RED, YELLOW
from tests.service.servers import Server, begin

# ---- the randomisation test ----


def drawn(n: int, seed: int, k: int = 3) -> tuple[Any, list[int]]:
    """Decisions of K actions that are drawn with their probabilities."""
    random = np.random.default_rng(seed)
    pi = random.dirichlet(np.ones(k), n)
    return pi, [int(random.choice(k, p=each)) for each in pi]


def reference(pi: Any, actions: list[int]) -> float:
    """E_t by its formula, a product for each λ and block."""

    def mean(start: int, end: int) -> float:
        wealth = []
        for a in range(pi.shape[1]):
            for bet in (lambda p: 1.0, lambda p: 2 * p - 1):
                for λ in LAMBDA:
                    product = 1.0
                    for p, taken in zip(pi[start:end, a], actions[start:end], strict=True):
                        product *= exp(λ * bet(p) * (taken == a)) / (1 + p * (exp(λ * bet(p)) - 1))
                    wealth.append(product)
        return float(np.mean(wealth))

    n = len(actions)
    k = n // BLOCK + 1
    blocks = sum(mean(BLOCK * (j - 1), min(BLOCK * j, n)) / (j * (j + 1)) for j in range(1, k + 1))
    return mean(0, n) / 2 + (blocks + 1 / (k + 1)) / 2


def test_the_martingale_is_its_formula_in_whatever_pieces_it_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mebandit.service.checks.sums.BLOCK", 20)
    monkeypatch.setattr("tests.service.test_checks.BLOCK", 20)
    pi, actions = drawn(53, 1)
    found = Martingale(3)
    for start, end in ((0, 7), (7, 20), (20, 21), (21, 53)):
        found = Martingale(3, json.loads(json.dumps(found.plain())))
        found.add(pi[start:end], actions[start:end])
    assert exp(found.log_evidence) == pytest.approx(reference(pi, actions), rel=1e-9)


def test_healthy_randomisation_is_hardly_ever_doubted_however_often_one_looks() -> None:
    """P(E_t >= 10 for any t) <= 0.1; of 300 trials more than 45 would be 3 standard errors beyond. A bet on a fault finds it."""
    crossed = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        p = random.choice([0.1, 0.5, 0.9], 300)
        actions, found = (random.random(300) < p).astype(int), Martingale(2)
        worst = 0.0
        for start in range(0, 300, 20):
            found.add(np.stack([1 - p, p], axis=1)[start : start + 20], actions[start : start + 20].tolist())
            worst = max(worst, found.log_evidence)
        crossed += worst >= np.log(10)
    assert crossed <= 45
    for fault in (1 - actions, np.ones(300, dtype=int)):
        broken = Martingale(2)
        broken.add(np.stack([1 - p, p], axis=1), fault.tolist())
        assert broken.log_evidence > np.log(1000)


def test_sums_see_a_probability_below_the_floor_among_the_allowed_actions() -> None:
    sums = Sums(3, 0.1)
    fine = ("a", "learned", 1, "[0.0,0.1,0.9]", "[1, 2]", "2026-03-01T00:00:00Z")
    sums.add([fine, ("b", "fallback", 1, "[0.01,0.01,0.98]", "[0, 1, 2]", "2026-03-01T00:00:00Z")])
    assert (sums.below, sums.least) == (0, 0.1)
    sums.add([fine, ("c", "learned", 2, "[0.05,0.05,0.9]", "[0, 1, 2]", "2026-03-02T00:00:00Z")])
    assert (sums.below, sums.below_of, sums.least) == (1, "c", 0.05)
    assert sums.days == {"2026-03-01": {"learned": 2, "fallback": 1}, "2026-03-02": {"learned": 1}}
    assert Sums(3, 0.1, json.loads(json.dumps(sums.plain()))).plain() == sums.plain()


# ---- the calendar ----


def test_due_times_follow_the_zone_also_where_the_clock_changes() -> None:
    """08:00 in New York is 13:00 UTC in winter and 12:00 in summer; the clock changes on 8 March 2026."""
    told = {"timezone": "America/New_York", "start": None, "end": None}
    units: dict[str, dict[str, Any]] = {"a": told, "b": told | {"times": ["20:00"]}, "c": told | {"end": "2026-03-08T00:00:00-05:00"}}
    begin, end = datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 3, 9, 12, 0, tzinfo=UTC)
    found = {unit: [in_utc(point)[:13] for point in points] for unit, points in expected_of(units, ["08:00"], begin, end).items()}
    assert found == {
        "a": ["2026-03-07T13", "2026-03-08T12", "2026-03-09T12"],
        "b": ["2026-03-07T01", "2026-03-08T01", "2026-03-09T00"],
        "c": ["2026-03-07T13"],
    }


# ---- faults ----


@pytest.mark.parametrize("name", ["decisions due", "randomisation"])
def test_a_fault_turns_its_check_red(name: str, tmp_path: Path) -> None:
    """Two of the faults of `scripts/check_table.py`, in a smaller trial; that script tries all."""
    fault = next(each for each in FAULTS if each.check == name)
    seen = play(fault, seed=5, days=3, participants=16, folder=tmp_path)
    assert seen.levels[name] == RED
    assert set(seen.hours) == {name}, "no other check is red"


def test_truths_speak_of_variance_and_of_bias() -> None:
    e = np.random.default_rng(2).normal(size=400)
    assert [error_of("x", each, frozenset()).level for each in (e, 1.08 * e, 1.5 * e, 0.9 * e + 0.4, 0.5 * e)] == [
        GREEN,
        GREEN,
        RED,
        RED,
        RED,
    ]
    assert error_of("x", 3 * e[:20], frozenset()).level == GREEN, "too few"


def test_spans_of_time_in_words() -> None:
    assert [in_words(h) for h in (0.5 / 3600, 0.5, 5.0, 100.0, 1 / 60)] == ["0 seconds", "30 minutes", "5 hours", "4 days", "60 seconds"]


# ---- incidents ----


def test_incidents_open_at_red_stay_at_yellow_and_close_at_green(store: str) -> None:
    database, at = Database(store), datetime(2026, 3, 1, tzinfo=UTC)

    def seen(level: str, decisions: int, minutes: int, name: str = "fallback") -> list[dict[str, Any]]:
        result = Result(name, level, 0.5, 0.25, f"{level} with {decisions}", units=frozenset("ab"), decisions=decisions)
        database.run(lambda c: incidents.follow(c, "walk", [result], at + timedelta(minutes=minutes)))
        with database.read() as connection:
            return list(watching.open_of_checks(connection, "walk").values())

    assert seen(YELLOW, 1, 0) == []
    opened = seen(RED, 10, 1)
    assert [row["subject"] for row in opened] == ["fallback"]
    database.run(lambda c: open_incident(c, "walk", "fallback", "The fallback decided.", "d1"))
    assert seen(RED, 11, 2) == seen(RED, 40, 3) == seen(YELLOW, 5, 4) == opened
    database.run(lambda c: incidents.note(c, "walk", opened[0]["id"], "It was the sensor.", "ann"))
    assert seen(GREEN, 0, 5) == []
    again = seen(RED, 1, 6)
    assert again != []
    with database.read() as connection:
        events = watching.events_of(connection, [opened[0]["id"], again[0]["id"]])
    assert [each["what"] for each in events[opened[0]["id"]]] == ["opened", "affected", "note", "closed"]
    told = incidents.shown(opened[0], events[opened[0]["id"]])
    assert (told["state"], told["decisions"], told["units"]) == ("closed", 40, 2)
    assert [note["said"] for note in told["notes"]] == ["It was the sensor."]
    assert seen(GREEN, 0, 7, name="another") == [], "a check that is no longer made leaves nothing open"
    database.close()


# ---- webhooks ----


class Receiver(BaseHTTPRequestHandler):
    """Answers with the statuses that it is told, and keeps what it got."""

    statuses: list[int]
    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.headers[webhooks.SIGNATURE], body))
        status = self.statuses.pop(0) if self.statuses else 200
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.got.append(("", b"a redirect was followed"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Any]:
    kind = type("Own", (Receiver,), {"statuses": [], "got": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield kind, f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_notice_is_sent_until_it_is_taken_and_signed(store: str, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "WAITS", (0.0, 0.0, 0.0))
    kind, address = receiver
    database, ending = Database(store), threading.Event()
    secret = database.run(lambda c: webhooks.add(c, "on call", address, "ann"))
    kind.statuses[:] = [500, 302]
    red = Result("fallback", RED, 0.5, 0.25, "The fallback <decides>.")
    database.run(lambda c: incidents.follow(c, "walk", [red], datetime.now(UTC)))
    for _ in range(5):
        webhooks.send_due(database, ending)
    assert len(kind.got) == 3, "twice refused, a redirect not followed, then taken, and never sent again"
    for signature, body in kind.got:
        assert signature == "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        assert json.loads(body)["event"] == "incident opened"
    kind.statuses[:] = [500] * 9
    database.run(lambda c: incidents.follow(c, "walk", [red._replace(level=GREEN)], datetime.now(UTC)))
    for _ in range(9):
        webhooks.send_due(database, ending)
    assert len(kind.got) == 3 + 4, "given up after the last wait"
    database.run(lambda c: webhooks.end(c, "on call", "ann"))
    database.run(lambda c: incidents.follow(c, "walk", [red], datetime.now(UTC)))
    webhooks.send_due(database, ending)
    assert len(kind.got) == 7
    database.close()


def test_a_server_tells_of_an_incident_by_itself(server: Server, client: httpx.Client, receiver: Any) -> None:
    """Contexts stop to come; the check turns red; the address is told; the contexts come again; it is told again."""
    kind, address = receiver
    begin(client, "told")
    secret = client.post("/v1/webhooks", json={"name": "told", "address": address}).json()["secret"]
    assert secret not in client.get("/v1/webhooks").text

    def decide(n: int, start: int, context: dict[str, float]) -> dict[str, str]:
        asked = [{"decision": f"d{i}", "context": context} for i in range(start, start + n)]
        client.post("/v1/experiments/told/decisions:batch", json={"decisions": asked})
        found = client.post("/v1/experiments/told/checks:run").json()["checks"]
        return {each["name"]: each["level"] for each in found}

    assert decide(40, 0, {})["fallback"] == RED
    assert decide(800, 100, {"stress": 0.5})["fallback"] == GREEN
    for _ in range(1000):
        if len(kind.got) == 2:
            break
        time.sleep(0.02)
    assert [json.loads(body)["event"] for _, body in kind.got] == ["incident opened", "incident closed"]
    kinds = [
        each["state"] for each in client.get("/v1/experiments/told/incidents?most=1000").json()["incidents"] if each["kind"] == "check"
    ]
    assert kinds == ["closed"]
    client.post("/v1/experiments/told/decisions", json={"decision": "d100", "context": {"stress": 0.6}})
    assert client.post("/v1/webhooks/told/end").status_code == 200
    assert client.post("/v1/webhooks/told/end").status_code == 404
