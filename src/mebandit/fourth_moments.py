"""Standard errors from one time through a log: where Σe is one for all rounds, sums of products of four say all that scores would.

Let v = (1, x̃, r), q its products v_i v_j, i ≤ j, and u = 1/π the inverse probability of the action that was taken. What every method sums
over the rounds, ψ (see `mebandit.estimators.Scores`), is then quadratic in v and linear in u, with coefficients that depend on that action,

    ψ = (C_0 + u C_1) q,    Σ ψψ' = Σ_a C_0 Q_0 C_0' + C_0 Q_1 C_1' + C_1 Q_1 C_0' + C_1 Q_2 C_1',    Q_m = Σ_{a_t = a} u^m qq',

so that C, with θ in it, is not needed before the rounds are over. Their number grows like d⁴: this pays for few features. As q is large
where ψ is small, digits are lost; x̃ and r are therefore measured from near their means, and what rounding may still have done is known.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mebandit import _kernels
from mebandit.correction import Correction
from mebandit.estimators import Scores, Solution
from mebandit.moments import Crossproducts, Rounds, pack, triangle, unpack
from mebandit.values import Floats, Integers

MOST_FEATURES = 8
"""beyond which scores, and with them a second time through the log, are faster"""

ROUNDING = 1e-14
"""of a sum over a log, as a share of what its terms sum up to in size"""

LOST = 1e-6
"""the relative error of a variance from rounding beyond which scores are needed"""

FAR = 1e4
"""how many times larger than the mean square of a quantity the square of its center may be"""


class Units(NamedTuple):
    """What x̃ and r are measured from and in."""

    center: Floats
    scale: Floats

    @property
    def to_raw(self) -> Floats:
        """The matrix from 1 and what is measured, in these units, to 1 and what it is."""
        matrix = np.diag(np.append(1.0, self.scale))
        matrix[1:, 0] = self.center
        return matrix


def units_of(rounds: Rounds) -> Units:
    """Means and standard deviations of some rounds; what does not vary in them is measured in its own size."""
    values = np.vstack([rounds.predicted, rounds.rewards])
    if not rounds.rewards.size:
        return Units(np.zeros(len(values)), np.ones(len(values)))
    center, spread = values.mean(axis=1), values.std(axis=1)
    size = np.where(center != 0, np.abs(center), 1.0)
    return Units(center, np.where(spread > 1e-7 * size, spread, size))


class FourthMoments(NamedTuple):
    """Q_0, Q_1 and Q_2 by action, in `Units`; those of two logs are merged by adding up."""

    sums: Floats
    """every product of four once, at the pair of its smaller and that of its larger indices, (K, 3, size of q, size of q)"""

    @property
    def rounds(self) -> Floats:
        """rounds in which each action was taken, (K,)"""
        return self.sums[:, 0, 0, 0]

    def merge(self, other: "FourthMoments") -> "FourthMoments":
        return FourthMoments(self.sums + other.sums)

    def crossproducts(self, units: Units) -> Crossproducts:
        """Those of the log, for π^nd = 1/K: q has a 1 in the first place, and its products with all of q are the second moments."""
        k, width = len(self.sums), units.center.size + 1
        once, c = np.moveaxis(self.sums[:, :, 0], 1, 0), 1.0 / k
        offered = np.broadcast_to(c * once[0].sum(axis=0), once[0].shape)
        products = np.stack([once[0], c * once[1], c * once[2], offered])
        squares = c * c * np.stack([once[2, :, 0], np.full(k, once[0, :, 0].sum())])
        raw = pack(units.to_raw @ unpack(products, width) @ units.to_raw.T)
        return Crossproducts(raw, squares, np.zeros((3, k, (width - 2) * (width - 1) // 2)))

    def keep_digits(self, units: Units) -> bool:
        """Whether the crossproducts are as good as if they had been summed from the beginning: nothing was measured from too far away in
        the rounds of an action, as are features that are 0 there, but not in the rounds that the units come from."""
        squares = np.diagonal(self.crossproducts(units).full[0], axis1=1, axis2=2)[:, 1:]
        return bool((self.rounds[:, None] * units.center**2 <= FAR * squares).all())

    def scores(self, solution: Solution, correction: Correction, units: Units) -> Scores | None:
        """Σ ψψ' of every method; None where rounding may have spoilt it.

        A sum Σ q_i q_j is right to a few units in the last place of √(Σ q_i² Σ q_j²), and so is Σ ψψ' of what that makes with |C|.
        """
        found = solution.no_scores()
        bound = np.zeros(found.meat.shape[:2])
        place = _places(units.center.size + 1)
        to_unbiased = correction.unbiasing @ units.to_raw
        with np.errstate(over="ignore", invalid="ignore"):  # numbers too large for this are not small enough for the bound
            for a, sums in enumerate(self.sums):
                Q = sums[:, *place]
                size = np.sqrt(np.maximum(np.diagonal(Q, axis1=1, axis2=2), 0.0))
                for g in range(len(bound)):
                    C = _coefficients(solution, g, a, to_unbiased, correction.mean_cov)
                    crossed = C[0] @ Q[1] @ C[1].T
                    found.meat[g] += C[0] @ Q[0] @ C[0].T + crossed + crossed.T + C[1] @ Q[2] @ C[1].T
                    bound[g] += (np.abs(C[0]) @ size[0] + np.abs(C[1]) @ size[2]) ** 2
            good = ROUNDING * bound <= LOST * np.diagonal(found.meat, axis1=1, axis2=2)
        solved = np.isfinite(solution.scoring.theta).reshape(bound.shape)
        return found if good[solved].all() else None


def fourth_moments(rounds: Rounds, n_actions: int, units: Units) -> FourthMoments:
    """Those of some rounds of a log."""
    size = (units.center.size + 1) * (units.center.size + 2) // 2
    found = FourthMoments(np.zeros((n_actions, 3, size, size)))
    _kernels.add_fourth_moments(found.sums, units.center, 1.0 / units.scale, rounds)
    return found


@lru_cache(maxsize=16)
def _places(width: int) -> tuple[Integers, Integers]:
    """Where `FourthMoments.sums` has q_i q_j, for all i and j; where r would come more than twice, that is zero."""
    pairs = np.stack(triangle(width), axis=1)
    place = unpack(np.arange(len(pairs), dtype=np.float64), width).astype(np.int64)
    four = np.sort(np.concatenate(np.broadcast_arrays(pairs[:, None], pairs), axis=2), axis=2)
    return place[four[..., 0], four[..., 1]], place[four[..., 2], four[..., 3]]


def _coefficients(solution: Solution, g: int, taken: int, to_unbiased: Floats, Σ: Floats) -> Floats:
    """C_0 and C_1 of method g for rounds with the action `taken`, (2, K p, size of q), see `_kernels.add_scores` for ψ."""
    scoring, first = solution.scoring, int(not solution.options.intercept)
    k, p = scoring.theta.shape[1:]
    z, r, c = to_unbiased[:-1], to_unbiased[-1], 1.0 / k  # 1 and x̃, and the reward, as functions of v
    x = np.vstack([z[:1], scoring.to_calibrated @ z])[first:] if scoring.calibrated[g] else z[first:]
    one = np.eye(len(to_unbiased))[0]
    C = np.zeros((2, k, p, len(_products(z, one)[0])))
    for b, (θ, β) in enumerate(zip(scoring.theta[g], scoring.beta, strict=True)):
        κ, played = scoring.kappa[g, b], float(b == taken)
        error = _products(np.outer(np.append(np.zeros(p - len(Σ)), Σ @ θ[p - len(Σ) :]), one), one)  # Σe θ
        if scoring.weighting[g] == _kernels.PSEUDO:
            C[0, b] = c * (_products(x, θ @ x - β @ z) - κ * error)
            C[1, b] = -c * played * _products(x, r - β @ z)
        elif scoring.weighting[g] == _kernels.INVERSE:
            plain = scoring.plain[g, b]
            C[0, b] = -c * error if plain else 0.0
            C[1, b] = c * played * (_products(x, θ @ x - r) - (0.0 if plain else κ) * error)
        else:
            C[0, b] = played * (_products(x, θ @ x - r) - κ * error)
    flat = C.reshape(2, k * p, -1)
    if scoring.calibrated[g] and scoring.lever.slope.size:
        center, spread, slope = scoring.lever
        y = z[1:] - np.outer(center, one)
        rows, columns = triangle(len(y))
        moves = np.stack([_products(y[i : i + 1], y[j])[0] for i, j in zip(rows, columns, strict=True)])
        expected = _products(np.outer(spread + pack(Σ), one), one)
        flat[0] += slope @ np.vstack([_products(y, one), moves - expected])
    return flat


def _products(x: Floats, y: Floats) -> Floats:
    """(x_i'v) (y'v) in terms of q, for every row x_i, (rows of x, size of q)."""
    outer = x[:, :, None] * y
    both = outer + np.swapaxes(outer, 1, 2)
    return pack(both * (1.0 - 0.5 * np.eye(len(y))))
