"""The trial to come, from the arguments of `plan`, each checked."""

from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.analysis.planning.formulas import POLICIES, Design
from mebandit.analysis.planning.goal import Goal
from mebandit.values import Floats


class DesignOptions(TypedDict, total=False):
    """The keywords of `plan` that say how the world is supposed to be, and how actions will be chosen."""

    theta: ArrayLike | None
    """θ, (K, d); without it, `effect` and `dim`: θ_control is then 0, and θ_treatment is the effect in its one coefficient"""
    dim: int | None
    """d, the number of features, where there is no theta"""
    mean: ArrayLike
    """mean of the context: a number or (d,) (default 0)"""
    cov: ArrayLike
    """its covariance: a number, (d,) variances or (d, d); 0 for a constant feature (default 1)"""
    error_cov: ArrayLike | None
    """Σe, the covariance of the prediction's error, likewise; needed unless there is a pilot"""
    noise_sd: float
    """standard deviation of the reward's noise (default 1)"""
    policy: str
    """"meb" (default) or "meb_dr", which learn; or "constant" """
    floor: float
    """smallest probability of an action under a policy that learns (default 0.2)"""
    probabilities: ArrayLike | None
    """of the actions under the constant policy, (K,) (default: equal)"""


def design_of(
    goal: Goal,
    *,
    theta: Any = None,
    dim: int | None = None,
    mean: Any = 0.0,
    cov: Any = 1.0,
    error_cov: Any = None,
    noise_sd: float = 1.0,
    policy: str = "meb",
    floor: float = 0.2,
    probabilities: Any = None,
) -> Design:
    """The world and the policy, from a θ or from the effect alone."""
    checks.one_of("policy", policy, POLICIES)
    if error_cov is None:
        checks.refuse("error_cov", "be the covariance of the prediction's error", "nothing", "No error: error_cov=0.0.")
    rows = theta_of(goal, theta, dim)
    k, d = rows.shape
    for name, value in (("treatment", goal.treatment), ("control", goal.control)):
        if value is not None:
            checks.integer(name, value, 0, k - 1)
    checks.integer("coefficient", goal.coefficient, 0, d - 1)
    if probabilities is not None and policy != "constant":
        checks.refuse("probabilities", "go with the policy 'constant'", f"the policy {policy!r}")
    pi = np.full(k, 1.0 / k) if probabilities is None else checks.floats("probabilities", probabilities, (k,))
    if (pi <= 0).any() or abs(pi.sum() - 1) > 1e-9:
        checks.refuse("probabilities", "be above 0 and sum to 1", checks.shown(pi))
    design = Design(
        theta=rows,
        mean=checks.floats("mean", np.full(d, mean) if np.ndim(mean) == 0 else mean, (d,)),
        cov=checks.covariance("cov", cov, d),
        error_cov=checks.covariance("error_cov", error_cov, d),
        noise_sd=checks.number("noise_sd", noise_sd, "be a number of at least 0", 0.0),
        policy=policy,
        floor=checks.number("floor", floor, f"be above 0 and at most 1/{k}", 1e-6, 1.0 / k),
        probabilities=pi,
    )
    if np.linalg.eigvalsh(design.signal)[0] < 1e-10 * max(np.trace(design.signal), 1e-300):
        checks.refuse("mean and cov", "make E[xx'] invertible, for θ to be identified", f"one of {checks.shown(design.signal)}")
    return design


def theta_of(goal: Goal, theta: Any, dim: int | None) -> Floats:
    if theta is not None:
        rows = checks.floats("theta", theta, (None, None))
        checks.integer("the number of rows of theta", len(rows), 2)
        if dim is not None and dim != rows.shape[1]:
            checks.refuse("dim", "be the number of columns of theta", f"{dim} and {rows.shape[1]}")
        return rows
    if np.isnan(goal.effect) or dim is None:
        checks.refuse("the world", "be given as theta, or as effect and dim", "neither")
    rows = np.zeros((max(2, goal.treatment + 1, (goal.control or 0) + 1), checks.integer("dim", dim, 1)))
    checks.integer("coefficient", goal.coefficient, 0, rows.shape[1] - 1)
    rows[goal.treatment, goal.coefficient] = goal.effect
    return rows
