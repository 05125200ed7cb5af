"""What a policy whose value is estimated may read: the same as the logged policy read, and nothing more.

A log holds π(a | x̃), the probability of the action given the prediction. Weights that are ratios to it are right for a policy π_e(a | x̃),
because given x̃ the action was drawn without a look at x or the reward. A policy that reads x itself, or a better prediction of it than
x̃, would need the probabilities given that, and no log of this kind has them.
"""

from collections.abc import Callable
from typing import NamedTuple

from mebandit.estimation.correction import Correction
from mebandit.values import Booleans, Floats

CONTEXTS = ("predicted", "blp")
"""what a rule decides on: x̃, or its best linear predictor of x"""


class Seen(NamedTuple):
    """What a policy may read of n rounds."""

    predicted: Floats
    """x̃ as the log has it, (n, d)"""
    unbiased: Floats
    """x̃ with the bias removed that an error model knows of, (n, d); else x̃"""
    errors: Floats
    """Σe, packed, (n or 1, d (d + 1) / 2)"""
    allowed: Booleans
    """(n, K)"""
    start: int
    """rows of the log before these"""


class Frame(NamedTuple):
    """What the whole log says that a policy may need."""

    n_actions: int
    error: Correction | None
    """None where it is not known"""
    mean: Floats
    """of x̃, unbiased, (d,)"""
    cov: Floats
    """of x̃, unbiased, (d, d)"""
    labels: tuple[str, ...] = ()
    """of the actions, if they have any"""


Probabilities = Callable[[Seen], Floats]
"""a policy prepared for a log: its probabilities for some rounds, (n, K)"""
