"""The loop of one thread over one trajectory: the counterpart of `kernels.play.play`, with the round's noise drawn where it is needed.

What is the same in every round of a trajectory is a constant of its program (`Constants`). The functions here make the pieces of such a
program: each takes the constants and returns a compiled function.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float64

from mebandit import kernels
from mebandit.kernels import layout
from mebandit.simulation.gpu.compiler import inlined, repeated, steps

IN_REGISTERS = 300
"""numbers of memory up to which loops over arms are unrolled: a thread has registers for 127 at a time, and some are never read"""


class Constants(NamedTuple):
    """What the compiler knows of a trajectory."""

    spec: tuple[int, ...]
    sums: int
    fit: int
    extra: int
    dim: int
    alike: bool
    """pi^nd is the same for all actions, in every round"""
    knows_theta: bool
    """a policy's own θ, rather than the world's, is what it acts on"""
    in_turn: bool
    several: bool
    hold: int
    random_context: bool
    random_error: bool
    context_diagonal: bool
    """F is diagonal, in every world and component"""
    error_diagonal: bool
    context_kind: int
    error_kind: int
    noise_kind: int
    predicts: bool
    """E[x | x̃] is known, and asked for"""
    carry_index: int
    drifts: bool


class Place(NamedTuple):
    """Which trajectory, and which round of it."""

    key: Any
    """seed and cell"""
    replicate: Any
    world: Any
    """the number of its world"""
    round: Any
    """from 0"""


class Seen(NamedTuple):
    """What a thread holds of a round."""

    x: Any
    z: Any
    theta: Any
    acted_on: Any
    """the θ that the oracles act on"""
    noise: Any
    """standardized variates; then E[x | x̃]"""


def vector(kind: int, purpose: int, d: int) -> Any:
    """A standardized vector. A pair of uniforms serves two entries, or one Student t."""
    k = steps()
    step, uniform_pair, standardized = 1 if kind == k.STUDENT_T else 2, k.uniform_pair, k.standardized

    def write(place, df, out):
        for j in range(0, d, step):
            u, v = uniform_pair(place.key[0], place.key[1], place.replicate, place.round + 1, purpose + j)
            out[j] = standardized(kind, df, u, v)
            if step == 2 and j + 1 < d:
                out[j + 1] = standardized(kind, df, v, u)

    return inlined(write)


def affine(random: bool, diagonal: bool, d: int) -> Any:
    """Entry j of m + F z, of a component; m alone where nothing is random."""
    entry = steps().entry

    def total(mean, factor, world, component, j, z):
        found = mean[world, entry(component, mean.shape[1]), j]
        if random:
            f = entry(component, factor.shape[1])
            if diagonal:
                found += factor[world, f, j, j] * z[j]
            else:
                for m in range(d):
                    found += factor[world, f, j, m] * z[m]
        return found

    return inlined(total)


def component(c: Constants) -> Any:
    """The component of a round: drawn with the given cumulative probabilities, or taken in turn."""
    k = steps()
    in_turn, several, hold, uniform_pair, purpose = c.in_turn, c.several, c.hold, k.uniform_pair, k.COMPONENT

    def find(place, worlds):
        found, n = 0, worlds.components[place.world]
        if in_turn:
            found = place.round % n
        elif several:
            u, _ = uniform_pair(place.key[0], place.key[1], place.replicate, place.round // hold + 1, purpose)
            while found < n - 1 and u >= worlds.cumulative[place.world, found]:
                found += 1
        return found

    return inlined(find)


def observation(c: Constants) -> Any:
    """The context of a round and what is seen of it, x = mean + F z, x~ = x + e; and θ, where that drifts."""
    k, d, intercept = steps(), c.dim, c.spec[layout.INTERCEPT]
    random_context, random_error, carry_index = c.random_context, c.random_error, c.carry_index
    drifts, knows_theta = c.drifts, c.knows_theta
    n_actions, no_df = c.spec[layout.N_ACTIONS], 0.0
    context_noise, error_noise = vector(c.context_kind, k.CONTEXT, d), vector(c.error_kind, k.ERROR, d)
    context_entry = affine(random_context, c.context_diagonal, d)
    error_entry = affine(random_error, c.error_diagonal, d)

    def observe(place, worlds, component, carried, wave, seen):
        w = place.world
        if random_context:
            context_noise(place, no_df, seen.noise)
        for j in range(d):
            total = context_entry(worlds.mean, worlds.factor, w, component, j, seen.noise)
            if drifts:
                total += worlds.wave_mean[w, j] * wave
            seen.x[j] = carried if j == carry_index else total
        if random_error:
            error_noise(place, worlds.error_df[w], seen.noise)
        for j in range(d):
            seen.z[intercept + j] = seen.x[j] + error_entry(worlds.error_mean, worlds.error_factor, w, component, j, seen.noise)
        if drifts:
            for a in range(n_actions):
                for j in range(d):
                    seen.theta[a, j] = worlds.theta[w, a, j] + worlds.wave_theta[w, a, j] * wave
                    if not knows_theta:
                        seen.acted_on[a, j] = seen.theta[a, j]

    return inlined(observe)


def prediction(c: Constants) -> Any:
    """E[x | x~] of a round, in the place of its noise; nothing where it is not asked for."""
    d, intercept, predicts, drifts, entry = c.dim, c.spec[layout.INTERCEPT], c.predicts, c.drifts, steps().entry

    def predict(worlds, w, component, wave, seen):
        if predicts:
            g = entry(component, worlds.gain.shape[1])
            for j in range(d):
                total = worlds.offset[w, g, j]
                for m in range(d):
                    away = seen.z[intercept + m] - (worlds.wave_mean[w, m] * wave if drifts else 0.0)
                    total += worlds.gain[w, g, j, m] * away
                seen.noise[j] = total + (worlds.wave_mean[w, j] * wave if drifts else 0.0)

    return inlined(predict)


def outcome(c: Constants) -> Any:
    """What becomes of a round: the reward of its action, and what else the learner is told."""
    k, d, n_actions, alike, noise_kind = steps(), c.dim, c.spec[layout.N_ACTIONS], c.alike, c.noise_kind
    uniform_pair, standardized, entry, same, Outcome, purpose = k.uniform_pair, k.standardized, k.entry, k.same, k.Outcome, k.NOISE

    def reward(place, worlds, stabilizers, action, probabilities, auxiliary, seen, stabilizer):
        u, v = uniform_pair(place.key[0], place.key[1], place.replicate, place.round + 1, purpose)
        found, propensity = worlds.noise_sd[place.world] * standardized(noise_kind, 0.0, u, v), 0.0
        for a in range(n_actions):
            stabilizer[a] = stabilizers[entry(place.round, stabilizers.shape[0]), 0 if alike else a]
            if same(a, action):
                propensity = probabilities[a]
                for j in range(d):
                    found += seen.theta[a, j] * seen.x[j]
        return Outcome(action, propensity, stabilizer, found, auxiliary)

    return inlined(reward)


def refitting(c: Constants) -> Any:
    """Solve again for what has changed, and count the fits that are Fuller's."""
    k, p, spec = steps(), c.dim + c.spec[layout.INTERCEPT], c.spec
    refit_context, guarded_fits, kind = k.refit_context, k.guarded_fits, int(layout.kind_of(spec))
    refit_one = k.refit_either if kind == layout.TWO_FITS else k.refit_corrected
    refit_arms = repeated(refit_one, int(layout.number_of_fits(spec)), c.sums + c.fit <= IN_REGISTERS)

    def refit(recipe, memory, correcting, room):
        if kind != layout.PLAIN:
            refit_context(recipe, memory, p, room.work)
        refit_arms(recipe, memory, correcting, p, room)
        return guarded_fits(spec, memory.fit, p)

    return inlined(refit)


def recording(c: Constants) -> Any:
    """The totals, and |theta_a - theta*_a| by action; NaN where nothing is learned."""
    k, d, spec = steps(), c.dim, c.spec
    n_actions, p, feature = spec[layout.N_ACTIONS], d + spec[layout.INTERCEPT], int(kernels.shown_feature(spec))
    learns, sqrt, nan = spec[layout.RULE] <= layout.ROBUST, k.math.sqrt, np.nan
    shown = k.shown_robust if int(layout.kind_of(spec)) == layout.TWO_FITS else k.shown_plain

    def record(at, i, totals, recipe, memory, theta, room, records, arm_errors):
        records[at, 0, i], records[at, 1, i], records[at, 2, i] = totals
        for a in range(n_actions):
            found, gap = shown(a, recipe, memory, p, room), 0.0
            for j in range(d):
                away = found[feature + j] - theta[a, j]
                gap += away * away
            arm_errors[at, a, i] = sqrt(gap) if learns else nan

    return inlined(record)


def beginning(c: Constants) -> Any:
    """The memory and the world's θ before the first round."""
    n_sums, n_fit, n_extra, d, n_actions, knows_theta = c.sums, c.fit, c.extra, c.dim, c.spec[layout.N_ACTIONS], c.knows_theta

    n_ones = c.spec[layout.INTERCEPT]

    def begin(memory, fresh, allowed, seen, theta, w, known):
        for j in range(n_sums):
            memory.sums[j] = 0.0
        for j in range(n_fit):
            memory.fit[j] = fresh[j]
        for j in range(n_extra):
            memory.extra[j] = 0.0
        for a in range(n_actions):
            allowed[a] = 1.0
            for j in range(d):
                seen.theta[a, j] = theta[w, a, j]
                seen.acted_on[a, j] = known[a, j] if knows_theta else seen.theta[a, j]
        for j in range(n_ones):
            seen.z[j] = 1.0

    return inlined(begin)


@cache
def kernel(c: Constants) -> Any:
    """The compiled loop over whole trajectories, one in each thread."""
    k, spec, d, n_actions = steps(), c.spec, c.dim, c.spec[layout.N_ACTIONS]
    p = d + spec[layout.INTERCEPT]
    dims, n_sums, n_fit, n_extra, n_seen = (0,) * p, c.sums, c.fit, c.extra, int(layout.seen_size(p))
    n_work, n_aside = int(layout.work_size(n_actions, p)), int(layout.aside_size(p))
    learns, calibrates = spec[layout.RULE] <= layout.ROBUST, spec[layout.ACTS_ON] != layout.PREDICTED
    drifts, carry_index = c.drifts, c.carry_index
    Recipe, Memory, Room, Context, Oracle, DECISION = k.Recipe, k.Memory, k.Room, k.Context, k.Oracle, k.DECISION
    entry, uniform_pair, calibrate, choose, propose = k.entry, k.uniform_pair, k.calibrate, k.choose, k.propose
    draw, regrets, take_in, sin = k.draw, k.regrets, k.take_in, k.math.sin
    begin, find, observe, predict, reward = beginning(c), component(c), observation(c), prediction(c), outcome(c)
    refit, record = refitting(c), recording(c)

    @cuda.jit
    def play(key, first, tuning, plan, benchmark, worlds, world_of, known, fresh, record_at, records, arm_errors):
        i = cuda.grid(1)
        if i >= world_of.size:
            return
        memory = Memory(cuda.local.array(n_sums, float64), cuda.local.array(n_fit, float64), cuda.local.array(n_extra, float64))
        room, out = Room(cuda.local.array(n_work, float64), cuda.local.array(n_aside, float64)), cuda.local.array(n_actions, float64)
        theta, acted_on = cuda.local.array((n_actions, d), float64), cuda.local.array((n_actions, d), float64)
        seen = Seen(cuda.local.array(d, float64), cuda.local.array(p, float64), theta, acted_on, cuda.local.array(d, float64))
        blp, allowed = cuda.local.array(n_seen, float64), cuda.local.array(n_actions, float64)
        stabilizer = cuda.local.array(n_actions, float64)
        recipe, w = Recipe(dims, spec, tuning), world_of[i]
        begin(memory, fresh, allowed, seen, worlds.theta, w, known)
        standard_total, clipped_total, carried, guarded, recorded = 0.0, 0.0, 0.0, 0.0, 0
        for b in range(plan.floor.size):
            place = Place(key, first + i, w, b)
            at, wave = find(place, worlds), sin(6.283185307179586 * (b + 1) / worlds.wave_period[w]) if drifts else 0.0
            observe(place, worlds, at, carried, wave, seen)
            predict(worlds, w, at, wave, seen)
            error = worlds.errors[w, entry(at, worlds.errors.shape[1])]
            if calibrates:
                calibrate(dims, spec, tuning, memory.sums, memory.fit, seen.z, error, blp, room.work)
            context = Context(seen.z, blp if calibrates else seen.z, error, allowed)
            propose(choose, recipe, memory, context, Oracle(acted_on, seen.noise), plan.floor[b], plan.exploring[b], out, room.work)
            u, auxiliary = uniform_pair(key[0], key[1], first + i, b + 1, DECISION)
            action = draw(out, u)
            standard, clipped = regrets(theta, seen.x, out, allowed, benchmark[b])
            standard_total += standard
            clipped_total += clipped
            if carry_index >= 0:
                carried = worlds.carry_decay[w] * carried + worlds.carry_gain[w, action]
            take_in(recipe, memory, context, reward(place, worlds, plan.stabilizer, action, out, auxiliary, seen, stabilizer))
            if plan.refit[b] and learns:
                guarded += refit(recipe, memory, plan.correcting[b], room)
            if recorded < record_at.size and record_at[recorded] == b + 1:
                record(recorded, i, (standard_total, clipped_total, guarded), recipe, memory, theta, room, records, arm_errors)
                recorded += 1

    return play
