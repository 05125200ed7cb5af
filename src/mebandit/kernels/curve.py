"""The curve of E[x | x~] for skewed contexts, and the share of it that the rewards bear out."""

import math

import numpy as np

from .compile import part, reach, same, seldom, spliced
from .layout import (
    COUNT,
    DEPARTING,
    DEPARTURE_LEFT,
    DEPARTURE_SQ,
    FEATURES,
    KAPPA,
    LEARNED,
    LEFT_SQ,
    N_ACTIONS,
    SHARE_COLUMNS,
    context_row,
    cross_at,
    curve_fit,
    drift_at,
    factor_at,
    fit_width,
    gram_at,
    packed_size,
    recent_row,
    report_at,
    row_width,
    share_at,
    signal_fit,
)
from .limits import LARGEST_FACTOR
from .linalg import MIN_PIVOT, dot
from .random import normal_cdf

# The curve of E[x | x~] for skewed contexts, see `refit_curve`, and the share of it that is used, see `learn_share`.
SKEWNESS_END = 5.0  # standard deviations: what lies further out counts as if it were there
SKEWNESS_DOUBT = 2.0  # how many times a third moment's sampling variance is taken off its square
LEAST_SKEWED = 0.1  # of the variance: a smaller exponential part, a skewness below 0.06, changes nothing and is not computed
CURVE_END = 3.0  # standard deviations: what lies further out may be the error's, and no error is taken to be larger
FIRST_CURVE = 1.0  # its share before the rewards say anything
FIRST_DRIFT = 0.75  # 1 would be right if it is x that moves; a negative share if it is the error
SHARE_PRECISION = 4.0  # of the first shares, in rounds with a departure as large as the noise: a standard deviation of 1/2
LEAST_CURVE, MOST_CURVE = 0.0, 2.0  # the curve is cut off, so that more than 1 can be right
LEAST_DRIFT, MOST_DRIFT = -1.0, 1.0
DRIFT_KEPT = 0.995  # of what the rewards have said of a drift, in every round
SHARE_FROM = 2.0  # rounds per feature and action, before which theta is too poor to learn the share from


@seldom
def pooled(m, total, squares, noise):
    """Empirical Bayes for m estimates of things that may be alike, from the sums of them, of their squares and of their variances.

    Returns their mean, and the share of its distance from there that each of them keeps: 1 - variance / spread, at least 0.
    """
    if m < 2:
        return total, 1.0
    mean = total / m
    spread = (squares - m * mean * mean) / (m - 1)
    return mean, max(1.0 - noise / (m * spread), 0.0) if spread > 0.0 else 0.0


@seldom
def bounded_departure(a, alpha, v, s):
    """`departure`, with a cut off at 3 standard deviations of x~, and h at 3 of the error; none for a negligible error."""
    if not s > MIN_PIVOT * v:
        return 0.0
    far, most = CURVE_END * math.sqrt(v), CURVE_END * math.sqrt(s)
    h = departure(max(min(a, far), -far), alpha, v, s)
    return max(min(h, most), -most)


@seldom
def departure(a, alpha, v, s):
    """h(a) = s (psi(a) + a / v): how far E[x | x~] = x~ + s psi (Tweedie's formula for a normal error of variance s) is from linear.

    psi is the score, the derivative of the log density, of x~ - mu = N(0, V) + alpha (Exp - 1), V = v - alpha^2: with
    z = (a + alpha) / sqrt(V) - sqrt(V) / alpha, psi(a) = phi(z) / Phi(z) / sqrt(V) - 1 / alpha; mirrored for alpha < 0.
    """
    sign = math.copysign(1.0, alpha)
    a, alpha = sign * a, sign * alpha
    sd = math.sqrt(v - alpha * alpha)
    z = (a + alpha) / sd - sd / alpha
    psi = inverse_mills(z) / sd - 1.0 / alpha
    return sign * s * (psi + a / v)


@seldom
def inverse_mills(z):
    """phi(z) / Phi(z); by its continued fraction where both would vanish."""
    if z < -20.0:
        return -z + 1.0 / (-z + 2.0 / (-z + 3.0 / (-z + 4.0 / (-z + 5.0 / -z))))
    return 0.3989422804014327 * math.exp(-0.5 * z * z) / normal_cdf(z)


@seldom
def refit_curve(sums, fit, n_actions, p):
    """alpha_i of every coordinate: x~_i has the variance v and the third cumulant k3 of N(0, v - alpha^2) + alpha (Exp - 1).

    So alpha = (k3 / 2)^(1/3). A symmetric error adds nothing to k3; its variance is all normal, so alpha^2 is at most Sx_ii. k3 is the mean
    of h = a^3 - 3 v a, with the variance mean h^2 / n. The skewness g = k3 / v^1.5 is drawn to its mean over the coordinates by `pooled`,
    and taken as far as it is significant: times 1 - 2 var(g) / g^2; none if that is negative.
    """
    steady, recent = context_row(n_actions) * row_width(p), recent_row(n_actions) * row_width(p)
    n, cubes, squares = sums[steady + COUNT], part(sums, steady + cross_at(p), p), part(sums, recent + cross_at(p), p)
    signal = part(fit, signal_fit(n_actions) * fit_width(p) + factor_at(p), packed_size(p))
    curve = part(fit, curve_fit(n_actions) * fit_width(p), p)
    m, total, square, noise, k = 0, 0.0, 0.0, 0.0, 0
    for i in range(p):
        v = variance_of(sums, steady, i, k, p)
        curve[i] = 0.0
        if v > 0.0 and signal[k] > 0.0:
            g = cubes[i] / (n * v * math.sqrt(v))
            m += 1
            total += g
            square += g * g
            noise += squares[i] / v / v / v / (n * n)  # one at a time: the cube of a small v may vanish
        k += p - i
    if m == 0:
        return
    mean, kept = pooled(m, total, square, noise)
    doubt = SKEWNESS_DOUBT * noise / m * (kept + (1.0 - kept) / m)
    k = 0
    for i in range(p):
        v = variance_of(sums, steady, i, k, p)
        if v > 0.0 and signal[k] > 0.0:
            g = mean + kept * (cubes[i] / (n * v * math.sqrt(v)) - mean)
            if g * g > doubt:
                k3 = (1.0 - doubt / (g * g)) * abs(g)
                alpha = min((0.5 * k3) ** (1.0 / 3.0) * math.sqrt(v), math.sqrt(signal[k]))
                if alpha * alpha > LEAST_SKEWED * v:
                    curve[i] = math.copysign(alpha, g)
        k += p - i


@spliced
def variance_of(sums, steady, i, k, p):
    """The variance of coordinate i of x~, whose square is the k-th product."""
    share = 1.0 / sums[steady + COUNT]
    mean = sums[steady + FEATURES + i] * share
    return sums[steady + gram_at(p) + k] * share - mean * mean


@spliced
def share_row(spec, sums, fit, p):
    """Where the sums for the share begin that is being learned: that of the curve, or of the drift where the mean is followed."""
    follows = fit[signal_fit(spec[N_ACTIONS]) * fit_width(p) + report_at(p) + KAPPA] == 1.0
    return sums.size - row_width(p) + (SHARE_COLUMNS if follows else 0)


@spliced
def learn_share(spec, memory, seen, p, action, reward):
    """What the reward of a round says of the share lambda of the departure h that is right, into the last row of the sums.

    With theta of the action taken, e = r - theta'x^ + lambda theta'h is what the linear predictor leaves, and lambda theta'h should explain
    it: sums of 1, e^2, (theta'h)^2 and theta'h e. From (theta'h)^2 is taken what chance adds to it, see `departure_noise`. Rounds without a
    departure h say nothing. Old rounds fade from the share of a drift, as e was found with a theta that has moved since.
    """
    n_actions, sums, fit = spec[N_ACTIONS], memory.sums, memory.fit
    if memory.extra[LEARNED] < SHARE_FROM * p * n_actions:
        return
    row = share_row(spec, sums, fit, p)
    curved = row == sums.size - row_width(p)
    used = fit[curve_fit(n_actions) * fit_width(p) + (share_at(p) if curved else drift_at(p))]
    e, departed, kept = reward, 0.0, 1.0 if curved else DRIFT_KEPT
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            theta = part(fit, b * fit_width(p), p)
            departed = dot(theta, part(seen, p, p), p)
            e = reward - dot(theta, seen, p) + used * departed
    if departed != 0.0 and abs(departed) <= LARGEST_FACTOR and abs(e) <= LARGEST_FACTOR:
        sums[row + DEPARTING] = kept * sums[row + DEPARTING] + 1.0
        sums[row + LEFT_SQ] = kept * sums[row + LEFT_SQ] + e * e
        sums[row + DEPARTURE_SQ] = kept * sums[row + DEPARTURE_SQ] + departed * departed - seen[2 * p + 1]
        sums[row + DEPARTURE_LEFT] = kept * sums[row + DEPARTURE_LEFT] + departed * e


@spliced
def learn_contradiction(spec, memory, z, seen, p, action, reward):
    """What the reward of a round says against the told error covariances: sums of 1, e^2, (b'c)^2 and b'c e, e = r - b'z, c = x~ - z.

    c is what calibration took off. Where Sigma_e is right e has nothing to do with it; were it k times that, e would be (1 - 1/k) b'c.
    """
    n_actions, sums, fit = spec[N_ACTIONS], memory.sums, memory.fit
    row = sums.size - row_width(p) + 2 * SHARE_COLUMNS
    used = fit[
        curve_fit(n_actions) * fit_width(p) + (drift_at(p) if share_row(spec, sums, fit, p) > row - 2 * SHARE_COLUMNS else share_at(p))
    ]
    e, taken = 0.0, 0.0
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            theta = part(fit, b * fit_width(p), p)
            e = reward - dot(theta, seen, p)
            taken = dot(theta, z, p) - reward + e + used * dot(theta, part(seen, p, p), p)
    if seen[2 * p] != 1.0 and abs(taken) <= LARGEST_FACTOR and abs(e) <= LARGEST_FACTOR:
        sums[row + DEPARTING] += 1.0
        sums[row + LEFT_SQ] += e * e
        sums[row + DEPARTURE_SQ] += taken * taken
        sums[row + DEPARTURE_LEFT] += taken * e


@spliced
def refit_share(spec, sums, fit, p):
    """lambda = (sum theta'h e + kappa lambda_0) / (sum (theta'h)^2 + kappa), kappa = 4 mean e^2, for the curve and for the drift.

    Ridge regression about lambda_0: the posterior mean with a prior of standard deviation 1/2, kept within bounds. Where the error drifts
    and x does not, the share is negative: a recent mean of x~ then says what to take off.
    """
    for k in range(2):
        row, share = sums.size - row_width(p) + k * SHARE_COLUMNS, share_at(p) if k == 0 else drift_at(p)
        first, least, most = FIRST_DRIFT, LEAST_DRIFT, MOST_DRIFT
        if k == 0:
            first, least, most = FIRST_CURVE, LEAST_CURVE, MOST_CURVE
        if sums[row + DEPARTING] > 0.0:
            kappa = SHARE_PRECISION * sums[row + LEFT_SQ] / sums[row + DEPARTING]
            information = sums[row + DEPARTURE_SQ] + kappa
            if kappa <= information < np.inf and information > 0.0:
                found = (sums[row + DEPARTURE_LEFT] + first * kappa) / information
                fit[curve_fit(spec[N_ACTIONS]) * fit_width(p) + share] = min(max(found, least), most)
