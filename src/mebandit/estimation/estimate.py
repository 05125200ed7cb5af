"""`mebandit.estimate`: reward parameters from a log of rounds in arrays."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.best_linear import calibrated_products, calibration_of
from mebandit.estimation.clusters import cluster_numbers
from mebandit.estimation.correction import Correction
from mebandit.estimation.equations import second_moment
from mebandit.estimation.error_model_variance import with_model_uncertainty
from mebandit.estimation.leverage import SANDWICHES, Sandwich
from mebandit.estimation.methods import GUARDS, METHODS, RECIPES, Guard, Method, Options
from mebandit.estimation.moments import Crossproducts, Moments, Rounds, check_rounds, crossproducts, unpack
from mebandit.estimation.precision import TOO_FAR_APART, digits_lost, of_usable_sizes
from mebandit.estimation.result import Estimate, assembled
from mebandit.estimation.solution import solve_log
from mebandit.estimation.solving import solve
from mebandit.measurement import ErrorModel, warn_if_berkson
from mebandit.values import Floats, Integers


def estimate(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike | ErrorModel,
    *,
    n_actions: int = 2,
    method: Method = "meb",
    ridge: float = 0.0,
    intercept: bool = False,
    stabilizer: ArrayLike | None = None,
    guard: Guard = "auto",
    unit: ArrayLike | None = None,
    sandwich: Sandwich = "hc2",
    baseline: ArrayLike | None = None,
) -> Estimate:
    """Reward parameters of every action from rounds in which the context was predicted with error; formulas: `estimation.methods`.

    Args:
        predicted: x̃, the predicted contexts, (T, d).
        actions: Actions taken, whole numbers from 0 to K - 1, (T,).
        rewards: Rewards, (T,).
        propensities: The probabilities with which actions were drawn: of the action taken, (T,), or of all, (T, K). With (T, K) an action
            of probability 0 was not allowed; with (T,) every action was, except where the one taken had probability 1.
        error_cov: Σe, the covariance of the error x̃ - x: a number, d variances, (d, d), or (T, d, d) by round. Or an `ErrorModel`: its bias
            is corrected first, and its uncertainty is part of the standard errors.
        n_actions: K; 2 by default.
        method: "ridge": least squares, attenuated towards zero. "naive": the textbook correction, biased where actions depend on x̃.
            "meb" (the default): the paper's estimator. "dr": its doubly robust version, less variable. "rc": regression calibration,
            without propensities, for contexts with a linear E[x | x̃].
        ridge: Added to the diagonal of every Gram matrix; 0 by default.
        intercept: Whether to fit an intercept for every action; False by default.
        stabilizer: π^nd, (K,) or (T, K). A constant one, also the default, cancels; one that differs between rounds weights them.
        guard: When Fuller's modification replaces the formula: "auto" (the default), where the formula's matrix is not safely positive
            definite; "always"; "never".
        unit: Labels of participants or clusters, (T,), within which rounds may be correlated; by default none are, given the past.
        sandwich: The small-sample correction of standard errors. "hc2" (default): for the leverage of every round or cluster; "hc3": the
            same, more conservative; both with t intervals. "hc0": none, with normal intervals.
        baseline: Further columns for the working model of the reward in "dr", (T,) or (T, b), known before the action is drawn: for
            smaller standard errors. "dr" is unbiased even if that model is wrong; None by default.

    Returns:
        The estimate: `theta` (K, d), `std_error` (K, d), `interval(0.95)`, `contrast(1, 0)`, `diagnostics`.

    Raises:
        InvalidInput: An argument breaks a rule.
        SingularMoments: The log does not identify θ of an action.

    >>> rng = np.random.default_rng(0)
    >>> x, actions = rng.normal(1, 1, (20_000, 1)), rng.integers(0, 2, 20_000)
    >>> noisy, rewards = x + rng.normal(0, 0.7, x.shape), np.where(actions == 1, 2.0, -1.0) * x[:, 0]
    >>> estimate(noisy, actions, rewards, np.full(20_000, 0.5), 0.49).theta.round(1).ravel()
    array([-1.,  2.])
    """
    options = checked_options(ridge=ridge, intercept=intercept, guard=guard, sandwich=sandwich)
    rounds, model = _rounds_and_model(predicted, actions, rewards, propensities, error_cov, n_actions, stabilizer)
    rounds = rounds if baseline is None else _with_baseline(rounds, baseline, method)
    clusters = None if unit is None else cluster_numbers(unit, rounds.rewards.size)
    return estimates_of(rounds, n_actions, (checks.one_of("method", method, METHODS),), options, model=model, clusters=clusters)[method]


def checked_options(*, ridge: float, intercept: bool, guard: Guard, sandwich: Sandwich) -> Options:
    """How the equations are solved, checked."""
    return Options(
        ridge=checks.number("ridge", ridge, "be a number of at least 0", 0.0),
        intercept=checks.truth("intercept", intercept),
        guard=checks.one_of("guard", guard, GUARDS),
        sandwich=checks.one_of("sandwich", sandwich, SANDWICHES),
    )


def _rounds_and_model(
    predicted: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    propensities: ArrayLike,
    error_cov: ArrayLike | ErrorModel,
    n_actions: int,
    stabilizer: ArrayLike | None,
) -> tuple[Rounds, ErrorModel | None]:
    """The checked rounds, and the error model if there is one."""
    model, cov = (error_cov, error_cov.error_cov) if isinstance(error_cov, ErrorModel) else (None, error_cov)
    names = list(getattr(predicted, "column_names", getattr(predicted, "columns", [])))  # of a table
    if model is not None and names and all(isinstance(name, str) for name in names):
        model.check_features("error_cov", names)
    return check_rounds(predicted, actions, rewards, propensities, cov, n_actions=n_actions, stabilizer=stabilizer), model


def _with_baseline(rounds: Rounds, baseline: ArrayLike, method: str) -> Rounds:
    """Rounds with the columns of a baseline after the features."""
    if checks.one_of("method", method, METHODS) != "dr":
        checks.refuse("baseline", "go with the method 'dr', the only one that reads it", f"the method {method!r}")
    n = rounds.rewards.size
    given = checks.regular("baseline", baseline)
    columns = checks.floats("baseline", given[:, None] if given.ndim == 1 else given, (n, None))
    return rounds._replace(predicted=np.vstack([rounds.predicted, columns.T]))


def estimates_of(
    rounds: Rounds,
    n_actions: int,
    methods: Sequence[str],
    options: Options,
    *,
    model: ErrorModel | None = None,
    clusters: Integers | None = None,
    strict: bool = True,
) -> dict[str, Estimate]:
    """The estimates of several methods from rounds in memory. `mebandit.fit` takes the same steps through a log of any size.

    Args:
        rounds: Checked rounds.
        n_actions: K.
        methods: Names of methods, of `METHODS`.
        options: How the equations are solved.
        model: An error model whose covariance `rounds` hold; None by default.
        clusters: The number of each round's cluster, from 0, (T,); by default rounds count as independent.
        strict: Whether what cannot be estimated is an error (the default); otherwise it is NaN.
    """
    with of_usable_sizes():
        found = _estimates_of(rounds, n_actions, methods, options, model, clusters, strict)
    if strict and not all(np.isfinite(estimate.covariance).all() for estimate in found.values()):
        raise checks.SingularMoments(TOO_FAR_APART.format("standard errors that are not finite"))
    return found


def _estimates_of(
    rounds: Rounds,
    n_actions: int,
    methods: Sequence[str],
    options: Options,
    model: ErrorModel | None,
    clusters: Integers | None,
    strict: bool,
) -> dict[str, Estimate]:
    """The steps of `estimates_of`."""
    varying = len(rounds.errors) > 1
    raw = crossproducts(rounds, n_actions, varying=varying)
    correction = Correction(unpack(rounds.errors[0], raw.context_dim), varying, model).completed(raw)
    products, ready = correction.unbiased_products(raw), correction.unbiased_rounds(rounds)
    if model is not None and set(methods) != {"ridge"}:
        warn_if_berkson(model, second_moment(products.context, options.intercept))
    constant = None if varying else correction.mean_cov
    calibrated = calibrated_products(ready, calibration_of(products, None), n_actions) if "rc" in methods and varying else None
    solution = solve_log(products, methods, error_cov=constant, calibrated=calibrated, options=options, strict=strict)
    if solution.lacks_jacobian:
        solution = solution.with_jacobian(solution.jacobian_sums(ready), products)
    scores = solution.no_scores(0 if clusters is None else int(clusters.max()) + 1, rounds=rounds.rewards.size)
    solution.add_scores(scores, ready, clusters)
    known = _of_rounds(rounds, products.context)
    found = with_model_uncertainty(solution, scores, raw, correction)
    return {name: replace(own, diagnostics=own.diagnostics | known) for name, own in found.items()}


def _of_rounds(rounds: Rounds, products: Crossproducts) -> dict[str, Floats]:
    """The diagnostics that no method has a part in, see `Estimate.diagnostics`."""
    smallest = np.full(products.n_actions, np.inf)
    np.minimum.at(smallest, rounds.actions, rounds.propensities)
    return {"smallest_propensity": np.where(np.isfinite(smallest), smallest, np.nan), "rounding_error": digits_lost(products)}


def solved_estimate(moments: Moments, *, method: str, ridge: float, guard: str, intercept: bool) -> Estimate:
    """The estimate from the running sums of a learner alone. Its covariance, which needs the rounds themselves, is NaN.

    Args:
        moments: Running sums of K arms and p features.
        method: How θ is estimated: one of `METHODS`, or "auto".
        ridge: Added to the diagonal of every Gram matrix.
        guard: One of `GUARDS`.
        intercept: Whether the first feature is the 1 of an intercept.
    """
    with of_usable_sizes():
        fit = solve(moments, correction=RECIPES[method][1], ridge=ridge, guard=guard)
    size = moments.n_actions * moments.n_features
    unknown = np.full((size, size), np.nan)
    return assembled(fit, moments, unknown, influence=None, method=method, intercept=intercept, counted=moments.rounds.copy())
