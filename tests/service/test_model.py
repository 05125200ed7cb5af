"""A random walk through the calls, beside a plain model of what the service must answer; in the end, a replay."""

from typing import Any

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mebandit.service.replay import replay
from mebandit.service.store.database import Database
from tests.service.servers import KEY, Launcher, begin

NAMES = st.sampled_from([f"d{i}" for i in range(6)])
STRESS = st.sampled_from([0.25, 0.75, 2.0, None])
VALUES = st.sampled_from([0.0, 1.5, None])
EXPERIMENTS = iter(range(10**9))


class Walk(RuleBasedStateMachine):
    """The model: dictionaries of what was sent and answered."""

    client: httpx.Client

    def __init__(self) -> None:
        super().__init__()
        self.path = f"/v1/experiments/m{next(EXPERIMENTS)}"
        begin(self.client, self.path.rpartition("/")[2], cadence={"by_hand": True})
        self.status = "running"
        self.sent: dict[str, dict[str, Any]] = {}
        self.answered: dict[str, dict[str, Any]] = {}
        self.told: dict[str, dict[int, tuple[float | None, bool]]] = {}
        self.learned: set[str] = set()
        self.latest = 0

    def post(self, call: str, body: Any) -> httpx.Response:
        return self.client.post(f"{self.path}/{call}", json=body)

    @rule(name=NAMES, stress=STRESS, available=st.booleans())
    def decide(self, name: str, stress: float | None, available: bool) -> None:
        asked = {"decision": name, "context": {"stress": stress}, "available": available}
        found = self.post("decisions", asked)
        if name in self.sent:
            assert found.status_code == (200 if self.sent[name] == asked else 409)
            if self.sent[name] == asked:
                assert found.json() == self.answered[name] | {"replayed": True}
        elif self.status == "stopped":
            assert found.status_code == 409
        else:
            answer = found.json()
            usable = stress in (0.25, 0.75) and self.status == "running"
            assert answer["mode"] == ("unavailable" if not available else "warmup" if usable else "fallback")
            assert answer["version"] == (self.latest if answer["mode"] == "warmup" else None)
            assert (answer["action"] is None) == (not available)
            self.sent[name], self.answered[name] = asked, answer

    @rule(name=NAMES, revision=st.integers(1, 3), value=VALUES, final=st.booleans())
    def report(self, name: str, revision: int, value: float | None, final: bool) -> None:
        outcome = {"decision": name, "revision": revision, "value": value, "final": final}
        status = self.post("outcomes", {"outcomes": [outcome]}).json()["results"][0]["status"]
        known = self.told.get(name, {})
        if name not in self.sent:
            assert status == "unknown"
        elif revision in known:
            assert status == ("duplicate" if known[revision] == (value, final) else "conflict")
        else:
            assert status == "stored"
            self.told.setdefault(name, {})[revision] = value, final

    @precondition(lambda self: self.status != "stopped")
    @rule(to=st.sampled_from(["running", "paused", "paused", "stopped"]))
    def change(self, to: str) -> None:
        if to == "stopped" and len(self.sent) < 4:
            return
        assert self.post("state", {"to": to, "reason": "the walk"}).json()["status"] == to
        self.status = to

    @rule()
    def train(self) -> None:
        ready = {name for name in self.told if self.value(name) is not None and self.learns(name)} - self.learned
        found = self.post("train", None).json()
        assert found["learned"] == len(ready)
        self.learned |= ready
        self.latest += bool(ready)
        assert found["latest"] == self.latest

    def value(self, name: str) -> float | None:
        """The last final revision."""
        final = {revision: value for revision, (value, is_final) in self.told[name].items() if is_final}
        return final[max(final)] if final else None

    def learns(self, name: str) -> bool:
        return self.sent[name]["context"]["stress"] in (0.25, 0.75) and self.sent[name]["available"]

    @invariant()
    def the_log_is_that_of_the_model(self) -> None:
        rows = self.client.get(f"{self.path}/log", params={"rows": "all", "format": "csv"}).text.splitlines()[1:]
        assert [row.split(",")[0] for row in rows] == list(self.sent)

    def teardown(self) -> None:
        shown = self.client.get(self.path).json()
        assert (shown["status"], shown["latest"]) == (self.status, self.latest)


def test_a_random_walk_through_the_calls_agrees_with_a_plain_model(launcher: Launcher, store: str) -> None:
    server = launcher.start(store)
    with server.client(KEY) as client:
        Walk.client = client
        limits = settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
        run_state_machine_as_test(Walk, settings=limits)
    server.kill()
    database = Database(store)
    found = replay(database)
    database.close()
    assert found.difference == ""
