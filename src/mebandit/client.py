"""A client of the decision service: retries, a time limit, and a fallback for when the service cannot be reached.

It needs nothing but the standard library.
"""

import http.client
import json
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from mebandit import checks
from mebandit.checks import MebanditError

AGAIN = 500, 502, 503, 504
"""answers after which a request is sent again"""
RANDOM = random.SystemRandom()


class Unreachable(MebanditError):
    """The service could not be reached in time, or could not store what was sent."""


class Refused(MebanditError):
    """The service refused a request; the message says why.

    Args:
        status: the HTTP status.
        detail: the sentence of the service.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Client:
    """A client of one experiment. Threads may share it; each has a connection of its own.

    A request is sent again until it is answered or the time is up. That is safe, since the service knows a request by the decision's name.

    Args:
        address: of the service, such as "http://127.0.0.1:8000".
        experiment: its name.
        key: a key of the service.
        fallback: the probability of each action with which the client decides by itself when the service cannot be reached. None: it raises
            `Unreachable` then.
        offline: path of a file that keeps what was decided without the service, until `flush` has delivered it. None: in memory.
        timeout: seconds after which a call gives up.
    """

    def __init__(
        self,
        address: str,
        experiment: str,
        *,
        key: str,
        fallback: Mapping[str, float] | None = None,
        offline: str | Path | None = None,
        timeout: float = 5.0,
    ) -> None:
        self._parts = urlsplit(address)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            checks.refuse("address", "be that of a service, such as http://127.0.0.1:8000", checks.shown(address))
        self._path, self._key = f"/v1/experiments/{quote(experiment, safe='')}", key
        self._timeout = checks.number("timeout", timeout, "be a number of seconds above 0", 1e-3)
        if fallback is not None and abs(sum(fallback.values()) - 1) > 1e-9:
            checks.refuse("fallback", "have probabilities that sum to 1", dict(fallback))
        self._fallback = fallback
        self._offline = None if offline is None else checks.path("offline", offline)
        self._mine = threading.local()
        self._all: list[http.client.HTTPConnection] = []
        self._keeping = threading.Lock()
        self._kept: list[dict[str, Any]] = _lines(self._offline)

    def close(self) -> None:
        """Close the connections of all threads; a later call opens a new one."""
        for connection in self._all:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- calls ----

    def decide(self, decision: str, context: Mapping[str, float | None] | None = None, **about: Any) -> dict[str, Any]:
        """A decision; the same one whenever it is asked for again under its name.

        Args:
            decision: its name.
            context: the predicted features by name.
            about: what else the service takes: unit, at, available, allowed, observed_at, error, predictor.
        """
        asked = {"decision": decision, "context": dict(context or {})} | about
        made = self._made_offline(decision)
        if made is not None:
            return made
        try:
            answer: dict[str, Any] = self.call("POST", "/decisions", asked)
            return answer
        except Unreachable as error:
            if self._fallback is None or not about.get("available", True):
                raise
            return self._decide_offline(asked, str(error))

    def report(self, decision: str, value: float | None, *, revision: int = 1, final: bool = True) -> str:
        """Report an outcome; "stored", "duplicate" or "conflict". Outcomes of decisions that the service does not know yet are sent after
        those by `flush`.

        Args:
            decision: the name of the decision.
            value: the outcome. None: there is none.
            revision: its number, from 1; a correction has a higher one.
            final: whether it may be learned from.
        """
        outcome = {"decision": decision, "revision": revision, "value": value, "final": final}
        if self._made_offline(decision) is not None:
            self._keep({"outcome": outcome})
            return "kept"
        found = self.call("POST", "/outcomes", {"outcomes": [outcome]})["results"][0]
        if found["status"] == "unknown":
            raise Refused(404, found["note"])
        return str(found["status"])

    def flush(self) -> int:
        """Deliver what was decided without the service; how many decisions that were. Where the service had made another decision of that
        name, whose answer was lost, the action really taken is reported as a delivery."""
        with self._keeping:
            kept = list(self._kept)
        made = [each["external"] for each in kept if "external" in each]
        for start in range(0, len(made), 100):
            part = made[start : start + 100]
            results = self.call("POST", "/decisions:external", {"decisions": part})["results"]
            taken = [
                {"decision": each["decision"], "status": "suppressed", "action": each["action"]}
                for each, result in zip(part, results, strict=True)
                if result["status"] == "conflict"
            ]
            if taken:
                self.call("POST", "/deliveries", {"deliveries": taken})
        outcomes = [each["outcome"] for each in kept if "outcome" in each]
        for start in range(0, len(outcomes), 100):
            self.call("POST", "/outcomes", {"outcomes": outcomes[start : start + 100]})
        with self._keeping:
            self._kept = self._kept[len(kept) :]
            if self._offline is not None:
                part_file = self._offline.with_suffix(".part")
                part_file.write_text("".join(json.dumps(each) + "\n" for each in self._kept), encoding="utf-8")
                part_file.replace(self._offline)
        return len(made)

    @property
    def waiting(self) -> int:
        """How many decisions wait to be delivered."""
        return sum("external" in each for each in self._kept)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any call below the experiment, sent again until it is answered.

        Args:
            method: GET, POST or PUT.
            path: what follows the experiment, such as "/decisions".
            body: what is sent as JSON.
        """
        end, pause = time.monotonic() + self._timeout, 0.02
        while True:
            try:
                status, found = self._send(method, path, body, max(end - time.monotonic(), 1e-3))
                if status < 400:
                    return found
                said = str(found.get("detail", found)) if isinstance(found, dict) else str(found)
                if status not in AGAIN:
                    raise Refused(status, said)
            except (OSError, http.client.HTTPException, ValueError) as error:
                said = str(error) or type(error).__name__
                self._mine.connection.close()
            if time.monotonic() + pause > end:
                raise Unreachable(f"the service must answer within {self._timeout:g} s; got: {said.rstrip('.')}.")
            time.sleep(pause * RANDOM.uniform(0.5, 1.0))
            pause = min(2 * pause, 1.0)

    # ---- one connection for each thread ----

    def _send(self, method: str, path: str, body: Any, seconds: float) -> tuple[int, Any]:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            connection = self._mine.connection = kind(self._parts.hostname or "", self._parts.port)
            self._all.append(connection)
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body, allow_nan=False).encode()
        connection.request(method, self._parts.path.rstrip("/") + self._path + path, text, headers)
        with connection.getresponse() as answer:
            content = answer.read()
            return answer.status, json.loads(content) if "json" in (answer.getheader("Content-Type") or "") else content.decode()

    # ---- without the service ----

    def _decide_offline(self, asked: dict[str, Any], why: str) -> dict[str, Any]:
        allowed = asked.get("allowed") or list(self._fallback or {})
        weights = {action: p if action in allowed else 0.0 for action, p in (self._fallback or {}).items()}
        if sum(weights.values()) <= 0:
            weights = {action: float(action in allowed) for action in weights}
        total = sum(weights.values())
        probabilities = {action: p / total for action, p in weights.items()}
        action = RANDOM.choices(list(probabilities), list(probabilities.values()))[0]
        made = asked | {"at": asked.get("at") or datetime.now(UTC).isoformat(), "action": action, "probabilities": probabilities}
        self._keep({"external": made})
        return _answer(made, why)

    def _made_offline(self, decision: str) -> dict[str, Any] | None:
        with self._keeping:
            for each in self._kept:
                if "external" in each and each["external"]["decision"] == decision:
                    return _answer(each["external"], "It was decided before, while the service could not be reached.")
        return None

    def _keep(self, line: dict[str, Any]) -> None:
        with self._keeping:
            if self._offline is not None:
                with self._offline.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            self._kept.append(line)


def _answer(made: dict[str, Any], why: str) -> dict[str, Any]:
    answer = {"decision": made["decision"], "action": made["action"], "probabilities": made["probabilities"]}
    return answer | {"mode": "external", "reason": why, "version": None, "replayed": False, "notes": []}


def _lines(path: Path | None) -> list[dict[str, Any]]:
    """What an earlier process kept; a torn last line never counted."""
    if path is None or not path.exists():
        return []
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


__all__: Sequence[str] = ("Client", "Refused", "Unreachable")
