"""Snapshots beside a journal: they save time, and nothing depends on them."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.live import replay, snapshots
from mebandit.policies import states
from mebandit.runtime.files import seal, unseal

POLICIES = {"meb_dr": mb.meb_dr(3, 2, floor=0.1), "lin_ucb": mb.lin_ucb(3, 2)}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every few events."""
    monkeypatch.setattr(snapshots, "EVERY", 3000)


def play(learner: mb.Learner, rounds: int, seed: int = 2) -> None:
    rng = np.random.default_rng(seed)
    made: list[int] = []
    for t in range(rounds):
        made.append(learner.decide(rng.normal(1, 1, 2), 0.1 + 0.2 * (t % 3), allowed=[0, 2] if t % 4 == 1 else None).id)
        if t % 7 == 6:
            learner.forget(made.pop(1))
        if len(made) > 5:
            learner.learn(made.pop(int(rng.integers(5))), float(rng.normal()))


def written(path: Path, policy: Any = POLICIES["meb_dr"], rounds: int = 40) -> Path:
    """The snapshot of a journal."""
    with mb.Learner(policy, seed=5, journal=path) as learner:
        play(learner, rounds)
    return snapshots.place(path)


def outcome(learner: mb.Learner) -> tuple[Any, ...]:
    state = [leaf.tolist() if isinstance(leaf, np.ndarray) else leaf for leaf in states.leaves(learner.state)]
    return learner.decided, learner.learned, learner.pending, learner.origins, state


def recovered(path: Path) -> tuple[Any, ...]:
    with mb.Learner.recover(path) as learner:
        return outcome(learner)


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The events that recoveries repeat."""
    found: list[Any] = []
    repeat = replay.repeat

    def watched(learner: mb.Learner, event: Any, verify: bool) -> None:
        found.append(event)
        repeat(learner, event, verify)

    monkeypatch.setattr(replay, "repeat", watched)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_a_learner_comes_back_with_its_snapshot_as_without_it(tmp_path: Path, name: str, repeated: list[Any]) -> None:
    path = tmp_path / "j.jsonl"
    snapshot = written(path, POLICIES[name])
    with mb.Learner.recover(path) as learner:
        found, few = outcome(learner), len(repeated)
        assert few < 20
        play(learner, 30, seed=3)
        further = outcome(learner)
    assert recovered(path) == further, "what was decided goes on from the snapshot"
    snapshot.unlink()
    repeated.clear()
    assert recovered(path) == further
    assert len(repeated) > 100
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: 1 + events_of(found)]))
    assert recovered(path) == found


def events_of(found: tuple[Any, ...]) -> int:
    """Lines after the first: of 40 rounds, 5 decisions were given up."""
    decided, learned, *_ = found
    return int(decided + learned + 5)


def test_a_snapshot_that_is_not_whole_or_not_of_this_journal_is_ignored(tmp_path: Path, repeated: list[Any]) -> None:
    path, other = tmp_path / "j.jsonl", tmp_path / "other.jsonl"
    snapshot = written(path)
    good, lines = snapshot.read_bytes(), path.read_bytes().splitlines(keepends=True)
    known, every = recovered(path), len(lines) - 1
    with mb.Learner(POLICIES["meb_dr"], seed=6, journal=other) as learner:
        play(learner, 40)
    foreign = snapshots.place(other).read_bytes()
    rng = random.Random(1)
    places = [rng.randrange(len(good) - 1) for _ in range(60)]
    damaged = [good[:at] + bytes([good[at] ^ 1 << rng.randrange(7)]) + good[at + 1 :] for at in places]
    body, _ = unseal(good)
    lies = [body | change for change in ({"crc": 1}, {"decided": 3}, {"code": ["0", 0]}, {"end": -1}, {"state": 1})]
    for content in (b"", b"{}", b"null", good[:-40], foreign, *damaged, *(seal(lie).encode() for lie in lies)):
        snapshot.write_bytes(content)
        repeated.clear()
        assert recovered(path) == known
        assert len(repeated) == every or unseal(content)[0] == body, "an exponent's e that became E says the same"
    snapshot.write_bytes(good)
    path.write_bytes(b"".join(lines[:10]))  # an older copy of the journal
    repeated.clear()
    recovered(path)
    assert len(repeated) == 9


def test_a_line_that_was_changed_before_the_snapshot_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (lines[4].replace(b"1", b"2", 1), lines[4][:-5] + b"0000\n"[-5:]):
        path.write_bytes(b"".join([*lines[:4], changed, *lines[5:]]))
        with pytest.raises(mb.LogError, match="line 5 "):
            mb.Learner.recover(path)


def test_no_snapshot_can_be_written_and_calls_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.jsonl"
    snapshots.place(path).mkdir()
    with mb.Learner(POLICIES["meb_dr"], journal=path) as learner:
        play(learner, 40)
        known = outcome(learner)
    snapshots.place(path).rmdir()
    monkeypatch.setattr(snapshots, "MOST_WAITING", 2)
    with mb.Learner.recover(path) as learner:
        assert outcome(learner) == known
        learner.decide([1.0, 1.0], 0.1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_call_that_is_interrupted_while_it_writes_a_snapshot_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with mb.Learner(POLICIES["meb_dr"], seed=5, journal=tmp_path / "j.jsonl") as learner:
        play(learner, 40)
        for call in (lambda: learner.decide([1.0, 1.0], 0.1), lambda: learner.learn(learner.pending[0], 1.0)):
            monkeypatch.setattr(learner, "_snapshot_at", 0)
            known = outcome(learner)
            with monkeypatch.context() as patched:
                patched.setattr(snapshots, "write", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    call()
            assert outcome(learner) == known
            call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_learner_comes_back_with_all_that_it_answered(tmp_path: Path) -> None:
    """A process is killed with -9 again and again, also while it writes a snapshot, and each time another goes on."""
    path, moments, known = tmp_path / "j.jsonl", random.Random(4), 0
    mb.Learner(POLICIES["meb_dr"], seed=5, journal=path).close()
    for _ in range(15):
        answers, child = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                learner = mb.Learner.recover(path)
                while True:
                    play(learner, 1)
                    learner.learn(learner.pending[-1], 0.5)
                    os.write(child, learner.decided.to_bytes(8))
            finally:
                os._exit(1)
        os.close(child)
        first = os.read(answers, 8)
        time.sleep(moments.uniform(0.0, 0.03))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        with os.fdopen(answers, "rb") as rest:
            said = first + rest.read()
        known = int.from_bytes(said[-8:])
        assert recovered(path)[0] >= known
    found = recovered(path)
    assert found[0] > 100
    snapshots.place(path).unlink()
    assert recovered(path) == found
