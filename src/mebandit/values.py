"""The values that the parts of the library exchange: observations, decisions, rounds, the memory of a policy, simulated worlds.

All are NamedTuples of plain arrays and numbers. They can be printed and compared, enter compiled code, and are saved without pickle.
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
    """which actions may be taken in this round: booleans, (K,)"""
    time: int = 1
    """the number of this decision, from 1; schedules are functions of it"""
    auxiliary: float = 0.5
    """auxiliary uniform random number in (0, 1), for a policy that is itself random; independent of the draw of the action"""


class Round(NamedTuple):
    """One finished round: an observation, the decision taken on it, and its reward."""

    observation: Observation
    action: int
    """the action taken, from 0"""
    propensities: Floats
    """π_t(·), the probabilities from which the action was drawn, 0 for actions that were not allowed, (K,)"""
    reward: float
    """r_t"""


class Decision(NamedTuple):
    """A live decision, as `Learner.decide` returns it."""

    id: int
    """the number of the decision, from 1; a later reward refers to it"""
    action: int
    """the action to take, from 0"""
    propensity: float
    """π_t(a_t), the probability with which this action was drawn"""
    propensities: Floats
    """π_t(·), the probabilities of all actions, (K,)"""


Pending = tuple[Observation, Decision]
"""an observation, and the decision on it that waits for its reward"""


class LinearState(NamedTuple):
    """The memory of a linear policy: running sums, the fit derived from them, and counters."""

    sums: Floats
    """rows of weighted sums: of each action, of each action while it was allowed, and of all rounds; see `kernels.layout`"""
    fit: Floats
    """for each action: θ, the packed matrix it was solved from, how it was found, and whether the sums have changed since"""
    extra: Floats
    """the number of rounds learned; for RobustUCB also its epoch and exponential weights"""


class Stretch(NamedTuple):
    """A stretch of rounds of one simulated run. The tape of an environment is a pure function of it."""

    seed: int
    cell: int
    """the number of the cell in a grid of settings; cells have independent random numbers"""
    replicate: int
    """the number of the run, from 0"""
    start: int
    """the stretch has the rounds start + 1, ..., stop"""
    stop: int


class World(NamedTuple):
    """An environment as compiled code reads it: a mixture of C components for context and error, rewards, effects of past actions."""

    cumulative: Floats
    """cumulative probabilities of the components, (C,); empty: the components are taken in turn"""
    mean: Floats
    """context mean by component, (C, d)"""
    factor: Floats
    """F with F F' the context covariance, (C or 1, d, d)"""
    error_mean: Floats
    """mean of the error by component, (C or 1, d)"""
    error_factor: Floats
    """F with F F' the covariance of the error, (C or 1, d, d)"""
    random_context: bool
    """whether the context varies within a component"""
    random_error: bool
    """whether the error varies within a component"""
    hold: int
    """the number of rounds for which a component stays"""
    context_kind: int
    """the distribution of the standardised context, see `environments.base.CONTEXTS`"""
    error_kind: int
    """the distribution of the standardised error, see `environments.base.ERRORS`"""
    error_df: float
    """the degrees of freedom of a t-distributed error"""
    noise_kind: int
    """the distribution of the reward noise, likewise"""
    noise_sd: float
    """the standard deviation of the reward noise"""
    theta: Floats
    """θ*, (K, d)"""
    error_cov: Floats
    """Σ_e by component, as the learner is told, (C or 1, d, d)"""
    offset: Floats
    """E[x | x̃] = offset + gain x̃ by component, (C or 1, d); empty where it is not known"""
    gain: Floats
    """(C or 1, d, d)"""
    carry_index: int
    """the feature that past actions change (the burden in HeartSteps), or -1"""
    carry_decay: float
    """λ of that feature, B_{t+1} = λ B_t + gain[a_t]"""
    carry_gain: Floats
    """gain by action, (K,)"""


class Tape(NamedTuple):
    """All that is random in B rounds of one simulated run, drawn before any decision, so that all policies meet the same random numbers.

    Fields marked (B or 1, ...) hold one entry per round, or a single one for all of them.
    """

    context: Floats
    """x_t, (B, d)"""
    error: Floats
    """ε_t, (B, d)"""
    component: Integers
    """the row of `error_cov` that holds for the round, (B,)"""
    error_cov: Floats
    """Σ_e as the learner is told, (C or 1, d, d)"""
    noise: Floats
    """η_t, (B, 1); or one for each action, (B, K)"""
    uniform: Floats
    """the uniform random number from which the action is drawn, (B,)"""
    auxiliary: Floats
    """auxiliary uniform random number, for a policy that is itself random, (B,)"""
    allowed: Booleans
    """which actions may be taken, (B or 1, K)"""
    theta: Floats
    """θ*, (B or 1, K, d)"""
    guess: Floats
    """E[x_t | x̃_t] where the environment knows it, (B, d); else NaN, (1, d)"""
    carry_index: int
    """the feature that past actions change (the burden in HeartSteps), or -1"""
    carry_decay: float
    """λ of that feature, B_{t+1} = λ B_t + gain[a_t]"""
    carry_gain: Floats
    """gain by action, (K,)"""
    mean_reward: Floats = np.empty((0, 0))
    """E[r_t | x_t, a] where that is not ⟨θ_a, x_t⟩, (B, K); else empty, (0, K)"""


class ScheduleTable(NamedTuple):
    """The schedules of a policy, written out for B rounds."""

    floor: Floats
    """smallest probability of an allowed action, (B,)"""
    exploring: Booleans
    """whether the round is of the warm-up, in which actions are drawn with equal probability, (B,)"""
    refit: Booleans
    """whether θ is solved for after the round, (B,)"""
    correcting: Booleans
    """whether the error covariance is subtracted, (B,)"""
    stabilizer: Floats
    """π^nd, (B or 1, K)"""


State = Any
"""the memory of a policy: whatever its method `init` returns"""


GREEN, YELLOW, RED = "green", "yellow", "red"
"""verdicts of a diagnostic: nothing to report; read the results with this in mind; do not trust them until this is resolved"""


class Finding(NamedTuple):
    """One diagnostic."""

    name: str
    verdict: str
    sentence: str
    values: dict[str, list[float]]
    """the numbers behind it, by name"""
