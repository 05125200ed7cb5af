"""Single rounds, called from Python: those of a policy's three methods, and live rounds with all but the round itself on a desk."""

from functools import cache

import numpy as np

from .calibrate import calibrate
from .compile import borrowed, jit, live, part, spliced
from .decide import choose, choose_firmly, draw, propose
from .layout import (
    ACTS_ON,
    CHANGES,
    CORRECT_FROM,
    ERROR_COV_AT,
    EXTRA_AT,
    FIT_AT,
    FLOOR,
    INTERCEPT,
    LEARNED,
    N_ACTIONS,
    PLAN_AT,
    PREDICTED,
    REFIT,
    ROBUST,
    ROOM_AT,
    RULE,
    SEED,
    STABILIZER_AT,
    SUMS_AT,
    THETA_AT,
    TUNING_AT,
    WARMUP,
    aside_size,
    n_features,
    packed_size,
    room_size,
    work_size,
)
from .learn import refit_all, refit_calibrated, refit_plain, take_in, take_in_calibrated, take_in_plain
from .linalg import acceptable, is_covariance, write_packed
from .random import LIVE, uniform_pair

UNROLLED = 8
"""features up to which the compiler knows their number: loops over few are then unrolled, which saves a tenth of a live round"""


@spliced
def as_it_is(dims, spec, sums, fit, z, error, room, work):
    """What the decision of a recipe reads that does not calibrate."""
    return z


@spliced
def calibrated(dims, spec, sums, fit, z, error, room, work):
    """What the decision reads: z, or what `calibrate` makes of it."""
    p = z.size
    seen = part(room, 0, p)
    if spec[ACTS_ON] != PREDICTED:
        seen = part(room, p, 2 * p)
        calibrate(dims, spec, sums, fit, z, error, seen, work)
    return seen


@spliced
def single_round(see, dims, spec, sums, fit, predicted, error_cov, room):
    """z, the predicted context, after a leading 1 if there is an intercept; what the decision reads; the packed error covariance; and
    scratch room. All of them lie in `room`."""
    d, intercept = predicted.size, spec[INTERCEPT]
    p = n_features(dims, d + intercept)
    size, n_work = packed_size(p), work_size(spec[N_ACTIONS], p)
    z, error, at = part(room, 0, p), part(room, 3 * p, size), 3 * p + size
    work, aside = part(room, at, n_work), part(room, at + n_work, aside_size(p))
    z[0] = 1.0
    for i in range(d):
        z[intercept + i] = predicted[i]
    write_packed(error_cov, intercept, error)
    return z, see(dims, spec, sums, fit, z, error, room, work), error, work, aside


@jit
def propose_one(spec, tuning, sums, fit, extra, predicted, error_cov, allowed, floor, exploring, theta, out):
    """The action probabilities of one round; theta is the oracles' own."""
    sums, fit = sums.reshape(sums.size), fit.reshape(fit.size)
    room = np.empty(room_size(spec[N_ACTIONS], predicted.size + spec[INTERCEPT]))
    z, seen, _, work, _ = single_round(calibrated, (), spec, sums, fit, predicted, error_cov, room)
    propose(choose, (), spec, tuning, fit, extra, z, seen, allowed, floor, exploring, theta, predicted, out, work)


@jit
def learn_one(
    spec, tuning, stabilizer, sums, fit, extra, predicted, error_cov, allowed, action, propensity, reward, luck, refit, correct_from
):
    correcting = extra[LEARNED] + 1.0 >= correct_from
    sums, fit = sums.reshape(sums.size), fit.reshape(fit.size)
    room = np.empty(room_size(spec[N_ACTIONS], predicted.size + spec[INTERCEPT]))
    z, seen, error, work, aside = single_round(calibrated, (), spec, sums, fit, predicted, error_cov, room)
    take_in((), spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
    if refit and spec[RULE] <= ROBUST:
        refit_all((), spec, tuning, correcting, sums, fit, z.size, work, aside)


@jit
def refit_now(spec, tuning, correcting, sums, fit, p):
    work, aside = np.empty(work_size(spec[N_ACTIONS], p)), np.empty(aside_size(p))
    refit_all((), spec, tuning, correcting, sums.reshape(sums.size), fit.reshape(fit.size), p, work, aside)


@spliced
def on_desk(desk, head, place):
    """The part of a desk that begins at a place."""
    return part(desk, head[place], head[place + 1] - head[place])


@spliced
def decide_on(see, choose, dims, desk, predicted, error_cov, allowed, number, out):
    """A live decision: check, propose, draw. Returns the action, its probability, the luck, and how often the error covariance has changed:
    one that has not was found to be good before. For a bad prediction or covariance the action is -1, the changes too."""
    head = borrowed(desk.view(np.int64))
    room, last = on_desk(desk, head, ROOM_AT), on_desk(desk, head, ERROR_COV_AT)
    if not acceptable(predicted):
        return -1, 0.0, 0.0, -1
    if not is_written(error_cov, last):
        if not is_covariance(error_cov, room):
            return -1, 0.0, 0.0, -1
        write_out(error_cov, last)
        head[CHANGES] += 1
    sums, fit, extra = on_desk(desk, head, SUMS_AT), on_desk(desk, head, FIT_AT), on_desk(desk, head, EXTRA_AT)
    tuning, floor = on_desk(desk, head, TUNING_AT), desk[head[PLAN_AT] + FLOOR]
    theta = on_desk(desk, head, THETA_AT).reshape(head[N_ACTIONS], predicted.size)
    z, seen, _, work, _ = single_round(see, dims, head, sums, fit, predicted, error_cov, room)
    propose(choose, dims, head, tuning, fit, extra, z, seen, allowed, floor, number <= head[WARMUP], theta, predicted, out, work)
    u, luck = uniform_pair(head[SEED], 0, 0, number, LIVE)
    action = draw(out, u)
    return action, out[action], luck, head[CHANGES]


@spliced
def learn_on(see, take_in, refit_all, dims, desk, predicted, error_cov, allowed, action, propensity, reward, luck):
    """Take in the reward of a live decision."""
    head = borrowed(desk.view(np.int64))
    sums, fit, extra = on_desk(desk, head, SUMS_AT), on_desk(desk, head, FIT_AT), on_desk(desk, head, EXTRA_AT)
    tuning, stabilizer, room = on_desk(desk, head, TUNING_AT), on_desk(desk, head, STABILIZER_AT), on_desk(desk, head, ROOM_AT)
    refit, correcting = desk[head[PLAN_AT] + REFIT] != 0.0, extra[LEARNED] + 1.0 >= head[CORRECT_FROM]
    z, seen, error, work, aside = single_round(see, dims, head, sums, fit, predicted, error_cov, room)
    take_in(dims, head, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
    if refit and head[RULE] <= ROBUST:
        refit_all(dims, head, tuning, correcting, sums, fit, z.size, work, aside)


@cache
def live_program(calibrates, p, samples=False):
    """The functions decide and learn of the recipes that calibrate, or do not, and of Thompson's rule (`samples`) or all others, with p
    features: each compiles what it needs and no more.

    Up to `UNROLLED` features the compiler knows their number. Their names are their own, since the cache and the linker go by names.
    """
    see, take_in, refit_all = as_it_is, take_in_plain, refit_plain
    if calibrates:
        see, take_in, refit_all = calibrated, take_in_calibrated, refit_calibrated
    choosing = choose if samples else choose_firmly
    dims = (0,) * p if p <= UNROLLED else ()

    def decide(desk, predicted, error_cov, allowed, number, out):
        return decide_on(see, choosing, dims, desk, predicted, error_cov, allowed, number, out)

    def learn(desk, predicted, error_cov, allowed, action, propensity, reward, luck):
        learn_on(see, take_in, refit_all, dims, desk, predicted, error_cov, allowed, action, propensity, reward, luck)

    kind = f"{'calibrated' if calibrates else 'plain'}_{len(dims)}"
    decide.__qualname__, learn.__qualname__ = f"decide_{'sampling_' if samples else ''}{kind}", f"learn_{kind}"
    return live(decide), live(learn)


@spliced
def is_written(matrix, flat):
    """Whether `flat` has the entries of a matrix, row by row (false where there is a NaN)."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            if matrix[i, j] != flat[i * d + j]:
                return False
    return True


@spliced
def write_out(matrix, flat):
    """The entries of a matrix, row by row."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            flat[i * d + j] = matrix[i, j]
