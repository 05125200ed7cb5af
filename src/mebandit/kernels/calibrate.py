"""The calibrated context: the best linear predictor of x, or what a regression reads in its place."""

from .compile import jit, part, seldom, spliced
from .context import find_variation, pool_reliabilities, refit_signal, write_covariance
from .curve import bounded_departure, refit_curve
from .layout import (
    ACTS_ON,
    CHOSEN_BLP,
    COUNT,
    CURVED,
    EW_BLP,
    FEATURES,
    KAPPA,
    MEMORY,
    N_ACTIONS,
    PRECISION,
    PSEUDO,
    REPORT,
    REPORT_COLUMNS,
    SIGNAL_ROUNDS,
    WEIGHT,
    WEIGHTING,
    context_row,
    cross_at,
    curve_fit,
    drift_at,
    error_at,
    factor_at,
    fit_width,
    n_features,
    noise_at,
    packed_size,
    prior_fit,
    recent_row,
    reference_fit,
    report_at,
    row_width,
    share_at,
    signal_fit,
)
from .limits import LARGEST, LARGEST_FACTOR, LARGEST_SUM
from .linalg import add_symmetric, dot, factor, factor_once, is_within, quadratic_form, solve_factored, solve_factored_once
from .prior import refit_prior

OFTEN_UNTIL = 30.0  # rounds, while what the regressions are drawn to is found again after each
LEAST_RELIABILITY = 0.4  # of a feature, where a departure is told in units of the prediction
RIDGE_SHARE = 0.02  # of Sx + S0, on the diagonal of Sx there
PRECISIONS = (0.05, 20.0)  # what a round may count for


@spliced
def calibration_is_due(spec, sums, fit, p):
    """Sx changes slowly: it is computed again once there are 2 % more rounds than last time."""
    n_actions, width = spec[N_ACTIONS], row_width(p)
    n, before = sums[context_row(n_actions) * width + COUNT], fit[signal_fit(n_actions) * fit_width(p) + SIGNAL_ROUNDS]
    if spec[WEIGHTING] == PSEUDO:
        return before != n if n <= OFTEN_UNTIL else not 0.98 * n < before <= n
    return sums[recent_row(n_actions) * width + COUNT] >= 2 * p + 2 and not 0.98 * n < before <= n


@seldom
def refit_calibration(spec, sums, fit, p, work):
    """All that is derived from the contexts so far: Sx and its curve; and what the regressions are drawn to.

    The forgetting mean is used if asked for, or if it predicts x~ better. Where something is not of a usable size all of it is zero, as
    before the first time: x~ is then read as it is.
    """
    n_actions, width, place = spec[N_ACTIONS], row_width(p), fit_width(p)
    size, at = packed_size(p), signal_fit(n_actions) * place
    steady, recent = part(sums, context_row(n_actions) * width, width), part(sums, recent_row(n_actions) * width, width)
    fit[at + SIGNAL_ROUNDS] = steady[COUNT]
    if recent[COUNT] >= 2 * p + 2:
        varies = part(work, 2 * size + p, p)
        advantage = find_variation(steady, recent, p, varies)
        follows = spec[ACTS_ON] == EW_BLP or (spec[ACTS_ON] == CHOSEN_BLP and advantage < 0.0)
        row = recent if follows else steady
        signal, errors = part(fit, at + factor_at(p), size), part(row, error_at(p), size)
        write_covariance(row, follows, varies, p, part(work, 0, size), part(work, 2 * size, p))
        refit_signal(row, p, work, signal)
        pool_reliabilities(signal, part(work, 0, size), errors, row[COUNT], p, part(work, size, p))
        if spec[WEIGHTING] == PSEUDO and fit[at + report_at(p) + REPORT] == 0.0:
            set_reference(steady, part(fit, reference_fit(n_actions) * place, place), p)
        fit[at + report_at(p) + REPORT] = 1.0
        fit[at + report_at(p) + KAPPA] = 1.0 if follows else 0.0
        if spec[CURVED]:
            refit_curve(sums, fit, n_actions, p)
    if spec[WEIGHTING] == PSEUDO:
        refit_prior(sums, fit, n_actions, p, work)
    squares = part(recent, cross_at(p), p)
    for i in range(p):
        squares[i] = min(squares[i], LARGEST_SUM)
    found = part(fit, at + SIGNAL_ROUNDS + 1, (4 if spec[WEIGHTING] == PSEUDO else 2) * place - 1)
    if not is_within(found, found.size, LARGEST_SUM):
        for k in range(found.size):
            found[k] = 0.0


@seldom
def set_reference(steady, reference, p):
    """What contexts are calibrated relative to: the mean m and the mean error S0 of the rounds before Sx was known.

    It stays: any S0 spans the same functions, but one that moved would let the slopes on it move, while the sums keep old rounds as they
    were. Where S does not change it is S.
    """
    for i in range(p):
        reference[i] = steady[FEATURES + i] / steady[COUNT]
    for k in range(packed_size(p)):
        reference[factor_at(p) + k] = steady[error_at(p) + k] / steady[COUNT]


@jit
def calibrate(dims, spec, tuning, sums, fit, z, error, out, work):
    """What the decision and the fit read of x~: x^, the best linear predictor of x, or z, which spans the same functions.

        x^ = x~ - S (Sx + S)^-1 (x~ - mu) + lambda h,            S the error covariance of the round
        z = x~ - (S - S0) (Sx + S)^-1 (x~ - m) + lambda A^-1 h,    A = Sx (Sx + S0)^-1, with PSEUDO

    z is x^ relative to a reference S0, see `set_reference`: z - m = A^-1 (x^ - m), m the mean of x~. A regression on (1, z) has the slopes
    A' theta, and where S does not change z is x~ itself, whatever is known of Sx and S. h is how E[x | x~] departs from linear: the curve
    of skewed coordinates, see `bounded_departure`, or, where a forgetting mean mu predicts x~ better and may be followed,
    S (Sx + S)^-1 (mu - m). The rewards say which share lambda of it is right. Behind z, `out` has A^-1 h, what the round counts for, see
    `relative_precision`, and `departure_noise`. Until Sx is known, and where z would be larger than any x~ may be, x~ is read as it is.
    """
    p = n_features(dims, z.size)
    n_actions, size, place = spec[N_ACTIONS], packed_size(p), fit_width(p)
    known = part(fit, signal_fit(n_actions) * place + report_at(p), REPORT_COLUMNS)
    for i in range(p):
        out[i] = z[i]
        out[p + i] = 0.0
    out[2 * p], out[2 * p + 1] = 1.0, 0.0
    if known[REPORT] == 0.0:
        return
    departs, alike = known[KAPPA] == 1.0, spec[WEIGHTING] == PSEUDO
    if spec[CURVED] and not departs:
        curve = part(fit, curve_fit(n_actions) * place, p)
        for i in range(p):
            departs = departs or curve[i] != 0.0
    if spec[WEIGHTING] == PSEUDO:
        reference = part(fit, reference_fit(n_actions) * place + factor_at(p), size)
        for k in range(size):
            alike = alike and abs(error[k] - reference[k]) <= 1e-9 * abs(error[k])
    if (departs or not alike) and shrink(dims, spec, sums, fit, z, error, alike, out, work):
        if departs:
            depart(spec, tuning, sums, fit, error, out, p, work)
        if spec[WEIGHTING] == PSEUDO and spec[PRECISION] and not alike:
            out[2 * p] = relative_precision(part(work, 0, size), error, fit, n_actions, p, part(work, size, size + 2 * p))
        if not (is_within(out, 2 * p, LARGEST) and abs(out[2 * p + 1]) <= LARGEST_FACTOR * LARGEST_FACTOR):  # of no usable size
            for i in range(p):
                out[i] = z[i]
                out[p + i] = 0.0
            out[2 * p], out[2 * p + 1] = 1.0, 0.0


@spliced
def shrink(dims, spec, sums, fit, z, error, alike, out, work):
    """The linear part of `calibrate`; where the error is `alike` that of reference, only what `depart` needs. False if there is none.

    At the front of `work` are then the factor of Sx + S, x~ less its mean, (Sx + S)^-1 times that, and the diagonal of Sx + S.
    """
    p = n_features(dims, z.size)
    n_actions, size, width, place = spec[N_ACTIONS], packed_size(p), row_width(p), fit_width(p)
    at, relative = signal_fit(n_actions) * place, spec[WEIGHTING] == PSEUDO
    follows, signal = fit[at + report_at(p) + KAPPA] == 1.0, part(fit, at + factor_at(p), size)
    row = recent_row(n_actions) if follows and not relative else context_row(n_actions)
    context, reference = part(sums, row * width, width), reference_fit(n_actions) * place
    total, away, solved, diagonal = part(work, 0, size), part(work, size, p), part(work, size + p, p), part(work, size + 2 * p, p)
    k, share = 0, 1.0 / context[WEIGHT]
    for i in range(p):
        away[i] = z[i] - (fit[reference + i] if follows and relative else context[FEATURES + i] * share)
        solved[i] = away[i]
        for j in range(p - i):
            total[k + j] = signal[k + j] + error[k + j]
        diagonal[i] = total[k]
        total[k] = total[k] * (1.0 + 1e-6) if total[k] > 0.0 else 1.0
        k += p - i
    if not factor(total, p, part(work, size + 3 * p, 2 * p)):
        return False
    if not alike:  # else rounding would tell z from x~
        solve_factored(total, p, solved)
        add_symmetric(error, p, -1.0, solved, out)
        if relative:
            add_symmetric(part(fit, reference + factor_at(p), size), p, 1.0, solved, out)
    return True


@seldom
def depart(spec, tuning, sums, fit, error, out, p, work):
    """The departure h of `calibrate` from linear, or A^-1 h, behind z; and the share of it that is right, added to z."""
    n_actions, size, width, place = spec[N_ACTIONS], packed_size(p), row_width(p), fit_width(p)
    at, relative = signal_fit(n_actions) * place, spec[WEIGHTING] == PSEUDO
    signal, curve = part(fit, at + factor_at(p), size), part(fit, curve_fit(n_actions) * place, place)
    reference, recent = reference_fit(n_actions) * place, part(sums, recent_row(n_actions) * width, width)
    follows, h, rest = fit[at + report_at(p) + KAPPA] == 1.0, part(out, p, p), part(work, size + 2 * p, work.size - size - 2 * p)
    total, away, solved, diagonal = part(work, 0, size), part(work, size, p), part(work, size + p, p), part(work, size + 2 * p, p)
    if follows and relative:
        for i in range(p):
            solved[i] = recent[FEATURES + i] / recent[WEIGHT] - fit[reference + i]
        solve_factored_once(total, p, solved)
        add_symmetric(error, p, 1.0, solved, h)
        out[2 * p + 1] = departure_noise(signal, tuning[MEMORY], fit, n_actions, p, rest)
    elif not follows:
        k = 0
        for i in range(p):
            if curve[i] != 0.0 and error[k] > 0.0:
                h[i] = bounded_departure(away[i], curve[i], diagonal[i], error[k])
            k += p - i
    if relative:
        magnify(signal, part(fit, reference + factor_at(p), size), p, h, rest)
    share = curve[drift_at(p) if follows else share_at(p)]
    for i in range(p):
        out[i] += share * h[i]


@seldom
def factor_signal(signal, error, p, out, work):
    """The factor of Sx, with 2 % of Sx + S0 on its diagonal, or as much as no feature is less reliable than 0.4. False if there is none."""
    k = 0
    for i in range(p):
        for j in range(p - i):
            out[k + j] = signal[k + j]
        out[k] += max(RIDGE_SHARE * (signal[k] + error[k]), LEAST_RELIABILITY * (signal[k] + error[k]) - signal[k])
        if not out[k] > 0.0:
            out[k] = 1.0
        k += p - i
    return factor_once(out, p, work)


@seldom
def departure_noise(signal, memory, fit, n_actions, p, work):
    """What chance adds to (b'g)^2 for the departure g = S0 Sx^-1 (mu - m) of a mean mu over so many rounds, averaged over the actions.

    The variance of mu is that of x~ divided by 2 memory - 1.
    """
    size, place, total = packed_size(p), fit_width(p), 0.0
    error = part(fit, reference_fit(n_actions) * place + factor_at(p), size)
    a, y, seen = part(work, 0, size), part(work, size, p), part(work, size + p, p)
    if not factor_signal(signal, error, p, a, part(work, size + 2 * p, 2 * p)):
        return 0.0
    for b in range(n_actions):
        for i in range(p):
            y[i] = seen[i] = 0.0
        add_symmetric(error, p, 1.0, part(fit, b * place, p), y)
        solve_factored_once(a, p, y)
        add_symmetric(signal, p, 1.0, y, seen)
        add_symmetric(error, p, 1.0, y, seen)
        total += dot(y, seen, p)
    return total / (n_actions * (2.0 * memory - 1.0))


@seldom
def magnify(signal, error, p, h, work):
    """h = A^-1 h = h + S0 Sx^-1 h; h stays as it is where Sx has no inverse."""
    size = packed_size(p)
    a, solved = part(work, 0, size), part(work, size, p)
    for i in range(p):
        solved[i] = h[i]
    if factor_signal(signal, error, p, a, part(work, size + p, 2 * p)) and solve_factored_once(a, p, solved):
        add_symmetric(error, p, 1.0, solved, h)


@seldom
def relative_precision(total, error, fit, n_actions, p, work):
    """w = s^2 / (s^2 + l - l0): how much less of the reward is left in this round than in one with the error of reference.

    The context leaves l = theta' (Sx - Sx (Sx + S)^-1 Sx) theta of the variance of r, so for the slopes b = A' theta on z, and C = S - S0,
    l - l0 = b'C b - b'C (Sx + S)^-1 C b. It is averaged over the actions; `total` is the factor of Sx + S.
    """
    place, size, lost = fit_width(p), packed_size(p), 0.0
    reference, c = part(fit, reference_fit(n_actions) * place + factor_at(p), size), part(work, 0, size)
    cb, rest = part(work, size, p), part(work, size + p, p)
    for k in range(size):
        c[k] = error[k] - reference[k]
    for a in range(n_actions):
        slopes = part(fit, a * place, p)
        for i in range(p):
            cb[i] = 0.0
        add_symmetric(c, p, 1.0, slopes, cb)
        lost += dot(slopes, cb, p) - quadratic_form((), total, p, cb, rest)
    noise = fit[prior_fit(n_actions) * place + noise_at(p)]
    if not noise > 0.0:
        return 1.0
    left = noise + lost / n_actions
    return min(max(noise / left, PRECISIONS[0]), PRECISIONS[1]) if left > 0.0 else PRECISIONS[1]


@jit
def reliability(fit, n_actions, p, error):
    """The mean of Sx_jj / (Sx_jj + S_jj) over the coordinates, 1 where there is no error; 1/2 for all others before Sx is known."""
    at = signal_fit(n_actions) * fit_width(p)
    known, signal = fit[at + report_at(p) + REPORT] != 0.0, at + factor_at(p)
    k, total = 0, 0.0
    for i in range(p):
        own = fit[signal + k] if known else error[k]
        total += own / (own + error[k]) if own > 0.0 else 1.0 if error[k] == 0.0 else 0.0
        k += p - i
    return max(total / p, 1e-3)


@spliced
def relative_reliability(fit, n_actions, p, error, seen):
    """The reliability of a round by that of one with the error of reference; 1 where they are alike, so that all rounds count the same."""
    if seen[2 * p] == 1.0:
        return 1.0
    reference = part(fit, reference_fit(n_actions) * fit_width(p) + factor_at(p), packed_size(p))
    return reliability(fit, n_actions, p, error) / reliability(fit, n_actions, p, reference)
