"""Environments that change over time: the mean of the context drifts, or the reward parameters do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.environments.base import Wrapped, tape_of
from mebandit.environments.gaussian import as_tuples
from mebandit.values import Floats, Integers, Stretch, Tape

SHAPES: dict[str, Callable[[Integers, float], Floats]] = {
    "sine": lambda t, period: np.sin(2 * np.pi * t / period),
    "step": lambda t, period: (t > 0.5 * period).astype(np.float64),
}
"""s_t as a function of t and the period"""


@dataclass(frozen=True, kw_only=True)
class Drifting(Wrapped):
    """An environment that drifts: x_t + mean s_t replaces x_t, and θ + theta s_t replaces θ. The error of the prediction does not change.

    s_t = sin(2πt / period),     or with shape="step": 0 in the first half of the first period, and 1 from then on
    """

    mean: Any = 0.0
    """amplitude of the drift of the context: a number, or (d,)"""
    theta: Any = 0.0
    """amplitude of the drift of the reward parameters: a number, or (K, d)"""
    period: float = 2500.0
    """rounds of one period, at least 2"""
    shape: str = "sine"
    """how s_t moves: "sine" or "step" """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, shape in (("mean", (self.dim,)), ("theta", (self.n_actions, self.dim))):
            object.__setattr__(self, name, as_tuples(checks.filled(name, getattr(self, name), shape)))
        checks.one_of("shape", self.shape, SHAPES)
        object.__setattr__(self, "period", checks.number("period", self.period, "be a number of at least 2", 2.0))

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        if len(tape.mean_reward):
            remedy = "Make Nonlinear from the drifting environment instead."
            checks.refuse("world", "have rewards that are linear in the context", checks.shown(self.world), remedy)
        wave = SHAPES[self.shape](np.arange(stretch.start + 1, stretch.stop + 1), self.period)
        moved = wave[:, None] * np.array(self.mean)
        theta, guess = tape.theta, tape.guess + moved  # NaN stays NaN
        if np.any(self.theta):
            theta = theta + wave[:, None, None] * np.array(self.theta)
        return tape._replace(context=tape.context + moved, theta=np.ascontiguousarray(theta), guess=guess)
