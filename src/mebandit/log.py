"""The journal of a live run: one line per event, written before the call that caused it returns.

A line is JSON: a decision (what was seen, the probabilities, the action) or the reward of an earlier decision. So a crash loses
nothing that was answered, and replaying the journal in its order gives the learner's state back bit for bit.
"""

import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.values import Booleans, Floats, Integers, Observation, Pending

HEADER = {"format": "mebandit-journal", "version": 1}


class Journal:
    """An append-only file of events. `durable=True` also waits for the disk after each one."""

    def __init__(self, path: str | Path, *, durable: bool = False) -> None:
        self.path = Path(path)
        self.durable = durable
        self._drop_torn_line()
        self._file = self.path.open("a", encoding="utf-8")
        self.close = weakref.finalize(self, self._file.close)
        """close the file; also called when the journal is no longer used"""
        if self._file.tell() == 0:
            self._write(HEADER)

    def _drop_torn_line(self) -> None:
        """Cut off a last line without its end: the call that was writing it never returned."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(event, allow_nan=False, separators=(",", ":")) + "\n")
        self._file.flush()
        if self.durable:
            os.fsync(self._file.fileno())

    def decision(self, number: int, pending: Pending) -> None:
        self._write(decision_to_plain(number, pending))

    def reward(self, number: int, reward: float) -> None:
        self._write({"reward_of": number, "reward": reward})

    def forget(self, number: int) -> None:
        self._write({"forget": number})


def decision_to_plain(number: int, pending: Pending) -> dict[str, Any]:
    """A decision as JSON can hold it."""
    observation = pending.observation
    return {
        "decision": number,
        "predicted": observation.predicted.tolist(),
        "error_cov": observation.error_cov.tolist(),
        "allowed": np.flatnonzero(observation.allowed).tolist(),
        "luck": observation.luck,
        "action": pending.action,
        "propensities": pending.propensities.tolist(),
    }


def decision_from_plain(data: dict[str, Any], n_actions: int) -> tuple[int, Pending]:
    """The number of a decision and what is known of it."""
    observation = Observation(
        predicted=np.array(data["predicted"], dtype=np.float64),
        error_cov=np.array(data["error_cov"], dtype=np.float64),
        allowed=checks.allowed_actions("allowed", data["allowed"], n_actions),
        time=data["decision"],
        luck=data["luck"],
    )
    return data["decision"], Pending(observation, data["action"], np.array(data["propensities"], dtype=np.float64))


def read_events(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a journal with their line numbers, in order; a torn last line, which no call was answered for, is passed over."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith("\n"):
                    return
                yield number, _event(path, number, line)
    except OSError as error:
        raise LogError(f"journal must be a readable file; got {path} ({error.strerror}).") from error


def _event(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        if not isinstance(event, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise LogError(f"{path} line {number} must be a JSON event; got {line[:60]!r} ({error}).") from error
    if number == 1 and event != HEADER:
        raise LogError(f"{path} line 1 must be {json.dumps(HEADER)}; got {line[:60].strip()!r}. Is it a journal?")
    return event


class Log(NamedTuple):
    """The finished rounds of a journal as arrays, in the order in which they were learned."""

    decision: Integers
    predicted: Floats
    """(T, d)"""
    error_cov: Floats
    """(T, d, d)"""
    allowed: Booleans
    """(T, K)"""
    actions: Integers
    propensities: Floats
    """(T, K), zero where not allowed"""
    rewards: Floats

    def to_arrow(self) -> Any:
        """One row per round: decision, predicted_i, action, propensity, propensity_a, allowed_a, reward, error_cov_i_j (j <= i)."""
        import pyarrow as pa

        n, d = self.predicted.shape
        k = self.propensities.shape[1]
        columns: dict[str, Any] = {"decision": self.decision}
        columns |= {f"predicted_{i}": self.predicted[:, i] for i in range(d)}
        columns |= {"action": self.actions, "propensity": self.propensities[np.arange(n), self.actions]}
        columns |= {f"propensity_{a}": self.propensities[:, a] for a in range(k)}
        columns |= {f"allowed_{a}": self.allowed[:, a] for a in range(k)}
        columns |= {"reward": self.rewards}
        columns |= {f"error_cov_{i}_{j}": self.error_cov[:, i, j] for i in range(d) for j in range(i + 1)}
        return pa.table(columns)

    def to_parquet(self, path: str | Path) -> None:
        """Write `to_arrow` to a Parquet file: first under another name, then renamed, so that no half file is ever seen."""
        import pyarrow.parquet as pq

        part = Path(path).with_name(Path(path).name + ".part")
        pq.write_table(self.to_arrow(), part)
        part.replace(path)


def read_journal(path: str | Path) -> Log:
    """The finished rounds of a journal; decisions whose reward never came are left out.

    The arrays are what `mebandit.estimate` takes, in its order: predicted, actions, rewards, propensities, error_cov.
    """
    open_decisions: dict[int, dict[str, Any]] = {}
    rows: list[tuple[int, dict[str, Any], float]] = []
    for number, event in read_events(path):
        if "decision" in event:
            open_decisions[event["decision"]] = event
        elif "reward_of" in event:
            if event["reward_of"] not in open_decisions:
                raise LogError(f"{path} line {number} must reward an open decision; got {event['reward_of']!r}.")
            rows.append((event["reward_of"], open_decisions.pop(event["reward_of"]), event["reward"]))
    if not rows:
        raise LogError(f"{path} must hold at least one finished round; got none.")
    propensities = np.array([event["propensities"] for _, event, _ in rows])
    allowed = np.zeros(propensities.shape, dtype=np.bool_)
    for t, (_, event, _) in enumerate(rows):
        allowed[t, event["allowed"]] = True
    return Log(
        decision=np.array([number for number, _, _ in rows], dtype=np.int64),
        predicted=np.array([event["predicted"] for _, event, _ in rows]),
        error_cov=np.array([event["error_cov"] for _, event, _ in rows]),
        allowed=allowed,
        actions=np.array([event["action"] for _, event, _ in rows], dtype=np.int64),
        propensities=propensities,
        rewards=np.array([reward for _, _, reward in rows]),
    )
