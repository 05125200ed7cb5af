"""Hostile arguments: numbers at the ends of what is allowed, and things that are wrong in some way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
Hostile = Callable[[Rng, Path], None]

NUMBERS = [0.0, 1.0, -1.0, 0.3, 1e-320, -1e-320, 1e-160, 1e-100, 1e-50, -1e-50, 1e-12, 1e25, 1e50, -1e50]
"""that may be used, each on its own"""
NO_NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e51, -1e308]
THINGS = [
    None, True, "x", "", b"x", [], {}, (), [[1.0], [1.0, 2.0]], 1j, 10**400, -1, 0, 2**63, 1e308, float("nan"), np.float32(1), object(),
    np.array(["a"]), np.array(None), np.zeros((0, 0)), np.zeros((2, 2, 2, 2)), np.datetime64("2020-01-01"),
    np.ma.array([1.0, 2.0], mask=[True, False]), {"a": 1},
]  # fmt: skip


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def extreme(rng: Rng, *shape: int) -> Any:
    """Usable numbers of all sizes; of few sizes in one array, so that they meet in products."""
    some = np.array([pick(rng, NUMBERS) for _ in range(int(rng.integers(1, 4)))])
    if rng.random() < 0.4:
        return rng.normal(size=shape)
    return np.clip(rng.choice(some, size=shape) * (rng.normal(size=shape) if rng.random() < 0.5 else 1.0), -1e50, 1e50)


def spoilt(rng: Rng, value: Any) -> Any:
    """Something like a value, and wrong."""
    kind = int(rng.integers(10))
    if kind < 2:
        return pick(rng, THINGS)
    array = np.array(value, dtype=float)
    if kind == 2 and array.size:
        array.flat[int(rng.integers(array.size))] = pick(rng, NO_NUMBERS)
    elif kind == 3:
        return array.astype(pick(rng, ["float32", "int64", "object", "complex", "U8", ">f8", "bool", "i1"]))
    elif kind == 4:
        return np.resize(array, tuple(int(n) for n in rng.integers(0, 4, size=int(rng.integers(0, 4)))))
    elif kind == 5 and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2] if rng.random() < 0.5 else array[::-1]
    elif kind == 6:
        return np.broadcast_to(np.float64(pick(rng, NUMBERS)), array.shape)
    elif kind == 7:
        array.setflags(write=False)
    elif kind == 8:
        return np.asfortranarray(array)
    elif array.size:
        array.flat[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    return array


def perhaps(rng: Rng, value: Any, share: float = 0.1) -> Any:
    """A value, now and then spoilt."""
    if rng.random() >= share:
        return value
    try:
        return spoilt(rng, value)
    except (TypeError, ValueError):
        return pick(rng, THINGS)


def with_spoilt(rng: Rng, given: dict[str, Any], share: float = 0.5) -> dict[str, Any]:
    """Arguments, of which perhaps one is spoilt."""
    if given and rng.random() < share:
        name = pick(rng, sorted(given))
        given[name] = perhaps(rng, given[name], 1.0)
    return given


def covariance(rng: Rng, d: int) -> Any:
    kind = int(rng.integers(4))
    if kind == 0:
        return np.abs(extreme(rng, d))
    factor = extreme(rng, d, d) if kind == 1 else rng.normal(size=(d, d))
    with np.errstate(all="ignore"):
        return abs(float(extreme(rng))) if kind == 3 else factor @ factor.T


def mangled(rng: Rng, plain: Any) -> Any:
    """JSON-like data with one part replaced."""
    if isinstance(plain, dict) and plain and rng.random() < 0.9:
        key = pick(rng, sorted(plain))
        return {k: v for k, v in plain.items() if k != key} if rng.random() < 0.1 else plain | {key: mangled(rng, plain[key])}
    if isinstance(plain, list) and plain and rng.random() < 0.9:
        i = int(rng.integers(len(plain)))
        return plain[:i] + plain[i + 1 :] if rng.random() < 0.05 else [*plain[:i], mangled(rng, plain[i]), *plain[i + 1 :]]
    return pick(rng, [0, -1, 1, 2, 1e9, 1e290, -1e290, 1e-320, 0.5, 10**30, None, "x", [], {}, True, [1], "float32", 10**10])


def perhaps_thing(rng: Rng, value: Any) -> Any:
    return pick(rng, THINGS) if rng.random() < 0.03 else value
