"""Many simulated trials, each analysed like a real one, over which power and coverage are counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mebandit import checks
from mebandit.environments import Environment
from mebandit.environments.base import mean_rewards
from mebandit.estimation.estimate import estimates_of
from mebandit.estimation.history import History
from mebandit.estimation.methods import Options
from mebandit.estimation.moments import check_rounds
from mebandit.estimation.result import Estimate
from mebandit.policies import Policy
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.simulation.simulate import simulate_log
from mebandit.values import Floats, Stretch


@dataclass(frozen=True)
class Trials:
    """Estimates from N trials of the same kind, by M methods. NaN where θ is not identified."""

    methods: tuple[str, ...]
    horizon: int
    theta: Floats
    """(N, M, K, d)"""
    covariance: Floats
    """what each trial says of its own uncertainty, (N, M, K, d, K, d)"""
    df: Floats
    """degrees of freedom of the standard errors of θ, (N, M, K, d)"""
    contrast_df: Floats
    """those of θ_a - θ_b, (N, M, K, K, d)"""
    guarded: Floats
    """the share of actions with a stabilised estimate, (N, M)"""

    def arms(self, method: str) -> tuple[Floats, Floats, Floats]:
        """θ, its standard errors and their degrees of freedom, each (N, K, d)."""
        m = self._index(method)
        return self.theta[:, m], np.sqrt(np.einsum("nkiki->nki", self.covariance[:, m])), self.df[:, m]

    def contrast(self, method: str, a: int = 1, b: int = 0) -> tuple[Floats, Floats, Floats]:
        """θ_a - θ_b, its standard errors and their degrees of freedom, each (N, d)."""
        m = self._index(method)
        blocks = self.covariance[:, m]
        spread = blocks[:, a, :, a] + blocks[:, b, :, b] - blocks[:, a, :, b] - blocks[:, b, :, a]
        std_error = np.sqrt(np.maximum(np.einsum("nii->ni", spread), 0.0))
        return self.theta[:, m, a] - self.theta[:, m, b], std_error, self.contrast_df[:, m, a, b]

    def _index(self, method: str) -> int:
        return self.methods.index(checks.one_of("method", method, self.methods))


@dataclass(frozen=True)
class Constant:
    """A policy that does not learn: the same probabilities in all rounds, (K,)."""

    probabilities: Floats

    def log(self, environment: Environment, *, horizon: int, seed: int, replicate: int, cell: int) -> History:
        """What `simulate_log` would give, for the whole trial at once."""
        tape = environment.tape(Stretch(seed, cell, replicate, 0, horizon))
        t, k = np.arange(horizon), environment.n_actions
        actions = np.minimum(np.searchsorted(np.cumsum(self.probabilities), tape.uniform, side="right"), k - 1)
        rewards = (mean_rewards(tape) + tape.noise)[t, actions]
        pi = np.tile(self.probabilities, (horizon, 1))
        errors = tape.error_cov[tape.component % len(tape.error_cov)]
        return History(t + 1, tape.context + tape.error, errors, np.ones((horizon, k), dtype=np.bool_), actions, pi, rewards)


def run_trials(
    environment: Environment,
    policy: Policy | Constant,
    *,
    horizon: int,
    replicates: int,
    seed: int,
    cell: int = 0,
    methods: Sequence[str] = ("meb", "dr"),
    error_cov: Floats | None = None,
    workers: Workers = None,
    progress: Show = None,
) -> Trials:
    """Simulate `replicates` trials of `horizon` rounds and analyse each by every method, with Σe as given, or as each round reports it."""
    k, d, m = environment.n_actions, environment.dim, len(methods)
    theta, guarded = np.full((replicates, m, k, d), np.nan), np.full((replicates, m), np.nan)
    covariance = np.full((replicates, m, k, d, k, d), np.nan)
    df, contrast_df = np.full((replicates, m, k, d), np.nan), np.full((replicates, m, k, k, d), np.nan)
    play = partial(policy.log, environment) if isinstance(policy, Constant) else partial(simulate_log, environment, policy)

    def run(i: int) -> list[Estimate]:
        log = play(horizon=horizon, seed=seed, replicate=i, cell=cell)
        taken = log.propensities[np.arange(horizon), log.actions]
        errors = log.error_cov if error_cov is None else error_cov
        rounds = check_rounds(log.predicted, log.actions, log.rewards, taken, errors, n_actions=k)
        try:
            return list(estimates_of(rounds, k, methods, Options(), strict=False).values())
        except checks.SingularMoments:
            return []

    with hired(workers) as pool, progress_bar(replicates, f"trials of {horizon:,} rounds", progress) as done:
        for i, estimates in enumerate(pool.in_order(run, range(replicates), done)):
            for j, found in enumerate(estimates):
                theta[i, j], guarded[i, j] = found.theta, found.guarded.mean()
                covariance[i, j], df[i, j] = found.covariance.reshape(k, d, k, d), found.df
                contrast_df[i, j] = [[found.contrast(a, b).df for b in range(k)] for a in range(k)]
    return Trials(tuple(methods), horizon, theta, covariance, df, contrast_df, guarded)
