"""The compiled functions of the library, in the order of the data; `_compiler` says how they are compiled.

The rules: scalar loops over small arrays, results written into arguments, no allocation and no exception inside, no
randomness but what is passed in or counted (`philox`). The stepwise faces and the compiled loop call the same functions,
so they agree bit for bit. All of them live in one file because the compile cache only notices changes of a function's own file.

Symmetric matrices are stored *packed*: the upper triangle row by row, so that row i holds the entries (i, i), ..., (i, p - 1).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

if not TYPE_CHECKING:  # what is compiled is typed by the compiler
    from mebandit._compiler import borrowed, item, jit, live, part, quotient, reach, same, seldom, spliced, summing

# A row of running sums, the memory of a learner: the number of rounds, Σ w, Σ w^2, then the terms w (z, zz', S, r, r^2, z r) summed.
COUNT, WEIGHT, WEIGHT_SQ, TERMS = 0, 1, 2, 3

# The columns of `spec`, the integers that tell one recipe from another, and what they may say.
N_ACTIONS, INTERCEPT, WEIGHTING, CORRECTION, RULE, GUARD, ACTS_ON, READS, PRECISION, CURVED, FADES = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
UNIT, INVERSE, PSEUDO = 0, 1, 2  # PSEUDO: two fits are kept, regression calibration and the doubly robust one; READS says which decides
NO_CORRECTION, PLAYED, OFFERED = 0, 1, 2
GREEDY, UCB, THOMPSON, ROBUST, ORACLE, BAYES_ORACLE, UNIFORM = 0, 1, 2, 3, 4, 5, 6  # up to ROBUST they learn
GUARD_AUTO, GUARD_ALWAYS, GUARD_NEVER = 0, 1, 2
PREDICTED, BLP, EW_BLP, CHOSEN_BLP = 0, 1, 2, 3
READS_ROBUST, READS_CALIBRATED, READS_BETTER = 0, 1, 2

# A learner's desk, one array of 64-bit words: the columns of `spec`, further integers (CHANGES counts those of the error covariance), where
# each part begins and the last one ends; then the parts.
SEED, WARMUP, CORRECT_FROM, CHANGES = 11, 12, 13, 14
SUMS_AT, FIT_AT, EXTRA_AT, TUNING_AT, PLAN_AT, STABILIZER_AT, THETA_AT, ERROR_COV_AT, ROOM_AT = 15, 16, 17, 18, 19, 20, 21, 22, 23
DESK_HEAD = ROOM_AT + 2
NEVER = 2**62  # a time that does not come
FLOOR, REFIT = 0, 1  # of the plan, what the schedules say of the next decision, and of the next reward

# The columns of `tuning`, the real numbers of a recipe.
RIDGE, WIDTH, EPOCH, GAMMA, MEMORY, DISCOUNT = 0, 1, 2, 3, 4, 5

# What a solve reports, `UNSOLVED` only to itself. A fit's row is theta, the packed factor it was solved from, then: this report, whether
# the sums have moved on since, and the share kappa of the error covariance that was taken out.
SOLVED, GUARDED, SINGULAR, UNSOLVED = 0, 1, 2, 3
REPORT, STALE, KAPPA, REPORT_COLUMNS = 0, 1, 2, 3

# The columns of `extra`: rounds learned, and RobustUCB's epoch and exponential weights, or the evidence on which fit earns more.
LEARNED, EPOCH_SIZE, EPOCH_SUM, LOWEST, HIGHEST, CHOICE, CHOICE_PROB, LOG_WEIGHTS = 0, 1, 2, 3, 4, 5, 6, 7
EVIDENCE, EVIDENCE_SQ = 1, 2
EVIDENCE_KEPT = 0.998  # of the evidence so far, when the fits disagree again: 500 disagreements count
EVIDENCE_NEEDED = 2.5  # standard errors
CORRELATION_DOUBT = 2.0  # times the sampling variance of the correlations between features is taken off their squares
LEAST_NOISE = 0.2  # of the variance of <theta, x>: what the reward's own noise is taken to be at least
SETTLING = 40.0  # rounds per feature, times 1 - reliability, after which a round counts half in regression calibration

# The curve of E[x | x~] for skewed contexts, see `refit_curve`, and the share of it that is used, see `learn_share`.
SKEWNESS_END = 5.0  # standard deviations: what lies further out counts as if it were there
SKEWNESS_DOUBT = 0.25  # the part of a third moment's sampling variance that is taken off its square
LEAST_SKEWED = 0.1  # of the variance: a smaller exponential part, a skewness below 0.06, changes nothing and is not computed
CURVE_END = 3.0  # standard deviations: what lies further out may be the error's, and no error is taken to be larger
FIRST_SHARE = 1.0  # before the rewards say anything
SHARE_PRECISION = 4.0  # of the first share, in rounds with a departure as large as the noise: a standard deviation of 1/2
MOST_SHARE = 2.0  # the curve is cut off, so that more than 1 can be right
SHARE_FROM = 2.0  # rounds per feature and action, before which theta is too poor to learn the share from
DEPARTING, LEFT_SQ, DEPARTURE_SQ, DEPARTURE_LEFT = 0, 1, 2, 3  # the sums that the share is solved from

# What a pair of uniforms is for: decisions, the mixture component, the user, then auxiliary data, context, error and reward noise from
# these numbers on.
LIVE, DECISION, COMPONENT, USER, CONTEXT, ERROR, NOISE, AUXILIARY = 0, 1, 2, 3, 1 << 8, 1 << 16, 1 << 24, 1 << 25

# Distributions of standardized variates.
NORMAL: int = 0
STUDENT_T: int = 1
UNIFORM_NOISE: int = 2
TWO_POINT: int = 3
EXPONENTIAL: int = 4

HALVINGS = 36  # of the interval for Fuller's root: to 1e-11

# Sizes at which products and sums of inputs could leave the floating-point range; nothing measured is as large.
LARGEST = 1e50

# A variance of an error below this, a standard deviation below 1 / LARGEST, is none: `checks.covariance` takes it as 0.
LEAST_VARIANCE = 1e-100

# A smaller propensity is refused, since its weight would drown everything else, and no action that has one is drawn.
LEAST = 1e-12

# The probabilities of a stored round may be rounded: their sum may differ from 1 by this.
ROUNDED = 1e-3

# Rounds of a log that are worked on at a time: they stay in the processor's cache. Not a power of two: the rows of a table would then lie
# where a cache keeps them in the same few places, and push each other out.
CHUNK = 1016
STRETCH = 4064  # that are sorted at a time
EVEN = 32  # that vector instructions take at a time
TILE = 17 * EVEN  # whose products are taken at a time
CLASSES = 16  # into which a stretch may be sorted: in more there would be too few rounds

_MIN_PIVOT = 1e-12
# Products of two numbers of this size are finite, and with usable ones: what is larger is no solution, and no evidence.
_LARGEST_FACTOR = 1e100
# Sums of numbers of at most this size are finite.
_LARGEST_SUM = 1e300
# Of the variance of a feature: what is left of it, given others, counts as nothing below this.
SINGULAR_SPREAD = 1e-13
_U32 = np.uint64(0xFFFFFFFF)


# ---- counted randomness ------------------------------------------------------------------------------------------------


@spliced
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


@spliced
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


@spliced
def normal_quantile(u):
    """The standard normal quantile, to a few units in the 15th digit."""
    q = u - 0.5
    x = central_quantile(q)
    if abs(q) > CENTRAL:
        x = tail_quantile(q, math.sqrt(-math.log(min(u, 1.0 - u))))
    return x


CENTRAL = 0.498  # half the share of all values, those within 2.88 of 0, that one rational function serves


@spliced
def central_quantile(q):
    """For u = 1/2 + q in the middle: x = q A(r) / B(r), r = CENTRAL^2 - q^2, both of degree 14 with positive coefficients.

    The rational function with the least largest relative error, 8e-17 (`scripts/normal_quantile.py` finds it). So wide a middle, because
    a graphics processor's 32 threads in step all wait when one of them is in a tail.
    """
    r = CENTRAL * CENTRAL - q * q
    s = r * r
    even = 6.361926041597229e19 * s + 2.108422812802713e21
    even = ((even * s + 4.32038529688751e20) * s + 4.568313028261998e18) * s + 4411639363018253.0
    even = ((even * s + 497025193376.16925) * s + 6675654.111411372) * s + 5.779441243163621
    odd = 9.707056752815622e20 * s + 1.4697318922600763e21
    odd = ((odd * s + 6.138192602294497e19) * s + 1.8767747840100467e17) * s + 60782826590314.914
    odd = (odd * s + 2404242006.086179) * s + 9753.998751918556
    a = odd * r + even
    even = 1.410057384674648e20 * s + 1.2241332075610327e21
    even = ((even * s + 1.573965750976574e20) * s + 1.2655521406879736e18) * s + 1017257130734300.2
    even = ((even * s + 100780398159.64357) * s + 1234955.8624500933) * s + 1.0
    odd = 8.579390656664661e20 * s + 6.514749522932839e20
    odd = ((odd * s + 1.921101747986153e19) * s + 4.703592662406788e16) * s + 13070520687499.021
    odd = (odd * s + 463899775.0712329) * s + 1740.7103941133946
    b = odd * r + even
    return quotient(q * a, b)


@spliced
def tail_quantile(q, r):
    """For u = 1/2 + q in a tail, r^2 = -log min(u, 1 - u): the tails of algorithm AS 241 (Wichura 1988)."""
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
#
# Sums and fits are flat arrays; `part` shows one row or one matrix of them.


@spliced
def entry(i, n):
    """Where the i-th round finds its entry among n: its own, or the only one."""
    return i if n > 1 else 0


@spliced
def packed_size(p):
    return p * (p + 1) // 2


@spliced
def copy(a, b, n):
    """b = a."""
    for i in range(n):
        b[i] = a[i]


@spliced
def dot(a, b, p):
    total = 0.0
    for i in range(p):
        total += a[i] * b[i]
    return total


@spliced
def factor(a, p, work):
    """A = U' D U in place for packed A; U right of the diagonal, 1/D on it. False if A is not positive definite beyond rounding.

    `work` has room for 2p numbers: the row of the pivot, apart from the rows it changes, for the compiler to see that they differ; and the
    diagonal as it was.
    """
    pivots, diagonal = part(work, 0, p), part(work, p, p)
    at = 0
    for k in range(p):
        diagonal[k] = a[at]
        at += p - k
    at = 0
    for k in range(p):
        if not a[at] > _MIN_PIVOT * abs(diagonal[k]):
            return False
        inverse = quotient(1.0, a[at])
        a[at] = inverse
        n = p - k - 1
        u, rest = part(a, at + 1, n), at + 1 + n
        for i in range(n):
            pivots[i] = u[i]
        for i in range(n):
            ratio = pivots[i] * inverse
            below, right = part(a, rest, n - i), part(pivots, i, n - i)
            for j in range(n - i):
                below[j] -= ratio * right[j]
            u[i] = ratio
            rest += n - i
        at += p - k
    return True


@seldom
def factor_once(a, p, work):
    """`factor` as a function of its own, for where speed does not matter: spliced code takes its time to compile."""
    return factor(a, p, work)


@spliced
def solve_factored(a, p, b):
    """b = A^-1 b in place, from the factor of A. Whether it is of a usable size, and so finite, which costs nothing here."""
    row, outside = 0, 0
    for k in range(p):
        y = b[k]
        for i in range(1, p - k):
            b[k + i] -= a[row + i] * y
        row += p - k
    for k in range(p - 1, -1, -1):
        row -= p - k
        s = b[k] * a[row]
        for i in range(1, p - k):
            s -= a[row + i] * b[k + i]
        b[k] = s
        outside += not abs(s) <= _LARGEST_FACTOR
    return outside == 0


@seldom
def is_within(values, n, most):
    """Whether all of n numbers are at most so large; false where one is not finite."""
    for i in range(n):
        if not abs(values[i]) <= most:
            return False
    return True


@jit
def quadratic_form(a, p, z, work):
    """`quadratic_form_of` with the most usual dimension known to the compiler."""
    return quadratic_form_of(a, 5, z, work) if p == 5 else quadratic_form_of(a, p, z, work)


@spliced
def quadratic_form_of(a, p, z, work):
    """z' A^-1 z from the factor of A."""
    for i in range(p):
        work[i] = z[i]
    total, row = 0.0, 0
    for k in range(p):
        y = work[k]
        total += y * y * a[row]
        for i in range(1, p - k):
            work[k + i] -= a[row + i] * y
        row += p - k
    return total


@spliced
def clearly_above(a, p, trace, other_trace, share):
    """A cheap sufficient condition for A - share C to be positive definite, given the factor of A and both traces.

    lambda_min(A) >= det A ((p - 1) / tr A)^(p - 1) by the arithmetic-geometric mean, and lambda_max(C) <= tr C.
    """
    bound, diagonal = share * other_trace, 0
    for i in range(p):
        bound *= a[diagonal] * trace
        if i > 0:
            bound *= 1.0 / (p - 1)
        diagonal += p - i
    return trace > bound


@jit
def above(gram, c, ridge, share, p, aside):
    """Whether A - share C is positive definite: the exact and slower form of `clearly_above`."""
    size = packed_size(p)
    trial = part(aside, 0, size)
    write_corrected(gram, c, 1.0 + share, ridge, p, trial)
    return factor_once(trial, p, part(aside, size, 2 * p))


@seldom
def fuller_kappa(gram, target, reward_sq, error, n, p, work):
    """How much of the error covariance may be taken out: Fuller's modified estimator for an indefinite corrected Gram.

    lambda is the smallest root of det(G - c c'/s - lambda E) = 0, found by bisection on whether that matrix is positive
    definite (which needs no inverse of E, so E may be singular). With alpha = p + 1,
    kappa = 1 - alpha / n if lambda > 1 + 1/n, else lambda - (1 + alpha) / n. G includes the ridge.
    """
    size = packed_size(p)
    trial, rest = part(work, 0, size), part(work, size, 2 * p)
    low, high = 0.0, 1.0 + 1.0 / n
    shrink = 1.0 / reward_sq if reward_sq > 0.0 else 0.0
    root = high
    for step in range(HALVINGS + 1):
        k = 0
        for i in range(p):
            for j in range(i, p):
                trial[k] = gram[k] - shrink * target[i] * target[j] - root * error[k]
                k += 1
        if factor_once(trial, p, rest):
            if step == 0:
                return 1.0 - (p + 1.0) / n
            low = root
        else:
            high = root
        root = 0.5 * (low + high)
    return low - (p + 2.0) / n


@spliced
def solve_arm(arm, ridge, correction, guard, keeps, sums, fit, p, n_actions, work, aside):
    """Fit one arm from the running sums: theta, how it was found, and, where a rule asks for it (`keeps`), the factor it came from.

    (eq. proposed-estimator) A = sum w zz' + ridge I - C,  theta = A^-1 sum w z r, with C by `correction`: nothing; the covariances of the
    rounds in which the arm was played (the naive estimator); pi^nd(a) Sigma_e over all rounds in which it could have been (the paper's).
    If A is not safely positive definite (A - C/n, n the effective number of rounds), Fuller's guard decides what is taken out.
    The right-hand side is found where theta will stand, see `write_target`. What is seldom done is done on copies in `aside`: only what
    is never handed to a function of its own can stay in a graphics processor's registers.
    """
    report = UNSOLVED
    if correction == NO_CORRECTION or guard == GUARD_AUTO:
        report = solve_plainly(arm, ridge, correction, keeps, sums, fit, p, n_actions, work, aside)
    finish_arm(report, arm, ridge, correction, guard, sums, fit, p, n_actions, aside)


@jit
def solve_once(arm, ridge, correction, guard, sums, fit, p, n_actions, work, aside):
    """`solve_arm` for a log, where compiling takes longer than solving."""
    report = UNSOLVED
    if correction == NO_CORRECTION or guard == GUARD_AUTO:
        report = solve_plainly_of(p, arm, ridge, correction, False, sums, fit, n_actions, work, aside)
    finish_arm(report, arm, ridge, correction, guard, sums, fit, p, n_actions, aside)


@jit
def solve_plainly(arm, ridge, correction, keeps, sums, fit, p, n_actions, work, aside):
    """`solve_plainly_of` with the paper's dimensions known to the compiler, which then unrolls the loops: half the time."""
    if p == 5:
        return solve_plainly_of(5, arm, ridge, correction, keeps, sums, fit, n_actions, work, aside)
    if p == 7:
        return solve_plainly_of(7, arm, ridge, correction, keeps, sums, fit, n_actions, work, aside)
    return solve_plainly_of(p, arm, ridge, correction, keeps, sums, fit, n_actions, work, aside)


@spliced
def solve_plainly_of(p, arm, ridge, correction, keeps, sums, fit, n_actions, work, aside):
    """Solve the formula as it stands if its matrix is safely positive definite, the usual case. Returns the report, `UNSOLVED` if not."""
    size = packed_size(p)
    row, theta = arm * row_width(p), part(fit, arm * fit_width(p), p)
    gram, c, a, rest = part(sums, row + TERMS + p, size), part(work, 0, size), part(work, size, size), part(work, 2 * size, 2 * p)
    take_out(arm, correction, sums, p, n_actions, c)
    trace, other_trace = write_corrected(gram, c, 1.0, ridge, p, a)
    if not factor(a, p, rest):
        return UNSOLVED
    if other_trace > 0.0:
        share = quotient(sums[row + WEIGHT_SQ], sums[row + WEIGHT] * sums[row + WEIGHT])
        if not clearly_above(a, p, trace, other_trace, share) and not above(gram, c, ridge, share, p, aside):
            return UNSOLVED
    usable = solve_factored(a, p, theta)
    if keeps:
        copy(a, part(fit, arm * fit_width(p) + p, size), size)
    return SOLVED if usable else SINGULAR


@spliced
def finish_arm(report, arm, ridge, correction, guard, sums, fit, p, n_actions, aside):
    """Note that an arm was solved, or see to it carefully."""
    at = arm * fit_width(p) + p + packed_size(p)
    if report == SOLVED:
        fit[at + REPORT] = SOLVED
        fit[at + KAPPA] = 0.0 if correction == NO_CORRECTION else 1.0
    else:
        solve_aside(report, arm, ridge, correction, guard, sums, fit, p, n_actions, aside)
    fit[at + STALE] = 0.0


@jit
def solve_aside(report, arm, ridge, correction, guard, sums, fit, p, n_actions, aside):
    """`solve_aside_of` with the most usual dimension known to the compiler."""
    if p == 5:
        solve_aside_of(5, report, arm, ridge, correction, guard, sums, fit, n_actions, aside)
    else:
        solve_aside_of(p, report, arm, ridge, correction, guard, sums, fit, n_actions, aside)


@spliced
def solve_aside_of(p, report, arm, ridge, correction, guard, sums, fit, n_actions, aside):
    """Copy what is needed, solve carefully, and copy back what was found. A theta of no usable size, found here or before, is none."""
    size, row, at = packed_size(p), arm * row_width(p), arm * fit_width(p)
    theta, kept, target, found = part(fit, at, p), part(fit, at + p, size), part(aside, 4 * size, p), part(aside, 3 * size, size)
    kappa = 0.0 if correction == NO_CORRECTION else 1.0
    if report == UNSOLVED:
        reward_sq = sums[row + TERMS + p + 2 * size + 1]
        n = sums[row + WEIGHT] * sums[row + WEIGHT] / sums[row + WEIGHT_SQ] if sums[row + WEIGHT_SQ] > 0.0 else 1.0
        n = max(n, 1.0 / LARGEST)  # weights that have faded
        copy(part(sums, row + TERMS + p, size), part(aside, 0, size), size)
        copy(part(sums, row + TERMS + p + size, size), part(aside, size, size), size)
        take_out(arm, correction, sums, p, n_actions, part(aside, 2 * size, size))
        copy(theta, target, p)
        report, kappa = solve_carefully(ridge, correction, guard, n, reward_sq, p, aside)
        copy(found, kept, size)
        copy(target, theta, p)
        if not is_within(theta, p, _LARGEST_FACTOR):
            report = SINGULAR
    if report == SINGULAR:
        for k in range(p + size):
            fit[at + k] = 0.0
    fit[at + p + size + REPORT], fit[at + p + size + KAPPA] = report, kappa


@seldom
def solve_carefully(ridge, correction, guard, n, reward_sq, p, aside):
    """The other cases: Fuller's guard, or the bare formula on demand, whatever its matrix. Returns the report, and kappa.

    `aside` holds the Gram matrix, the error covariance of the rounds played, C, the factor of A to be written, and the right-hand side,
    in whose place theta is written.
    """
    size = packed_size(p)
    gram, played, c, a = part(aside, 0, size), part(aside, size, size), part(aside, 2 * size, size), part(aside, 3 * size, size)
    theta, rest = part(aside, 4 * size, p), part(aside, 4 * size + p, aside.size - 4 * size - p)
    report, kappa = SOLVED, 0.0 if correction == NO_CORRECTION else 1.0
    if guard != GUARD_NEVER and correction != NO_CORRECTION:
        report = GUARDED
        write_corrected(gram, played, 0.0, ridge, p, a)
        kappa = fuller_kappa(a, theta, reward_sq, played, n, p, rest)
        write_corrected(gram, played, kappa, ridge, p, a)
    else:
        write_corrected(gram, c, 1.0, ridge, p, a)
    if factor_once(a, p, rest):
        solve_factored(a, p, theta)
        return report, kappa
    for k in range(size):
        a[k] = 0.0
    if guard == GUARD_NEVER:
        return solve_indefinite(gram, c, ridge, p, theta, rest), kappa
    for k in range(p):
        theta[k] = 0.0
    return SINGULAR, kappa


@spliced
def take_out(arm, correction, sums, p, n_actions, c):
    """C, the error covariance to be taken out for an arm."""
    size = packed_size(p)
    width, error = row_width(p), TERMS + p + size
    played = part(sums, arm * width + error, size)
    offered, alike = part(sums, (n_actions + arm) * width + error, size), part(sums, 2 * n_actions * width + error, size)
    trace, at = 0.0, 0
    if correction == OFFERED:
        for i in range(p):
            trace += offered[at]
            at += p - i
    for k in range(size):
        c[k] = 0.0
        if correction == PLAYED:
            c[k] = played[k]
        elif correction == OFFERED:
            c[k] = alike[k]
    if trace > 0.0:  # seldom: rounds that did not count alike for every arm
        for k in range(size):
            c[k] = offered[k] + alike[k]


@spliced
def write_corrected(gram, c, share, ridge, p, out):
    """out = G + ridge I - share C, packed; returns the traces of that and of C."""
    for k in range(packed_size(p)):
        out[k] = gram[k] - share * c[k]
    trace, other_trace, k = 0.0, 0.0, 0
    for i in range(p):
        out[k] += ridge
        trace += out[k]
        other_trace += c[k]
        k += p - i
    return trace, other_trace


@seldom
def solve_indefinite(gram, c, ridge, p, theta, work):
    """The bare formula where its matrix is indefinite (guard="never"): elimination with partial pivoting."""
    wide = p + 1
    k = 0
    for i in range(p):
        for j in range(i, p):
            value = gram[k] - c[k] + (ridge if i == j else 0.0)
            work[i * wide + j] = value
            work[j * wide + i] = value
            k += 1
        work[i * wide + p] = theta[i]
    for j in range(p):
        top = j
        for i in range(j + 1, p):
            if abs(work[i * wide + j]) > abs(work[top * wide + j]):
                top = i
        if not abs(work[top * wide + j]) > 0.0:
            return SINGULAR
        for k in range(wide):
            work[j * wide + k], work[top * wide + k] = work[top * wide + k], work[j * wide + k]
        for i in range(j + 1, p):
            ratio = work[i * wide + j] / work[j * wide + j]
            for k in range(j, wide):
                work[i * wide + k] -= ratio * work[j * wide + k]
    for i in range(p - 1, -1, -1):
        s = work[i * wide + p]
        for k in range(i + 1, p):
            s -= work[i * wide + k] * theta[k]
        theta[i] = s / work[i * wide + i]
    return SOLVED


# ---- running sums ------------------------------------------------------------------------------------------------------


@spliced
def row_width(p):
    """The length of a row of running sums for p features."""
    return TERMS + 2 * p + 2 * packed_size(p) + 2


@spliced
def fit_width(p):
    """The length of a row of a fit for p features."""
    return p + packed_size(p) + REPORT_COLUMNS


@jit
def pack_errors(error_cov, intercept):
    """Error covariances (C, d, d) as packed rows (C, size)."""
    packed = np.empty((error_cov.shape[0], packed_size(error_cov.shape[1] + intercept)))
    for c in range(error_cov.shape[0]):
        write_packed(error_cov[c], intercept, packed[c])
    return packed


@spliced
def write_packed(error_cov, intercept, out):
    """An error covariance, packed; zero for the intercept."""
    d, k = error_cov.shape[0], 0
    if intercept:
        for k in range(d + 1):
            out[k] = 0.0
        k = d + 1
    for i in range(d):
        for j in range(i, d):
            out[k] = error_cov[i, j]
            k += 1


@spliced
def add_round(s, p, w, z, error, reward):
    """One round seen with weight w, into the row s of sums; `error` is its error covariance, packed."""
    gram, cross = TERMS + p, TERMS + p + 2 * packed_size(p) + 2
    s[COUNT] += 1.0
    s[WEIGHT] += w
    s[WEIGHT_SQ] += w * w
    s[cross - 2] += w * reward
    s[cross - 1] += w * reward * reward
    add_error(s, p, w, error)
    for i in range(p):
        v = w * z[i]
        s[TERMS + i] += v
        s[cross + i] += v * reward
        for j in range(p - i):
            s[gram + j] += v * z[i + j]
        gram += p - i


@spliced
def add_error(s, p, w, error):
    """The error covariance alone, with weight w."""
    size = packed_size(p)
    for k in range(size):
        s[TERMS + p + size + k] += w * error[k]


@jit
def learn_sums(spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight):
    """`learn_sums_of` with the most usual dimension known to the compiler."""
    if z.size == 5:
        learn_sums_of(5, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight)
    else:
        learn_sums_of(z.size, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight)


@spliced
def learn_sums_of(p, spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight):
    """Take one round into the running sums; `stabilizer` is pi^nd, `weight` the round's own.

    Row a < K holds the rounds in which a was played, weighted 1 or pi^nd(a) / pi(a). Under the paper's correction row K + a
    holds the error covariance of the rounds in which a was allowed, weighted pi^nd(a); row 2K that of the rounds that count alike
    for every arm (all allowed, pi^nd the same for all), so that the usual round costs one addition and not K.
    """
    n_actions, width = spec[N_ACTIONS], row_width(p)
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            w = weight if spec[WEIGHTING] == UNIT else quotient(weight * stabilizer[b], propensity)
            add_round(part(sums, b * width, width), p, w, z, error, reward)
    if spec[CORRECTION] != OFFERED:
        return
    alike = True
    for b in range(n_actions):
        if not allowed[b] or stabilizer[b] < stabilizer[0] or stabilizer[b] > stabilizer[0]:
            alike = False
    if alike:
        add_error(part(sums, 2 * n_actions * width, width), p, weight * stabilizer[0], error)
        return
    for b in range(n_actions):
        if allowed[b]:
            add_error(part(sums, (n_actions + b) * width, width), p, weight * stabilizer[b], error)


@jit
def learn_pseudo(spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known):
    """`learn_pseudo_of` with the most usual dimension known to the compiler."""
    if z.size == 5:
        learn_pseudo_of(5, spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known)
    else:
        learn_pseudo_of(z.size, spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known)


@spliced
def learn_pseudo_of(p, spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known):
    """Take one round into the sums of both fits, and into the evidence on which of them earns more.

    Row a < K: regression calibration, r on the calibrated context x^ where a was played. Row K + a: every round in which a was allowed,
    x~ with u r, u = 1{a_t = a} / pi(a); and row 2K + 3 + a the matrix D_a = sum c (1 - u) x~ x^'. With f_a = <theta_a, x^> by the first
    fit, sum c x~ y_a = sum c u x~ r + D_a theta_a has the doubly robust pseudo-outcomes y_a = f_a + u (r - f_a). E[y_a | x, x~] =
    <theta_a, x> whatever f_a is, so (sum c (x~x~' - S))^-1 sum c x~ y_a is unbiased.
    Where the fits would act differently, the difference of the pseudo-outcomes of their actions is what the robust one earns more.
    Early rounds, calibrated with a poor Sx, count less in the first fit: n / (n + 40 p (1 - known)), `known` the reliability of x~; and
    so do those that leave more of the reward unexplained, see `relative_precision`. A round without error says nothing on which fit is
    right, and counts in full.
    """
    n_actions = spec[N_ACTIONS]
    width, place = row_width(p), fit_width(p)
    top, robust_top = -np.inf, -np.inf
    chosen, robust = 0.0, 0.0
    first, second = -1, -1
    for b in range(n_actions):
        if allowed[b]:
            f = dot(part(fit, b * place, p), seen, p)
            g = dot(part(fit, (n_actions + b) * place, p), z, p)
            u = 1.0 / propensity if b == action else 0.0
            add_round(part(sums, (n_actions + b) * width, width), p, weight, z, error, u * reward)
            matrix = part(sums, (2 * n_actions + 3 + b) * width, p * p)
            for i in range(p):
                v = weight * (1.0 - u) * z[i]
                for j in range(p):
                    matrix[i * p + j] += v * seen[j]
            y = f + u * (reward - f)
            if f > top:
                top, chosen, first = f, y, b
            if g > robust_top:
                robust_top, robust, second = g, y, b
    n = extra[LEARNED]
    if first != second and known < 1.0 and abs(robust - chosen) <= _LARGEST_FACTOR:
        extra[EVIDENCE] = EVIDENCE_KEPT * extra[EVIDENCE] + robust - chosen
        extra[EVIDENCE_SQ] = EVIDENCE_KEPT**2 * extra[EVIDENCE_SQ] + (robust - chosen) ** 2
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            settled = n / (n + SETTLING * p * (1.0 - known))
            add_round(part(sums, b * width, width), p, settled * relative_precision(spec, fit, p, known), seen, error, reward)


@spliced
def write_target(a, spec, sums, fit, p):
    """What the fit of row a is solved for, sum w z y, where its theta will stand. The doubly robust one adds D theta of the first fit."""
    n_actions, width = spec[N_ACTIONS], row_width(p)
    target, cross = part(fit, a * fit_width(p), p), part(sums, a * width + TERMS + p + 2 * packed_size(p) + 2, p)
    for i in range(p):
        target[i] = cross[i]
    if spec[WEIGHTING] == PSEUDO and a >= n_actions:
        matrix, first = part(sums, (n_actions + 3 + a) * width, p * p), part(fit, (a - n_actions) * fit_width(p), p)
        for i in range(p):
            for j in range(p):
                target[i] += matrix[i * p + j] * first[j]


# ---- logs --------------------------------------------------------------------------------------------------------------
#
# A log is `mebandit.moments.Rounds`; its stabilizer, errors (packed) and allowed hold one entry for all rounds, or one for each. Its
# predictions are x[i, t], feature by feature, so that loops over rounds run through memory in order.


@jit
def mark_faults(predicted, actions, rewards, propensities, errors, n_actions, faulty):
    """Mark the rounds of a stored log that break a rule, and count them.

    `propensities` has one column, for the action taken, or one for each action; `errors` none, one variance for each feature, or the
    rows of the lower triangle of a covariance. NaN breaks every comparison.
    """
    d, n = predicted.shape
    s, work = np.empty((d, d)), np.empty(packed_size(d) + 2 * d)
    mark_outside(faulty, rewards, -LARGEST, LARGEST)
    mark_outside(faulty, actions, 0.0, n_actions - 1.0)
    mark_broken(faulty, actions)
    for i in range(d):
        mark_outside(faulty, predicted[i], -LARGEST, LARGEST)
    if propensities.shape[1] == 1:
        mark_outside(faulty, propensities.reshape(n), LEAST, 1.0)
    else:
        for t in range(n):
            faulty[t] = faulty[t] or not is_distribution(propensities[t], int(actions[t]))
    if errors.shape[1] == d:
        for i in range(d):
            mark_outside(faulty, errors[:, i], 0.0, LARGEST)
    elif errors.shape[1] > d:
        for t in range(n):
            j = 0
            for i in range(d):
                for c in range(i + 1):
                    s[i, c] = errors[t, j]
                    s[c, i] = errors[t, j]
                    j += 1
            faulty[t] = faulty[t] or not is_covariance(s, work)
    count = 0
    for t in range(n):
        count += faulty[t]
    return count


@jit
def mark_outside(faulty, values, least, most):
    """Mark values outside [least, most], and NaN; without a branch, so that the compiler can use vector instructions."""
    for t in range(values.size):
        faulty[t] |= not (least <= values[t]) & (values[t] <= most)


@jit
def mark_broken(faulty, values):
    """Mark what is no whole number."""
    for t in range(values.size):
        faulty[t] |= values[t] != math.floor(values[t])


@jit
def is_distribution(propensities, a):
    """Whether these are probabilities that sum to 1, with one for the action that was taken."""
    total, good = 0.0, propensities[a] >= LEAST
    for propensity in propensities:
        total += propensity
        good = good and propensity >= 0.0
    return good and abs(total - 1.0) <= ROUNDED


@jit
def add_products(products, squares, errors, varying, log):
    """Take rounds into the crossproducts of a log, see `mebandit.moments.Crossproducts`; error covariances only if `varying`.

    Where all actions were always allowed and pi^nd is one constant, what was offered is what was played, over all actions: the caller
    adds that up. Rounds are sorted by action, a chunk at a time.
    """
    d, n = log.predicted.shape
    n_actions = squares.shape[1]
    alike = log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1
    v, w, wu = np.ones((d + 2, CHUNK)), np.empty(CHUNK), np.empty(CHUNK)
    begin, order = np.zeros(n_actions + 1, dtype=np.int64), np.empty(CHUNK, dtype=np.uint32)
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        sort_by_class(log.actions[start : start + m], begin, order)
        for i in range(d):
            take(v[1 + i], log.predicted[i, start : start + m], order[:m])
        take(v[d + 1], log.rewards[start : start + m], order[:m])
        take(w, log.propensities[start : start + m], order[:m])
        for a in range(n_actions):
            for k in range(begin[a], begin[a + 1]):
                u = 1.0 / w[k]
                w[k] = log.stabilizer[entry(start + order[k], log.stabilizer.shape[0]), a] * u
                wu[k] = w[k] * u
            squares[0, a] += add_thrice(products, a, v, w, wu, begin[a], begin[a + 1])
        if varying or not alike:
            for t in range(start, start + m):
                add_offered(products, squares, errors, varying, alike, log, t)


@jit
def sort_by_class(code, begin, order):
    """The order in which the rounds of one class, an action for example, follow those of another, and where each class begins in it."""
    n = 0
    for c in range(begin.size - 1):
        begin[c] = n
        own = 0
        for k in range(code.size):
            own += code[k] == c
        n += own
    begin[begin.size - 1] = n
    place = begin.copy()
    for k in range(code.size):
        c = code[k]
        order[place[c]] = k
        place[c] += 1


@jit
def take(out, x, order):
    """What x has at some places, in their order."""
    for k in range(order.size):
        out[k] = x[order[k]]


@summing
def add_thrice(products, a, v, w, wu, first, end):
    """Sums of vv' with the weights 1, w and wu over columns first, ..., end - 1 of v; returns the sum of w^2."""
    k, squared = 0, 0.0
    w, wu = w[first:end], wu[first:end]
    for i in range(v.shape[0]):
        x = v[i, first:end]
        for j in range(i, v.shape[0]):
            y = v[j, first:end]
            one, two, three = 0.0, 0.0, 0.0
            for t in range(w.size):
                product = x[t] * y[t]
                one += product
                two += w[t] * product
                three += wu[t] * product
            products[0, a, k] += one
            products[1, a, k] += two
            products[2, a, k] += three
            k += 1
    for t in range(w.size):
        squared += w[t] * w[t]
    return squared


@spliced
def add_offered(products, squares, errors, varying, alike, log, t):
    """What a round is to the actions that it offered: its outer product, if rounds are not all alike, and its error covariance."""
    d, a = log.predicted.shape[0], log.actions[t]
    s, c, m = entry(t, log.stabilizer.shape[0]), entry(t, log.errors.shape[0]), entry(t, log.allowed.shape[0])
    w = log.stabilizer[s, a] / log.propensities[t]
    if varying:
        for k in range(errors.shape[2]):
            errors[0, a, k] += log.errors[c, k]
            errors[1, a, k] += w * log.errors[c, k]
    for b in range(squares.shape[1]):
        if log.allowed[m, b]:
            w = log.stabilizer[s, b]
            if varying:
                for k in range(errors.shape[2]):
                    errors[2, b, k] += w * log.errors[c, k]
            if not alike:
                squares[1, b] += w * w
                k = 0
                for i in range(d + 2):
                    left = 1.0 if i == 0 else log.rewards[t] if i > d else log.predicted[i - 1, t]
                    for j in range(i, d + 2):
                        right = 1.0 if j == 0 else log.rewards[t] if j > d else log.predicted[j - 1, t]
                        products[3, b, k] += w * left * right
                        k += 1


@jit
def add_fourth_moments(sums, odds, levels, counts, begin, end, log):
    """Take rounds begin, ..., end - 1 into sums of u^m q q' by action, and of q over the odds 1/pi - 1; see `mebandit.fourth_moments`.

    A stretch at a time, rounds are sorted into classes. As long as the propensities have few different values (`levels`, as many as there
    is room for), as under a floor or in a trial, a class is an action with one of them: q q' is then summed once, u comes afterwards, and
    rounds are counted by class. After that it is an action, and all powers of u are summed. Returns the number of levels, and the first
    round that was not counted.
    """
    d, n_actions, size = log.predicted.shape[0], sums.shape[0], sums.shape[2]
    row, tail = rows_of_quartics(d + 2)
    plain, n_levels, alone = np.zeros((counts.size, size, size)), 0, end
    q, w, found, code = np.empty((size, TILE)), np.empty((4, TILE)), np.empty((3, 3)), np.empty(STRETCH, dtype=np.int64)
    first, order = np.zeros(max(counts.size, n_actions) + 1, dtype=np.int64), np.empty(STRETCH, dtype=np.uint32)
    for start in range(begin, end, STRETCH):
        stop = min(start + STRETCH, end)
        if alone == end:
            n_levels = find_levels(levels, n_levels, log.propensities[start:stop])
            alone = end if n_levels <= levels.size else start
        known = n_levels if alone == end else 0
        n_classes = n_actions * max(known, 1)
        write_classes(code[: stop - start], log.actions[start:stop], n_actions, log.propensities[start:stop], levels[:known])
        sort_by_class(code[: stop - start], first[: n_classes + 1], order)
        for c in range(n_classes):
            for k in range(first[c], first[c + 1], TILE):
                own = order[k : min(k + TILE, first[c + 1])]
                even = (own.size + EVEN - 1) // EVEN * EVEN
                for i in range(d):  # q begins with v
                    take(q[1 + i], log.predicted[i, start:stop], own)
                take(q[d + 1], log.rewards[start:stop], own)
                fill_up(q, d + 2, own.size, even)
                if known > 0:
                    write_products(plain[c, 0], q, d + 2, even)
                    add_quartics(plain[c], q, row[1:], tail[1:], even, found)
                else:
                    write_products(sums[c, 0, 0], q, d + 2, even)
                    take(w[2], log.propensities[start:stop], own)
                    write_weights(w, own.size, even)
                    add_quartics_by_power(sums[c], odds[c], q, row, tail, w, even, found)
    n_levels = min(n_levels, levels.size)
    for c in range(n_levels * n_actions):
        a, propensity = c % n_actions, levels[c // n_actions]
        counts[c // n_actions, a] = plain[c, 0, 0]
        add_powers_of(sums[a], plain[c], 1.0 / propensity)
        for j in range(size):
            odds[a, j] += spread_of(1.0 - propensity) * plain[c, 0, j]
    return n_levels, alone


@jit
def find_levels(levels, n, propensities):
    """How many different values there are among the first n levels and some propensities, which are put down after these; one more than
    there is room for if they are too many."""
    known = 0
    for i in range(n):
        for propensity in propensities:
            known += propensity == levels[i]
    if known == propensities.size:
        return n
    for propensity in propensities:
        new = True
        for i in range(n):
            new = new and propensity != levels[i]
        if new:
            if n == levels.size:
                return n + 1
            levels[n] = propensity
            n += 1
    return n


@jit
def write_classes(code, actions, n_actions, propensities, levels):
    """Numbers for pairs of a propensity and an action; where there are no levels, for actions."""
    for k in range(code.size):
        code[k] = actions[k]
    for i in range(1, levels.size):
        for k in range(code.size):
            code[k] += n_actions * i * (propensities[k] == levels[i])


@jit
def fill_up(q, width, m, even):
    """The 1 that v begins with, and zeros from round m on."""
    for k in range(even):
        q[0, k] = 1.0 if k < m else 0.0
    for i in range(1, width):
        for k in range(m, even):
            q[i, k] = 0.0


@jit
def write_weights(w, m, even):
    """From propensities pi in the third row of w: u = 1/pi in the second, 1/(1/pi - 1) in the first; zeros from round m on."""
    for k in range(m):
        w[1, k] = 1.0 / w[2, k]
        w[0, k] = spread_of(1.0 - w[2, k])
    for k in range(m, even):
        w[0, k], w[1, k] = 0.0, 0.0


@jit
def write_products(totals, q, width, m):
    """The products of two of v, but for those with 1: v itself, in the first rows of q; and the sums of them all."""
    k = width
    for a in range(width):
        totals[a] += total(item(q, a), m)
    for a in range(1, width):
        for b in range(a, width):
            totals[k] += write_product(item(q, k), item(q, a), item(q, b), m)
            k += 1


@summing
def total(x, m):
    """The sum of m numbers."""
    found = 0.0
    for k in range(m):
        found += x[k]
    return found


@summing
def write_product(out, x, y, m):
    """out = x y over m rounds, and its sum."""
    found = 0.0
    for k in range(m):
        product = x[k] * y[k]
        out[k] = product
        found += product
    return found


@jit
def rows_of_quartics(width):
    """Every product of four is summed once: v_a v_b times v_c v_e with a <= b <= c <= e, and r at most twice, so b is not r. Which rows of
    q have the v_a v_b, and from which row on q has the v_c v_e for each; in the order of b."""
    row, tail = np.empty(width * (width - 1) // 2, dtype=np.int64), np.empty(width * (width - 1) // 2, dtype=np.int64)
    k = 0
    for b in range(width - 1):
        for a in range(b + 1):
            row[k], tail[k] = packed_place(a, b, width), packed_place(b, b, width)
            k += 1
    return row, tail


@jit
def add_quartics(sums, q, row, tail, m, found):
    """Sums of q q' over m rounds, for some rows of q. What is loaded is used three times; beyond an end the last row is taken again."""
    n, size = row.size, q.shape[0]
    for i in range(0, n, 3):
        one, two, three = item(q, row[i]), item(q, row[min(i + 1, n - 1)]), item(q, row[min(i + 2, n - 1)])
        for j in range(tail[i], size, 3):
            sum_products(found, one, two, three, q, j, m)
            for x in range(min(3, n - i)):
                for y in range(max(tail[i + x] - j, 0), min(3, size - j)):
                    sums[row[i + x], j + y] += found[x, y]


@jit
def add_quartics_by_power(sums, odds, q, row, tail, w, m, found):
    """Sums of u^k q q', k = 0, 1, 2; those of 1 q with k = 0 are known, and in their place come those with the first row of w."""
    size, first, u, two, three = q.shape[0], item(w, 0), item(w, 1), item(w, 2), item(w, 3)
    for i in range(row.size):
        one = item(q, row[i])
        for t in range(m):
            two[t] = one[t] * u[t]
            three[t] = two[t] * u[t]
        for j in range(tail[i], size, 3):
            sum_products(found, one if i > 0 else first, two, three, q, j, m)
            for y in range(min(3, size - j)):
                if i > 0:
                    sums[0, row[i], j + y] += found[0, y]
                else:
                    odds[j + y] += found[0, y]
                sums[1, row[i], j + y] += found[1, y]
                sums[2, row[i], j + y] += found[2, y]


@jit
def add_powers_of(sums, plain, u):
    """sums[m] += u^m plain, m = 0, 1, 2."""
    for i in range(plain.shape[0]):
        for j in range(plain.shape[1]):
            sums[0, i, j] += plain[i, j]
            sums[1, i, j] += u * plain[i, j]
            sums[2, i, j] += u * u * plain[i, j]


@spliced
def packed_place(i, j, width):
    """Where a packed upper triangle has its element i, j, i <= j."""
    return i * width - (i * (i - 1)) // 2 + j - i


@summing
def sum_products(found, a, b, c, q, j, m):
    """The products of three rows with rows j, j + 1 and j + 2 of q, over m rounds."""
    last = q.shape[0] - 1
    x, y, z = item(q, j), item(q, min(j + 1, last)), item(q, min(j + 2, last))
    ax, ay, az, bx, by, bz, cx, cy, cz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(m):
        ax += a[k] * x[k]
        ay += a[k] * y[k]
        az += a[k] * z[k]
        bx += b[k] * x[k]
        by += b[k] * y[k]
        bz += b[k] * z[k]
        cx += c[k] * x[k]
        cy += c[k] * y[k]
        cz += c[k] * z[k]
    found[0, 0], found[0, 1], found[0, 2] = ax, ay, az
    found[1, 0], found[1, 1], found[1, 2] = bx, by, bz
    found[2, 0], found[2, 1], found[2, 2] = cx, cy, cz


@jit
def add_scores(meat, totals, unit, scoring, seen, log):
    """Sums of psi psi' over the rounds of a log by method, or of psi by unit if there are any; see `mebandit.estimators.Scoring`.

    psi = w x (x'theta - y) - s Sigma_e theta by action, w and y by the method's weighting; s = kappa w, or pi^nd(a) where the paper's
    formula was solved as it stands (`plain`). x is x~, or x^ where the method regresses on that: by one map for all rounds or, if there is
    no such map, from `seen`. A lever then says what an error in mean and S_x, which x^ was computed with, does to the estimate.
    """
    n_methods, n_actions, p = scoring.theta.shape
    d, n = log.predicted.shape
    psi, work, near = np.empty((n_actions * p, CHUNK)), np.empty((3, CHUNK)), np.empty((d, CHUNK))
    moves = np.empty((scoring.lever.slope.shape[1], CHUNK))
    taken = np.zeros((n_actions, d))
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        for g in range(n_methods):
            x, at, levered = log.predicted, start, scoring.calibrated[g] and scoring.lever.slope.shape[0] > 0
            if scoring.calibrated[g]:
                x, at = (near, 0) if scoring.to_calibrated.shape[0] > 0 else (seen, start)
                for i in range(scoring.to_calibrated.shape[0]):
                    write_fitted(near[i, :m], scoring.to_calibrated, i, 1, log.predicted, start)
            for b in range(n_actions):
                write_scores(psi, start, m, b, g, scoring, x, at, log, work, taken)
            if levered:
                add_calibration(psi, start, m, scoring.lever, log, moves)
            if totals.shape[1] == 0:
                add_outer(meat[g], psi, m, p, scoring.weighting[g] == UNIT and not levered)
            else:
                for k in range(m):
                    for i in range(n_actions * p):
                        totals[g, unit[start + k], i] += psi[i, k]


@jit
def add_calibration(psi, start, m, lever, log, moves):
    """What the uncertainty of the calibration adds to psi: the lever times y = x~ - mean and the packed yy' - Sigma_e - S_x."""
    d, k = lever.center.size, lever.center.size
    for i in range(d):
        write_away(moves[i, :m], log.predicted[i, start : start + m], lever.center[i])
    for i in range(d):
        for j in range(i, d):
            write_spread(moves[k, :m], moves[i, :m], moves[j, :m], lever.spread[k - d], log.errors[:, k - d], start)
            k += 1
    for i in range(0, psi.shape[0], 2):
        j = min(i + 1, psi.shape[0] - 1)
        add_linear_twice(psi[i, :m], psi[j, :m], lever.slope[i], lever.slope[j] if j > i else np.zeros(k), moves)


@jit
def write_away(out, x, mean):
    """out = x - mean."""
    for k in range(out.size):
        out[k] = x[k] - mean


@summing
def add_linear_twice(out, other, slope, second, x):
    """out += slope'x and other += second'x: two for the price of reading x once. Five of its rows at a time, as in `write_linear`."""
    single = slope.size % 5
    for i in range(single):
        x0, a0, b0 = x[i], slope[i], second[i]
        for k in range(out.size):
            out[k] += a0 * x0[k]
            other[k] += b0 * x0[k]
    for i in range(single, slope.size, 5):
        x0, x1, x2, x3, x4 = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4]
        a0, a1, a2, a3, a4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        b0, b1, b2, b3, b4 = second[i], second[i + 1], second[i + 2], second[i + 3], second[i + 4]
        for k in range(out.size):
            out[k] += a0 * x0[k] + a1 * x1[k] + a2 * x2[k] + a3 * x3[k] + a4 * x4[k]
            other[k] += b0 * x0[k] + b1 * x1[k] + b2 * x2[k] + b3 * x3[k] + b4 * x4[k]


@jit
def write_spread(out, x, y, expected, errors, start):
    """x y - expected - error, the error one for all rounds or one for each."""
    if errors.size == 1:
        for k in range(out.size):
            out[k] = x[k] * y[k] - (expected + errors[0])
    else:
        for k in range(out.size):
            out[k] = x[k] * y[k] - expected - errors[start + k]


@jit
def write_scores(psi, start, m, b, g, scoring, x, at, log, work, taken):
    """psi of method g for action b and the m rounds from `start` on, which x has from `at` on."""
    theta, weighting, kappa, plain = scoring.theta[g], scoring.weighting[g], scoring.kappa[g, b], scoring.plain[g, b]
    p, d = theta.shape[1], x.shape[0]
    intercept = p - d
    away, taking, guess = work[0, :m], work[1, :m], work[2, :m]
    if weighting == PSEUDO:
        write_fitted(guess, scoring.beta, b, 1, log.predicted, start)
    write_fitted(away, theta, b, intercept, x, at)
    if log.allowed.shape[0] == 1 and log.stabilizer.shape[0] == 1:
        nd = log.stabilizer[0, b] if log.allowed[0, b] else 0.0
        weigh_alike(away, taking, guess, b, weighting, nd, kappa, plain, start, log)
    else:
        for k in range(m):
            t = start + k
            nd = 0.0
            if log.allowed[entry(t, log.allowed.shape[0]), b]:
                nd = log.stabilizer[entry(t, log.stabilizer.shape[0]), b]
            played, propensity, reward = log.actions[t] == b, log.propensities[t], log.rewards[t]
            away[k], taking[k] = weigh(away[k], guess[k], played, weighting, nd, kappa, plain, propensity, reward)
    if intercept:
        for k in range(m):
            psi[b * p, k] = away[k]
    at_b = b * p + intercept
    if log.errors.shape[0] == 1:
        times_packed(log.errors[0], theta[b, intercept:], d, taken[b])
        for i in range(d):
            write_score(psi[at_b + i, :m], away, x[i, at : at + m], taking, taken[b, i])
    else:
        for k in range(m):
            times_packed(log.errors[start + k], theta[b, intercept:], d, taken[b])
            for i in range(d):
                psi[at_b + i, k] = away[k] * x[i, at + k] - taking[k] * taken[b, i]


@jit
def write_score(out, away, x, taking, taken):
    """One row of psi, with Sigma_e theta one for all rounds."""
    for k in range(out.size):
        out[k] = away[k] * x[k] - taking[k] * taken


@spliced
def weigh(fitted, guess, played, weighting, nd, kappa, plain, propensity, reward):
    """w (x'theta - y) and s of a round for an action, see `add_scores`."""
    u = 1.0 / propensity if played else 0.0
    w = nd if weighting == PSEUDO else nd * u if weighting == INVERSE else 1.0 if played else 0.0
    y = guess + u * (reward - guess) if weighting == PSEUDO else reward
    return w * (fitted - y), nd if plain else kappa * w


@jit
def weigh_alike(away, taking, guess, b, weighting, nd, kappa, plain, start, log):
    """`weigh` over rounds that are all alike in what they offer: a loop that the compiler can turn into vector instructions."""
    actions, propensities, rewards = log.actions[start:], log.propensities[start:], log.rewards[start:]
    for k in range(away.size):
        away[k], taking[k] = weigh(away[k], guess[k], actions[k] == b, weighting, nd, kappa, plain, propensities[k], rewards[k])


@jit
def write_fitted(out, coefficients, b, intercept, x, start):
    """The linear function of row b of `coefficients`, its intercept first if there is one, at the rounds of x from `start` on."""
    write_linear(out, coefficients[b, 0] if intercept else 0.0, coefficients[b, intercept:], x, start)


@jit
def write_linear(out, level, slope, x, start):
    """out = level + slope'x at the rounds of x from `start` on; five features at a time, the most usual number."""
    for k in range(out.size):
        out[k] = level
    end, single = start + out.size, slope.size % 5
    for i in range(single):
        x0, c0 = x[i, start:end], slope[i]
        for k in range(out.size):
            out[k] += c0 * x0[k]
    for i in range(single, slope.size, 5):
        x0, x1, x2, x3, x4 = x[i, start:end], x[i + 1, start:end], x[i + 2, start:end], x[i + 3, start:end], x[i + 4, start:end]
        c0, c1, c2, c3, c4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        for k in range(out.size):
            out[k] += c0 * x0[k] + c1 * x1[k] + c2 * x2[k] + c3 * x3[k] + c4 * x4[k]


@jit
def affine(x, matrix, offset, out):
    """out = offset + matrix x for every round; for a matrix this small, faster than a library call that wakes its own threads."""
    d, n = x.shape
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        for i in range(d):
            write_linear(out[i, start:end], offset[i], matrix[i], x, start)


@jit
def calibrate_rounds(x, errors, mean, scale, context_cov, out):
    """x^ = x~ - Sigma_e (S_x + Sigma_e)^-1 (x~ - mean) for rounds that each have their own, packed, Sigma_e; S_x is in units of `scale`."""
    d = x.shape[0]
    a, h, work = np.empty(packed_size(d)), np.empty(d), np.empty(d)
    for t in range(x.shape[1]):
        factor_spread(context_cov, errors[t], scale, d, a, work)
        for i in range(d):
            h[i] = x[i, t] - mean[i]
        solve_spread(a, scale, d, h)
        times_packed(errors[t], h, d, work)
        for i in range(d):
            out[i, t] = x[i, t] - work[i]


@jit
def add_lever(sums, theta, mean, scale, context_cov, log):
    """Take rounds that each have their own Sigma_e into what a lever is made of, see `mebandit.lever` for the letters.

    Where Sigma_e grows by (E_j Sigma_e + Sigma_e E_j) / 2, all that concerns feature j by the same small part, dx^ = (G - I) dSigma_e H y.
    """
    d, p = log.predicted.shape[0], theta.shape[1]
    first = p - d
    a, h, gy, v = np.empty(packed_size(d)), np.empty(d), np.empty(d), np.ones(p)
    gain, grown, row, column = np.empty((d, d)), np.empty((d, d)), np.empty(d), np.empty(d)
    for t in range(log.actions.size):
        error, b = log.errors[t], log.actions[t]
        factor_spread(context_cov, error, scale, d, a, gy)
        for i in range(d):
            h[i] = log.predicted[i, t] - mean[i]
        solve_spread(a, scale, d, h)
        times_packed(error, h, d, gy)
        rho = -log.rewards[t] + (theta[b, 0] if first else 0.0)
        for i in range(d):
            v[first + i] = log.predicted[i, t] - gy[i]
            rho += v[first + i] * theta[b, first + i]
            write_packed_row(error, i, d, gain[i])
            solve_spread(a, scale, d, gain[i])  # a row of G = Sigma_e H
        for i in range(d):
            times_packed(error, gain[i], d, column)
            write_packed_row(error, i, d, row)
            for j in range(d):  # a row of (G - I) (diag(G y) + Sigma_e diag(H y)) / 2
                grown[i, j] = 0.5 * ((gain[i, j] - (i == j)) * gy[j] + (column[j] - row[j]) * h[j])
        add_moves(sums.by_scale[b], rho, v, theta[b], first, grown, row)
        add_moves(sums.by_mean[b], rho, v, theta[b], first, gain, row)
        for i in range(p):
            for j in range(d):
                move = v[i] * row[j] + (rho * gain[i - first, j] if i >= first else 0.0)
                for k in range(d):
                    sums.by_spread[b, i, j, k] += move * h[k]


@spliced
def add_moves(to, rho, v, theta, first, dx, along):
    """to += dpsi = rho dv + v theta'dx^ for every column of dx^, psi = v rho and v = x^, or (1, x^); `along` is left as theta'dx^."""
    d = dx.shape[0]
    for j in range(d):
        along[j] = 0.0
        for i in range(d):
            along[j] += theta[first + i] * dx[i, j]
    for i in range(v.size):
        for j in range(d):
            to[i, j] += v[i] * along[j] + (rho * dx[i - first, j] if i >= first else 0.0)


@jit
def factor_spread(context_cov, error, scale, d, a, work):
    """S_x + Sigma_e = U'DU in units of `scale`, packed in a: U right of the diagonal, 1/D on it. What is zero but for rounding counts as
    zero, and so does its 1/D: `solve_factored` then gives the solution that is zero there."""
    k = 0
    for i in range(d):
        for j in range(i, d):
            a[k] = context_cov[k] + error[k] / (scale[i] * scale[j])
            if i == j:
                work[i] = a[k]
            k += 1
    at = 0
    for k in range(d):
        n = d - k - 1
        inverse = 1.0 / a[at] if a[at] > SINGULAR_SPREAD * work[k] else 0.0
        a[at] = inverse
        rest = at + 1 + n
        for i in range(n):
            ratio = a[at + 1 + i] * inverse
            for j in range(i, n):
                a[rest] -= ratio * a[at + 1 + j]
                rest += 1
        for i in range(n):
            a[at + 1 + i] *= inverse
        at += d - k


@spliced
def solve_spread(a, scale, d, b):
    """b = (S_x + Sigma_e)^-1 b in place, from `factor_spread`."""
    for i in range(d):
        b[i] /= scale[i]
    solve_factored(a, d, b)
    for i in range(d):
        b[i] /= scale[i]


@spliced
def times_packed(packed, x, d, out):
    """out = A x for a packed A."""
    k = 0
    for i in range(d):
        out[i] = 0.0
    for i in range(d):
        for j in range(i, d):
            out[i] += packed[k] * x[j]
            if j > i:
                out[j] += packed[k] * x[i]
            k += 1


@spliced
def write_packed_row(packed, i, d, out):
    """out = row i of a packed symmetric matrix."""
    for j in range(d):
        low, high = min(i, j), max(i, j)
        out[j] = packed[packed_place(low, high, d)]


@jit
def count_probabilities(tally, actions, propensities, counts, forecast, floor):
    """How probable the actions taken were, and how probable each action was and whether it came; see
    `mebandit.analysis.diagnostics.Tally`. Every entry counts as so many rounds, one number for all or one for each.

    `forecast` has the probability of every action where that is known, else no column; of two actions, that of one says it all.
    """
    n_actions, room = tally.least.size, np.empty(CHUNK)
    count_propensities(tally, actions, propensities, counts, floor)
    for start in range(0, actions.size, CHUNK):
        stated = room[: min(CHUNK, actions.size - start)]
        for b in range(1, 2) if n_actions == 2 else range(forecast.shape[1]):
            write_stated(stated, actions, propensities, forecast, start, n_actions, b)
            count_stated(tally.forecast[b], stated, actions, counts, start, b)


@jit
def add_chance(chance, begin, end, log, forecast):
    """Sums of w zz' by action, w = 1/q - 1 the variance of 1{a = b} / q, q the probability of b, z = (1, x~), packed."""
    n_actions, room, work = chance.shape[0], np.empty(CHUNK), np.empty(CHUNK)
    for start in range(begin, end, CHUNK):
        w = room[: min(CHUNK, end - start)]
        for b in range(n_actions if n_actions == 2 else forecast.shape[1]):
            write_stated(w, log.actions, log.propensities, forecast, start, n_actions, b)
            for k in range(w.size):
                w[k] = spread_of(w[k])
            add_weighted(chance[b], w, log.predicted, start, work)


@jit
def count_propensities(tally, actions, propensities, counts, floor):
    """A histogram of the propensities of the actions taken, the smallest, and how many are below the floor."""
    histogram, least, below = tally.propensity, tally.least, 0.0
    bins = histogram.shape[1]
    for k in range(actions.size):
        a, propensity, n = actions[k], propensities[k], counts[entry(k, counts.size)]
        histogram[a, min(int(propensity * bins + 1e-6), bins - 1)] += n
        if propensity < least[a]:
            least[a] = propensity
        below += n * (propensity < floor * (1.0 - 1e-9))
    tally.below[0] += below


@jit
def write_stated(out, actions, propensities, forecast, start, n_actions, b):
    """The probability of action b in the rounds from `start` on."""
    if n_actions == 2:
        for k in range(out.size):
            out[k] = propensities[start + k] if actions[start + k] == b else 1.0 - propensities[start + k]
    else:
        for k in range(out.size):
            out[k] = forecast[start + k, b]


@jit
def count_stated(forecast, stated, actions, counts, start, b):
    """How probable action b was, and whether it came, at the level of that probability."""
    levels = forecast.shape[0]
    for k in range(stated.size):
        q, n = stated[k], counts[entry(start + k, counts.size)]
        level = min(int(q * levels + 1e-6), levels - 1)  # 0.2 and 1 - 0.8 are one level
        forecast[level, 0] += n
        forecast[level, 1] += n if actions[start + k] == b else 0.0
        forecast[level, 2] += n * q
        forecast[level, 3] += n * q * (1.0 - q)


@spliced
def spread_of(stated):
    """The variance 1/q - 1 of 1{a = b} / q, q the probability of b; 0 where b was not possible."""
    return 1.0 / stated - 1.0 if stated >= LEAST else 0.0


@summing
def add_weighted(sums, w, x, start, work):
    """Sums of w zz', z = (1, x~), packed, over the rounds from `start` on that w is for."""
    d, m, k = x.shape[0], w.size, 1 + x.shape[0]
    sums[0] += total(w, m)
    for i in range(d):
        sums[1 + i] += write_product(work, w, x[i, start : start + m], m)
        for j in range(i, d):
            found, other = 0.0, x[j, start : start + m]
            for t in range(m):
                found += work[t] * other[t]
            sums[k] += found
            k += 1


@jit
def add_predictions(tally, part, begin, end, varying, mean, log):
    """What the diagnostics sum up of the predictions in rounds begin, ..., end - 1, which are of one part of the log; error covariances
    if they are `varying`."""
    ones, work = np.ones(CHUNK), np.empty(CHUNK)
    for start in range(begin, end, CHUNK):
        stop = min(start + CHUNK, end)
        add_weighted(tally.segments[part], ones[: stop - start], log.predicted, start, work)
        for i in range(mean.size):
            add_powers(tally.powers, i, log.predicted[i, start:stop], mean[i])
        if varying:
            for t in range(start, stop):
                add_reported(tally, part, log.predicted, t, mean, log.errors)


@summing
def add_powers(powers, i, x, mean):
    """The third and the fourth power of how far x is from its mean."""
    third, fourth = 0.0, 0.0
    for k in range(x.size):
        away = x[k] - mean
        square = away * away
        third += square * away
        fourth += square * square
    powers[0, i] += third
    powers[1, i] += fourth


@jit
def count_close(close, theta, varying, log):
    """Rounds with a choice, and those where the two best actions are within 1 and 1.96 standard deviations of the error between them."""
    n_actions, error, allowed = theta.shape[0], log.errors, log.allowed
    intercept, work = theta.shape[1] - log.predicted.shape[0], np.empty((theta.shape[0], CHUNK))
    for start in range(0, log.predicted.shape[1], CHUNK):
        m = min(CHUNK, log.predicted.shape[1] - start)
        for b in range(n_actions):
            write_fitted(work[b, :m], theta, b, intercept, log.predicted, start)
        if n_actions == 2 and allowed.shape[0] == 1 and allowed[0].all() and not varying:
            count_close_pairs(close, work[0, :m], work[1, :m], gap_sd(theta, 0, 1, intercept, error, 0))
        else:
            for t in range(start, start + m):
                top, next_best = best_two(work, n_actions, t - start, allowed, entry(t, allowed.shape[0]))
                if next_best >= 0:
                    sd = gap_sd(theta, top, next_best, intercept, error, entry(t, error.shape[0]))
                    gap = work[top, t - start] - work[next_best, t - start]
                    close[0] += 1.0
                    close[1] += gap < sd
                    close[2] += gap < 1.959964 * sd


@jit
def count_close_pairs(close, first, second, sd):
    """`count_close` of two actions that are always allowed: a loop that the compiler can turn into vector instructions."""
    within, inside = 0, 0
    for k in range(first.size):
        gap = abs(first[k] - second[k])
        within += gap < sd
        inside += gap < 1.959964 * sd
    close[0] += first.size
    close[1] += within
    close[2] += inside


@spliced
def add_reported(tally, part, x, t, mean, error):
    """The error covariance of a round, for its part of the log; and of reported variances v and squared distances y from the mean the sums
    of v, v^2, y, v y, v^3, v^4 for every feature."""
    d, k = mean.size, 0
    for i in range(error.shape[1]):
        tally.segments[part, 1 + d + error.shape[1] + i] += error[t, i]
    for i in range(d):
        v, y = error[t, k], (x[i, t] - mean[i]) ** 2
        k += d - i
        tally.reported[i, 0] += v
        tally.reported[i, 1] += v * v
        tally.reported[i, 2] += y
        tally.reported[i, 3] += v * y
        tally.reported[i, 4] += v * v * v
        tally.reported[i, 5] += v * v * v * v


@spliced
def best_two(scores, n_actions, k, allowed, m):
    """The best and the second best allowed action by column k of their scores, -1 if there is none."""
    top, next_best = -1, -1
    for b in range(n_actions):
        if allowed[m, b]:
            if top < 0 or scores[b, k] > scores[top, k]:
                top, next_best = b, top
            elif next_best < 0 or scores[b, k] > scores[next_best, k]:
                next_best = b
    return top, next_best


@spliced
def gap_sd(theta, top, next_best, intercept, error, c):
    """The standard deviation of the error in the direction in which two actions differ."""
    d = theta.shape[1] - intercept
    variance, k = 0.0, 0
    for i in range(d):
        u = theta[top, intercept + i] - theta[next_best, intercept + i]
        for j in range(i, d):
            v = theta[top, intercept + j] - theta[next_best, intercept + j]
            variance += (1.0 if i == j else 2.0) * u * v * error[c, k]
            k += 1
    return math.sqrt(max(variance, 0.0))


@jit
def add_outer(meat, psi, m, p, apart):
    """Sums of psi psi' over m rounds, in the upper triangle; `apart`: no round has psi of two actions, so their products are zero.

    Two rows with two rows at a time, so that what is loaded once is used twice; a row without a pair is its own. Where rows of two actions
    make a pair, their products are computed after all, and are zero.
    """
    size = psi.shape[0]
    for i in range(0, size, 2):
        below = min(i + 1, size - 1)
        end = (below // p + 1) * p if apart else size
        for j in range(i, end, 2):
            beside = min(j + 1, end - 1)
            one, two, three, four = products_of_pairs(psi[i, :m], psi[below, :m], psi[j, :m], psi[beside, :m])
            meat[i, j] += one
            if beside > j:
                meat[i, beside] += two
            if below > i and j > i:
                meat[below, j] += three
            if below > i and beside > j:
                meat[below, beside] += four


@summing
def products_of_pairs(a, b, x, y):
    """a'x, a'y, b'x and b'y."""
    ax, ay, bx, by = 0.0, 0.0, 0.0, 0.0
    for k in range(a.size):
        ax += a[k] * x[k]
        ay += a[k] * y[k]
        bx += b[k] * x[k]
        by += b[k] * y[k]
    return ax, ay, bx, by


# ---- the calibrated context ---------------------------------------------------------------------------------------------
#
# Rows 2K + 1 and 2K + 2 of the sums describe x~ in all rounds. The first: sums of x~, x~x~' and Sigma_e. The second: sums of x~ that
# forget, for a mean that follows a drift, of the products of its one-step prediction errors, and of Sigma_e. Where a row would have its
# cross moments stand, they have sums of h = a^3 - 3 v a and of h^2, a = x~ - mean so far, cut off at 5 standard deviations, v the variance
# so far. h has the mean of a^3 and varies less (6 v^3 instead of 15 v^3 where x~ is normal): 3 v sum a is what sum a^3 owes to taking the
# mean so far for the last one. With `CURVED` the last row of all holds what the rewards say of the curve, see `learn_share`.
# Row 2K of the fit holds Sx = cov(x~) - mean Sigma_e where others have their factor; its report is 1 once there is one, its kappa 1 where
# the forgetting mean is used, its first entry the number of rounds behind it. Row 2K + 1 holds the curve: alpha for every coordinate, and
# the share of it that is used; then what rounds are weighed by, see `refit_noise`; and the fit of all arms together, see `refit_common`.


@jit
def learn_context(tuning, sums, n_actions, z, error):
    """`learn_context_of` with the most usual dimension known to the compiler."""
    if z.size == 5:
        learn_context_of(5, tuning, sums, n_actions, z, error)
    else:
        learn_context_of(z.size, tuning, sums, n_actions, z, error)


@spliced
def learn_context_of(p, tuning, sums, n_actions, z, error):
    """Take the predicted context of a round into its sums."""
    width, gram = row_width(p), TERMS + p
    first = (2 * n_actions + 1) * width
    steady, recent = part(sums, first, width), part(sums, first + width, width)
    cubes, squares = part(steady, width - p, p), part(recent, width - p, p)
    n, k = steady[COUNT], gram
    if n >= 10.0:
        share = 1.0 / n
        for i in range(p):
            mean = steady[TERMS + i] * share
            v = max(steady[k] * share - mean * mean, 0.0)
            away = z[i] - mean
            square, most = away * away, SKEWNESS_END**2 * v
            if square > most:
                away, square = math.copysign(math.sqrt(most), away), most
            cube = away * (square - 3.0 * v)
            cubes[i] += cube
            squares[i] += cube * cube
            k += p - i
    keep = 1.0 - 1.0 / tuning[MEMORY]
    m, k = recent[WEIGHT], gram
    if m > 0.0:
        recent[COUNT] += 1.0
        add_error(recent, p, 1.0, error)
        share = 1.0 / m
        for i in range(p):
            away = z[i] - recent[TERMS + i] * share
            for j in range(p - i):
                recent[k + j] += away * (z[i + j] - recent[TERMS + i + j] * share)
            k += p - i
    recent[WEIGHT] = keep * m + 1.0
    for i in range(p):
        recent[TERMS + i] = keep * recent[TERMS + i] + z[i]
    add_context(steady, p, z, error)


@spliced
def add_context(s, p, z, error):
    """Sums of x~, x~x~' and Sigma_e."""
    s[COUNT] += 1.0
    s[WEIGHT] += 1.0
    add_error(s, p, 1.0, error)
    k = TERMS + p
    for i in range(p):
        s[TERMS + i] += z[i]
        for j in range(p - i):
            s[k + j] += z[i] * z[i + j]
        k += p - i


@spliced
def calibration_is_due(spec, sums, fit, p):
    """Sx changes slowly: it is computed again once there are 2 % more rounds than last time, a number that stands where theta would."""
    steady = (2 * spec[N_ACTIONS] + 1) * row_width(p)
    n, before = sums[steady + COUNT], fit[2 * spec[N_ACTIONS] * fit_width(p)]
    return sums[steady + row_width(p) + COUNT] >= 2 * p + 2 and not 0.98 * n < before <= n


@seldom
def refit_calibration(spec, tuning, sums, fit, p, work):
    """Sx = V - D S D, V = cov(x~) about the mean in use, S = mean Sigma_e, D diagonal: as much of S as V can bear.

    D = I if that leaves Sx positive semidefinite. Else D_jj^2 = kappa min(1, V_jj / S_jj), kappa the largest share that does, so that one
    coordinate whose error is overstated does not spoil the others. Off its diagonal Sx is taken as far as it is significant: times
    1 - 2 m / (n sum r_ij^2), r_ij = (V - S)_ij / sqrt(V_ii V_jj) of m pairs, about 0 where features are independent. Then the
    coordinates learn from each other, see `pool_reliabilities`.
    The forgetting mean is used if asked for, or if it predicts better: sum_j log(V_jj / V_jj') < 0 over the coordinates that vary;
    constants have no variance and no part in this.
    """
    size = packed_size(p)
    steady = (2 * spec[N_ACTIONS] + 1) * row_width(p)
    recent = steady + row_width(p)
    at = 2 * spec[N_ACTIONS] * fit_width(p)
    n, n_recent = sums[steady + COUNT], sums[recent + COUNT]
    fit[at] = n
    share, varies = 2 * size, 2 * size + p
    k, score = 0, 0.0
    for i in range(p):
        mean = sums[steady + TERMS + i] / n
        second = sums[steady + TERMS + p + k] / n
        variance = second - mean * mean
        work[varies + i] = 1.0 if variance > 1e-10 * second and variance >= LEAST_VARIANCE else 0.0
        if work[varies + i] > 0.0:
            score += math.log(max(sums[recent + TERMS + p + k] / n_recent, 1e-300) / variance)
        k += p - i
    follows = spec[ACTS_ON] == EW_BLP or (spec[ACTS_ON] == CHOSEN_BLP and score < 0.0)
    row = recent if follows else steady
    count = sums[row + COUNT]
    k = 0
    for i in range(p):
        for j in range(i, p):
            v = sums[row + TERMS + p + k] / count
            if not follows:
                v -= (sums[row + TERMS + i] / count) * (sums[row + TERMS + j] / count)
            work[k] = v if work[varies + i] * work[varies + j] > 0.0 else 0.0
            if i == j:
                s = sums[row + TERMS + p + size + k] / count
                work[share + i] = math.sqrt(v / s) if s > v > 0.0 else 1.0 if v > 0.0 else 0.0
            k += 1
    low, high, kappa = 0.0, 1.0, 1.0
    for step in range(13):
        k = 0
        for i in range(p):
            for j in range(i, p):
                d = kappa * work[share + i] * work[share + j] if step > 0 else 1.0
                work[size + k] = work[k] - d * sums[row + TERMS + p + size + k] / count
                if i == j:
                    work[size + k] += 1e-6 * work[k]
                    if work[varies + i] == 0.0:
                        work[size + k] = 1.0
                k += 1
        if factor_once(part(work, size, size), p, part(work, 2 * size + 2 * p, 2 * p)):
            low = kappa
            if step == 0:
                break
        elif step > 0:
            high = kappa
        kappa = 0.5 * (low + high) if step > 0 else 1.0
    plainly = step == 0
    together = significant_share(part(work, 0, size), part(sums, row + TERMS + p + size, size), count, p)
    k = 0
    for i in range(p):
        for j in range(i, p):
            d = 1.0 if plainly else low * work[share + i] * work[share + j]
            fit[at + p + k] = (work[k] - d * sums[row + TERMS + p + size + k] / count) * (1.0 if i == j else together)
            k += 1
    errors, scale = part(sums, row + TERMS + p + size, size), part(work, size, p)
    pool_reliabilities(part(fit, at + p, size), part(work, 0, size), errors, count, p, scale)
    fit[at + p + size + REPORT] = 1.0
    fit[at + p + size + KAPPA] = 1.0 if follows else 0.0
    if spec[CURVED]:
        refit_curve(sums, steady, p, fit, at)
    if spec[WEIGHTING] == PSEUDO:
        if spec[PRECISION]:
            refit_noise(sums, fit, spec[N_ACTIONS], p, part(work, 0, size))
        refit_common(tuning[RIDGE], sums, fit, spec[N_ACTIONS], p, work)
    for i in range(p):
        squares = steady + 2 * row_width(p) - p + i
        sums[squares] = min(sums[squares], _LARGEST_SUM)
    found = part(fit, at + 1, 2 * fit_width(p) - 1)
    if not is_within(found, found.size, _LARGEST_SUM):
        for k in range(found.size):  # as before the first: x~ is read as it is
            found[k] = 0.0


@seldom
def significant_share(v, errors, n, p):
    """The share of the correlations of x that is not chance: 1 - 2 m / (n sum r_ij^2), at least 0; by chance n sum r_ij^2 is about m."""
    pairs, squares, k = 0, 0.0, 0
    for i in range(p):
        at_i, at_j = k, k
        for j in range(i, p):
            if j > i and v[at_i] > 0.0 and v[at_j] > 0.0:
                pairs += 1
                squares += (v[k] - errors[k] / n) ** 2 / (v[at_i] * v[at_j])
            k += 1
            at_j += p - j
    return max(1.0 - CORRELATION_DOUBT * pairs / (n * squares), 0.0) if squares > 0.0 else 0.0


@seldom
def pool_reliabilities(signal, v, errors, n, p, scale):
    """rho_i = Sx_ii / V_ii of the coordinates with error, drawn to their mean by `pooled`; correlations stay as they are.

    var(rho_i) is about 2 (S_ii / V_ii)^2 / n, an overstated S_ii taken for V_ii. Features with reliabilities of their own keep them: then
    chance does not explain the spread.
    """
    m, total, squares, noise, k = 0, 0.0, 0.0, 0.0, 0
    for i in range(p):
        scale[i] = 1.0
        if v[k] > 0.0 and errors[k] > 0.0:
            rho, lost = signal[k] / v[k], min(errors[k] / (n * v[k]), 1.0)
            m += 1
            total += rho
            squares += rho * rho
            noise += 2.0 * lost * lost / n
        k += p - i
    mean, kept = pooled(m, total, squares, noise)
    k = 0
    for i in range(p):
        if v[k] > 0.0 and errors[k] > 0.0:
            before = signal[k]
            signal[k] = mean * v[k] + kept * (before - mean * v[k])
            scale[i] = math.sqrt(max(signal[k], 0.0) / before) if before > 1e-6 * v[k] else 0.0
        k += p - i
    k = 0
    for i in range(p):
        for j in range(i, p):
            if j > i:
                signal[k] *= scale[i] * scale[j]
            k += 1


@seldom
def pooled(m, total, squares, noise):
    """Empirical Bayes for m estimates of things that may be alike, from the sums of them, of their squares and of their variances.

    Returns their mean, and the share of its distance from there that each of them keeps: 1 - variance / spread, at least 0.
    """
    if m < 2:
        return total, 1.0
    mean = total / m
    spread = (squares - m * mean * mean) / (m - 1)
    return mean, max(1.0 - noise / (m * spread), 0.0) if spread > 0.0 else 0.0


@jit
def calibrate(spec, sums, fit, z, error, out, work):
    """`calibrate_of` with the most usual dimension known to the compiler."""
    if z.size == 5:
        calibrate_of(5, spec, sums, fit, z, error, out, work)
    else:
        calibrate_of(z.size, spec, sums, fit, z, error, out, work)


@spliced
def calibrate_of(p, spec, sums, fit, z, error, out, work):
    """x^, the best linear predictor of the context: x~ - S (Sx + S)^-1 (x~ - mu), S the error covariance of the round; x~ at first.

    With `CURVED` each skewed coordinate also has a share of its `bounded_departure` h from linearity; `out` then has h after x^.
    """
    n_actions = spec[N_ACTIONS]
    size = packed_size(p)
    at = 2 * n_actions * fit_width(p)
    for i in range(p):
        out[i] = z[i]
    if spec[CURVED]:
        for i in range(p):
            out[p + i] = 0.0
    if fit[at + p + size + REPORT] == 0.0:
        return
    follows = fit[at + p + size + KAPPA] == 1.0
    steady = (2 * n_actions + 1) * row_width(p)
    row = steady + row_width(p) if follows else steady
    context, signal, curve = part(sums, row, TERMS + p), part(fit, at + p, size), part(fit, at + fit_width(p), p + 1)
    total, away, solved = part(work, 0, size), part(work, size, p), part(work, size + p, p)
    diagonal, rest = part(work, size + 2 * p, p), part(work, size + 3 * p, 2 * p)
    k, share = 0, 1.0 / context[WEIGHT]
    for i in range(p):
        away[i] = z[i] - context[TERMS + i] * share
        solved[i] = away[i]
        for j in range(p - i):
            total[k + j] = signal[k + j] + error[k + j]
        diagonal[i] = total[k]
        total[k] = total[k] * (1.0 + 1e-6) if total[k] > 0.0 else 1.0
        k += p - i
    if not factor(total, p, rest):
        return
    solve_factored(total, p, solved)
    k = 0
    for i in range(p):
        if spec[CURVED] and not follows and curve[i] != 0.0 and error[k] > 0.0:
            h = bounded_departure(away[i], curve[i], diagonal[i], error[k])
            out[p + i] = h
            out[i] += curve[p] * h
        out[i] -= error[k] * solved[i]
        for j in range(i + 1, p):
            out[i] -= error[k + j - i] * solved[j]
            out[j] -= error[k + j - i] * solved[i]
        k += p - i


@seldom
def bounded_departure(a, alpha, v, s):
    """`departure`, with a cut off at 3 standard deviations of x~, and h at 3 of the error; none for a negligible error."""
    if not s > _MIN_PIVOT * v:
        return 0.0
    far, most = CURVE_END * math.sqrt(v), CURVE_END * math.sqrt(s)
    h = departure(max(min(a, far), -far), alpha, v, s)
    return max(min(h, most), -most)


@seldom
def departure(a, alpha, v, s):
    """h(a) = s (psi(a) + a / v): how far E[x | x~] = x~ + s psi (Tweedie's formula for a normal error of variance s) is from linear.

    psi is the score, the derivative of the log density, of x~ - mu = N(0, V) + alpha (Exp - 1), V = v - alpha^2: with
    z = (a + alpha) / sqrt(V) - sqrt(V) / alpha, psi(a) = phi(z) / Phi(z) / sqrt(V) - 1 / alpha; mirrored for alpha < 0.
    """
    sign = math.copysign(1.0, alpha)
    a, alpha = sign * a, sign * alpha
    sd = math.sqrt(v - alpha * alpha)
    z = (a + alpha) / sd - sd / alpha
    psi = inverse_mills(z) / sd - 1.0 / alpha
    return sign * s * (psi + a / v)


@seldom
def inverse_mills(z):
    """phi(z) / Phi(z); by its continued fraction where both would vanish."""
    if z < -20.0:
        return -z + 1.0 / (-z + 2.0 / (-z + 3.0 / (-z + 4.0 / (-z + 5.0 / -z))))
    return 0.3989422804014327 * math.exp(-0.5 * z * z) / normal_cdf(z)


@seldom
def refit_curve(sums, steady, p, fit, at):
    """alpha_i of every coordinate: x~_i has the variance v and the third cumulant k3 of N(0, v - alpha^2) + alpha (Exp - 1).

    So alpha = (k3 / 2)^(1/3). A symmetric error adds nothing to k3; its variance is all normal, so alpha^2 is at most Sx_ii. k3 is the mean
    of h = a^3 - 3 v a, with the variance mean h^2 / n. The skewness g = k3 / v^1.5 is drawn to its mean over the coordinates by `pooled`,
    and taken as far as it is significant: times 1 - var(g) / (4 g^2); none if that is negative.
    """
    width, n = row_width(p), sums[steady + COUNT]
    cubes, squares = part(sums, steady + width - p, p), part(sums, steady + 2 * width - p, p)
    signal, curve = part(fit, at + p, packed_size(p)), part(fit, at + fit_width(p), p)
    m, total, square, noise, k = 0, 0.0, 0.0, 0.0, 0
    for i in range(p):
        v = variance_of(sums, steady, i, k, p)
        curve[i] = 0.0
        if v > 0.0 and signal[k] > 0.0:
            g = cubes[i] / (n * v * math.sqrt(v))
            m += 1
            total += g
            square += g * g
            noise += squares[i] / v / v / v / (n * n)  # one at a time: the cube of a small v may vanish
        k += p - i
    if m == 0:
        return
    mean, kept = pooled(m, total, square, noise)
    doubt = SKEWNESS_DOUBT * noise / m * (kept + (1.0 - kept) / m)
    k = 0
    for i in range(p):
        v = variance_of(sums, steady, i, k, p)
        if v > 0.0 and signal[k] > 0.0:
            g = mean + kept * (cubes[i] / (n * v * math.sqrt(v)) - mean)
            if g * g > doubt:
                k3 = (1.0 - doubt / (g * g)) * abs(g)
                alpha = min((0.5 * k3) ** (1.0 / 3.0) * math.sqrt(v), math.sqrt(signal[k]))
                if alpha * alpha > LEAST_SKEWED * v:
                    curve[i] = math.copysign(alpha, g)
        k += p - i


@spliced
def variance_of(sums, steady, i, k, p):
    """The variance of coordinate i of x~, whose square is the k-th product."""
    share = 1.0 / sums[steady + COUNT]
    mean = sums[steady + TERMS + i] * share
    return sums[steady + TERMS + p + k] * share - mean * mean


@spliced
def learn_share(spec, sums, fit, extra, seen, p, action, reward):
    """What the reward of a round says of the share lambda of the curve that is right, into the last row of the sums.

    With theta of the action taken, e = r - theta'x^ + lambda theta'h is what the linear predictor leaves, and lambda theta'h should explain
    it: sums of 1, e^2, (theta'h)^2 and theta'h e. Rounds without a departure h say nothing.
    """
    n_actions = spec[N_ACTIONS]
    if extra[LEARNED] < SHARE_FROM * p * n_actions:
        return
    e, departed = reward, 0.0
    start, end = reach(action, n_actions)
    for b in range(start, end):
        if same(b, action):
            theta = part(fit, b * fit_width(p), p)
            departed = dot(theta, part(seen, p, p), p)
            e = reward - dot(theta, seen, p) + fit[(2 * n_actions + 1) * fit_width(p) + p] * departed
    if departed != 0.0 and abs(e) <= _LARGEST_FACTOR:
        row = sums.size - row_width(p)
        sums[row + DEPARTING] += 1.0
        sums[row + LEFT_SQ] += e * e
        sums[row + DEPARTURE_SQ] += departed * departed
        sums[row + DEPARTURE_LEFT] += departed * e


@spliced
def refit_share(spec, sums, fit, p):
    """lambda = (sum theta'h e + kappa) / (sum (theta'h)^2 + kappa), cut off at 0 and 2; kappa = 4 mean e^2.

    Ridge regression about 1: the posterior mean with a prior of standard deviation 1/2.
    """
    row = sums.size - row_width(p)
    if sums[row + DEPARTING] > 0.0:
        kappa = SHARE_PRECISION * sums[row + LEFT_SQ] / sums[row + DEPARTING]
        information = sums[row + DEPARTURE_SQ] + kappa
        if 0.0 < information < np.inf:
            share = (sums[row + DEPARTURE_LEFT] + FIRST_SHARE * kappa) / information
            fit[(2 * spec[N_ACTIONS] + 1) * fit_width(p) + p] = min(max(share, 0.0), MOST_SHARE)


@seldom
def refit_noise(sums, fit, n_actions, p, mean_error):
    """nu, the variance of the rewards' own noise as a multiple of that of <theta, x>; and u, 1 - reliability of a mean round.

    What regression calibration leaves has the variance s = sigma^2 + theta' var(x | x~) theta, about (nu + u) theta' Sx theta; s itself
    adds about s K p / (n (1 - u)) to the mean of theta' Sx theta, which is taken off. nu is at least 0.2: u is not known exactly either.
    Both are 0, and all rounds count alike, while noise could explain all of theta. They stand after the share of the curve.
    """
    size, width, place = packed_size(p), row_width(p), fit_width(p)
    at = 2 * n_actions * place
    signal = part(fit, at + p, size)
    weight, left, explained = 0.0, 0.0, 0.0
    for k in range(size):
        mean_error[k] = 0.0
    for a in range(n_actions):
        row, theta = part(sums, a * width, width), part(fit, a * place, p)
        weight += row[WEIGHT]
        left += row[TERMS + p + 2 * size + 1]
        k = 0
        for i in range(p):
            left -= 2.0 * theta[i] * row[TERMS + p + 2 * size + 2 + i]
            for j in range(i, p):
                both = theta[i] * theta[j] * (1.0 if i == j else 2.0)
                left += both * row[TERMS + p + k]
                explained += row[WEIGHT] * both * signal[k]
                mean_error[k] += row[TERMS + p + size + k]
                k += 1
    nu, u, fitted = 0.0, 0.0, n_actions * p
    if weight > fitted:
        for k in range(size):
            mean_error[k] /= weight
        known = reliability(fit, n_actions, p, mean_error)
        left /= weight - fitted
        explained = (explained - left * fitted / known) / weight
        if explained > 0.0:
            u = 1.0 - known
            nu = min(max(left / explained - u, LEAST_NOISE), LARGEST)
    fit[at + place + p + 1], fit[at + place + p + 2] = nu, u


@spliced
def relative_precision(spec, fit, p, known):
    """(nu + u) / (nu + 1 - known): how much less is left of the reward in this round than in a mean one; 1 where all are alike."""
    at = (2 * spec[N_ACTIONS] + 1) * fit_width(p) + p + 1
    nu, u = fit[at], fit[at + 1]
    return (nu + u) / (nu + 1.0 - known) if spec[PRECISION] and nu > 0.0 else 1.0


@seldom
def refit_common(ridge, sums, fit, n_actions, p, work):
    """theta of all arms together, (sum_a G_a + ridge I)^-1 sum_a c_a, which each of them is drawn to, see `solve_calibrated`.

    It stands after what rounds are weighed by. Where there is nothing to be solved yet it is 0.
    """
    size, width, place = packed_size(p), row_width(p), fit_width(p)
    gram, rest, common = part(work, 0, size), part(work, size, 2 * p), part(fit, (2 * n_actions + 1) * place + p + 3, p)
    k = 0
    for i in range(p):
        common[i] = 0.0
        for j in range(p - i):
            gram[k + j] = ridge if j == 0 else 0.0
        k += p - i
    for a in range(n_actions):
        row = part(sums, a * width, width)
        for k in range(size):
            gram[k] += row[TERMS + p + k]
        for i in range(p):
            common[i] += row[TERMS + p + 2 * size + 2 + i]
        fit[a * place + p + size + STALE] = 1.0
        fit[(n_actions + a) * place + p + size + STALE] = 1.0  # its pseudo-outcomes are made with the first fit
    if not factor_once(gram, p, rest) or not solve_factored(gram, p, common):
        for i in range(p):
            common[i] = 0.0


@jit
def solve_calibrated(arm, ridge, sums, fit, p, n_actions, work):
    """`solve_calibrated_of` with the most usual dimension known to the compiler."""
    if p == 5:
        solve_calibrated_of(5, arm, ridge, sums, fit, n_actions, work)
    else:
        solve_calibrated_of(p, arm, ridge, sums, fit, n_actions, work)


@spliced
def solve_calibrated_of(p, arm, ridge, sums, fit, n_actions, work):
    """Regression calibration in one arm: theta = (sum w x^x^' + ridge I + p S)^-1 (sum w x^ r + p S theta-), S = mean Sigma_e.

    theta- is the fit of all arms together when x~ was last calibrated. The ridge p S counts as many rounds as there are features, which
    vary as the error does and agree with theta-: about what an arm must have seen to know better, and nothing where there is no error.
    """
    size, place, width = packed_size(p), fit_width(p), row_width(p)
    row, steady = part(sums, arm * width, width), part(sums, (2 * n_actions + 1) * width, width)
    common, theta = part(fit, (2 * n_actions + 1) * place + p + 3, p), part(fit, arm * place, p)
    a, rest = part(work, 0, size), part(work, size, 2 * p)
    pull = quotient(float(p), max(steady[COUNT], 1.0))
    for i in range(p):
        theta[i] = row[TERMS + p + 2 * size + 2 + i]
    k = 0
    for i in range(p):
        for j in range(p - i):
            s = pull * steady[TERMS + p + size + k + j]
            a[k + j] = row[TERMS + p + k + j] + s
            theta[i] += s * common[i + j]
            if j > 0:
                theta[i + j] += s * common[i]
        a[k] += ridge
        k += p - i
    solved = factor(a, p, rest)
    if solved:
        solved = solve_factored(a, p, theta)
    if not solved:
        for i in range(p):
            theta[i] = 0.0
    fit[arm * place + p + size + REPORT] = SOLVED if solved else SINGULAR
    fit[arm * place + p + size + STALE] = 0.0


@jit
def reliability(fit, n_actions, p, error):
    """The mean of Sx_jj / (Sx_jj + S_jj) over the coordinates, 1 where there is no error; 1/2 for all others before Sx is known."""
    at = 2 * n_actions * fit_width(p)
    known = fit[at + p + packed_size(p) + REPORT] != 0.0
    k, total = 0, 0.0
    for i in range(p):
        own = fit[at + p + k] if known else error[k]
        total += own / (own + error[k]) if own > 0.0 else 1.0 if error[k] == 0.0 else 0.0
        k += p - i
    return max(total / p, 1e-3)


# ---- policies ----------------------------------------------------------------------------------------------------------


@spliced
def clip_to_floor(probabilities, allowed, floor):
    """p_a = floor + (1 - n floor) e_a / sum e with e = max(p - floor, 0), among the n allowed actions; 0 elsewhere.

    A vector that keeps the floor is left as it is; certainty about one action becomes 1 - (n - 1) floor for it.
    """
    n, total = 0, 0.0
    for a in range(probabilities.size):
        if allowed[a]:
            n += 1
            total += max(probabilities[a] - floor, 0.0)
    for a in range(probabilities.size):
        if not allowed[a]:
            probabilities[a] = 0.0
        elif total > 0.0:
            probabilities[a] = min(floor + (1.0 - n * floor) * quotient(max(probabilities[a] - floor, 0.0), total), 1.0)
        else:
            probabilities[a] = 1.0 / n


@spliced
def choose_best(scores, allowed, out):
    """Probability one for the largest score among the allowed; equal scores share it, so that labels never decide."""
    best, ties = -np.inf, 0
    for a in range(out.size):
        if allowed[a] and scores[a] > best:
            best, ties = scores[a], 0
        if allowed[a] and scores[a] == best:
            ties += 1
    for a in range(out.size):
        out[a] = 1.0 / ties if allowed[a] and scores[a] == best else 0.0


@jit
def best_of_normals(work, allowed, out):
    """out[a] = P(s_a is the largest) for independent s_b ~ N(mean_b, sd_b^2), b allowed; `work` holds the means, then the sds.

    Two arms: the exact normal probability. More: the integral of f_a(s) prod_{b != a} F_b(s) by eight-point Gauss-Legendre on
    panels cut where any arm's distribution bends, over the range where the maximum can lie. What it returns is normalised and is
    itself what the action is drawn from.
    """
    n_actions, sd = out.size, out.size
    n, first, second = 0, -1, -1
    low, high = -np.inf, -np.inf
    for a in range(n_actions):
        out[a] = 0.0
        if allowed[a]:
            n += 1
            second = first
            first = a
            low = max(low, work[a] - 8.0 * work[sd + a])
            high = max(high, work[a] + 8.0 * work[sd + a])
    if n == 1:
        out[first] = 1.0
        return
    if n == 2:
        variance = work[sd + first] * work[sd + first] + work[sd + second] * work[sd + second]
        out[first] = normal_cdf((work[first] - work[second]) / math.sqrt(variance)) if variance < np.inf else 0.5
        out[second] = 1.0 - out[first]
        return
    cuts, n_cuts = 2 * n_actions, cut_panels(work, allowed, n_actions, low, high)
    for panel in range(cuts, cuts + n_cuts - 1):
        half = 0.5 * (work[panel + 1] - work[panel])
        if half > 0.0:
            for node in range(8):
                side = 1.0 if node % 2 else -1.0
                s = work[panel] + half * (1.0 + side * _NODES[node // 2])
                everyone = half * _NODE_WEIGHTS[node // 2]
                for b in range(n_actions):
                    if allowed[b]:
                        everyone *= normal_cdf((s - work[b]) / work[sd + b])
                if everyone > 0.0:
                    for a in range(n_actions):
                        if allowed[a]:
                            z = (s - work[a]) / work[sd + a]
                            density = math.exp(-0.5 * z * z) * 0.3989422804014327 / work[sd + a]
                            out[a] += density * everyone / normal_cdf(z)
    total = 0.0
    for a in range(n_actions):
        total += out[a]
    if not 0.0 < total < np.inf:  # everything lies between two nodes: one mean is far above all others
        choose_best(work, allowed, out)
        total = 1.0
    for a in range(n_actions):
        out[a] /= total


@seldom
def cut_panels(work, allowed, n_actions, low, high):
    """Sorted cuts in [low, high], after the means and sds in `work`, at 0, 2, 4 and 8 sds about each arm that may be the best."""
    n, cuts = 0, 2 * n_actions
    for a in range(n_actions):
        mean, sd = work[a], work[n_actions + a]
        if allowed[a] and mean + 8.0 * sd >= low:
            for step in (-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0):
                cut = min(max(mean + step * sd, low), high)
                k = cuts + n
                while k > cuts and work[k - 1] > cut:
                    work[k] = work[k - 1]
                    k -= 1
                work[k] = cut
                n += 1
    return n


_NODES = (0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363)
_NODE_WEIGHTS = (0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763)


@spliced
def robust_earns_more(spec, extra):
    """Whether the doubly robust fit, acting on x~, has shown that it earns more than the calibrated one, where both may decide."""
    return spec[READS] == READS_BETTER and extra[EVIDENCE] > EVIDENCE_NEEDED * math.sqrt(extra[EVIDENCE_SQ])


@spliced
def propose(spec, tuning, fit, extra, z, seen, allowed, floor, exploring, theta, guess, out, work):
    """The action probabilities of one round, floor kept: the only place where a fit becomes a decision.

    `seen` is the calibrated context, or z itself; theta and guess (the environment's parameters and E[x | x~]) are read by the oracles
    alone.
    """
    n_actions, rule, p = spec[N_ACTIONS], spec[RULE], z.size
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
            work[a] = s
    else:
        width = tuning[WIDTH]
        if rule == ROBUST and extra[CHOICE] > 0.0:
            width += 2.0 ** (extra[CHOICE] - 1.0)
        begin, plain = 0, False
        if spec[WEIGHTING] == PSEUDO:
            plain = robust_earns_more(spec, extra)
            begin = n_actions if plain or spec[READS] == READS_ROBUST else 0
        for a in range(n_actions):
            row = (begin + a) * fit_width(p)
            s = dot(part(fit, row, p), z if plain else seen, p)
            if rule != GREEDY:
                square = quadratic_form(part(fit, row + p, packed_size(p)), p, seen, part(work, 2 * n_actions, p))
                spread = width * math.sqrt(max(square, 0.0))
                if rule == THOMPSON:
                    work[n_actions + a] = max(spread, 1e-12 * (1.0 + abs(s)))
                else:
                    s += spread
            work[a] = s
    if rule == THOMPSON:
        best_of_normals(work, allowed, out)
    else:
        choose_best(work, allowed, out)
    clip_to_floor(out, allowed, floor)


@spliced
def draw(probabilities, u):
    """The action in whose share of (0, 1) the uniform u falls; none that has less than `LEAST`."""
    total, last = 0.0, 0
    for a in range(probabilities.size):
        if probabilities[a] >= LEAST:
            total += probabilities[a]
            last = a
            if u < total:
                return a
    return last


@spliced
def refit_due(spec, tuning, refit, correcting, sums, fit, p, work, aside):
    """Solve again after a round was taken in, when that is due."""
    if refit and spec[RULE] <= ROBUST:
        refit_all(spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def refit_all(spec, tuning, correcting, sums, fit, p, work, aside):
    """Solve wherever sums have changed since the last solve."""
    refit_context(spec, tuning, sums, fit, p, work)
    for a in range(number_of_fits(spec)):
        refit_arm(a, spec, tuning, correcting, sums, fit, p, work, aside)


@spliced
def number_of_fits(spec):
    return 2 * spec[N_ACTIONS] if spec[WEIGHTING] == PSEUDO else spec[N_ACTIONS]


@spliced
def refit_context(spec, tuning, sums, fit, p, work):
    if spec[ACTS_ON] != PREDICTED:
        if calibration_is_due(spec, sums, fit, p):
            refit_calibration(spec, tuning, sums, fit, p, work)
        if spec[CURVED]:
            refit_share(spec, sums, fit, p)


@spliced
def refit_arm(a, spec, tuning, correcting, sums, fit, p, work, aside):
    """Solve for row a of the fit, if it needs that."""
    row, n_actions = a * fit_width(p) + p + packed_size(p), spec[N_ACTIONS]
    keeps = GREEDY < spec[RULE] <= ROBUST  # the rules that ask how sure a fit is
    if spec[WEIGHTING] == PSEUDO and a < n_actions:
        if fit[row + STALE] != 0.0:
            solve_calibrated(a, tuning[RIDGE], sums, fit, p, n_actions, work)
        return
    correction = spec[CORRECTION] if correcting else NO_CORRECTION
    uncorrected = correction != NO_CORRECTION and fit[row + KAPPA] == 0.0
    if uncorrected or fit[row + STALE] != 0.0:
        write_target(a, spec, sums, fit, p)
        solve_arm(a, tuning[RIDGE], correction, spec[GUARD], keeps, sums, fit, p, n_actions, work, aside)


@spliced
def take_in(spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck):
    """Add one round to the sums. Oracles and uniform play only count it.

    `seen` is the context as calibrated by what is known when the round is learned, or z itself.
    """
    n_actions, p = spec[N_ACTIONS], z.size
    stale, width = p + packed_size(p) + STALE, fit_width(p)
    extra[LEARNED] += 1.0
    if spec[RULE] <= ROBUST:
        if spec[FADES]:
            discount(sums, tuning[DISCOUNT], n_actions, p)
        known = reliability(fit, n_actions, p, error) if spec[PRECISION] or spec[WEIGHTING] == PSEUDO else 1.0
        weight = known if spec[PRECISION] else 1.0
        if spec[WEIGHTING] == PSEUDO:
            learn_pseudo(spec, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, weight, known)
        else:
            learn_sums(spec, stabilizer, sums, z, error, allowed, action, propensity, reward, weight)
        if spec[ACTS_ON] != PREDICTED:
            if spec[CURVED]:
                learn_share(spec, sums, fit, extra, seen, p, action, reward)
            learn_context(tuning, sums, n_actions, z, error)
        start, end = reach(action, n_actions)
        for b in range(start, end):
            if same(b, action):
                fit[b * width + stale] = 1.0
        if spec[CORRECTION] == OFFERED:
            for b in range(n_actions):
                if allowed[b]:
                    fit[b * width + stale] = 1.0
        elif spec[WEIGHTING] == PSEUDO:
            for b in range(n_actions):
                if allowed[b]:
                    fit[(n_actions + b) * width + stale] = 1.0
        if spec[RULE] == ROBUST:
            learn_budget(tuning, sums, fit, extra, n_actions, p, reward, luck)


@seldom
def discount(sums, factor, n_actions, p):
    """Let what was learned about rewards fade; what describes x~ (rows 2K + 1 and 2K + 2) stays."""
    first, last = (2 * n_actions + 1) * row_width(p), (2 * n_actions + 3) * row_width(p)
    for k in range(sums.size):
        if not first <= k < last:
            sums[k] *= factor


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
    """Whether s is symmetric and positive semidefinite up to rounding, in the scale of each variable, with no variance that should be 0.

    `work` has room for a packed matrix and two vectors.
    """
    d = s.shape[0]
    k = 0
    for i in range(d):
        if not 0.0 <= s[i, i] <= LARGEST or 0.0 < s[i, i] < LEAST_VARIANCE:
            return False
        for j in range(i, d):
            slack = 1e-9 * math.sqrt(s[i, i] * abs(s[j, j]))
            if not abs(s[i, j] - s[j, i]) <= slack or (slack == 0.0 and i != j and s[i, j] != 0.0):
                return False
            work[k] = s[i, j]
            k += 1
        work[k - d + i] = s[i, i] * (1.0 + 1e-9) if s[i, i] > 0.0 else 1.0
    return factor_once(work, d, part(work, k, 2 * d))


# ---- single rounds: the faces of `propose`, `take_in` and `refit_due` for use from Python ------------------------------------


@jit
def work_size(n_actions, p):
    """Scratch room that suffices for every function here but what is done aside."""
    return 9 * n_actions + 6 * p + 2 * packed_size(p)


@jit
def aside_size(p):
    """Scratch room for what is seldom done, see `solve_carefully`."""
    return 3 * p + 4 * packed_size(p) + p * (p + 1)


@jit
def room_size(n_actions, p):
    """Room for a single round."""
    return 3 * p + packed_size(p) + work_size(n_actions, p) + aside_size(p)


@spliced
def single_round(spec, sums, fit, predicted, error_cov, room):
    """z, the predicted context, after a leading 1 if there is an intercept; what the decision reads, z or what `calibrate` writes; the
    packed error covariance; and scratch room. All of them lie in `room`."""
    d, intercept = predicted.size, spec[INTERCEPT]
    p = d + intercept
    size, n_work = packed_size(p), work_size(spec[N_ACTIONS], p)
    z, seen, error, at = part(room, 0, p), part(room, 0, p), part(room, 3 * p, size), 3 * p + size
    work, aside = part(room, at, n_work), part(room, at + n_work, aside_size(p))
    z[0] = 1.0
    for i in range(d):
        z[intercept + i] = predicted[i]
    write_packed(error_cov, intercept, error)
    if spec[ACTS_ON] != PREDICTED:
        seen = part(room, p, 2 * p)
        calibrate(spec, sums, fit, z, error, seen, work)
    return z, seen, error, work, aside


@jit
def propose_one(spec, tuning, sums, fit, extra, predicted, error_cov, allowed, floor, exploring, theta, out):
    """The action probabilities of one round; theta is the oracles' own."""
    sums, fit = sums.reshape(sums.size), fit.reshape(fit.size)
    room = np.empty(room_size(spec[N_ACTIONS], predicted.size + spec[INTERCEPT]))
    z, seen, _, work, _ = single_round(spec, sums, fit, predicted, error_cov, room)
    propose(spec, tuning, fit, extra, z, seen, allowed, floor, exploring, theta, predicted, out, work)


@jit
def learn_one(
    spec, tuning, stabilizer, sums, fit, extra, predicted, error_cov, allowed, action, propensity, reward, luck, refit, correct_from
):
    correcting = extra[LEARNED] + 1.0 >= correct_from
    sums, fit = sums.reshape(sums.size), fit.reshape(fit.size)
    room = np.empty(room_size(spec[N_ACTIONS], predicted.size + spec[INTERCEPT]))
    z, seen, error, work, aside = single_round(spec, sums, fit, predicted, error_cov, room)
    take_in(spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
    refit_due(spec, tuning, refit, correcting, sums, fit, z.size, work, aside)


@jit
def refit_now(spec, tuning, correcting, sums, fit, p):
    work, aside = np.empty(work_size(spec[N_ACTIONS], p)), np.empty(aside_size(p))
    refit_all(spec, tuning, correcting, sums.reshape(sums.size), fit.reshape(fit.size), p, work, aside)


# ---- live rounds: the same with all but the round itself on a desk ----------------------------------------------------------


@spliced
def on_desk(desk, head, place):
    """The part of a desk that begins at a place."""
    return part(desk, head[place], head[place + 1] - head[place])


@live
def decide_live(desk, predicted, error_cov, allowed, number, out):
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
    z, seen, _, work, _ = single_round(head, sums, fit, predicted, error_cov, room)
    propose(head, tuning, fit, extra, z, seen, allowed, floor, number <= head[WARMUP], theta, predicted, out, work)
    u, luck = uniform_pair(head[SEED], 0, 0, number, LIVE)
    action = draw(out, u)
    return action, out[action], luck, head[CHANGES]


@live
def learn_live(desk, predicted, error_cov, allowed, action, propensity, reward, luck):
    """Take in the reward of a live decision."""
    head = borrowed(desk.view(np.int64))
    sums, fit, extra = on_desk(desk, head, SUMS_AT), on_desk(desk, head, FIT_AT), on_desk(desk, head, EXTRA_AT)
    tuning, stabilizer, room = on_desk(desk, head, TUNING_AT), on_desk(desk, head, STABILIZER_AT), on_desk(desk, head, ROOM_AT)
    refit, correcting = desk[head[PLAN_AT] + REFIT] != 0.0, extra[LEARNED] + 1.0 >= head[CORRECT_FROM]
    z, seen, error, work, aside = single_round(head, sums, fit, predicted, error_cov, room)
    take_in(head, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
    refit_due(head, tuning, refit, correcting, sums, fit, z.size, work, aside)


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


# ---- the world ---------------------------------------------------------------------------------------------------------


@spliced
def standardized(kind, df, u, v):
    """A variate of mean 0 and variance 1 from two uniforms; Student's t by Bailey's (1994) polar formula."""
    if kind == NORMAL:
        return normal_quantile(u)
    if kind == UNIFORM_NOISE:
        return 3.4641016151377544 * (u - 0.5)
    if kind == TWO_POINT:
        return 1.0 if u < 0.5 else -1.0
    if kind == EXPONENTIAL:
        return -math.log(u) - 1.0
    return math.sqrt((df - 2.0) * (u ** (-2.0 / df) - 1.0)) * math.cos(6.283185307179586 * v)


# Tapes are filled a strip of rounds at a time, and one purpose after the other: short loops without branches, over arrays that stay in
# the processor's cache, which the compiler turns into vector instructions.
STRIP = 256


@jit
def write_uniforms(seed, cell, replicate, first, purpose, u, v):
    """The pair of uniforms of `purpose` in rounds first, first + 1, ..."""
    for b in range(u.size):
        u[b], v[b] = uniform_pair(seed, cell, replicate, first + b, purpose)


@jit
def write_standardized(kind, df, u, v, out, tails):
    """`standardized` of many. Of normal ones, first all as if they were in the middle, then again the few that are not."""
    if kind != NORMAL:
        for b in range(out.size):
            out[b] = standardized(kind, df, u[b], v[b])
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
def write_vectors(kind, df, seed, cell, replicate, first, purpose, z, m, u, v, tails):
    """Standardized vectors for m rounds, z[i, b] the i-th entry for round first + b.

    A pair of uniforms serves two entries, or one Student t.
    """
    d = z.shape[0]
    u, v = u[:m], v[:m]
    for i in range(0, d, 1 if kind == STUDENT_T else 2):
        write_uniforms(seed, cell, replicate, first, purpose + i, u, v)
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
        write_vectors(NORMAL, 0.0, seed, cell, replicate, first + 1, purpose, z, m, u, v, tails)
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
    seed, cell, replicate = stretch.seed, stretch.cell, stretch.replicate
    z, u, v, tails = np.empty((d, STRIP)), np.empty(STRIP), np.empty(STRIP), np.empty(STRIP, dtype=np.int64)
    component = tape.component
    write_components(world, stretch, component)
    write_uniforms(seed, cell, replicate, stretch.start + 1, DECISION, tape.uniform, tape.luck)
    for first in range(0, n, STRIP):
        m, time = min(STRIP, n - first), stretch.start + first + 1
        if world.random_context:
            write_vectors(world.context_kind, 0.0, seed, cell, replicate, time, CONTEXT, z, m, u, v, tails)
        combine(world.mean, world.factor, world.random_context, component, z, m, tape.context, first)
        if world.random_error:
            write_vectors(world.error_kind, world.error_df, seed, cell, replicate, time, ERROR, z, m, u, v, tails)
        combine(world.error_mean, world.error_factor, world.random_error, component, z, m, tape.error, first)
        if world.gain.shape[0] > 0:
            for i in range(d):
                for b in range(m):
                    z[i, b] = tape.context[first + b, i] + tape.error[first + b, i]
            combine(world.offset, world.gain, True, component, z, m, tape.guess, first)
        noise = tape.noise[first : first + m]
        write_uniforms(seed, cell, replicate, time, NOISE, u[:m], v[:m])
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
    """r = <theta_a, x> + eta."""
    theta = item(item(tape.theta, entry(b, tape.theta.shape[0])), action)
    r = tape.noise[b]
    for i in range(x.size):
        r += theta[i] * x[i]
    return r


# ---- the loop ----------------------------------------------------------------------------------------------------------


@jit
def write_round(written, b, predicted, probabilities, action, reward):
    """What was seen and done in round b."""
    for i in range(predicted.size):
        written.predicted[b, i] = predicted[i]
    for a in range(probabilities.size):
        written.propensities[b, a] = probabilities[a]
    written.actions[b] = action
    written.rewards[b] = reward


@jit
def run_block(
    spec, tuning, plan, known, sums, fit, extra, tape, benchmark, totals, record_at, next_record, start, records, arm_errors, written
):
    """Play one policy through one block of the tape. Returns the number of records made so far.

    known is the theta that the oracles act on, benchmark the floor of the clipped benchmark by round; totals = (standard regret,
    clipped regret, carried feature, guarded fits); records holds the first two and the last, arm_errors |theta_a - theta*_a| per
    arm, at the rounds of `record_at`. Where `written` has room for the rounds, what was seen and done in each is put there.
    """
    d, n_actions = tape.context.shape[1], spec[N_ACTIONS]
    p = d + spec[INTERCEPT]
    errors = pack_errors(tape.error_cov, spec[INTERCEPT])
    room = np.ones(d + 3 * p), np.empty(n_actions), np.empty(work_size(n_actions, p)), np.empty(aside_size(p))
    memory = sums.reshape(sums.size), fit.reshape(fit.size), extra
    given = spec, tuning, plan, known, tape, errors, benchmark
    return play_block(given, memory, totals, record_at, next_record, start, (records, arm_errors), written, room)


@jit
def play_block(given, memory, totals, record_at, next_record, start, recorded, written, room):
    """The loop of `run_block`."""
    spec, tuning, plan, known, tape, errors, benchmark = borrowed(given)
    sums, fit, extra = borrowed(memory)
    totals, record_at, written = borrowed((totals, record_at, written))
    records, arm_errors = borrowed(recorded)
    vectors, out, work, aside = borrowed(room)
    n_rounds, d = tape.context.shape
    writes = written.rewards.size == n_rounds
    n_actions, p = spec[N_ACTIONS], d + spec[INTERCEPT]
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
        if spec[ACTS_ON] != PREDICTED:
            calibrate(spec, sums, fit, z, error, seen, work)
        acted_on, guess = item(known, entry(b, known.shape[0])), item(tape.guess, entry(b, tape.guess.shape[0]))
        propose(spec, tuning, fit, extra, z, seen, allowed, plan.floor[b], plan.exploring[b], acted_on, guess, out, work)
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
        take_in(spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, tape.luck[b])
        refit_due(spec, tuning, refit, correcting, sums, fit, p, work, aside)
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
