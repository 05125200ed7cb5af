"""Environments in which the learner is told a wrong error covariance, or one that is estimated."""

from dataclasses import dataclass

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import Wrapped, square_root, tape_of
from mebandit.values import Floats, Stretch, Tape


@dataclass(frozen=True, kw_only=True)
class Misreported(Wrapped):
    """An environment in which the learner is told `factor` times the true error covariance."""

    factor: float
    """at least 0; 1 is the truth"""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("factor", self.factor, "be a number of at least 0", 0.0)

    def reported(self, error_cov: Floats) -> Floats:
        """The error covariances that the learner is told, (C, d, d).

        Args:
            error_cov: The true error covariances, (C, d, d).
        """
        return checks.covariances("factor times the error covariance", self.factor * error_cov, self.dim, len(error_cov))

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        return tape._replace(error_cov=self.reported(tape.error_cov))


MOST_PAIRS = 10**6
"""auxiliary pairs at the start, at most: all of them are drawn for every tape"""


@dataclass(frozen=True, kw_only=True)
class Estimated(Wrapped):
    """An environment in which the learner is told an estimate of the error covariance, from auxiliary data that grows (Section 2.4).

    The auxiliary data are n_t pairs (prediction, truth) in round t. Their errors e_i are normal with the true covariance. The learner is
    told Σ̂e,t = (1/n_t) Σ_{i <= n_t} e_i e_i'.
    """

    start: int = 20
    """the number of pairs before the first round"""
    every: int | None = 10
    """the number of rounds after which one pair is added; None: none is added"""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("start", self.start, 1, MOST_PAIRS)
        if self.every is not None:
            checks.integer("every", self.every, 1)

    def pairs_at(self, time: int) -> int:
        """n_t, the number of auxiliary pairs in round `time`."""
        return self.start + (time // self.every if self.every is not None else 0)

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        first, last = self.pairs_at(stretch.start + 1), self.pairs_at(stretch.stop)
        z = np.empty((last, self.dim))
        kernels.fill_normals(stretch.seed, stretch.cell, stretch.replicate, kernels.AUXILIARY, z)
        products = np.cumsum(z[:, :, None] * z[:, None, :], axis=0)[first - 1 :]
        scatter = products / np.arange(first, last + 1)[:, None, None]  # estimates the identity, pair after pair
        times = np.arange(stretch.start + 1, stretch.stop + 1)
        known = np.array([self.pairs_at(int(t)) - first for t in times], dtype=np.int64)
        level = tape.component % len(tape.error_cov)
        pieces, component = np.unique(np.stack([level, known]), axis=1, return_inverse=True)
        roots = np.stack([square_root(s) for s in tape.error_cov])[pieces[0]]
        error_cov = roots @ scatter[pieces[1]] @ roots.transpose(0, 2, 1)
        return tape._replace(error_cov=np.ascontiguousarray(error_cov), component=component.astype(np.int64).ravel())
