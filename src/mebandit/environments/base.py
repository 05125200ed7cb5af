"""What an environment is: it writes tapes. A tape holds all that is random about a stretch of rounds, before any decision."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mebandit import _kernels, checks
from mebandit.values import Floats, Stretch, Tape, World

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


def draw_tape(
    world: World,
    stretch: Stretch,
    *,
    theta: Floats,
    error_cov: Floats,
    carry: tuple[int, float, Floats] | None = None,
) -> Tape:
    """A tape from a world: the mixture is drawn with counted random numbers, the rest is given."""
    n, d, k = stretch.stop - stretch.start, world.mean.shape[1], theta.shape[-2]
    index, decay, gain = carry if carry is not None else (-1, 0.0, np.zeros(k))
    tape = Tape(
        context=np.empty((n, d)),
        error=np.empty((n, d)),
        component=np.empty(n, dtype=np.int64),
        error_cov=error_cov,
        noise=np.empty(n),
        uniform=np.empty(n),
        luck=np.empty(n),
        allowed=np.ones((1, k), dtype=np.bool_),
        theta=theta,
        guess=np.full((1, d), np.nan),
        carry_index=index,
        carry_decay=decay,
        carry_gain=gain,
    )
    _kernels.fill_tape(world, stretch, tape, np.empty(d))
    return tape


def square_root(covariance: Floats) -> Floats:
    """A factor F with F F' = covariance, also for a singular one; lower triangular where Cholesky's exists."""
    try:
        return np.linalg.cholesky(covariance).astype(np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return root
