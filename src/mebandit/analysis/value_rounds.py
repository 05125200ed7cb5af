"""What the rounds of a log add to the values of policies: to the sums from which they follow, and to their scores."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from mebandit import kernels
from mebandit.analysis.bounded_values import Weighted
from mebandit.analysis.logged_context import Probabilities, Seen
from mebandit.analysis.value_estimators import Sums
from mebandit.analysis.value_result import Spread
from mebandit.analysis.value_scores import Means, Outcomes, clusters_left_out, rounds_left_out, scores_of
from mebandit.estimation.correction import Correction
from mebandit.estimation.equations import outcome_regressions
from mebandit.estimation.leverage import KINDS, corrects_clusters, pinv
from mebandit.estimation.moments import Crossproducts, unpack
from mebandit.estimation.student import GROUPS, in_groups
from mebandit.logs.reading import Reading, by_unit
from mebandit.logs.source import Block, forecast_of
from mebandit.logs.window import Window
from mebandit.values import Floats


def outcomes_of(raw: Crossproducts) -> Outcomes:
    """The outcome regressions of a log from its crossproducts, of rewards less their mean."""
    unit = raw.full[0]
    beta, center = outcome_regressions(raw), float(unit.sum(axis=0)[0, -1] / max(raw.rounds.sum(), 1.0))
    beta[:, 0] -= center
    return Outcomes(beta, np.stack([pinv(table[:-1, :-1]) for table in unit]), center)


class Scored(NamedTuple):
    """What the last time through a log of independent rounds gives."""

    covariance: Floats
    """Σ of the outer products of the scores"""
    groups: Floats
    """Σ of the scores by group of rounds"""

    def merge(self, other: Self) -> "Scored":
        """The sums of both."""
        return Scored(self.covariance + other.covariance, self.groups + other.groups)

    def spread(self, n: float, sandwich: str) -> Spread:
        """The spread of the values of n rounds; groups without a round do not count."""
        filled = self.groups[self.groups.any(axis=1)]
        return Spread(self.covariance, filled if KINDS[sandwich] else np.empty((0, 0)), n)


class Terms(NamedTuple):
    """The rounds of a block as the estimators read them."""

    g: Floats
    """(1, r, and for every policy ρ, ρ r, y), r and y less the center, (2 + 3 policies, n)"""
    z: Floats
    """(1, x̃), (n, d + 1), or (1, x̃, s) with a baseline s"""
    residual: Floats
    """r - z'β_a, (n,)"""
    chances: list[Floats]
    """the probabilities of each policy, (n, K)"""


@dataclass(frozen=True)
class Valued:
    """The rounds of a log, ready to be summed for some policies."""

    reading: Reading
    window: Window
    error: Correction
    policies: list[Probabilities]
    outcomes: Outcomes
    sandwich: str
    rows: int
    """rows of the log"""
    units: int
    """clusters of the log"""

    def sum(self, block: Block) -> Sums:
        """What a block adds to the sums."""
        block = self.window.of(block)
        terms, rounds = self._terms(block), block.rounds
        n, k = rounds.rewards.size, self.reading.source.n_actions
        forecast = forecast_of(block, k)
        never = forecast == 0.0 if forecast.shape[1] else np.zeros((n, k), dtype=np.bool_)
        taken = np.eye(k)[rounds.actions]
        away = [π_e - taken * terms.g[2 + 3 * i][:, None] for i, π_e in enumerate(terms.chances)]
        # loops in NumPy itself: a matrix product might use threads of its own, and add in an order that depends on them
        effect = np.stack([np.einsum("tk,ti->ki", own, terms.z) for own in away])
        ρ = terms.g[2::3]
        return Sums(
            totals=terms.g.sum(axis=1),
            squares=np.einsum("it,it->i", ρ, ρ),
            effect=effect,
            by_unit=by_unit(block, self._by_unit(block, terms, away)),
            largest=ρ.max(axis=1, initial=0.0),
            unsupported=np.array([π_e[never].sum() for π_e in terms.chances]),
        )

    def _terms(self, block: Block) -> Terms:
        """The rounds of a block."""
        rounds = block.rounds
        n, k = rounds.rewards.size, self.reading.source.n_actions
        ready, z = self.reading.ready(block, self.error).context, np.column_stack([np.ones(n), rounds.predicted.T])
        seen = Seen(rounds.context.predicted.T, ready.predicted.T, ready.errors, np.broadcast_to(rounds.allowed, (n, k)), block.start)
        beta, r, t = self.outcomes.beta, rounds.rewards - self.outcomes.center, np.arange(n)
        fitted = beta[:, 0] + np.einsum("td,kd->tk", z[:, 1:], beta[:, 1:])
        residual = r - fitted[t, rounds.actions]
        g, chances = np.empty((2 + 3 * len(self.policies), n)), []
        g[0], g[1] = 1.0, r
        for i, probabilities in enumerate(self.policies):
            π_e = probabilities(seen) if n else np.zeros((0, k))
            ρ = π_e[t, rounds.actions] / rounds.propensities
            g[2 + 3 * i], g[3 + 3 * i], g[4 + 3 * i] = ρ, ρ * r, (π_e * fitted).sum(axis=1) + ρ * residual
            chances.append(π_e)
        return Terms(g, z, residual, chances)

    @property
    def _leaves_clusters_out(self) -> bool:
        """Whether every cluster is left out of its outcome regression, which needs the products of all clusters."""
        k, size = self.outcomes.beta.shape
        return KINDS[self.sandwich] > 0 and corrects_clusters(self.units, k, size - 1 + len(self.policies))

    def _by_unit(self, block: Block, terms: Terms, away: list[Floats]) -> Floats:
        """Σ g by unit; then E and the packed Σ vv' of each action by unit, if clusters are left out."""
        if not block.units:
            return np.zeros((0, len(terms.g)))
        m, (k, size) = len(block.units), self.outcomes.beta.shape
        rows = list(terms.g)
        if self._leaves_clusters_out:
            rows += [own[:, b] * terms.z[:, i] for own in away for b in range(k) for i in range(size)]
        totals: Floats = np.stack([np.bincount(block.unit, row, m) for row in rows], axis=1, dtype=np.float64)
        if not self._leaves_clusters_out:
            return totals
        products = np.zeros((m, 3, k, (size + 1) * (size + 2) // 2))
        kernels.add_unit_products(products, block.unit, block.rounds._replace(rewards=terms.g[1]))
        return np.hstack([totals, products[:, 0].reshape(m, -1)])

    def spread_of_units(self, sums: Sums, means: Means) -> Spread:
        """The scores of clusters, which their sums have already."""
        totals, (k, size), many = sums.by_unit.totals, self.outcomes.beta.shape, len(self.policies)
        left_out, width = np.zeros((len(totals), many)), 2 + 3 * many
        if self._leaves_clusters_out:
            effects = totals[:, width : width + many * k * size].reshape(-1, many, k, size)
            tables = unpack(totals[:, width + many * k * size :].reshape(len(totals), k, -1), size + 1)
            left_out = clusters_left_out(tables, effects, self.outcomes, means.effect)
        scores = scores_of(totals[:, :width], left_out, means, self.outcomes.center, self.sandwich)
        groups = in_groups(scores) if KINDS[self.sandwich] else np.empty((0, 0))
        return Spread(np.einsum("gi,gj->ij", scores, scores), groups, float(len(totals)))

    def weighted(self, block: Block) -> Weighted:
        """The rewards and weights of a block."""
        block = self.window.of(block)
        terms = self._terms(block)
        return Weighted([block.times], [block.rounds.rewards], [terms.g[2::3].copy()])

    def score(self, block: Block, means: Means) -> Scored:
        """The scores of the rounds of a block, each its own cluster."""
        block = self.window.of(block)
        terms = self._terms(block)
        left_out = np.zeros((terms.residual.size, len(self.policies)))
        for i, π_e in enumerate(terms.chances if KINDS[self.sandwich] else []):
            ρ, actions = terms.g[2 + 3 * i], block.rounds.actions
            left_out[:, i] = rounds_left_out(π_e, ρ, terms.z, actions, terms.residual, self.outcomes, means.effect[i])
        scores = scores_of(terms.g.T, left_out, means, self.outcomes.center, self.sandwich)
        groups = min(self.rows, GROUPS)
        place = (block.start + np.arange(len(scores))) % groups
        summed: Floats = np.stack([np.bincount(place, column, groups) for column in scores.T], axis=1, dtype=np.float64)
        return Scored(np.einsum("ti,tj->ij", scores, scores), summed)
