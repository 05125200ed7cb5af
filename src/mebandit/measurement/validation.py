"""The error from validation pairs of prediction and truth."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.model import PAIRED, ErrorModel, make_model
from mebandit.measurement.pairs import Pairs, by_participant, check_pairs, cost_of_a_wrong_choice, differences, judge, regressors
from mebandit.measurement.parameters import reliability_of, stacked
from mebandit.values import Floats, Integers


def from_validation(predicted: ArrayLike, truth: ArrayLike, *, assume: str | None = None, unit: ArrayLike | None = None) -> ErrorModel:
    """Which error it is, and how large, from pairs of prediction and truth.

    The model is x̃ = b + B x + e with b, B and Ω = Var(e) of the least-squares fit of x̃ on x, the kind "biased". It holds for classical
    error, for Berkson error and for any mixture, so that the intervals of θ need no decision between them.

    Classical error means b = 0, B = I in x̃ = b + B x + e; Berkson error means c = 0, C = I in x = c + C x̃ + e. Score tests that allow
    for any error variance test both at level 0.01. If one is rejected, the `verdict` is the other; if both are, it is "biased"; if
    neither is, "undecided". The verdict informs; it does not change the model. Where the kind is known, `assume` makes intervals shorter:
    with "classical", Ω is the mean of (x̃ - x)(x̃ - x)' and b = 0, B = I. Coordinates without error, such as an intercept, are left
    unchanged.

    Args:
        predicted: x̃, (n, d), at least 10 (d + 1) pairs.
        truth: x, (n, d). The pairs must come from the population of the log: for Berkson and biased error b and B depend on it.
        assume: The kind of error if it is known: "classical", "berkson" or "biased"; the `verdict` stays that of the tests. None (the
            default) is the general linear model, "biased".
        unit: Labels of participants, (n,), whose pairs may be correlated; None (the default): all pairs are independent.

    Returns:
        A model of the kind "classical", "berkson" or "biased".

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> seen, unseen = rng.normal(0, 1, (2, 1000, 1))
    >>> from_validation(predicted=seen, truth=seen + unseen).verdict
    'berkson'
    >>> from_validation(predicted=seen + unseen, truth=seen).verdict
    'classical'
    """
    if assume is not None:
        checks.one_of("assume", assume, PAIRED)
    pairs = check_pairs(predicted, truth)
    clusters = None if unit is None else _participants(unit, len(pairs.truth))
    tests, verdict = judge(pairs, clusters)
    kind = assume or "biased"
    Ω = _mean_square(pairs)
    notes = {"factor": cost_of_a_wrong_choice(pairs, Ω)} | ({} if clusters is None else {"participants": float(clusters.max() + 1)})
    rest: dict[str, Any] = {
        "sample_size": len(pairs.truth),
        "tests": tests,
        "verdict": verdict,
        "notes": notes,
    }
    if kind == "classical":
        ψ = _contributions(pairs, Ω)
        model = make_model(kind, Ω, root=by_participant(ψ, clusters).T, **rest)
    else:
        _require_trace(pairs)
        b, B, Ω, ψ = _fit(pairs)
        model = make_model(kind, Ω, b=b, B=B, root=by_participant(ψ, clusters).T, **rest)
    return replace(model, reliability=reliability_of(pairs.truth.var(axis=0), model.error_cov))


def _participants(unit: ArrayLike, n: int) -> Integers:
    """The number of each pair's participant, from 0."""
    labels = np.asarray(unit)
    if labels.shape != (n,):
        checks.refuse("unit", f"have shape ({n},)", f"shape {labels.shape}")
    index = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if index.max() < 1:
        checks.refuse("unit", "name at least two participants", "one", "One participant says nothing about the spread between them.")
    return index


def _mean_square(pairs: Pairs) -> Floats:
    """mean (x̃ - x)(x̃ - x)'"""
    D = differences(pairs)
    return D.T @ D / len(D)


def _contributions(pairs: Pairs, Ω: Floats) -> Floats:
    """The contribution of each pair to the error of the mean square Ω, stacked as the parameters are, (n, size)."""
    D = differences(pairs)
    n, d = D.shape
    ψ = (D[:, :, None] * D[:, None, :] - Ω) / math.sqrt(n * (n - 1))
    return stacked(np.zeros((n, d)), np.zeros((n, d, d)), ψ)


def _fit(pairs: Pairs) -> tuple[Floats, Floats, Floats, Floats]:
    """b, B, Ω of x̃ = b + B x + e by least squares, and the contribution of each pair to their errors, (n, size).

    D = x̃ - x is regressed on Z: c = (Z'Z)⁻¹ Z'D, then B = I + the slopes in c, Ω = Σ e e'/(n - p). The contributions are
    (Z'Z)⁻¹ z_i e_i'/(1 - h_i) to c, with the leverage h_i, and (e_i e_i' - Ω)/n to Ω.
    """
    (n, d), E = pairs.truth.shape, pairs.erring
    used = np.concatenate([E, pairs.exact])
    Q, R = np.linalg.qr(regressors(pairs, pairs.truth))
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
    """Refuse a B that may be singular: the smallest partial canonical correlation of x̃ and x, given exact coordinates, is noise."""
    base = np.linalg.qr(np.column_stack([np.ones(len(pairs.truth)), pairs.truth[:, pairs.exact]]))[0]
    sides = [np.linalg.qr(x[:, pairs.erring] - base @ (base.T @ x[:, pairs.erring]))[0] for x in (pairs.predicted, pairs.truth)]
    weakest = float(np.linalg.svd(sides[0].T @ sides[1], compute_uv=False).min(initial=1.0))
    noise = 3 / math.sqrt(len(pairs.truth))
    if weakest < noise:
        rule = f"be correlated with truth in every direction, by more than the noise 3/√n = {noise:.2g}"
        remedy = "The predictions carry no information on some direction of the truth: give more pairs, or drop or merge coordinates."
        checks.refuse("predicted", rule, f"a direction with correlation {weakest:.2g}", remedy)


def _one_minus_leverage(Q: Floats) -> Floats:
    return np.asarray(np.maximum(1 - np.sum(Q**2, axis=1), 1e-6)[:, None])
