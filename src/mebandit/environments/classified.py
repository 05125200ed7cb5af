"""Environments whose contexts are classes, which a classifier mistakes for each other."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import Drawn, unknown
from mebandit.environments.gaussian import as_tuples
from mebandit.values import Floats, Stretch, World


@dataclass(frozen=True, kw_only=True)
class Misclassified(Drawn):
    """A class c with probability p_c, seen as class s with probability M_cs; the features are the unbiased predictions of the classes.

    x is the indicator vector of the class, x̃ = M'⁻¹ (indicator vector of the class seen), so that E[x̃ | x] = x. The learner is told the
    mean of Var(x̃ | x) over the classes, as `measurement.from_confusion` estimates it. With `reference`, the first class has no column, and
    a constant feature takes its place.
    """

    confusion: Any
    """M, a row for each true class that sums to 1, (C, C), invertible"""
    probabilities: Any = None
    """p, (C,); None: all classes are equally likely"""
    theta: Any
    """reward parameters θ, a row for each action: (K, C)"""
    reference: bool = False
    """whether the features are a constant and the indicators of all classes but the first"""
    noise_sd: float = 0.5
    """standard deviation of the reward noise"""

    def __post_init__(self) -> None:
        m = checks.floats("confusion", self.confusion, (None, None))
        c = checks.integer("the number of classes", len(m), 2)
        p = checks.floats("probabilities", np.full(c, 1 / c) if self.probabilities is None else self.probabilities, (c,))
        for name, rows in (("confusion", m), ("probabilities", p[None])):
            if rows.shape[1] != c or (rows < 0).any() or (np.abs(rows.sum(axis=1) - 1) > 1e-9).any():
                checks.refuse(name, f"have {c} probabilities that sum to 1 in each row", checks.shown(rows))
        if np.linalg.cond(m) > 1e6:
            checks.refuse("confusion", "be invertible: a class must be told from the others", checks.shown(m))
        theta = checks.floats("theta", self.theta, (None, c))
        checks.integer("the number of rows of theta", len(theta), 2)
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)
        object.__setattr__(self, "reference", checks.truth("reference", self.reference))
        for name, value in {"confusion": m, "probabilities": p, "theta": theta}.items():
            object.__setattr__(self, name, as_tuples(value))

    @property
    def n_actions(self) -> int:
        """The number of actions, K."""
        return len(self.theta)

    @property
    def dim(self) -> int:
        """The number of features, d = C."""
        return len(self.theta[0])

    @cached_property
    def _world(self) -> World:
        m, p = np.array(self.confusion), np.array(self.probabilities)
        c = len(m)
        true, seen = (index.ravel() for index in np.indices((c, c)))
        truths, guesses = np.eye(c), np.linalg.inv(m)  # row s of M'⁻¹' = M⁻¹ is the prediction from the seen class s
        if self.reference:
            truths, guesses = (np.column_stack([np.ones(c), rows[:, 1:]]) for rows in (truths, guesses))
        errors = guesses[seen] - truths[true]
        weights = (p[:, None] * m).ravel()
        joint = (p[:, None] * m).T  # P(class, seen), a row for each class seen
        return World(
            cumulative=np.cumsum(weights),
            mean=truths[true],
            factor=np.zeros((1, c, c)),
            error_mean=errors,
            error_factor=np.zeros((1, c, c)),
            random_context=False,
            random_error=False,
            hold=1,
            context_kind=kernels.NORMAL,
            error_kind=kernels.NORMAL,
            error_df=0.0,
            noise_kind=kernels.NORMAL,
            noise_sd=float(self.noise_sd),
            theta=np.array(self.theta),
            error_cov=np.einsum("n,ni,nj->ij", weights, errors, errors)[None],
            **self._predictor(joint, truths, guesses),
            carry_index=-1,
            carry_decay=0.0,
            carry_gain=np.zeros(self.n_actions),
        )

    def _predictor(self, joint: Floats, truths: Floats, guesses: Floats) -> dict[str, Floats]:
        """E[x | x̃] = gain x̃, which maps the prediction from each class seen to the mean of the truths behind it."""
        if (joint.sum(axis=1) == 0).any():
            offset, gain = unknown(len(joint))
            return {"offset": offset, "gain": gain}
        means = joint / joint.sum(axis=1, keepdims=True) @ truths
        gain = np.linalg.solve(guesses, means).T
        components = len(joint) ** 2
        return {"offset": np.zeros((components, len(joint))), "gain": np.tile(gain, (components, 1, 1))}

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: the same for every `stretch`."""
        return self._world
