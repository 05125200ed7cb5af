"""What is known of the contexts behind the predictions: the mean of x~, and Sx, the covariance of x."""

import math

from .compile import jit, part, seldom, spliced
from .curve import SKEWNESS_END, pooled
from .layout import (
    COUNT,
    FEATURES,
    MEMORY,
    WEIGHT,
    context_row,
    cross_at,
    error_at,
    gram_at,
    n_features,
    packed_size,
    recent_row,
    row_width,
)
from .limits import LEAST_VARIANCE
from .linalg import factor_once
from .sums import add_error

CORRELATION_DOUBT = 2.0  # times the sampling variance of the correlations between features is taken off their squares


@jit
def learn_context(dims, tuning, sums, n_actions, z, error):
    """Take the predicted context of a round into its sums."""
    p = n_features(dims, z.size)
    width, gram = row_width(p), gram_at(p)
    steady, recent = part(sums, context_row(n_actions) * width, width), part(sums, recent_row(n_actions) * width, width)
    cubes, squares = part(steady, cross_at(p), p), part(recent, cross_at(p), p)
    n, k = steady[COUNT], gram
    if n >= 10.0:
        share = 1.0 / n
        for i in range(p):
            mean = steady[FEATURES + i] * share
            v = max(steady[k] * share - mean * mean, 0.0)
            away = z[i] - mean
            square, most = away * away, SKEWNESS_END**2 * v
            if square > most:
                away, square = math.copysign(math.sqrt(most), away), most
            cube = away * (square - 3.0 * v)
            cubes[i] += cube
            squares[i] += cube * cube
            k += p - i
    keep = 1.0 - 1.0 / tuning[MEMORY]
    m, k = recent[WEIGHT], gram
    if m > 0.0:
        recent[COUNT] += 1.0
        add_error(recent, p, 1.0, error)
        share = 1.0 / m
        for i in range(p):
            away = z[i] - recent[FEATURES + i] * share
            for j in range(p - i):
                recent[k + j] += away * (z[i + j] - recent[FEATURES + i + j] * share)
            k += p - i
    recent[WEIGHT] = keep * m + 1.0
    for i in range(p):
        recent[FEATURES + i] = keep * recent[FEATURES + i] + z[i]
    add_context(steady, p, z, error)


@spliced
def add_context(s, p, z, error):
    """Sums of x~, x~x~' and Sigma_e."""
    s[COUNT] += 1.0
    s[WEIGHT] += 1.0
    add_error(s, p, 1.0, error)
    k = gram_at(p)
    for i in range(p):
        s[FEATURES + i] += z[i]
        for j in range(p - i):
            s[k + j] += z[i] * z[i + j]
        k += p - i


@spliced
def feature_varies(steady, i, k):
    """Whether feature i of x~, whose square is the k-th product, has a variance beyond rounding."""
    mean, second = steady[FEATURES + i] / steady[COUNT], steady[k] / steady[COUNT]
    variance = second - mean * mean
    return variance > 1e-10 * second and variance >= LEAST_VARIANCE


@seldom
def find_variation(steady, recent, p, varies):
    """Which features vary, and by how much the forgetting mean predicts worse: sum_j log(V_jj' / V_jj) over these features."""
    k, score = gram_at(p), 0.0
    for i in range(p):
        varies[i] = 1.0 if feature_varies(steady, i, k) else 0.0
        if varies[i] > 0.0:
            mean = steady[FEATURES + i] / steady[COUNT]
            score += math.log(max(recent[k] / recent[COUNT], 1e-300) / (steady[k] / steady[COUNT] - mean * mean))
        k += p - i
    return score


@seldom
def write_covariance(row, follows, varies, p, v, share):
    """V, the covariance of x~ about the mean in use, 0 for features that do not vary; and sqrt(min(1, V_jj / S_jj)), S = mean Sigma_e."""
    k, gram, error = 0, gram_at(p), error_at(p)
    for i in range(p):
        for j in range(i, p):
            own = row[gram + k] / row[COUNT]
            if not follows:
                own -= (row[FEATURES + i] / row[COUNT]) * (row[FEATURES + j] / row[COUNT])
            v[k] = own if varies[i] * varies[j] > 0.0 else 0.0
            if i == j:
                s = row[error + k] / row[COUNT]
                share[i] = math.sqrt(own / s) if s > own > 0.0 else 1.0 if own > 0.0 else 0.0
            k += 1


@seldom
def refit_signal(row, p, work, signal):
    """Sx = V - D S D, V = cov(x~) about the mean in use, S = mean Sigma_e, D diagonal: as much of S as V can bear.

    D = I if that leaves Sx positive semidefinite. Else D_jj^2 = kappa min(1, V_jj / S_jj), kappa the largest share that does, so that one
    coordinate whose error is overstated does not spoil the others. Off its diagonal Sx is taken as far as it is significant: times
    1 - 2 m / (n sum r_ij^2), r_ij = (V - S)_ij / sqrt(V_ii V_jj) of m pairs, about 0 where features are independent. Then the
    coordinates learn from each other, see `pool_reliabilities`. `work` has what `write_covariance` and `find_variation` wrote.
    """
    size, n = packed_size(p), row[COUNT]
    errors, v, trial, share = part(row, error_at(p), size), part(work, 0, size), part(work, size, size), part(work, 2 * size, p)
    varies, rest = part(work, 2 * size + p, p), part(work, 2 * size + 2 * p, 2 * p)
    low, high, kappa = 0.0, 1.0, 1.0
    for step in range(13):
        k = 0
        for i in range(p):
            for j in range(i, p):
                d = kappa * share[i] * share[j] if step > 0 else 1.0
                trial[k] = v[k] - d * errors[k] / n
                if i == j:
                    trial[k] += 1e-6 * v[k]
                    if varies[i] == 0.0:
                        trial[k] = 1.0
                k += 1
        if factor_once(trial, p, rest):
            low = kappa
            if step == 0:
                break
        elif step > 0:
            high = kappa
        kappa = 0.5 * (low + high) if step > 0 else 1.0
    together = significant_share(v, errors, n, p)
    k = 0
    for i in range(p):
        for j in range(i, p):
            d = 1.0 if step == 0 else low * share[i] * share[j]
            signal[k] = (v[k] - d * errors[k] / n) * (1.0 if i == j else together)
            k += 1


@seldom
def significant_share(v, errors, n, p):
    """The share of the correlations of x that is not chance: 1 - 2 m / (n sum r_ij^2), at least 0; by chance n sum r_ij^2 is about m."""
    pairs, squares, k = 0, 0.0, 0
    for i in range(p):
        at_i, at_j = k, k
        for j in range(i, p):
            if j > i and v[at_i] > 0.0 and v[at_j] > 0.0:
                pairs += 1
                squares += (v[k] - errors[k] / n) ** 2 / (v[at_i] * v[at_j])
            k += 1
            at_j += p - j
    return max(1.0 - CORRELATION_DOUBT * pairs / (n * squares), 0.0) if squares > 0.0 else 0.0


@seldom
def pool_reliabilities(signal, v, errors, n, p, scale):
    """rho_i = Sx_ii / V_ii of the coordinates with error, drawn to their mean by `pooled`; correlations stay as they are.

    var(rho_i) is about 2 (S_ii / V_ii)^2 / n, an overstated S_ii taken for V_ii. Features with reliabilities of their own keep them: then
    chance does not explain the spread.
    """
    m, total, squares, noise, k = 0, 0.0, 0.0, 0.0, 0
    for i in range(p):
        scale[i] = 1.0
        if v[k] > 0.0 and errors[k] > 0.0:
            rho, lost = signal[k] / v[k], min(errors[k] / (n * v[k]), 1.0)
            m += 1
            total += rho
            squares += rho * rho
            noise += 2.0 * lost * lost / n
        k += p - i
    mean, kept = pooled(m, total, squares, noise)
    k = 0
    for i in range(p):
        if v[k] > 0.0 and errors[k] > 0.0:
            before = signal[k]
            signal[k] = mean * v[k] + kept * (before - mean * v[k])
            scale[i] = math.sqrt(max(signal[k], 0.0) / before) if before > 1e-6 * v[k] else 0.0
        k += p - i
    k = 0
    for i in range(p):
        for j in range(i, p):
            if j > i:
                signal[k] *= scale[i] * scale[j]
            k += 1
