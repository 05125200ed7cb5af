"""Recipes: the usual policies under their usual names, each option of them in the signature.

A recipe only puts a `LinearPolicy` together from an estimator and a rule. These options mean the same in all of them:

    floor      p0, the smallest probability of an allowed action, at most 1/K: a number, or a schedule t -> number. None: min(0.2, 1/(2K)).
    warmup     T0, the number of first decisions in which all allowed actions are equally likely.
    refit      when θ is solved for again: a number t0 for after every t0 rounds, or a schedule t -> bool.
    ridge      added to the diagonal when θ is solved for, in the units of Σ x̃x̃'; features should be of about unit size.
    intercept  whether a feature 1, seen without error, is put before x̃.
    discount   in [0.5, 1]; all sums are multiplied by it before a round is added, so that old rounds count less where θ drifts.
    name       the name in tables. Policies in one simulation need different ones.
"""

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.policies.contexts import BestLinear
from mebandit.policies.estimators import MEB, Calibrated, LeastSquares, Naive, Stabilizer
from mebandit.policies.linear import LinearPolicy
from mebandit.policies.rules import UCB, BayesOracle, Oracle, Robust, Thompson, Uniform
from mebandit.schedules import Schedule

Floor = float | Schedule | None
Refit = int | Callable[[Any], Any]

CONTEXTS = {"predicted": "", "blp": "running", "ew_blp": "forgetting", "auto": "auto"}
"""the option `context` of a recipe -> the mean of `BestLinear`"""


def meb(
    n_actions: int,
    dim: int,
    *,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    stabilizer: Stabilizer = None,
    correct_from: int = 1,
    guard: str = "auto",
    context: str = "predicted",
    memory: float = 20.0,
    curved: bool = False,
    weights: str = "unit",
    discount: float = 1.0,
    name: str = "MEB",
) -> LinearPolicy:
    """MEB, Algorithm 1 of the paper (and its K-action form, App. C): greedy in ⟨θ̂_a, x̃⟩ with the paper's estimator, above the floor.

        θ̂_a = (Σ w x̃x̃' + ridge I - Σ π^nd(a) Σe)⁻¹ Σ w x̃ r,   w = 1{a_t = a} π^nd(a)/π_t(a)

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`. The floor must be above 0.
        stabilizer: π^nd, a policy that does not depend on x̃: K probabilities, a schedule t -> (K,), or None for 1/K each.
        correct_from: the first round after which the error covariance is taken out; before, the fit is uncorrected.
        guard: when a stabilised (Fuller-type) estimate replaces the formula: "auto" (where the corrected matrix is not safely positive
            definite), "always" or "never".
        context: what the decision reads. "predicted": x̃. Its best linear predictor x̂ of the context x about a mean of x̃: "blp", the mean
            of all rounds; "ew_blp", an exponentially weighted mean; "auto", whichever of the two predicts x̃ better.
        memory: for x̂: rounds over which the exponentially weighted mean averages.
        curved: for x̂: whether it is curved where coordinates of x̃ are skewed.
        weights: how rounds of different error covariance count: "unit", alike; "precision", by the reliability of x̃ (for x̂ only).

    >>> meb(2, 5, floor=0.1, refit=10)
    LinearPolicy(n_actions=2, dim=5, estimator=MEB(), floor=0.1, refit=10, name='MEB')
    """
    if context == "predicted":
        for option, usual, given in (("weights", "unit", weights), ("curved", False, curved)):
            if given != usual:
                remedy = "Take context='blp', which learns the covariance of the context."
                checks.refuse(option, f"be {usual!r} where context is 'predicted'", checks.shown(given), remedy)
    seen = _best_linear(context, memory=memory, curved=curved, weights=weights)
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=MEB(ridge=ridge, guard=guard, correct_from=correct_from, stabilizer=stabilizer, context=seen),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def meb_dr(
    n_actions: int,
    dim: int,
    *,
    width: float = 0.6,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1e-6,
    intercept: bool = False,
    guard: str = "auto",
    memory: float = 20.0,
    discount: float = 1.0,
    name: str = "MEB-DR",
) -> LinearPolicy:
    """The policy to take by default: it decides by a regression on a calibrated context, and reports a doubly robust θ.

    Predictions are calibrated relative to their mean error. Where Σe does not change, it decides as a regression on x̃ with an intercept
    does, which a wrong Σe cannot mislead; where it changes, predictions with larger errors are shrunk more and count less. Units and zeros
    of features do not matter, and neither does a constant feature. The formulas are in `estimators.Calibrated`.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        width: of the bonus for actions of which little is known, in standard errors of their mean reward, at least 0.
        floor, warmup, discount, name: see the head of `mebandit.policies.recipes`. The floor must be above 0.
        refit: as there, for the fits that decide, which are then solved for if they have 0.25 % more rounds. The reported θ is always that
            of all rounds so far.
        ridge: as there, for the reported θ alone.
        intercept: whether the reported model has an intercept, for an x without a constant feature. Decisions always allow for one.
        guard: when a stabilised (Fuller-type) estimate replaces the doubly robust formula: "auto", "always" or "never", see `meb`.
        memory: rounds over which the exponentially weighted mean averages, which is followed where the rewards bear that out.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=Calibrated(ridge=ridge, guard=guard, context=BestLinear(mean="auto", memory=memory, curved=True, weights="precision")),
        rule=UCB(width=width),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def meb_naive(
    n_actions: int,
    dim: int,
    *,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    correct_from: int = 1,
    guard: str = "auto",
    discount: float = 1.0,
    name: str = "MEB-naive",
) -> LinearPolicy:
    """MEB with the textbook correction (eq. naive-estimator), which ignores that the policy read x̃: biased, less variable.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`.
        correct_from, guard: as in `meb`.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=Naive(ridge=ridge, guard=guard, correct_from=correct_from),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def greedy(
    n_actions: int,
    dim: int,
    *,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    discount: float = 1.0,
    name: str = "Greedy",
) -> LinearPolicy:
    """Least squares on x̃ as if it were the context, greedy above the floor. With `intercept=True` right whenever E[r | x̃] is affine.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=LeastSquares(ridge=ridge),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def lin_ucb(
    n_actions: int,
    dim: int,
    *,
    width: float = 1.0,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    discount: float = 1.0,
    name: str = "UCB",
) -> LinearPolicy:
    """Linear UCB on x̃ (App. A), clipped at the floor: argmax ⟨θ̂_a, x̃⟩ + width sqrt(x̃' V_a⁻¹ x̃), V_a = ridge I + Σ x̃x̃'.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        width: multiplies the half-width of the confidence interval, at least 0.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`. The ridge must be above 0.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=LeastSquares(ridge=ridge),
        rule=UCB(width=width),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def thompson(
    n_actions: int,
    dim: int,
    *,
    width: float = 1.0,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    discount: float = 1.0,
    name: str = "TS",
) -> LinearPolicy:
    """Linear Thompson sampling on x̃ (App. A): π(a) is the posterior probability that ⟨θ_a, x̃⟩ is largest, clipped at the floor.

    θ_a ~ N(V_a⁻¹ Σ x̃ r, width² V_a⁻¹). The vector of probabilities is computed, not sampled: exactly for two actions, by quadrature for
    more. It is the one that is logged and the one that the action is drawn from.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        width: multiplies the posterior standard deviation, at least 0.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`. The ridge must be above 0.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=LeastSquares(ridge=ridge),
        rule=Thompson(width=width),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def robust_ucb(
    n_actions: int,
    dim: int,
    *,
    horizon: int,
    width: float = 1.0,
    epoch: int | None = None,
    n_budgets: int | None = None,
    gamma: float | None = None,
    floor: Floor = None,
    warmup: int = 0,
    refit: Refit = 1,
    ridge: float = 1.0,
    intercept: bool = False,
    discount: float = 1.0,
    name: str = "RobustUCB",
) -> LinearPolicy:
    """RobustUCB (Ding, Hsieh, Sharpnack 2022): LinUCB whose width grows by an attack budget that EXP3 chooses, restarted every epoch.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        horizon: T, the number of rounds, from which the next three follow where they are None; see `Robust.over`.
        width: multiplies the half-width of the confidence interval, at least 0.
        epoch: rounds between two restarts. None: ⌈√T⌉.
        n_budgets: how many attack budgets 0, 1, 2, 4, ... there are to choose from. None: those up to T.
        gamma: the rate of EXP3, in [0, 1]. None: the authors' choice.
        floor, warmup, refit, ridge, intercept, discount, name: see the head of `mebandit.policies.recipes`. The ridge must be above 0.
    """
    return LinearPolicy(
        n_actions=n_actions,
        dim=dim,
        estimator=LeastSquares(ridge=ridge),
        rule=Robust.over(horizon, width=width, epoch=epoch, n_budgets=n_budgets, gamma=gamma),
        floor=floor,
        warmup=warmup,
        refit=refit,
        intercept=intercept,
        discount=discount,
        name=name,
    )


def oracle(
    n_actions: int, dim: int, *, theta: ArrayLike | None = None, floor: Floor = None, warmup: int = 0, name: str = "oracle on x̃"
) -> LinearPolicy:
    """Knows θ, acts on x̃: its regret is the price of not seeing x.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        theta: the parameters, (K, d). None: those of the environment, in simulations only.
        floor, warmup, name: see the head of `mebandit.policies.recipes`.
    """
    return LinearPolicy(n_actions=n_actions, dim=dim, rule=Oracle(theta=theta), floor=floor, warmup=warmup, name=name)


def bayes_oracle(n_actions: int, dim: int, *, floor: Floor = None, warmup: int = 0, name: str = "oracle on E[x|x̃]") -> LinearPolicy:
    """Knows θ and the context's distribution, acts on E[x | x̃]: no policy can do better. In simulations only, where that is known.

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        floor, warmup, name: see the head of `mebandit.policies.recipes`.
    """
    return LinearPolicy(n_actions=n_actions, dim=dim, rule=BayesOracle(), floor=floor, warmup=warmup, name=name)


def uniform(n_actions: int, dim: int, *, floor: Floor = None, name: str = "uniform") -> LinearPolicy:
    """Every allowed action equally likely, and nothing learned. To learn under uniform play, take meb(..., floor=1/n_actions).

    Args:
        n_actions: K, the number of actions.
        dim: d, the number of features of a prediction.
        floor: the floor that the policy promises, which sets the benchmark of clipped regret in simulations. None: min(0.2, 1/(2K)).
        name: the name in tables.
    """
    return LinearPolicy(n_actions=n_actions, dim=dim, rule=Uniform(), floor=floor, name=name)


def _best_linear(context: str, *, memory: float, curved: bool, weights: str) -> BestLinear | None:
    """The context that a recipe's option names; None for the prediction itself."""
    checks.one_of("context", context, CONTEXTS)
    return BestLinear(mean=CONTEXTS[context], memory=memory, curved=curved, weights=weights) if CONTEXTS[context] else None
