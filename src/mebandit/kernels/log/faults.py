"""Which rounds of a stored log break a rule."""

import math

import numpy as np

from ..compile import jit
from ..layout import packed_size
from ..limits import LARGEST, LEAST, ROUNDED
from ..linalg import is_covariance


@jit
def mark_faults(predicted, actions, rewards, propensities, errors, n_actions, faulty):
    """Mark the rounds of a stored log that break a rule, and count them.

    `propensities` has one column, for the action taken, or one for each action; `errors` none, one variance for each feature, or the
    rows of the lower triangle of a covariance. NaN breaks every comparison.
    """
    d, n = predicted.shape
    s, work = np.empty((d, d)), np.empty(packed_size(d) + 2 * d)
    mark_outside(faulty, rewards, -LARGEST, LARGEST)
    mark_outside(faulty, actions, 0.0, n_actions - 1.0)
    mark_broken(faulty, actions)
    for i in range(d):
        mark_outside(faulty, predicted[i], -LARGEST, LARGEST)
    if propensities.shape[1] == 1:
        mark_outside(faulty, propensities.reshape(n), LEAST, 1.0)
    else:
        for t in range(n):
            faulty[t] = faulty[t] or not is_distribution(propensities[t], int(actions[t]))
    if errors.shape[1] == d:
        for i in range(d):
            mark_outside(faulty, errors[:, i], 0.0, LARGEST)
    elif errors.shape[1] > d:
        for t in range(n):
            j = 0
            for i in range(d):
                for c in range(i + 1):
                    s[i, c] = errors[t, j]
                    s[c, i] = errors[t, j]
                    j += 1
            faulty[t] = faulty[t] or not is_covariance(s, work)
    count = 0
    for t in range(n):
        count += faulty[t]
    return count


@jit
def mark_outside(faulty, values, least, most):
    """Mark values outside [least, most], and NaN; without a branch, so that the compiler can use vector instructions."""
    for t in range(values.size):
        faulty[t] |= not (least <= values[t]) & (values[t] <= most)


@jit
def mark_broken(faulty, values):
    """Mark what is no whole number."""
    for t in range(values.size):
        faulty[t] |= values[t] != math.floor(values[t])


@jit
def is_distribution(propensities, a):
    """Whether these are probabilities that sum to 1, with one for the action that was taken."""
    total, good = 0.0, propensities[a] >= LEAST
    for propensity in propensities:
        total += propensity
        good = good and propensity >= 0.0
    return good and abs(total - 1.0) <= ROUNDED
