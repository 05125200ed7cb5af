"""The calibrated context: the best linear predictor of x, and regression on it."""

import math

from .compile import jit, part, quotient, seldom, spliced
from .curve import SKEWNESS_END, bounded_departure, pooled, refit_curve
from .layout import (
    ACTS_ON,
    CHOSEN_BLP,
    COUNT,
    CURVED,
    EW_BLP,
    KAPPA,
    MEMORY,
    N_ACTIONS,
    PRECISION,
    PSEUDO,
    REPORT,
    RIDGE,
    SINGULAR,
    SOLVED,
    STALE,
    TERMS,
    WEIGHT,
    WEIGHTING,
    fit_width,
    n_features,
    packed_size,
    row_width,
)
from .limits import LARGEST, LARGEST_SUM, LEAST_VARIANCE
from .linalg import factor, factor_once, is_within, solve_factored
from .sums import LEAST_NOISE, add_error

CORRELATION_DOUBT = 2.0  # times the sampling variance of the correlations between features is taken off their squares


@jit
def learn_context(dims, tuning, sums, n_actions, z, error):
    """Take the predicted context of a round into its sums."""
    p = n_features(dims, z.size)
    width, gram = row_width(p), TERMS + p
    first = (2 * n_actions + 1) * width
    steady, recent = part(sums, first, width), part(sums, first + width, width)
    cubes, squares = part(steady, width - p, p), part(recent, width - p, p)
    n, k = steady[COUNT], gram
    if n >= 10.0:
        share = 1.0 / n
        for i in range(p):
            mean = steady[TERMS + i] * share
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
            away = z[i] - recent[TERMS + i] * share
            for j in range(p - i):
                recent[k + j] += away * (z[i + j] - recent[TERMS + i + j] * share)
            k += p - i
    recent[WEIGHT] = keep * m + 1.0
    for i in range(p):
        recent[TERMS + i] = keep * recent[TERMS + i] + z[i]
    add_context(steady, p, z, error)


@spliced
def add_context(s, p, z, error):
    """Sums of x~, x~x~' and Sigma_e."""
    s[COUNT] += 1.0
    s[WEIGHT] += 1.0
    add_error(s, p, 1.0, error)
    k = TERMS + p
    for i in range(p):
        s[TERMS + i] += z[i]
        for j in range(p - i):
            s[k + j] += z[i] * z[i + j]
        k += p - i


@spliced
def calibration_is_due(spec, sums, fit, p):
    """Sx changes slowly: it is computed again once there are 2 % more rounds than last time, a number that stands where theta would."""
    steady = (2 * spec[N_ACTIONS] + 1) * row_width(p)
    n, before = sums[steady + COUNT], fit[2 * spec[N_ACTIONS] * fit_width(p)]
    return sums[steady + row_width(p) + COUNT] >= 2 * p + 2 and not 0.98 * n < before <= n


@seldom
def refit_calibration(spec, tuning, sums, fit, p, work):
    """Sx = V - D S D, V = cov(x~) about the mean in use, S = mean Sigma_e, D diagonal: as much of S as V can bear.

    D = I if that leaves Sx positive semidefinite. Else D_jj^2 = kappa min(1, V_jj / S_jj), kappa the largest share that does, so that one
    coordinate whose error is overstated does not spoil the others. Off its diagonal Sx is taken as far as it is significant: times
    1 - 2 m / (n sum r_ij^2), r_ij = (V - S)_ij / sqrt(V_ii V_jj) of m pairs, about 0 where features are independent. Then the
    coordinates learn from each other, see `pool_reliabilities`.
    The forgetting mean is used if asked for, or if it predicts better: sum_j log(V_jj / V_jj') < 0 over the coordinates that vary;
    constants have no variance and no part in this.
    """
    size = packed_size(p)
    steady = (2 * spec[N_ACTIONS] + 1) * row_width(p)
    recent = steady + row_width(p)
    at = 2 * spec[N_ACTIONS] * fit_width(p)
    n, n_recent = sums[steady + COUNT], sums[recent + COUNT]
    fit[at] = n
    share, varies = 2 * size, 2 * size + p
    k, score = 0, 0.0
    for i in range(p):
        mean = sums[steady + TERMS + i] / n
        second = sums[steady + TERMS + p + k] / n
        variance = second - mean * mean
        work[varies + i] = 1.0 if variance > 1e-10 * second and variance >= LEAST_VARIANCE else 0.0
        if work[varies + i] > 0.0:
            score += math.log(max(sums[recent + TERMS + p + k] / n_recent, 1e-300) / variance)
        k += p - i
    follows = spec[ACTS_ON] == EW_BLP or (spec[ACTS_ON] == CHOSEN_BLP and score < 0.0)
    row = recent if follows else steady
    count = sums[row + COUNT]
    k = 0
    for i in range(p):
        for j in range(i, p):
            v = sums[row + TERMS + p + k] / count
            if not follows:
                v -= (sums[row + TERMS + i] / count) * (sums[row + TERMS + j] / count)
            work[k] = v if work[varies + i] * work[varies + j] > 0.0 else 0.0
            if i == j:
                s = sums[row + TERMS + p + size + k] / count
                work[share + i] = math.sqrt(v / s) if s > v > 0.0 else 1.0 if v > 0.0 else 0.0
            k += 1
    low, high, kappa = 0.0, 1.0, 1.0
    for step in range(13):
        k = 0
        for i in range(p):
            for j in range(i, p):
                d = kappa * work[share + i] * work[share + j] if step > 0 else 1.0
                work[size + k] = work[k] - d * sums[row + TERMS + p + size + k] / count
                if i == j:
                    work[size + k] += 1e-6 * work[k]
                    if work[varies + i] == 0.0:
                        work[size + k] = 1.0
                k += 1
        if factor_once(part(work, size, size), p, part(work, 2 * size + 2 * p, 2 * p)):
            low = kappa
            if step == 0:
                break
        elif step > 0:
            high = kappa
        kappa = 0.5 * (low + high) if step > 0 else 1.0
    plainly = step == 0
    together = significant_share(part(work, 0, size), part(sums, row + TERMS + p + size, size), count, p)
    k = 0
    for i in range(p):
        for j in range(i, p):
            d = 1.0 if plainly else low * work[share + i] * work[share + j]
            fit[at + p + k] = (work[k] - d * sums[row + TERMS + p + size + k] / count) * (1.0 if i == j else together)
            k += 1
    errors, scale = part(sums, row + TERMS + p + size, size), part(work, size, p)
    pool_reliabilities(part(fit, at + p, size), part(work, 0, size), errors, count, p, scale)
    fit[at + p + size + REPORT] = 1.0
    fit[at + p + size + KAPPA] = 1.0 if follows else 0.0
    if spec[CURVED]:
        refit_curve(sums, steady, p, fit, at)
    if spec[WEIGHTING] == PSEUDO:
        if spec[PRECISION]:
            refit_noise(sums, fit, spec[N_ACTIONS], p, part(work, 0, size))
        refit_common(tuning[RIDGE], sums, fit, spec[N_ACTIONS], p, work)
    for i in range(p):
        squares = steady + 2 * row_width(p) - p + i
        sums[squares] = min(sums[squares], LARGEST_SUM)
    found = part(fit, at + 1, 2 * fit_width(p) - 1)
    if not is_within(found, found.size, LARGEST_SUM):
        for k in range(found.size):  # as before the first: x~ is read as it is
            found[k] = 0.0


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


@jit
def calibrate(dims, spec, sums, fit, z, error, out, work):
    """x^, the best linear predictor of the context: x~ - S (Sx + S)^-1 (x~ - mu), S the error covariance of the round; x~ at first.

    With `CURVED` each skewed coordinate also has a share of its `bounded_departure` h from linearity; `out` then has h after x^.
    """
    p = n_features(dims, z.size)
    n_actions = spec[N_ACTIONS]
    size = packed_size(p)
    at = 2 * n_actions * fit_width(p)
    for i in range(p):
        out[i] = z[i]
    if spec[CURVED]:
        for i in range(p):
            out[p + i] = 0.0
    if fit[at + p + size + REPORT] == 0.0:
        return
    follows = fit[at + p + size + KAPPA] == 1.0
    steady = (2 * n_actions + 1) * row_width(p)
    row = steady + row_width(p) if follows else steady
    context, signal, curve = part(sums, row, TERMS + p), part(fit, at + p, size), part(fit, at + fit_width(p), p + 1)
    total, away, solved = part(work, 0, size), part(work, size, p), part(work, size + p, p)
    diagonal, rest = part(work, size + 2 * p, p), part(work, size + 3 * p, 2 * p)
    k, share = 0, 1.0 / context[WEIGHT]
    for i in range(p):
        away[i] = z[i] - context[TERMS + i] * share
        solved[i] = away[i]
        for j in range(p - i):
            total[k + j] = signal[k + j] + error[k + j]
        diagonal[i] = total[k]
        total[k] = total[k] * (1.0 + 1e-6) if total[k] > 0.0 else 1.0
        k += p - i
    if not factor(total, p, rest):
        return
    solve_factored(total, p, solved)
    k = 0
    for i in range(p):
        if spec[CURVED] and not follows and curve[i] != 0.0 and error[k] > 0.0:
            h = bounded_departure(away[i], curve[i], diagonal[i], error[k])
            out[p + i] = h
            out[i] += curve[p] * h
        out[i] -= error[k] * solved[i]
        for j in range(i + 1, p):
            out[i] -= error[k + j - i] * solved[j]
            out[j] -= error[k + j - i] * solved[i]
        k += p - i


@seldom
def refit_noise(sums, fit, n_actions, p, mean_error):
    """nu, the variance of the rewards' own noise as a multiple of that of <theta, x>; and u, 1 - reliability of a mean round.

    What regression calibration leaves has the variance s = sigma^2 + theta' var(x | x~) theta, about (nu + u) theta' Sx theta; s itself
    adds about s K p / (n (1 - u)) to the mean of theta' Sx theta, which is taken off. nu is at least 0.2: u is not known exactly either.
    Both are 0, and all rounds count alike, while noise could explain all of theta. They stand after the share of the curve.
    """
    size, width, place = packed_size(p), row_width(p), fit_width(p)
    at = 2 * n_actions * place
    signal = part(fit, at + p, size)
    weight, left, explained = 0.0, 0.0, 0.0
    for k in range(size):
        mean_error[k] = 0.0
    for a in range(n_actions):
        row, theta = part(sums, a * width, width), part(fit, a * place, p)
        weight += row[WEIGHT]
        left += row[TERMS + p + 2 * size + 1]
        k = 0
        for i in range(p):
            left -= 2.0 * theta[i] * row[TERMS + p + 2 * size + 2 + i]
            for j in range(i, p):
                both = theta[i] * theta[j] * (1.0 if i == j else 2.0)
                left += both * row[TERMS + p + k]
                explained += row[WEIGHT] * both * signal[k]
                mean_error[k] += row[TERMS + p + size + k]
                k += 1
    nu, u, fitted = 0.0, 0.0, n_actions * p
    if weight > fitted:
        for k in range(size):
            mean_error[k] /= weight
        known = reliability(fit, n_actions, p, mean_error)
        left /= weight - fitted
        explained = (explained - left * fitted / known) / weight
        if explained > 0.0:
            u = 1.0 - known
            nu = min(max(left / explained - u, LEAST_NOISE), LARGEST)
    fit[at + place + p + 1], fit[at + place + p + 2] = nu, u


@seldom
def refit_common(ridge, sums, fit, n_actions, p, work):
    """theta of all arms together, (sum_a G_a + ridge I)^-1 sum_a c_a, which each of them is drawn to, see `solve_calibrated`.

    It stands after what rounds are weighed by. Where there is nothing to be solved yet it is 0.
    """
    size, width, place = packed_size(p), row_width(p), fit_width(p)
    gram, rest, common = part(work, 0, size), part(work, size, 2 * p), part(fit, (2 * n_actions + 1) * place + p + 3, p)
    k = 0
    for i in range(p):
        common[i] = 0.0
        for j in range(p - i):
            gram[k + j] = ridge if j == 0 else 0.0
        k += p - i
    for a in range(n_actions):
        row = part(sums, a * width, width)
        for k in range(size):
            gram[k] += row[TERMS + p + k]
        for i in range(p):
            common[i] += row[TERMS + p + 2 * size + 2 + i]
        fit[a * place + p + size + STALE] = 1.0
        fit[(n_actions + a) * place + p + size + STALE] = 1.0  # its pseudo-outcomes are made with the first fit
    if not factor_once(gram, p, rest) or not solve_factored(gram, p, common):
        for i in range(p):
            common[i] = 0.0


@jit
def solve_calibrated(dims, arm, ridge, sums, fit, p, n_actions, work):
    """Regression calibration in one arm: theta = (sum w x^x^' + ridge I + p S)^-1 (sum w x^ r + p S theta-), S = mean Sigma_e.

    theta- is the fit of all arms together when x~ was last calibrated. The ridge p S counts as many rounds as there are features, which
    vary as the error does and agree with theta-: about what an arm must have seen to know better, and nothing where there is no error.
    """
    p = n_features(dims, p)
    size, place, width = packed_size(p), fit_width(p), row_width(p)
    row, steady = part(sums, arm * width, width), part(sums, (2 * n_actions + 1) * width, width)
    common, theta = part(fit, (2 * n_actions + 1) * place + p + 3, p), part(fit, arm * place, p)
    a, rest = part(work, 0, size), part(work, size, 2 * p)
    pull = quotient(float(p), max(steady[COUNT], 1.0))
    for i in range(p):
        theta[i] = row[TERMS + p + 2 * size + 2 + i]
    k = 0
    for i in range(p):
        for j in range(p - i):
            s = pull * steady[TERMS + p + size + k + j]
            a[k + j] = row[TERMS + p + k + j] + s
            theta[i] += s * common[i + j]
            if j > 0:
                theta[i + j] += s * common[i]
        a[k] += ridge
        k += p - i
    solved = factor(a, p, rest)
    if solved:
        solved = solve_factored(a, p, theta)
    if not solved:
        for i in range(p):
            theta[i] = 0.0
    fit[arm * place + p + size + REPORT] = SOLVED if solved else SINGULAR
    fit[arm * place + p + size + STALE] = 0.0


@jit
def reliability(fit, n_actions, p, error):
    """The mean of Sx_jj / (Sx_jj + S_jj) over the coordinates, 1 where there is no error; 1/2 for all others before Sx is known."""
    at = 2 * n_actions * fit_width(p)
    known = fit[at + p + packed_size(p) + REPORT] != 0.0
    k, total = 0, 0.0
    for i in range(p):
        own = fit[at + p + k] if known else error[k]
        total += own / (own + error[k]) if own > 0.0 else 1.0 if error[k] == 0.0 else 0.0
        k += p - i
    return max(total / p, 1e-3)
