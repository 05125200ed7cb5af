"""Where a learner's memory, a fit and a recipe keep what they hold: the rows and columns, by name.

Sums and fits are flat arrays; `part` shows one row or one matrix of them. Symmetric matrices are stored *packed*: the upper triangle row by
row, so that row i holds the entries (i, i), ..., (i, p - 1). The functions at the end say where a row, or a part of it, begins.
"""

from .compile import inlined

VERSION: int = 3
"""of this layout, for files of states: raised whenever a row or a column gets another place or meaning"""


# The running sums: a row for each thing that is summed, see `row_width` for its columns.
#
#   a < K                 the rounds in which action a was taken
#   offered_row(K, a)     the error covariance of the rounds in which a was allowed, but for those of the alike row; with PSEUDO all that
#                         the doubly robust fit of a is made of, for the features but the first
#   alike_row(K)          what the rounds add to each of these rows that count alike for all actions
#   context_row(K)        x~ in all rounds: sums of x~, x~x~' and Sigma_e; in the columns of the cross moments `cubes`
#   recent_row(K)         sums of x~ that forget, for a mean that follows a drift, of the products of its one-step prediction errors, and of
#                         Sigma_e; in the columns of the cross moments `squares`
#   departure_row(K, a)   with PSEUDO: the matrix D_a of the pseudo-outcomes, (p - 1, p), see `learn_pseudo`; for a = K what the rounds add
#                         to each of them that count alike for all actions
#   the last row          with CURVED: what the rewards say of the departures from linearity, see `learn_share`
#
# cubes and squares: sums of h = a^3 - 3 v a and of h^2, a = x~ - mean so far, cut off at 5 standard deviations, v the variance so far. h
# has the mean of a^3 and varies less (6 v^3 instead of 15 v^3 where x~ is normal): 3 v sum a is what sum a^3 owes to taking the mean so far
# for the last one.
COUNT: int = 0  # rounds
WEIGHT: int = 1  # sum of w
WEIGHT_SQ: int = 2  # sum of w^2
FEATURES: int = 3  # from here on sums of w z; the other terms follow, at `gram_at`, `error_at`, `reward_at`, `reward_sq_at` and `cross_at`

# The fits: a row for each, see `fit_width`: theta, at `factor_at` the packed factor that it was solved from, at `report_at` these three.
#
#   a < K                 action a; with PSEUDO by regression on the calibrated context
#   robust_fit(K, a)      with PSEUDO: the doubly robust one, of the features but the first
#   signal_fit(K)         Sx = cov(x~) - mean Sigma_e in the place of the factor; its report is 1 once there is one, its kappa 1 where the
#                         forgetting mean is used; `SIGNAL_ROUNDS` its first entry
#   curve_fit(K)          alpha of every feature, then what stands at `share_at` and `drift_at`
#   prior_fit(K)          with PSEUDO: what the regressions are drawn to, at `center_at`, `spread_at`, `noise_at`, `pull_at` and `middle_at`
#   reference_fit(K)      with PSEUDO: what calibration is relative to: a mean of x~, and an error covariance as its factor
REPORT: int = 0  # how it was found, see below
STALE: int = 1  # how many rounds have gone into the sums since; `ALL_STALE` where all else that it depends on has changed
KAPPA: int = 2  # the share of the error covariance that was taken out
REPORT_COLUMNS: int = 3
ALL_STALE: int = 2**40
SIGNAL_ROUNDS: int = 0  # the number of rounds behind Sx

# What a solve reports.
SOLVED: int = 0
GUARDED: int = 1  # Fuller's guard decided
SINGULAR: int = 2  # there is no solution
UNSOLVED: int = 3  # to be solved with care; never stored

# `extra`, what a learner counts.
LEARNED: int = 0  # rounds learned
EVIDENCE: int = 1  # of two fits: the evidence that the doubly robust one earns more
EVIDENCE_SQ: int = 2  # the sum of its squares
EPOCH_SIZE: int = 1  # of RobustUCB: rounds of this epoch
EPOCH_SUM: int = 2  # their rewards
LOWEST: int = 3  # of all rewards
HIGHEST: int = 4
CHOICE: int = 5  # which attack budget is played
CHOICE_PROB: int = 6  # with which probability it was drawn
LOG_WEIGHTS: int = 7  # from here on, EXP3's weight of each budget

# The last row of the sums of a curved recipe: what the shares of the curve, then of the drift, and with PSEUDO then of the calibration, are
# solved from, see `learn_share` and `learn_contradiction`.
DEPARTING: int = 0
LEFT_SQ: int = 1
DEPARTURE_SQ: int = 2
DEPARTURE_LEFT: int = 3
SHARE_COLUMNS: int = 4

# `spec`, the integers that tell one recipe from another.
N_ACTIONS: int = 0
INTERCEPT: int = 1  # how many features of ones come first; with PSEUDO one more than the user has asked for
WEIGHTING: int = 2  # how a round counts for the action that was taken
CORRECTION: int = 3  # what error covariance is taken out
RULE: int = 4  # how scores become probabilities
GUARD: int = 5  # when Fuller's guard decides
ACTS_ON: int = 6  # which context the decision reads
PRECISION: int = 7  # 1 where rounds count by the precision of their prediction
CURVED: int = 8  # 1 where the calibration may be curved
FADES: int = 9  # 1 where old rounds count less

# `spec[WEIGHTING]`
UNIT: int = 0  # 1
INVERSE: int = 1  # the inverse of the probability
PSEUDO: int = 2  # two fits are kept: regression on the calibrated context, and the doubly robust one with its pseudo-outcomes

# The kinds of programs, see `kind_of`: what one of them does not need is not compiled for it.
PLAIN: int = 0  # x~ is read as it is
CALIBRATED: int = 1  # a calibrated context is read
TWO_FITS: int = 2  # with PSEUDO
KINDS = "plain", "calibrated", "two_fits"

# `spec[CORRECTION]`
NO_CORRECTION: int = 0
PLAYED: int = 1  # that of the rounds in which the action was taken
OFFERED: int = 2  # that of the rounds in which it was allowed, times pi^nd

# `spec[RULE]`; up to ROBUST they learn
GREEDY: int = 0
UCB: int = 1
THOMPSON: int = 2
ROBUST: int = 3
ORACLE: int = 4
BAYES_ORACLE: int = 5
UNIFORM: int = 6

# `spec[GUARD]`
GUARD_AUTO: int = 0
GUARD_ALWAYS: int = 1
GUARD_NEVER: int = 2

# `spec[ACTS_ON]`
PREDICTED: int = 0  # x~
BLP: int = 1  # its best linear predictor of x
EW_BLP: int = 2  # the same about an exponentially weighted mean
CHOSEN_BLP: int = 3  # whichever of the two means predicts x~ better

# `tuning`, the real numbers of a recipe.
RIDGE: int = 0
WIDTH: int = 1  # of a bonus or a posterior
EPOCH: int = 2  # RobustUCB: rounds between restarts
GAMMA: int = 3  # RobustUCB: EXP3's rate
MEMORY: int = 4  # rounds over which the exponentially weighted mean averages
DISCOUNT: int = 5  # what a weight is multiplied with in every later round

# A learner's workspace, one array of 64-bit words: first the columns of `spec`, then these integers, then the parts.
SEED: int = 10
WARMUP: int = 11
CORRECT_FROM: int = 12
CHANGES: int = 13  # of the error covariance, so far
SUMS_AT: int = 14  # where each part begins, and the last one ends
FIT_AT: int = 15
EXTRA_AT: int = 16
TUNING_AT: int = 17
PLAN_AT: int = 18
STABILIZER_AT: int = 19
THETA_AT: int = 20  # an oracle's own
ERROR_COV_AT: int = 21  # of the last decision
ROOM_AT: int = 22  # scratch room
WORKSPACE_HEAD: int = ROOM_AT + 2

# The plan in a workspace: what the schedules say.
FLOOR: int = 0  # of the next decision
REFIT: int = 1  # after the next reward
NEVER: int = 2**62  # a time that does not come


@inlined
def entry(i, n):
    """Where the i-th round finds its entry among n: its own, or the only one."""
    return i if n > 1 else 0


@inlined
def packed_size(p):
    return p * (p + 1) // 2


# ---- where each part of a row of sums begins ----


@inlined
def gram_at(p):
    """sum w zz', packed."""
    return FEATURES + p


@inlined
def error_at(p):
    """sum w S, S the error covariance of the round, packed."""
    return FEATURES + p + packed_size(p)


@inlined
def reward_at(p):
    """sum w r."""
    return FEATURES + p + 2 * packed_size(p)


@inlined
def reward_sq_at(p):
    """sum w r^2."""
    return reward_at(p) + 1


@inlined
def cross_at(p):
    """sum w z r; in the rows of the context cubes and squares."""
    return reward_at(p) + 2


@inlined
def row_width(p):
    """The length of a row of running sums for p features."""
    return cross_at(p) + p


# ---- which row of the sums holds what; an action's own is its number ----


@inlined
def offered_row(n_actions, a):
    return n_actions + a


@inlined
def alike_row(n_actions):
    return 2 * n_actions


@inlined
def context_row(n_actions):
    return 2 * n_actions + 1


@inlined
def recent_row(n_actions):
    return 2 * n_actions + 2


@inlined
def departure_row(n_actions, a):
    return 2 * n_actions + 3 + a


# ---- the same of a fit ----


@inlined
def factor_at(p):
    """The packed factor that theta was solved from."""
    return p


@inlined
def report_at(p):
    """REPORT, STALE and KAPPA."""
    return p + packed_size(p)


@inlined
def fit_width(p):
    """The length of a row of a fit for p features."""
    return report_at(p) + REPORT_COLUMNS


@inlined
def stale_at(row, p):
    """STALE of a row, from the beginning of the fits."""
    return row * fit_width(p) + report_at(p) + STALE


@inlined
def robust_fit(n_actions, a):
    return n_actions + a


@inlined
def signal_fit(n_actions):
    return 2 * n_actions


@inlined
def curve_fit(n_actions):
    return 2 * n_actions + 1


@inlined
def share_at(p):
    """The share of the curve that is used."""
    return p


@inlined
def drift_at(p):
    """The share of the departure by a drifting mean that is used."""
    return p + 1


@inlined
def prior_fit(n_actions):
    return 2 * n_actions + 2


@inlined
def center_at(p):
    """The mean of each feature, which the intercepts are drawn about."""
    return 0


@inlined
def spread_at(p):
    """The variance of each feature; 0 for those that do not vary, which the regressions leave out."""
    return p


@inlined
def noise_at(p):
    """s^2, what the regressions leave of the variance of the rewards."""
    return 2 * p


@inlined
def pull_at(p):
    """kappa, how many rounds the pull of the slopes to 0 counts for."""
    return 2 * p + 1


@inlined
def middle_at(p):
    """The mean of all rewards, which the intercepts are drawn to."""
    return 2 * p + 2


@inlined
def reference_fit(n_actions):
    return 2 * n_actions + 3


# ---- sizes ----


@inlined
def n_features(dims, p):
    """p, as the compiler knows it: `dims` has p entries where loops over features are to be unrolled, or none."""
    return len(dims) if len(dims) > 0 else p


@inlined
def kind_of(spec):
    """Which of the programs below is a recipe's own."""
    return TWO_FITS if spec[WEIGHTING] == PSEUDO else PLAIN if spec[ACTS_ON] == PREDICTED else CALIBRATED


@inlined
def number_of_fits(spec):
    return 2 * spec[N_ACTIONS] if spec[WEIGHTING] == PSEUDO else spec[N_ACTIONS]


@inlined
def seen_size(p):
    """The calibrated context, its departure from linearity, how precise the round is, and the departure's noise, see `calibrate`."""
    return 2 * p + 2


@inlined
def work_size(n_actions, p):
    """Scratch room that suffices for every function here but what is done aside."""
    return 9 * n_actions + 6 * p + 2 * packed_size(p)


@inlined
def careful_size(p):
    """Scratch room for `solve_carefully` alone."""
    return 3 * p + 4 * packed_size(p) + p * (p + 1)


@inlined
def aside_size(p):
    """Scratch room for what is seldom done, see `solve_carefully`, and for the sums and the fit of `solve_robust`."""
    return careful_size(p) + row_width(p) + fit_width(p)


@inlined
def room_size(n_actions, p):
    """Room for a single round."""
    return seen_size(p) + p + packed_size(p) + work_size(n_actions, p) + aside_size(p)
