"""What a learner does with a finished round: add it to the sums, and solve again where that is due."""

import math

import numpy as np

from .calibrate import calibration_is_due, learn_context, refit_calibration, reliability, solve_calibrated
from .compile import reach, same, seldom, spliced
from .curve import learn_share, refit_share
from .layout import (
    ACTS_ON,
    CHOICE,
    CHOICE_PROB,
    CORRECTION,
    CURVED,
    DISCOUNT,
    EPOCH,
    EPOCH_SIZE,
    EPOCH_SUM,
    FADES,
    GAMMA,
    GREEDY,
    GUARD,
    HIGHEST,
    KAPPA,
    LEARNED,
    LOG_WEIGHTS,
    LOWEST,
    N_ACTIONS,
    NO_CORRECTION,
    OFFERED,
    PRECISION,
    PREDICTED,
    PSEUDO,
    RIDGE,
    ROBUST,
    RULE,
    STALE,
    WEIGHTING,
    fit_width,
    is_plain,
    number_of_fits,
    packed_size,
)
from .limits import LEAST
from .solve import solve_arm
from .sums import discount, learn_pseudo, learn_sums, write_target


@spliced
def take_in(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck):
    """Add one round to the sums, whatever the recipe. Oracles and uniform play only count it.

    `seen` is the context as calibrated by what is known when the round is learned, or z itself.
    """
    if is_plain(spec):
        take_in_plain(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
    else:
        take_in_calibrated(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)


@spliced
def take_in_plain(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck):
    """`take_in` of a recipe that reads x~ as it is: nothing of calibration has to be compiled for it."""
    n_actions, p = spec[N_ACTIONS], z.size
    extra[LEARNED] += 1.0
    if spec[RULE] <= ROBUST:
        if spec[FADES]:
            discount(sums, tuning[DISCOUNT], n_actions, p)
        learn_sums(dims, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, 1.0)
        mark_stale(spec, fit, p, allowed, action)
        if spec[RULE] == ROBUST:
            learn_budget(tuning, sums, fit, extra, n_actions, p, reward, luck)


@spliced
def take_in_calibrated(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck):
    """`take_in` of a recipe that reads a calibrated context, or weighs rounds by what is known of the error."""
    n_actions, p = spec[N_ACTIONS], z.size
    stale, width = p + packed_size(p) + STALE, fit_width(p)
    extra[LEARNED] += 1.0
    if spec[RULE] > ROBUST:
        return
    if spec[FADES]:
        discount(sums, tuning[DISCOUNT], n_actions, p)
    known = reliability(fit, n_actions, p, error) if spec[PRECISION] or spec[WEIGHTING] == PSEUDO else 1.0
    weight = known if spec[PRECISION] else 1.0
    if spec[WEIGHTING] == PSEUDO:
        learn_pseudo(dims, spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known)
    else:
        learn_sums(dims, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight)
    if spec[ACTS_ON] != PREDICTED:
        if spec[CURVED]:
            learn_share(spec, sums, fit, extra, seen, p, action, reward)
        learn_context(dims, tuning, sums, n_actions, z, error)
    mark_stale(spec, fit, p, allowed, action)
    if spec[WEIGHTING] == PSEUDO:
        for b in range(n_actions):
            if allowed[b]:
                fit[(n_actions + b) * width + stale] = 1.0


@spliced
def mark_stale(spec, fit, p, allowed, action):
    """Note whose sums have changed: those of the action that was taken, or of all that were allowed."""
    n_actions, stale, width = spec[N_ACTIONS], p + packed_size(p) + STALE, fit_width(p)
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            fit[b * width + stale] = 1.0
    if spec[CORRECTION] == OFFERED:
        for b in range(n_actions):
            if allowed[b]:
                fit[b * width + stale] = 1.0


@spliced
def refit_all(dims, spec, tuning, correcting, sums, fit, p, work, aside):
    """Solve wherever sums have changed since the last solve."""
    if is_plain(spec):
        refit_plain(dims, spec, tuning, correcting, sums, fit, p, work, aside)
    else:
        refit_calibrated(dims, spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def refit_plain(dims, spec, tuning, correcting, sums, fit, p, work, aside):
    """`refit_all` of a recipe that reads x~ as it is."""
    for a in range(spec[N_ACTIONS]):
        refit_corrected(a, dims, spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def refit_calibrated(dims, spec, tuning, correcting, sums, fit, p, work, aside):
    """`refit_all` of all other recipes."""
    refit_context(spec, tuning, sums, fit, p, work)
    for a in range(number_of_fits(spec)):
        refit_arm(a, dims, spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def refit_context(spec, tuning, sums, fit, p, work):
    if spec[ACTS_ON] != PREDICTED:
        if calibration_is_due(spec, sums, fit, p):
            refit_calibration(spec, tuning, sums, fit, p, work)
        if spec[CURVED]:
            refit_share(spec, sums, fit, p)


@spliced
def refit_arm(a, dims, spec, tuning, correcting, sums, fit, p, work, aside):
    """Solve for row a of the fit, if it needs that."""
    n_actions = spec[N_ACTIONS]
    if spec[WEIGHTING] == PSEUDO and a < n_actions:
        if fit[a * fit_width(p) + p + packed_size(p) + STALE] != 0.0:
            solve_calibrated(dims, a, tuning[RIDGE], sums, fit, p, n_actions, work)
        return
    refit_corrected(a, dims, spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def refit_corrected(a, dims, spec, tuning, correcting, sums, fit, p, work, aside):
    """`refit_arm` of a fit that is solved with the error covariance taken out, or as it is."""
    row = a * fit_width(p) + p + packed_size(p)
    keeps = GREEDY < spec[RULE] <= ROBUST  # the rules that ask how sure a fit is
    correction = spec[CORRECTION] if correcting else NO_CORRECTION
    uncorrected = correction != NO_CORRECTION and fit[row + KAPPA] == 0.0
    if uncorrected or fit[row + STALE] != 0.0:
        write_target(a, spec, sums, fit, p)
        solve_arm(dims, a, tuning[RIDGE], correction, spec[GUARD], keeps, sums, fit, p, spec[N_ACTIONS], work, aside)


@seldom
def learn_budget(tuning, sums, fit, extra, n_actions, p, reward, luck):
    """RobustUCB's upper layer (Ding et al. 2022): EXP3 over attack budgets 0, 1, 2, 4, ...; after each epoch a new draw and a restart.

    The gain g of an epoch is its mean reward scaled to [0, 1] by the range of rewards seen; log w_j grows by gamma g / (J p_j).
    """
    n_budgets = extra.size - LOG_WEIGHTS
    if extra[LEARNED] == 1.0:
        extra[LOWEST] = extra[HIGHEST] = reward
        extra[CHOICE_PROB] = 1.0  # the first epoch plays budget 0, undrawn
    extra[LOWEST] = min(extra[LOWEST], reward)
    extra[HIGHEST] = max(extra[HIGHEST], reward)
    extra[EPOCH_SIZE] += 1.0
    extra[EPOCH_SUM] += reward
    if extra[EPOCH_SIZE] < tuning[EPOCH]:
        return
    span = extra[HIGHEST] - extra[LOWEST]
    gain = (extra[EPOCH_SUM] / extra[EPOCH_SIZE] - extra[LOWEST]) / span if span > 0.0 else 0.0
    chosen = min(max(int(extra[CHOICE]), 0), n_budgets - 1)
    extra[LOG_WEIGHTS + chosen] += tuning[GAMMA] / n_budgets * gain / extra[CHOICE_PROB]
    top, total = -np.inf, 0.0
    for j in range(n_budgets):
        top = max(top, extra[LOG_WEIGHTS + j])
    for j in range(n_budgets):
        extra[LOG_WEIGHTS + j] -= top
        total += math.exp(extra[LOG_WEIGHTS + j])
    reached = 0.0
    for j in range(n_budgets):
        prob = (1.0 - tuning[GAMMA]) * math.exp(extra[LOG_WEIGHTS + j]) / total + tuning[GAMMA] / n_budgets
        if reached <= luck and prob >= LEAST:
            extra[CHOICE] = j
            extra[CHOICE_PROB] = prob
        reached += prob
    extra[EPOCH_SIZE] = 0.0
    extra[EPOCH_SUM] = 0.0
    for a in range(n_actions):
        fit[a * fit_width(p) + p + packed_size(p) + STALE] = 1.0
    for k in range(sums.size):
        sums[k] = 0.0
