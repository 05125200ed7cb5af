"""The journal of a live run: one line per event, written before the call that caused it returns.

A line is JSON: a decision (what was seen, the probabilities, the action) or the reward of an earlier decision. So a crash loses
nothing that was answered, and replaying the journal in its order gives the learner's state back bit for bit.
"""

import errno
import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.files import whole_file
from mebandit.values import Booleans, Decision, Floats, Integers, Observation, Pending

FORMAT, VERSION = "mebandit-journal", 1


class Journal:
    """An append-only file of events, whose first line says which policy, seed and history it belongs to.

    An event that cannot be written in full is taken back, so that the call can be made again. One learner at a time may write to it.
    `durable=True` also waits for the disk after each event.
    """

    def __init__(self, path: str | Path, *, policy: dict[str, Any], seed: int, origin: str, durable: bool = False) -> None:
        self.path = Path(path)
        self.durable = durable
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise LogError(f"journal must be a file that can be written; got {self.path} ({error.strerror}).") from error
        self.close = weakref.finalize(self, self._file.close)
        """close the file; also called when the journal is no longer used"""
        self._lock()
        self._drop_torn_line()
        if self._file.tell() == 0:
            self._write({"format": FORMAT, "version": VERSION, "policy": policy, "seed": seed, "origin": origin})
            if durable:
                self._sync_folder()

    def _sync_folder(self) -> None:
        """Wait for the disk to know the new file's name."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _lock(self) -> None:
        """Refuse a second writer, where the system can tell."""
        try:
            import fcntl
        except ImportError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LogError(f"journal must have one writer at a time; got {self.path}, which another learner has open.") from error

    def _drop_torn_line(self) -> None:
        """Cut off a last line without its end: the call that was writing it never returned."""
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.ftruncate(self._file.fileno(), content.rfind(b"\n") + 1)
        self._file.seek(0, os.SEEK_END)

    def _write(self, event: dict[str, Any]) -> None:
        if self._file.closed:
            raise LogError(f"journal must be open; got {self.path}, which was closed.")
        line = json.dumps(event, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        good = self._file.tell()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), good)
            self._file.seek(good)
            raise LogError(f"journal must be a file that can be written; got {self.path} ({error.strerror}).") from error

    def decision(self, pending: Pending) -> None:
        self._write(decision_to_plain(pending))

    def reward(self, number: int, reward: float) -> None:
        self._write({"reward_of": number, "reward": reward})

    def forget(self, number: int) -> None:
        self._write({"forget": number})


def decision_to_plain(pending: Pending) -> dict[str, Any]:
    """A decision as JSON can hold it."""
    observation, decision = pending
    return {
        "decision": decision.id,
        "predicted": observation.predicted.tolist(),
        "error_cov": observation.error_cov.tolist(),
        "allowed": np.flatnonzero(observation.allowed).tolist(),
        "luck": observation.luck,
        "action": decision.action,
        "propensities": decision.propensities.tolist(),
    }


def decision_from_plain(data: dict[str, Any], n_actions: int, dim: int) -> Pending:
    """A decision that waits for its reward, every part checked."""
    allowed = np.zeros(n_actions, dtype=np.bool_)
    for a in data["allowed"]:
        allowed[checks.integer("allowed", a, 0, n_actions - 1)] = True
    action = checks.integer("action", data["action"], 0, n_actions - 1)
    if not allowed[action]:
        checks.refuse("action", "be allowed", action)
    observation = Observation(
        predicted=checks.floats("predicted", data["predicted"], (dim,)),
        error_cov=checks.covariance("error_cov", data["error_cov"], dim),
        allowed=allowed,
        time=checks.integer("decision", data["decision"], 1),
        luck=checks.number("luck", data["luck"], "be in (0, 1)", 0.0, 1.0),
    )
    propensities = checks.probabilities("propensities", data["propensities"], allowed)
    return observation, Decision(observation.time, action, float(propensities[action]), propensities)


def read_header(path: str | Path) -> dict[str, Any]:
    """The first line of a journal: whose it is."""
    for _, event in read_events(path, header=True):
        return event
    raise LogError(f"{path} must begin with a journal's first line; got an empty file.")


def read_events(path: str | Path, *, header: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a journal with their line numbers, in order (after the header, or with it); a torn last line is passed over."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                event = _event(path, number, line)
                if number > 1 or header:
                    yield number, event
    except OSError as error:
        raise LogError(f"journal must be a readable file; got {path} ({error.strerror}).") from error


def _event(path: Path, number: int, line: bytes) -> dict[str, Any]:
    shown = line[:60].decode(errors="replace").strip()
    try:
        event = json.loads(line)
    except ValueError as error:
        raise LogError(f"{path} line {number} must be a JSON event; got {shown!r} ({type(error).__name__}).") from error
    known = ("format",) if number == 1 else ("decision", "reward_of", "forget")
    if not isinstance(event, dict) or not any(name in event for name in known):
        raise LogError(f"{path} line {number} must be an event with one of {', '.join(known)}; got {shown!r}.")
    if number == 1 and (event["format"], event.get("version")) != (FORMAT, VERSION):
        raise LogError(f"{path} line 1 must be that of a {FORMAT} version {VERSION}; got {shown!r}.")
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

        table = self.to_arrow()
        with whole_file(path) as file:
            pq.write_table(table, file)


def read_journal(path: str | Path) -> Log:
    """The finished rounds of a journal; decisions whose reward never came are left out.

    The arrays are what `mebandit.estimate` takes, in its order: predicted, actions, rewards, propensities, error_cov.
    """
    open_decisions: dict[int, Pending] = {}
    rows: list[tuple[Pending, float]] = []
    for line, event in read_events(path):
        try:
            if "decision" in event:
                pending = decision_from_plain(event, len(event["propensities"]), len(event["predicted"]))
                open_decisions[pending[1].id] = pending
            elif "reward_of" in event:
                rows.append((open_decisions.pop(event["reward_of"]), checks.number("reward", event["reward"])))
        except (KeyError, TypeError, ValueError) as error:
            raise LogError(
                f"{path} line {line} must be a whole event, for an open decision; got {checks.shown(event)} ({error!r})."
            ) from error
    if not rows:
        raise LogError(f"{path} must hold at least one finished round; got none.")
    if len({(decision.propensities.size, observation.predicted.size) for (observation, decision), _ in rows}) > 1:
        raise LogError(f"{path} must hold rounds of one number of actions and features; got several.")
    return Log(
        decision=np.array([decision.id for (_, decision), _ in rows], dtype=np.int64),
        predicted=np.array([observation.predicted for (observation, _), _ in rows]),
        error_cov=np.array([observation.error_cov for (observation, _), _ in rows]),
        allowed=np.array([observation.allowed for (observation, _), _ in rows]),
        actions=np.array([decision.action for (_, decision), _ in rows], dtype=np.int64),
        propensities=np.array([decision.propensities for (_, decision), _ in rows]),
        rewards=np.array([reward for _, reward in rows]),
    )
