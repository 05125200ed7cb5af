"""What a process counts of its answers between two looks: how many, how many repeated, how many contradicted, and how long they took."""

import threading
from collections import defaultdict, deque
from typing import Any

KEPT = 1000
"""times that are kept between two looks: the last"""


class Beat:
    """The counts of one experiment."""

    def __init__(self) -> None:
        self.answers = self.repeated = self.conflicts = 0
        self.seconds: deque[float] = deque(maxlen=KEPT)

    def plain(self) -> dict[str, Any]:
        """The counts, with quantiles of the times, as JSON can hold them."""
        times = sorted(self.seconds)
        found = {f"p{share}": times[min(len(times) * share // 100, len(times) - 1)] if times else None for share in (50, 99)}
        return {"answers": self.answers, "repeated": self.repeated, "conflicts": self.conflicts, **found}


class Pulse:
    """The counts of a process. Threads share it."""

    def __init__(self) -> None:
        self._beats: defaultdict[str, Beat] = defaultdict(Beat)
        self._one = threading.Lock()

    def answered(self, x: str, *, repeated: bool) -> None:
        """Count an answer."""
        with self._one:
            self._beats[x].answers += 1
            self._beats[x].repeated += repeated

    def conflicted(self, x: str) -> None:
        """Count a request that contradicts an earlier one of its name."""
        with self._one:
            self._beats[x].conflicts += 1

    def took(self, x: str, seconds: float) -> None:
        """Note how long a decision took."""
        with self._one:
            self._beats[x].seconds.append(seconds)

    def taken(self) -> dict[str, dict[str, Any]]:
        """What was counted since this was asked last, by experiment."""
        with self._one:
            beats, self._beats = self._beats, defaultdict(Beat)
        return {x: beat.plain() for x, beat in beats.items()}
