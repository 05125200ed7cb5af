"""The paper's off-policy method of moments for any function of means (Appendix D.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.clusters import cluster_numbers
from mebandit.estimation.moments import check_rounds
from mebandit.estimation.result import t_interval
from mebandit.estimation.student import in_groups, satterthwaite
from mebandit.kernels import LARGEST_LEVERAGE
from mebandit.values import Booleans, Floats

STEP = 1e-3
"""of the numerical derivative of φ, in standard errors of the means: small against their spread, large against rounding"""


@dataclass(frozen=True)
class MomentsEstimate:
    """A function of means with its uncertainty."""

    value: Floats
    """φ, of the shape that `solve` returns"""
    covariance: Floats
    """of its elements in order, by the delta method, (size, size)"""
    df: Floats
    """degrees of freedom of the standard errors, of the shape of `value`"""
    influence: Floats = field(repr=False)
    """what each round or cluster adds to the error of the elements, (rounds or clusters, size)"""

    @property
    def std_error(self) -> Floats:
        """Standard errors, of the shape of `value`."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0)).reshape(self.value.shape)

    def interval(self, level: float = 0.95, *, anytime: bool = False) -> Floats:
        """Confidence intervals by Student's t, (..., 2).

        Args:
            level: Confidence level, between 0 and 1 (default 0.95).
            anytime: Whether they hold at every look at a growing log, as in `Estimate.interval` (default False).
        """
        return t_interval(self.value, self.std_error, self.df, level, looks_until=float(len(self.influence)) if anytime else None)


class Weighted(NamedTuple):
    """The means of the functions, and what they are made of."""

    values: list[Floats]
    """of each function, in the rounds in which the action was taken, (n, ...)"""
    means: list[Floats]
    weights: Floats
    """w_t of these rounds, 1/π^nd-weighted, (n,)"""
    shares: Floats
    """π^nd_t / Σ π^nd of all rounds, (T,): E[w_t f_t] is the share times the mean"""
    played: Booleans
    """(T,)"""


def estimate_moments(
    functions: Sequence[Callable[[Floats, Floats], Floats]],
    solve: Callable[..., Any],
    *,
    context: ArrayLike,
    actions: ArrayLike,
    outcome: ArrayLike,
    propensities: ArrayLike,
    action: int,
    n_actions: int = 2,
    stabilizer: ArrayLike | None = None,
    std_errors: bool = False,
    unit: ArrayLike | None = None,
) -> Any:
    """The off-policy method of moments for one action: φ(mean of W f_1(X, Y), ..., mean of W f_m(X, Y)), Appendix D.3 of the paper.

    W_t = 1{a_t = a} π^nd_t(a) / π_t(a), divided by the mean of π^nd_t(a): means under action a, over rounds in which it was allowed.

    Args:
        functions: f_1, ..., f_m. Each takes the contexts (n, d) and the outcomes (n,) of the n rounds in which the action was taken, and
            returns a number or an array for each of them, (n, ...).
        solve: φ, a function of the m weighted means. What it returns is returned; for standard errors a number or an array, smooth in them.
        context: What the functions read as X, (T, d).
        actions: Actions taken, whole numbers from 0 to K - 1, (T,).
        outcome: Y, (T,).
        propensities: The probabilities with which actions were drawn: of the action taken, (T,), or of all, (T, K). With (T, K) an action
            of probability 0 was not allowed.
        action: The action a whose moments are estimated.
        n_actions: K; 2 by default.
        stabilizer: π^nd, (K,) or (T, K). A constant one, also the default, cancels; one that differs between rounds weights them.
        std_errors: Whether to return a `MomentsEstimate`, with standard errors by the delta method, and not φ alone (default False).
        unit: With standard errors: labels of participants or clusters, (T,); by default rounds are independent, given the past.

    Returns:
        What `solve` returns, or a `MomentsEstimate`.

    Raises:
        InvalidInput: An argument breaks a rule.
        SingularMoments: The action was never taken.

    >>> import numpy as np
    >>> x, y = np.array([[1.0], [2.0], [3.0]]), np.array([2.0, 4.0, 6.0])
    >>> ratio = lambda xy, xx: xy / xx
    >>> float(estimate_moments([lambda x, y: x[:, 0] * y, lambda x, y: x[:, 0] ** 2], ratio,
    ...     context=x, actions=[1, 1, 1], outcome=y, propensities=[0.5, 0.5, 0.9], action=1))
    2.0
    """
    rounds = check_rounds(context, actions, outcome, propensities, 0.0, n_actions=n_actions, stabilizer=stabilizer)
    action = checks.integer("action", action, 0, n_actions - 1)
    t = np.arange(rounds.rewards.size)
    nd = rounds.stabilizer[t % len(rounds.stabilizer), action] * rounds.allowed[t % len(rounds.allowed), action]
    played = rounds.actions == action
    if not played.any():
        raise checks.SingularMoments(f"action {action} must have been taken, for its moments to be known; got no round with it.")
    w, x, y = (nd / rounds.propensities)[played] / nd.sum(), rounds.predicted[:, played].T, rounds.rewards[played]
    values = [_values_of(i, f, x, y) for i, f in enumerate(functions)]
    found = Weighted(values, [np.asarray(np.tensordot(w, v, axes=1)) for v in values], w, nd / nd.sum(), played)
    if not checks.truth("std_errors", std_errors):
        return solve(*found.means)
    return _with_std_errors(found, solve, None if unit is None else cluster_numbers(unit, t.size))


def _values_of(i: int, f: Callable[[Floats, Floats], Floats], x: Floats, y: Floats) -> Floats:
    """What a function gives for the rounds, a row for each."""
    values = np.asarray(f(x, y), dtype=float)
    if values.shape[:1] != (len(y),):
        checks.refuse(f"functions[{i}]", f"return one row for each of the {len(y)} rounds", f"shape {values.shape}")
    return values


def _with_std_errors(found: Weighted, solve: Callable[..., Any], clusters: Any) -> MomentsEstimate:
    """φ and its uncertainty: with the influences i_t = w_t f_t - share_t m on the means m, Cov φ = J (Σ i i') J', J = dφ/dm.

    A round or cluster has the leverage h, its share of all weights: its influence is divided by sqrt(1 - h)."""
    flat = np.hstack([v.reshape(len(v), -1) for v in found.values])
    mean = np.concatenate([np.ravel(m) for m in found.means])
    i = -found.shares[:, None] * mean
    i[found.played] += found.weights[:, None] * flat
    h = found.shares
    if clusters is not None:
        count = int(clusters.max()) + 1
        h = np.asarray(np.bincount(clusters, h, count), dtype=np.float64)
        summed: Floats = np.empty((count, mean.size))
        for j, column in enumerate(i.T):
            summed[:, j] = np.bincount(clusters, column, count)
        i = summed
    i = i / np.sqrt(1 - np.minimum(h, LARGEST_LEVERAGE))[:, None]
    value = _phi(solve, found, mean)
    spread, J = np.sqrt((i**2).sum(axis=0)), np.zeros((value.size, mean.size))
    for place in np.flatnonzero(spread > 0):
        j, step = int(place), np.zeros(mean.size)
        step[j] = STEP * spread[j]
        J[:, j] = (_phi(solve, found, mean + step) - _phi(solve, found, mean - step)).ravel() / (2 * step[j])
    influence = i @ J.T
    df = satterthwaite(in_groups(influence), np.eye(value.size))
    return MomentsEstimate(value, influence.T @ influence, df.reshape(value.shape), influence)


def _phi(solve: Callable[..., Any], found: Weighted, mean: Floats) -> Floats:
    """φ at other means."""
    sizes = np.cumsum([m.size for m in found.means])[:-1]
    value = solve(*(part.reshape(m.shape) for part, m in zip(np.split(mean, sizes), found.means, strict=True)))
    return checks.regular("what `solve` returns", value).reshape(np.shape(value))
