"""What the diagnostics of a stored log count."""

import math

import numpy as np

from ..compile import jit, spliced, summing
from ..layout import entry
from ..limits import LEAST
from .crossproducts import CHUNK
from .linear import add_linear, fill, total


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
def count_propensities(taken, least, below, actions, propensities, floor):
    """How probable the actions taken were: rounds, Σ p and Σ p (1 - p) by action and by place of p, see
    `analysis.diagnostics.tally.Tally`; the smallest p of each action, and how many are below the floor."""
    bins = taken.shape[1] // 2
    found = 0
    for k in range(actions.size):
        a, p = actions[k], propensities[k]
        scaled = p * bins
        nearest = math.floor(scaled + 0.5)
        place = int(2.0 * nearest if abs(scaled - nearest) <= 1e-6 else 2.0 * math.floor(scaled) + 1.0)
        taken[a, place, 0] += 1.0
        taken[a, place, 1] += p
        taken[a, place, 2] += p * (1.0 - p)
        least[a] = min(least[a], p)
        found += p < floor * (1.0 - 1e-9)
    below[0] += found


@jit
def count_forecasts(forecasts, actions, stated):
    """How probable each action was, and whether it came, by the level of that probability: rounds, those with that action, Σ p and
    Σ p (1 - p). `stated` has a column for each action."""
    n_actions, levels = forecasts.shape[:2]
    for k in range(actions.size):
        for b in range(n_actions):
            p = stated[k, b]
            level = min(int(p * levels + 1e-6), levels - 1)  # 0.2 and 1 - 0.8 are one level
            forecasts[b, level, 0] += 1.0
            forecasts[b, level, 1] += actions[k] == b
            forecasts[b, level, 2] += p
            forecasts[b, level, 3] += p * (1.0 - p)


@jit
def add_chance(chance, mean, log, stated):
    """Sums of w and w y^2 by action, w = 1/q - 1 the variance of 1{a = b} / q, q the probability of b, y = x~ - its mean.

    `stated` has the probability of every action where that is known, else no column; of two actions, that of one says it all.
    """
    n_actions, n = chance.shape[0], log.actions.size
    room = np.empty(CHUNK)
    for start in range(0, n, CHUNK):
        w = room[: min(CHUNK, n - start)]
        for b in range(n_actions if n_actions == 2 else stated.shape[1]):
            if stated.shape[1] > 0:
                for k in range(w.size):
                    w[k] = spread_of(stated[start + k, b])
            else:
                write_spreads(w, log.actions[start:], log.propensities[start:], b)
            chance[b, 0] += total(w)
            for i in range(mean.size):
                chance[b, 1 + i] += weighted_square(w, log.predicted[i, start : start + w.size], mean[i])


@jit
def write_spreads(out, actions, propensities, b):
    """`spread_of` of action b of two, from the propensities of the actions taken."""
    for k in range(out.size):
        out[k] = spread_of(propensities[k] if actions[k] == b else 1.0 - propensities[k])


@summing
def weighted_square(w, x, mean):
    """The sum of w (x - mean)^2."""
    found = 0.0
    for k in range(w.size):
        away = x[k] - mean
        found += w[k] * (away * away)
    return found


@spliced
def spread_of(stated):
    """The variance 1/q - 1 of 1{a = b} / q, q the probability of b; 0 where b was not possible."""
    return 1.0 / stated - 1.0 if stated >= LEAST else 0.0


@summing
def add_weighted(sums, w, x, start, work):
    """Sums of w zz', z = (1, x~), packed, over the rounds from `start` on that w is for."""
    d, m, k = x.shape[0], w.size, 1 + x.shape[0]
    sums[0] += total(w)
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
def count_close(close, theta, log):
    """Rounds with a choice, and those where the two best actions are within 1 and 1.96 standard deviations of the error between them."""
    n_actions, error, allowed = theta.shape[0], log.errors, log.allowed
    intercept, work = theta.shape[1] - log.predicted.shape[0], np.empty((theta.shape[0], CHUNK))
    for start in range(0, log.predicted.shape[1], CHUNK):
        m = min(CHUNK, log.predicted.shape[1] - start)
        for b in range(n_actions):
            fill(work[b, :m], theta[b, 0] if intercept else 0.0)
            add_linear(work[b, :m], theta[b, intercept:], log.predicted, start)
        for t in range(start, start + m):
            top, next_best = best_two(work, n_actions, t - start, allowed, entry(t, allowed.shape[0]))
            if next_best >= 0:
                sd = gap_sd(theta, top, next_best, intercept, error, entry(t, error.shape[0]))
                gap = work[top, t - start] - work[next_best, t - start]
                close[0] += 1.0
                close[1] += gap < sd
                close[2] += gap < 1.959964 * sd


@jit
def count_close_pairs(close, theta, log):
    """`count_close` of two actions that are always allowed, with one error covariance: only how far they differ is computed."""
    intercept, room = theta.shape[1] - log.predicted.shape[0], np.empty(CHUNK)
    sd, difference = gap_sd(theta, 0, 1, intercept, log.errors, 0), theta[0] - theta[1]
    for start in range(0, log.predicted.shape[1], CHUNK):
        gap, within, inside = room[: min(CHUNK, log.predicted.shape[1] - start)], 0, 0
        fill(gap, difference[0] if intercept else 0.0)
        add_linear(gap, difference[intercept:], log.predicted, start)
        for k in range(gap.size):
            within += abs(gap[k]) < sd
            inside += abs(gap[k]) < 1.959964 * sd
        close[0] += gap.size
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
