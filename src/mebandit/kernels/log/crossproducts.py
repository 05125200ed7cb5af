"""The sums of products of a stored log, from which theta follows."""

import numpy as np

from ..compile import jit, spliced, summing
from ..layout import entry

# Rounds of a log that are worked on at a time: they stay in the processor's cache. Not a power of two: the rows of a table would then lie
# where a cache keeps them in the same few places, and push each other out.
CHUNK = 1016


@jit
def add_products(products, squares, errors, varying, log):
    """Take rounds into the crossproducts of a log, see `mebandit.estimation.moments.Crossproducts`; error covariances only if `varying`.

    Where all actions were always allowed and pi^nd is one constant, what was offered is what was played, over all actions: the caller
    adds that up. Rounds are sorted by action, a chunk at a time.
    """
    d, n = log.predicted.shape
    n_actions = squares.shape[1]
    alike = log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1
    v, w, wu = np.ones((d + 2, CHUNK)), np.empty(CHUNK), np.empty(CHUNK)
    begin, order = np.zeros(n_actions + 1, dtype=np.int64), np.empty(CHUNK, dtype=np.uint32)
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        sort_by_action(log.actions[start : start + m], begin, order)
        for i in range(d):
            take(v[1 + i], log.predicted[i, start : start + m], order[:m])
        take(v[d + 1], log.rewards[start : start + m], order[:m])
        take(w, log.propensities[start : start + m], order[:m])
        for a in range(n_actions):
            for k in range(begin[a], begin[a + 1]):
                u = 1.0 / w[k]
                w[k] = log.stabilizer[entry(start + order[k], log.stabilizer.shape[0]), a] * u
                wu[k] = w[k] * u
            squares[0, a] += add_thrice(products, a, v, w, wu, begin[a], begin[a + 1])
        if varying or not alike:
            for t in range(start, start + m):
                add_offered(products, squares, errors, varying, alike, log, t)


@jit
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
    place = begin.copy()
    for k in range(actions.size):
        a = actions[k]
        order[place[a]] = k
        place[a] += 1


@jit
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
def add_offered(products, squares, errors, varying, alike, log, t):
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
