"""The compiled loop: one policy through one block of rounds."""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .calibrate import calibrate
from .compile import borrowed, inlined, item, jit, part, spliced
from .decide import choose, choose_firmly, draw, propose
from .layout import (
    ACTS_ON,
    CALIBRATED,
    GUARDED,
    INTERCEPT,
    KINDS,
    N_ACTIONS,
    PLAIN,
    PREDICTED,
    PSEUDO,
    REPORT,
    ROBUST,
    RULE,
    TWO_FITS,
    WEIGHTING,
    entry,
    fit_width,
    n_features,
    report_at,
    robust_fit,
    seen_size,
)
from .learn import refit_calibrated, refit_plain, refit_twice, solve_robust, take_in_calibrated, take_in_plain, take_in_twice
from .rounds import Context, Oracle, Outcome, Recipe, Room
from .world import observe, regrets_of, reward_of

# The totals of a simulation.
STANDARD: int = 0  # regret
CLIPPED: int = 1  # regret against the clipped benchmark
CARRIED: int = 2  # the feature that past actions change
GUARDED_FITS: int = 3


class Given(NamedTuple):
    """What a policy meets in one block of rounds."""

    spec: Any
    tuning: Any
    plan: Any
    """its schedules in these rounds, a `ScheduleTable`"""
    known: Any
    """the theta that the oracles act on, by round or one for all"""
    tape: Any
    errors: Any
    """the error covariances of the tape, packed"""
    benchmark: Any
    """the floor of the clipped benchmark by round"""


class Records(NamedTuple):
    """What is kept of a simulation."""

    totals: Any
    """so far, see above"""
    times: Any
    """the rounds after which totals are recorded"""
    made: Any
    """how many of these there were, (1,)"""
    recorded: Any
    """regret, clipped regret and guarded fits at these rounds, flat"""
    arm_errors: Any
    """|theta_a - theta*_a| at these rounds by action; NaN where nothing is learned"""
    log: Any
    """with room for every round, or for none: what was seen and done"""


@jit
def write_round(log, b, predicted, probabilities, action, reward):
    """What was seen and done in round b."""
    for i in range(predicted.size):
        log.predicted[b, i] = predicted[i]
    for a in range(probabilities.size):
        log.propensities[b, a] = probabilities[a]
    log.actions[b] = action
    log.rewards[b] = reward


@spliced
def play(see, choose, take_in, refit_all, shown, dims, given, memory, records, start, room):
    """Play one policy through one block of the tape, which begins after round `start`."""
    given, memory, records = borrowed(given), borrowed(memory), borrowed(records)
    vectors, out, work, aside = borrowed(room)
    spec, plan, tape, totals, made = given.spec, given.plan, given.tape, records.totals, records.made
    recipe = Recipe(dims, spec, given.tuning)
    n_rounds, d = tape.context.shape
    writes, learns = records.log.rewards.size == n_rounds, spec[RULE] <= ROBUST
    p = n_features(dims, d + spec[INTERCEPT])
    x, z = part(vectors, 0, d), part(vectors, d, p)
    seen = z if spec[ACTS_ON] == PREDICTED else part(vectors, d + p, seen_size(p))
    predicted = part(z, spec[INTERCEPT], d)
    for b in range(n_rounds):
        theta = item(tape.theta, entry(b, tape.theta.shape[0]))
        allowed = item(tape.allowed, entry(b, tape.allowed.shape[0]))
        error = item(given.errors, entry(tape.component[b], given.errors.shape[0]))
        observe(tape, b, totals[CARRIED], x, predicted)
        see(recipe, memory, z, error, seen, work)
        context = Context(z, seen, error, allowed)
        oracle = Oracle(item(given.known, entry(b, given.known.shape[0])), item(tape.guess, entry(b, tape.guess.shape[0])))
        propose(choose, recipe, memory, context, oracle, plan.floor[b], plan.exploring[b], out, work)
        action = draw(out, tape.uniform[b])
        standard, clipped = regrets_of(tape, b, theta, x, out, given.benchmark[b])
        totals[STANDARD] += standard
        totals[CLIPPED] += clipped
        if tape.carry_index >= 0:
            totals[CARRIED] = tape.carry_decay * totals[CARRIED] + tape.carry_gain[action]
        reward = reward_of(tape, b, x, action)
        if writes:
            write_round(records.log, b, predicted, out, action, reward)
        stabilizer = item(plan.stabilizer, entry(b, plan.stabilizer.shape[0]))
        take_in(recipe, memory, context, Outcome(action, out[action], stabilizer, reward, tape.auxiliary[b]))
        if plan.refit[b] and learns:
            refit_all(recipe, memory, plan.correcting[b], p, Room(work, aside))
        if plan.refit[b]:
            totals[GUARDED_FITS] += guarded_fits(spec, memory.fit, p)
        if made[0] < records.times.size and records.times[made[0]] == start + b + 1:
            write_totals(totals, part(records.recorded, 3 * made[0], 3))
            write_arm_errors(shown, recipe, memory, theta, p, Room(work, aside), item(records.arm_errors, made[0]))
            made[0] += 1


@inlined
def shown_fit(spec):
    """The first row of the fits whose theta is reported."""
    return robust_fit(spec[N_ACTIONS], 0) if spec[WEIGHTING] == PSEUDO else 0


@inlined
def shown_feature(spec):
    """Where in such a row the first feature of x~ stands: after those of ones that the user has asked for."""
    return spec[INTERCEPT] - 1 if spec[WEIGHTING] == PSEUDO else spec[INTERCEPT]


@inlined
def guarded_fits(spec, fit, p):
    """How many of the reported fits are Fuller's."""
    n = 0.0
    for a in range(shown_fit(spec), shown_fit(spec) + spec[N_ACTIONS]):
        n += 1.0 if fit[a * fit_width(p) + report_at(p) + REPORT] == GUARDED else 0.0
    return n


@spliced
def write_totals(totals, recorded):
    recorded[0], recorded[1], recorded[2] = totals[STANDARD], totals[CLIPPED], totals[GUARDED_FITS]


@spliced
def write_arm_errors(shown, recipe, memory, theta, p, room, arm_errors):
    """|theta_a - theta*_a| by action for the theta that is reported; NaN where nothing is learned."""
    first = shown_feature(recipe.spec)
    for a in range(recipe.spec[N_ACTIONS]):
        found, gap = shown(a, recipe, memory, p, room), 0.0
        for i in range(theta.shape[1]):
            gap += (found[first + i] - theta[a, i]) ** 2
        arm_errors[a] = math.sqrt(gap) if recipe.spec[RULE] <= ROBUST else np.nan


@spliced
def shown_plain(a, recipe, memory, p, room):
    """The theta of action a that is reported."""
    return part(memory.fit, a * fit_width(p), p)


@spliced
def shown_robust(a, recipe, memory, p, room):
    """The same of a recipe that keeps two fits for each action: the doubly robust one is solved for when it is asked for."""
    return solve_robust(a, recipe, memory, p, room)


@spliced
def as_it_is(recipe, memory, z, error, seen, work):
    """A recipe that does not calibrate reads z."""


@spliced
def calibrated(recipe, memory, z, error, seen, work):
    """Any other reads what `calibrate` makes of it."""
    calibrate(recipe.dims, recipe.spec, recipe.tuning, memory.sums, memory.fit, z, error, seen, work)


STEPS = {
    PLAIN: (as_it_is, take_in_plain, refit_plain, shown_plain),
    CALIBRATED: (calibrated, take_in_calibrated, refit_calibrated, shown_plain),
    TWO_FITS: (calibrated, take_in_twice, refit_twice, shown_robust),
}


@cache
def play_program(kind, samples):
    """The loop of the recipes of a kind, and of Thompson's rule or all others, as for live rounds."""
    see, take_in, refit_all, shown = STEPS[kind]
    choosing = choose if samples else choose_firmly

    def block(dims, given, memory, records, start, room):
        play(see, choosing, take_in, refit_all, shown, dims, given, memory, records, start, room)

    block.__qualname__ = f"play_{'sampling_' if samples else ''}{KINDS[kind]}"
    return jit(block)
