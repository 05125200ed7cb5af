"""What is known of the prediction error of a log, and how it is applied to rounds and to crossproducts.

The error covariance is one matrix for all rounds, or one for each, or that of an error model. A model may unbias the predictions first,
B^-1 (x̃ - b); this map is applied to the crossproducts of the log and to its rounds alike.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.estimation.best_linear import affine_map
from mebandit.estimation.moments import Crossproducts, Rounds, pack
from mebandit.measurement import ErrorModel
from mebandit.values import Floats


@dataclass(frozen=True)
class Correction:
    """What is known of the prediction error x̃ - x of a log."""

    mean_cov: Floats
    """Σe, or its mean over the rounds, (d, d)"""
    varying: bool
    """whether every round has a Σe of its own"""
    model: ErrorModel | None = None
    """the error model that Σe comes from, if there is one"""

    def with_model(self, model: ErrorModel) -> "Correction":
        """The same with another error model."""
        return replace(self, model=model, mean_cov=model.error_cov)

    def completed(self, raw: Crossproducts) -> "Correction":
        """The same with what only the log can tell: the mean Σe where it varies, Σe at the log's class shares where classes were confused.

        Args:
            raw: The crossproducts of the predictions as they are in the log.
        """
        raw = raw.context
        if self.varying:
            return replace(self, mean_cov=raw.mean_error(None))
        if self.model is None:
            return self
        _check_classes(self.model, raw)
        total = self.unbiased_products(raw).full[0].sum(axis=0)
        return replace(self, mean_cov=self.model.error_cov_in(total[0, 1:-1] / total[0, 0]))

    def rescaled(self, rounds: Rounds) -> Rounds:
        """Rounds whose reported variances are multiplied by the scale that the error model estimated for them."""
        if not self.varying or self.model is None:
            return rounds
        root = np.sqrt(self.model.scale)
        return rounds._replace(errors=rounds.errors * pack(np.outer(root, root)))

    def unbiased_rounds(self, rounds: Rounds) -> Rounds:
        """Rounds with unbiased predictions and their error covariance."""
        if not self.varying:
            rounds = rounds._replace(errors=pack(self.mean_cov)[None])
        if self._unbiasing is None:
            return rounds
        matrix, offset = self._unbiasing
        mapped = affine_map(rounds.context.predicted, matrix, offset)
        return rounds._replace(predicted=np.vstack([mapped, rounds.predicted[len(mapped) :]]))

    def unbiased_products(self, raw: Crossproducts) -> Crossproducts:
        """The crossproducts of B^-1 (x̃ - b) in place of x̃."""
        return raw if self._unbiasing is None else raw.mapped(self.unbiasing)

    @property
    def unbiasing(self) -> Floats:
        """The matrix that maps (1, x̃, r) to (1, B^-1 (x̃ - b), r), (d + 2, d + 2)"""
        full = np.eye(len(self.mean_cov) + 2)
        if self._unbiasing is not None:
            full[1:-1, 1:-1], full[1:-1, 0] = self._unbiasing
        return full

    @property
    def _unbiasing(self) -> tuple[Floats, Floats] | None:
        """A and c with B^-1 (x̃ - b) = A x̃ + c; None where that is x̃."""
        if self.model is None or (not self.model.offset.any() and np.array_equal(self.model.slope, np.eye(self.model.dim))):
            return None
        A: Floats = np.asarray(np.linalg.inv(self.model.slope), dtype=np.float64)
        return A, -A @ self.model.offset

    def to_plain(self) -> dict[str, Any]:
        """What is known of the error, as JSON can hold it."""
        kind, unbiases = ("known", False) if self.model is None else (self.model.kind, self.model.unbiases)
        return {"kind": kind, "varies": self.varying, "unbiases": unbiases, "mean_cov": self.mean_cov.tolist()}


def _check_classes(model: ErrorModel, raw: Crossproducts) -> None:
    """Refuse predictions that are not classes where the error model is a confusion matrix.

    Predicted classes have x̃_i² = x̃_i and x̃_i x̃_j = 0, and one of them is 1 unless the reference class was predicted. The sums of these
    over the log tell.
    """
    sums = raw.full[0].sum(axis=0)
    for own, places in model.pieces:
        if own.kind != "misclassified":
            continue
        n, total, products = sums[0, 0], sums[0, 1 + places], sums[np.ix_(1 + places, 1 + places)]
        off = [products - np.diag(total), total.sum() - n if own.prevalence.size == own.dim else 0.0]
        if max(np.abs(away).max() for away in off) > 1e-9 * n:
            names = ", ".join(model.features[j] if model.features else f"coordinate {j}" for j in places)
            rule = "be 1 for the class that was predicted and 0 for all others, in every round, for a confusion matrix to apply"
            remedy = "For predicted class probabilities use from_validation."
            checks.refuse(f"the predicted classes ({names})", rule, "other values", remedy)
