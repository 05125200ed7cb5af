"""The running sums: what a finished round adds to a learner's memory."""

import numpy as np

from .compile import jit, part, quotient, reach, same, seldom, spliced
from .layout import (
    CORRECTION,
    COUNT,
    EVIDENCE,
    EVIDENCE_SQ,
    LEARNED,
    N_ACTIONS,
    OFFERED,
    PLAYED,
    PRECISION,
    PSEUDO,
    TERMS,
    UNIT,
    WEIGHT,
    WEIGHT_SQ,
    WEIGHTING,
    fit_width,
    n_features,
    packed_size,
    row_width,
)
from .limits import LARGEST_FACTOR
from .linalg import dot

EVIDENCE_KEPT = 0.998  # of the evidence so far, when the fits disagree again: 500 disagreements count
EVIDENCE_NEEDED = 2.5  # standard errors
LEAST_NOISE = 0.2  # of the variance of <theta, x>: what the reward's own noise is taken to be at least
SETTLING = 40.0  # rounds per feature, times 1 - reliability, after which a round counts half in regression calibration


@spliced
def take_out(arm, correction, sums, p, n_actions, c):
    """C, the error covariance to be taken out for an arm."""
    size = packed_size(p)
    width, error = row_width(p), TERMS + p + size
    played = part(sums, arm * width + error, size)
    offered, alike = part(sums, (n_actions + arm) * width + error, size), part(sums, 2 * n_actions * width + error, size)
    trace, at = 0.0, 0
    if correction == OFFERED:
        for i in range(p):
            trace += offered[at]
            at += p - i
    for k in range(size):
        c[k] = 0.0
        if correction == PLAYED:
            c[k] = played[k]
        elif correction == OFFERED:
            c[k] = alike[k]
    if trace > 0.0:  # seldom: rounds that did not count alike for every arm
        for k in range(size):
            c[k] = offered[k] + alike[k]


@spliced
def add_round(s, p, w, z, error, reward):
    """One round seen with weight w, into the row s of sums; `error` is its error covariance, packed."""
    gram, cross = TERMS + p, TERMS + p + 2 * packed_size(p) + 2
    s[COUNT] += 1.0
    s[WEIGHT] += w
    s[WEIGHT_SQ] += w * w
    s[cross - 2] += w * reward
    s[cross - 1] += w * reward * reward
    add_error(s, p, w, error)
    for i in range(p):
        v = w * z[i]
        s[TERMS + i] += v
        s[cross + i] += v * reward
        for j in range(p - i):
            s[gram + j] += v * z[i + j]
        gram += p - i


@spliced
def add_error(s, p, w, error):
    """The error covariance alone, with weight w."""
    size = packed_size(p)
    for k in range(size):
        s[TERMS + p + size + k] += w * error[k]


@jit
def learn_sums(dims, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight):
    """Take one round into the running sums; `stabilizer` is pi^nd, `weight` the round's own.

    Row a < K holds the rounds in which a was played, weighted 1 or pi^nd(a) / pi(a). Under the paper's correction row K + a
    holds the error covariance of the rounds in which a was allowed, weighted pi^nd(a); row 2K that of the rounds that count alike
    for every arm (all allowed, pi^nd the same for all), so that the usual round costs one addition and not K.
    """
    p = n_features(dims, z.size)
    n_actions, width = spec[N_ACTIONS], row_width(p)
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            w = weight if spec[WEIGHTING] == UNIT else quotient(weight * stabilizer[b], propensity)
            add_round(part(sums, b * width, width), p, w, z, error, reward)
    if spec[CORRECTION] != OFFERED:
        return
    alike = True
    for b in range(n_actions):
        if not allowed[b] or stabilizer[b] < stabilizer[0] or stabilizer[b] > stabilizer[0]:
            alike = False
    if alike:
        add_error(part(sums, 2 * n_actions * width, width), p, weight * stabilizer[0], error)
        return
    for b in range(n_actions):
        if allowed[b]:
            add_error(part(sums, (n_actions + b) * width, width), p, weight * stabilizer[b], error)


@jit
def learn_pseudo(dims, spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known):
    """Take one round into the sums of both fits, and into the evidence on which of them earns more.

    Row a < K: regression calibration, r on the calibrated context x^ where a was played. Row K + a: every round in which a was allowed,
    x~ with u r, u = 1{a_t = a} / pi(a); and row 2K + 3 + a the matrix D_a = sum c (1 - u) x~ x^'. With f_a = <theta_a, x^> by the first
    fit, sum c x~ y_a = sum c u x~ r + D_a theta_a has the doubly robust pseudo-outcomes y_a = f_a + u (r - f_a). E[y_a | x, x~] =
    <theta_a, x> whatever f_a is, so (sum c (x~x~' - S))^-1 sum c x~ y_a is unbiased.
    Where the fits would act differently, the difference of the pseudo-outcomes of their actions is what the robust one earns more.
    Early rounds, calibrated with a poor Sx, count less in the first fit: n / (n + 40 p (1 - known)), `known` the reliability of x~; and
    so do those that leave more of the reward unexplained, see `relative_precision`. A round without error says nothing on which fit is
    right, and counts in full.
    """
    p = n_features(dims, z.size)
    n_actions = spec[N_ACTIONS]
    width, place = row_width(p), fit_width(p)
    top, robust_top = -np.inf, -np.inf
    chosen, robust = 0.0, 0.0
    first, second = -1, -1
    for b in range(n_actions):
        if allowed[b]:
            f = dot(part(fit, b * place, p), seen, p)
            g = dot(part(fit, (n_actions + b) * place, p), z, p)
            u = 1.0 / propensity if b == action else 0.0
            add_round(part(sums, (n_actions + b) * width, width), p, weight, z, error, u * reward)
            matrix = part(sums, (2 * n_actions + 3 + b) * width, p * p)
            for i in range(p):
                v = weight * (1.0 - u) * z[i]
                for j in range(p):
                    matrix[i * p + j] += v * seen[j]
            y = f + u * (reward - f)
            if f > top:
                top, chosen, first = f, y, b
            if g > robust_top:
                robust_top, robust, second = g, y, b
    n = extra[LEARNED]
    if first != second and known < 1.0 and abs(robust - chosen) <= LARGEST_FACTOR:
        extra[EVIDENCE] = EVIDENCE_KEPT * extra[EVIDENCE] + robust - chosen
        extra[EVIDENCE_SQ] = EVIDENCE_KEPT**2 * extra[EVIDENCE_SQ] + (robust - chosen) ** 2
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            settled = n / (n + SETTLING * p * (1.0 - known))
            add_round(part(sums, b * width, width), p, settled * relative_precision(spec, fit, p, known), seen, error, reward)


@spliced
def write_target(a, spec, sums, fit, p):
    """What the fit of row a is solved for, sum w z y, where its theta will stand. The doubly robust one adds D theta of the first fit."""
    n_actions, width = spec[N_ACTIONS], row_width(p)
    target, cross = part(fit, a * fit_width(p), p), part(sums, a * width + TERMS + p + 2 * packed_size(p) + 2, p)
    for i in range(p):
        target[i] = cross[i]
    if spec[WEIGHTING] == PSEUDO and a >= n_actions:
        matrix, first = part(sums, (n_actions + 3 + a) * width, p * p), part(fit, (a - n_actions) * fit_width(p), p)
        for i in range(p):
            for j in range(p):
                target[i] += matrix[i * p + j] * first[j]


@spliced
def relative_precision(spec, fit, p, known):
    """(nu + u) / (nu + 1 - known): how much less is left of the reward in this round than in a mean one; 1 where all are alike."""
    at = (2 * spec[N_ACTIONS] + 1) * fit_width(p) + p + 1
    nu, u = fit[at], fit[at + 1]
    return (nu + u) / (nu + 1.0 - known) if spec[PRECISION] and nu > 0.0 else 1.0


@seldom
def discount(sums, factor, n_actions, p):
    """Let what was learned about rewards fade; what describes x~ (rows 2K + 1 and 2K + 2) stays."""
    first, last = (2 * n_actions + 1) * row_width(p), (2 * n_actions + 3) * row_width(p)
    for k in range(sums.size):
        if not first <= k < last:
            sums[k] *= factor
