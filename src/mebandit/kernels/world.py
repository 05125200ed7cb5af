"""What the world has in store: variates, tapes of noise, contexts and rewards."""

import math

import numpy as np

from .compile import item, jit, spliced
from .layout import entry
from .linalg import dot
from .random import CENTRAL, COMPONENT, CONTEXT, DECISION, ERROR, NOISE, central_quantile, normal_quantile, uniform_pair

# Distributions of standardized variates.
NORMAL: int = 0
STUDENT_T: int = 1
UNIFORM_NOISE: int = 2
TWO_POINT: int = 3
EXPONENTIAL: int = 4
LOGNORMAL: int = 5
LOG_SD = 0.75  # of the logarithm of a lognormal variate: its skewness is 3.3


@spliced
def standardized(kind, df, u, v):
    """A variate of mean 0 and variance 1 from two uniforms; Student's t by Bailey's (1994) polar formula."""
    return normal_quantile(u) if kind == NORMAL else other_standardized(kind, df, u, v)


@spliced
def other_standardized(kind, df, u, v):
    """`standardized` of what is not normal."""
    if kind == UNIFORM_NOISE:
        return 3.4641016151377544 * (u - 0.5)
    if kind == TWO_POINT:
        return 1.0 if u < 0.5 else -1.0
    if kind == EXPONENTIAL:
        return -math.log(u) - 1.0
    if kind == LOGNORMAL:
        v = LOG_SD * LOG_SD
        return (math.exp(LOG_SD * normal_quantile(u) - 0.5 * v) - 1.0) / math.sqrt(math.exp(v) - 1.0)
    return math.sqrt((df - 2.0) * (u ** (-2.0 / df) - 1.0)) * math.cos(6.283185307179586 * v)


# Tapes are filled a strip of rounds at a time, and one purpose after the other: short loops without branches, over arrays that stay in
# the processor's cache, which the compiler turns into vector instructions.
STRIP = 256


@jit
def write_uniforms(key, first, purpose, u, v):
    """The pair of uniforms of `purpose` in rounds first, first + 1, ...; the key is seed, cell and replicate."""
    seed, cell, replicate = key
    for b in range(u.size):
        u[b], v[b] = uniform_pair(seed, cell, replicate, first + b, purpose)


@jit
def write_standardized(kind, df, u, v, out, tails):
    """`standardized` of many. Of normal ones, first all as if they were in the middle, then again the few that are not."""
    if kind != NORMAL:
        for b in range(out.size):
            out[b] = other_standardized(kind, df, u[b], v[b])
        return
    for b in range(out.size):
        out[b] = central_quantile(u[b] - 0.5)
    n = 0
    for b in range(out.size):
        tails[n] = b
        n += abs(u[b] - 0.5) > CENTRAL
    for k in range(n):
        out[tails[k]] = normal_quantile(u[tails[k]])


@jit
def write_vectors(kind, df, key, first, purpose, z, m, u, v, tails):
    """Standardized vectors for m rounds, z[i, b] the i-th entry for round first + b.

    A pair of uniforms serves two entries, or one Student t.
    """
    d = z.shape[0]
    u, v = u[:m], v[:m]
    for i in range(0, d, 1 if kind == STUDENT_T else 2):
        write_uniforms(key, first, purpose + i, u, v)
        write_standardized(kind, df, u, v, z[i, :m], tails)
        if kind != STUDENT_T and i + 1 < d:
            write_standardized(kind, df, v, u, z[i + 1, :m], tails)


@jit
def fill_normals(seed, cell, replicate, purpose, out):
    """A standard normal vector in each row of `out`; row i is that of time i + 1, whatever the number of rows."""
    n, d = out.shape
    z, u, v, tails = np.empty((d, STRIP)), np.empty(STRIP), np.empty(STRIP), np.empty(STRIP, dtype=np.int64)
    for first in range(0, n, STRIP):
        m = min(STRIP, n - first)
        write_vectors(NORMAL, 0.0, (seed, cell, replicate), first + 1, purpose, z, m, u, v, tails)
        for b in range(m):
            for i in range(d):
                out[first + b, i] = z[i, b]


@jit
def combine(mean, factor, random, component, z, m, out, first):
    """out[first + b] = mean_c + factor_c z_b, c the component of the round; the second part only where there is any randomness."""
    d, means, factors = mean.shape[1], mean.shape[0], factor.shape[0]
    total = np.empty(STRIP)
    for i in range(d):
        for b in range(m):
            total[b] = mean[entry(component[first + b], means), i]
        if random:
            for j in range(d):
                own = z[j]
                if factors > 1:
                    for b in range(m):
                        total[b] += factor[component[first + b], i, j] * own[b]
                elif factor[0, i, j] != 0.0:  # most are zero where coordinates are independent
                    f = factor[0, i, j]
                    for b in range(m):
                        total[b] += f * own[b]
        for b in range(m):
            out[first + b, i] = total[b]


@jit
def write_components(world, stretch, component):
    """The component of each round: drawn with the given cumulative probabilities, or taken in turn where there are none."""
    n_components = world.mean.shape[0]
    for b in range(component.size):
        time, c = stretch.start + b + 1, 0
        if world.cumulative.size == 0:
            c = (time - 1) % n_components
        elif n_components > 1:
            u, _ = uniform_pair(stretch.seed, stretch.cell, stretch.replicate, (time - 1) // world.hold + 1, COMPONENT)
            while c < n_components - 1 and u >= world.cumulative[c]:
                c += 1
        component[b] = c


@jit
def fill_tape(world, stretch, tape):
    """A stretch of rounds of one replicate: everything random about them, before any decision.

    With c the component of a round, x = mean_c + F_c z,  e = error_mean_c + E_c z' with z, z' standardized and independent; where it is
    known, E[x | x~] = offset_c + G_c x~.
    """
    n, d = tape.context.shape
    key = stretch.seed, stretch.cell, stretch.replicate
    z, u, v, tails = np.empty((d, STRIP)), np.empty(STRIP), np.empty(STRIP), np.empty(STRIP, dtype=np.int64)
    component, all_noise = tape.component, tape.noise.reshape(n)
    write_components(world, stretch, component)
    write_uniforms(key, stretch.start + 1, DECISION, tape.uniform, tape.auxiliary)
    for first in range(0, n, STRIP):
        m, time = min(STRIP, n - first), stretch.start + first + 1
        if world.random_context:
            write_vectors(world.context_kind, 0.0, key, time, CONTEXT, z, m, u, v, tails)
        combine(world.mean, world.factor, world.random_context, component, z, m, tape.context, first)
        if world.random_error:
            write_vectors(world.error_kind, world.error_df, key, time, ERROR, z, m, u, v, tails)
        combine(world.error_mean, world.error_factor, world.random_error, component, z, m, tape.error, first)
        if world.gain.shape[0] > 0:
            for i in range(d):
                for b in range(m):
                    z[i, b] = tape.context[first + b, i] + tape.error[first + b, i]
            combine(world.offset, world.gain, True, component, z, m, tape.guess, first)
        noise = all_noise[first : first + m]
        write_uniforms(key, time, NOISE, u[:m], v[:m])
        write_standardized(world.noise_kind, 0.0, u[:m], v[:m], noise, tails)
        for b in range(m):
            noise[b] *= world.noise_sd


@spliced
def regrets(theta, x, probabilities, allowed, floor):
    """Expected loss of one round at the true context, against the best action and against its clipped version.

    standard: max_a <theta_a, x> - sum_a pi(a) <theta_a, x>;  the clipped benchmark plays 1 - (n - 1) floor on the best of n.
    """
    best, everyone, mine, n = -np.inf, 0.0, 0.0, 0
    for a in range(probabilities.size):
        if allowed[a]:
            value = dot(item(theta, a), x, x.size)
            best = max(best, value)
            everyone += value
            mine += probabilities[a] * value
            n += 1
    return best - mine, (1.0 - n * floor) * best + floor * everyone - mine


@jit
def regrets_among(means, probabilities, allowed, floor):
    """The same where the mean reward of each action is given, and is not linear in x."""
    best, everyone, mine, n = -np.inf, 0.0, 0.0, 0
    for a in range(probabilities.size):
        if allowed[a]:
            best = max(best, means[a])
            everyone += means[a]
            mine += probabilities[a] * means[a]
            n += 1
    return best - mine, (1.0 - n * floor) * best + floor * everyone - mine


@spliced
def regrets_of(tape, b, theta, x, probabilities, floor):
    """The regrets of round b of a tape."""
    allowed = item(tape.allowed, entry(b, tape.allowed.shape[0]))
    if tape.mean_reward.shape[0] > 0:
        standard, clipped = regrets_among(item(tape.mean_reward, b), probabilities, allowed, floor)
    else:
        standard, clipped = regrets(theta, x, probabilities, allowed, floor)
    return standard, clipped


@spliced
def observe(tape, b, carried, x, predicted):
    """The hidden context of round b of the tape, and what is seen of it. A carried feature takes its value from past actions."""
    for i in range(x.size):
        x[i] = tape.context[b, i]
        if i == tape.carry_index:
            x[i] = carried
        predicted[i] = x[i] + tape.error[b, i]


@spliced
def reward_of(tape, b, x, action):
    """r = E[r | x, a] + eta, where E[r | x, a] = <theta_a, x> unless it is given."""
    theta = item(item(tape.theta, entry(b, tape.theta.shape[0])), action)
    r = tape.noise[b, entry(action, tape.noise.shape[1])]
    if tape.mean_reward.shape[0] > 0:
        r += tape.mean_reward[b, action]
    else:
        for i in range(x.size):
            r += theta[i] * x[i]
    return r
