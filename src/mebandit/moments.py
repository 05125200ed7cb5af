"""Running sums: the memory from which every estimate is derived.

A round with features z (the predicted context, after a leading 1 if there is an intercept), error covariance S and reward r is
one vector (1, z, zz', S, r, r², z r); the memory is its weighted sum, one row per arm. So adding a batch is the loop of adding
rounds, and merging two memories is addition.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import _kernels, checks
from mebandit.values import Booleans, Floats, Integers


def unpack(packed: Floats, p: int) -> Floats:
    """The symmetric (..., p, p) matrix behind a packed upper triangle."""
    full = np.zeros((*packed.shape[:-1], p, p))
    rows, columns = np.triu_indices(p)
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full


class Moments(NamedTuple):
    """Running sums with names: `sums` holds K rows for the arms as played, K as offered, and one for all arms alike.

    w is 1 (least squares, the naive correction) or π^nd(a)/π(a) (the paper's estimator).
    """

    sums: Floats
    n_actions: int
    n_features: int

    @property
    def rounds(self) -> Floats:
        """rounds in which each arm was played, (K,)"""
        return self.sums[: self.n_actions, _kernels.COUNT]

    @property
    def weight(self) -> Floats:
        """Σ w, (K,)"""
        return self.sums[: self.n_actions, _kernels.WEIGHT]

    @property
    def n_effective(self) -> Floats:
        """(Σ w)² / Σ w², the number of equally weighted rounds that carry the same information, (K,)"""
        squares = self.sums[: self.n_actions, _kernels.WEIGHT_SQ]
        return self.weight**2 / np.where(squares > 0, squares, 1.0)

    @property
    def cross(self) -> Floats:
        """Σ w z r, (K, p)"""
        return self.sums[: self.n_actions, -self.n_features :]

    @property
    def gram(self) -> Floats:
        """Σ w zz', (K, p, p)"""
        return unpack(self._packed(0)[: self.n_actions], self.n_features)

    @property
    def played_error(self) -> Floats:
        """Σ w Σe over the rounds in which each arm was played, (K, p, p)"""
        return unpack(self._packed(1)[: self.n_actions], self.n_features)

    @property
    def offered_error(self) -> Floats:
        """Σ π^nd(a) Σe over the rounds in which each arm was allowed, (K, p, p)"""
        k = self.n_actions
        return unpack(self._packed(1)[k : 2 * k] + self._packed(1)[2 * k], self.n_features)

    def _packed(self, block: int) -> Floats:
        p = self.n_features
        start, size = _kernels.TERMS + p, p * (p + 1) // 2
        return self.sums[:, start + block * size : start + (block + 1) * size]


def zeros(n_actions: int, n_features: int) -> Moments:
    """The memory before any round."""
    return Moments(np.zeros((2 * n_actions + 1, _kernels.row_width(n_features))), n_actions, n_features)


def merge(first: Moments, second: Moments) -> Moments:
    """The memory of both sets of rounds together: the sum."""
    if first.sums.shape != second.sums.shape:
        checks.refuse("moments to merge", f"be of one shape, {first.sums.shape}", second.sums.shape)
    return first._replace(sums=first.sums + second.sums)


class Rounds(NamedTuple):
    """Checked arrays of rounds."""

    predicted: Floats
    actions: Integers
    rewards: Floats
    propensities: Floats
    """of the chosen action, (T,)"""
    error_cov: Floats
    """(T or 1, d, d)"""
    allowed: Booleans
    """(T or 1, K)"""
    stabilizer: Floats
    """(T or 1, K)"""


def check_rounds(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike,
    *,
    n_actions: int,
    allowed: ArrayLike | None = None,
    stabilizer: ArrayLike | None = None,
) -> Rounds:
    """The rounds of a log as arrays, each checked against the others. `allowed` is read off (T, K) propensities where not given."""
    n_actions = checks.integer("n_actions", n_actions, 2)
    x = checks.floats("predicted", predicted, (None, None))
    n_rounds, d = x.shape
    if d == 0:
        checks.refuse("predicted", "have at least one feature", f"shape {x.shape}")
    a = checks.actions("actions", actions, n_actions, n_rounds)
    r = checks.floats("rewards", rewards, (n_rounds,))
    taken, mask = checks.propensities("propensities", propensities, a, n_actions)
    if allowed is not None:
        try:
            given = np.asarray(allowed)
        except ValueError:
            checks.refuse("allowed", "be a regular array of booleans", checks.shown(allowed))
        if given.dtype != np.bool_:
            checks.refuse("allowed", "be booleans", f"an array of {given.dtype}")
        mask = np.ascontiguousarray(np.atleast_2d(given))
        if mask.shape not in ((1, n_actions), (n_rounds, n_actions)):
            checks.refuse("allowed", f"have shape ({n_actions},) or ({n_rounds}, {n_actions})", f"shape {np.shape(allowed)}")
        if not mask[np.arange(n_rounds) % len(mask), a].all():
            t = int(np.argmin(mask[np.arange(n_rounds) % len(mask), a]))
            checks.refuse("actions", "be allowed where they were taken", f"action {a[t]}, not allowed, at [{t}]")
    s = np.full((1, n_actions), 1.0 / n_actions)
    if stabilizer is not None:
        per_round = checks.regular("stabilizer", stabilizer).ndim == 2
        s = np.atleast_2d(checks.floats("stabilizer", stabilizer, (n_rounds, n_actions) if per_round else (n_actions,)))
    if not (s > 0).all():
        checks.refuse("stabilizer", "be positive", checks.shown(s[(s <= 0).any(axis=1)][0]), "It is a policy that may take every action.")
    return Rounds(x, a, r, taken, checks.covariances("error_cov", error_cov, d, n_rounds), mask, s)


def add_rounds(moments: Moments, rounds: Rounds, *, weighting: int, correction: int) -> Moments:
    """The memory after these rounds too; `weighting` and `correction` as in a policy's recipe. The one given is left as it is."""
    intercept = moments.n_features - rounds.predicted.shape[1]
    spec = np.zeros(6, dtype=np.int64)
    spec[[_kernels.N_ACTIONS, _kernels.INTERCEPT]] = moments.n_actions, intercept
    spec[[_kernels.WEIGHTING, _kernels.CORRECTION]] = weighting, correction
    sums = moments.sums.copy()
    _kernels.accumulate_batch(
        spec,
        rounds.stabilizer,
        sums,
        rounds.predicted,
        rounds.error_cov,
        rounds.allowed,
        rounds.actions,
        rounds.propensities,
        rounds.rewards,
    )
    return moments._replace(sums=sums)
