"""Journals that are damaged, moved, shared or old: nothing is read as something else, and nothing is written where it does not belong."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.cli import journals
from mebandit.policies import states

OLD = Path(__file__).parents[1] / "data" / "0.1.0" / "live"


def write_journal(path: Path, rounds: int = 12, policy: Any = None) -> mb.Learner:
    """A closed learner, whose journal has decisions with and without restrictions, late rewards, and one that was given up."""
    learner = mb.Learner(policy or mb.meb_dr(3, 2), seed=5, journal=path)
    rng = np.random.default_rng(2)
    made = []
    for t in range(rounds):
        made.append(learner.decide(rng.normal(1, 1, 2), 0.1 + 0.2 * (t % 3), allowed=[0, 2] if t % 4 == 1 else None))
        if t % 3 == 2:
            learner.learn(made.pop(-2), float(rng.normal()))
    learner.forget(made.pop(0))
    learner.learn(made.pop(0).id, -1.5)
    learner.close()
    return learner


def outcome(path: Path) -> tuple[Any, ...]:
    """What a journal gives."""
    with mb.Learner.recover(path) as learner:
        return learner.decided, learner.learned, learner.pending, [leaf.tolist() for leaf in states.leaves(learner.state)]


def sealed(lines: list[bytes]) -> bytes:
    """Lines with checksums that match, as by someone who wants them to."""
    crc, made = 0, []
    for line in lines:
        text = line.rstrip(b"\n")
        text = text[: text.rindex(b',"crc"')] if b',"crc"' in text else text[:-1]
        crc = crc32(text, crc)
        made.append(text + f',"crc":"{crc:08x}"'.encode() + b"}\n")
    return b"".join(made)


def test_the_checksum_is_that_of_the_docs(tmp_path: Path) -> None:
    write_journal(tmp_path / "j.jsonl")
    content = (tmp_path / "j.jsonl").read_bytes()
    assert sealed(content.splitlines(keepends=True)) == content
    assert json.loads(content.splitlines()[0])["version"] == 2


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    """Every byte of the journal in turn is changed to another. Only the very last can look like a line that was not written to its end."""
    path = tmp_path / "j.jsonl"
    write_journal(path, rounds=5)
    content, rng = path.read_bytes(), random.Random(1)
    last = content[:-1].rindex(b"\n") + 1
    for place, byte in enumerate(content):
        path.write_bytes(content[:place] + bytes([rng.choice([b for b in b'0123456789.-e"},\n' if b != byte])]) + content[place + 1 :])
        found = mb.check_journal(path)
        line = content.count(b"\n", 0, place) + 1
        if place == len(content) - 1 and not found.fault:
            assert found.size == last
            continue
        assert f"line {line} " in found.fault, (place, found)
        assert found.lines == line - 1
        with pytest.raises(mb.LogError, match=f"line {line} "):
            mb.Learner.recover(path)
        with pytest.raises(mb.LogError, match=f"line {line} "):
            mb.read_journal(path)


@pytest.mark.parametrize("damage", ["deleted", "repeated", "swapped", "another's"])
def test_a_line_in_the_wrong_place_is_noticed(tmp_path: Path, damage: str) -> None:
    path, other = tmp_path / "j.jsonl", tmp_path / "other.jsonl"
    write_journal(path)
    write_journal(other)
    lines, others = (p.read_bytes().splitlines(keepends=True) for p in (path, other))
    for i in range(1, len(lines) - 1):
        bad = list(lines)
        if damage == "deleted":
            del bad[i]
        elif damage == "repeated":
            bad.insert(i, bad[i])
        elif damage == "swapped":
            bad[i], bad[i + 1] = bad[i + 1], bad[i]
        else:
            bad[i] = others[i]  # the same event, after another first line
        path.write_bytes(b"".join(bad))
        with pytest.raises(mb.LogError, match=r"line \d+ must match its checksum"):
            mb.Learner.recover(path)


def test_lines_that_no_learner_wrote_are_refused_though_their_checksums_match(tmp_path: Path) -> None:
    """Ids, probabilities, draws and the policy's own random number are held against policy and seed."""
    path = tmp_path / "j.jsonl"
    write_journal(path, policy=mb.meb(3, 2, floor=0.1))
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if i > 4 and json.loads(line).get("allowed") == [0, 1, 2])
    good = json.loads(lines[at])
    other = (good["action"] + 1) % 3
    swapped = list(good["propensities"])
    swapped[0], swapped[1], swapped[2] = swapped[1], swapped[2], swapped[0]
    changes: dict[str, dict[str, Any]] = {
        "must be the next one": {"decision": good["decision"] - 1},
        f"must be the next one, {good['decision']}": {"decision": good["decision"] + 1},
        "propensities must be those that the policy gives": {"propensities": swapped},
        "propensities must be those": {"predicted": [good["predicted"][0] + 1000.0, good["predicted"][1]]},
        "luck, the auxiliary uniform, must be that of the seed": {"luck": 0.5},
        "action must be the one drawn": {"action": other},
        "propensities must be non-negative": {"propensities": [0.9, 0.9, 0.9]},
        "predicted must": {"predicted": [1e99, 0]},
        "error_cov must be positive semidefinite": {"error_cov": [[-1, 0], [0, 1]]},
    }
    for words, change in changes.items():
        text = json.dumps(good | change, separators=(",", ":")).encode() + b"\n"
        path.write_bytes(sealed([*lines[:at], text, *lines[at + 1 :]]))
        with pytest.raises(mb.LogError, match=words):
            mb.Learner.recover(path)
        assert words in mb.check_journal(path).fault
    for event in ({"reward_of": 1, "reward": 1e99}, {"reward_of": 99, "reward": 1.0}, {"reward_of": 1.0, "reward": 1.0}, {"forget": [1]}):
        path.write_bytes(sealed([*lines[:at], json.dumps(event, separators=(",", ":")).encode() + b"\n", *lines[at:]]))
        with pytest.raises(mb.LogError, match=f"line {at + 1} must be an event of this policy"):
            mb.Learner.recover(path)
        with pytest.raises(mb.LogError, match=f"line {at + 1} must be a whole event"):
            mb.read_journal(path)


def test_another_versions_decisions_are_taken_as_they_are_on_request(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write_journal(path, policy=mb.meb(3, 2, floor=0.1))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b'"floor":0.1', b'"floor":0.15')
    path.write_bytes(sealed(lines))
    with pytest.raises(mb.LogError, match="Was it written by another version"):
        mb.Learner.recover(path)
    with mb.Learner.recover(path, verify=False) as learner:
        assert learner.decided == 12


def test_files_of_meb_dr_of_version_0_1_0_are_refused_in_a_sentence(tmp_path: Path) -> None:
    """It decided otherwise then. Its rounds can still be analysed."""
    path = tmp_path / "j.jsonl"
    shutil.copy(OLD / "meb_dr.jsonl", path)
    refusal = r"got meb_dr of mebandit 0\.1\.0, which decided otherwise\. Go on with mebandit 0\.1\.0"
    with pytest.raises(mb.LogError, match=refusal):
        mb.Learner.load(OLD / "meb_dr.state.json")
    with pytest.raises(mb.LogError, match=refusal):
        mb.Learner.recover(path)
    assert path.read_bytes() == (OLD / "meb_dr.jsonl").read_bytes()


@pytest.mark.parametrize("name", sorted(set(json.loads((OLD / "expected.json").read_text())) - {"meb_dr"}))
def test_files_of_version_0_1_0_are_read(tmp_path: Path, name: str) -> None:
    """A journal without checksums is read as then, and what is added to it has them: the first also covers all lines before it."""
    expected = json.loads((OLD / "expected.json").read_text())[name]
    path = tmp_path / "j.jsonl"
    shutil.copy(OLD / f"{name}.jsonl", path)
    loaded = mb.Learner.load(OLD / f"{name}.state.json")
    with mb.Learner.recover(path) as learner:
        for found in (loaded, learner):
            assert (found.decided, found.learned, list(found.pending)) == (expected["decided"], expected["learned"], expected["pending"])
            np.testing.assert_allclose(found.theta, expected["theta"], rtol=1e-12)
        old = path.read_bytes()
        learner.learn(learner.pending[0], 1.0)
        learner.decide(np.ones(learner.policy.dim), 0.1)
        state = learner.state
    with mb.Learner.recover(path) as again:
        assert states.same(again.state, state)
    content = path.read_bytes()
    assert content.startswith(old)
    place = old.index(b'"propensities"') + 20
    changed = b"7" if content[place : place + 1] != b"7" else b"8"
    path.write_bytes(content[:place] + changed + content[place + 1 :])
    with pytest.raises(mb.LogError, match=r"line \d+ must"):
        mb.Learner.recover(path)
    path.write_bytes(content.replace(b"\n", b'\n{"forget":1}\n', 3)[: len(content)])
    with pytest.raises(mb.LogError):
        mb.Learner.recover(path)


def test_an_old_journal_with_a_repeated_decision_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = (OLD / "meb.jsonl").read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    with pytest.raises(mb.LogError, match=r"line 3 must be an event of this policy.*be the next one, 2; got 1"):
        mb.Learner.recover(path)


@pytest.mark.parametrize("content", [b"a note without an end", b"\x00\x01\x02binary", b"\n", b"{}"])
def test_an_existing_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(mb.InvalidInput, match="journal must be a new file"):
        mb.Learner(mb.meb(2, 1), journal=path)
    with pytest.raises(mb.LogError):
        mb.Learner.recover(path)
    assert path.read_bytes() == content


def test_an_existing_file_is_not_read_whole_before_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte: to read it would never end
    with pytest.raises(mb.InvalidInput, match="journal must be a new file"):
        mb.Learner(mb.meb(2, 1), journal=path)
    with pytest.raises(mb.LogError, match="line 1 must"):
        mb.Learner.recover(path)
    assert path.stat().st_size == 1 << 40


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.touch()
    mb.Learner(mb.meb(2, 1), journal=path).close()
    assert outcome(path)[:2] == (0, 0)


def test_what_is_no_plain_file_is_no_journal(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, Path("/dev/null"), tmp_path / "none" / "j.jsonl"):
        with pytest.raises(mb.LogError, match="journal must"):
            mb.Learner(mb.meb(2, 1), journal=path)
        with pytest.raises(mb.LogError, match="journal must"):
            mb.Learner.recover(path)
    for path in (tmp_path, Path("/dev/null"), tmp_path / "none" / "j.jsonl"):
        with pytest.raises(mb.LogError, match="journal must"):
            mb.read_journal(path)


MEDDLING: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 3),
    "emptied": lambda path: os.truncate(path, 0),
    "added to": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "replaced": lambda path: (path.rename(path.with_suffix(".1")), path.write_bytes(path.with_suffix(".1").read_bytes())),
}


@pytest.mark.parametrize("how", MEDDLING)
def test_a_journal_that_is_changed_under_its_learner_takes_no_more_events(tmp_path: Path, how: str) -> None:
    """Deleted, cut, added to, or moved by a rotation of logs: each call is refused, changes nothing, and works once all is mended."""
    path, kept = tmp_path / "j.jsonl", tmp_path / "kept"
    learner = mb.Learner(mb.meb(2, 1), seed=1, journal=path)
    first, second = (learner.decide([1.0], 0.1) for _ in range(2))
    learner.learn(first, 1.0)
    before, content = learner.state, path.read_bytes()
    os.link(path, kept)
    MEDDLING[how](path)
    for call in (lambda: learner.decide([1.0], 0.1), lambda: learner.learn(second, 1.0), lambda: learner.forget(second)):
        with pytest.raises(mb.LogError, match="journal must stay where it is and as it was written"):
            call()
    assert (learner.decided, learner.learned, learner.pending) == (2, 1, (2,))
    assert states.same(learner.state, before)
    learner.save(tmp_path / "state.json")
    assert states.same(mb.Learner.load(tmp_path / "state.json").state, before)
    with kept.open("r+b") as file:  # the same file again, as it was
        file.truncate(0)
        file.write(content)
    path.unlink(missing_ok=True)
    os.link(kept, path)
    learner.learn(second, 1.0)
    expected = learner.state
    learner.close()
    with mb.Learner.recover(path) as again:
        assert states.same(again.state, expected)


def test_what_another_wrote_after_a_failed_call_is_left_there(tmp_path: Path) -> None:
    """The call that failed was taken back; the next one finds bytes of someone else at the same place."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "j.jsonl"
    learner = mb.Learner(mb.meb(2, 1), seed=1, journal=path)
    learner.decide([1.0], 0.1)
    size, before = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(mb.LogError, match="must be a file that can be written"):
            learner.decide([1.0], 0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == size
    with path.open("ab") as file:
        file.write(b"a note\n")
    with pytest.raises(mb.LogError, match="journal must stay where it is and as it was written"):
        learner.decide([1.0], 0.1)
    assert path.read_bytes().endswith(b"a note\n")


def run(*arguments: object) -> tuple[int, str]:
    """A command, its exit status and all that it prints."""
    result = CliRunner().invoke(journals.journal, [*map(str, arguments)])
    if isinstance(result.exception, mb.MebanditError):
        return 1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def test_the_command_names_the_first_bad_line_and_keeps_what_comes_before(tmp_path: Path) -> None:
    path, mended = tmp_path / "j.jsonl", tmp_path / "mended.jsonl"
    write_journal(path)
    assert run("check", path)[0] == 0
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:9], lines[9].replace(b"1", b"2", 1), *lines[10:]]))
    damaged = path.read_bytes()
    status, printed = run("check", path)
    assert status == 1
    assert "line 10 must match its checksum" in printed
    assert "mebandit journal repair" in printed
    status, printed = run("repair", path, "--out", mended)
    assert status == 0
    assert path.read_bytes() == damaged
    assert mended.read_bytes() == b"".join(lines[:9])
    assert run("check", mended)[0] == 0
    with mb.Learner.recover(mended) as learner:
        assert learner.decided == sum(b'"decision"' in line for line in lines[:9])
    for out in (path, mended):
        status, printed = run("repair", path, "--out", out)
        assert status == 1
        assert "must be a new file" in printed
    assert mended.read_bytes() == b"".join(lines[:9])
    path.write_bytes(b"not a journal\n")
    status, printed = run("repair", path, "--out", tmp_path / "none.jsonl")
    assert status == 1
    assert "good first line" in printed
    assert not (tmp_path / "none.jsonl").exists()


def test_a_journal_of_ones_own_policy_is_checked_as_far_as_that_goes(tmp_path: Path) -> None:
    from tests.live.test_interrupts import Shares

    path = tmp_path / "j.jsonl"
    with mb.Learner(Shares(), seed=5, journal=path) as learner:
        for _ in range(3):
            learner.learn(learner.decide([1.0, 2.0], 0.1), 1.0)
    found = mb.check_journal(path)
    assert (found.fault, found.decided, found.learned, found.replayed) == ("", 3, 3, False)
    assert mb.check_journal(path, policy=Shares()).replayed
    status, printed = run("check", path)
    assert status == 0
    assert "not reproduced" in printed
