"""The regressions on the calibrated context, and what they are drawn to while there are few rounds."""

from .compile import jit, part, seldom
from .context import feature_varies
from .layout import (
    ALL_STALE,
    COUNT,
    FEATURES,
    REPORT,
    SINGULAR,
    SOLVED,
    WEIGHT,
    center_at,
    context_row,
    cross_at,
    factor_at,
    fit_width,
    gram_at,
    middle_at,
    n_features,
    noise_at,
    packed_size,
    prior_fit,
    pull_at,
    report_at,
    reward_at,
    reward_sq_at,
    robust_fit,
    row_width,
    spread_at,
    stale_at,
)
from .linalg import factor, quadratic_form, solve_factored

INTERCEPT_ROUNDS = 1.0  # that the mean of all rewards counts for, in the intercept of each action
SLOPE_ROUNDS = 1.0  # that 0 counts for in each slope, before the slopes themselves say more
SLOPE_DOUBT = 4.0  # how many slopes that first guess is worth
PULLS = (0.01, 100.0)  # rounds that 0 may count for


@seldom
def refit_prior(sums, fit, n_actions, p, work):
    """What the regressions are drawn to: the centre m of the contexts, their variances D, the mean r- of all rewards; and kappa, how firm.

    Slopes with the prior N(0, s^2 / (kappa D_i)) are worth kappa rounds. By a step of the EM algorithm for the evidence,

        1 / kappa = (sum_a,i D_i (b_ai^2 / s^2 + (A_a^-1)_ii) + nu / kappa_0) / (K p + nu),      b and A those of `solve_calibrated`

    and s^2 = (sum_a min_b [penalised sum of squares]) / (n - 1) is what all of them leave of the rewards.
    """
    width, place = row_width(p), fit_width(p)
    steady, prior = part(sums, context_row(n_actions) * width, width), part(fit, prior_fit(n_actions) * place, place)
    center, spread = part(prior, center_at(p), p), part(prior, spread_at(p), p)
    n, k, varying = steady[COUNT], gram_at(p), 0.0
    for i in range(p):
        mean = steady[FEATURES + i] / n
        center[i], spread[i] = mean, 0.0
        if feature_varies(steady, i, k):
            spread[i] = steady[k] / n - mean * mean
            varying += 1.0
        k += p - i
    weight, total, rounds = 0.0, 0.0, 0.0
    for a in range(n_actions):
        row = part(sums, a * width, width)
        weight += row[WEIGHT]
        total += row[reward_at(p)]
        rounds += row[COUNT]
    middle = total / (weight + 1.0)
    prior[middle_at(p)] = middle
    if not prior[pull_at(p)] > 0.0:
        prior[pull_at(p)] = SLOPE_ROUNDS
    varied, left, explained, doubt, unit, scratch = 0.0, 0.0, 0.0, 0.0, part(work, 0, p), part(work, p, work.size - p)
    for a in range(n_actions):
        solve_calibrated((), a, sums, fit, p, n_actions, scratch)
        row, slopes, factored = part(sums, a * width, width), part(fit, a * place, p), part(fit, a * place + factor_at(p), packed_size(p))
        gram, cross = part(row, gram_at(p), p), part(row, cross_at(p), p)
        varied += row[reward_sq_at(p)] - 2.0 * middle * row[reward_at(p)] + middle * middle * row[WEIGHT]
        left += middle * (cross[0] - middle * gram[0])
        for i in range(p):
            left -= slopes[i] * (cross[i] - middle * gram[i])
            if spread[i] > 0.0:
                for j in range(p):
                    unit[j] = 1.0 if j == i else 0.0
                explained += spread[i] * slopes[i] * slopes[i]
                doubt += spread[i] * quadratic_form((), factored, p, unit, scratch)
        fit[stale_at(a, p)] = ALL_STALE
        fit[stale_at(robust_fit(n_actions, a), p)] = ALL_STALE  # its pseudo-outcomes are made with the first fit
    noise = (varied + left) / max(rounds - 1.0, 1.0) if varied + left > 1e-12 * varied else 0.0  # else it is rounding
    prior[noise_at(p)] = noise
    if noise > 0.0:
        size = (explained / noise + doubt + SLOPE_DOUBT / SLOPE_ROUNDS) / (n_actions * varying + SLOPE_DOUBT)
        prior[pull_at(p)] = min(max(1.0 / size, PULLS[0]), PULLS[1])


@jit
def solve_calibrated(dims, arm, sums, fit, p, n_actions, work):
    """Regression on the calibrated context z in one arm, z_1 = 1: theta = A^-1 (sum w z r + kappa_0 r- u),

        A = sum w zz' + kappa_0 uu' + kappa D,      u = (1, m)

    The intercept at the mean m of the contexts is drawn to the mean r- of all rewards as by kappa_0 rounds, and each slope to 0 as by kappa
    rounds whose features vary by D: nothing depends on the units of a feature, or on where its zero is. Features that do not vary are left
    out.
    """
    p = n_features(dims, p)
    size, place, row = packed_size(p), fit_width(p), arm * row_width(p)
    prior, theta = part(fit, prior_fit(n_actions) * place, place), part(fit, arm * place, p)
    center, spread = part(prior, center_at(p), p), part(prior, spread_at(p), p)
    gram, cross = part(sums, row + gram_at(p), size), part(sums, row + cross_at(p), p)
    a, rest = part(fit, arm * place + factor_at(p), size), part(work, 0, 2 * p)
    pull, middle = prior[pull_at(p)], prior[middle_at(p)]
    k = 0
    for i in range(p):
        u = 1.0 if i == 0 else center[i] if spread[i] > 0.0 else 0.0
        theta[i] = cross[i] + INTERCEPT_ROUNDS * middle * u if u != 0.0 or spread[i] > 0.0 else 0.0
        for j in range(p - i):
            both = (i == 0 or spread[i] > 0.0) and (i + j == 0 or spread[i + j] > 0.0)
            v = 1.0 if i + j == 0 else center[i + j]
            a[k + j] = gram[k + j] + INTERCEPT_ROUNDS * u * v if both else 0.0
        a[k] = a[k] + pull * spread[i] if i == 0 or spread[i] > 0.0 else 1.0
        k += p - i
    solved = factor(a, p, rest)
    if solved:
        solved = solve_factored(a, p, theta)
    if not solved:
        for i in range(p):
            theta[i] = 0.0
        for k in range(size):
            a[k] = 0.0
    fit[arm * place + report_at(p) + REPORT] = SOLVED if solved else SINGULAR
    fit[stale_at(arm, p)] = 0.0
