"""Damaged journals: find the first bad line, and copy the lines before it to a new journal."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mebandit import checks
from mebandit.checks import LogError
from mebandit.live.history import Ledger, reading
from mebandit.live.journal import PIECE, START, Line, watched_lines
from mebandit.live.learner import Learner
from mebandit.live.replay import learners
from mebandit.policies import Policy, settings
from mebandit.runtime.files import whole_file


class JournalCheck(NamedTuple):
    """What a journal holds before its first bad line."""

    fault: str
    """what is wrong with the first bad line, in a sentence that names its number; empty if all lines are good"""
    lines: int
    """good lines before the first bad one"""
    size: int
    """bytes of the good lines"""
    left: int
    """bytes after the good lines: bad lines, or an unfinished last line, which does not count and is no fault"""
    decided: int
    """decisions in the good lines"""
    learned: int
    """rewards in the good lines"""
    waiting: int
    """decisions in the good lines that wait for their reward"""
    replayed: bool
    """whether decisions were reproduced; False where the policy is a class of your own and was not given"""


def check_journal(path: str | Path, *, policy: Policy | None = None) -> JournalCheck:
    """Read a journal as `Learner.recover` does, without changing it, and say where it is damaged.

    Every line is checked against its checksum, the events are checked against each other, and every decision is reproduced from the
    policy and the seed.

    Args:
        path: Path of the journal.
        policy: The policy of the trial, needed where it is a class of your own; without it such decisions are not reproduced.

    >>> import tempfile, mebandit as mb
    >>> with tempfile.TemporaryDirectory() as folder, mb.Learner(mb.meb(2, 1), journal=f"{folder}/trial.jsonl") as learner:
    ...     learner.learn(learner.decide([0.4], 0.1), reward=1.0)
    ...     check_journal(f"{folder}/trial.jsonl")[:2]
    ('', 3)
    """
    known: Learner | Ledger = Ledger()
    count, mark, fault, replayed = 0, START, "", True
    with reading(path) as file:
        total = os.fstat(file.fileno()).st_size
        try:
            for known, line in _replay(watched_lines(file, path), path, policy):
                count, mark, replayed = line.number, line.mark, isinstance(known, Learner)
        except checks.MebanditError as error:
            fault = str(error)
    return JournalCheck(fault, count, mark.end, total - mark.end, known.decided, known.learned, known.waiting, replayed)


def _replay(lines: Iterator[Line], path: str | Path, policy: Policy | None) -> Iterator[tuple[Learner | Ledger, Line]]:
    """After each line of a journal, the learner that wrote it; or, where its policy is not known, the decisions that wait."""
    first = next(lines)
    if policy is not None or not settings.has_own(first.event.get("policy")):
        yield from learners(Learner, first, lines, path, policy=policy)
        return
    ledger = Ledger()
    yield ledger, first
    for line in lines:
        ledger.take(line, path)
        yield ledger, line


def repair_journal(path: str | Path, out: str | Path, *, policy: Policy | None = None) -> JournalCheck:
    """Write the lines before a journal's first bad line to a new file, from which `Learner.recover` can continue.

    The damaged journal is not changed. Events from the bad line on are not in the new journal, and the ids of their decisions will be
    given again.

    Args:
        path: Path of the damaged journal.
        out: Path of the new journal, where no file may be yet.
        policy: As in `check_journal`.
    """
    out, found = checks.path("the repaired journal", out), check_journal(path, policy=policy)
    if os.path.lexists(out):
        checks.refuse("the repaired journal", "be a new file", str(out), "Name another.")
    if found.lines == 0:
        raise LogError(f"a journal to be repaired must have a good first line, which says whose it is; got this: {found.fault}")
    with reading(path) as damaged, whole_file(out) as file:
        for start in range(0, found.size, PIECE):
            file.write(damaged.read(min(PIECE, found.size - start)))
    return found
