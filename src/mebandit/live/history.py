"""The finished rounds of a live run as arrays, read from its journal."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.history import History
from mebandit.live.about import columns_of, said
from mebandit.live.journal import Line, decision_from_plain, next_id, watched_lines
from mebandit.values import Pending


class Ledger:
    """The decisions of a journal that wait for their rewards, as its lines go by, whatever the policy."""

    def __init__(self) -> None:
        self.decided = self.learned = 0
        self._pending: dict[int, tuple[Pending, dict[str, Any]]] = {}

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def take(self, line: Line, name: object) -> tuple[Pending, dict[str, Any], float] | None:
        """Take in a line after the first; a round that it finishes is given back, with what was said of it and its reward."""
        event = line.event
        try:
            if "decision" in event:
                pending = decision_from_plain(event, len(event["propensities"]), len(event["predicted"]))
                self.decided = next_id(self.decided, pending[1].id)
                about: dict[str, Any] = {key: event[key] for key in ("unit", "at", "note") if key in event}
                said(about.get("unit"), about.get("at"), about.get("note"))
                self._pending[self.decided] = pending, about
            elif "reward_of" in event:
                reward = checks.number("reward", event["reward"])
                finished = self._pending.pop(checks.integer("decision", event["reward_of"], 1))
                self.learned += 1
                return *finished, reward
            else:
                del self._pending[checks.integer("decision", event["forget"], 1)]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            rule, received = "be a whole event, for an open decision", f"{checks.shown(event)} ({error!r})"
            raise LogError(f"{name} line {line.number} must {rule}; got {received}.") from error
        return None


@contextmanager
def reading(path: str | Path) -> Iterator[BinaryIO]:
    """A journal opened for reading alone, also while a learner writes to it."""
    try:
        with checks.path("journal", path).open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LogError(f"journal must be a plain file; got {path}, which is another kind.")
            yield file
    except OSError as error:
        raise LogError(f"journal must be a readable file; got {path} ({error.strerror}).") from error


def read_journal(path: str | Path) -> History:
    """The finished rounds of a journal as arrays, in the order in which they were learned; decisions without a reward are left out.

    Args:
        path: The journal, a .jsonl file. A learner may be writing to it.

    Returns:
        The rounds, as `mebandit.fit`, `mebandit.estimate` and `mebandit.Log` take them.
    """
    ledger = Ledger()
    with reading(path) as file:
        finished = [ledger.take(line, path) for line in watched_lines(file, path) if line.number > 1]
    rows = [row for row in finished if row is not None]
    if not rows:
        raise LogError(f"{path} must hold at least one finished round; got none.")
    if len({(decision.propensities.size, observation.predicted.size) for (observation, decision), *_ in rows}) > 1:
        raise LogError(f"{path} must hold rounds of one number of actions and features; got several.")
    return History(
        decision=np.array([decision.id for (_, decision), *_ in rows], dtype=np.int64),
        predicted=np.array([observation.predicted for (observation, _), *_ in rows]),
        error_cov=np.array([observation.error_cov for (observation, _), *_ in rows]),
        allowed=np.array([observation.allowed for (observation, _), *_ in rows]),
        actions=np.array([decision.action for (_, decision), *_ in rows], dtype=np.int64),
        propensities=np.array([decision.propensities for (_, decision), *_ in rows]),
        rewards=np.array([reward for *_, reward in rows]),
        about=columns_of([about for _, about, _ in rows]),
    )
