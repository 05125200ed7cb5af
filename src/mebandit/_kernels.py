"""Every compiled function of the library, in the order of the data, and the one line that configures the compiler.

The rules: scalar loops over small arrays, results written into arguments, no allocation and no exception inside, no
randomness but what is passed in or counted (`philox`). The stepwise faces and the compiled loop call the same functions,
so they agree bit for bit. All of them live in one file because the compile cache only notices changes of a function's own file.

Symmetric matrices are stored *packed*: the lower triangle row by row, entry (i, j <= i) at i (i + 1) / 2 + j.
"""

import math

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True, error_model="numpy")

# The columns of a row of running sums, the memory of a learner: sum over rounds of w * (1/w, 1, w, r, r^2, z, z r, zz', S).
COUNT, WEIGHT, WEIGHT_SQ, REWARD, REWARD_SQ, FEATURES = 0, 1, 2, 3, 4, 5

# The columns of `spec`, the integers that tell one recipe from another, and what they may say.
N_ACTIONS, INTERCEPT, WEIGHTING, CORRECTION, RULE, GUARD = 0, 1, 2, 3, 4, 5
UNIT, INVERSE = 0, 1
NO_CORRECTION, PLAYED, OFFERED = 0, 1, 2
GREEDY, UCB, THOMPSON, ROBUST, ORACLE, BAYES_ORACLE, UNIFORM = 0, 1, 2, 3, 4, 5, 6  # up to ROBUST they learn
GUARD_AUTO, GUARD_ALWAYS, GUARD_NEVER = 0, 1, 2

# The columns of `tuning`, the real numbers of a recipe.
RIDGE, WIDTH, EPOCH, GAMMA = 0, 1, 2, 3

# What a solve reports. A fit's row is theta, the packed factor it was solved from, then: this report, whether the sums have
# moved on since, and the share kappa of the error covariance that was taken out.
SOLVED, GUARDED, SINGULAR = 0, 1, 2
REPORT, STALE, KAPPA, REPORT_COLUMNS = 0, 1, 2, 3

# The columns of `extra`: rounds learned, and RobustUCB's epoch and exponential weights.
LEARNED, EPOCH_SIZE, EPOCH_SUM, LOWEST, HIGHEST, CHOICE, CHOICE_PROB, LOG_WEIGHTS = 0, 1, 2, 3, 4, 5, 6, 7

# Sizes at which products and sums of inputs could leave the floating-point range; nothing measured is as large.
LARGEST = 1e50

_MIN_PIVOT = 1e-12
_U32 = np.uint64(0xFFFFFFFF)


# ---- counted randomness ------------------------------------------------------------------------------------------------


@jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 of Salmon et al. (2011): four 32-bit words for a counter (c0..c3) under a key (k0, k1)."""
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * np.uint64(c0)
        p1 = np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(p1 >> np.uint64(32)) ^ np.uint32(c1) ^ np.uint32(k0)
        c2 = np.uint32(p0 >> np.uint64(32)) ^ np.uint32(c3) ^ np.uint32(k1)
        c1 = np.uint32(p1)
        c3 = np.uint32(p0)
        k0 = np.uint32(k0 + np.uint32(0x9E3779B9))
        k1 = np.uint32(k1 + np.uint32(0xBB67AE85))
    return c0, c1, c2, c3


@jit
def uniform_pair(seed, cell, replicate, time, purpose):
    """Two independent uniforms in (0, 1), a pure function of where they are used (53 bits each)."""
    c0, c1, c2, c3 = philox(
        np.uint32(time),
        np.uint32(purpose),
        np.uint32(replicate),
        np.uint32(cell),
        np.uint32(np.uint64(seed) & _U32),
        np.uint32(np.uint64(seed) >> np.uint64(32)),
    )
    first = (np.uint64(c0) << np.uint64(21)) ^ (np.uint64(c1) >> np.uint64(11))
    second = (np.uint64(c2) << np.uint64(21)) ^ (np.uint64(c3) >> np.uint64(11))
    return (np.float64(first) + 0.5) * 2.0**-53, (np.float64(second) + 0.5) * 2.0**-53


@jit
def normal_quantile(u):
    """The standard normal quantile, algorithm AS 241 (Wichura 1988), relative accuracy about 1e-15."""
    q = u - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        a = 2509.0809287301226727 * r + 33430.575583588128105
        a = ((a * r + 67265.770927008700853) * r + 45921.953931549871457) * r + 13731.693765509461125
        a = ((a * r + 1971.5909503065514427) * r + 133.14166789178437745) * r + 3.3871328727963666080
        b = 5226.4952788528545610 * r + 28729.085735721942674
        b = ((b * r + 39307.895800092710610) * r + 21213.794301586595867) * r + 5394.1960214247511077
        b = ((b * r + 687.18700749205790830) * r + 42.313330701600911252) * r + 1.0
        return q * a / b
    r = math.sqrt(-math.log(min(u, 1.0 - u)))
    if r <= 5.0:
        r -= 1.6
        a = 7.7454501427834140764e-4 * r + 0.0227238449892691845833
        a = ((a * r + 0.24178072517745061177) * r + 1.27045825245236838258) * r + 3.64784832476320460504
        a = ((a * r + 5.7694972214606914055) * r + 4.6303378461565452959) * r + 1.42343711074968357734
        b = 1.05075007164441684324e-9 * r + 5.475938084995344946e-4
        b = ((b * r + 0.0151986665636164571966) * r + 0.14810397642748007459) * r + 0.68976733498510000455
        b = ((b * r + 1.6763848301838038494) * r + 2.05319162663775882187) * r + 1.0
    else:
        r -= 5.0
        a = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
        a = ((a * r + 0.0012426609473880784386) * r + 0.026532189526576123093) * r + 0.29656057182850489123
        a = ((a * r + 1.7848265399172913358) * r + 5.4637849111641143699) * r + 6.6579046435011037772
        b = 2.04426310338993978564e-15 * r + 1.4215117583164458887e-7
        b = ((b * r + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4) * r + 0.0148753612908506148525
        b = ((b * r + 0.13692988092273580531) * r + 0.59983220655588793769) * r + 1.0
    return a / b if q > 0 else -a / b


@jit
def normal_cdf(x):
    return 0.5 * math.erfc(-x * 0.7071067811865475244)


# ---- the solver --------------------------------------------------------------------------------------------------------


@jit
def packed_size(p):
    return p * (p + 1) // 2


@jit
def factor(a, p):
    """A = L D L' in place for packed A; L below the diagonal, 1/D on it. False if A is not positive definite beyond rounding."""
    for i in range(p):
        row = i * (i + 1) // 2
        size = a[row + i]
        for j in range(i):
            other = j * (j + 1) // 2
            s = a[row + j]
            for k in range(j):
                s -= a[other + k] * a[row + k]
            a[row + j] = s
        pivot = size
        for k in range(i):
            u = a[row + k]
            v = u * a[k * (k + 1) // 2 + k]
            a[row + k] = v
            pivot -= u * v
        if not pivot > _MIN_PIVOT * abs(size):
            return False
        a[row + i] = 1.0 / pivot
    return True


@jit
def solve_factored(a, p, b, out):
    """out = A^-1 b from the factor of A."""
    for i in range(p):
        s = b[i]
        row = i * (i + 1) // 2
        for k in range(i):
            s -= a[row + k] * out[k]
        out[i] = s
    for i in range(p - 1, -1, -1):
        s = out[i] * a[i * (i + 1) // 2 + i]
        for k in range(i + 1, p):
            s -= a[k * (k + 1) // 2 + i] * out[k]
        out[i] = s


@jit
def quadratic_form(a, p, z, work):
    """z' A^-1 z from the factor of A."""
    total = 0.0
    for i in range(p):
        row = i * (i + 1) // 2
        s = z[i]
        for k in range(i):
            s -= a[row + k] * work[k]
        work[i] = s
        total += s * s * a[row + i]
    return total


@jit
def clearly_above(factored, p, trace, other_trace, share):
    """A cheap sufficient condition for A - share C to be positive definite, given the factor of A and both traces.

    lambda_min(A) >= det A ((p - 1) / tr A)^(p - 1) by the arithmetic-geometric mean, and lambda_max(C) <= tr C.
    """
    bound = trace
    for i in range(p):
        bound /= factored[i * (i + 1) // 2 + i] * trace
        if i > 0:
            bound *= p - 1
    return bound > share * other_trace


@jit
def fuller_kappa(gram, cross, reward_sq, error, n, p, work):
    """How much of the error covariance may be taken out: Fuller's modified estimator for an indefinite corrected Gram.

    lambda is the smallest root of det(G - c c'/s - lambda E) = 0, found by bisection on whether that matrix is positive
    definite (which needs no inverse of E, so E may be singular). With alpha = p + 1,
    kappa = 1 - alpha / n if lambda > 1 + 1/n, else lambda - (1 + alpha) / n.
    """
    size = p * (p + 1) // 2
    low, high = 0.0, 1.0 + 1.0 / n
    shrink = 1.0 / reward_sq if reward_sq > 0.0 else 0.0
    trial = high
    for step in range(48):
        k = 0
        for i in range(p):
            for j in range(i + 1):
                work[k] = gram[k] - shrink * cross[i] * cross[j] - trial * error[k]
                k += 1
        if factor(work[:size], p):
            if step == 0:
                return 1.0 - (p + 1.0) / n
            low = trial
        else:
            high = trial
        trial = 0.5 * (low + high)
    return low - (p + 2.0) / n


@jit
def solve_arm(arm, ridge, correction, guard, sums, fit, p, n_actions, work):
    """Fit one arm from the running sums: theta, the factor it came from, and how it was found. (eq. proposed-estimator)

    A = sum w zz' + ridge I - C,  theta = A^-1 sum w z r, with C by `correction`: nothing; the covariances of the rounds in
    which the arm was played (the naive estimator); pi^nd(a) Sigma_e over all rounds in which it could have been (the paper's).
    If A is not safely positive definite (A - C/n, n the effective number of rounds), Fuller's guard decides what is taken out.
    """
    size = p * (p + 1) // 2
    row = sums[arm]
    cross = row[FEATURES + p : FEATURES + 2 * p]
    gram = row[FEATURES + 2 * p : FEATURES + 2 * p + size]
    played = row[FEATURES + 2 * p + size : FEATURES + 2 * p + 2 * size]
    theta = fit[arm, :p]
    a = fit[arm, p : p + size]
    taken = work[:size]
    n = row[WEIGHT] * row[WEIGHT] / row[WEIGHT_SQ] if row[WEIGHT_SQ] > 0.0 else 1.0
    trace, other_trace = 0.0, 0.0
    for k in range(size):
        taken[k] = 0.0
        if correction == PLAYED:
            taken[k] = played[k]
        elif correction == OFFERED:
            column = FEATURES + 2 * p + size + k
            taken[k] = sums[n_actions + arm, column] + sums[2 * n_actions, column]
        a[k] = gram[k] - taken[k]
    for i in range(p):
        k = i * (i + 1) // 2 + i
        a[k] += ridge
        trace += a[k]
        other_trace += taken[k]
    kappa = 0.0 if correction == NO_CORRECTION else 1.0
    safe = factor(a, p)
    if safe and correction != NO_CORRECTION and guard == GUARD_AUTO and not clearly_above(a, p, trace, other_trace, 1.0 / n):
        trial = work[size : 2 * size]
        for k in range(size):
            trial[k] = gram[k] - (1.0 + 1.0 / n) * taken[k]
        for i in range(p):
            trial[i * (i + 1) // 2 + i] += ridge
        safe = factor(trial, p)
    status = SOLVED
    if correction != NO_CORRECTION and (guard == GUARD_ALWAYS or (guard == GUARD_AUTO and not safe)):
        status = GUARDED
        ridged = work[:size]
        for k in range(size):
            ridged[k] = gram[k]
        for i in range(p):
            ridged[i * (i + 1) // 2 + i] += ridge
        kappa = fuller_kappa(ridged, cross, row[REWARD_SQ], played, n, p, work[size:])
        for k in range(size):
            a[k] = ridged[k] - kappa * played[k]
        safe = factor(a, p)
    if not safe:
        for k in range(size):
            a[k] = 0.0
        status = SINGULAR
        if guard == GUARD_NEVER:
            status = solve_indefinite(gram, taken, cross, ridge, p, theta, work[size:])
    else:
        solve_factored(a, p, cross, theta)
    fit[arm, p + size + REPORT] = status
    fit[arm, p + size + STALE] = 0.0
    fit[arm, p + size + KAPPA] = kappa


@jit
def solve_indefinite(gram, taken, cross, ridge, p, theta, work):
    """The bare formula where its matrix is indefinite (guard="never"): Gaussian elimination with partial pivoting."""
    m = work[: p * (p + 1)].reshape(p, p + 1)
    for i in range(p):
        for j in range(i + 1):
            k = i * (i + 1) // 2 + j
            m[i, j] = m[j, i] = gram[k] - taken[k] + (ridge if i == j else 0.0)
        m[i, p] = cross[i]
    for j in range(p):
        top = j
        for i in range(j + 1, p):
            if abs(m[i, j]) > abs(m[top, j]):
                top = i
        if not abs(m[top, j]) > 0.0:
            return SINGULAR
        for k in range(p + 1):
            m[j, k], m[top, k] = m[top, k], m[j, k]
        for i in range(j + 1, p):
            ratio = m[i, j] / m[j, j]
            for k in range(j, p + 1):
                m[i, k] -= ratio * m[j, k]
    for i in range(p - 1, -1, -1):
        s = m[i, p]
        for k in range(i + 1, p):
            s -= m[i, k] * theta[k]
        theta[i] = s / m[i, i]
    return SOLVED


# ---- running sums ------------------------------------------------------------------------------------------------------


@jit
def accumulate(row, w, z, error_cov, intercept, reward):
    """row += w (1/w, 1, w, r, r^2, z, z r, zz', S): one round seen with weight w."""
    p = z.size
    row[COUNT] += 1.0
    row[WEIGHT] += w
    row[WEIGHT_SQ] += w * w
    row[REWARD] += w * reward
    row[REWARD_SQ] += w * reward * reward
    cross = FEATURES + p
    gram = FEATURES + 2 * p
    error = gram + p * (p + 1) // 2
    for i in range(p):
        v = w * z[i]
        row[FEATURES + i] += v
        row[cross + i] += v * reward
        k = i * (i + 1) // 2
        for j in range(i + 1):
            row[gram + k + j] += v * z[j]
        if i >= intercept:
            for j in range(intercept, i + 1):
                row[error + k + j] += w * error_cov[i - intercept, j - intercept]


@jit
def learn_sums(spec, stabilizer, sums, z, error_cov, allowed, action, propensity, reward):
    """Take one round into the running sums.

    Row a < K holds the rounds in which a was played, weighted 1 or pi^nd(a) / pi(a). Under the paper's correction row K + a
    holds the rounds in which a was allowed, weighted pi^nd(a); row 2K the rounds that count alike for every arm (all allowed,
    pi^nd the same for all), so that the usual round costs one addition and not K.
    """
    n_actions = spec[N_ACTIONS]
    w = 1.0 if spec[WEIGHTING] == UNIT else stabilizer[action] / propensity
    accumulate(sums[action], w, z, error_cov, spec[INTERCEPT], reward)
    if spec[CORRECTION] != OFFERED:
        return
    alike = True
    for b in range(n_actions):
        if not allowed[b] or stabilizer[b] != stabilizer[0]:
            alike = False
    if alike:
        accumulate(sums[2 * n_actions], stabilizer[0], z, error_cov, spec[INTERCEPT], 0.0)
        return
    for b in range(n_actions):
        if allowed[b]:
            accumulate(sums[n_actions + b], stabilizer[b], z, error_cov, spec[INTERCEPT], 0.0)


@jit
def accumulate_batch(spec, stabilizers, sums, predicted, error_cov, allowed, actions, propensities, rewards):
    """`learn_sums` over arrays of rounds; stabilizers, error_cov and allowed hold one entry for all rounds, or one for each."""
    for t in range(rewards.size):
        learn_sums(
            spec,
            stabilizers[t % stabilizers.shape[0]],
            sums,
            features(predicted[t], spec[INTERCEPT]),
            error_cov[t % error_cov.shape[0]],
            allowed[t % allowed.shape[0]],
            actions[t],
            propensities[t],
            rewards[t],
        )


# ---- policies ----------------------------------------------------------------------------------------------------------


@jit
def clip_to_floor(probabilities, allowed, floor):
    """p_a = floor + (1 - m floor) e_a / sum e with e = max(p - floor, 0), among the m allowed actions; 0 elsewhere.

    A vector that keeps the floor is left as it is; certainty about one action becomes 1 - (m - 1) floor for it.
    """
    m, total = 0, 0.0
    for a in range(probabilities.size):
        if allowed[a]:
            m += 1
            total += max(probabilities[a] - floor, 0.0)
    for a in range(probabilities.size):
        if not allowed[a]:
            probabilities[a] = 0.0
        elif total > 0.0:
            probabilities[a] = floor + (1.0 - m * floor) * max(probabilities[a] - floor, 0.0) / total
        else:
            probabilities[a] = 1.0 / m


@jit
def choose_best(scores, allowed, out):
    """Probability one for the largest score among the allowed; equal scores share it, so that labels never decide."""
    best, ties = -np.inf, 0
    for a in range(scores.size):
        if allowed[a] and scores[a] > best:
            best, ties = scores[a], 0
        if allowed[a] and scores[a] == best:
            ties += 1
    for a in range(scores.size):
        out[a] = 1.0 / ties if allowed[a] and scores[a] == best else 0.0


@jit
def best_of_normals(mean, sd, allowed, out, cuts):
    """out[a] = P(s_a is the largest) for independent s_b ~ N(mean_b, sd_b^2), b allowed. Two arms: the exact normal probability.

    More: the integral of f_a(s) prod_{b != a} F_b(s) by eight-point Gauss-Legendre on panels cut where any arm's distribution
    bends, over the range where the maximum can lie. What it returns is normalised and is itself what the action is drawn from.
    """
    m, first, second = 0, -1, -1
    low, high = -np.inf, -np.inf
    for a in range(mean.size):
        out[a] = 0.0
        if allowed[a]:
            m += 1
            second = first
            first = a
            low = max(low, mean[a] - 8.0 * sd[a])
            high = max(high, mean[a] + 8.0 * sd[a])
    if m == 1:
        out[first] = 1.0
        return
    if m == 2:
        out[first] = normal_cdf((mean[first] - mean[second]) / math.hypot(sd[first], sd[second]))
        out[second] = 1.0 - out[first]
        return
    n = 0
    for a in range(mean.size):
        if allowed[a] and mean[a] + 8.0 * sd[a] >= low:
            for step in range(-8, 9, 2):
                cut = min(max(mean[a] + step * sd[a], low), high)
                k = n
                while k > 0 and cuts[k - 1] > cut:
                    cuts[k] = cuts[k - 1]
                    k -= 1
                cuts[k] = cut
                n += 1
    for panel in range(n - 1):
        half = 0.5 * (cuts[panel + 1] - cuts[panel])
        if half > 0.0:
            for node in range(8):
                side = 1.0 if node % 2 else -1.0
                s = cuts[panel] + half * (1.0 + side * _NODES[node // 2])
                everyone = half * _NODE_WEIGHTS[node // 2]
                for b in range(mean.size):
                    if allowed[b]:
                        everyone *= normal_cdf((s - mean[b]) / sd[b])
                if everyone > 0.0:
                    for a in range(mean.size):
                        if allowed[a]:
                            z = (s - mean[a]) / sd[a]
                            density = math.exp(-0.5 * z * z) * 0.3989422804014327 / sd[a]
                            out[a] += density * everyone / normal_cdf(z)
    total = 0.0
    for a in range(mean.size):
        total += out[a]
    for a in range(mean.size):
        out[a] /= total


_NODES = (0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363)
_NODE_WEIGHTS = (0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763)


@jit
def propose(spec, tuning, fit, extra, z, allowed, floor, exploring, theta, guess, out, work):
    """The action probabilities of one round, floor kept: the only place where a fit becomes a decision.

    `theta` and `guess` (the environment's parameters and E[x | x~]) are read by the oracles alone.
    """
    n_actions, rule, p = spec[N_ACTIONS], spec[RULE], z.size
    size = p * (p + 1) // 2
    scores = work[:n_actions]
    spread = work[n_actions : 2 * n_actions]
    rest = work[2 * n_actions :]
    if exploring or rule == UNIFORM:
        for a in range(n_actions):
            out[a] = 1.0
        clip_to_floor(out, allowed, 0.0)
        return
    if rule == ORACLE or rule == BAYES_ORACLE:
        for a in range(n_actions):
            s = 0.0
            for i in range(theta.shape[1]):
                s += theta[a, i] * (z[i + spec[INTERCEPT]] if rule == ORACLE else guess[i])
            scores[a] = s
    else:
        width = tuning[WIDTH]
        if rule == ROBUST and extra[CHOICE] > 0.0:
            width += 2.0 ** (extra[CHOICE] - 1.0)
        for a in range(n_actions):
            s = 0.0
            for i in range(p):
                s += fit[a, i] * z[i]
            scores[a] = s
            if rule != GREEDY:
                spread[a] = width * math.sqrt(max(quadratic_form(fit[a, p : p + size], p, z, rest), 0.0))
                if rule != THOMPSON:
                    scores[a] += spread[a]
    if rule == THOMPSON:
        for a in range(n_actions):
            spread[a] = max(spread[a], 1e-12 * (1.0 + abs(scores[a])))
        best_of_normals(scores, spread, allowed, out, rest)
    else:
        choose_best(scores, allowed, out)
    clip_to_floor(out, allowed, floor)


@jit
def draw(probabilities, u):
    """The action in whose share of (0, 1) the uniform u falls."""
    total, last = 0.0, 0
    for a in range(probabilities.size):
        if probabilities[a] > 0.0:
            total += probabilities[a]
            last = a
            if u < total:
                return a
    return last


@jit
def refit_arms(spec, tuning, correcting, sums, fit, p, work):
    """Solve for every arm whose sums have changed since its last solve."""
    size = p * (p + 1) // 2
    correction = spec[CORRECTION] if correcting else NO_CORRECTION
    for a in range(spec[N_ACTIONS]):
        uncorrected = correction != NO_CORRECTION and fit[a, p + size + KAPPA] == 0.0
        if uncorrected or fit[a, p + size + STALE] != 0.0:
            solve_arm(a, tuning[RIDGE], correction, spec[GUARD], sums, fit, p, spec[N_ACTIONS], work)


@jit
def learn(spec, tuning, stabilizer, sums, fit, extra, z, error_cov, allowed, action, propensity, reward, luck, refit, correcting, work):
    """One learned round: add it to the sums and, when a refit is due, solve again."""
    n_actions, p = spec[N_ACTIONS], z.size
    stale = p + p * (p + 1) // 2 + STALE
    learn_sums(spec, stabilizer, sums, z, error_cov, allowed, action, propensity, reward)
    extra[LEARNED] += 1.0
    fit[action, stale] = 1.0
    if spec[CORRECTION] == OFFERED:
        for b in range(n_actions):
            if allowed[b]:
                fit[b, stale] = 1.0
    if spec[RULE] == ROBUST:
        learn_budget(tuning, sums, fit, extra, stale, reward, luck)
    if refit:
        refit_arms(spec, tuning, correcting, sums, fit, p, work)


@jit
def learn_budget(tuning, sums, fit, extra, stale, reward, luck):
    """RobustUCB's upper layer (Ding et al. 2022): EXP3 over attack budgets 0, 1, 2, 4, ...; at each epoch's end a new draw and a restart.

    The gain of an epoch is its mean reward scaled to [0, 1] by the range of rewards seen; g / p_j is added to log w_j with rate gamma / J.
    """
    n_budgets = extra.size - LOG_WEIGHTS
    if extra[LEARNED] == 1.0:
        extra[LOWEST] = extra[HIGHEST] = reward
        extra[CHOICE_PROB] = 1.0 / n_budgets
    extra[LOWEST] = min(extra[LOWEST], reward)
    extra[HIGHEST] = max(extra[HIGHEST], reward)
    extra[EPOCH_SIZE] += 1.0
    extra[EPOCH_SUM] += reward
    if extra[EPOCH_SIZE] < tuning[EPOCH]:
        return
    span = extra[HIGHEST] - extra[LOWEST]
    gain = (extra[EPOCH_SUM] / extra[EPOCH_SIZE] - extra[LOWEST]) / span if span > 0.0 else 0.0
    chosen = int(extra[CHOICE])
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
        if reached <= luck:
            extra[CHOICE] = j
            extra[CHOICE_PROB] = prob
        reached += prob
    extra[EPOCH_SIZE] = 0.0
    extra[EPOCH_SUM] = 0.0
    for a in range(fit.shape[0]):
        fit[a, stale] = 1.0
        for k in range(sums.shape[1]):
            sums[a, k] = 0.0


# ---- the border: fast checks, worded in checks.py ------------------------------------------------------------------------


@jit
def acceptable(x):
    """Whether every entry is a number of usable size (false for NaN and infinities)."""
    for i in range(x.size):
        if not abs(x[i]) <= LARGEST:
            return False
    return True


@jit
def is_covariance(s, work):
    """Whether s is symmetric and positive semidefinite up to rounding."""
    d = s.shape[0]
    largest = 0.0
    for i in range(d):
        for j in range(d):
            if not abs(s[i, j]) <= LARGEST:
                return False
        largest = max(largest, s[i, i])
    slack = 1e-9 * largest
    for i in range(d):
        for j in range(i + 1):
            if abs(s[i, j] - s[j, i]) > slack:
                return False
            work[i * (i + 1) // 2 + j] = s[i, j]
        work[i * (i + 1) // 2 + i] += slack
    if largest == 0.0:
        for i in range(d):
            for j in range(d):
                if s[i, j] != 0.0:
                    return False
        return True
    return factor(work[: d * (d + 1) // 2], d)


# ---- single rounds: the faces of `propose` and `learn` for use from Python ------------------------------------------------


@jit
def features(predicted, intercept):
    """z: the predicted context, after a leading 1 if there is an intercept."""
    z = np.ones(predicted.size + intercept)
    for i in range(predicted.size):
        z[intercept + i] = predicted[i]
    return z


@jit
def propose_one(spec, tuning, fit, extra, predicted, allowed, floor, exploring, theta, out):
    z = features(predicted, spec[INTERCEPT])
    work = np.empty(work_size(spec[N_ACTIONS], z.size))
    propose(spec, tuning, fit, extra, z, allowed, floor, exploring, theta, predicted, out, work)


@jit
def decide_one(spec, tuning, fit, extra, predicted, error_cov, allowed, floor, exploring, theta, seed, number, out):
    """A live decision: check, propose, draw. Returns the action (-1 for a bad prediction, -2 for a bad covariance) and the luck."""
    if not acceptable(predicted):
        return -1, 0.0
    if not is_covariance(error_cov, np.empty(packed_size(predicted.size))):
        return -2, 0.0
    propose_one(spec, tuning, fit, extra, predicted, allowed, floor, exploring, theta, out)
    u, luck = uniform_pair(seed, 0, 0, number, LIVE)
    return draw(out, u), luck


@jit
def learn_one(
    spec, tuning, stabilizer, sums, fit, extra, predicted, error_cov, allowed, action, propensity, reward, luck, refit, correcting
):
    z = features(predicted, spec[INTERCEPT])
    work = np.empty(work_size(spec[N_ACTIONS], z.size))
    learn(spec, tuning, stabilizer, sums, fit, extra, z, error_cov, allowed, action, propensity, reward, luck, refit, correcting, work)


# ---- the world ---------------------------------------------------------------------------------------------------------

# What a pair of uniforms is for: decisions, the mixture component, then context, error and reward noise from these numbers on.
LIVE, DECISION, COMPONENT, CONTEXT, ERROR, NOISE = 0, 1, 2, 1 << 8, 1 << 16, 1 << 24

NORMAL, STUDENT_T, UNIFORM_NOISE, TWO_POINT = 0, 1, 2, 3


@jit
def standardized(kind, df, u, v):
    """A variate of mean 0 and variance 1 from two uniforms; Student's t by Bailey's (1994) polar formula."""
    if kind == NORMAL:
        return normal_quantile(u)
    if kind == UNIFORM_NOISE:
        return 3.4641016151377544 * (u - 0.5)
    if kind == TWO_POINT:
        return 1.0 if u < 0.5 else -1.0
    return math.sqrt((df - 2.0) * (u ** (-2.0 / df) - 1.0)) * math.cos(6.283185307179586 * v)


@jit
def fill_standardized(kind, df, seed, cell, replicate, time, purpose, out):
    """Independent standardized variates; one pair of uniforms serves two, or one Student t."""
    n = out.size
    i = 0
    while i < n:
        u, v = uniform_pair(seed, cell, replicate, time, purpose + i)
        out[i] = standardized(kind, df, u, v)
        i += 1
        if kind != STUDENT_T and i < n:
            out[i] = standardized(kind, df, v, u)
            i += 1


@jit
def fill_tape(world, stretch, tape, z):
    """A stretch of rounds of one replicate: everything random about them, before any decision.

    The component c of a round is drawn with the given cumulative probabilities (or taken in turn where there are none);
    x = mean_c + F_c z,  e = error_mean_c + E_c z' with z, z' standardized and independent.
    """
    n_components, d = world.mean.shape
    seed, cell, replicate, start = stretch.seed, stretch.cell, stretch.replicate, stretch.start
    for b in range(tape.noise.size):
        time = start + b + 1
        tape.uniform[b], tape.luck[b] = uniform_pair(seed, cell, replicate, time, DECISION)
        c = 0
        if n_components > 1:
            if world.cumulative.size == 0:
                c = (time - 1) % n_components
            else:
                u, _ = uniform_pair(seed, cell, replicate, time, COMPONENT)
                while c < n_components - 1 and u >= world.cumulative[c]:
                    c += 1
        tape.component[b] = c
        f = world.factor[c % world.factor.shape[0]]
        if world.random_context:
            fill_standardized(NORMAL, 0.0, seed, cell, replicate, time, CONTEXT, z)
        for i in range(d):
            tape.context[b, i] = world.mean[c, i]
            if world.random_context:
                for j in range(d):
                    tape.context[b, i] += f[i, j] * z[j]
        f = world.error_factor[c % world.error_factor.shape[0]]
        if world.random_error:
            fill_standardized(world.error_kind, world.error_df, seed, cell, replicate, time, ERROR, z)
        for i in range(d):
            tape.error[b, i] = world.error_mean[c % world.error_mean.shape[0], i]
            if world.random_error:
                for j in range(d):
                    tape.error[b, i] += f[i, j] * z[j]
        fill_standardized(world.noise_kind, 0.0, seed, cell, replicate, time, NOISE, z[:1])
        tape.noise[b] = world.noise_sd * z[0]


@jit
def regrets(theta, x, probabilities, allowed, floor):
    """Expected loss of one round at the true context, against the best action and against its clipped version.

    standard: max_a <theta_a, x> - sum_a pi(a) <theta_a, x>;  the clipped benchmark plays 1 - (m - 1) floor on the best of m.
    """
    best, everyone, mine, m = -np.inf, 0.0, 0.0, 0
    for a in range(probabilities.size):
        if allowed[a]:
            value = 0.0
            for i in range(x.size):
                value += theta[a, i] * x[i]
            best = max(best, value)
            everyone += value
            mine += probabilities[a] * value
            m += 1
    return best - mine, (1.0 - m * floor) * best + floor * everyone - mine


@jit
def observe(tape, b, carried, x, predicted):
    """The hidden context of round b of the tape, and what is seen of it. A carried feature takes its value from past actions."""
    for i in range(x.size):
        x[i] = tape.context[b, i]
        if i == tape.carry_index:
            x[i] = carried
        predicted[i] = x[i] + tape.error[b, i]


@jit
def reward_of(tape, b, x, action):
    theta = tape.theta[b % tape.theta.shape[0], action]
    r = tape.noise[b]
    for i in range(x.size):
        r += theta[i] * x[i]
    return r


# ---- the loop ----------------------------------------------------------------------------------------------------------


@jit
def run_block(spec, tuning, plan, sums, fit, extra, tape, benchmark, totals, record_at, next_record, start, records, arm_errors):
    """Play one policy through one block of the tape. Returns the number of records made so far.

    benchmark is the floor of the clipped benchmark by round; totals = (standard regret, clipped regret, carried feature, guarded
    fits); records holds the first two and the last, arm_errors |theta_a - theta*_a| per arm, at the rounds of `record_at`.
    """
    n_rounds, d = tape.context.shape
    n_actions = spec[N_ACTIONS]
    p = d + spec[INTERCEPT]
    size = p * (p + 1) // 2
    x = np.empty(d)
    z = np.ones(p)
    predicted = z[spec[INTERCEPT] :]
    out = np.empty(n_actions)
    work = np.empty(work_size(n_actions, p))
    learns = spec[RULE] <= ROBUST
    for b in range(n_rounds):
        theta = tape.theta[b % tape.theta.shape[0]]
        allowed = tape.allowed[b % tape.allowed.shape[0]]
        guess = tape.guess[b % tape.guess.shape[0]]
        observe(tape, b, totals[2], x, predicted)
        propose(spec, tuning, fit, extra, z, allowed, plan.floor[b], plan.exploring[b], theta, guess, out, work)
        action = draw(out, tape.uniform[b])
        standard, clipped = regrets(theta, x, out, allowed, benchmark[b])
        totals[0] += standard
        totals[1] += clipped
        if tape.carry_index >= 0:
            totals[2] = tape.carry_decay * totals[2] + tape.carry_gain[action]
        if learns:
            learn(
                spec,
                tuning,
                plan.stabilizer[b % plan.stabilizer.shape[0]],
                sums,
                fit,
                extra,
                z,
                tape.error_cov[tape.component[b] % tape.error_cov.shape[0]],
                allowed,
                action,
                out[action],
                reward_of(tape, b, x, action),
                tape.luck[b],
                plan.refit[b],
                plan.correcting[b],
                work,
            )
            if plan.refit[b]:
                for a in range(n_actions):
                    totals[3] += fit[a, p + size + REPORT] == GUARDED
        if next_record < record_at.size and record_at[next_record] == start + b + 1:
            records[next_record, 0] = totals[0]
            records[next_record, 1] = totals[1]
            records[next_record, 2] = totals[3]
            for a in range(n_actions):
                arm_errors[next_record, a] = distance(fit[a, spec[INTERCEPT] : p], theta[a]) if learns else np.nan
            next_record += 1
    return next_record


@jit
def distance(fitted, theta):
    total = 0.0
    for i in range(theta.size):
        total += (fitted[i] - theta[i]) ** 2
    return math.sqrt(total)


@jit
def work_size(n_actions, p):
    """Scratch room that suffices for every function here."""
    size = p * (p + 1) // 2
    return 11 * n_actions + 2 * p * (p + 1) + 2 * size + p
