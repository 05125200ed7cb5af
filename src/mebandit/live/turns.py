"""One call at a time: the right to use a learner, which threads hand to each other.

A call takes the turn with one atomic operation on a dict, and gives it back with another:

    mine = []                                        # a new object for each call
    try:
        if turn.setdefault(TURN, mine) is not mine:
            turn.wait(mine)
        ...
        turn.clear()
    except BaseException:
        if TURN in turn and turn[TURN] is mine:
            turn.clear()
        raise

This costs some 50 ns, a third of what `with threading.Lock()` does; a live decision takes about 2000. No exception from a signal handler
can lose the turn: handlers run at the end of a call, not between other operations, so when one strikes in `setdefault` the `try` has begun,
and when one strikes in `clear` the turn is given back already. `turn.get(TURN)` in the place of `turn[TURN]` would be such a call.
"""

import sys
from collections.abc import Callable, Iterator
from time import sleep
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar

from mebandit import checks

Call = TypeVar("Call", bound=Callable[..., Any])
TURN = 0
"""the only key of a `Turn`"""
NAME = "mine"
"""the local variable of a call that holds its object"""
SHORTEST, LONGEST = 2e-5, 1e-3
"""seconds between two looks of a thread that waits"""
CALLS: set[CodeType] = set()
"""the code of all functions that take turns"""


def takes_turns(call: Call) -> Call:
    """Mark a function that takes turns, so that a call from within it can see that it is running."""
    CALLS.add(call.__code__)
    return call


class Turn(dict[int, list[None]]):
    """Empty, or with the object of the call whose turn it is."""

    def wait(self, mine: list[None]) -> None:
        """Take the turn once it is free; refused where a call of this very thread has it, which could never end.

        Frames of other threads are not looked at: these threads run on meanwhile, and a frame may then be wrong about its caller.
        """
        delay = SHORTEST
        while (other := self.setdefault(TURN, mine)) is not mine:
            if any(_holds(frame, other) for frame in _stack(sys._getframe(1))):
                received = "one from within another, by a signal handler or by the learner's own policy"
                checks.refuse("a learner's calls", "come one after the other", received, "Make it after the first call has returned.")
            sleep(delay)
            delay = min(2 * delay, LONGEST)


class Refused(Turn):
    """In the place of a turn: every call is refused with the same error."""

    def __init__(self, error: checks.MebanditError) -> None:
        super().__init__()
        self._error = error

    def setdefault(self, *_: object) -> NoReturn:
        raise type(self._error)(*self._error.args)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holds(frame: FrameType, other: list[None]) -> bool:
    return frame.f_code in CALLS and frame.f_locals.get(NAME) is other
