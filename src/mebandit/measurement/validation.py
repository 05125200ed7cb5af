"""Pairs of prediction and truth: which error it is, and how large."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.hypotheses import ChiSquare, regression_test
from mebandit.measurement.model import PAIRED, ErrorModel, make_model, reliability_of, stacked
from mebandit.measurement.overcorrecting import overcorrection
from mebandit.values import Floats, Integers

LEVEL = 0.01
"""at which a hypothesis about the error is rejected"""


class Pairs(NamedTuple):
    """Validation pairs, and which coordinates take part."""

    predicted: Floats
    truth: Floats
    erring: Integers
    """coordinates in which prediction and truth differ"""
    exact: Integers
    """coordinates without error that explain something: neither constant nor repeating others"""


def from_validation(predicted: ArrayLike, truth: ArrayLike, *, assume: str | None = None) -> ErrorModel:
    """Which error it is, and how large, from pairs of prediction and truth, (n, d) each, drawn where the log was drawn.

    Classical error means b = 0, B = I in x̃ = b + B x + e; Berkson error c = 0, C = I in x = c + C x̃ + e. Score tests that allow for any
    error variance test both, at level 0.01. One rejected: the `verdict` is the other. Both: "biased". None: "undecided", and it
    is used as the one with the larger p-value. `assume` ("classical", "berkson" or "biased") says how to use it whatever the verdict.

    Used as classical, Ω = mean of (x̃ - x)(x̃ - x)'; else b, B and Ω are those of the least-squares fit of x̃ on x. Coordinates without error,
    such as an intercept, stay as they are.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> seen, unseen = rng.normal(0, 1, (2, 1000, 1))
    >>> from_validation(predicted=seen, truth=seen + unseen).kind
    'berkson'
    >>> from_validation(predicted=seen + unseen, truth=seen).kind
    'classical'
    """
    if assume is not None:
        checks.one_of("assume", assume, PAIRED)
    pairs = check_pairs(predicted, truth)
    tests, verdict, likelier = judge(pairs)
    kind = assume or likelier
    Ω = _mean_square(pairs)
    rest: dict[str, Any] = {
        "sample_size": len(pairs.truth),
        "tests": tests,
        "verdict": verdict,
        "notes": {"factor": cost_of_a_wrong_choice(pairs, Ω)},
    }
    if kind == "classical":
        ψ = _contributions(pairs, Ω)
        model = make_model(kind, Ω, root=ψ.T, **rest)
    else:
        _require_trace(pairs)
        b, B, Ω, ψ = _fit(pairs)
        model = make_model(kind, Ω, b=b, B=B, root=ψ.T, **rest)
    return replace(model, reliability=reliability_of(pairs.truth.var(axis=0), model.error_cov))


def check_pairs(predicted: ArrayLike, truth: ArrayLike) -> Pairs:
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
            rule = "vary in every coordinate that is predicted with error, and not as others dictate"
            checks.refuse(what, rule, f"coordinate {lost[0]}, which is constant or a combination of others", remedy)
    return Pairs(x̃, x, erring, exact)


def _independent(x: Floats, columns: Integers, given: Floats) -> Integers:
    """Those of the columns, taken in turn, that are not affine functions of the given ones and of those before."""
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


def _regressors(pairs: Pairs, x: Floats) -> Floats:
    """(1, the coordinates with error, those without), each row one pair; x is the truth or the prediction."""
    return np.column_stack([np.ones(len(x)), x[:, pairs.erring], x[:, pairs.exact]])


def judge(pairs: Pairs) -> tuple[dict[str, ChiSquare], str, str]:
    """The two tests, the verdict, and how to use it."""
    D = (pairs.predicted - pairs.truth)[:, pairs.erring]
    tests = {
        "classical": regression_test(D, _regressors(pairs, pairs.truth)),
        "berkson": regression_test(D, _regressors(pairs, pairs.predicted)),
    }
    classical, berkson = tests["classical"].p_value, tests["berkson"].p_value
    if max(classical, berkson) < LEVEL:
        return tests, "biased", "biased"
    likelier = "classical" if classical >= berkson else "berkson"
    return tests, "undecided" if min(classical, berkson) >= LEVEL else likelier, likelier


def differences(pairs: Pairs) -> Floats:
    """x̃ - x, zero to the last bit where there is no error"""
    D = np.zeros_like(pairs.truth)
    D[:, pairs.erring] = (pairs.predicted - pairs.truth)[:, pairs.erring]
    return D


def _mean_square(pairs: Pairs) -> Floats:
    """mean (x̃ - x)(x̃ - x)'"""
    D = differences(pairs)
    return D.T @ D / len(D)


def _contributions(pairs: Pairs, Ω: Floats) -> Floats:
    """What each pair adds to the error of the mean square Ω, stacked as the parameters are, (n, size)."""
    D = differences(pairs)
    n, d = D.shape
    ψ = (D[:, :, None] * D[:, None, :] - Ω) / math.sqrt(n * (n - 1))
    return stacked(np.zeros((n, d)), np.zeros((n, d, d)), ψ)


def _fit(pairs: Pairs) -> tuple[Floats, Floats, Floats, Floats]:
    """b, B, Ω of x̃ = b + B x + e by least squares, and what each pair adds to their errors, (n, size).

    It is D = x̃ - x that is regressed: c = (Z'Z)⁻¹ Z'D, then B = I + the slopes in c, Ω = Σ e e'/(n - p). The contributions are
    (Z'Z)⁻¹ z_i e_i'/(1 - h_i) to c, with the leverage h_i, and (e_i e_i' - Ω)/n to Ω.
    """
    (n, d), E = pairs.truth.shape, pairs.erring
    used = np.concatenate([E, pairs.exact])
    Q, R = np.linalg.qr(_regressors(pairs, pairs.truth))
    D = (pairs.predicted - pairs.truth)[:, E]
    c = np.linalg.solve(R, Q.T @ D)
    e = D - Q @ (Q.T @ D)
    p = len(R)
    b, B, Ω = np.zeros(d), np.eye(d), np.zeros((d, d))
    b[E] = c[0]
    B[np.ix_(E, used)] += c[1:].T
    Ω[np.ix_(E, E)] = e.T @ e / (n - p)
    ψ_c = np.einsum("ip,im->ipm", np.linalg.solve(R, Q.T).T, e / _one_minus_leverage(Q))
    ψ_b, ψ_B, ψ_Ω = np.zeros((n, d)), np.zeros((n, d, d)), np.zeros((n, d, d))
    ψ_b[:, E] = ψ_c[:, 0]
    ψ_B[np.ix_(np.arange(n), E, used)] = ψ_c[:, 1:].transpose(0, 2, 1)
    ψ_Ω[np.ix_(np.arange(n), E, E)] = (e[:, :, None] * e[:, None, :]) / (n - p) - Ω[np.ix_(E, E)] / n
    return b, B, Ω, stacked(ψ_b, ψ_B, ψ_Ω)


def _require_trace(pairs: Pairs) -> None:
    """Refuse a B that cannot be inverted: the smallest canonical correlation of x̃ and x, given what has no error, is within its noise."""
    base = np.linalg.qr(np.column_stack([np.ones(len(pairs.truth)), pairs.truth[:, pairs.exact]]))[0]
    sides = [np.linalg.qr(x[:, pairs.erring] - base @ (base.T @ x[:, pairs.erring]))[0] for x in (pairs.predicted, pairs.truth)]
    weakest = float(np.linalg.svd(sides[0].T @ sides[1], compute_uv=False).min(initial=1.0))
    noise = 3 / math.sqrt(len(pairs.truth))
    if weakest < noise:
        rule = f"be correlated with truth in every direction, by more than the noise 3/√n = {noise:.2g}"
        remedy = "Some direction of the truth leaves no trace in the predictions: give more pairs, or drop or merge coordinates."
        checks.refuse("predicted", rule, f"a direction with correlation {weakest:.2g}", remedy)


def cost_of_a_wrong_choice(pairs: Pairs, Ω: Floats) -> float:
    """By how much θ would change if Berkson error were corrected as classical, for predictions like these."""
    return min(overcorrection(Ω, pairs.predicted.T @ pairs.predicted / len(pairs.predicted)).factor, 1e50)


def _one_minus_leverage(Q: Floats) -> Floats:
    return np.asarray(np.maximum(1 - np.sum(Q**2, axis=1), 1e-6)[:, None])
