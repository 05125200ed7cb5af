"""What an environment is: it writes tapes. A tape holds all that is random about a stretch of rounds, before any decision."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mebandit import _kernels, checks
from mebandit.values import Floats, Integers, Stretch, Tape, World

ERRORS = {
    "normal": _kernels.NORMAL,
    "student_t": _kernels.STUDENT_T,
    "uniform": _kernels.UNIFORM_NOISE,
    "bounded": _kernels.TWO_POINT,
}
"""distributions of independent, standardised error coordinates; "bounded" takes the two values ±1"""

CONTEXTS = {"normal": _kernels.NORMAL, "exponential": _kernels.EXPONENTIAL}
"""distributions of independent, standardised context coordinates"""


@runtime_checkable
class Environment(Protocol):
    """A world to simulate. Any class with these members is one; see `mebandit.check_environment`."""

    @property
    def n_actions(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def tape(self, stretch: Stretch) -> Tape:
        """A stretch of rounds: a pure function of where it lies, the same in whatever pieces it is asked for."""
        ...


class Drawn:
    """An environment whose rounds compiled code draws: it says of which world."""

    def world_of(self, stretch: Stretch) -> World:
        """The world that a replicate plays in."""
        raise NotImplementedError

    def worlds(self, seed: int, first: int, end: int) -> tuple[list[World], Integers]:
        """The worlds of replicates first, ..., end - 1, and for each of them which one is its own."""
        return [self.world_of(Stretch(seed, 0, first, 0, 1))], np.zeros(end - first, dtype=np.int64)

    def tape(self, stretch: Stretch) -> Tape:
        return draw_tape(self.world_of(stretch), stretch)


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """An environment made from another, whose shape it has."""

    world: Environment

    def __post_init__(self) -> None:
        if not isinstance(self.world, Environment) or isinstance(self.world, type):
            checks.refuse("world", "be an environment, such as Gaussian()", checks.shown(self.world))

    @property
    def n_actions(self) -> int:
        return self.world.n_actions

    @property
    def dim(self) -> int:
        return self.world.dim


def unknown(dim: int) -> tuple[Floats, Floats]:
    """`World.offset` and `World.gain` where E[x | x̃] is not an affine function that is known."""
    return np.empty((0, dim)), np.empty((0, dim, dim))


def draw_tape(world: World, stretch: Stretch) -> Tape:
    """A tape from a world: the mixture is drawn with counted random numbers, the rest is given."""
    n, (k, d) = stretch.stop - stretch.start, world.theta.shape
    tape = Tape(
        context=np.empty((n, d)),
        error=np.empty((n, d)),
        component=np.empty(n, dtype=np.int64),
        error_cov=world.error_cov,
        noise=np.empty(n),
        uniform=np.empty(n),
        luck=np.empty(n),
        allowed=np.ones((1, k), dtype=np.bool_),
        theta=world.theta[None],
        guess=np.empty((n, d)) if len(world.gain) else np.full((1, d), np.nan),
        carry_index=world.carry_index,
        carry_decay=world.carry_decay,
        carry_gain=world.carry_gain,
    )
    _kernels.fill_tape(world, stretch, tape)
    return tape


def square_root(covariance: Floats) -> Floats:
    """A factor F with F F' = covariance, also for a singular one; lower triangular where Cholesky's exists."""
    try:
        return np.linalg.cholesky(covariance).astype(np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return root
