"""Validation pairs of prediction and truth: their checks, the two tests of the kind of error, and the verdict."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.berkson import overcorrection
from mebandit.measurement.hypotheses import ChiSquare, regression_test
from mebandit.values import Floats, Integers

LEVEL = 0.01
"""significance level of the tests of the kind of error"""


class Pairs(NamedTuple):
    """Validation pairs, and which coordinates take part."""

    predicted: Floats
    """x̃, (n, d)"""
    truth: Floats
    """x, (n, d)"""
    erring: Integers
    """coordinates in which prediction and truth differ"""
    exact: Integers
    """coordinates without error that are neither constant nor linear combinations of others"""


def check_pairs(predicted: ArrayLike, truth: ArrayLike) -> Pairs:
    """Pairs of prediction and truth, (n, d) each, every rule checked that the estimates need."""
    x̃ = checks.floats("predicted", predicted, (None, None))
    x = checks.floats("truth", truth, x̃.shape)
    n, d = x.shape
    checks.integer("the number of coordinates", d, 1)
    if n < 10 * (d + 1):
        checks.refuse("predicted and truth", f"have at least 10 (d + 1) = {10 * (d + 1)} pairs", f"{n}", "Give more pairs.")
    erring = np.flatnonzero(np.abs(x̃ - x).max(axis=0) > 1e-12 * np.abs(x).max(axis=0))
    exact = _independent(x, np.setdiff1d(np.arange(d), erring), np.empty((n, 0)))
    for what, array in (("truth", x), ("predicted", x̃)):
        lost = np.setdiff1d(erring, _independent(array, erring, array[:, exact]))
        if lost.size:
            remedy = "Drop it; for one-hot columns of a predicted class use from_confusion."
            rule = "vary in every coordinate that is predicted with error, and be no linear combination of others"
            checks.refuse(what, rule, f"coordinate {lost[0]}, which is constant or a linear combination of others", remedy)
    return Pairs(x̃, x, erring, exact)


def _independent(x: Floats, columns: Integers, given: Floats) -> Integers:
    """The columns that are no affine functions of the given ones and of the columns before them."""
    base = [np.ones(len(x)), *given.T]
    kept = []
    for j in columns:
        Q = np.linalg.qr(np.column_stack(base))[0]
        spread = x[:, j] - x[:, j].mean()
        rest = spread - Q @ (Q.T @ spread)
        if np.linalg.norm(rest) > 1e-8 * np.linalg.norm(spread) and np.linalg.norm(spread) > 1e-12 * np.linalg.norm(x[:, j]):
            kept.append(j)
            base.append(rest / np.linalg.norm(rest))
    return np.asarray(kept, dtype=np.int64)


def regressors(pairs: Pairs, x: Floats) -> Floats:
    """(1, the coordinates with error, those without), each row one pair; x is the truth or the prediction."""
    return np.column_stack([np.ones(len(x)), x[:, pairs.erring], x[:, pairs.exact]])


def by_participant(ψ: Floats, clusters: Integers | None) -> Floats:
    """The sums of the rows of ψ over the pairs of each participant, times sqrt(G / (G - 1)); ψ itself without participants."""
    if clusters is None:
        return ψ
    n = int(clusters.max()) + 1
    sums = np.zeros((n, *ψ.shape[1:]))
    np.add.at(sums, clusters, ψ)
    return np.asarray(sums * np.sqrt(n / (n - 1)))


def judge(pairs: Pairs, clusters: Integers | None = None) -> tuple[dict[str, ChiSquare], str]:
    """The tests of classical and of Berkson error, and the verdict.

    Args:
        pairs: The pairs.
        clusters: The number of the participant of each pair, from 0, (n,); None (default): pairs are independent.
    """
    D = (pairs.predicted - pairs.truth)[:, pairs.erring]
    tests = {
        "classical": regression_test(D, regressors(pairs, pairs.truth), clusters),
        "berkson": regression_test(D, regressors(pairs, pairs.predicted), clusters),
    }
    classical, berkson = tests["classical"].p_value, tests["berkson"].p_value
    if max(classical, berkson) < LEVEL:
        return tests, "biased"
    if min(classical, berkson) >= LEVEL:
        return tests, "undecided"
    return tests, "classical" if classical >= berkson else "berkson"


def differences(pairs: Pairs) -> Floats:
    """x̃ - x, exactly zero in coordinates without error, (n, d)."""
    D = np.zeros_like(pairs.truth)
    D[:, pairs.erring] = (pairs.predicted - pairs.truth)[:, pairs.erring]
    return D


def cost_of_a_wrong_choice(pairs: Pairs, Ω: Floats) -> float:
    """The factor by which θ would change if Berkson error were corrected as classical, for predictions like these."""
    return min(overcorrection(Ω, pairs.predicted.T @ pairs.predicted / len(pairs.predicted)).factor, 1e50)
