"""The calls of the service, by a real server."""

import json
import sqlite3
from typing import Any

import httpx
import numpy as np
import pytest

import mebandit as mb
from mebandit.live.version import Version, drawn, uniforms
from mebandit.service.replay import replay
from mebandit.service.store.database import Database
from tests.service.servers import KEY, WALK, Launcher, Server, begin

ASKED: dict[str, Any] = {
    "decision": "u17-2026-03-01-am",
    "unit": "u17",
    "at": "2026-03-01T07:30:00-05:00",
    "available": True,
    "allowed": ["none", "prompt"],
    "context": {"stress": 0.62, "steps": None},
    "observed_at": {"stress": "2026-03-01T07:10:00-05:00"},
    "error": {"cov": {"stress": 0.04}},
    "predictor": "stressnet-3.1",
}


def secret_of(server: Server, name: str) -> bytes:
    with sqlite3.connect(server.store) as connection:
        return bytes.fromhex(connection.execute("select secret from experiment where name = ?", [name]).fetchone()[0])


def test_the_examples_of_the_description(server: Server, client: httpx.Client) -> None:
    """A trial of 40 decisions, each learned at once: every answer is what the library says that it must be."""
    begin(client, "walk")
    first = client.post("/v1/experiments/walk/decisions", json=ASKED)
    assert first.status_code == 200, first.text
    answer = first.json()
    assert list(answer) == ["decision", "action", "probabilities", "mode", "reason", "version", "replayed", "notes"]
    assert answer | {"action": ""} == {
        "decision": ASKED["decision"],
        "action": "",
        "probabilities": {"none": 0.5, "prompt": 0.5},
        "mode": "warmup",
        "reason": None,
        "version": 0,
        "replayed": False,
        "notes": [],
    }
    version = Version(mb.meb_dr(2, 2, floor=0.1, warmup=20), secret=secret_of(server, "walk"))
    random = np.random.default_rng(5)
    for i in range(40):
        stress = float(random.uniform())
        found = client.post("/v1/experiments/walk/decisions", json={"decision": f"d{i}", "context": {"stress": stress}}).json()
        x, s = np.array([1.0, stress]), np.diag([0.0, 0.04])
        made = version.decide(f"d{i}", x, s)
        assert found["version"] == i
        assert found["mode"] == ("warmup" if i < 20 else "learned")
        assert list(found["probabilities"].values()) == made.propensities.tolist()
        assert found["action"] == WALK["actions"][made.action]
        told = client.post("/v1/experiments/walk/outcomes", json={"outcomes": [{"decision": f"d{i}", "value": stress * made.action}]})
        assert told.json() == {"results": [{"decision": f"d{i}", "status": "stored", "note": None}]}
        client.post("/v1/experiments/walk/train")
        seen = mb.Observation(x, s, np.ones(2, dtype=bool), i + 1, made.auxiliary)
        version = version.after([mb.Round(seen, made.action, made.propensities, stress * made.action)])
    shown = client.get("/v1/experiments/walk/versions/40").json()
    assert shown["fingerprint"] == version.fingerprint
    theta = mb.meb_dr(2, 2, floor=0.1, warmup=20).theta(version.state)
    assert shown["parameters"]["prompt"] == {"one": theta[1, 0], "stress": theta[1, 1]}


def test_a_retry_gets_the_stored_answer_and_another_body_a_conflict(client: httpx.Client) -> None:
    begin(client, "again")
    first = client.post("/v1/experiments/again/decisions", json=ASKED).json()
    client.post("/v1/experiments/again/outcomes", json={"outcomes": [{"decision": ASKED["decision"], "value": 3.0}]})
    client.post("/v1/experiments/again/train")
    reordered = json.dumps(dict(reversed(ASKED.items())))
    again = client.post("/v1/experiments/again/decisions", content=reordered, headers={"Content-Type": "application/json"}).json()
    assert again == first | {"replayed": True}
    other = client.post("/v1/experiments/again/decisions", json=ASKED | {"context": {"stress": 0.63}})
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert other.json()["detail"].startswith("decision u17-2026-03-01-am must have the same contents")
    client.post("/v1/experiments/again/state", json={"to": "stopped", "reason": "over"})
    assert client.post("/v1/experiments/again/decisions", json=ASKED).json() == first | {"replayed": True}
    assert client.post("/v1/experiments/again/decisions", json={"decision": "new"}).status_code == 409


@pytest.mark.parametrize(
    ("changes", "mode", "reason"),
    [
        ({"context": {}}, "fallback", "context.stress must be there"),
        ({"context": {"stress": 1.5}}, "fallback", "context.stress must be from 0 to 1; got 1.5."),
        ({"context": {"stress": "high"}}, "fallback", "context.stress must be a finite number; got 'high'."),
        ({"error": {"cov": {"stress": -1}}}, "fallback", "error.cov must"),
        ({"error": {"cov": {"one": 1}}}, "fallback", "error.cov must name features"),
        ({"error": {"cov": "large"}}, "fallback", "error.cov must"),
        ({"available": False}, "unavailable", "The unit was not available."),
        ({"unit": "gone"}, "unavailable", "The unit was withdrawn."),
        ({"allowed": ["prompt"]}, "warmup", None),
        ({"allowed": ["prompt"], "context": {}}, "fallback", "context.stress"),
    ],
)
def test_trouble_is_decided_by_the_fallback_and_stored_as_such(
    server: Server, client: httpx.Client, changes: dict[str, Any], mode: str, reason: str | None
) -> None:
    if client.get("/v1/experiments/trouble").status_code == 404:
        begin(client, "trouble", fallback={"none": 0.3, "prompt": 0.7})
        client.put("/v1/experiments/trouble/units/gone", json={"status": "withdrawn"})
    name = f"d-{json.dumps(changes).encode().hex()}"[:150]
    answer = client.post("/v1/experiments/trouble/decisions", json=ASKED | {"decision": name} | changes).json()
    assert answer["mode"] == mode
    assert (answer["reason"] or "").startswith(reason or "")
    alone = changes.get("allowed") == ["prompt"]
    if mode == "fallback":
        assert answer["probabilities"] == ({"none": 0.0, "prompt": 1.0} if alone else {"none": 0.3, "prompt": 0.7})
        u, _ = uniforms(secret_of(server, "trouble"), name)
        assert answer["action"] == WALK["actions"][drawn(list(answer["probabilities"].values()), u)]
        incidents = client.get("/v1/experiments/trouble/incidents", params={"most": 1000}).json()["incidents"]
        assert [each["subject"] for each in incidents].count(name) == 1
    if mode == "unavailable":
        assert answer["action"] is None
        assert answer["probabilities"] is None
    if mode == "warmup":
        assert answer["probabilities"] == {"none": 0.0, "prompt": 1.0}
    assert client.get(f"/v1/experiments/trouble/decisions/{name}").json() == answer | {"replayed": True}


def test_rules_for_features_and_an_error_that_grows(client: httpx.Client) -> None:
    features = [
        {"name": "stress", "range": [0, 1], "invalid": "clip"},
        {"name": "steps", "missing": 0.5, "max_age_hours": 2},
    ]
    begin(client, "rules", features=features, error={"cov": {"stress": 0.04, "steps": 0.01}, "per_hour": {"steps": 0.1}})
    asked = {
        "decision": "a",
        "at": "2026-03-01T12:00:00+00:00",
        "context": {"stress": 1.5, "steps": 0.9},
        "observed_at": {"steps": "2026-03-01T10:30:00+00:00"},
    }
    assert client.post("/v1/experiments/rules/decisions", json=asked).json()["notes"] == ["stress is outside 0 to 1, and was clipped."]
    late = asked | {"decision": "b", "at": "2026-03-01T13:00:00+00:00"}
    assert client.post("/v1/experiments/rules/decisions", json=late).json()["notes"] == [
        "stress is outside 0 to 1, and was clipped.",
        "steps is 2.5 hours old, and counts as missing.",
        "steps is missing, and was taken as 0.5.",
    ]
    rows = [json.loads(line) for line in client.get("/v1/experiments/rules/log").text.splitlines()]
    assert [(row["predicted_0"], row["predicted_1"]) for row in rows] == [(1.0, 0.9), (1.0, 0.5)]
    assert [row["error_cov_1_1"] for row in rows] == [0.01 + 0.1 * 1.5, 0.01 + 0.1 * 2.5]


def test_outcomes_late_twice_revised_and_taken_back(client: httpx.Client) -> None:
    begin(client, "late", cadence={"by_hand": True})
    for name in "abcde":
        client.post("/v1/experiments/late/decisions", json={"decision": name, "context": {"stress": 0.5}})

    def told(*outcomes: dict[str, Any]) -> list[str]:
        found = client.post("/v1/experiments/late/outcomes", json={"outcomes": list(outcomes)}).json()["results"]
        return [each["status"] for each in found]

    assert told({"decision": "a", "value": 1.0}, {"decision": "x", "value": 1.0}) == ["stored", "unknown"]
    assert told({"decision": "a", "value": 1.0}, {"decision": "a", "value": 2.0}) == ["duplicate", "conflict"]
    assert told({"decision": "b", "value": 1.0, "final": False}) == ["stored"]
    assert told({"decision": "c", "value": 1.0}, {"decision": "c", "revision": 2, "value": None}) == ["stored", "stored"]
    assert told({"decision": "d", "value": 1.0}, {"decision": "d", "revision": 2, "value": 4.0}) == ["stored", "stored"]
    assert client.post("/v1/experiments/late/train").json() == {"learned": 2, "latest": 1}, "a, and d as revised"
    assert told({"decision": "a", "revision": 2, "value": 9.0}) == ["stored"]
    assert client.post("/v1/experiments/late/train").json() == {"learned": 0, "latest": 1}, "learned once"
    rows = {row["decision"]: row for row in map(json.loads, client.get("/v1/experiments/late/log").text.splitlines())}
    assert {name: row["reward"] for name, row in rows.items()} == {"a": 9.0, "b": None, "c": None, "d": 4.0, "e": None}


def test_decisions_of_a_client_and_what_was_really_done(client: httpx.Client) -> None:
    begin(client, "outside", cadence={"by_hand": True}, learns_from=["learned", "warmup", "external"])
    made = {"decision": "o1", "at": "2026-03-01T12:00:00Z", "context": {"stress": 0.5}, "action": "prompt"}
    even = {"none": 0.5, "prompt": 0.5}
    sent = [made | {"probabilities": even}, made | {"decision": "o2", "probabilities": {"none": 0.5, "prompt": 0.6}}]
    for statuses in (["stored", "refused"], ["duplicate", "refused"]):
        found = client.post("/v1/experiments/outside/decisions:external", json={"decisions": sent}).json()["results"]
        assert [each["status"] for each in found] == statuses
    other = client.post("/v1/experiments/outside/decisions:external", json={"decisions": [sent[0] | {"action": "none"}]}).json()
    assert other["results"][0]["status"] == "conflict"
    client.post("/v1/experiments/outside/outcomes", json={"outcomes": [{"decision": "o1", "value": 1.0}]})
    assert client.post("/v1/experiments/outside/train").json()["learned"] == 1
    told = client.post("/v1/experiments/outside/deliveries", json={"deliveries": [{"decision": "o1", "status": "delivered"}]}).json()
    assert told["results"] == [{"decision": "o1", "status": "stored", "note": None}]
    truths = client.post("/v1/experiments/outside/truths", json={"truths": [{"decision": "o1", "values": {"stress": 0.9}}]}).json()
    assert [each["status"] for each in truths["results"]] == ["stored"]
    assert client.get("/v1/experiments/outside/checks").json()["checks"] == []
    found = client.post("/v1/experiments/outside/checks:run").json()
    assert {each["level"] for each in found["checks"]} == {"green"}
    assert {"randomisation", "error of stress"} <= {each["name"] for each in found["checks"]}
    assert found["decisions"] == {"external": 1}
    assert client.get("/v1/experiments/outside/checks").json() == found


def test_versions_go_back_and_forward(client: httpx.Client) -> None:
    begin(client, "versions", cadence={"by_hand": True})

    def round(name: str) -> int:
        found = client.post("/v1/experiments/versions/decisions", json={"decision": name, "context": {"stress": 0.5}}).json()
        client.post("/v1/experiments/versions/outcomes", json={"outcomes": [{"decision": name, "value": 1.0}]})
        client.post("/v1/experiments/versions/train")
        return int(found["version"])

    assert [round(name) for name in "abcdefgh"] == list(range(8))
    pinned = client.post("/v1/experiments/versions/activate", json={"version": 3, "reason": "doubt"})
    assert pinned.json() == {"version": 3}
    assert [round("i"), round("j")] == [3, 3]
    assert client.post("/v1/experiments/versions/activate", json={"version": 99, "reason": "none"}).status_code == 409
    client.post("/v1/experiments/versions/activate", json={"version": "latest", "reason": "resolved"})
    assert [round("k"), round("l")] == [10, 11]
    assert [each["learned"] for each in client.get("/v1/experiments/versions/versions").json()["versions"]] == list(range(13))


def test_a_locked_configuration_and_the_way_of_the_status(client: httpx.Client) -> None:
    assert client.put("/v1/experiments/lock", json=WALK).status_code == 200
    changed = WALK | {"fallback": {"none": 0.4, "prompt": 0.6}}
    hashes = {client.put("/v1/experiments/lock", json=body).json()["configuration_hash"] for body in (WALK, changed)}
    assert len(hashes) == 2
    path = "/v1/experiments/lock/state"
    assert client.post(path, json={"to": "paused", "reason": "no"}).status_code == 409
    assert client.post(path, json={"to": "running", "reason": "yes"}).json()["configuration_hash"] in hashes
    assert client.put("/v1/experiments/lock", json=WALK).status_code == 409
    assert client.put("/v1/experiments/lock", json=changed).status_code == 200
    assert client.post(path, json={"to": "paused", "reason": "a fault"}).json()["status"] == "paused"
    answer = client.post("/v1/experiments/lock/decisions", json={"decision": "p", "context": {"stress": 0.5}}).json()
    assert (answer["mode"], answer["reason"]) == ("fallback", "The experiment is paused.")
    assert client.post(path, json={"to": "stopped", "reason": "over"}).json()["status"] == "stopped"
    assert client.post(path, json={"to": "running", "reason": "more"}).status_code == 409


def test_outcomes_that_never_come_are_closed(client: httpx.Client) -> None:
    begin(client, "close", outcomes={"wait_hours": 1e-6, "then": 0.25})
    client.post("/v1/experiments/close/decisions", json={"decision": "a", "context": {"stress": 0.5}})
    for _ in range(100):
        rows = [json.loads(line) for line in client.get("/v1/experiments/close/log").text.splitlines()]
        if rows[0]["reward"] is not None and client.get("/v1/experiments/close").json()["latest"] == 1:
            break
    assert (rows[0]["reward"], rows[0]["revision"]) == (0.25, 0)


def test_many_decisions_at_once_are_those_made_alone(client: httpx.Client) -> None:
    begin(client, "batch", cadence={"by_hand": True})
    asked = [{"decision": f"b{i}", "context": {"stress": i / 300}} for i in range(300)]
    answers = client.post("/v1/experiments/batch/decisions:batch", json={"decisions": asked}).json()["decisions"]
    assert [each["decision"] for each in answers] == [each["decision"] for each in asked]
    alone = [client.post("/v1/experiments/batch/decisions", json=each).json() for each in asked[:5]]
    assert alone == [each | {"replayed": True} for each in answers[:5]]


def test_keys_have_roles_and_a_refusal_leaves_a_row(client: httpx.Client, server: Server) -> None:
    begin(client, "keys")
    made = {role: client.post("/v1/keys", json={"name": f"only {role}", "roles": [role]}).json()["key"] for role in ("decide", "read")}
    assert client.post("/v1/keys", json={"name": "only read", "roles": ["read"]}).status_code == 409
    with server.client(made["decide"]) as decider, server.client(made["read"]) as reader, server.client("wrong") as stranger:
        assert decider.post("/v1/experiments/keys/decisions", json={"decision": "a"}).status_code == 200
        assert reader.get("/v1/experiments/keys").status_code == 200
        for refused in (
            decider.get("/v1/experiments/keys"),
            decider.post("/v1/experiments/keys/outcomes", json={"outcomes": [{"decision": "a", "value": 1}]}),
            reader.post("/v1/experiments/keys/decisions", json={"decision": "b"}),
            reader.post("/v1/experiments/keys/state", json={"to": "paused", "reason": "x"}),
        ):
            assert refused.status_code == 403
            assert "must have the role" in refused.json()["detail"]
        assert stranger.get("/v1/experiments/keys").status_code == 401
        assert httpx.get(f"{server.address}/v1/experiments").status_code == 401
        rows = client.get("/v1/audit", params={"most": 1000}).json()["audit"]
        refusals = [(row["by"], row["detail"]["needs"]) for row in rows if row["what"] == "refused"]
        assert refusals == [("only decide", "read"), ("only decide", "outcome"), ("only read", "decide"), ("only read", "operate")]
        client.post("/v1/keys/only decide/revoke")
        assert decider.post("/v1/experiments/keys/decisions", json={"decision": "c"}).status_code == 401
    with sqlite3.connect(server.store) as connection:
        stored = json.dumps([list(map(str, row)) for row in connection.execute("select * from api_key")])
    assert KEY not in stored
    assert made["read"] not in stored


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("decisions", "{", "the body must be JSON; got something else"),
        ("decisions", "{}", "decision must be given; got nothing."),
        ("decisions", '{"decision": 5}', "decision must be a valid string; got 5."),
        ("decisions", '{"decision": "a b"}', "decision must match pattern"),
        ("decisions", '{"decision": "a", "when": 1}', "when must be a field of this message"),
        ("decisions", '{"decision": "a", "at": "2026-03-01T07:30:00"}', "at must be a date and time with its offset"),
        ("decisions", '{"decision": "a", "allowed": ["walk"]}', "allowed must name actions of the experiment"),
        ("decisions", '{"decision": "a", "unit": "\\ud800"}', "the body must be JSON"),
        ("outcomes", '{"outcomes": []}', "outcomes must have at least 1 item"),
        ("outcomes", '{"outcomes": [{"decision": "a", "value": NaN}]}', "outcomes.0.value must be"),
        ("outcomes", '{"outcomes": [{"decision": "a", "value": true}]}', "outcomes.0.value must be a valid number"),
        (
            "outcomes",
            '{"outcomes": [{"decision": "a", "value": 1, "revision": 0}]}',
            "outcomes.0.revision must be greater than or equal to 1",
        ),
        ("state", '{"to": "draft", "reason": "x"}', "to must be 'running', 'paused' or 'stopped'"),
        ("activate", '{"version": -1, "reason": "x"}', "version."),
    ],
)
def test_wrong_input_gets_one_sentence(client: httpx.Client, path: str, body: str, words: str) -> None:
    if client.get("/v1/experiments/wrong").status_code == 404:
        begin(client, "wrong")
    found = client.post(f"/v1/experiments/wrong/{path}", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code == 422
    problem = found.json()
    assert set(problem) == {"type", "title", "status", "detail"}
    assert problem["detail"].startswith(words)
    assert "; got " in problem["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"actions": ["a", "a"]}, "actions must have different names"),
        ({"fallback": {"none": 0.5}}, "fallback must have probabilities that sum to 1"),
        ({"fallback": {"walk": 1.0}}, "fallback must name actions"),
        ({"policy": {"kind": "greedy", "width": 1.0}}, "policy.width must be an option of greedy"),
        ({"policy": {"kind": "meb_dr", "floor": 0.9}}, "floor must be in (0, 1/n_actions]"),
        ({"policy": {"kind": "robust_ucb"}}, "policy.horizon must be given"),
        ({"error": {"cov": {"stress": -0.1}}}, "error.cov must be positive semidefinite"),
        ({"cadence": {}}, "cadence must say exactly one"),
        ({"features": [{"name": "stress", "range": [1, 0]}]}, "range of stress must"),
    ],
)
def test_a_wrong_configuration_is_refused_and_nothing_is_made(client: httpx.Client, change: dict[str, Any], words: str) -> None:
    found = client.put("/v1/experiments/never", json=WALK | change)
    assert found.status_code == 422
    assert found.json()["detail"].startswith(words)
    assert client.get("/v1/experiments/never").status_code == 404


def test_large_bodies_and_unknown_calls(client: httpx.Client) -> None:
    large = client.post("/v1/experiments/x/decisions", content=b" " * (5 << 20))
    assert (large.status_code, large.json()["title"]) == (413, "Too large")
    pieces = client.post("/v1/experiments/x/decisions", content=(b" " * (1 << 20) for _ in range(6)))
    assert pieces.status_code == 413
    for status, answer in (
        (404, client.get("/v2/none")),
        (405, client.delete("/v1/experiments/x")),
        (404, client.get("/v1/experiments/x")),
    ):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.get("/healthz").json() == {"status": "alive"}
    assert "mebandit_decisions_total" in client.get("/metrics").text


def test_the_whole_store_of_these_tests_is_proved(server: Server, launcher: Launcher) -> None:
    """Also by another process that takes over."""
    other = launcher.start(server.store)
    with other.client() as client:
        assert client.get("/v1/experiments").status_code == 200
    database = Database(server.store)
    found = replay(database)
    database.close()
    other.kill()
    assert found.difference == ""
    assert found.decisions > 350
    assert found.rounds > 50
