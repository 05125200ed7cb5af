"""All methods solved from one log: θ from its crossproducts, and what a second pass over its rounds needs for standard errors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mebandit import kernels
from mebandit.estimation.best_linear import Calibration, calibration_of
from mebandit.estimation.equations import normal_equations, outcome_regressions
from mebandit.estimation.leverage import clusters_corrected, corrects_clusters
from mebandit.estimation.methods import RECIPES, Options
from mebandit.estimation.moments import Crossproducts, Moments, Rounds
from mebandit.estimation.nuisance import NO_JACOBIAN, JacobianSums, jacobian_for_one_cov, jacobian_of, jacobian_sums
from mebandit.estimation.precision import check_digits
from mebandit.estimation.result import Estimate, assembled
from mebandit.estimation.scores import Scores, Scoring, influence, new_tile, sandwich, scoring_of
from mebandit.estimation.solving import Fit, solve, unidentified
from mebandit.estimation.student import GROUPS
from mebandit.kernels import layout
from mebandit.values import Floats, Integers


@dataclass(frozen=True)
class Solution:
    """θ by every method, and what the scores of the rounds are computed with."""

    moments: dict[str, Moments]
    fits: dict[str, Fit]
    calibration: Calibration
    scoring: Scoring
    rounds: Floats
    """rounds in which each action was taken, (K,)"""
    options: Options
    to_calibrated: Floats
    """the map from (1, x̃, r) to (1, x̂, r) for "rc", (d + 2, d + 2); empty where every round has its own"""
    beta: Floats
    """the outcome regressions of "dr", (K, d + 1)"""
    by_scale: Floats | None = None
    """the derivative of θ of "rc" with respect to the scale of each feature's error variances, (K p, d), where Σe,t varies"""

    @property
    def lacks_jacobian(self) -> bool:
        """Whether the nuisance Jacobian must still be summed over rounds: "rc" was solved with a Σe for each round."""
        return "rc" in self.fits and not self.scoring.to_calibrated.size

    def jacobian_sums(self, rounds: Rounds) -> JacobianSums:
        """What some rounds add to the sums of the nuisance Jacobian."""
        return jacobian_sums(rounds.context, self.calibration, self.fits["rc"].theta)

    def with_jacobian(self, sums: JacobianSums, products: Crossproducts) -> "Solution":
        """The solution with the nuisance Jacobian of all rounds; `products` are those of the log."""
        Σ = products.mean_error(None)
        jacobian = jacobian_of(products.context, sums.by_mean, sums.by_spread, None)
        through_Sx = np.einsum("kijl,jl->kij", sums.by_spread, Σ) + np.einsum("kilj,lj->kij", sums.by_spread, Σ)  # Sx = cov(x̃) - mean Σe
        moved, solved = np.full_like(sums.by_scale, np.nan), self.fits["rc"].report != layout.SINGULAR
        moved[solved] = -np.linalg.solve(self.fits["rc"].matrix[solved], (sums.by_scale - through_Sx / 2)[solved])
        return replace(self, scoring=self.scoring._replace(jacobian=jacobian), by_scale=moved.reshape(-1, len(Σ)))

    def no_scores(self, clusters: int = 0, *, rounds: int = GROUPS, in_all: int | None = None) -> Scores:
        """The scores before any round.

        Args:
            clusters: The number of clusters that these scores are of; 0 (default): rounds count as independent.
            rounds: The number of rounds, if it is known (default: many).
            in_all: The number of clusters of the whole log (default None: `clusters`).
        """
        m, (k, p), d = len(self.fits), next(iter(self.fits.values())).theta.shape, self.scoring.center.size
        known = clusters if in_all is None else in_all
        kept = clusters if self.scoring.leverage.kind and corrects_clusters(known, k, d) else 0
        return Scores(
            meat=np.zeros((m, k * p, k * p)),
            totals=np.zeros((m, clusters, k * p)),
            groups=np.zeros((m, 0 if clusters else min(rounds, GROUPS), k * p)),
            run=kernels.TILE if rounds >= GROUPS * kernels.TILE else 1,
            products=np.zeros((kept, 3, k, (d + 2) * (d + 3) // 2 if kept else 0)),
        )

    def add_scores(self, scores: Scores, rounds: Rounds, cluster: Integers | None = None, *, first: int = 0) -> None:
        """Add the scores of rounds.

        Args:
            scores: The scores up to now.
            rounds: More rounds.
            cluster: The number of the cluster of each, (T,); None (default): rounds count as independent.
            first: The row of the log of the first of them (default 0).
        """
        clusters = np.empty(0, dtype=np.int64) if cluster is None else cluster
        scoring = self.scoring if cluster is None else self.scoring._replace(leverage=self.scoring.leverage._replace(kind=0))
        if scores.products.size:
            kernels.add_unit_products(scores.products, clusters, rounds)
        seen = np.empty((self.calibration.mean.size, 0))
        if self.scoring.calibrated.any() and not self.scoring.to_calibrated.size:
            seen = self.calibration.apply(rounds.context.predicted, rounds.errors)
        sums = scores.groups if cluster is None else scores.totals
        k, p = scoring.theta.shape[1:]
        tile = new_tile(k, len(rounds.predicted), scoring.error.shape[2], p, alike=cluster is None and scores.run > 1)
        kernels.add_scores(scores.meat, sums, clusters, first, scores.run, scoring, seen, rounds, tile)

    def estimates(self, scores: Scores) -> dict[str, Estimate]:
        """The estimates of every method with their sandwich covariances, from the scores of all rounds."""
        scoring, found = self.scoring, {}
        if scores.products.size:
            corrected = clusters_corrected(
                scores.totals, scores.products, self.fits, scoring.leverage, self.beta, self.to_calibrated, self.calibration.mean.size
            )
            scores = scores._replace(totals=corrected)
        for g, (method, fit) in enumerate(self.fits.items()):
            found[method] = assembled(
                fit,
                self.moments[method],
                sandwich(fit, scores.middle(g)),
                influence=influence(fit, scores.grouped(g)) if scoring.leverage.kind else None,
                clusters=scores.totals.shape[1],
                method=method,
                intercept=self.options.intercept,
                counted=self.rounds,
            )
        return found


def solve_log(
    products: Crossproducts,
    methods: Sequence[str],
    *,
    error_cov: Floats | None,
    options: Options,
    calibrated: Crossproducts | None = None,
    strict: bool = True,
) -> Solution:
    """θ by every method from the crossproducts of a log.

    Args:
        products: The crossproducts of the log.
        methods: Names of methods, of `METHODS`.
        error_cov: Σe, (d, d), or None where it varies between rounds, and `products` hold its sums.
        options: How the equations are solved.
        calibrated: The crossproducts of x̂, which "rc" needs where Σe varies: they are then no function of those of x̃.
        strict: Whether a method without a solution is an error (the default); otherwise its θ is NaN.

    Raises:
        SingularMoments: The log does not identify θ of an action.
    """
    if options.ridge == 0 and products.rounds.min() == 0:
        raise unidentified(int(products.rounds.argmin()), 0)
    if strict:
        check_digits(products)
    prepared = calibration_of(products, error_cov)
    beta = outcome_regressions(products) if "dr" in methods else np.zeros((products.n_actions, products.dim + 1))
    equations = partial(normal_equations, error_cov=error_cov, intercept=options.intercept, beta=beta)
    to_calibrated = np.empty((0, 0))
    if "rc" in methods and error_cov is not None:
        to_calibrated = prepared.as_matrix(error_cov)
        calibrated = products.context.mapped(to_calibrated)
    moments, fits = {}, {}
    for method in methods:
        given = calibrated if method == "rc" and calibrated is not None else products
        moments[method] = equations(given, method)
        fits[method] = solve(
            moments[method],
            correction=RECIPES[method][1],
            ridge=options.ridge,
            guard=options.guard,
            strict=strict,
            origin=None if given is products else equations(products, method).gram,
        )
    jacobian = NO_JACOBIAN
    if "rc" in fits and error_cov is not None:
        jacobian = jacobian_for_one_cov(products.context, prepared, to_calibrated, error_cov, fits["rc"].theta)
    scoring = scoring_of(
        fits,
        products,
        beta=beta,
        to_calibrated=to_calibrated,
        error_cov=error_cov,
        jacobian=jacobian,
        sandwich=options.sandwich,
    )
    return Solution(moments, fits, prepared, scoring, products.rounds.copy(), options, to_calibrated, beta)
