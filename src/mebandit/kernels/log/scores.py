"""The scores of the estimates from a stored log, from which standard errors follow."""

import math

import numpy as np

from ..compile import jit, spliced, summing
from ..layout import INVERSE, PSEUDO, UNIT, entry
from .calibration import times_packed
from .crossproducts import CHUNK

LARGEST_LEVERAGE = 0.98  # a round or cluster that decides a coefficient alone would otherwise get an infinite score


@jit
def add_scores(meat, totals, groups, unit, first, scoring, seen, log):
    """Sums of psi psi' over the rounds of a log by method, or of psi by unit if there are any; see `estimation.scores.Scoring`.

    Without units psi is also summed by group, (methods, K p, groups): the group of the log's row t is t modulo their number, and `first` is
    the row of the first round.

    psi = w x (x'theta - y) - s Sigma_e theta by action, w and y by the method's weighting; s = kappa w, or pi^nd(a) where the paper's
    formula was solved as it stands (`plain`). x is x~, or x^ where the method regresses on that: by one map for all rounds or, if there is
    no such map, from `seen`. The nuisance Jacobian then adds what the estimation of mean and S_x does. Rows of the predictions beyond the
    features are those of a baseline, which the outcome regressions alone read.
    """
    n_methods, n_actions, p = scoring.theta.shape
    d, n = scoring.dim, log.predicted.shape[1]
    psi, work, near = np.empty((n_actions * p, CHUNK)), np.empty((7, CHUNK)), np.empty((d, CHUNK))
    moves = np.empty((scoring.jacobian.slope.shape[1], CHUNK))
    taken = np.zeros((n_actions, d))
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        for g in range(n_methods):
            x, at, with_jacobian = log.predicted[:d], start, scoring.calibrated[g] and scoring.jacobian.slope.shape[0] > 0
            if scoring.calibrated[g]:
                x, at = (near, 0) if scoring.to_calibrated.shape[0] > 0 else (seen, start)
                for i in range(scoring.to_calibrated.shape[0]):
                    write_fitted(near[i, :m], scoring.to_calibrated, i, 1, log.predicted, start)
            for b in range(n_actions):
                write_scores(psi, start, m, b, g, scoring, x, at, log, work, taken)
            if with_jacobian:
                add_calibration(psi, start, m, scoring.jacobian, log, moves)
            if totals.shape[1] == 0:
                add_outer(meat[g], psi, m, p, scoring.weighting[g] == UNIT and not with_jacobian)
                add_by_group(groups[g], psi, m, first + start)
            else:
                for k in range(m):
                    for i in range(n_actions * p):
                        totals[g, unit[start + k], i] += psi[i, k]


@jit
def add_calibration(psi, start, m, jacobian, log, moves):
    """What the uncertainty of the calibration adds to psi: the nuisance Jacobian times y = x~ - mean and the packed yy' - Sigma_e - S_x."""
    d, k = jacobian.center.size, jacobian.center.size
    for i in range(d):
        write_away(moves[i, :m], log.predicted[i, start : start + m], jacobian.center[i])
    for i in range(d):
        for j in range(i, d):
            write_spread(moves[k, :m], moves[i, :m], moves[j, :m], jacobian.spread[k - d], log.errors[:, k - d], start)
            k += 1
    for i in range(0, psi.shape[0], 2):
        j = min(i + 1, psi.shape[0] - 1)
        add_linear_twice(psi[i, :m], psi[j, :m], jacobian.slope[i], jacobian.slope[j] if j > i else np.zeros(k), moves)


@jit
def write_away(out, x, mean):
    """out = x - mean."""
    for k in range(out.size):
        out[k] = x[k] - mean


@summing
def add_linear_twice(out, other, slope, second, x):
    """out += slope'x and other += second'x: two for the price of reading x once. Five of its rows at a time, as in `write_linear`."""
    single = slope.size % 5
    for i in range(single):
        x0, a0, b0 = x[i], slope[i], second[i]
        for k in range(out.size):
            out[k] += a0 * x0[k]
            other[k] += b0 * x0[k]
    for i in range(single, slope.size, 5):
        x0, x1, x2, x3, x4 = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4]
        a0, a1, a2, a3, a4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        b0, b1, b2, b3, b4 = second[i], second[i + 1], second[i + 2], second[i + 3], second[i + 4]
        for k in range(out.size):
            out[k] += a0 * x0[k] + a1 * x1[k] + a2 * x2[k] + a3 * x3[k] + a4 * x4[k]
            other[k] += b0 * x0[k] + b1 * x1[k] + b2 * x2[k] + b3 * x3[k] + b4 * x4[k]


@jit
def write_spread(out, x, y, expected, errors, start):
    """x y - expected - error, the error one for all rounds or one for each."""
    if errors.size == 1:
        for k in range(out.size):
            out[k] = x[k] * y[k] - (expected + errors[0])
    else:
        for k in range(out.size):
            out[k] = x[k] * y[k] - expected - errors[start + k]


@jit
def write_scores(psi, start, m, b, g, scoring, x, at, log, work, taken):
    """psi of method g for action b and the m rounds from `start` on, which x has from `at` on."""
    theta, weighting, kappa, plain = scoring.theta[g], scoring.weighting[g], scoring.kappa[g, b], scoring.plain[g, b]
    p, d = theta.shape[1], x.shape[0]
    intercept = p - d
    away, taking, guess, weight, lift = work[0, :m], work[1, :m], work[2, :m], work[3, :m], work[4, :m]
    if weighting == PSEUDO:
        write_fitted(guess, scoring.beta, b, 1, log.predicted, start)
        if scoring.leverage.kind > 0:
            leave_out(guess, lift, b, scoring.leverage, start, log, work)
    write_fitted(away, theta, b, intercept, x, at)
    if log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1:
        nd = log.stabilizer[0, b] if log.allowed[0, b] else 0.0
        weigh_alike(away, taking, weight, guess, b, weighting, nd, kappa, plain, start, log)
    else:
        for k in range(m):
            t = start + k
            nd = 0.0
            if log.allowed[entry(t, log.allowed.shape[0]), b]:
                nd = log.stabilizer[entry(t, log.stabilizer.shape[0]), b]
            played, propensity, reward = log.actions[t] == b, log.propensities[t], log.rewards[t]
            away[k], taking[k], weight[k] = weigh(away[k], guess[k], played, weighting, nd, kappa, plain, propensity, reward)
    if intercept:
        for k in range(m):
            psi[b * p, k] = away[k]
    at_b = b * p + intercept
    if log.errors.shape[0] == 1:
        times_packed(log.errors[0], theta[b, intercept:], d, taken[b])
        for i in range(d):
            write_score(psi[at_b + i, :m], away, x[i, at : at + m], taking, taken[b, i])
    else:
        for k in range(m):
            times_packed(log.errors[start + k], theta[b, intercept:], d, taken[b])
            for i in range(d):
                psi[at_b + i, k] = away[k] * x[i, at + k] - taking[k] * taken[b, i]
    if scoring.leverage.kind > 0:
        if weighting == PSEUDO:
            for i in range(p):
                write_fitted(work[5, :m], scoring.leverage.outcome_effect[b], i, 1, log.predicted, start)
                subtract_product(psi[b * p + i, :m], work[5, :m], lift)
        divide_by_leverage(psi, b, scoring.leverage.kind, scoring.leverage.precision[g, b], weight, x, at, intercept, work)


@jit
def leave_out(guess, lift, b, leverage, start, log, work):
    """The outcome regression of action b at its own rounds becomes the one without that round: z'beta - h lift, lift = e / (1 - h).

    h = z'(Σ zz')^-1 z is the leverage of the round in the regression and e its residual; lift is 0 in the rounds of other actions.
    """
    m, precision = guess.size, leverage.outcome_precision[b]
    own, row = work[5, :m], work[6, :m]
    for k in range(m):
        own[k] = 0.0
    for i in range(precision.shape[0]):
        write_fitted(row, precision, i, 1, log.predicted, start)
        if i == 0:
            for k in range(m):
                own[k] += row[k]
        else:
            add_product(own, row, log.predicted[i - 1, start : start + m])
    actions, rewards = log.actions[start:], log.rewards[start:]
    for k in range(m):
        h = min(max(own[k], 0.0), LARGEST_LEVERAGE)
        lift[k] = (rewards[k] - guess[k]) / (1.0 - h) if actions[k] == b else 0.0
        guess[k] -= lift[k] * h


@jit
def divide_by_leverage(psi, b, kind, precision, weight, x, at, intercept, work):
    """(I - H)^-1/2 psi (kind 2) or (I - H)^-1 psi (kind 3) for action b, H = w xx'M^-1 with the precision M^-1.

    H has the one eigenvalue h = w x'M^-1 x other than 0, the leverage of the round: the derivative of its own fitted value. So psi moves
    along x, by w x'M^-1 psi times 1 / (r (1 + r)), r = sqrt(1 - h), or times 1 / (1 - h).
    """
    p, m = precision.shape[0], weight.size
    own, along, row = work[4, :m], work[5, :m], work[6, :m]
    for k in range(m):
        own[k], along[k] = 0.0, 0.0
    for i in range(p):
        write_fitted(row, precision, i, intercept, x, at)
        add_product(along, row, psi[b * p + i, :m])
        if i < intercept:
            for k in range(m):
                own[k] += row[k]
        else:
            add_product(own, row, x[i - intercept, at : at + m])
    for k in range(m):
        left = 1.0 - min(max(weight[k] * own[k], 0.0), LARGEST_LEVERAGE)
        root = math.sqrt(left)
        along[k] *= weight[k] / (left if kind == 3 else root * (1.0 + root))
    for i in range(p):
        if i < intercept:
            for k in range(m):
                psi[b * p + i, k] += along[k]
        else:
            add_product(psi[b * p + i, :m], along, x[i - intercept, at : at + m])


@jit
def add_product(out, x, y):
    """out += x y, round by round."""
    for k in range(out.size):
        out[k] += x[k] * y[k]


@jit
def subtract_product(out, x, y):
    """out -= x y, round by round."""
    for k in range(out.size):
        out[k] -= x[k] * y[k]


@jit
def add_by_group(groups, psi, m, row):
    """Add m rounds to the sums of psi by group, (K p, groups), the first to group `row` modulo their number: in runs without a gap."""
    n = groups.shape[1]
    done, place = 0, row % n
    while done < m:
        run = min(m - done, n - place)
        for i in range(psi.shape[0]):
            for k in range(run):
                groups[i, place + k] += psi[i, done + k]
        done, place = done + run, 0


@jit
def add_unit_products(products, unit, log):
    """Sums of vv', v = (1, x~, r), by unit, packed, (units, 3, K, size): with the weights 1{a_t = a}, c u and c, see `add_products`."""
    d, n = log.predicted.shape
    v = np.ones(d + 2)
    for t in range(n):
        for i in range(d):
            v[1 + i] = log.predicted[i, t]
        v[d + 1] = log.rewards[t]
        own, s, a = products[unit[t]], entry(t, log.stabilizer.shape[0]), log.actions[t]
        w = log.stabilizer[s, a] / log.propensities[t]
        for b in range(own.shape[1]):
            c = log.stabilizer[s, b] if log.allowed[entry(t, log.allowed.shape[0]), b] else 0.0
            k = 0
            for i in range(d + 2):
                for j in range(i, d + 2):
                    product = v[i] * v[j]
                    own[2, b, k] += c * product
                    if b == a:
                        own[0, b, k] += product
                        own[1, b, k] += w * product
                    k += 1


@jit
def write_score(out, away, x, taking, taken):
    """One row of psi, with Sigma_e theta one for all rounds."""
    for k in range(out.size):
        out[k] = away[k] * x[k] - taking[k] * taken


@spliced
def weigh(fitted, guess, played, weighting, nd, kappa, plain, propensity, reward):
    """w (x'theta - y), s and w of a round for an action, see `add_scores`."""
    u = 1.0 / propensity if played else 0.0
    w = nd if weighting == PSEUDO else nd * u if weighting == INVERSE else 1.0 if played else 0.0
    y = guess + u * (reward - guess) if weighting == PSEUDO else reward
    return w * (fitted - y), nd if plain else kappa * w, w


@jit
def weigh_alike(away, taking, weight, guess, b, weighting, nd, kappa, plain, start, log):
    """`weigh` over rounds that are all alike in what they offer: a loop that the compiler can turn into vector instructions."""
    actions, propensities, rewards = log.actions[start:], log.propensities[start:], log.rewards[start:]
    for k in range(away.size):
        own = weigh(away[k], guess[k], actions[k] == b, weighting, nd, kappa, plain, propensities[k], rewards[k])
        away[k], taking[k], weight[k] = own


@jit
def write_fitted(out, coefficients, b, intercept, x, start):
    """The linear function of row b of `coefficients`, its intercept first if there is one, at the rounds of x from `start` on."""
    write_linear(out, coefficients[b, 0] if intercept else 0.0, coefficients[b, intercept:], x, start)


@jit
def write_linear(out, level, slope, x, start):
    """out = level + slope'x at the rounds of x from `start` on; five features at a time, the most usual number."""
    for k in range(out.size):
        out[k] = level
    end, single = start + out.size, slope.size % 5
    for i in range(single):
        x0, c0 = x[i, start:end], slope[i]
        for k in range(out.size):
            out[k] += c0 * x0[k]
    for i in range(single, slope.size, 5):
        x0, x1, x2, x3, x4 = x[i, start:end], x[i + 1, start:end], x[i + 2, start:end], x[i + 3, start:end], x[i + 4, start:end]
        c0, c1, c2, c3, c4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        for k in range(out.size):
            out[k] += c0 * x0[k] + c1 * x1[k] + c2 * x2[k] + c3 * x3[k] + c4 * x4[k]


@jit
def affine(x, matrix, offset, out):
    """out = offset + matrix x for every round; for a matrix this small, faster than a library call that wakes its own threads."""
    d, n = x.shape
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        for i in range(d):
            write_linear(out[i, start:end], offset[i], matrix[i], x, start)


@jit
def add_outer(meat, psi, m, p, apart):
    """Sums of psi psi' over m rounds, in the upper triangle; `apart`: no round has psi of two actions, so their products are zero.

    Two rows with two rows at a time, so that what is loaded once is used twice; a row without a pair is its own. Where rows of two actions
    make a pair, their products are computed after all, and are zero.
    """
    size = psi.shape[0]
    for i in range(0, size, 2):
        below = min(i + 1, size - 1)
        end = (below // p + 1) * p if apart else size
        for j in range(i, end, 2):
            beside = min(j + 1, end - 1)
            one, two, three, four = products_of_pairs(psi[i, :m], psi[below, :m], psi[j, :m], psi[beside, :m])
            meat[i, j] += one
            if beside > j:
                meat[i, beside] += two
            if below > i and j > i:
                meat[below, j] += three
            if below > i and beside > j:
                meat[below, beside] += four


@summing
def products_of_pairs(a, b, x, y):
    """a'x, a'y, b'x and b'y."""
    ax, ay, bx, by = 0.0, 0.0, 0.0, 0.0
    for k in range(a.size):
        ax += a[k] * x[k]
        ay += a[k] * y[k]
        bx += b[k] * x[k]
        by += b[k] * y[k]
    return ax, ay, bx, by
