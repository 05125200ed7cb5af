"""What is to be taken out of a log: one error covariance, one for each round, or what a model of the error says.

A model may have a map that unbiases the predictions first, B^-1 (x̃ - b); it is applied to the crossproducts of the log, and to its rounds.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.estimation.best_linear import mapped
from mebandit.estimation.moments import Crossproducts, Rounds, pack
from mebandit.measurement import ErrorModel
from mebandit.values import Floats


@dataclass(frozen=True)
class Correction:
    """What is known of x̃ - x."""

    mean_cov: Floats
    """Σe, or its mean over the rounds, (d, d)"""
    varying: bool
    """whether every round has its own"""
    model: ErrorModel | None = None

    def with_model(self, model: ErrorModel) -> "Correction":
        return replace(self, model=model, mean_cov=model.error_cov)

    def scaled(self, rounds: Rounds) -> Rounds:
        """Rounds whose reported variances are multiplied by what pairs with the truth said of them."""
        if not self.varying or self.model is None:
            return rounds
        root = np.sqrt(self.model.scale)
        return rounds._replace(errors=rounds.errors * pack(np.outer(root, root)))

    def settled(self, raw: Crossproducts) -> "Correction":
        """With what only the log can say: the mean Σe where it varies, the shares of the classes where classes were confused."""
        if self.varying:
            return replace(self, mean_cov=raw.mean_error(None))
        if self.model is None:
            return self
        _check_classes(self.model, raw)
        total = self.unbiased(raw).full[0].sum(axis=0)
        return replace(self, mean_cov=self.model.error_cov_in(total[0, 1:-1] / total[0, 0]))

    def unbiased(self, raw: Crossproducts) -> Crossproducts:
        """The crossproducts of B^-1 (x̃ - b) instead of x̃."""
        return raw if self._unbiasing is None else raw.mapped(self.unbiasing)

    @property
    def unbiasing(self) -> Floats:
        """The matrix that maps (1, x̃, r) to (1, B^-1 (x̃ - b), r)."""
        full = np.eye(len(self.mean_cov) + 2)
        if self._unbiasing is not None:
            full[1:-1, 1:-1], full[1:-1, 0] = self._unbiasing
        return full

    def ready(self, rounds: Rounds) -> Rounds:
        """Rounds with unbiased predictions and their error covariance."""
        if not self.varying:
            rounds = rounds._replace(errors=pack(self.mean_cov)[None])
        if self._unbiasing is None:
            return rounds
        matrix, offset = self._unbiasing
        return rounds._replace(predicted=mapped(rounds.predicted, matrix, offset))

    @property
    def _unbiasing(self) -> tuple[Floats, Floats] | None:
        """A and c with B^-1 (x̃ - b) = A x̃ + c; None where that is x̃."""
        if self.model is None or (not self.model.offset.any() and np.array_equal(self.model.slope, np.eye(self.model.dim))):
            return None
        A: Floats = np.asarray(np.linalg.inv(self.model.slope), dtype=np.float64)
        return A, -A @ self.model.offset

    def to_plain(self) -> dict[str, Any]:
        kind, unbiases = ("known", False) if self.model is None else (self.model.kind, self.model.unbiases)
        return {"kind": kind, "varies": self.varying, "unbiases": unbiases, "mean_cov": self.mean_cov.tolist()}


def _check_classes(model: ErrorModel, raw: Crossproducts) -> None:
    """Where a confusion matrix says what the error is, x̃ must be predicted classes: x̃_i² = x̃_i, x̃_i x̃_j = 0, and one of them is 1 but for a
    reference class. The sums of these over the log tell."""
    sums = raw.full[0].sum(axis=0)
    for own, places in model.pieces:
        if own.kind != "misclassified":
            continue
        n, total, products = sums[0, 0], sums[0, 1 + places], sums[np.ix_(1 + places, 1 + places)]
        off = [products - np.diag(total), total.sum() - n if own.prevalence.size == own.dim else 0.0]
        if max(np.abs(away).max() for away in off) > 1e-9 * n:
            names = ", ".join(model.features[j] if model.features else f"coordinate {j}" for j in places)
            rule = "be 1 for the class that was predicted and 0 for all others, in every round, for a confusion matrix to be of their error"
            remedy = "Of probabilities of classes, the error is found by from_validation."
            checks.refuse(f"the predicted classes ({names})", rule, "other values", remedy)
