"""The running sums: what a finished round adds to a learner's memory."""

import numpy as np

from .compile import inlined, part, quotient, reach, same, seldom, spliced
from .layout import (
    CORRECTION,
    COUNT,
    EVIDENCE,
    EVIDENCE_SQ,
    FEATURES,
    LEARNED,
    N_ACTIONS,
    OFFERED,
    PLAYED,
    UNIT,
    WEIGHT,
    WEIGHT_SQ,
    WEIGHTING,
    alike_row,
    context_row,
    cross_at,
    departure_row,
    error_at,
    fit_width,
    gram_at,
    n_features,
    offered_row,
    packed_size,
    reward_at,
    reward_sq_at,
    robust_fit,
    row_width,
)
from .limits import LARGEST_FACTOR
from .linalg import dot

EVIDENCE_KEPT = 0.998  # of the evidence so far, when the fits disagree again: 500 disagreements count
EVIDENCE_NEEDED = 2.5  # standard errors
SETTLING = 10.0  # rounds per feature, after which a round that was calibrated counts half in the regression


@spliced
def take_out(arm, correction, sums, p, width, n_actions, c):
    """C, the error covariance to be taken out for an arm of p features, in rows of a given width."""
    size, error = packed_size(p), error_at(p)
    played, offered = part(sums, arm * width + error, size), part(sums, offered_row(n_actions, arm) * width + error, size)
    alike = part(sums, alike_row(n_actions) * width + error, size)
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
    gram, cross = gram_at(p), cross_at(p)
    s[COUNT] += 1.0
    s[WEIGHT] += w
    s[WEIGHT_SQ] += w * w
    s[reward_at(p)] += w * reward
    s[reward_sq_at(p)] += w * reward * reward
    add_error(s, p, w, error)
    for i in range(p):
        v = w * z[i]
        s[FEATURES + i] += v
        s[cross + i] += v * reward
        for j in range(p - i):
            s[gram + j] += v * z[i + j]
        gram += p - i


@spliced
def add_prediction(s, p, w, z, error):
    """A round without its reward, with weight w."""
    gram = gram_at(p)
    s[COUNT] += 1.0
    s[WEIGHT] += w
    s[WEIGHT_SQ] += w * w
    add_error(s, p, w, error)
    for i in range(p):
        v = w * z[i]
        s[FEATURES + i] += v
        for j in range(p - i):
            s[gram + j] += v * z[i + j]
        gram += p - i


@spliced
def add_product(matrix, q, p, w, x, z):
    """matrix += w x z', for x of q entries and z of p."""
    for i in range(q):
        v = w * x[i]
        for j in range(p):
            matrix[i * p + j] += v * z[j]


@spliced
def add_error(s, p, w, error):
    """The error covariance alone, with weight w."""
    at = error_at(p)
    for k in range(packed_size(p)):
        s[at + k] += w * error[k]


@inlined
def learn_sums(recipe, sums, context, outcome, weight):
    """Take one round into the running sums; `weight` is the round's own.

    Row a < K holds the rounds in which a was played, weighted 1 or pi^nd(a) / pi(a). Under the paper's correction the offered row of a
    holds the error covariance of the rounds in which a was allowed, weighted pi^nd(a); the alike row that of the rounds that count alike
    for every arm (all allowed, pi^nd the same for all), so that the usual round costs one addition and not K.
    """
    z, error, allowed, stabilizer = context.z, context.error, context.allowed, outcome.stabilizer
    p, spec = n_features(recipe.dims, z.size), recipe.spec
    n_actions, width = spec[N_ACTIONS], row_width(p)
    start, end = reach(outcome.action, n_actions)
    for b in range(start, end):
        if same(b, outcome.action):
            w = weight if spec[WEIGHTING] == UNIT else quotient(weight * stabilizer[b], outcome.propensity)
            add_round(part(sums, b * width, width), p, w, z, error, outcome.reward)
    if spec[CORRECTION] != OFFERED:
        return
    alike = True
    for b in range(n_actions):
        if not allowed[b] or stabilizer[b] < stabilizer[0] or stabilizer[b] > stabilizer[0]:
            alike = False
    if alike:
        add_error(part(sums, alike_row(n_actions) * width, width), p, weight * stabilizer[0], error)
        return
    for b in range(n_actions):
        if allowed[b]:
            add_error(part(sums, offered_row(n_actions, b) * width, width), p, weight * stabilizer[b], error)


@inlined
def learn_pseudo(recipe, memory, context, outcome, weight):
    """Take one round into the sums of both fits.

    Row a < K: r on the calibrated context z where a was played. The offered row of a: every round in which a was allowed, x~ with u r,
    u = 1{a_t = a} / pi(a); and its departure row the matrix D_a = sum c (1 - u) x~ z'. With f_a = <b_a, z> by the first fit,
    sum c x~ y_a = sum c u x~ r + D_a b_a has the doubly robust pseudo-outcomes y_a = f_a + u (r - f_a). E[y_a | x, x~] = <theta_a, x>
    whatever f_a is, so (sum c (x~x~' - S))^-1 sum c x~ y_a is unbiased. c is `weight`, see `relative_reliability`. Where all actions are
    allowed c x~x~', c S and c x~ z' are the same for all of them: they are kept once, in the alike row and the last departure row.
    Where the fits would act differently, the difference of the pseudo-outcomes of their actions is what the robust one, on x~, earns more.
    Early rounds whose calibration rests on a poor Sx count less in the first fit: n / (n + 10 p). Where x~ is read as it is they do not.
    """
    sums, fit, extra, z, seen = memory.sums, memory.fit, memory.extra, context.z, context.seen
    action, reward, p = outcome.action, outcome.reward, n_features(recipe.dims, z.size)
    n_actions, width, place, q = recipe.spec[N_ACTIONS], row_width(p), fit_width(p), p - 1
    top, robust_top, chosen, robust, first, second = -np.inf, -np.inf, 0.0, 0.0, -1, -1
    predicted, error = part(z, 1, q), part(context.error, p, packed_size(q))
    w, n, as_it_is, alike = seen[2 * p], extra[LEARNED], True, True
    for i in range(1, p):
        as_it_is = as_it_is and seen[i] == z[i]
    for b in range(n_actions):
        alike = alike and context.allowed[b]
        if context.allowed[b]:
            u = 1.0 / outcome.propensity if b == action else 0.0
            f, g = dot(part(fit, b * place, p), seen, p), dot(part(fit, robust_fit(n_actions, b) * place, q), predicted, q)
            y = f + u * (reward - f)
            if f > top:
                top, chosen, first = f, y, b
            if g > robust_top:
                robust_top, robust, second = g, y, b
    if first != second and abs(robust - chosen) <= LARGEST_FACTOR:
        extra[EVIDENCE] = EVIDENCE_KEPT * extra[EVIDENCE] + robust - chosen
        extra[EVIDENCE_SQ] = EVIDENCE_KEPT**2 * extra[EVIDENCE_SQ] + (robust - chosen) ** 2
    if alike:
        add_prediction(part(sums, alike_row(n_actions) * width, width), q, weight, predicted, error)
        add_product(part(sums, departure_row(n_actions, n_actions) * width, q * p), q, p, weight, predicted, seen)
    else:
        for b in range(n_actions):
            if context.allowed[b]:
                add_restricted(sums, b, n_actions, p, weight, predicted, seen, error)
    settled = 1.0 if as_it_is else n / (n + SETTLING * p)
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            add_round(part(sums, b * width, width), p, settled * w, seen, context.error, reward)
            add_outcome(sums, b, n_actions, p, weight, outcome.propensity, predicted, seen, reward)


@seldom
def add_restricted(sums, b, n_actions, p, weight, predicted, seen, error):
    """What a round in which not all actions were allowed adds to the offered and the departure row of an action, but for its reward."""
    width, q = row_width(p), p - 1
    add_prediction(part(sums, offered_row(n_actions, b) * width, width), q, weight, predicted, error)
    add_product(part(sums, departure_row(n_actions, b) * width, q * p), q, p, weight, predicted, seen)


@spliced
def add_outcome(sums, b, n_actions, p, weight, propensity, predicted, seen, reward):
    """What the reward of action b adds to its offered and its departure row: c u x~ r, and -c u x~ z'."""
    width, q, u = row_width(p), p - 1, 1.0 / propensity
    row, v = part(sums, offered_row(n_actions, b) * width, width), weight * u
    cross = part(row, cross_at(q), q)
    row[reward_at(q)] += v * reward
    row[reward_sq_at(q)] += v * u * reward * reward
    for i in range(q):
        cross[i] += v * reward * predicted[i]
    add_product(part(sums, departure_row(n_actions, b) * width, q * p), q, p, -v, predicted, seen)


@spliced
def write_target(a, sums, fit, p):
    """What the fit of row a is solved for, sum w z r, where its theta will stand."""
    target, cross = part(fit, a * fit_width(p), p), part(sums, a * row_width(p) + cross_at(p), p)
    for i in range(p):
        target[i] = cross[i]


@seldom
def write_robust(a, sums, fit, p, n_actions, row, target):
    """What the doubly robust fit of action a is solved from: its sums as one row, and as its target sum c u x~ r + D_a b_a."""
    width, q, b = row_width(p), p - 1, part(fit, a * fit_width(p), p)
    own, alike = part(sums, offered_row(n_actions, a) * width, width), part(sums, alike_row(n_actions) * width, width)
    matrix, common = part(sums, departure_row(n_actions, a) * width, q * p), part(sums, departure_row(n_actions, n_actions) * width, q * p)
    for k in range(width):
        row[k] = own[k] + alike[k]
    for i in range(q):
        target[i] = row[cross_at(q) + i]
        for j in range(p):
            target[i] += (matrix[i * p + j] + common[i * p + j]) * b[j]


@seldom
def discount(sums, factor, n_actions, p):
    """Let what was learned about rewards fade; what describes x~ stays."""
    first, last = context_row(n_actions) * row_width(p), departure_row(n_actions, 0) * row_width(p)
    for k in range(sums.size):
        if not first <= k < last:
            sums[k] *= factor
