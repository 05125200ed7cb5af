"""Predicted classes: the error from a confusion matrix."""

import math

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement.model import ErrorModel, make_model
from mebandit.measurement.parameters import class_covariance, of_classes, stacked
from mebandit.values import Floats


def from_confusion(matrix: ArrayLike, *, prevalence: ArrayLike | None = None, reference: int | None = None) -> ErrorModel:
    """The error of predicted classes, from a confusion matrix.

    With x and x̃ one-hot, P[i, j] the probability of predicting class j when class i is true, and p_i the i-th row of P,

        E[x̃ | x = e_i] = p_i,  so b = 0, B = P';    V_i = B⁻¹ (diag(p_i) - p_i p_i') B⁻ᵀ;    Σe = Σ_i q_i V_i.

    The prediction must err independently of the reward given the true class. `ErrorModel.error_cov_in` takes the class shares q from a
    log instead.

    With an intercept one class must go without a column, the reference class: x and x̃ are then 0 for it, so b = p_reference, and the
    columns of B are p_i - b, all without its entry. A prediction of yes or no, 1 or 0, has one column and the reference class 0.

    Args:
        matrix: (K, K), rows are the true classes, columns the predicted ones, as in scikit-learn. Counts, or row probabilities (each row
            sums to 1), which are then taken as known.
        prevalence: The class shares q, (K,); by default the shares of the rows of counts, or equal shares for probabilities.
        reference: The number, from 0, of the class that has no column among the predictions; by default every class has one.

    Returns:
        A model of the kind "misclassified".

    >>> model = from_confusion([[80, 20], [10, 90]])
    >>> model.unbias([1.0, 0.0]).round(3)
    array([ 1.286, -0.286])
    >>> from_confusion([[80, 20], [10, 90]], reference=0).unbias([0.0]).round(3)
    array([-0.286])
    """
    P, counts = _row_probabilities(matrix)
    K = len(P)
    q = counts / counts.sum() if counts.any() else np.full(K, 1 / K)
    if prevalence is not None:
        q = checks.probabilities("prevalence", prevalence, np.ones(K, dtype=np.bool_))
    first = [] if reference is None else [checks.integer("reference", reference, 0, K - 1)]
    seen = [i for i in range(K) if i not in first]
    order = [*first, *seen]
    p, q, counts = np.ascontiguousarray(P.T[:, order]), q[order], counts[order]
    b, B = of_classes(p[seen])
    return make_model(
        "misclassified",
        class_covariance(p[seen], q),
        b=b,
        B=B,
        root=_multinomial_root(p, q, counts, seen) if counts.any() else None,
        sample_size=int(counts.sum()),
        prevalence=q,
    )


def _row_probabilities(matrix: ArrayLike) -> tuple[Floats, Floats]:
    """P, (K, K), and the number of predictions that each row was counted from, (K,); zeros for probabilities."""
    rows = checks.regular("matrix", matrix).shape[:1]
    K = checks.integer("the number of classes", rows[0] if rows else 0, 2)
    counted = checks.floats("matrix", matrix, (K, K))
    total = counted.sum(axis=1)
    if (counted < 0).any() or (total <= 0).any():
        received = f"the row {checks.shown(counted[np.argmax((counted < 0).any(axis=1) | (total <= 0))])}"
        checks.refuse("matrix", "have no negative entries and no empty rows", received, "Leave out classes that never occur.")
    counts = total if not np.allclose(total, 1, rtol=0, atol=1e-6) else np.zeros(K)
    if counts.any() and (counted != np.floor(counted)).any():
        rule = "hold counts, or probabilities that sum to 1 in every row"
        checks.refuse("matrix", rule, f"row sums {checks.shown(total)}", "Rows are the truth, columns the prediction.")
    P = counted / total[:, None]
    _require_separation(P, counts)
    return P, counts


def _require_separation(P: Floats, counts: Floats) -> None:
    """Refuse a P whose smallest singular value s = u'Pv is near zero, or within three standard errors of it."""
    U, singular, V = np.linalg.svd(P)
    u, s, v = U[:, -1], singular[-1], V[-1]
    se = math.sqrt(np.sum(u**2 * (P @ v**2 - (P @ v) ** 2) / counts)) if counts.any() else 0.0
    if s < max(0.01, 3 * se):
        rule = f"tell the classes apart, with a smallest singular value of its row probabilities above {max(0.01, 3 * se):.2g}"
        checks.refuse("matrix", rule, f"{s:.2g}", "Merge classes that are predicted alike, or count more predictions.")


def _multinomial_root(p: Floats, q: Floats, counts: Floats, seen: list[int]) -> Floats:
    """F with F F' the sampling covariance of the parameters: each p_i, a column of p, is a multinomial mean of counts_i draws.

    (diag(√p) - p √p')(diag(√p) - p √p')' = diag(p) - p p'. The derivative of Ω = Σ_i q_i (diag(p_i) - p_i p_i') follows from that of p_i.
    `seen` are the classes that have a coordinate.
    """
    columns = []
    for i, own in enumerate(p.T):
        for move in ((np.diag(np.sqrt(own)) - np.outer(own, np.sqrt(own))) / math.sqrt(counts[i]))[seen].T:
            moved = np.zeros((len(seen), len(q)))
            moved[:, i] = move
            columns.append(stacked(*of_classes(moved), q[i] * (np.diag(move) - np.outer(move, own[seen]) - np.outer(own[seen], move))))
    return np.column_stack(columns)
