"""Environments that break the model: rewards that are not linear, errors that are not classical, or not independent of earlier ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import Wrapped, mean_rewards, tape_of
from mebandit.environments.gaussian import as_tuples
from mebandit.values import Floats, Stretch, Tape


@dataclass(frozen=True, kw_only=True)
class Nonlinear(Wrapped):
    """An environment whose mean reward is not ⟨θ_a, x⟩, or whose rewards are 0 or 1.

        m_a(x) = c_a + ⟨θ_a, x⟩ + Σ_i Q_ai x_i²,     r = m_a(x) + η,     or binary: P(r = 1) = 1 / (1 + exp(-m_a(x)))

    The oracles of a simulation know θ alone, so they are no reference here.
    """

    offset: Any = 0.0
    """c, an intercept for each action: a number, or (K,)"""
    quadratic: Any = 0.0
    """Q, the effects of the squared features: a number, or (K, d)"""
    binary: bool = False
    """whether rewards are 0 or 1; `noise_sd` of the world then has no meaning"""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "binary", checks.truth("binary", self.binary))
        for name, shape in (("offset", (self.n_actions,)), ("quadratic", (self.n_actions, self.dim))):
            object.__setattr__(self, name, as_tuples(checks.filled(name, getattr(self, name), shape)))

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        if tape.carry_index >= 0:
            checks.refuse("world", "be an environment in which past actions do not change the context", checks.shown(self.world))
        means = mean_rewards(tape) + np.array(self.offset) + tape.context**2 @ np.array(self.quadratic).T
        if not self.binary:
            return tape._replace(mean_reward=means)
        chances = 1 / (1 + np.exp(-np.clip(means, -700, 700)))
        uniform, _ = own_uniforms(stretch)
        return tape._replace(mean_reward=chances, noise=(uniform[:, None] < chances) - chances)


@dataclass(frozen=True, kw_only=True)
class Berkson(Wrapped):
    """An environment with Berkson error: the context of `world` is the prediction, and its error is added to make the truth.

        x̃ = the context of `world`,     x = x̃ + ε,     so E[x | x̃] = x̃

    The learner is told the covariance of ε, as if the error were classical.
    """

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        return tape._replace(context=tape.context + tape.error, error=-tape.error, guess=tape.context)


@dataclass(frozen=True, kw_only=True)
class Autocorrelated(Wrapped):
    """An environment whose errors, or contexts, depend on those of the rounds before: a first-order autoregression.

        e_1 = ε_1,     e_t = φ e_{t-1} + sqrt(1 - φ²) ε_t

    ε_t is the error of `world`, and e_t takes its place; with one error covariance, e_t has the same. Likewise for the deviation of the
    context from `mean`.
    """

    error: float = 0.0
    """φ of the errors, in (-1, 1)"""
    context: float = 0.0
    """φ of the contexts, in (-1, 1)"""
    mean: Any = 0.0
    """mean of the context: a number, or (d,)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("error", "context"):
            limit = 1 - 1e-9
            object.__setattr__(self, name, checks.number(name, getattr(self, name), "be in (-1, 1)", -limit, limit))
        object.__setattr__(self, "mean", as_tuples(checks.filled("mean", self.mean, (self.dim,))))

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        whole = tape_of(self.world, stretch._replace(start=0)) if stretch.start else tape
        own, mean = slice(stretch.start, None), np.array(self.mean)
        context, error = tape.context, tape.error
        if self.context:
            context = mean + autoregression(self.context, whole.context - mean)[own]
        if self.error:
            error = autoregression(self.error, whole.error)[own]
        return tape._replace(context=context, error=error, guess=np.full((1, self.dim), np.nan))


def autoregression(phi: float, shocks: Floats) -> Floats:
    """e_1 = ε_1, e_t = φ e_{t-1} + sqrt(1 - φ²) ε_t, for shocks ε of shape (T, d).

    In blocks that double: after the step with lag h, e_t is the sum over the last 2h shocks, Σ_{j < 2h} φ^j s_{t-j}.
    """
    sums: Floats = np.sqrt(1 - phi * phi) * shocks
    sums[:1] = shocks[:1]
    lag = 1
    while lag < len(sums):
        sums[lag:] = sums[lag:] + phi**lag * sums[:-lag]
        lag *= 2
    return sums


def own_uniforms(stretch: Stretch) -> tuple[Floats, Floats]:
    """Two uniform random numbers for each round of a stretch, that nothing else uses."""
    n = stretch.stop - stretch.start
    first, second = np.empty(n), np.empty(n)
    kernels.write_uniforms((stretch.seed, stretch.cell, stretch.replicate), stretch.start + 1, kernels.USER, first, second)
    return first, second
