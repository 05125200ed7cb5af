"""Running sums: the memory from which every estimate is derived, of a learner and of a log.

A round with features z (the predicted context, after a leading 1 if there is an intercept), error covariance S and reward r is
one vector (1, z, zz', S, r, r², z r); the memory is its weighted sum, one row per arm. So adding a batch is the loop of adding
rounds, and merging two memories is addition.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.kernels import layout
from mebandit.values import Booleans, Floats, Integers

MOST_ACTIONS = 1 << 20
"""in a log"""


@lru_cache(maxsize=64)
def triangle(p: int) -> tuple[Integers, Integers]:
    """Rows and columns of a packed upper triangle."""
    return np.triu_indices(p)


def unpack(packed: Floats, p: int) -> Floats:
    """The symmetric (..., p, p) matrix behind a packed upper triangle."""
    full = np.zeros((*packed.shape[:-1], p, p))
    rows, columns = triangle(p)
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full


def order_of(packed: int) -> int:
    """p, from the p (p + 1) / 2 entries of a packed upper triangle."""
    return int((2 * packed) ** 0.5)


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
        return self.sums[: self.n_actions, layout.COUNT]

    @property
    def weight(self) -> Floats:
        """Σ w, (K,)"""
        return self.sums[: self.n_actions, layout.WEIGHT]

    @property
    def n_effective(self) -> Floats:
        """(Σ w)² / Σ w², the number of equally weighted rounds that carry the same information, (K,)"""
        squares = self.sums[: self.n_actions, layout.WEIGHT_SQ]
        return self.weight**2 / np.where(squares > 0, squares, 1.0)

    @property
    def cross(self) -> Floats:
        """Σ w z r, (K, p)"""
        return self.sums[: self.n_actions, layout.cross_at(self.n_features) :]

    @property
    def gram(self) -> Floats:
        """Σ w zz', (K, p, p)"""
        return unpack(self._packed(layout.gram_at)[: self.n_actions], self.n_features)

    @property
    def played_error(self) -> Floats:
        """Σ w Σe over the rounds in which each arm was played, (K, p, p)"""
        return unpack(self._packed(layout.error_at)[: self.n_actions], self.n_features)

    @property
    def offered_error(self) -> Floats:
        """Σ π^nd(a) Σe over the rounds in which each arm was allowed, (K, p, p)"""
        k = self.n_actions
        errors, alike = self._packed(layout.error_at), layout.alike_row(k)
        return unpack(errors[k:alike] + errors[alike], self.n_features)

    def check(self) -> None:
        """Refuse sums of a shape or type that compiled code cannot read, or that are not finite."""
        k, p = checks.integer("n_actions", self.n_actions, 1), checks.integer("n_features", self.n_features, 1)
        sums, shape = self.sums, (layout.context_row(k), layout.row_width(p))
        if not (type(sums) is np.ndarray and sums.dtype == np.float64 and sums.shape == shape):
            received = f"{sums.dtype} of shape {sums.shape}" if isinstance(sums, np.ndarray) else checks.shown(sums)
            checks.refuse("sums", f"be an array of float64 of shape {shape}", received)
        if not np.isfinite(sums).all():
            checks.refuse("sums", "be finite", checks.shown(sums[~np.isfinite(sums)][0]))

    def _packed(self, place: Callable[[int], int]) -> Floats:
        """The packed matrices that begin at a place of each row."""
        p = self.n_features
        return self.sums[:, place(p) : place(p) + layout.packed_size(p)]


def pack(full: Floats) -> Floats:
    """The upper triangle of symmetric (..., p, p) matrices, row by row."""
    rows, columns = triangle(full.shape[-1])
    return np.ascontiguousarray(full[..., rows, columns])


class Rounds(NamedTuple):
    """Checked arrays of rounds."""

    predicted: Floats
    """x̃, a row for each feature, then the columns of the baseline, (d + b, T): so that sums over rounds run through memory in order"""
    actions: Integers
    rewards: Floats
    propensities: Floats
    """of the chosen action, (T,)"""
    errors: Floats
    """Σe, packed, (T or 1, d (d + 1) / 2)"""
    allowed: Booleans
    """(T or 1, K)"""
    stabilizer: Floats
    """(T or 1, K)"""

    @property
    def context(self) -> "Rounds":
        """The rounds without the columns of the baseline."""
        d = order_of(self.errors.shape[1])
        return self if d == len(self.predicted) else self._replace(predicted=self.predicted[:d])

    def taken(self, rows: Integers) -> "Rounds":
        """Some of the rounds, in the order given.

        Args:
            rows: Their numbers, from 0.
        """
        n = self.rewards.size
        return Rounds(
            predicted=np.ascontiguousarray(self.predicted[:, rows]),
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            propensities=self.propensities[rows],
            errors=self.errors[rows] if len(self.errors) == n > 1 else self.errors,
            allowed=self.allowed[rows] if len(self.allowed) == n > 1 else self.allowed,
            stabilizer=self.stabilizer[rows] if len(self.stabilizer) == n > 1 else self.stabilizer,
        )


def check_rounds(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike,
    *,
    n_actions: int,
    stabilizer: ArrayLike | None = None,
) -> Rounds:
    """The rounds of a log as arrays, each checked against the others; see `mebandit.estimate` for the arguments."""
    n_actions = checks.integer("n_actions", n_actions, 1, MOST_ACTIONS)
    x = checks.floats("predicted", predicted, (None, None))
    n_rounds, d = x.shape
    if d == 0:
        checks.refuse("predicted", "have at least one feature", f"shape {x.shape}")
    a = checks.actions("actions", actions, n_actions, n_rounds)
    r = checks.floats("rewards", rewards, (n_rounds,))
    taken, mask = checks.propensities("propensities", propensities, a, n_actions)
    s = np.full((1, n_actions), 1.0 / n_actions)
    if stabilizer is not None:
        per_round = checks.regular("stabilizer", stabilizer).ndim == 2
        s = np.atleast_2d(checks.floats("stabilizer", stabilizer, (n_rounds, n_actions) if per_round else (n_actions,)))
    checks.stabilizer(s)
    errors = checks.covariances("error_cov", error_cov, d, n_rounds)
    errors = errors if len(errors) else np.zeros((1, d, d))
    return Rounds(np.ascontiguousarray(x.T), a, r, taken, pack(errors), mask, s)


class Crossproducts(NamedTuple):
    """The sums of a log from which θ follows by every method: Σ weight vv', v = (1, x̃, r), for every action, and Σ weight Σe,t.

    With a baseline, v = (1, x̃, s, r), s its columns; then `context` has the sums without them.

    With u_t = 1{a_t = a}/π_t(a) and c_t = π^nd_t(a) there are four weights: 1{a_t = a}, c u and c u² over the rounds in which a was
    taken, and c over those in which it was allowed. Two logs are merged by adding these up.
    """

    products: Floats
    """Σ weight vv', packed, (4, K, (d + 2)(d + 3) / 2)"""
    squares: Floats
    """Σ (c u)² and Σ c², (2, K)"""
    errors: Floats
    """Σ weight Σe,t for the weights 1{a_t = a}, c u and c, packed, (3, K, d (d + 1) / 2); zero where Σe is the same in all rounds"""

    @property
    def dim(self) -> int:
        """The number of features d, and of the columns of the baseline."""
        return order_of(self.products.shape[2]) - 2

    @property
    def context_dim(self) -> int:
        """The number of features d."""
        return order_of(self.errors.shape[2])

    @property
    def context(self) -> "Crossproducts":
        """The crossproducts without the columns of the baseline."""
        d = self.context_dim
        if d == self.dim:
            return self
        own = np.r_[: d + 1, self.dim + 1]
        return self._replace(products=pack(self.full[..., own[:, None], own]))

    @property
    def n_actions(self) -> int:
        """The number of actions K."""
        return int(self.products.shape[1])

    @property
    def full(self) -> Floats:
        """Σ weight vv', (4, K, d + 2, d + 2)"""
        return unpack(self.products, self.dim + 2)

    @property
    def rounds(self) -> Floats:
        """rounds in which each action was taken, (K,)"""
        return self.products[0, :, 0]

    def weighted_errors(self, error_cov: Floats | None) -> Floats:
        """Σ weight Σe for the weights 1{a_t = a}, c u and c, (3, K, d, d); `error_cov` is Σe, or None if it varies."""
        if error_cov is None:
            return unpack(self.errors, self.context_dim)
        return self.products[[0, 1, 3], :, 0][:, :, None, None] * error_cov

    def mean_error(self, error_cov: Floats | None) -> Floats:
        """Σe, averaged over all rounds, (d, d)"""
        return np.asarray(self.weighted_errors(error_cov)[0].sum(axis=0) / max(self.rounds.sum(), 1.0))

    @property
    def constant(self) -> Booleans:
        """which features have the same value in all rounds, other than 0, (d,)"""
        total = self.full[0].sum(axis=0) / max(self.rounds.sum(), 1.0)
        mean, square = total[0, 1:-1], np.diag(total)[1:-1]
        return np.asarray((square - mean**2 <= 1e-14 * square) & (mean != 0))

    @property
    def mean_and_cov(self) -> tuple[Floats, Floats]:
        """the mean and covariance of x̃, (d,) and (d, d); a variance that is 0 but for rounding is 0"""
        total = self.full[0].sum(axis=0) / max(self.rounds.sum(), 1.0)
        mean = total[0, 1:-1]
        cov = total[1:-1, 1:-1] - np.outer(mean, mean)
        moves = np.diag(cov) > 1e-14 * mean**2
        return mean, np.where(np.outer(moves, moves), cov, 0.0)

    def merge(self, other: "Crossproducts") -> "Crossproducts":
        """The crossproducts of both logs together: the sum."""
        return Crossproducts(*(a + b for a, b in zip(self, other, strict=True)))

    def mapped(self, matrix: Floats) -> "Crossproducts":
        """The crossproducts of matrix v in place of v, for a matrix (d + 2, d + 2) that keeps 1 and r; nothing else changes."""
        full, own = np.eye(self.dim + 2), np.r_[: len(matrix) - 1, self.dim + 1]
        full[np.ix_(own, own)] = matrix
        return self._replace(products=pack(full @ self.full @ full.T))


def crossproducts(rounds: Rounds, n_actions: int, *, varying: bool) -> Crossproducts:
    """The crossproducts of rounds of a log; `varying` tells whether Σe differs between rounds."""
    found = no_rounds(n_actions, order_of(rounds.errors.shape[1]), len(rounds.predicted))
    d, n = len(rounds.predicted), kernels.CHUNK
    begin, order = np.zeros(n_actions + 1, dtype=np.int64), np.empty(n, dtype=np.uint32)
    kernels.add_products(found.products, found.squares, rounds, kernels.Sorted(begin, order, np.ones((d + 2, n)), np.empty((2, n))))
    alike = len(rounds.allowed) == len(rounds.stabilizer) == 1
    if varying or not alike:
        kernels.add_offered(found.products, found.squares, found.errors, varying, rounds)
    if alike:
        c = rounds.stabilizer[0] * rounds.allowed[0]
        found.products[3] = c[:, None] * found.products[0].sum(axis=0)
        found.squares[1] = c**2 * found.rounds.sum()
    return found


def no_rounds(n_actions: int, dim: int, columns: int | None = None) -> Crossproducts:
    """The crossproducts of an empty log; with a baseline, `columns` counts its columns and the features."""
    sizes = [(p * (p + 1)) // 2 for p in ((dim if columns is None else columns) + 2, dim)]
    return Crossproducts(np.zeros((4, n_actions, sizes[0])), np.zeros((2, n_actions)), np.zeros((3, n_actions, sizes[1])))
