"""Snapshots: what a learner knew at one place of its journal, from which a long journal is recovered quickly.

A snapshot is a cache. The journal stays the truth: a snapshot is used only if its own checksum is right, if the same code wrote it, and if
the chained checksum of the journal, computed from its beginning, is at the snapshot's place what the snapshot says. So every line is still
checked; only the rounds before that place are not learned again. Any other snapshot is ignored.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from zlib import crc32

from mebandit import checks, kernels
from mebandit.kernels import layout
from mebandit.live.journal import DECISION, SEAL, SEAL_SIZE, Line, Mark, decision_from_plain, read_lines
from mebandit.live.state_files import Snapshot
from mebandit.policies import Policy, settings, states
from mebandit.runtime.files import parse_json, seal, unseal, write_whole
from mebandit.values import Pending, State

L = TypeVar("L")
FORMAT, VERSION = "mebandit-snapshot", 1
CODE = [str(kernels.STAMP), layout.VERSION]
"""what must be the same, so that the state of a snapshot is that which the journal gives"""
EVERY = 1 << 20
"""bytes of the journal between two snapshots: some 5,000 events, which are repeated in a fraction of a second"""
MOST_WAITING = 100_000
"""decisions that wait for their reward; with more of them no snapshot is written, since that would hold up a call"""


def place(journal: Path) -> Path:
    """Where the snapshot of a journal is."""
    return journal.with_name(f"{journal.name}.snapshot")


def write(journal: Path, mark: Mark, state: State, decided: int, learned: int, waiting: Sequence[int]) -> None:
    """Write a snapshot, in full or not at all. Where that fails, there is none: the journal suffices.

    Args:
        journal: path of the journal.
        mark: the place after the last event.
        state: what the policy has learned.
        decided: decisions made.
        learned: rewards learned from.
        waiting: the ids of decisions that wait for their reward. The decisions themselves are in the journal.
    """
    if len(waiting) > MOST_WAITING:
        return
    body = {"format": FORMAT, "version": VERSION, "code": CODE, "end": mark.end, "crc": mark.crc}
    body |= {"decided": decided, "learned": learned, "waiting": list(waiting), "state": states.to_plain(state)}
    with suppress(checks.LogError):
        write_whole(place(journal), seal(body) + "\n", durable=False)


def read(journal: Path, file: BinaryIO, make: Callable[[Snapshot], L]) -> tuple[L, Line] | None:
    """The learner of a journal's snapshot, and the line after which it knew no more; None where there is none that can be used.

    Args:
        journal: path of the journal.
        file: the journal, open for reading.
        make: makes a learner that knows what a snapshot holds.
    """
    try:
        body, intact = unseal(place(journal).read_bytes())
        if not intact or (body["format"], body["version"], body["code"]) != (FORMAT, VERSION, CODE):
            return None
        found = _found(body, file, next(read_lines(file, journal)).event)
        return None if found is None else (make(found[0]), found[1])
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError, checks.MebanditError):
        return None


def _found(body: dict[str, Any], file: BinaryIO, header: dict[str, Any]) -> tuple[Snapshot, Line] | None:
    policy: Policy = settings.policy_from(header["policy"], None, "the journal")
    waiting = frozenset(body["waiting"])
    number, decided, mark, pending = _pass_over(file, body["end"], waiting, policy)
    if (mark, decided, len(pending)) != (Mark(body["end"], body["crc"]), body["decided"], len(waiting)):
        return None
    state = states.from_plain(body["state"], policy.init())
    snapshot = Snapshot(policy, header.get("seed", 0), decided, body["learned"], (str(header["origin"]),), state, pending)
    return snapshot, Line(number, {}, mark)


def _pass_over(file: BinaryIO, end: int, waiting: frozenset[int], policy: Policy) -> tuple[int, int, Mark, dict[int, Pending]]:
    """Check the lines up to a place against their checksums, and read the decisions that wait.

    Returns:
        The numbers of lines and of decisions passed, the place after them, and the decisions that wait.
    """
    file.seek(0)
    number = decided = passed = crc = 0
    pending: dict[int, Pending] = {}
    for text in file:
        crc = crc32(text[:-SEAL_SIZE], crc)
        if text[-SEAL_SIZE:] != b'%b%08x"}\n' % (SEAL, crc):
            break
        number, passed = number + 1, passed + len(text)
        if text.startswith(DECISION):
            decided += 1
            if decided in waiting:
                pending[decided] = decision_from_plain(parse_json(text), policy.n_actions, policy.dim)
        if passed >= end:
            break
    return number, decided, Mark(passed, crc), pending
