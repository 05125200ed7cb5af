"""The values that travel: what is seen, what was decided, what came back, what the world has in store.

All are NamedTuples of plain arrays and numbers: they print, compare, enter compiled code and save without pickle.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class Observation(NamedTuple):
    """What is known before the decision of a round."""

    predicted: Floats
    """x̃_t, the predicted context, (d,)"""
    error_cov: Floats
    """Σ_e,t, the covariance of the prediction's error, (d, d)"""
    allowed: Booleans
    """which actions may be taken in this round, (K,)"""
    time: int = 1
    """the number of this decision, from 1: what schedules read"""
    luck: float = 0.5
    """a uniform number for a policy's own randomness, independent of the draw of the action"""


class Round(NamedTuple):
    """One finished round: an observation, the decision taken on it, and its reward."""

    observation: Observation
    action: int
    propensities: Floats
    """π_t(·), the probabilities from which the action was drawn, zero where not allowed, (K,)"""
    reward: float


class Decision(NamedTuple):
    """A live decision. Its `id` is what a later reward refers to."""

    id: int
    action: int
    propensity: float
    """π_t(a_t), the probability with which this action was drawn"""
    propensities: Floats
    """π_t(·), (K,)"""


Pending = tuple[Observation, Decision]
"""what was seen, and the decision that waits for its reward"""


class LinearState(NamedTuple):
    """The memory of a linear policy: running sums, the fit derived from them, and counters."""

    sums: Floats
    """one row of weighted sums per arm, then per arm as offered, then for all arms alike, see `estimation.moments.Moments`; then what
    describes x̃, and how far the rewards bear out a curve"""
    fit: Floats
    """per arm: θ, the packed factor it was solved from, how it was found, whether the sums have moved on since"""
    extra: Floats
    """rounds learned; for RobustUCB its epoch and exponential weights"""


class Stretch(NamedTuple):
    """Which rounds of which simulated history: a tape is a pure function of this."""

    seed: int
    cell: int
    """the cell of a grid of settings"""
    replicate: int
    start: int
    """rounds start + 1, ..., stop"""
    stop: int


class World(NamedTuple):
    """An environment as the compiled code sees it: a mixture over components of (context, error), rewards, and what past actions do."""

    cumulative: Floats
    """cumulative probabilities of the components, (C,); empty: the components are taken in turn"""
    mean: Floats
    """context mean by component, (C, d)"""
    factor: Floats
    """F with F F' the context covariance, (C or 1, d, d)"""
    error_mean: Floats
    error_factor: Floats
    random_context: bool
    random_error: bool
    hold: int
    """for how many rounds a component stays before it is drawn again"""
    context_kind: int
    error_kind: int
    error_df: float
    noise_kind: int
    noise_sd: float
    theta: Floats
    """θ*, (K, d)"""
    error_cov: Floats
    """Σ_e by component, as reported to the learner, (C or 1, d, d)"""
    offset: Floats
    """E[x | x̃] = offset + gain x̃ by component, (C or 1, d); empty where that is not known"""
    gain: Floats
    carry_index: int
    """the feature that past actions drive (HeartSteps' burden), or -1"""
    carry_decay: float
    carry_gain: Floats
    """B_{t+1} = decay B_t + gain[a_t], (K,)"""


class Tape(NamedTuple):
    """What the world has in store for B rounds of one replicate, drawn before any decision: all policies meet the same luck.

    Fields marked (B or 1, ...) hold one entry per round, or a single one for all of them.
    """

    context: Floats
    """x_t, (B, d)"""
    error: Floats
    """ε_t, (B, d)"""
    component: Integers
    """which row of error_cov holds for the round, (B,)"""
    error_cov: Floats
    """Σ_e as reported to the learner, (C or 1, d, d)"""
    noise: Floats
    """η_t, (B,)"""
    uniform: Floats
    """what the action is drawn with, (B,)"""
    luck: Floats
    """for a policy's own randomness, (B,)"""
    allowed: Booleans
    """(B or 1, K)"""
    theta: Floats
    """θ*, (B or 1, K, d)"""
    guess: Floats
    """E[x_t | x̃_t] where the environment can compute it, (B, d); else NaN, (1, d)"""
    carry_index: int
    """the feature that past actions drive (HeartSteps' burden), or -1"""
    carry_decay: float
    carry_gain: Floats
    """B_{t+1} = decay B_t + gain[a_t], (K,)"""


class Plan(NamedTuple):
    """The schedules of a policy, written out for B rounds."""

    floor: Floats
    exploring: Booleans
    refit: Booleans
    correcting: Booleans
    stabilizer: Floats
    """(B or 1, K)"""


State = Any
"""A policy's memory: whatever its `init` returns."""
