"""Standard errors from one time through a log: where Σe is one for all rounds, sums of products of four say all that scores would.

Let v = (1, x̃, r), q its products v_i v_j, i ≤ j, and u = 1/π the inverse probability of the action that was taken. What every method sums
over the rounds, ψ (see `mebandit.estimators.Scores`), is then quadratic in v and linear in u: B q, to which (C_0 + u C_1) q comes for the
action that was taken. So Σ ψψ' follows from these coefficients and sums by action, for example

    Σ (C_0 + u C_1) qq' (C_0 + u C_1)' = C_0 Q_0 C_0' + C_0 Q_1 C_1' + C_1 Q_1 C_0' + C_1 Q_2 C_1',    Q_m = Σ_{a_t = a} u^m qq',

and B and C, with θ in them, are not needed before the rounds are over. The number of sums grows like d⁴: this pays for few features. Where
ψ is small beside its terms, as for features far from 0 beside their spread or rewards that are nearly a function of them, digits are lost;
how many at most is known, and beyond that the scores have to be summed themselves.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mebandit import _kernels
from mebandit.correction import Correction
from mebandit.estimators import Scores, Solution
from mebandit.moments import Crossproducts, Rounds, pack, triangle, unpack
from mebandit.values import Floats, Integers

MOST_FEATURES = 10
"""beyond which scores, and with them a second time through the log, are faster"""

MOST_SUMS = 1 << 20
"""K (size of q)², for each power of u: eight megabytes"""

ROUNDING = 1e-15
"""of a sum over a log, as a share of √(Σ q_i² Σ q_j²)"""

LOST = 1e-5
"""the relative error of a variance from rounding beyond which scores are needed"""

SIZES = 1e-90, 1e90
"""between which mean squares must be, for products of four to have all their digits"""


class FourthMoments(NamedTuple):
    """Q_0, Q_1 and Q_2 by action; those of two logs are merged by adding up."""

    sums: Floats
    """every product of four once, at the pair of its smaller and that of its larger indices, (K, 3, size of q, size of q)"""
    odds: Floats
    """Σ q / (u - 1), of rounds in which one of two actions was taken the variance of the other's inverse probability, (K, size of q)"""

    @property
    def rounds(self) -> Floats:
        """rounds in which each action was taken, (K,)"""
        return self.sums[:, 0, 0, 0]

    def add(self, rounds: Rounds, begin: int, end: int) -> "Levels":
        """Take some of the rounds in."""
        n_actions = len(self.sums)
        room = max(_kernels.CLASSES // n_actions, 1)  # for one, there are no more classes than actions
        propensities, counts = np.empty(room), np.empty((room, n_actions))
        n, counted = _kernels.add_fourth_moments(*self, propensities, counts, begin, end, rounds)
        return Levels(propensities[:n], counts[:n], counted)

    def merge(self, other: "FourthMoments") -> "FourthMoments":
        return FourthMoments(self.sums + other.sums, self.odds + other.odds)

    @property
    def products(self) -> Crossproducts:
        """Those of the log, for π^nd = 1/K: q has a 1 in the first place, and its products with all of q are the second moments."""
        k, d = len(self.sums), int((2 * self.sums.shape[2]) ** 0.5) - 2
        once, c = np.moveaxis(self.sums[:, :, 0], 1, 0), 1.0 / k
        offered = np.broadcast_to(c * once[0].sum(axis=0), once[0].shape)
        squares = c * c * np.stack([once[2, :, 0], np.full(k, once[0, :, 0].sum())])
        return Crossproducts(np.stack([once[0], c * once[1], c * once[2], offered]), squares, np.zeros((3, k, d * (d + 1) // 2)))

    @property
    def second(self) -> Floats:
        """Σ zz' over all actions, z = (1, x̃), packed"""
        return np.asarray(self.sums[:, 0, 0, _without_reward(self.sums.shape[2])].sum(axis=0))

    @property
    def chance(self) -> Floats:
        """Of two actions: Σ (1/π(a) - 1) zz' over all rounds, packed, (2, ...)"""
        own = self.sums[:, 1, 0] - self.sums[:, 0, 0]
        return (own + self.odds[::-1])[:, _without_reward(self.sums.shape[2])]

    def powers(self, y: Floats) -> Floats:
        """Σ (y_i'v)³ and Σ (y_i'v)⁴ over all actions, for every row y_i, (2, rows of y)."""
        Q, one = self.sums[:, 0].sum(axis=0)[_places(y.shape[1])], np.eye(y.shape[1])[0]
        first, second = _products(y, one), np.vstack([_products(row[None], row) for row in y])
        return np.stack([np.einsum("im,mn,in->i", first, Q, second), np.einsum("im,mn,in->i", second, Q, second)])

    def scores(self, solution: Solution, correction: Correction) -> Scores | None:
        """Σ ψψ' of every method; None where rounding may have spoilt the standard errors.

        A sum Σ q_i q_j is right to a few units in the last place of √(Σ q_i² Σ q_j²). So is A^-1 Σ ψψ' A^-T of what these make with
        |A^-1 C|, A the matrix that was solved with.
        """
        squares = np.diagonal(self.products.full[0].sum(axis=0)) / max(self.rounds.sum(), 1.0)
        if not ((squares == 0) | ((squares > SIZES[0]) & (squares < SIZES[1]))).all():
            return None
        found, Q = solution.no_scores(), self.sums[:, :, *_places(len(squares))]
        size = np.sqrt(np.maximum(np.diagonal(Q, axis1=2, axis2=3), 0.0))
        for g, (meat, fit) in enumerate(zip(found.meat, solution.fits.values(), strict=True)):
            B, C = _coefficients(solution, g, correction)
            k, p, _ = B.shape
            flat = B.reshape(k * p, -1)
            meat += flat @ Q[:, 0].sum(axis=0) @ flat.T
            for a, (Qa, (C0, C1)) in enumerate(zip(Q, C, strict=True)):
                own = slice(a * p, (a + 1) * p)
                crossed = flat @ (Qa[0] @ C0.T + Qa[1] @ C1.T)
                meat[:, own] += crossed
                meat[own] += crossed.T
                crossed = C0 @ Qa[1] @ C1.T
                meat[own, own] += C0 @ Qa[0] @ C0.T + crossed + crossed.T + C1 @ Qa[2] @ C1.T
            for a, inverse in fit.inverses.items():
                own = slice(a * p, (a + 1) * p)
                taken = np.abs(inverse @ (B[a] + C[a, 0])) @ size[a, 0] + np.abs(inverse @ C[a, 1]) @ size[a, 2]
                others = np.abs(inverse @ B[a]) @ np.delete(size[:, 0], a, axis=0).T
                variance = np.diag(inverse @ meat[own, own] @ inverse.T)
                if not (ROUNDING * (taken**2 + (others**2).sum(axis=1)) <= LOST * variance).all():
                    return None
        return found


class Levels(NamedTuple):
    """The first rounds of some, as long as their propensities have few different values."""

    propensities: Floats
    """these values"""
    counts: Floats
    """rounds by value and action, (values, K)"""
    end: int
    """the first round that was not counted"""

    @property
    def rounds(self) -> tuple[Integers, Floats, Floats]:
        """Actions, the propensities they were taken with, and in how many rounds."""
        level, action = np.nonzero(self.counts)
        return action, self.propensities[level], self.counts[level, action]


def are_few(n_actions: int, d: int) -> bool:
    """Whether fourth moments are worth their time and room."""
    return d <= MOST_FEATURES and n_actions * ((d + 2) * (d + 3) // 2) ** 2 <= MOST_SUMS


def no_fourth_moments(n_actions: int, d: int) -> FourthMoments:
    """Those of an empty log."""
    size = (d + 2) * (d + 3) // 2
    return FourthMoments(np.zeros((n_actions, 3, size, size)), np.zeros((n_actions, size)))


@lru_cache(maxsize=16)
def _places(width: int) -> tuple[Integers, Integers]:
    """Where `FourthMoments.sums` has q_i q_j, for all i and j; where r would come more than twice, that is zero."""
    pairs = np.stack(triangle(width), axis=1)
    place = unpack(np.arange(len(pairs), dtype=np.float64), width).astype(np.int64)
    four = np.sort(np.concatenate(np.broadcast_arrays(pairs[:, None], pairs), axis=2), axis=2)
    return place[four[..., 0], four[..., 1]], place[four[..., 2], four[..., 3]]


@lru_cache(maxsize=16)
def _without_reward(size: int) -> Integers:
    """Where q of so many products has those of 1 and x̃."""
    width = int((2 * size) ** 0.5)
    return np.flatnonzero(triangle(width)[1] < width - 1)


def _coefficients(solution: Solution, g: int, correction: Correction) -> tuple[Floats, Floats]:
    """What method g makes of q in every round, B, (K, p, size of q), and beside it for the action that was taken, C_0 and C_1,
    (K, 2, p, size of q); see `_kernels.add_scores` for ψ."""
    scoring, first = solution.scoring, int(not solution.options.intercept)
    k, p = scoring.theta.shape[1:]
    z, r, c, Σ = correction.unbiasing[:-1], correction.unbiasing[-1], 1.0 / k, correction.mean_cov  # 1 and x̃, and r, from v
    x = np.vstack([z[:1], scoring.to_calibrated @ z])[first:] if scoring.calibrated[g] else z[first:]
    one = np.eye(len(r))[0]
    B, C = (np.zeros((k, *shape, p, len(r) * (len(r) + 1) // 2)) for shape in ((), (2,)))
    for b, (θ, β) in enumerate(zip(scoring.theta[g], scoring.beta, strict=True)):
        κ, plain = scoring.kappa[g, b], scoring.plain[g, b]
        error = _products(np.outer(np.append(np.zeros(p - len(Σ)), Σ @ θ[p - len(Σ) :]), one), one)  # Σe θ
        if scoring.weighting[g] == _kernels.PSEUDO:
            B[b] = c * (_products(x, θ @ x - β @ z) - κ * error)
            C[b, 1] = -c * _products(x, r - β @ z)
        elif scoring.weighting[g] == _kernels.INVERSE:
            B[b] = -c * plain * error
            C[b, 1] = c * (_products(x, θ @ x - r) - (1.0 - plain) * κ * error)
        else:
            C[b, 0] = _products(x, θ @ x - r) - κ * error
    if scoring.calibrated[g]:
        center, spread, slope = scoring.lever
        y = z[1:] - np.outer(center, one)
        rows, columns = triangle(len(y))
        moves = np.stack([_products(y[i : i + 1], y[j])[0] for i, j in zip(rows, columns, strict=True)])
        expected = _products(np.outer(spread + pack(Σ), one), one)
        B += (slope @ np.vstack([_products(y, one), moves - expected])).reshape(B.shape)
    return B, C


def _products(x: Floats, y: Floats) -> Floats:
    """(x_i'v) (y'v) in terms of q, for every row x_i, (rows of x, size of q)."""
    outer = x[:, :, None] * y
    both = outer + np.swapaxes(outer, 1, 2)
    return pack(both * (1.0 - 0.5 * np.eye(len(y))))
