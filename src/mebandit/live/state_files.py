"""State files: all that a learner knows, as JSON with a checksum.

Version 1, that of mebandit 0.1.0, described policies flatly (see `policies.settings`) and did not say how the memory is laid out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mebandit import checks
from mebandit.checks import LogError
from mebandit.kernels import layout
from mebandit.live.journal import decision_from_plain, decision_to_plain
from mebandit.policies import LinearPolicy, Policy, settings, states
from mebandit.runtime.files import seal, unseal, write_whole
from mebandit.values import Pending, State

FORMAT, VERSION = "mebandit-learner", 2
FIRST_LAYOUT = 1
"""the layout of memory in files that do not name one"""


class Snapshot(NamedTuple):
    """All that a learner knows, at one moment."""

    policy: Policy
    seed: int
    decided: int
    """decisions made"""
    learned: int
    """rewards learned from"""
    origins: tuple[str, ...]
    """the histories that the state is made of"""
    state: State
    pending: dict[int, Pending]
    """decisions that wait for their reward, by id"""


def write(path: str | Path, snapshot: Snapshot) -> None:
    """Write a snapshot, in full or not at all."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "layout": layout.VERSION,
        "policy": settings.to_plain(snapshot.policy),
        "seed": snapshot.seed,
        "decided": snapshot.decided,
        "learned": snapshot.learned,
        "origins": list(snapshot.origins),
        "state": states.to_plain(snapshot.state),
        "pending": [decision_to_plain(waiting) for waiting in snapshot.pending.values()],
    }
    write_whole(path, seal(body) + "\n")


def read(path: Path, policy: Policy | None, origins: tuple[str, ...]) -> Snapshot:
    """The snapshot in a state file, its parts checked against each other; `origins` is used where the file names none."""
    body = _read_sealed(path)
    found: Policy = settings.policy_from(body["policy"], policy, path)
    _check_layout(body, found, path)
    decided = checks.integer("decided", body["decided"], 0, layout.NEVER)
    learned = checks.integer("learned", body["learned"], 0, decided)
    pending: dict[int, Pending] = {}
    for data in body["pending"]:
        waiting = decision_from_plain(data, found.n_actions, found.dim)
        checks.integer("the id of a waiting decision", waiting[1].id, max(pending, default=0) + 1, decided)
        pending[waiting[1].id] = waiting
    checks.integer("learned", learned, 0, decided - len(pending))
    state = states.from_plain(body["state"], found.init())
    return Snapshot(found, body["seed"], decided, learned, tuple(map(str, body.get("origins", origins))), state, pending)


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """Turn any error while a state file is read into one sentence that names the file."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise LogError(f"state file must hold a learner that can be; got {path}, in which this is wrong: {reason}.") from error


def _check_layout(body: dict[str, Any], policy: Policy, path: Path) -> None:
    """Refuse the memory of a linear policy in another layout than the compiled code reads. With one fit the first layout is today's."""
    found = body.get("layout", FIRST_LAYOUT)
    if not isinstance(policy, LinearPolicy):
        return
    unchanged = range(FIRST_LAYOUT if policy.estimator.n_fits == 1 else layout.VERSION, layout.VERSION + 1)
    if found not in unchanged:
        remedy = "Recover the learner from its journal, or load the file with the version of mebandit that saved it."
        raise LogError(f"state file must hold a memory of layout {layout.VERSION}; got layout {found!r} in {path}. {remedy}")


def _read_sealed(path: Path) -> dict[str, Any]:
    """The contents of a state file whose checksum is right."""
    try:
        body, intact = unseal(path.read_bytes())
    except OSError as error:
        raise LogError(f"state file must be readable; got {path} ({error.strerror}).") from error
    except ValueError as error:
        raise LogError(f"state file must be one that Learner.save wrote; got {path}, which is not ({type(error).__name__}).") from error
    if not intact:
        raise LogError(f"state file must be as Learner.save wrote it; got {path}, whose checksum does not match. Restore it from a copy.")
    if body.get("format") != FORMAT or body.get("version") not in (1, VERSION):
        received = f"{body.get('format')!r} version {body.get('version')!r} in {path}"
        raise LogError(f"state file must be {FORMAT} version 1 or {VERSION}; got {received}.")
    return body
