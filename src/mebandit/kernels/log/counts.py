"""What the diagnostics of a stored log count."""

import math

import numpy as np

from ..compile import jit, spliced, summing
from ..layout import entry
from ..limits import LEAST
from .crossproducts import CHUNK
from .linear import add_linear, fill


@summing
def total(x, m):
    """The sum of m numbers."""
    found = 0.0
    for k in range(m):
        found += x[k]
    return found


@summing
def write_product(out, x, y, m):
    """out = x y over m rounds, and its sum."""
    found = 0.0
    for k in range(m):
        product = x[k] * y[k]
        out[k] = product
        found += product
    return found


@jit
def count_probabilities(tally, actions, propensities, forecast, floor):
    """How probable the actions taken were, and how probable each action was and whether it came; see
    `analysis.diagnostics.tally.Tally`.

    `forecast` has the probability of every action where that is known, else no column; of two actions, that of one says it all.
    """
    n_actions, room = tally.least.size, np.empty(CHUNK)
    count_propensities(tally, actions, propensities, floor)
    for start in range(0, actions.size, CHUNK):
        stated = room[: min(CHUNK, actions.size - start)]
        for b in range(1, 2) if n_actions == 2 else range(forecast.shape[1]):
            write_stated(stated, actions, propensities, forecast, start, n_actions, b)
            count_stated(tally.forecast[b], stated, actions, start, b)


@jit
def add_chance(chance, begin, end, log, forecast):
    """Sums of w zz' by action, w = 1/q - 1 the variance of 1{a = b} / q, q the probability of b, z = (1, x~), packed."""
    n_actions, room, work = chance.shape[0], np.empty(CHUNK), np.empty(CHUNK)
    for start in range(begin, end, CHUNK):
        w = room[: min(CHUNK, end - start)]
        for b in range(n_actions if n_actions == 2 else forecast.shape[1]):
            write_stated(w, log.actions, log.propensities, forecast, start, n_actions, b)
            for k in range(w.size):
                w[k] = spread_of(w[k])
            add_weighted(chance[b], w, log.predicted, start, work)


@jit
def count_propensities(tally, actions, propensities, floor):
    """A histogram of the propensities of the actions taken, the smallest, and how many are below the floor."""
    histogram, least, below = tally.propensity, tally.least, 0.0
    bins = histogram.shape[1]
    for k in range(actions.size):
        a, propensity = actions[k], propensities[k]
        histogram[a, min(int(propensity * bins + 1e-6), bins - 1)] += 1.0
        if propensity < least[a]:
            least[a] = propensity
        below += propensity < floor * (1.0 - 1e-9)
    tally.below[0] += below


@jit
def write_stated(out, actions, propensities, forecast, start, n_actions, b):
    """The probability of action b in the rounds from `start` on."""
    if n_actions == 2:
        for k in range(out.size):
            out[k] = propensities[start + k] if actions[start + k] == b else 1.0 - propensities[start + k]
    else:
        for k in range(out.size):
            out[k] = forecast[start + k, b]


@jit
def count_stated(forecast, stated, actions, start, b):
    """How probable action b was, and whether it came, at the level of that probability."""
    levels = forecast.shape[0]
    for k in range(stated.size):
        q = stated[k]
        level = min(int(q * levels + 1e-6), levels - 1)  # 0.2 and 1 - 0.8 are one level
        forecast[level, 0] += 1.0
        forecast[level, 1] += actions[start + k] == b
        forecast[level, 2] += q
        forecast[level, 3] += q * (1.0 - q)


@spliced
def spread_of(stated):
    """The variance 1/q - 1 of 1{a = b} / q, q the probability of b; 0 where b was not possible."""
    return 1.0 / stated - 1.0 if stated >= LEAST else 0.0


@summing
def add_weighted(sums, w, x, start, work):
    """Sums of w zz', z = (1, x~), packed, over the rounds from `start` on that w is for."""
    d, m, k = x.shape[0], w.size, 1 + x.shape[0]
    sums[0] += total(w, m)
    for i in range(d):
        sums[1 + i] += write_product(work, w, x[i, start : start + m], m)
        for j in range(i, d):
            found, other = 0.0, x[j, start : start + m]
            for t in range(m):
                found += work[t] * other[t]
            sums[k] += found
            k += 1


@jit
def add_predictions(tally, part, begin, end, varying, mean, log):
    """What the diagnostics sum up of the predictions in rounds begin, ..., end - 1, which are of one part of the log; error covariances
    if they are `varying`."""
    ones, work = np.ones(CHUNK), np.empty(CHUNK)
    for start in range(begin, end, CHUNK):
        stop = min(start + CHUNK, end)
        add_weighted(tally.segments[part], ones[: stop - start], log.predicted, start, work)
        for i in range(mean.size):
            add_powers(tally.powers, i, log.predicted[i, start:stop], mean[i])
        if varying:
            for t in range(start, stop):
                add_reported(tally, part, log.predicted, t, mean, log.errors)


@summing
def add_powers(powers, i, x, mean):
    """The third and the fourth power of how far x is from its mean."""
    third, fourth = 0.0, 0.0
    for k in range(x.size):
        away = x[k] - mean
        square = away * away
        third += square * away
        fourth += square * square
    powers[0, i] += third
    powers[1, i] += fourth


@jit
def count_close(close, theta, varying, log):
    """Rounds with a choice, and those where the two best actions are within 1 and 1.96 standard deviations of the error between them."""
    n_actions, error, allowed = theta.shape[0], log.errors, log.allowed
    intercept, work = theta.shape[1] - log.predicted.shape[0], np.empty((theta.shape[0], CHUNK))
    for start in range(0, log.predicted.shape[1], CHUNK):
        m = min(CHUNK, log.predicted.shape[1] - start)
        for b in range(n_actions):
            fill(work[b, :m], theta[b, 0] if intercept else 0.0)
            add_linear(work[b, :m], theta[b, intercept:], log.predicted, start)
        if n_actions == 2 and allowed.shape[0] == 1 and allowed[0].all() and not varying:
            count_close_pairs(close, work[0, :m], work[1, :m], gap_sd(theta, 0, 1, intercept, error, 0))
        else:
            for t in range(start, start + m):
                top, next_best = best_two(work, n_actions, t - start, allowed, entry(t, allowed.shape[0]))
                if next_best >= 0:
                    sd = gap_sd(theta, top, next_best, intercept, error, entry(t, error.shape[0]))
                    gap = work[top, t - start] - work[next_best, t - start]
                    close[0] += 1.0
                    close[1] += gap < sd
                    close[2] += gap < 1.959964 * sd


@jit
def count_close_pairs(close, first, second, sd):
    """`count_close` of two actions that are always allowed: a loop that the compiler can turn into vector instructions."""
    within, inside = 0, 0
    for k in range(first.size):
        gap = abs(first[k] - second[k])
        within += gap < sd
        inside += gap < 1.959964 * sd
    close[0] += first.size
    close[1] += within
    close[2] += inside


@spliced
def add_reported(tally, part, x, t, mean, error):
    """The error covariance of a round, for its part of the log; and of reported variances v and squared distances y from the mean the sums
    of v, v^2, y, v y, v^3, v^4 for every feature."""
    d, k = mean.size, 0
    for i in range(error.shape[1]):
        tally.segments[part, 1 + d + error.shape[1] + i] += error[t, i]
    for i in range(d):
        v, y = error[t, k], (x[i, t] - mean[i]) ** 2
        k += d - i
        tally.reported[i, 0] += v
        tally.reported[i, 1] += v * v
        tally.reported[i, 2] += y
        tally.reported[i, 3] += v * y
        tally.reported[i, 4] += v * v * v
        tally.reported[i, 5] += v * v * v * v


@spliced
def best_two(scores, n_actions, k, allowed, m):
    """The best and the second best allowed action by column k of their scores, -1 if there is none."""
    top, next_best = -1, -1
    for b in range(n_actions):
        if allowed[m, b]:
            if top < 0 or scores[b, k] > scores[top, k]:
                top, next_best = b, top
            elif next_best < 0 or scores[b, k] > scores[next_best, k]:
                next_best = b
    return top, next_best


@spliced
def gap_sd(theta, top, next_best, intercept, error, c):
    """The standard deviation of the error in the direction in which two actions differ."""
    d = theta.shape[1] - intercept
    variance, k = 0.0, 0
    for i in range(d):
        u = theta[top, intercept + i] - theta[next_best, intercept + i]
        for j in range(i, d):
            v = theta[top, intercept + j] - theta[next_best, intercept + j]
            variance += (1.0 if i == j else 2.0) * u * v * error[c, k]
            k += 1
    return math.sqrt(max(variance, 0.0))
