"""The journal of a live run: a file of events, one line of JSON each, written before the call that caused the event returns.

An event is a decision (what was seen, the probabilities, the action), the reward of an earlier decision, or a decision that was given up.
So a crash loses nothing that was answered, and replaying the journal in its order gives the learner's state back bit for bit.

Every line ends in a checksum, the CRC-32 of its text continued from the checksum of the line before:

    {"reward_of":7,"reward":1.5,"crc":"9a3f07c2"}        crc = CRC-32 of '{"reward_of":7,"reward":1.5', from the crc of the line before

A line that is changed, missing, repeated or moved breaks this chain. Version 1, that of mebandit 0.1.0, had no checksums; when a learner
goes on with such a journal, its new lines have them, and the first of these also covers all the lines before it.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn
from zlib import crc32

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.kernels import limits
from mebandit.runtime.files import parse_json
from mebandit.runtime.progress import progress_bar
from mebandit.values import Decision, Observation, Pending

try:
    import fcntl
except ImportError:  # a system that cannot tell whether a file has a second writer
    fcntl = None  # type: ignore[assignment]

FORMAT, VERSION = "mebandit-journal", 2
UNCHECKED = 1
"""the version whose lines have no checksums"""
DECISION = b'{"decision":'
"""how the line of a decision begins"""
SEAL = b',"crc":"'
SEAL_SIZE = len(SEAL) + len('9a3f07c2"}\n')
LONGEST = 1 << 28
"""bytes of the longest line: a decision on some 3000 features"""

PIECE = 1 << 20
"""bytes after which a progress bar moves on"""

encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Mark(NamedTuple):
    """A place between two lines of a journal."""

    end: int
    """bytes before it"""
    crc: int
    """the checksum of the line before it"""


START = Mark(0, 0)


class Line(NamedTuple):
    """One line of a journal."""

    number: int
    event: dict[str, Any]
    mark: Mark
    """the place after it"""


class Journal:
    """An append-only file of events with one writer at a time. `durable=True` also waits for the disk after each event.

    `mark` is the place after the last event that counts. `go_back` takes back an event that could not be written, or whose learner was
    interrupted. A journal that is moved, deleted or changed by someone else takes no more events.
    """

    def __init__(self, path: str | Path, flags: int, durable: bool) -> None:
        self.path = checks.path("journal", path)
        self.durable = durable
        self.mark = START
        self._begun: Mark | None = None
        """where the last event was begun"""
        self._written_cov: tuple[object, str] = None, ""
        """the last error covariance, and the same as JSON"""
        try:
            self._file = FileIO(os.open(path, flags | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666), "r+")
        except OSError as error:
            rule = "be a file that can be written" if flags else "be a readable file, and one that can be written"
            raise LogError(f"journal must {rule}; got {path} ({error.strerror}).") from error
        self._handle = self._file.fileno()
        found = os.fstat(self._handle)
        self._place, self._identity = os.path.abspath(path), (found.st_dev, found.st_ino)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise LogError(f"journal must be a plain file; got {path}, which is another kind.")

    def __del__(self) -> None:
        """Close a journal that is no longer used. Where this is interrupted, `FileIO` does it; a finalizer of `weakref` would be lost."""
        if hasattr(self, "_file"):  # not where opening it failed
            self._file.close()

    def close(self) -> None:
        """Close the file. A call that waited for its turn meanwhile may still come, and must not reach another file of the same number.

        This may be interrupted and called again: `FileIO.close` either has not begun or is done, whenever a signal handler raises.
        """
        self._handle = -1
        self._file.close()

    @classmethod
    def create(cls, path: str | Path, header: dict[str, Any], *, durable: bool = False) -> "Journal":
        """A new journal, whose first line says which policy, seed and history it belongs to; an existing file that is not empty is left
        as it is."""
        journal = cls(path, os.O_CREAT, durable)
        try:
            journal._refuse_contents()
            journal._lock()
            journal._refuse_contents()  # once more: no one else can have written since
            try:
                journal.write(encode({"format": FORMAT, "version": VERSION, **header}))
            except BaseException:
                journal.go_back(START)
                raise
            if durable:
                journal._sync_folder()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False) -> "Journal":
        """An existing journal, to be read and then gone on with from a mark (`go_back`)."""
        journal = cls(path, 0, durable)
        try:
            journal._lock()
        except BaseException:
            journal.close()
            raise
        return journal

    def _refuse_contents(self) -> None:
        if os.fstat(self._handle).st_size > 0:
            checks.refuse("journal", "be a new file", str(self.path), "To go on after a stop: Learner.recover(journal).")

    def _lock(self) -> None:
        """Refuse a second writer, where the system can tell."""
        try:
            if fcntl is not None:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LogError(f"journal must have one writer at a time; got {self.path}, which another learner has open.") from error

    def _sync_folder(self) -> None:
        """Wait for the disk to know the new file's name."""
        folder = os.open(os.path.dirname(self._place), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def lines(self, after: Line | None = None) -> Iterator[Line]:
        """The lines of the file after one of them, each checked; None: all."""
        with self.reading() as file:
            yield from watched_lines(file, self.path, after)

    def reading(self) -> BinaryIO:
        """The file, at its beginning. A second handle, if an interrupt lost it, would keep the file locked."""
        file = open(self._handle, "rb", closefd=False)  # noqa: SIM115  whoever reads it closes it
        file.seek(0)
        return file

    def write(self, text: str) -> None:
        """Add an event, given as JSON. Where this fails, part of it may be in the file until `go_back` takes it back."""
        self._check_place()
        self._begun = end, crc = self.mark
        payload = text[:-1].encode()
        crc = crc32(payload, crc)
        line = b'%b,"crc":"%08x"}\n' % (payload, crc)
        try:
            if os.write(self._handle, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.durable:
                os.fsync(self._handle)
        except OSError as error:
            raise LogError(f"journal must be a file that can be written; got {self.path} ({error.strerror}).") from error
        self.mark = Mark(end + len(line), crc)

    def write_decision(self, pending: Pending, about: str = "") -> None:
        """Write a decision, and what was said of it (`live.about.said`)."""
        error_cov = pending[0].error_cov
        if error_cov is not self._written_cov[0]:  # mostly it is that of the decision before
            self._written_cov = error_cov, encode(error_cov.tolist())
        text = decision_text(pending, self._written_cov[1])
        self.write(f"{text[:-1]}{about}}}" if about else text)

    def write_reward(self, number: int, reward: float) -> None:
        self.write(f'{{"reward_of":{number},"reward":{reward!r}}}')

    def write_forgotten(self, number: int) -> None:
        self.write(f'{{"forget":{number}}}')

    def _check_place(self) -> None:
        """Refuse to go on where the file is no longer the one that was opened, or not as it was left."""
        if self._handle < 0:
            raise LogError(f"journal must be open; got {self.path}, which was closed.")
        try:
            found = os.stat(self._place)
        except OSError as error:
            self._lost(f"{self.path} ({error.strerror})")
        if (found.st_dev, found.st_ino) != self._identity:
            self._lost(f"{self.path}, in whose place is another file")
        if found.st_size != self.mark.end:
            self._lost(f"{self.path} with {found.st_size} bytes instead of {self.mark.end}")

    def _lost(self, received: str) -> NoReturn:
        remedy = "Nothing was changed: put the file back as it was, or keep what the learner knows with save()."
        raise LogError(f"journal must stay where it is and as it was written; got {received}. {remedy}")

    def go_back(self, mark: Mark) -> None:
        """Take back the event that `write` has begun at a mark, and nothing that someone else has written there."""
        if self._begun == mark:
            self.cut(mark)
            self._begun = None  # what may be found after the mark from now on is someone else's
        self.mark = mark

    def cut(self, mark: Mark) -> None:
        """Cut off all that comes after a mark: such events do not count, or a crash has torn the last of them."""
        try:
            if os.fstat(self._handle).st_size > mark.end:
                os.ftruncate(self._handle, mark.end)
        except OSError as error:
            raise LogError(f"journal must be a file that can be shortened; got {self.path} ({error.strerror}).") from error
        self.mark = mark


def read_lines(file: BinaryIO, name: object, after: Line | None = None) -> Iterator[Line]:
    """The lines of a journal from its beginning, or after a line with a checksum, each held against its checksum; a last line without its
    end is passed over, since the call that was writing it never returned."""
    number, mark, version = (0, START, VERSION) if after is None else (after.number, after.mark, VERSION)
    file.seek(mark.end)
    while text := file.readline(LONGEST):
        number += 1
        if not text.endswith(b"\n"):
            if number == 1 or len(text) == LONGEST:
                raise LogError(f"{name} line {number} must be a line of a {FORMAT}; got {_shown(text)} without an end.")
            return
        payload, crc = (text[:-SEAL_SIZE], text[-SEAL_SIZE:]) if text[-SEAL_SIZE:].startswith(SEAL) else (text[:-1], b"")
        mark = Mark(mark.end + len(text), crc32(payload, mark.crc))
        event = _event(name, number, text)
        if number == 1:
            version = event["version"]
        if crc:
            version = VERSION  # from here on, all lines have checksums
            if crc != b'%b%08x"}\n' % (SEAL, mark.crc):
                rule = "match its checksum, which continues that of the line before"
                remedy = "Line and those before it: one of them was changed, or lines are missing. See `mebandit journal`."
                raise LogError(f"{name} line {number} must {rule}; got {_shown(text)}. {remedy}")
        elif version > UNCHECKED:
            raise LogError(f"{name} line {number} must end in a checksum; got {_shown(text)}.")
        yield Line(number, event, mark)
    if number == 0:
        raise LogError(f"{name} must begin with a journal's first line; got an empty file.")


def watched_lines(file: BinaryIO, name: object, after: Line | None = None) -> Iterator[Line]:
    """`read_lines` with a progress bar."""
    with progress_bar(os.fstat(file.fileno()).st_size // PIECE, "MiB of the journal", None) as done:
        passed = 0
        for line in read_lines(file, name, after):
            yield line
            for _ in range(passed, line.mark.end // PIECE):
                done()
            passed = line.mark.end // PIECE


def _event(name: object, number: int, text: bytes) -> dict[str, Any]:
    try:
        event = parse_json(text)
    except ValueError as error:
        raise LogError(f"{name} line {number} must be a JSON event; got {_shown(text)} ({type(error).__name__}).") from error
    known = ("format",) if number == 1 else ("decision", "reward_of", "forget")
    if not isinstance(event, dict) or not any(key in event for key in known):
        raise LogError(f"{name} line {number} must be an event with one of {', '.join(known)}; got {_shown(text)}.")
    if number == 1 and (event["format"] != FORMAT or event.get("version") not in (UNCHECKED, VERSION)):
        raise LogError(f"{name} line 1 must be that of a {FORMAT} of version {UNCHECKED} or {VERSION}; got {_shown(text)}.")
    return event


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace").strip())


def decision_text(pending: Pending, error_cov: str) -> str:
    """A decision as JSON, of which the error covariance is given: numbers that are finite are written as Python writes them."""
    (x, _, allowed, _, auxiliary), (number, action, _, propensities) = pending
    seen = f'"predicted":{x.tolist()},"error_cov":{error_cov},"allowed":{allowed.nonzero()[0].tolist()},"luck":{auxiliary!r}'
    return f'{{"decision":{number},{seen},"action":{action},"propensities":{propensities.tolist()}}}'


def decision_to_plain(pending: Pending) -> dict[str, Any]:
    """A decision as a dict that JSON can hold."""
    plain: dict[str, Any] = json.loads(decision_text(pending, encode(pending[0].error_cov.tolist())))
    return plain


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
        auxiliary=checks.number("luck", data["luck"], "be in (0, 1)", 0.0, 1.0),
    )
    propensities = checks.probabilities("propensities", data["propensities"], allowed)
    if not propensities[action] >= limits.LEAST:
        checks.refuse("propensities", f"be at least {limits.LEAST:g} for the action taken", checks.shown(propensities))
    propensities.setflags(write=False)
    return observation, Decision(observation.time, action, float(propensities[action]), propensities)


def next_id(decided: int, number: int) -> int:
    """The id of a journal's next decision, after so many: they are numbered from 1, without gaps or repetitions."""
    if number != decided + 1:
        checks.refuse("decision", f"be the next one, {decided + 1}", number)
    return number
