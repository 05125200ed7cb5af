"""The counterexamples of the paper, and an environment in which its assumptions hold."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import Drawn, unknown
from mebandit.values import Floats, Stretch, World


def _world(
    *,
    mean: Floats,
    probabilities: Floats,
    error_mean: Floats,
    error_factor: Floats,
    error_cov: Floats,
    theta: Floats,
    predictor: tuple[Floats, Floats] | None = None,
    error_kind: int = kernels.NORMAL,
    noise_kind: int = kernels.NORMAL,
    noise_sd: float = 0.0,
) -> World:
    """A world whose context has finitely many values, the rows of `mean`. `predictor` is (offset, gain) of E[x | x̃], if it is affine."""
    offset, gain = predictor if predictor is not None else unknown(mean.shape[1])
    return World(
        cumulative=np.cumsum(probabilities),
        mean=mean,
        factor=np.zeros((1, mean.shape[1], mean.shape[1])),
        error_mean=error_mean,
        error_factor=error_factor,
        random_context=False,
        random_error=bool(error_factor.any()),
        hold=1,
        context_kind=kernels.NORMAL,
        error_kind=error_kind,
        error_df=0.0,
        noise_kind=noise_kind,
        noise_sd=noise_sd,
        theta=theta,
        error_cov=error_cov,
        offset=offset,
        gain=gain,
        carry_index=-1,
        carry_decay=0.0,
        carry_gain=np.zeros(len(theta)),
    )


@dataclass(frozen=True, kw_only=True)
class Example21(Drawn):
    """Example 2.1: no policy can avoid linear regret. x = ±0.2 is seen as ±1, with the right sign in 60 % of the rounds.

    E[x̃ | x] = x, so the error is classical; its variance is 0.96. θ_1 = 1 and θ_0 = -1.
    """

    noise_sd: float = 0.1
    """standard deviation of the reward noise"""
    n_actions: ClassVar[int] = 2
    dim: ClassVar[int] = 1

    def __post_init__(self) -> None:
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        x = np.array([[0.2], [0.2], [-0.2], [-0.2]])
        seen = np.array([[1.0], [-1.0], [1.0], [-1.0]])
        return _world(
            mean=x,
            probabilities=np.array([0.3, 0.2, 0.2, 0.3]),
            error_mean=seen - x,
            error_factor=np.zeros((1, 1, 1)),
            error_cov=np.array([[[0.96]]]),
            theta=np.array([[-1.0], [1.0]]),
            predictor=(np.zeros((1, 1)), np.full((1, 1, 1), 0.04)),  # P(x = 0.2 | x̃ = 1) = 0.6
            noise_sd=self.noise_sd,
        )


@dataclass(frozen=True, kw_only=True)
class ExampleB1(Drawn):
    """Example B.1: UCB and Thompson sampling fail, although the error never changes which action is best.

    x is uniform on (1, 3), (-3, 1), (-1, -3), (3, -1). The error is ε = ±ρ x_1 (1, 1)' with equal probabilities. θ_1 = (1, 0) = -θ_0.
    The learner is told the overall covariance of the error, 5 ρ² 11'. The limit of least squares is rotated away from θ_1, not only
    attenuated.
    """

    rho: float = 0.9
    """size of the error, ρ in [0, 1)"""
    noise_sd: float = 0.1
    """standard deviation of the reward noise"""
    n_actions: ClassVar[int] = 2
    dim: ClassVar[int] = 2

    def __post_init__(self) -> None:
        checks.number("rho", self.rho, "be in [0, 1)", 0.0, 1 - 1e-12)
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        x = np.array([[1.0, 3.0], [-3.0, 1.0], [-1.0, -3.0], [3.0, -1.0]])
        return _proportional_error_world(x, self.rho, self.noise_sd)


@dataclass(frozen=True, kw_only=True)
class SmallError(Drawn):
    """An environment in which Assumptions 1 to 3 of the paper hold, and in which the best action is nearly undecided for some contexts.

    x is uniform on points evenly spaced on a circle, so that the smallest gap 2 |x_1| between the actions is nearly 0. The error is
    ε = ±ρ x_1 (1, 1)' with equal probabilities, so that |⟨δ, ε⟩| = ρ |⟨δ, x⟩|. θ_1 = (1, 0) = -θ_0. The largest |x̃| is 1.
    """

    contexts: int = 64
    """the number of points on the circle, at least 3"""
    rho: float = 0.5
    """size of the error, ρ in [0, 1)"""
    noise_sd: float = 0.1
    """standard deviation of the reward noise"""
    n_actions: ClassVar[int] = 2
    dim: ClassVar[int] = 2

    def __post_init__(self) -> None:
        checks.integer("contexts", self.contexts, 3, 10**6)
        checks.number("rho", self.rho, "be in [0, 1)", 0.0, 1 - 1e-12)
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        angle = 2 * np.pi * (np.arange(self.contexts) + 0.25) / self.contexts
        x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        seen = np.concatenate([x + sign * self.rho * x[:, :1] for sign in (-1, 1)])
        return _proportional_error_world(x / np.linalg.norm(seen, axis=1).max(), self.rho, self.noise_sd)


def _proportional_error_world(x: Floats, rho: float, noise_sd: float) -> World:
    """A world whose contexts are drawn from the rows of x; ε = ±ρ x_1 (1, 1)'; θ_1 = (1, 0) = -θ_0; Σe = ρ² E[x_1²] 11' overall."""
    factor = np.zeros((len(x), 2, 2))
    factor[:, :, 0] = rho * x[:, :1]
    return _world(
        mean=x,
        probabilities=np.full(len(x), 1 / len(x)),
        error_mean=np.zeros((1, 2)),
        error_factor=factor,
        error_cov=np.full((1, 2, 2), rho**2 * float((x[:, 0] ** 2).mean())),
        theta=np.array([[-1.0, 0.0], [1.0, 0.0]]),
        error_kind=kernels.TWO_POINT,
        noise_sd=noise_sd,
    )


@dataclass(frozen=True, kw_only=True)
class ExampleB2(Drawn):
    """Example B.2: the textbook correction is biased, even under a fixed policy. x = 1, ε ~ U(-2, 2), θ_1 = 1 = -θ_0, η ~ U(-0.1, 0.1).

    Under the policy that takes action 1 with probability 2/3 where x̃ > ρ and 1/3 elsewhere, the textbook estimate of θ_0 tends
    to -1.5 (ρ² + 7) / (ρ³ - 4ρ + 9), and the estimate of MEB to the true -1.
    """

    n_actions: ClassVar[int] = 2
    dim: ClassVar[int] = 1

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        return _world(
            mean=np.ones((1, 1)),
            probabilities=np.ones(1),
            error_mean=np.zeros((1, 1)),
            error_factor=np.full((1, 1, 1), 2 / np.sqrt(3)),
            error_cov=np.full((1, 1, 1), 4 / 3),
            theta=np.array([[-1.0], [1.0]]),
            predictor=(np.ones((1, 1)), np.zeros((1, 1, 1))),
            error_kind=kernels.UNIFORM_NOISE,
            noise_kind=kernels.UNIFORM_NOISE,
            noise_sd=0.1 / np.sqrt(3),
        )
