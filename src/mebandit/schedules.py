"""Schedules: numbers, or yes and no, as functions of the round t = 1, 2, 3, ...

Any callable t -> value is a schedule. Those of this file are frozen dataclasses: they can be compared and saved, and print as their
constructor call. `written_out` turns a schedule into an array for a stretch of rounds, which is what the simulator reads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.values import Floats, Integers

Schedule = Callable[[int], float]

LAST = 2**62
"""the last round that is possible"""


@dataclass(frozen=True)
class Power:
    """p0(t) = min(cap, scale t^exponent); Corollary 2.1 (i) has exponent -1/3 and cap 1/2, or 1/K for K actions."""

    exponent: float
    cap: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        checks.number("Power.exponent", self.exponent, "be in [-10, 10]", -10.0, 10.0)
        for name in ("cap", "scale"):
            checks.number(f"Power.{name}", getattr(self, name))

    def __call__(self, t: Any) -> Any:
        if isinstance(t, int):
            return min(self.cap, self.scale * t**self.exponent)
        return np.minimum(self.cap, self.scale * np.asarray(t, dtype=float) ** self.exponent)


@dataclass(frozen=True)
class Steps:
    """values[i] for until[i - 1] < t <= until[i], and the last value after that. Explore, then commit: Steps((2500,), (0.5, 0.0))."""

    until: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if (
            not (isinstance(self.until, tuple) and isinstance(self.values, tuple))
            or len(self.values) != len(self.until) + 1
            or list(self.until) != sorted(set(self.until))
        ):
            checks.refuse("Steps", "have increasing `until` and one more value than that", f"until={self.until}, values={self.values}")
        for value in (*self.until, *self.values):
            checks.number("Steps", value, "be made of numbers")

    def __call__(self, t: Any) -> Any:
        return np.asarray(self.values)[np.searchsorted(np.asarray(self.until), t, side="left")]


@dataclass(frozen=True)
class Smallest:
    """The smallest of several floors, each a number or a schedule."""

    floors: tuple[float | Schedule, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.floors, tuple) or not self.floors:
            checks.refuse("Smallest.floors", "be a tuple of one or more floors", checks.shown(self.floors))
        for floor in self.floors:
            if not callable(floor):
                checks.number("Smallest.floors", floor, "be made of numbers and schedules")

    def __call__(self, t: Any) -> Any:
        written: list[Any] = [evaluate(f, t) if callable(f) else np.full(np.shape(t), f) for f in self.floors]
        return np.min(written, axis=0)


@dataclass(frozen=True)
class EveryRound:
    """Refit after each round."""

    def __call__(self, t: Any) -> Any:
        return np.asarray(t) >= 1


@dataclass(frozen=True)
class Every:
    """Refit after rounds t0, 2 t0, 3 t0, ... (App. E.4, first choice of S)."""

    rounds: int

    def __post_init__(self) -> None:
        checks.integer("Every.rounds", self.rounds, 1, LAST)

    def __call__(self, t: Any) -> Any:
        return np.asarray(t) % self.rounds == 0


@dataclass(frozen=True)
class PowersOf:
    """Refit after rounds base, base^2, base^3, ... (App. E.4, second choice of S): O(log T) refits in all."""

    base: int = 2

    def __post_init__(self) -> None:
        checks.integer("PowersOf.base", self.base, 2, LAST)

    def __call__(self, t: Any) -> Any:
        if isinstance(t, int):
            while t > 1 and t % self.base == 0:
                t //= self.base
                if t == 1:
                    return True
            return False
        powers = [self.base**k for k in range(1, math.ceil(63 / math.log2(self.base)))]
        return np.isin(t, powers)


@dataclass(frozen=True)
class At:
    """Refit after exactly these rounds (App. E.4, any set S)."""

    rounds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, tuple):
            checks.refuse("At.rounds", "be a tuple of rounds", checks.shown(self.rounds))
        for round in self.rounds:
            checks.integer("At.rounds", round, 1, LAST)

    def __call__(self, t: Any) -> Any:
        return np.isin(t, self.rounds)


@dataclass(frozen=True)
class Until:
    """Refit as the schedule `inner` says up to the round `last`, and never after it: the fit is then frozen."""

    last: int
    inner: Callable[[Any], Any] = EveryRound()

    def __post_init__(self) -> None:
        checks.integer("Until.last", self.last, 0, LAST)
        if not callable(self.inner):
            checks.refuse("Until.inner", "be a schedule", checks.shown(self.inner))

    def __call__(self, t: Any) -> Any:
        return evaluate(self.inner, t) & (np.asarray(t) <= self.last)


@dataclass(frozen=True)
class Preset:
    """A floor and a warm-up length that belong together, given to a policy as `meb(2, 5, **standard(50_000, 5))`."""

    floor: float | Schedule
    """p0, the smallest probability of an allowed action: a number or a schedule"""
    warmup: int
    """T0, the number of first decisions with equal probabilities"""

    def keys(self) -> tuple[str, str]:
        return ("floor", "warmup")

    def __getitem__(self, key: str) -> Any:
        return {"floor": self.floor, "warmup": self.warmup}[key]


def standard(horizon: int, dim: int, *, n_actions: int = 2) -> Preset:
    """Corollary 2.1 (i), regret against the best action: T0 = ⌈2 d T^(2/3)⌉, p0(t) = min(1/2, 1/K, t^(-1/3)).

    Args:
        horizon: T, the number of rounds.
        dim: d, the number of features.
        n_actions: K, the number of actions.

    >>> standard(1000, 2)
    Preset(floor=Power(exponent=-0.3333333333333333, cap=0.5, scale=1.0), warmup=400)
    """
    horizon, dim = checks.integer("horizon", horizon, 1, 2**32), checks.integer("dim", dim, 1, 2**32)
    cap = min(0.5, 1.0 / checks.integer("n_actions", n_actions, 2, 2**32))
    return Preset(Power(-1 / 3, cap), math.ceil(2 * dim * round(horizon ** (2 / 3), 9)))


def clipped(floor: float, horizon: int, dim: int, *, n_actions: int = 2) -> Preset:
    """Corollary 2.1 (ii), regret against the clipped benchmark: T0 = ⌈2 d √T⌉, p0 constant.

    Args:
        floor: p0, the smallest probability of an action.
        horizon: T, the number of rounds.
        dim: d, the number of features.
        n_actions: K, the number of actions.

    >>> clipped(0.2, 10_000, 5)
    Preset(floor=0.2, warmup=1000)
    """
    horizon, dim = checks.integer("horizon", horizon, 1, 2**32), checks.integer("dim", dim, 1, 2**32)
    highest = 1.0 / checks.integer("n_actions", n_actions, 2, 2**32)
    floor = checks.number("floor", floor, f"be in (0, 1/n_actions] = (0, {highest:g}]", 1e-12, highest)
    return Preset(floor, math.ceil(2 * dim * math.sqrt(horizon)))


def evaluate(schedule: Callable[[Any], Any], t: Any) -> Any:
    """schedule(t) for one round or for an array of rounds; a schedule of your own is called once for each round."""
    if np.ndim(t) == 0:
        return schedule(int(t))
    return schedule(t) if type(schedule).__module__ == __name__ else np.array([schedule(int(i)) for i in t])


def written_out(schedule: Callable[[Any], Any], times: Integers, dtype: type = float) -> Any:
    """schedule(t) for every t of `times`, as an array of the given `dtype`."""
    return np.asarray(evaluate(schedule, times), dtype=dtype)


def floors(floor: float | Schedule, times: Integers, n_actions: int) -> Floats:
    """A floor, given as a number or a schedule, as an array with one checked value in [0, 1/n_actions] for each round of `times`."""
    values: Floats = written_out(floor, times) if callable(floor) else np.full(times.size, float(floor))
    bad = ~((values >= 0) & (values <= 1 / n_actions + 1e-12))
    if bad.any():
        t = int(np.argmax(bad))
        checks.refuse(f"floor({times[t]})", f"be in [0, 1/n_actions] = [0, {1 / n_actions:g}]", values[t])
    return np.minimum(values, 1 / n_actions)


def log_spaced(horizon: int, points: int = 200) -> Integers:
    """About `points` different rounds from 1 to the horizon, both included, evenly spaced on a log scale."""
    return np.unique(np.round(np.geomspace(1, horizon, points)).astype(np.int64))


__all__ = [
    "At", "Every", "EveryRound", "Power", "PowersOf", "Preset", "Schedule", "Smallest", "Steps", "Until",
    "clipped", "evaluate", "floors", "log_spaced", "standard", "written_out",
]  # fmt: skip
