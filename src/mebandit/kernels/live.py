"""Single rounds, called from Python: those of a policy's three methods, and live rounds with all but the round itself in a workspace."""

from functools import cache

import numpy as np

from .calibrate import calibrate
from .compile import borrowed, jit, live, part, spliced
from .decide import choose, choose_firmly, draw, propose
from .layout import (
    ACTS_ON,
    CALIBRATED,
    CHANGES,
    CORRECT_FROM,
    ERROR_COV_AT,
    EXTRA_AT,
    FIT_AT,
    FLOOR,
    INTERCEPT,
    KINDS,
    LEARNED,
    N_ACTIONS,
    PLAIN,
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
    TWO_FITS,
    WARMUP,
    aside_size,
    n_features,
    packed_size,
    room_size,
    seen_size,
    work_size,
)
from .learn import (
    refit_all,
    refit_calibrated,
    refit_plain,
    refit_twice,
    solve_robust,
    take_in,
    take_in_calibrated,
    take_in_plain,
    take_in_twice,
)
from .linalg import acceptable, is_covariance, write_packed
from .random import LIVE, uniform_pair
from .rounds import Context, Memory, Oracle, Outcome, Recipe, Room

UNROLLED = 8
"""features up to which the compiler knows their number: loops over few are then unrolled, which saves a tenth of a live round"""


@spliced
def as_it_is(recipe, memory, z, error, room, work):
    """What the decision of a recipe reads that does not calibrate."""
    return z


@spliced
def calibrated(recipe, memory, z, error, room, work):
    """What the decision of any other reads: what `calibrate` makes of z."""
    seen = part(room, z.size, seen_size(z.size))
    calibrate(recipe.dims, recipe.spec, recipe.tuning, memory.sums, memory.fit, z, error, seen, work)
    return seen


@spliced
def as_kind_says(recipe, memory, z, error, room, work):
    """Either of the two."""
    return (
        as_it_is(recipe, memory, z, error, room, work)
        if recipe.spec[ACTS_ON] == PREDICTED
        else calibrated(recipe, memory, z, error, room, work)
    )


@spliced
def single_round(see, recipe, memory, predicted, error_cov, allowed, room):
    """The context of one round, and scratch room. All of them lie in `room`."""
    d, spec = predicted.size, recipe.spec
    p = n_features(recipe.dims, d + spec[INTERCEPT])
    size, n_work = packed_size(p), work_size(spec[N_ACTIONS], p)
    z, error, at = part(room, 0, p), part(room, p + seen_size(p), size), p + seen_size(p) + size
    work, aside = part(room, at, n_work), part(room, at + n_work, aside_size(p))
    for i in range(spec[INTERCEPT]):
        z[i] = 1.0
    for i in range(d):
        z[spec[INTERCEPT] + i] = predicted[i]
    write_packed(error_cov, spec[INTERCEPT], error)
    seen = see(recipe, memory, z, error, room, work)
    return Context(z, seen, error, allowed), Room(work, aside)


@spliced
def of_state(spec, tuning, state, dim):
    """The recipe, the memory and scratch room for one call of a policy's own methods."""
    memory = Memory(state.sums.reshape(state.sums.size), state.fit.reshape(state.fit.size), state.extra)
    return Recipe((), spec, tuning), memory, np.empty(room_size(spec[N_ACTIONS], dim + spec[INTERCEPT]))


@jit
def propose_one(spec, tuning, state, predicted, error_cov, allowed, theta, floor, exploring, out):
    """The action probabilities of one round; theta is the oracles' own."""
    recipe, memory, room = of_state(spec, tuning, state, predicted.size)
    context, scratch = single_round(as_kind_says, recipe, memory, predicted, error_cov, allowed, room)
    propose(choose, recipe, memory, context, Oracle(theta, predicted), floor, exploring, out, scratch.work)


@jit
def learn_one(spec, tuning, state, predicted, error_cov, allowed, outcome, refit, correct_from):
    """The state after one finished round, in place."""
    correcting = state.extra[LEARNED] + 1.0 >= correct_from
    recipe, memory, room = of_state(spec, tuning, state, predicted.size)
    context, scratch = single_round(as_kind_says, recipe, memory, predicted, error_cov, allowed, room)
    take_in(recipe, memory, context, outcome)
    if refit and spec[RULE] <= ROBUST:
        refit_all(recipe, memory, correcting, context.z.size, scratch)


@jit
def theta_now(spec, tuning, state, dim, theta):
    """The doubly robust theta of the sums as they are, (K, d); nothing is remembered of it."""
    recipe, memory, _ = of_state(spec, tuning, state, dim)
    p = dim + spec[INTERCEPT]
    room = Room(np.empty(work_size(spec[N_ACTIONS], p)), np.empty(aside_size(p)))
    for a in range(spec[N_ACTIONS]):
        found = solve_robust(a, recipe, memory, p, room)
        for i in range(dim):
            theta[a, i] = found[spec[INTERCEPT] - 1 + i]


@jit
def refit_now(spec, tuning, state, correcting, dim):
    """Solve again for every fit whose sums have changed, in place."""
    recipe, memory, _ = of_state(spec, tuning, state, dim)
    p = dim + spec[INTERCEPT]
    refit_all(recipe, memory, correcting, p, Room(np.empty(work_size(spec[N_ACTIONS], p)), np.empty(aside_size(p))))


@spliced
def from_workspace(workspace, head, place):
    """The part of a workspace that begins at a place."""
    return part(workspace, head[place], head[place + 1] - head[place])


@spliced
def memory_in(workspace, head):
    return Memory(
        from_workspace(workspace, head, SUMS_AT), from_workspace(workspace, head, FIT_AT), from_workspace(workspace, head, EXTRA_AT)
    )


@spliced
def decide_on(see, choose, dims, workspace, predicted, error_cov, allowed, number, out):
    """A live decision: check, propose, draw. Returns the action, its probability, the auxiliary uniform, and how often the error covariance
    has changed: one that has not was found to be good before. For a bad prediction or covariance the action is -1, the changes too."""
    head = borrowed(workspace.view(np.int64))
    room, last = from_workspace(workspace, head, ROOM_AT), from_workspace(workspace, head, ERROR_COV_AT)
    if not acceptable(predicted):
        return -1, 0.0, 0.0, -1
    if not is_written(error_cov, last):
        if not is_covariance(error_cov, room):
            return -1, 0.0, 0.0, -1
        write_out(error_cov, last)
        head[CHANGES] += 1
    recipe, memory = Recipe(dims, head, from_workspace(workspace, head, TUNING_AT)), memory_in(workspace, head)
    oracle = Oracle(from_workspace(workspace, head, THETA_AT).reshape(head[N_ACTIONS], predicted.size), predicted)
    context, scratch = single_round(see, recipe, memory, predicted, error_cov, allowed, room)
    floor, exploring = workspace[head[PLAN_AT] + FLOOR], number <= head[WARMUP]
    propose(choose, recipe, memory, context, oracle, floor, exploring, out, scratch.work)
    u, auxiliary = uniform_pair(head[SEED], 0, 0, number, LIVE)
    action = draw(out, u)
    return action, out[action], auxiliary, head[CHANGES]


@spliced
def learn_on(see, take_in, refit_all, dims, workspace, predicted, error_cov, allowed, taken):
    """Take in the reward of a live decision; `taken` has the action, its probability, the reward and the auxiliary uniform."""
    head = borrowed(workspace.view(np.int64))
    recipe, memory = Recipe(dims, head, from_workspace(workspace, head, TUNING_AT)), memory_in(workspace, head)
    refit, correcting = workspace[head[PLAN_AT] + REFIT] != 0.0, memory.extra[LEARNED] + 1.0 >= head[CORRECT_FROM]
    context, scratch = single_round(see, recipe, memory, predicted, error_cov, allowed, from_workspace(workspace, head, ROOM_AT))
    action, propensity, reward, auxiliary = taken
    take_in(recipe, memory, context, Outcome(action, propensity, from_workspace(workspace, head, STABILIZER_AT), reward, auxiliary))
    if refit and head[RULE] <= ROBUST:
        refit_all(recipe, memory, correcting, context.z.size, scratch)


STEPS = {
    PLAIN: (as_it_is, take_in_plain, refit_plain),
    CALIBRATED: (calibrated, take_in_calibrated, refit_calibrated),
    TWO_FITS: (calibrated, take_in_twice, refit_twice),
}


@cache
def live_program(kind, p, samples=False):
    """The functions decide and learn of the recipes of a kind, and of Thompson's rule (`samples`) or all others, with p features: each
    compiles what it needs and no more.

    Up to `UNROLLED` features the compiler knows their number. Their names are their own, since the cache and the linker go by names.
    """
    see, take_in, refit_all = STEPS[kind]
    choosing = choose if samples else choose_firmly
    dims = (0,) * p if p <= UNROLLED else ()

    def decide(workspace, predicted, error_cov, allowed, number, out):
        return decide_on(see, choosing, dims, workspace, predicted, error_cov, allowed, number, out)

    def learn(workspace, predicted, error_cov, allowed, action, propensity, reward, auxiliary):
        learn_on(see, take_in, refit_all, dims, workspace, predicted, error_cov, allowed, (action, propensity, reward, auxiliary))

    name = f"{KINDS[kind]}_{len(dims)}"
    decide.__qualname__, learn.__qualname__ = f"decide_{'sampling_' if samples else ''}{name}", f"learn_{name}"
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
