"""From running sums to theta: the formula as it stands, or what Fuller's guard makes of it."""

from .compile import inlined, jit, part, quotient, seldom, spliced
from .layout import (
    GUARD_AUTO,
    GUARD_NEVER,
    GUARDED,
    KAPPA,
    NO_CORRECTION,
    REPORT,
    SINGULAR,
    SOLVED,
    STALE,
    UNSOLVED,
    WEIGHT,
    WEIGHT_SQ,
    error_at,
    factor_at,
    fit_width,
    gram_at,
    n_features,
    packed_size,
    report_at,
    reward_sq_at,
    row_width,
)
from .limits import LARGEST, LARGEST_FACTOR
from .linalg import (
    above,
    clearly_above,
    copy,
    factor,
    factor_once,
    is_within,
    solve_factored,
    solve_factored_once,
    solve_indefinite,
    write_corrected,
    write_corrected_once,
)
from .sums import take_out

HALVINGS = 36  # of the interval for Fuller's root: to 1e-11


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
def solve_arm(dims, arm, solving, sums, fit, p, n_actions, room):
    """Fit one arm from the running sums: theta, how it was found, and, where a rule asks for it, the factor it came from.

    (eq. proposed-estimator) A = sum w zz' + ridge I - C,  theta = A^-1 sum w z r, with C by `correction`: nothing; the covariances of the
    rounds in which the arm was played (the naive estimator); pi^nd(a) Sigma_e over all rounds in which it could have been (the paper's).
    If A is not safely positive definite (A - C/n, n the effective number of rounds), Fuller's guard decides what is taken out.
    The right-hand side is found where theta will stand, see `write_target`. What is seldom done is done on copies in `room.aside`: only
    what is never handed to a function of its own can stay in a GPU's registers.
    """
    report = UNSOLVED
    if solving.correction == NO_CORRECTION or solving.guard == GUARD_AUTO:
        report = solve_plainly(dims, arm, solving, sums, fit, p, n_actions, room)
    finish_arm(report, arm, solving, sums, fit, p, n_actions, room.aside)


@jit
def solve_once(arm, solving, sums, fit, p, n_actions, room):
    """`solve_arm` for a log."""
    solve_arm((), arm, solving, sums, fit, p, n_actions, room)


@inlined
def solve_plainly(dims, arm, solving, sums, fit, p, n_actions, room):
    """Solve the formula as it stands if its matrix is safely positive definite, the usual case. Returns the report, `UNSOLVED` if not."""
    p = n_features(dims, p)
    width = row_width(p)
    size, work, ridge = packed_size(p), room.work, solving.ridge
    row, at = arm * width, arm * fit_width(p)
    gram, c, a, rest = part(sums, row + gram_at(p), size), part(work, 0, size), part(work, size, size), part(work, 2 * size, 2 * p)
    take_out(arm, solving.correction, sums, p, width, n_actions, c)
    trace, other_trace = write_corrected(gram, c, 1.0, ridge, p, a)
    if not factor(a, p, rest):
        return UNSOLVED
    if other_trace > 0.0:
        share = quotient(sums[row + WEIGHT_SQ], sums[row + WEIGHT] * sums[row + WEIGHT])
        if not clearly_above(a, p, trace, other_trace, share) and not above(gram, c, ridge, share, p, room.aside):
            return UNSOLVED
    usable = solve_factored(a, p, part(fit, at, p))
    if solving.keeps:
        copy(a, part(fit, at + factor_at(p), size), size)
    return SOLVED if usable else SINGULAR


@spliced
def finish_arm(report, arm, solving, sums, fit, p, n_actions, aside):
    """Note that an arm was solved, or see to it carefully."""
    at = arm * fit_width(p) + report_at(p)
    if report == SOLVED:
        fit[at + REPORT] = SOLVED
        fit[at + KAPPA] = 0.0 if solving.correction == NO_CORRECTION else 1.0
    else:
        solve_aside(report, arm, solving, sums, fit, p, n_actions, aside)
    fit[at + STALE] = 0.0


@jit
def solve_aside(report, arm, solving, sums, fit, p, n_actions, aside):
    """Copy what is needed, solve carefully, and copy back what was found. A theta of no usable size, found here or before, is none."""
    width, size = row_width(p), packed_size(p)
    row, at = arm * width, arm * fit_width(p)
    theta, kept, target, found = part(fit, at, p), part(fit, at + factor_at(p), size), part(aside, 4 * size, p), part(aside, 3 * size, size)
    correction = solving.correction
    kappa = 0.0 if correction == NO_CORRECTION else 1.0
    if report == UNSOLVED:
        reward_sq = sums[row + reward_sq_at(p)]
        n = sums[row + WEIGHT] * sums[row + WEIGHT] / sums[row + WEIGHT_SQ] if sums[row + WEIGHT_SQ] > 0.0 else 1.0
        n = max(n, 1.0 / LARGEST)  # weights that have faded
        copy(part(sums, row + gram_at(p), size), part(aside, 0, size), size)
        copy(part(sums, row + error_at(p), size), part(aside, size, size), size)
        take_out(arm, correction, sums, p, width, n_actions, part(aside, 2 * size, size))
        copy(theta, target, p)
        report, kappa = solve_carefully(solving.ridge, correction, solving.guard, n, reward_sq, p, aside)
        copy(found, kept, size)
        copy(target, theta, p)
        if not is_within(theta, p, LARGEST_FACTOR):
            report = SINGULAR
    if report == SINGULAR:
        for k in range(report_at(p)):
            fit[at + k] = 0.0
    fit[at + report_at(p) + REPORT], fit[at + report_at(p) + KAPPA] = report, kappa


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
        write_corrected_once(gram, played, 0.0, ridge, p, a)
        kappa = fuller_kappa(a, theta, reward_sq, played, n, p, rest)
        write_corrected_once(gram, played, kappa, ridge, p, a)
    else:  # not by choosing between `played` and `c` first: a GPU's register has no address to choose
        write_corrected_once(gram, c, 1.0, ridge, p, a)
    if factor_once(a, p, rest):
        solve_factored_once(a, p, theta)
        return report, kappa
    for k in range(size):
        a[k] = 0.0
    if guard == GUARD_NEVER:
        return solve_indefinite(gram, c, ridge, p, theta, rest), kappa
    for k in range(p):
        theta[k] = 0.0
    return SINGULAR, kappa
