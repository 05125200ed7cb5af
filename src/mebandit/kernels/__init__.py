"""The compiled functions. Callers use the names listed here; `layout` names the rows and columns of what they read and write.

The rules: scalar loops over small arrays, results written into arguments, no allocation and no exception inside, no randomness but what is
passed in or counted (`random`). The stepwise faces and the compiled loop call the same functions, so they agree bit for bit.

Imports among these files are relative, since the package is loaded a second time for the GPU, with another `compile`.
"""

from . import layout, limits
from .calibrate import calibrate
from .compile import STAMP
from .context import learn_context
from .curve import departure, inverse_mills, refit_curve, refit_share
from .decide import best_of_normals, clip_to_floor, draw
from .linalg import factor_once, is_covariance, pack_errors, quadratic_form, solve_factored
from .live import learn_one, live_program, propose_one, refit_now, theta_now
from .log.calibration import SINGULAR_SPREAD, add_jacobian, calibrate_rounds
from .log.clusters import add_unit_products
from .log.counts import add_chance, add_predictions, count_close, count_probabilities
from .log.crossproducts import add_products
from .log.faults import mark_faults
from .log.greedy import greedy_probabilities
from .log.linear import FIVE, affine
from .log.scores import LARGEST_LEVERAGE, TILE, add_scores
from .play import CARRIED, CLIPPED, GUARDED_FITS, STANDARD, Given, Records, play_program, shown_feature
from .random import AUXILIARY, CENTRAL, LIVE, USER, normal_quantile, philox, uniform_pair
from .rounds import Memory, Outcome, Room, Solving
from .solve import solve_once
from .world import (
    EXPONENTIAL,
    LOGNORMAL,
    NORMAL,
    STUDENT_T,
    TWO_POINT,
    UNIFORM_NOISE,
    fill_normals,
    fill_tape,
    observe,
    regrets,
    regrets_of,
    reward_of,
    standardized,
    write_uniforms,
)

__all__ = [
    "AUXILIARY",
    "CARRIED",
    "CENTRAL",
    "CLIPPED",
    "EXPONENTIAL",
    "FIVE",
    "GUARDED_FITS",
    "LARGEST_LEVERAGE",
    "LIVE",
    "LOGNORMAL",
    "NORMAL",
    "SINGULAR_SPREAD",
    "STAMP",
    "STANDARD",
    "STUDENT_T",
    "TILE",
    "TWO_POINT",
    "UNIFORM_NOISE",
    "USER",
    "Given",
    "Memory",
    "Outcome",
    "Records",
    "Room",
    "Solving",
    "add_chance",
    "add_jacobian",
    "add_predictions",
    "add_products",
    "add_scores",
    "add_unit_products",
    "affine",
    "best_of_normals",
    "calibrate",
    "calibrate_rounds",
    "clip_to_floor",
    "count_close",
    "count_probabilities",
    "departure",
    "draw",
    "factor_once",
    "fill_normals",
    "fill_tape",
    "greedy_probabilities",
    "inverse_mills",
    "is_covariance",
    "layout",
    "learn_context",
    "learn_one",
    "limits",
    "live_program",
    "mark_faults",
    "normal_quantile",
    "observe",
    "pack_errors",
    "philox",
    "play_program",
    "propose_one",
    "quadratic_form",
    "refit_curve",
    "refit_now",
    "refit_share",
    "regrets",
    "regrets_of",
    "reward_of",
    "shown_feature",
    "solve_factored",
    "solve_once",
    "standardized",
    "theta_now",
    "uniform_pair",
    "write_uniforms",
]
