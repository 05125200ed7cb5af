"""The sums of products of a stored log, from which theta follows."""

from typing import NamedTuple

import numpy as np

from ..compile import spliced, summing, uncounted
from ..layout import entry

# Rounds of a log that are worked on at a time: they stay in the processor's cache. Not a power of two: the rows of a table would then lie
# where a cache keeps them in the same few places, and push each other out.
CHUNK = 1016


class Sorted(NamedTuple):
    """Room for a chunk of rounds, sorted by action."""

    begin: np.ndarray
    """where each action begins, (K + 1,)"""
    order: np.ndarray
    v: np.ndarray
    """1, x~ and r, (d + 2, CHUNK)"""
    weights: np.ndarray
    """c u and c u^2, (2, CHUNK)"""


@uncounted
def add_products(products, squares, log, room):
    """Take rounds into the crossproducts of a log, see `mebandit.estimation.moments.Crossproducts`, but for what was offered, which
    `add_offered` adds where rounds differ in that; elsewhere it is what was played, over all actions. Rounds are sorted, a chunk at a time.
    """
    d, n = log.predicted.shape
    begin, order, v, w, wu = room.begin, room.order, room.v, room.weights[0], room.weights[1]
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        sort_by_action(log.actions[start : start + m], begin, order)
        for i in range(d):
            take(v[1 + i], log.predicted[i, start : start + m], order[:m])
        take(v[d + 1], log.rewards[start : start + m], order[:m])
        take(w, log.propensities[start : start + m], order[:m])
        for a in range(squares.shape[1]):
            for k in range(begin[a], begin[a + 1]):
                u = 1.0 / w[k]
                w[k] = log.stabilizer[entry(start + order[k], log.stabilizer.shape[0]), a] * u
                wu[k] = w[k] * u
            squares[0, a] += add_thrice(products, a, v, w, wu, begin[a], begin[a + 1])


@uncounted
def add_offered(products, squares, errors, varying, log):
    """What rounds are to the actions that they offered: their outer products, if rounds are not all alike in that, and their error
    covariances if these are `varying`."""
    alike = log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1
    for t in range(log.actions.size):
        add_offered_round(products, squares, errors, varying, alike, log, t)


@uncounted
def sort_by_action(actions, begin, order):
    """The order in which the rounds of one action follow those of another, and where each action begins in it."""
    n = 0
    for a in range(begin.size - 1):
        begin[a] = n
        own = 0
        for k in range(actions.size):
            own += actions[k] == a
        n += own
    begin[begin.size - 1] = n
    for k in range(actions.size):
        order[begin[actions[k]]] = k
        begin[actions[k]] += 1
    for a in range(begin.size - 1, 0, -1):  # each action now begins where the next one did
        begin[a] = begin[a - 1]
    begin[0] = 0
    begin[begin.size - 1] = n


@uncounted
def take(out, x, order):
    """What x has at some places, in their order."""
    for k in range(order.size):
        out[k] = x[order[k]]


@summing
def add_thrice(products, a, v, w, wu, first, end):
    """Sums of vv' with the weights 1, w and wu over columns first, ..., end - 1 of v; returns the sum of w^2."""
    k, squared = 0, 0.0
    w, wu = w[first:end], wu[first:end]
    for i in range(v.shape[0]):
        x = v[i, first:end]
        for j in range(i, v.shape[0]):
            y = v[j, first:end]
            one, two, three = 0.0, 0.0, 0.0
            for t in range(w.size):
                product = x[t] * y[t]
                one += product
                two += w[t] * product
                three += wu[t] * product
            products[0, a, k] += one
            products[1, a, k] += two
            products[2, a, k] += three
            k += 1
    for t in range(w.size):
        squared += w[t] * w[t]
    return squared


@spliced
def add_offered_round(products, squares, errors, varying, alike, log, t):
    """What a round is to the actions that it offered: its outer product, if rounds are not all alike, and its error covariance."""
    d, a = log.predicted.shape[0], log.actions[t]
    s, c, m = entry(t, log.stabilizer.shape[0]), entry(t, log.errors.shape[0]), entry(t, log.allowed.shape[0])
    w = log.stabilizer[s, a] / log.propensities[t]
    if varying:
        for k in range(errors.shape[2]):
            errors[0, a, k] += log.errors[c, k]
            errors[1, a, k] += w * log.errors[c, k]
    for b in range(squares.shape[1]):
        if log.allowed[m, b]:
            w = log.stabilizer[s, b]
            if varying:
                for k in range(errors.shape[2]):
                    errors[2, b, k] += w * log.errors[c, k]
            if not alike:
                squares[1, b] += w * w
                k = 0
                for i in range(d + 2):
                    left = 1.0 if i == 0 else log.rewards[t] if i > d else log.predicted[i - 1, t]
                    for j in range(i, d + 2):
                        right = 1.0 if j == 0 else log.rewards[t] if j > d else log.predicted[j - 1, t]
                        products[3, b, k] += w * left * right
                        k += 1
