"""One call at a time: the right to use a learner, which threads hand to each other.

A queue that holds one turn is a lock whose taking and giving back cost 50 ns, a third of what `with threading.Lock()` does; a live decision
takes about 2000. And it can be mended: an exception from a signal handler may strike between the taking and the `try` that gives back.
The turn is then gone, which can be seen, and a new one takes its place.
"""

import sys
import weakref
from collections.abc import Container
from queue import Empty, SimpleQueue
from threading import Lock
from types import CodeType, FrameType
from typing import Any, NoReturn

from mebandit import checks

PATIENCE = 0.02
"""seconds after which one who waits looks whether the turn is gone"""
MENDING = Lock()


class Turn:
    """Whoever has taken it out of its queue may use what it stands for, until it is put back."""

    __slots__ = ("__weakref__",)


class Turns(SimpleQueue[Turn]):
    """Turns at something: `get(False)` takes the only one there is, or raises `queue.Empty`; `put` gives it back."""

    def __init__(self) -> None:
        self._offer()

    def _offer(self) -> None:
        turn = Turn()
        self._seen = weakref.ref(turn)
        self.put(turn)

    def wait(self, owner: Any, calls: Container[CodeType]) -> Turn:
        """The turn, once the call that has it is over; refused where that is a call of this very thread, which could never end.

        `calls` are the functions that take turns. The one that asks is on this thread's stack; a second one, of the same owner, has the
        turn.
        """
        frame: FrameType | None = sys._getframe(1)
        found = 0
        while frame is not None:
            found += frame.f_code in calls and frame.f_locals.get("self") is owner
            frame = frame.f_back
        if found > 1:
            received = "one from within another, by a signal handler or by the learner's own policy"
            checks.refuse("a learner's calls", "come one after the other", received, "Make it after the first call has returned.")
        while True:
            try:
                return self.get(timeout=PATIENCE)
            except Empty:
                with MENDING:
                    if self._seen() is None:
                        self._offer()


class Refused(Turns):
    """In the place of turns: every call is refused with the same error."""

    def __init__(self, error: checks.MebanditError) -> None:
        self._error = error

    def get(self, block: bool = True, timeout: float | None = None) -> NoReturn:
        raise type(self._error)(*self._error.args)
