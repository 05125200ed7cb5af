"""Random contexts with additive error: the paper's synthetic environment, and variations of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import CONTEXTS, ERRORS, LAST, Drawn, square_root, unknown
from mebandit.values import Floats, Stretch, World

Matrix = Any
"""nested tuples of numbers, or anything numpy reads as such; stored as tuples"""


def as_tuples(array: Floats) -> Any:
    """An array as nested tuples of numbers."""
    return tuple(as_tuples(row) for row in array) if array.ndim else float(array)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Drawn):
    """Random contexts, seen with additive error: x_t ~ N(mean, cov), x̃_t = x_t + ε_t, r_t = ⟨θ_a, x_t⟩ + N(0, noise_sd²).

    The error is ε_t = Σe^(1/2) ζ_t, where the coordinates of ζ_t are independent with mean 0 and variance 1. The defaults are the synthetic
    environment of the paper (Section 3.1).
    """

    theta: Matrix = ((5.0, 6.0, 4.0, 6.0, 4.0), (6.0, 5.0, 5.0, 5.0, 5.0))
    """reward parameters θ, a row for each action, (K, d)"""
    mean: Matrix = 1.0
    """mean of the context: a number, or (d,); or a mean for each of the L error covariances, (L, d), for groups that differ in both"""
    cov: Matrix = 1.0
    """covariance of the context: a number (times I), variances (d,), or (d, d)"""
    error_cov: Matrix = 0.25
    """covariance Σe of the error: a number (times I), variances (d,), or (d, d); or L covariances, (L, d, d), of which every round has one,
    drawn with equal probabilities, and the learner is told which"""
    noise_sd: float = 0.1
    """standard deviation of the reward noise"""
    error: str = "normal"
    """distribution of ζ_t: "normal", "student_t", "uniform", "bounded" (±1) or "exponential" (skewed)"""
    error_df: float = 5.0
    """degrees of freedom of "student_t" errors, above 2"""
    context: str = "normal"
    """distribution of the context: "normal", or "exponential" (skewed, with the same mean and covariance)"""
    hold: int = 1
    """the number of rounds for which one of the L error covariances stays"""

    def __post_init__(self) -> None:
        theta = checks.floats("theta", self.theta, (None, None))
        checks.integer("the number of rows of theta", theta.shape[0], 2)
        d = theta.shape[1]
        for name in ("mean", "error_cov"):
            checks.regular(name, getattr(self, name))
        mean = self.mean if np.ndim(self.mean) else np.full(d, checks.number("mean", self.mean))
        errors = self.error_cov
        if np.ndim(errors) == 3:
            errors = checks.covariances("error_cov", errors, d, len(errors))
        else:
            errors = checks.covariance("error_cov", errors, d)[None]
        checks.one_of("error", self.error, ERRORS)
        checks.one_of("context", self.context, CONTEXTS)
        checks.integer("hold", self.hold, 1, LAST)
        checks.number("error_df", self.error_df, "be above 2, for the error to have a variance", 2.000001)
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)
        for name, value in {
            "theta": theta,
            "mean": checks.floats("mean", mean, (d,) if np.ndim(mean) < 2 else (len(errors), d)),
            "cov": checks.covariance("cov", self.cov, d),
            "error_cov": errors if len(errors) > 1 else errors[0],
        }.items():
            object.__setattr__(self, name, as_tuples(value))

    @property
    def n_actions(self) -> int:
        """The number of actions, K."""
        return len(self.theta)

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return len(self.theta[0])

    @cached_property
    def _error_covs(self) -> Floats:
        return np.array(self.error_cov).reshape(-1, self.dim, self.dim)

    @cached_property
    def _world(self) -> World:
        levels = len(self._error_covs)
        mean, gain = np.broadcast_to(np.array(self.mean), (levels, self.dim)), self._gains
        return World(
            cumulative=np.arange(1, levels + 1) / levels,
            mean=mean.copy(),
            factor=square_root(np.array(self.cov))[None],
            error_mean=np.zeros((1, self.dim)),
            error_factor=np.stack([square_root(s) for s in self._error_covs]),
            random_context=True,
            random_error=True,
            hold=self.hold,
            context_kind=CONTEXTS[self.context],
            error_kind=ERRORS[self.error],
            error_df=float(self.error_df),
            noise_kind=kernels.NORMAL,
            noise_sd=float(self.noise_sd),
            theta=np.array(self.theta),
            error_cov=self._error_covs,
            offset=mean - np.einsum("lij,lj->li", gain, mean) if len(gain) else unknown(self.dim)[0],
            gain=gain,
            carry_index=-1,
            carry_decay=0.0,
            carry_gain=np.zeros(self.n_actions),
        )

    @cached_property
    def _gains(self) -> Floats:
        """G = Sx (Sx + Σe)^-1 for every error level: E[x | x̃] = mean + G (x̃ - mean) where both are normal, and the mean is known."""
        if self.error != "normal" or self.context != "normal" or np.ndim(self.mean) == 2:
            return unknown(self.dim)[1]
        cov = np.array(self.cov)
        return np.stack([cov @ np.linalg.pinv(cov + s, hermitian=True) for s in self._error_covs])

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        return self._world
