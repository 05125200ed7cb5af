"""The calibrated context: the best linear predictor of x, and regression on it."""

from .compile import jit, part, quotient, seldom, spliced
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
    N_ACTIONS,
    PRECISION,
    PSEUDO,
    REPORT,
    RIDGE,
    SIGNAL_ROUNDS,
    SINGULAR,
    SOLVED,
    WEIGHT,
    WEIGHTING,
    common_at,
    context_row,
    cross_at,
    curve_fit,
    error_at,
    factor_at,
    fit_width,
    gram_at,
    left_at,
    n_features,
    noise_at,
    packed_size,
    recent_row,
    report_at,
    reward_sq_at,
    robust_fit,
    row_width,
    share_at,
    signal_fit,
    stale_at,
)
from .limits import LARGEST, LARGEST_SUM
from .linalg import factor, factor_once, is_within, solve_factored
from .sums import LEAST_NOISE


@spliced
def calibration_is_due(spec, sums, fit, p):
    """Sx changes slowly: it is computed again once there are 2 % more rounds than last time."""
    n_actions, width = spec[N_ACTIONS], row_width(p)
    n, before = sums[context_row(n_actions) * width + COUNT], fit[signal_fit(n_actions) * fit_width(p) + SIGNAL_ROUNDS]
    return sums[recent_row(n_actions) * width + COUNT] >= 2 * p + 2 and not 0.98 * n < before <= n


@seldom
def refit_calibration(spec, tuning, sums, fit, p, work):
    """All that is derived from the contexts so far: Sx, its curve, how rounds are weighed, and the fit of all actions together.

    The forgetting mean is used if asked for, or if it predicts x~ better. Where something is not of a usable size all of it is zero, as
    before the first time: x~ is then read as it is.
    """
    n_actions, width = spec[N_ACTIONS], row_width(p)
    size, at = packed_size(p), signal_fit(n_actions) * fit_width(p)
    steady, recent = part(sums, context_row(n_actions) * width, width), part(sums, recent_row(n_actions) * width, width)
    fit[at + SIGNAL_ROUNDS] = steady[COUNT]
    varies = part(work, 2 * size + p, p)
    advantage = find_variation(steady, recent, p, varies)
    follows = spec[ACTS_ON] == EW_BLP or (spec[ACTS_ON] == CHOSEN_BLP and advantage < 0.0)
    row = recent if follows else steady
    signal, errors = part(fit, at + factor_at(p), size), part(row, error_at(p), size)
    write_covariance(row, follows, varies, p, part(work, 0, size), part(work, 2 * size, p))
    refit_signal(row, p, work, signal)
    pool_reliabilities(signal, part(work, 0, size), errors, row[COUNT], p, part(work, size, p))
    fit[at + report_at(p) + REPORT] = 1.0
    fit[at + report_at(p) + KAPPA] = 1.0 if follows else 0.0
    if spec[CURVED]:
        refit_curve(sums, fit, n_actions, p)
    if spec[WEIGHTING] == PSEUDO:
        if spec[PRECISION]:
            refit_noise(sums, fit, n_actions, p, part(work, 0, size))
        refit_common(tuning[RIDGE], sums, fit, n_actions, p, work)
    squares = part(recent, cross_at(p), p)
    for i in range(p):
        squares[i] = min(squares[i], LARGEST_SUM)
    found = part(fit, at + SIGNAL_ROUNDS + 1, 2 * fit_width(p) - 1)
    if not is_within(found, found.size, LARGEST_SUM):
        for k in range(found.size):
            found[k] = 0.0


@jit
def calibrate(dims, spec, sums, fit, z, error, out, work):
    """x^, the best linear predictor of the context: x~ - S (Sx + S)^-1 (x~ - mu), S the error covariance of the round; x~ at first.

    With `CURVED` each skewed coordinate also has a share of its `bounded_departure` h from linearity; `out` then has h after x^.
    """
    p = n_features(dims, z.size)
    n_actions, size, width = spec[N_ACTIONS], packed_size(p), fit_width(p)
    at = signal_fit(n_actions) * width
    for i in range(p):
        out[i] = z[i]
    if spec[CURVED]:
        for i in range(p):
            out[p + i] = 0.0
    if fit[at + report_at(p) + REPORT] == 0.0:
        return
    follows = fit[at + report_at(p) + KAPPA] == 1.0
    row = recent_row(n_actions) if follows else context_row(n_actions)
    context, signal = part(sums, row * row_width(p), gram_at(p)), part(fit, at + factor_at(p), size)
    curve = part(fit, curve_fit(n_actions) * width, share_at(p) + 1)
    total, away, solved = part(work, 0, size), part(work, size, p), part(work, size + p, p)
    diagonal, rest = part(work, size + 2 * p, p), part(work, size + 3 * p, 2 * p)
    k, share = 0, 1.0 / context[WEIGHT]
    for i in range(p):
        away[i] = z[i] - context[FEATURES + i] * share
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
            out[i] += curve[share_at(p)] * h
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
    Both are 0, and all rounds count alike, while noise could explain all of theta.
    """
    size, width, place = packed_size(p), row_width(p), fit_width(p)
    signal, curve = part(fit, signal_fit(n_actions) * place + factor_at(p), size), part(fit, curve_fit(n_actions) * place, place)
    gram, error, cross = gram_at(p), error_at(p), cross_at(p)
    weight, left, explained = 0.0, 0.0, 0.0
    for k in range(size):
        mean_error[k] = 0.0
    for a in range(n_actions):
        row, theta = part(sums, a * width, width), part(fit, a * place, p)
        weight += row[WEIGHT]
        left += row[reward_sq_at(p)]
        k = 0
        for i in range(p):
            left -= 2.0 * theta[i] * row[cross + i]
            for j in range(i, p):
                both = theta[i] * theta[j] * (1.0 if i == j else 2.0)
                left += both * row[gram + k]
                explained += row[WEIGHT] * both * signal[k]
                mean_error[k] += row[error + k]
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
    curve[noise_at(p)], curve[left_at(p)] = nu, u


@seldom
def refit_common(ridge, sums, fit, n_actions, p, work):
    """theta of all arms together, (sum_a G_a + ridge I)^-1 sum_a c_a, which each of them is drawn to, see `solve_calibrated`.

    Where there is nothing to be solved yet it is 0.
    """
    size, width = packed_size(p), row_width(p)
    gram, rest = part(work, 0, size), part(work, size, 2 * p)
    common = part(fit, curve_fit(n_actions) * fit_width(p) + common_at(p), p)
    k = 0
    for i in range(p):
        common[i] = 0.0
        for j in range(p - i):
            gram[k + j] = ridge if j == 0 else 0.0
        k += p - i
    for a in range(n_actions):
        row = part(sums, a * width, width)
        for k in range(size):
            gram[k] += row[gram_at(p) + k]
        for i in range(p):
            common[i] += row[cross_at(p) + i]
        fit[stale_at(a, p)] = 1.0
        fit[stale_at(robust_fit(n_actions, a), p)] = 1.0  # its pseudo-outcomes are made with the first fit
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
    row, errors = part(sums, arm * width, width), part(sums, context_row(n_actions) * width + error_at(p), size)
    common, theta = part(fit, curve_fit(n_actions) * place + common_at(p), p), part(fit, arm * place, p)
    gram, cross = part(row, gram_at(p), size), part(row, cross_at(p), p)
    a, rest = part(work, 0, size), part(work, size, 2 * p)
    pull = quotient(float(p), max(sums[context_row(n_actions) * width + COUNT], 1.0))
    for i in range(p):
        theta[i] = cross[i]
    k = 0
    for i in range(p):
        for j in range(p - i):
            s = pull * errors[k + j]
            a[k + j] = gram[k + j] + s
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
    fit[arm * place + report_at(p) + REPORT] = SOLVED if solved else SINGULAR
    fit[stale_at(arm, p)] = 0.0


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
