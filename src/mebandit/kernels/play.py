"""The compiled loop: one policy through one block of rounds."""

import math
from functools import cache

import numpy as np

from .calibrate import calibrate
from .compile import borrowed, item, jit, part, spliced
from .decide import choose, choose_firmly, draw, propose
from .layout import (
    ACTS_ON,
    GUARDED,
    INTERCEPT,
    N_ACTIONS,
    PREDICTED,
    PSEUDO,
    READS,
    READS_CALIBRATED,
    REPORT,
    ROBUST,
    RULE,
    WEIGHTING,
    entry,
    fit_width,
    n_features,
    packed_size,
)
from .learn import refit_calibrated, refit_plain, take_in_calibrated, take_in_plain
from .world import observe, regrets, reward_of


@jit
def write_round(written, b, predicted, probabilities, action, reward):
    """What was seen and done in round b."""
    for i in range(predicted.size):
        written.predicted[b, i] = predicted[i]
    for a in range(probabilities.size):
        written.propensities[b, a] = probabilities[a]
    written.actions[b] = action
    written.rewards[b] = reward


@spliced
def play(see, choose, take_in, refit_all, dims, given, memory, totals, record_at, next_record, start, recorded, written, room):
    """Play one policy through one block of the tape. Returns the number of records made so far.

    given: spec, tuning, the plan of the block, the theta that the oracles act on, the tape, its packed error covariances, and the floor of
    the clipped benchmark by round. memory: sums, fit, extra. totals: standard regret, clipped regret, carried feature, guarded fits;
    recorded: the first two and the last, and |theta_a - theta*_a| by action, at the rounds of `record_at`. Where `written` has room for the
    rounds, what was seen and done in each is put there.
    """
    spec, tuning, plan, known, tape, errors, benchmark = borrowed(given)
    sums, fit, extra = borrowed(memory)
    totals, record_at, written = borrowed((totals, record_at, written))
    records, arm_errors = borrowed(recorded)
    vectors, out, work, aside = borrowed(room)
    n_rounds, d = tape.context.shape
    writes = written.rewards.size == n_rounds
    n_actions, p = spec[N_ACTIONS], n_features(dims, d + spec[INTERCEPT])
    width, report = fit_width(p), p + packed_size(p) + REPORT
    shown = n_actions if spec[WEIGHTING] == PSEUDO and spec[READS] != READS_CALIBRATED else 0  # the first row of the fit reported as theta
    x, z = part(vectors, 0, d), part(vectors, d, p)
    seen = z if spec[ACTS_ON] == PREDICTED else part(vectors, d + p, 2 * p)
    predicted = part(z, spec[INTERCEPT], d)
    learns = spec[RULE] <= ROBUST
    for b in range(n_rounds):
        theta = item(tape.theta, entry(b, tape.theta.shape[0]))
        allowed = item(tape.allowed, entry(b, tape.allowed.shape[0]))
        error = item(errors, entry(tape.component[b], errors.shape[0]))
        observe(tape, b, totals[2], x, predicted)
        see(dims, spec, sums, fit, z, error, seen, work)
        acted_on, guess = item(known, entry(b, known.shape[0])), item(tape.guess, entry(b, tape.guess.shape[0]))
        propose(choose, dims, spec, tuning, fit, extra, z, seen, allowed, plan.floor[b], plan.exploring[b], acted_on, guess, out, work)
        action = draw(out, tape.uniform[b])
        standard, clipped = regrets(theta, x, out, allowed, benchmark[b])
        totals[0] += standard
        totals[1] += clipped
        if tape.carry_index >= 0:
            totals[2] = tape.carry_decay * totals[2] + tape.carry_gain[action]
        reward = reward_of(tape, b, x, action)
        if writes:
            write_round(written, b, predicted, out, action, reward)
        propensity, stabilizer = out[action], item(plan.stabilizer, entry(b, plan.stabilizer.shape[0]))
        refit, correcting = plan.refit[b], plan.correcting[b]
        take_in(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, tape.luck[b])
        if refit and learns:
            refit_all(dims, spec, tuning, correcting, sums, fit, p, work, aside)
        if refit:
            for a in range(n_actions):
                totals[3] += fit[(shown + a) * width + report] == GUARDED
        if next_record < record_at.size and record_at[next_record] == start + b + 1:
            records[next_record, 0] = totals[0]
            records[next_record, 1] = totals[1]
            records[next_record, 2] = totals[3]
            for a in range(n_actions):
                gap = 0.0
                for i in range(d):
                    gap += (fit[(shown + a) * width + spec[INTERCEPT] + i] - theta[a, i]) ** 2
                arm_errors[next_record, a] = math.sqrt(gap) if learns else np.nan
            next_record += 1
    return next_record


@spliced
def as_it_is(dims, spec, sums, fit, z, error, seen, work):
    """A recipe that does not calibrate reads z."""


@spliced
def calibrated(dims, spec, sums, fit, z, error, seen, work):
    if spec[ACTS_ON] != PREDICTED:
        calibrate(dims, spec, sums, fit, z, error, seen, work)


@cache
def play_program(calibrates, samples):
    """The loop of the recipes that calibrate, or do not, and of Thompson's rule or all others, as for live rounds."""
    see, take_in, refit_all = as_it_is, take_in_plain, refit_plain
    if calibrates:
        see, take_in, refit_all = calibrated, take_in_calibrated, refit_calibrated
    choosing = choose if samples else choose_firmly

    def block(dims, given, memory, totals, record_at, next_record, start, recorded, written, room):
        return play(see, choosing, take_in, refit_all, dims, given, memory, totals, record_at, next_record, start, recorded, written, room)

    block.__qualname__ = f"play_{'sampling_' if samples else ''}{'calibrated' if calibrates else 'plain'}"
    return jit(block)
