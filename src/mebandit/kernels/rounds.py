"""What travels together through the functions of a round: the recipe, a learner's memory, and the round itself."""

from typing import Any, NamedTuple

Array = Any
"""an array of floats, or what the compiler of another target has in its place"""


class Recipe(NamedTuple):
    """What a learner does, see `layout`."""

    dims: tuple[int, ...]
    """as many entries as there are features where loops over features are to be unrolled, or none"""
    spec: Any
    """the integers that tell one recipe from another"""
    tuning: Array
    """its real numbers"""


class Memory(NamedTuple):
    """What a learner remembers, see `layout`."""

    sums: Array
    """flat running sums"""
    fit: Array
    """flat fits"""
    extra: Array
    """what it counts"""


class Context(NamedTuple):
    """What is known of a round before its action is chosen."""

    z: Array
    """the prediction x~, after the features of ones"""
    seen: Array
    """what the decision reads: z, or z as calibrated, with all else that `calibrate` tells"""
    error: Array
    """Sigma_e, packed"""
    allowed: Array
    """which actions may be taken"""


class Oracle(NamedTuple):
    """What the oracles alone read."""

    theta: Array
    """the environment's parameters"""
    guess: Array
    """E[x | x~]"""


class Outcome(NamedTuple):
    """What became of a round."""

    action: int
    propensity: float
    """of the action"""
    stabilizer: Array
    """pi^nd"""
    reward: float
    auxiliary: float
    """a uniform random number for RobustUCB's own draws"""


class Solving(NamedTuple):
    """How a fit is solved for, see `solve.solve_arm`."""

    ridge: float
    correction: int
    guard: int
    keeps: bool
    """whether the factor is kept, for rules that ask how sure a fit is"""


class Room(NamedTuple):
    """Scratch room."""

    work: Array
    """of `work_size`"""
    aside: Array
    """of `aside_size`, for what is seldom done"""
