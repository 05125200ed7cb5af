"""Predictions that report the variances of their own errors."""

import math

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.hypotheses import ChiSquare, score_test
from mebandit.measurement.model import ErrorModel, make_model, non_negative
from mebandit.measurement.pairs import Pairs, check_pairs, cost_of_a_wrong_choice, differences, judge
from mebandit.measurement.parameters import reliability_of, stacked
from mebandit.values import Floats


def from_variances(variances: ArrayLike, *, predicted: ArrayLike | None = None, truth: ArrayLike | None = None) -> ErrorModel:
    """Predictions that report the variances of their own errors, coordinate by coordinate.

    Without pairs the reported variances v are taken as correct, Σe,t = diag(v_t). With pairs Σe,t = diag(s v_t), with the calibration
    factor s = mean of (x̃ - x)²/v of each coordinate, its test of s = 1, and the verdict on the kind of error that `from_validation` gives:
    a variance that a model reports is often that of the truth given the prediction, and the error then is Berkson.

    Args:
        variances: v, (n, d), of the same rounds as the pairs, or of any if there are none.
        predicted: x̃ of validation pairs, (n, d); None by default.
        truth: x of validation pairs, (n, d); None by default.

    Returns:
        A model of the kind "reported". Its `covariances(variances)` are Σe,t, its `error_cov` is their mean.
    """
    v = non_negative("variances", variances, (None, None))
    n, d = v.shape
    checks.integer("the number of coordinates", d, 1)
    checks.integer("the number of rows of variances", n, 2)
    if predicted is None and truth is None:
        return make_model("reported", np.diag(v.mean(axis=0)))
    if predicted is None or truth is None:
        checks.refuse("predicted and truth", "be given both or not at all", f"only {'truth' if predicted is None else 'predicted'}")
    checks.shaped("predicted", predicted, (n, d))
    pairs = check_pairs(predicted, truth)
    s, ψ, calibration = _calibration(pairs, v)
    tests, verdict = judge(pairs)
    Ω = np.diag(s * v.mean(axis=0))
    moves = np.zeros((n, d, d))
    moves[:, np.arange(d), np.arange(d)] = ψ * v.mean(axis=0)
    return make_model(
        "reported",
        Ω,
        root=stacked(np.zeros((n, d)), np.zeros((n, d, d)), moves).T,
        sample_size=n,
        tests=tests | calibration,
        verdict=verdict,
        reliability=reliability_of(pairs.truth.var(axis=0), Ω),
        scale=s,
        scale_std_error=np.sqrt(np.sum(ψ**2, axis=0)),
        notes={"factor": cost_of_a_wrong_choice(pairs, Ω)},
    )


def _calibration(pairs: Pairs, v: Floats) -> tuple[Floats, Floats, dict[str, ChiSquare]]:
    """s = mean (x̃ - x)²/v where v > 0, (d,); the contribution of each pair to its error, (n, d); the tests of s = 1."""
    D = differences(pairs)
    silent = (v == 0) & (D != 0)
    if silent.any():
        i, j = (int(k) for k in np.argwhere(silent)[0])
        checks.refuse("variances", "be positive where prediction and truth differ", f"0 at [{i}, {j}], where they differ by {D[i, j]:.3g}")
    s, ψ, tests = np.ones(v.shape[1]), np.zeros(v.shape), {}
    for j in pairs.erring:
        told = np.flatnonzero(v[:, j] > 0)
        ratio = D[told, j] ** 2 / v[told, j]
        s[j] = ratio.mean()
        ψ[told, j] = (ratio - s[j]) / math.sqrt(told.size * max(told.size - 1, 1))
        tests[f"calibration {j}"] = score_test((ratio - 1)[:, None])
    return s, ψ, tests
