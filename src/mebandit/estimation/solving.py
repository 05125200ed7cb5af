"""From running sums to parameters: one linear system for each arm, stabilised where its matrix is not safely positive definite.

The guard that stabilises is in `kernels/solve.py`.
"""

from typing import NamedTuple

import numpy as np

from mebandit import checks, kernels
from mebandit.estimation.methods import GUARDS
from mebandit.estimation.moments import Moments
from mebandit.kernels import layout
from mebandit.values import Booleans, Floats, Integers


class Fit(NamedTuple):
    """What the solver found for each arm."""

    theta: Floats
    """(K, p), the intercept first if there is one"""
    matrix: Floats
    """the matrix that was solved with, (K, p, p)"""
    report: Integers
    """`layout.SOLVED`, `GUARDED` or `SINGULAR`, (K,)"""
    kappa: Floats
    """the share of the error covariance that was subtracted, (K,)"""

    @property
    def inverses(self) -> dict[int, Floats]:
        """inverse matrices by arm, for the arms with a solution"""
        return {int(a): _inverse(self.matrix[a]) for a in np.flatnonzero(self.report != layout.SINGULAR)}


def _inverse(matrix: Floats) -> Floats:
    """NaN where the matrix cannot be inverted."""
    try:
        return np.asarray(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def solve(
    moments: Moments, *, correction: int, ridge: float = 0.0, guard: str = "auto", strict: bool = True, origin: Floats | None = None
) -> Fit:
    """Solve the equations of every arm: (Σ w zz' + ridge I - C) θ_a = Σ w z r, see `estimation.methods`.

    Args:
        moments: Running sums of K arms and p features.
        correction: What C is: `layout.NO_CORRECTION`, `PLAYED` or `OFFERED`.
        ridge: Added to the diagonal; 0 by default.
        guard: When the stabilised estimate replaces the formula, one of `GUARDS`; "auto" by default.
        strict: Whether an arm without a solution is an error (the default); otherwise its θ is NaN.
        origin: The Gram matrices (K, p, p) from which those of `moments` were derived by a linear map, if they were. A matrix counts as
            singular when only the rounding of `origin` keeps it from being so.

    Returns:
        θ, the matrices and how each arm was solved.

    Raises:
        SingularMoments: An arm has no solution, and `strict`.
    """
    moments.check()
    k, p = moments.n_actions, moments.n_features
    fit, report_at = np.zeros((k, layout.fit_width(p))), layout.report_at(p)
    room = kernels.Room(np.empty(layout.work_size(k, p)), np.empty(layout.aside_size(p)))
    solving = kernels.Solving(float(ridge), correction, GUARDS[guard], False)
    fit[:, :p], sums = moments.cross, np.array(moments.sums, order="C").ravel()
    for arm in range(k):
        kernels.solve_once(arm, solving, sums, fit.ravel(), p, k, room)
    report = fit[:, report_at + layout.REPORT].astype(np.int64)
    kappa = fit[:, report_at + layout.KAPPA].copy()
    subtracted = moments.played_error * kappa[:, None, None]
    plain = report == layout.SOLVED
    if correction == layout.OFFERED:
        subtracted[plain] = moments.offered_error[plain]
    matrix = moments.gram + ridge * np.eye(p) - subtracted
    if guard == "never" or origin is not None:  # elimination then stops at an exact zero only, or knows nothing of the rounding
        report[_is_singular(matrix, (moments.gram if origin is None else origin) + ridge * np.eye(p))] = layout.SINGULAR
    singular = report == layout.SINGULAR
    if singular.any() and strict:
        arm = int(np.argmax(singular))
        raise unidentified(arm, int(moments.rounds[arm]))
    fit[singular, :p] = np.nan
    return Fit(fit[:, :p].copy(), matrix, report, kappa)


def _is_singular(matrix: Floats, gram: Floats) -> Booleans:
    """Whether rounding alone keeps matrices (K, p, p) from being singular, in the units in which the diagonal of `gram` is 1, or theirs
    where that is larger."""
    values = _absolute_eigenvalues(matrix, np.maximum(np.einsum("kii->ki", gram), np.einsum("kii->ki", matrix)))
    return np.asarray(values.min(axis=1) <= 1e-13 * np.maximum(values.max(axis=1), 1.0))


def condition(matrix: Floats) -> Floats:
    """Condition numbers of symmetric matrices (K, p, p) in units in which their diagonal is ±1, (K,); infinite where singular."""
    values = _absolute_eigenvalues(matrix, np.abs(np.einsum("kii->ki", matrix)))
    least = values.min(axis=1)
    return np.asarray(np.divide(values.max(axis=1), least, out=np.full(len(matrix), np.inf), where=least > 0))


def _absolute_eigenvalues(matrix: Floats, diagonal: Floats) -> Floats:
    """|eigenvalues| of matrices (K, p, p) in units in which `diagonal` (K, p) is 1; zeros where these are not finite, (K, p)."""
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = matrix / size[:, :, None] / size[:, None, :]
    lost = np.asarray(~np.isfinite(scaled).all(axis=(1, 2)))
    return np.asarray(np.abs(np.linalg.eigvalsh(np.where(lost[:, None, None], 0.0, scaled))))


def unidentified(arm: int, rounds: int) -> checks.SingularMoments:
    """The error for an arm whose θ the data do not identify, after so many rounds with it."""
    return checks.SingularMoments(
        f"theta of action {arm} must be identified by the data; got {rounds} rounds with that action, whose "
        f"Gram matrix is singular. Give more rounds, drop features that repeat others, or set ridge > 0."
    )
