"""The protocol of environments, the check of their tapes, and the base classes of the environments in this package.

An environment gives tapes. A tape holds all that is random in a stretch of rounds, drawn before any decision.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mebandit import checks, kernels
from mebandit.values import Floats, Integers, Stretch, Tape, World

ERRORS = {
    "normal": kernels.NORMAL,
    "student_t": kernels.STUDENT_T,
    "uniform": kernels.UNIFORM_NOISE,
    "bounded": kernels.TWO_POINT,
    "exponential": kernels.EXPONENTIAL,
}
"""distributions of the error: independent coordinates with mean 0 and variance 1; "bounded" has the two values ±1"""

LAST = 2**32 - 1
"""the largest cell, replicate and round: random numbers are counted with 32 bits each"""

LONGEST = 10**8
"""rounds of one tape, at most"""

NEGLIGIBLE = 1e-13
"""the share of a variance below which what other variables leave unexplained is rounding"""

CONTEXTS = {"normal": kernels.NORMAL, "exponential": kernels.EXPONENTIAL, "lognormal": kernels.LOGNORMAL}
"""distributions of the context: independent coordinates with mean 0 and variance 1"""


@runtime_checkable
class Environment(Protocol):
    """A simulated world. Any class with these members is an environment; `mebandit.check_environment` checks it."""

    @property
    def n_actions(self) -> int:
        """The number of actions, K."""
        ...

    @property
    def dim(self) -> int:
        """The number of features of the context, d."""
        ...

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds.

        A pure function of the stretch. A round is the same in whatever stretch it is asked for.

        Args:
            stretch: The rounds start + 1, ..., stop of one replicate, with the seed of the random numbers.
        """
        ...


def is_ours(environment: object) -> bool:
    """Whether an environment is of a class of this library, and what it gives need not be checked."""
    return type(environment).__module__.startswith("mebandit.")


def tape_of(environment: Environment, stretch: Stretch) -> Tape:
    """The tape of an environment. It is checked if the environment is a user's own class, since compiled code does not check it."""
    if is_ours(environment):
        return environment.tape(stretch)
    name = f"{type(environment).__name__}.tape"
    return checked_tape(name, environment.tape(stretch), environment.n_actions, environment.dim, stretch.stop - stretch.start)


def checked_tape(name: str, tape: object, n_actions: int, dim: int, rounds: int) -> Tape:
    """A tape, every part of which is checked and stored as compiled code reads it.

    Args:
        name: What messages call the tape.
        tape: What the environment gave.
        n_actions: The number of actions, K.
        dim: The number of features, d.
        rounds: The number of rounds that were asked for, B.
    """
    k, d = checks.integer("n_actions", n_actions, 2), checks.integer("dim", dim, 1)
    if not isinstance(tape, tuple) or len(tape) != len(Tape._fields):
        checks.refuse(name, "give a Tape", checks.shown(tape))
    given = Tape(*tape)

    def numbers(field: str, *shape: int | None, usable: bool = True) -> Floats:
        """One of the arrays. A first length of None stands for B or 1."""
        what, value = f"{name} {field}", getattr(given, field)
        array = (checks.floats if usable else checks.shaped)(what, value, shape)
        if shape[0] is None and len(array) not in (1, rounds):
            checks.refuse(what, f"have 1 or {rounds} entries", len(array))
        return array if array.flags.carray else array.copy()

    checks.regular(f"{name} allowed", given.allowed)
    allowed = np.asarray(given.allowed)
    if allowed.dtype != np.bool_ or allowed.shape not in ((1, k), (rounds, k)) or not allowed.any(axis=1).all():
        checks.refuse(f"{name} allowed", f"be booleans of shape (1 or {rounds}, {k}) that allow an action", checks.shown(given.allowed))
    covariances = checks.regular(f"{name} error_cov", given.error_cov)
    if covariances.ndim != 3 or not len(covariances):
        checks.refuse(f"{name} error_cov", f"have shape (1 or more, {d}, {d})", f"shape {covariances.shape}")
    uniform, auxiliary = numbers("uniform", rounds), numbers("auxiliary", rounds)
    for field, values in (("uniform", uniform), ("auxiliary", auxiliary)):
        if not ((values > 0) & (values < 1)).all():
            checks.refuse(f"{name} {field}", "be in (0, 1)", checks.shown(values))
    checks.regular(f"{name} component", given.component)
    component = np.asarray(given.component)
    if component.shape != (rounds,) or component.dtype.kind not in "iu":
        checks.refuse(f"{name} component", "have a whole number for each round", checks.shown(given.component))
    if not ((component >= 0) & ((component < len(covariances)) | (len(covariances) == 1))).all():
        checks.refuse(f"{name} component", "point into error_cov", checks.shown(component))
    noise, means = (checks.regular(f"{name} {field}", getattr(given, field)) for field in ("noise", "mean_reward"))
    noise = noise[:, None] if noise.ndim == 1 else noise
    given = given._replace(noise=noise, mean_reward=means if means.size else np.empty((0, k)))
    return Tape(
        context=numbers("context", rounds, d),
        error=numbers("error", rounds, d),
        component=component.astype(np.int64),
        error_cov=checks.covariances(f"{name} error_cov", covariances, d, len(covariances)).copy(),
        noise=numbers("noise", rounds, k if noise.shape[-1] == k else 1),
        uniform=uniform,
        auxiliary=auxiliary,
        allowed=np.array(allowed, order="C"),
        theta=numbers("theta", None, k, d),
        guess=numbers("guess", None, d, usable=False),
        carry_index=checks.integer(f"{name} carry_index", given.carry_index, -1, d - 1),
        carry_decay=checks.number(f"{name} carry_decay", given.carry_decay, "be in [-1, 1]", -1.0, 1.0),
        carry_gain=numbers("carry_gain", k),
        mean_reward=numbers("mean_reward", rounds if means.size else 0, k),
    )


def mean_rewards(tape: Tape) -> Floats:
    """E[r | x, a] of every round of a tape, (B, K)."""
    if len(tape.mean_reward):
        return tape.mean_reward
    n, (_, k, d) = len(tape.context), tape.theta.shape
    return np.asarray(np.einsum("tkd,td->tk", np.broadcast_to(tape.theta, (n, k, d)), tape.context))


def check_stretch(stretch: Stretch) -> Stretch:
    """A stretch whose numbers are valid."""
    if not isinstance(stretch, tuple) or len(stretch) != len(Stretch._fields):
        checks.refuse("stretch", "be a Stretch", checks.shown(stretch))
    seed, cell, replicate, start, stop = stretch
    start = checks.integer("start", start, 0, LAST)
    return Stretch(
        checks.integer("seed", seed, 0, 2**63 - 1),
        checks.integer("cell", cell, 0, LAST),
        checks.integer("replicate", replicate, 0, LAST),
        start,
        checks.integer("stop", stop, start, min(start + LONGEST, LAST)),
    )


class Drawn:
    """The base class of environments whose tapes compiled code draws: a subclass only describes its world."""

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate.

        Args:
            stretch: Rounds of the replicate. All stretches of one replicate give the same world.
        """
        raise NotImplementedError

    def worlds(self, seed: int, first: int, end: int) -> tuple[list[World], Integers]:
        """The different worlds of replicates first, ..., end - 1, and for each replicate the number of its world.

        Args:
            seed: The seed of the simulation, a whole number from 0.
            first: The first replicate, from 0.
            end: The replicate after the last.
        """
        return [self.world_of(Stretch(seed, 0, first, 0, 1))], np.zeros(end - first, dtype=np.int64)

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        stretch = check_stretch(stretch)
        world = self.world_of(stretch)
        return drawn_tape(world, stretch) if is_ours(self) else draw_tape(world, stretch)


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """The base class of environments that change another one, with the same numbers of actions and features."""

    world: Environment
    """the environment to change"""

    def __post_init__(self) -> None:
        if not isinstance(self.world, Environment) or isinstance(self.world, type):
            checks.refuse("world", "be an environment, such as Gaussian()", checks.shown(self.world))

    @property
    def n_actions(self) -> int:
        """The number of actions, K."""
        return self.world.n_actions

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.world.dim


def unknown(dim: int) -> tuple[Floats, Floats]:
    """`World.offset` and `World.gain` where E[x | x̃] is not known to be affine."""
    return np.empty((0, dim)), np.empty((0, dim, dim))


def checked_world(world: object) -> World:
    """A world, every part of which is checked and stored as compiled code reads it."""
    if not isinstance(world, tuple) or len(world) != len(World._fields):
        checks.refuse("world", "be a World", checks.shown(world))
    given = World(*world)
    theta = checks.floats("world.theta", given.theta, (None, None))
    k, d = checks.integer("the number of rows of world.theta", len(theta), 2), checks.integer("world's features", theta.shape[1], 1)
    mean = checks.floats("world.mean", given.mean, (None, d))
    c = checks.integer("the number of rows of world.mean", len(mean), 1)

    def by_component(field: str, *shape: int, lengths: tuple[int, ...] = (1, c)) -> Floats:
        """An array with an entry for each component, or a single one."""
        array = checks.floats(f"world.{field}", getattr(given, field), (None, *shape))
        if len(array) not in lengths:
            checks.refuse(f"world.{field}", f"have {' or '.join(map(str, lengths))} entries", len(array))
        return array

    def kind(field: str) -> int:
        code = checks.integer(f"world.{field}", getattr(given, field), kernels.NORMAL, kernels.LOGNORMAL)
        if code == kernels.STUDENT_T and not (field == "error_kind" and error_df > 2.0):
            checks.refuse(f"world.{field}", "be Student's t for the error alone, with error_df above 2", code)
        return code

    error_df = checks.number("world.error_df", given.error_df)
    gain = by_component("gain", d, d, lengths=(0, 1, c))
    error_cov = by_component("error_cov", d, d)
    return World(
        cumulative=by_component("cumulative", lengths=(0, c)),
        mean=mean,
        factor=by_component("factor", d, d),
        error_mean=by_component("error_mean", d),
        error_factor=by_component("error_factor", d, d),
        random_context=checks.truth("world.random_context", given.random_context),
        random_error=checks.truth("world.random_error", given.random_error),
        hold=checks.integer("world.hold", given.hold, 1, LAST),
        context_kind=kind("context_kind"),
        error_kind=kind("error_kind"),
        error_df=error_df,
        noise_kind=kind("noise_kind"),
        noise_sd=checks.number("world.noise_sd", given.noise_sd, "be at least 0", 0.0),
        theta=theta,
        error_cov=checks.covariances("world.error_cov", error_cov, d, len(error_cov)),
        offset=by_component("offset", d, lengths=(1, c) if len(gain) else (0,)),
        gain=gain,
        carry_index=checks.integer("world.carry_index", given.carry_index, -1, d - 1),
        carry_decay=checks.number("world.carry_decay", given.carry_decay, "be in [-1, 1]", -1.0, 1.0),
        carry_gain=checks.floats("world.carry_gain", given.carry_gain, (k,)),
    )


def draw_tape(world: World, stretch: Stretch) -> Tape:
    """Draw a tape from a world. The random numbers are a function of the stretch alone.

    Args:
        world: The distributions of context, error and reward.
        stretch: The rounds to draw.
    """
    return drawn_tape(checked_world(world), check_stretch(stretch))


def drawn_tape(world: World, stretch: Stretch) -> Tape:
    """`draw_tape` of a world and a stretch that need no check."""
    n, (k, d) = stretch.stop - stretch.start, world.theta.shape
    tape = Tape(
        context=np.empty((n, d)),
        error=np.empty((n, d)),
        component=np.empty(n, dtype=np.int64),
        error_cov=world.error_cov,
        noise=np.empty((n, 1)),
        uniform=np.empty(n),
        auxiliary=np.empty(n),
        allowed=np.ones((1, k), dtype=np.bool_),
        theta=world.theta[None],
        guess=np.empty((n, d)) if len(world.gain) else np.full((1, d), np.nan),
        carry_index=world.carry_index,
        carry_decay=world.carry_decay,
        carry_gain=world.carry_gain,
        mean_reward=np.empty((0, k)),
    )
    kernels.fill_tape(world, stretch, tape)
    return tape


def square_root(covariance: Floats) -> Floats:
    """The lower triangular F with F F' = covariance and a diagonal of at least 0: Cholesky's factor, also of a singular matrix.

    A variable without variance of its own, given those before it, has a column of zeros. Unlike eigenvectors, whose signs are the choice
    of whoever computes them, this factor is unique: a seed gives the same contexts on every machine, up to rounding.
    """
    rest, factor = np.array(covariance, dtype=np.float64), np.zeros(np.shape(covariance))
    for j, variance in enumerate(np.diagonal(covariance)):
        if rest[j, j] > NEGLIGIBLE * variance:
            factor[j:, j] = rest[j:, j] / np.sqrt(rest[j, j])
            rest -= np.outer(factor[:, j], factor[:, j])
    return factor
