"""Error covariances from outside, and from repeated readings of the same truth."""

import math

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.hypotheses import ChiSquare, score_test
from mebandit.measurement.model import ErrorModel, make_model, reliability_of, stacked
from mebandit.values import Booleans, Floats, Integers


def from_known(cov: ArrayLike, dim: int | None = None) -> ErrorModel:
    """Classical error with a covariance that is known: a number (with `dim`), a vector for a diagonal, or a matrix.

    >>> from_known([0.0, 0.3]).error_cov
    array([[0. , 0. ],
           [0. , 0.3]])
    """
    size = checks.regular("cov", cov).shape
    if dim is None and np.ndim(cov) == 0:
        checks.refuse("dim", "be given with a covariance that is a single number", "None", "Or give a vector or a matrix.")
    d = checks.integer("dim", size[0] if dim is None else dim, 1)
    return make_model("known", checks.covariance("cov", cov, d).copy())


def from_replicates(readings: ArrayLike, *, averaged: int = 1) -> ErrorModel:
    """Classical error from repeated readings of the same truth, (n, k, d) with k >= 2; a missing reading is all NaN.

    Σe = Σ_ij (x̃_ij - x̄_i)(x̃_ij - x̄_i)' / Σ_i (k_i - 1), divided by `averaged` if a prediction in the log is the mean of so many readings.
    Subjects with fewer than two readings are left out. The readings must err independently: an error that all readings of a subject
    share is not seen. `tests` has "shift" (do the positions differ in mean?) and "level j" (does the spread within a subject go with its
    level? Skewed errors look the same).
    """
    averaged = checks.integer("averaged", averaged, 1)
    x, present = _readings(readings)
    n, _, d = x.shape
    count = present.sum(axis=1)
    mean = x.sum(axis=1) / count[:, None]
    away = np.where(present[:, :, None], x - mean[:, None], 0.0)
    away[:, :, np.abs(away).max(axis=(0, 1)) <= 1e-12 * np.abs(x).max(axis=(0, 1))] = 0.0  # the rounding of a mean is no error
    S, f = np.einsum("ikj,ikl->ijl", away, away), count - 1
    Σ = S.sum(axis=0) / f.sum()
    ψ = (S - f[:, None, None] * Σ) / f.sum() * math.sqrt(n / (n - 1)) / averaged
    Ω = Σ / averaged
    truth_variance = np.maximum(mean.var(axis=0, ddof=1) - np.diag(Σ) * np.mean(1 / count), 0.0)
    return make_model(
        "replicates",
        Ω,
        root=stacked(np.zeros((n, d)), np.zeros((n, d, d)), ψ).T,
        sample_size=n,
        tests=_replicate_tests(away, S, f, mean),
        reliability=reliability_of(truth_variance, Ω),
        notes={"left_out": float(len(np.asarray(readings)) - n), "averaged": float(averaged)},
    )


def _readings(readings: ArrayLike) -> tuple[Floats, Booleans]:
    """The subjects with two readings or more, missing readings as zeros, and which readings are there, (n, k)."""
    x = checks.shaped("readings", readings, (None, None, None))
    n, k, d = x.shape
    checks.integer("the number of readings of a subject", k, 2)
    checks.integer("the number of coordinates", d, 1)
    missing = np.isnan(x)
    present = np.asarray(~missing.all(axis=2))
    torn = missing.any(axis=2) & present
    if torn.any():
        i, j = (int(v) for v in np.argwhere(torn)[0])
        checks.refuse("a reading", "be complete or missing as a whole (all NaN)", f"{checks.shown(x[i, j])} at [{i}, {j}]")
    x = checks.floats("readings", np.where(missing, 0.0, x), (n, k, d))
    usable = present.sum(axis=1) >= 2
    if usable.sum() < d + 2:
        rule = f"have at least d + 2 = {d + 2} subjects with two readings or more"
        checks.refuse("readings", rule, f"{int(usable.sum())}", "Give more subjects.")
    return x[usable], present[usable]


def _replicate_tests(away: Floats, S: Floats, f: Integers, mean: Floats) -> dict[str, ChiSquare]:
    n, k, _ = away.shape
    erring = np.flatnonzero(away.any(axis=(0, 1)))
    tests = {}
    if erring.size and n > 2 * (k - 1) * erring.size:  # with fewer subjects the test would be a guess
        tests["shift"] = score_test(away[:, :, erring].reshape(n, -1))
    for j in erring:
        level, spread = mean[:, j], S[:, j, j] / f
        tests[f"level {j}"] = score_test(((level - level.mean()) * (spread - spread.mean()))[:, None])
    return tests
