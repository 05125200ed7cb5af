"""A world that does not stay as it is: the mean of the context moves, or the reward parameters do."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.environments.base import Wrapped, tape_of
from mebandit.environments.gaussian import as_tuples
from mebandit.values import Floats, Stretch, Tape


@dataclass(frozen=True, kw_only=True)
class Drifting(Wrapped):
    """x_t + mean sin(2πt/period) in place of x_t, and θ + theta sin(2πt/period) in place of θ.

    mean is a number or (d,), theta a number or (K, d); the error stays as it is.
    """

    mean: Any = 0.0
    theta: Any = 0.0
    period: float = 2500.0

    def __post_init__(self) -> None:
        super().__post_init__()
        mean = checks.floats("mean", np.broadcast_to(self.mean, (self.dim,)) if np.ndim(self.mean) == 0 else self.mean, (self.dim,))
        shape = (self.n_actions, self.dim)
        theta = checks.floats("theta", np.broadcast_to(self.theta, shape) if np.ndim(self.theta) == 0 else self.theta, shape)
        object.__setattr__(self, "mean", as_tuples(mean))
        object.__setattr__(self, "theta", as_tuples(theta))
        object.__setattr__(self, "period", checks.number("period", self.period, "be a number of at least 2", 2.0))

    def tape(self, stretch: Stretch) -> Tape:
        tape = tape_of(self.world, stretch)
        wave: Floats = np.sin(2 * np.pi * np.arange(stretch.start + 1, stretch.stop + 1) / self.period)
        moved = wave[:, None] * np.array(self.mean)
        theta, guess = tape.theta, tape.guess + moved  # NaN stays NaN
        if np.any(self.theta):
            theta = theta + wave[:, None, None] * np.array(self.theta)
        return tape._replace(context=tape.context + moved, theta=np.ascontiguousarray(theta), guess=guess)
