"""What must hold in every call: it returns or refuses, results are finite, and what is refused changes nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

made = [0]
"""how many public functions were called"""


class Unkept(Exception):
    """A promise that was not kept."""


def keep(kept: Any, promise: str) -> None:
    if not kept:
        raise Unkept(promise)


def finite(*arrays: Any) -> bool:
    return all(bool(np.isfinite(np.asarray(array, dtype=float)).all()) for array in arrays)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """A call whose refusal is what we want."""
    from mebandit import MebanditError

    made[0] += 1
    with contextlib.suppress(MebanditError):
        yield


def is_decision(pi: Any) -> bool:
    return finite(pi) and bool((np.asarray(pi) >= 0).all()) and abs(float(np.sum(pi)) - 1) < 1e-6
