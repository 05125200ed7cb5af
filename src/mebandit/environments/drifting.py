"""Environments that change over time: the mean of the context drifts, or the reward parameters do."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.environments.base import Wrapped, tape_of
from mebandit.environments.gaussian import as_tuples
from mebandit.values import Floats, Stretch, Tape


@dataclass(frozen=True, kw_only=True)
class Drifting(Wrapped):
    """An environment with a periodic drift: x_t + mean sin(2πt/period) replaces x_t, and θ + theta sin(2πt/period) replaces θ.

    The error of the prediction does not change.
    """

    mean: Any = 0.0
    """amplitude of the drift of the context: a number, or (d,)"""
    theta: Any = 0.0
    """amplitude of the drift of the reward parameters: a number, or (K, d)"""
    period: float = 2500.0
    """rounds of one period, at least 2"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, shape in (("mean", (self.dim,)), ("theta", (self.n_actions, self.dim))):
            given = getattr(self, name)
            alike = checks.regular(name, given).size == 1 and np.ndim(given) == 0
            amplitude = checks.floats(name, np.broadcast_to(given, shape) if alike else given, shape)
            object.__setattr__(self, name, as_tuples(amplitude))
        object.__setattr__(self, "period", checks.number("period", self.period, "be a number of at least 2", 2.0))

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        wave: Floats = np.sin(2 * np.pi * np.arange(stretch.start + 1, stretch.stop + 1) / self.period)
        moved = wave[:, None] * np.array(self.mean)
        theta, guess = tape.theta, tape.guess + moved  # NaN stays NaN
        if np.any(self.theta):
            theta = theta + wave[:, None, None] * np.array(self.theta)
        return tape._replace(context=tape.context + moved, theta=np.ascontiguousarray(theta), guess=guess)
