"""The error covariance from repeated readings of the same truth."""

import math

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.hypotheses import ChiSquare, score_test
from mebandit.measurement.model import ErrorModel, make_model
from mebandit.measurement.parameters import reliability_of, stacked
from mebandit.values import Booleans, Floats, Integers


def from_replicates(readings: ArrayLike, *, averaged: int = 1) -> ErrorModel:
    """Classical error, from repeated readings of the same truth.

    Σe = Σ_ij (x̃_ij - x̄_i)(x̃_ij - x̄_i)' / Σ_i (k_i - 1), x̃_ij reading j of subject i and k_i the subject's number of readings. The readings
    must err independently: an error that all readings of a subject share cannot be seen. `tests` of the result has "shift" (do the
    positions differ in mean?) and "level j" (does the spread within a subject depend on its level? Skewed errors look the same).

    Args:
        readings: (n, k, d) for n subjects with up to k >= 2 readings of d coordinates. A missing reading is NaN in all coordinates.
            Subjects with fewer than two readings are left out.
        averaged: The number of readings of which a prediction in the log is the mean; Σe is divided by it. 1 by default.

    Returns:
        A model of the kind "replicates".
    """
    averaged = checks.integer("averaged", averaged, 1)
    x, present = _readings(readings)
    n, _, d = x.shape
    count = present.sum(axis=1)
    mean = x.sum(axis=1) / count[:, None]
    away = np.where(present[:, :, None], x - mean[:, None], 0.0)
    away[:, :, np.abs(away).max(axis=(0, 1)) <= 1e-12 * np.abs(x).max(axis=(0, 1))] = 0.0  # only the rounding of a mean
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
