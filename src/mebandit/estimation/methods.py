"""The methods of estimation by name, with their formulas.

For arm a, with weights w_t = 1{a_t = a} (ridge, naive) or 1{a_t = a} π^nd_t(a)/π_t(a) (meb), these three solve

    (Σ w x̃x̃' + ridge I - C) θ_a = Σ w x̃ r

and differ in C: nothing (ridge); Σ 1{a_t = a} Σe,t (naive, eq. naive-estimator); Σ_t π^nd_t(a) Σe,t (meb, eq. proposed-estimator,
with an estimate in place of Σe,t also eq. proposed-estimator-estimated-Sigma). Two more are ours.

dr, doubly robust: the rounds in which arm a was not played are informative too. With c_t = π^nd_t(a), u_t = 1{a_t = a}/π_t(a), z = (1, x̃),
β_a from least squares of r on z in the arm, and the pseudo-outcome y_t = z'β_a + u_t (r_t - z'β_a) for every round,

    (Σ c (x̃x̃' - Σe,t)) θ_a = Σ c x̃ y.

E[y_t | x_t, x̃_t] = ⟨θ_a, x_t⟩ for any β_a, because the propensities are known; a good β_a reduces the variance.

rc, regression calibration: least squares of r on x̂_t, the best linear predictor of x_t (`estimation.best_linear`), in the arm. It needs no
propensities and has the smallest variance. It is consistent where E[x | x̃] is linear, as for normal contexts, and biased elsewhere.
"""

from typing import Literal, NamedTuple, get_args

from mebandit.kernels import layout

Method = Literal["ridge", "naive", "meb", "dr", "rc"]
METHODS: tuple[Method, ...] = get_args(Method)
PREFERRED: tuple[Method, ...] = ("dr", "meb", "rc", "naive", "ridge")
"""methods in the order in which one would read them"""

Guard = Literal["auto", "always", "never"]
GUARDS: dict[str, int] = {"auto": layout.GUARD_AUTO, "always": layout.GUARD_ALWAYS, "never": layout.GUARD_NEVER}
"""when the stabilised (Fuller-type) estimate replaces the bare formula: where its matrix is not safely positive definite, always, never"""

RECIPES = {
    "ridge": (layout.UNIT, layout.NO_CORRECTION),
    "naive": (layout.UNIT, layout.PLAYED),
    "meb": (layout.INVERSE, layout.OFFERED),
    "dr": (layout.PSEUDO, layout.PLAYED),
    "rc": (layout.UNIT, layout.NO_CORRECTION),
}
"""method -> how a round is weighted, which error covariance is subtracted; regression calibration is a plain least squares on x̂"""


class Options(NamedTuple):
    """How the equations of every method are solved."""

    ridge: float = 0.0
    """added to the diagonal of the Gram matrix"""
    intercept: bool = False
    """whether an intercept is fitted for every arm"""
    guard: str = "auto"
    """one of `GUARDS`"""
    sandwich: str = "hc2"
    """how standard errors are corrected for small samples: one of `leverage.SANDWICHES`"""
