"""The dashboard: a real browser on a real server, and what must never be served."""

import csv
import io
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from mebandit.experiments.running_trial import RunningTrial
from mebandit.service.pages.acting import wanted_back
from mebandit.service.pages.session import begun, read
from mebandit.service.store.records import Key
from tests.service.browser import browser, found
from tests.service.servers import KEY, WALK, Launcher, Server, begin


def make_trial(store: str) -> None:
    """A trial of four days, whose contexts have stopped to come."""
    trial = RunningTrial(store, datetime.now(UTC) - timedelta(days=4), 12, seed=3)
    trial.run(3)
    trial.faults.missing = 1.0
    trial.run(1)
    trial.watcher.check(trial.name)
    trial.close()


@pytest.mark.skipif(found() is None, reason="there is no Chromium")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_browser_finds_what_is_wrong_and_acts(kind: str, launcher: Launcher, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = str(tmp_path / "trial.db")
    if kind == "postgresql":
        store = request.getfixturevalue("postgres").get_uri()
    make_trial(store)
    server = launcher.start(store)
    with browser() as tab:
        tab.look(dark=True, width=390, height=800)
        tab.open(f"{server.address}/dashboard/walk")
        assert "Sign in" in tab.text(), "nothing is shown without a key"
        tab.fill("#key", "wrong")
        tab.follow("button", "Sign in")
        assert "no valid key" in tab.text()
        tab.fill("#key", KEY)
        tab.press_enter()
        tab.wait_for("location.pathname == '/dashboard/walk'")
        assert "fallback: The fallback made" in tab.text()
        assert "What to do:" in tab.text()
        assert tab.run("document.documentElement.scrollWidth") <= 390, "nothing is wider than a phone"
        assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
        tab.look()
        assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"

        tab.follow("nav a", "Decisions")
        tab.wait_for("document.querySelector('input[data-filter]').offsetParent !== null")
        tab.fill("input[data-filter]", "p003 learned")
        tab.wait_for("document.querySelector('#decisions-shown').textContent.includes('rows shown')")
        visible = tab.run("[...document.querySelectorAll('#decisions tbody tr')].filter(r => !r.hidden).map(r => r.innerText)")
        assert visible
        assert all("p003" in each and "learned" in each for each in visible)
        tab.follow("#decisions tbody tr:not([hidden]) a", "p003-")
        assert "every bit is the same" in tab.text()
        assert "Drawn where u is" in tab.text()
        tab.follow("a", "p003")
        assert "Participant p003" in tab.text()

        for path, words, act in (
            ("", "Pause", "paused"),
            ("/learned", "Activate", "decides, and stays until another is activated"),
            ("/units/p004", "Withdraw", "withdrawn"),
            ("/incidents?kind=check", "Add a note", "It was the sensor."),
        ):
            tab.open(f"{server.address}/dashboard/walk{path}")
            tab.follow("main a", words)
            tab.click("input[type=checkbox]")
            tab.fill("#reason", "It was the sensor.")
            tab.follow("button.danger")
            assert act in tab.text(), tab.text()
        tab.open(f"{server.address}/dashboard/walk/audit?q=sensor")
        rows = tab.run("[...document.querySelectorAll('#audit tbody tr')].map(r => r.innerText)")
        assert [re.sub(r"\s+", " ", row).split(" operator ")[1].split()[0] for row in rows] == ["note", "withdrawn", "activated", "status"]

        tab.open(f"{server.address}/dashboard/walk")
        with server.client() as client:  # what others do is seen without loading the page again
            client.post("/v1/experiments/walk/state", json={"to": "running", "reason": "mended"})
        tab.wait_for("document.body.innerText.includes('The experiment is running')")
        errors = [each for each in tab.said if "403" not in each]  # the wrong key
        assert errors == [], "no script fails, and the policy refuses nothing that the pages need"
    server.kill()


NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7000001*7}}=1+1"


@pytest.fixture(scope="module")
def nasty(server: Server) -> Iterator[httpx.Client]:
    """An experiment full of texts that are not what they seem, and a session that reads it."""
    with server.client() as client:
        begin(client, "@nasty", calendar={"times": ["08:00"]})
        client.put("/v1/experiments/@nasty/units/-u1", json={"group": NASTY})
        asked = {"unit": "-u1", "predictor": NASTY, "context": {"stress": NASTY, NASTY: NASTY}}
        client.post("/v1/experiments/@nasty/decisions", json=asked | {"decision": "@d1"})
        client.post("/v1/experiments/@nasty/decisions", json={"decision": "@d2", "unit": "-u1", "context": {"stress": 0.5}})
        client.post("/v1/experiments/@nasty/state", json={"to": "paused", "reason": "=cmd|' /C calc'!A0" + NASTY})
        number = client.get("/v1/experiments/@nasty/incidents").json()["incidents"][0]["id"]
        client.post(f"/v1/experiments/@nasty/incidents/{number}/notes", json={"said": NASTY})
        client.post("/v1/experiments/@nasty/checks:run")
    with httpx.Client(base_url=server.address) as session:
        assert session.post("/sign-in", data={"key": KEY, "back": "/dashboard"}).status_code == 303
        yield session


QUOTED = quote(NASTY)
PAGES = (
    "", "/@nasty", "/@nasty/units", "/@nasty/units/-u1", "/@nasty/decisions", "/@nasty/decisions/@d1", "/@nasty/learned", "/@nasty/error",
    "/@nasty/incidents", "/@nasty/audit", "/@nasty/configuration", "/@nasty/do/pause", f"/@nasty/incidents?q={QUOTED}",
    f"/@nasty/units?q={QUOTED}", f"/@nasty/decisions?name={QUOTED}&mode={QUOTED}&before={QUOTED}", f"/@nasty/learned?what={QUOTED}",
    f"/@nasty/audit?q={QUOTED}", f"/@nasty/do/withdraw?unit={QUOTED}", f"/@nasty/do/activate?version={QUOTED}",
    "/%3Cimg src=x onerror=alert(2)%3E",
)  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("page", PAGES)
def test_texts_that_came_from_outside_are_shown_as_text(nasty: httpx.Client, page: str) -> None:
    answer = nasty.get(f"/dashboard{page}")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.status_code in (200, 404, 422)
    seen = Tags()
    seen.feed(answer.text)
    assert not {tag for tag, _ in seen.found} & {"img", "iframe", "object", "embed", "style", "base"}
    names = {name for _, attributes in seen.found for name in attributes}
    assert not any(name.startswith("on") or name == "style" for name in names)
    assert [attributes for tag, attributes in seen.found if tag == "script"] == [{"src": "/static/dashboard.js", "defer": None}]
    assert "49000007" not in answer.text, "nothing is computed"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"


def test_exports_compute_nothing(nasty: httpx.Client, server: Server) -> None:
    with server.client() as client:
        log = client.get("/v1/experiments/@nasty/log?format=csv&rows=all").text
    for text in (nasty.get("/dashboard/@nasty/incidents.csv").text, nasty.get("/dashboard/@nasty/audit.csv").text, log):
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) > 1
        for cell in (cell for row in rows[1:] for cell in row):
            assert cell[:1] not in ("=", "+", "@", "\t") or cell == "", cell
            assert not cell.startswith("-") or float(cell), cell


def test_an_action_needs_the_token_the_role_and_the_confirmation(nasty: httpx.Client, server: Server) -> None:
    token = re.findall(r'name="token" value="(\w+)"', nasty.get("/dashboard/@nasty/do/resume").text)[0]
    given = {"token": token, "reason": "mended", "sure": "yes"}
    path = "/dashboard/@nasty/do/resume"

    def status() -> Any:
        with server.client() as client:
            return client.get("/v1/experiments/@nasty").json()["status"]

    for fields, headers, words in (
        (given | {"token": "0" * 64}, {}, "must be one of this session"),
        (given | {"token": ""}, {}, "must be one of this session"),
        (given, {"Origin": "https://evil.example"}, "must come from this site"),
        (given, {"Sec-Fetch-Site": "cross-site"}, "must come from this site"),
        (given | {"reason": " "}, {}, "must have 1 to 1000 characters"),
        (given | {"sure": "no"}, {}, "must be confirmed"),
    ):
        answer = nasty.post(path, data=fields, headers=headers)
        assert answer.status_code in (403, 422)
        assert words in answer.text
    assert status() == "paused"
    with server.client() as client, httpx.Client(base_url=server.address) as reader:
        key = client.post("/v1/keys", json={"name": "looks on", "roles": ["read"]}).json()["key"]
        reader.post("/sign-in", data={"key": key})
        assert reader.get("/dashboard/@nasty").status_code == 200
        assert ">Resume<" not in reader.get("/dashboard/@nasty").text
        mine = re.findall(r'name="token" value="(\w+)"', reader.get("/dashboard").text)[0]
        assert reader.post(path, data=given | {"token": mine}).status_code == 403
        client.post("/v1/keys/looks on/revoke")
        assert reader.get("/dashboard/@nasty").status_code == 303, "a key that was revoked ends its sessions"
    assert status() == "paused"
    assert nasty.post(path, data=given).status_code == 303
    assert status() == "running"
    cookie = nasty.cookies["mebandit_session"]
    raw = httpx.post(f"{server.address}/sign-in", data={"key": KEY}).headers["set-cookie"].lower()
    assert "httponly" in raw
    assert "samesite=strict" in raw
    for changed in ("", "x", cookie[:-1], "A" + cookie, cookie.replace(".", "..")):
        assert httpx.get(f"{server.address}/dashboard", cookies={"mebandit_session": changed}).status_code == 303


def test_sessions_expire_and_lead_nowhere_else() -> None:
    cookie = begun(b"secret", Key("operator", frozenset({"read"})), 1000.0)
    assert read(b"secret", cookie, 1000.0 + 11 * 3600) == "operator"
    assert read(b"secret", cookie, 1000.0 + 13 * 3600) is None
    assert read(b"another", cookie, 1000.0) is None
    for back in ("https://evil.example", "//evil.example", "/dashboard//evil.example", "/dashboard\\evil", "/docs", "/dashboardx", ""):
        assert wanted_back(back) == "/dashboard"
    assert wanted_back("/dashboard/walk/units") == "/dashboard/walk/units"


def test_a_store_of_the_first_schema_is_brought_up_to_date(launcher: Launcher, tmp_path: Path) -> None:
    """What schema 1 had stays as it is, and the server watches it."""
    store = tmp_path / "old.db"
    server = launcher.start(str(store))
    with server.client() as client:
        begin(client)
        before = client.get("/v1/experiments/walk").json()
    server.kill()
    with sqlite3.connect(store) as connection:
        for name in ("incident_event", "watch", "check_result", "effect", "pulse", "webhook", "notice", "setting"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute("DROP INDEX decision_by_unit")
        connection.execute("DELETE FROM lease WHERE experiment = ' watch'")
        connection.execute("UPDATE schema SET number = 1")
    connection.close()
    server = launcher.start(str(store))
    with server.client() as client:
        assert client.get("/v1/experiments/walk").json() == before
        assert client.put("/v1/experiments/walk", json=WALK).status_code == 200, "the same configuration still has the same hash"
        assert client.post("/v1/experiments/walk/checks:run").json()["checks"]
    server.kill()
