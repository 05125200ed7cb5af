"""What a learner does with a finished round: add it to the sums, and solve again where that is due."""

import math

import numpy as np

from .calibrate import calibration_is_due, refit_calibration, relative_reliability, reliability
from .compile import inlined, part, reach, same, seldom, spliced
from .context import learn_context
from .curve import learn_contradiction, learn_share, refit_share
from .layout import (
    CALIBRATED,
    CHOICE,
    CHOICE_PROB,
    CORRECTION,
    COUNT,
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
    PLAIN,
    PRECISION,
    REPORT_COLUMNS,
    RIDGE,
    ROBUST,
    RULE,
    alike_row,
    careful_size,
    fit_width,
    kind_of,
    number_of_fits,
    report_at,
    robust_fit,
    row_width,
    stale_at,
)
from .limits import LEAST
from .linalg import copy
from .prior import solve_calibrated
from .rounds import Room, Solving
from .solve import solve_arm, solve_once
from .sums import discount, learn_pseudo, learn_sums, write_robust, write_target

FEW = 0.01  # of the rounds behind a fit: so many more move it little


@spliced
def take_in(recipe, memory, context, outcome):
    """Add one round to the sums, whatever the recipe. Oracles and uniform play only count it."""
    kind = kind_of(recipe.spec)
    if kind == PLAIN:
        take_in_plain(recipe, memory, context, outcome)
    elif kind == CALIBRATED:
        take_in_calibrated(recipe, memory, context, outcome)
    else:
        take_in_twice(recipe, memory, context, outcome)


@spliced
def take_in_plain(recipe, memory, context, outcome):
    """`take_in` of a recipe that reads x~ as it is: nothing of calibration has to be compiled for it."""
    spec, tuning, sums, p = recipe.spec, recipe.tuning, memory.sums, context.z.size
    memory.extra[LEARNED] += 1.0
    if spec[RULE] <= ROBUST:
        if spec[FADES]:
            discount(sums, tuning[DISCOUNT], spec[N_ACTIONS], p)
        learn_sums(recipe, sums, context, outcome, 1.0)
        mark_stale(spec, memory.fit, p, context.allowed, outcome.action)
        if spec[RULE] == ROBUST:
            learn_budget(tuning, memory, spec[N_ACTIONS], p, outcome.reward, outcome.auxiliary)


@spliced
def take_in_calibrated(recipe, memory, context, outcome):
    """`take_in` of a recipe that reads a calibrated context."""
    spec, tuning, sums, fit = recipe.spec, recipe.tuning, memory.sums, memory.fit
    n_actions, p, error = spec[N_ACTIONS], context.z.size, context.error
    memory.extra[LEARNED] += 1.0
    if spec[FADES]:
        discount(sums, tuning[DISCOUNT], n_actions, p)
    learn_sums(recipe, sums, context, outcome, reliability(fit, n_actions, p, error) if spec[PRECISION] else 1.0)
    if spec[CURVED]:
        learn_share(spec, memory, context.seen, p, outcome.action, outcome.reward)
    learn_context(recipe.dims, tuning, sums, n_actions, context.z, error)
    mark_stale(spec, fit, p, context.allowed, outcome.action)


@spliced
def take_in_twice(recipe, memory, context, outcome):
    """`take_in` of a recipe that keeps two fits for each action: the one that decides, and the doubly robust one."""
    spec, tuning, sums, fit = recipe.spec, recipe.tuning, memory.sums, memory.fit
    n_actions, p, error = spec[N_ACTIONS], context.z.size, context.error
    memory.extra[LEARNED] += 1.0
    if spec[FADES]:
        discount(sums, tuning[DISCOUNT], n_actions, p)
    learn_pseudo(recipe, memory, context, outcome, relative_reliability(fit, n_actions, p, error, context.seen))
    if spec[CURVED]:
        learn_share(spec, memory, context.seen, p, outcome.action, outcome.reward)
        learn_contradiction(spec, memory, context.z, context.seen, p, outcome.action, outcome.reward)
    learn_context(recipe.dims, tuning, sums, n_actions, context.z, error)
    mark_stale(spec, fit, p, context.allowed, outcome.action)
    for b in range(n_actions):
        if context.allowed[b]:
            fit[stale_at(robust_fit(n_actions, b), p)] += 1.0


@spliced
def mark_stale(spec, fit, p, allowed, action):
    """Note whose sums have changed: those of the action that was taken, or of all that were allowed."""
    n_actions = spec[N_ACTIONS]
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            fit[stale_at(b, p)] += 1.0
    if spec[CORRECTION] == OFFERED:
        for b in range(n_actions):
            if allowed[b]:
                fit[stale_at(b, p)] += 1.0


@spliced
def refit_all(recipe, memory, correcting, p, room):
    """Solve wherever sums have changed since the last solve."""
    kind = kind_of(recipe.spec)
    if kind == PLAIN:
        refit_plain(recipe, memory, correcting, p, room)
    elif kind == CALIBRATED:
        refit_calibrated(recipe, memory, correcting, p, room)
    else:
        refit_twice(recipe, memory, correcting, p, room)


@spliced
def refit_plain(recipe, memory, correcting, p, room):
    """`refit_all` of a recipe that reads x~ as it is."""
    for a in range(recipe.spec[N_ACTIONS]):
        refit_corrected(a, recipe, memory, correcting, p, room)


@spliced
def refit_calibrated(recipe, memory, correcting, p, room):
    """`refit_all` of a recipe that reads a calibrated context."""
    refit_context(recipe, memory, p, room.work)
    for a in range(recipe.spec[N_ACTIONS]):
        refit_corrected(a, recipe, memory, correcting, p, room)


@spliced
def refit_twice(recipe, memory, correcting, p, room):
    """`refit_all` of a recipe that keeps two fits for each action."""
    refit_context(recipe, memory, p, room.work)
    for a in range(number_of_fits(recipe.spec)):
        refit_either(a, recipe, memory, correcting, p, room)


@spliced
def refit_context(recipe, memory, p, work):
    spec, sums, fit = recipe.spec, memory.sums, memory.fit
    if calibration_is_due(spec, sums, fit, p):
        refit_calibration(spec, sums, fit, p, work)
    if spec[CURVED]:
        refit_share(spec, sums, fit, p)


@spliced
def refit_either(a, recipe, memory, correcting, p, room):
    """Solve for row a of the fit, of either kind, if it needs that."""
    n_actions, sums, fit = recipe.spec[N_ACTIONS], memory.sums, memory.fit
    rounds = sums[a * row_width(p) + COUNT]
    if a < n_actions:
        if is_due(fit[stale_at(a, p)], rounds):
            solve_calibrated(recipe.dims, a, sums, fit, p, n_actions, room.work)
    elif is_due(fit[stale_at(a, p)], rounds + sums[alike_row(n_actions) * row_width(p) + COUNT]):
        found = solve_robust(a - n_actions, recipe, memory, p, room)
        copy(found, part(fit, a * fit_width(p), p - 1), p - 1)
        copy(part(found, report_at(p - 1), REPORT_COLUMNS), part(fit, a * fit_width(p) + report_at(p), REPORT_COLUMNS), REPORT_COLUMNS)


@inlined
def is_due(stale, rounds):
    """Whether so many further rounds can move a fit of so many, counted after they have faded. Of the two fits of `PSEUDO`; all others are
    solved for in every round."""
    return stale > 0.0 and stale >= FEW * rounds


@spliced
def solve_robust(a, recipe, memory, p, room):
    """The doubly robust fit of action a, as a row of a fit of p - 1 features, at the end of `room.aside`.

    Nothing is remembered of it here: so it can also be solved for when it is asked for, see `LinearPolicy.theta`.
    """
    n_actions, at = recipe.spec[N_ACTIONS], careful_size(p)
    row, found = part(room.aside, at, row_width(p)), part(room.aside, at + row_width(p), fit_width(p))
    write_robust(a, memory.sums, memory.fit, p, n_actions, row, found)
    solving = Solving(recipe.tuning[RIDGE], recipe.spec[CORRECTION], recipe.spec[GUARD], False)
    solve_once(0, solving, row, found, p - 1, 0, Room(room.work, part(room.aside, 0, at)))
    return found


@spliced
def refit_corrected(a, recipe, memory, correcting, p, room):
    """Solve for row a of the fit, with the error covariance taken out or not, if it needs that."""
    spec, sums, fit = recipe.spec, memory.sums, memory.fit
    keeps = GREEDY < spec[RULE] <= ROBUST  # the rules that ask how sure a fit is
    correction = spec[CORRECTION] if correcting else NO_CORRECTION
    uncorrected = correction != NO_CORRECTION and fit[a * fit_width(p) + report_at(p) + KAPPA] == 0.0
    if uncorrected or fit[stale_at(a, p)] != 0.0:
        write_target(a, sums, fit, p)
        solve_arm(recipe.dims, a, Solving(recipe.tuning[RIDGE], correction, spec[GUARD], keeps), sums, fit, p, spec[N_ACTIONS], room)


@seldom
def learn_budget(tuning, memory, n_actions, p, reward, auxiliary):
    """RobustUCB's upper layer (Ding et al. 2022): EXP3 over attack budgets 0, 1, 2, 4, ...; after each epoch a new draw and a restart.

    The gain g of an epoch is its mean reward scaled to [0, 1] by the range of rewards seen; log w_j grows by gamma g / (J p_j).
    """
    sums, fit, extra = memory.sums, memory.fit, memory.extra
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
        if reached <= auxiliary and prob >= LEAST:
            extra[CHOICE] = j
            extra[CHOICE_PROB] = prob
        reached += prob
    extra[EPOCH_SIZE] = 0.0
    extra[EPOCH_SUM] = 0.0
    for a in range(n_actions):
        fit[stale_at(a, p)] = 1.0
    for k in range(sums.size):
        sums[k] = 0.0
