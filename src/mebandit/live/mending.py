"""What keeps a learner whole: how an interrupted call is undone or finished, and what becomes of learners in a forked process."""

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mebandit.live.journal import Mark
from mebandit.values import Pending

if TYPE_CHECKING:
    from mebandit.live.learner import Learner


def go_back(learner: "Learner", mark: Mark, decided: int, learned: int, kept: Any, taken: Pending | None) -> None:
    """Journal and state as they were before a call; `taken` is the decision that it took out of those that wait."""
    if learner._journal is not None:
        learner._journal.go_back(mark)
    learner._workspace.kept = kept
    learner._pending.pop(decided + 1, None)
    if taken is not None and taken[1].id not in learner._pending:
        learner._pending = dict(sorted([*learner._pending.items(), (taken[1].id, taken)]))
    learner.decided, learner.learned = decided, learned


def finish(learner: "Learner", pending: Pending) -> None:
    """Note that a decision has its reward, if the workspace has learned from it."""
    if learner._workspace.learned > learner.learned:
        learner._pending.pop(pending[1].id, None)
        learner.learned = learner._workspace.learned


LEARNERS: "WeakSet[Learner]" = WeakSet()
"""those of this process"""


def _after_fork() -> None:
    for learner in list(LEARNERS):
        learner._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
