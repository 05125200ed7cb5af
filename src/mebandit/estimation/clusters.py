"""Participants or clusters: their numbers, from labels."""

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.values import Integers


def cluster_numbers(unit: ArrayLike, n_rounds: int) -> Integers:
    """The number of each round's cluster, from its label.

    Args:
        unit: The labels.
        n_rounds: How many there must be.
    """
    try:
        labels = np.asarray(unit)
    except ValueError:
        checks.refuse("unit", f"have shape ({n_rounds},)", checks.shown(unit))
    if labels.shape != (n_rounds,):
        checks.refuse("unit", f"have shape ({n_rounds},)", f"shape {labels.shape}")
    try:
        units, index = np.unique(labels, return_inverse=True)
    except TypeError:
        checks.refuse("unit", "be labels of one type", checks.shown(labels))
    if units.size < 2:
        checks.refuse("unit", "name at least two units", f"{units.size}", "One cluster says nothing about the spread between clusters.")
    return index.astype(np.int64)
