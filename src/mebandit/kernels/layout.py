"""Where a learner's memory, a fit and a recipe keep what they hold: the rows and columns, by name.

Sums and fits are flat arrays; `part` shows one row or one matrix of them. Symmetric matrices are stored *packed*: the upper triangle row by
row, so that row i holds the entries (i, i), ..., (i, p - 1).

Rows 2K + 1 and 2K + 2 of the sums describe x~ in all rounds. The first: sums of x~, x~x~' and Sigma_e. The second: sums of x~ that forget,
for a mean that follows a drift, of the products of its one-step prediction errors, and of Sigma_e. Where a row would have its cross
moments stand, they have sums of h = a^3 - 3 v a and of h^2, a = x~ - mean so far, cut off at 5 standard deviations, v the variance so far.
h has the mean of a^3 and varies less (6 v^3 instead of 15 v^3 where x~ is normal): 3 v sum a is what sum a^3 owes to taking the mean so
far for the last one. With `CURVED` the last row of all holds what the rewards say of the curve, see `learn_share`.

Row 2K of the fit holds Sx = cov(x~) - mean Sigma_e where others have their factor; its report is 1 once there is one, its kappa 1 where
the forgetting mean is used, its first entry the number of rounds behind it. Row 2K + 1 holds the curve: alpha for every coordinate, and
the share of it that is used; then what rounds are weighed by, see `refit_noise`; and the fit of all actions together, see `refit_common`.
"""

from .compile import jit, spliced

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
DEPARTING, LEFT_SQ, DEPARTURE_SQ, DEPARTURE_LEFT = 0, 1, 2, 3  # the sums that the share is solved from


@spliced
def entry(i, n):
    """Where the i-th round finds its entry among n: its own, or the only one."""
    return i if n > 1 else 0


@spliced
def packed_size(p):
    return p * (p + 1) // 2


@spliced
def row_width(p):
    """The length of a row of running sums for p features."""
    return TERMS + 2 * p + 2 * packed_size(p) + 2


@spliced
def fit_width(p):
    """The length of a row of a fit for p features."""
    return p + packed_size(p) + REPORT_COLUMNS


@spliced
def n_features(dims, p):
    """p, as the compiler knows it: `dims` has p entries where loops over features are to be unrolled, or none."""
    return len(dims) if len(dims) > 0 else p


@spliced
def is_plain(spec):
    """Whether a recipe reads x~ as it is and keeps one fit for each action."""
    return spec[ACTS_ON] == PREDICTED and spec[WEIGHTING] != PSEUDO


@spliced
def number_of_fits(spec):
    return 2 * spec[N_ACTIONS] if spec[WEIGHTING] == PSEUDO else spec[N_ACTIONS]


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
