"""What a caller gives a learner for a decision: arrays that compiled code can read at once, or an error model."""

from typing import TypeGuard

import numpy as np

from mebandit import checks
from mebandit.measurement import ErrorModel
from mebandit.values import Floats

FLOAT = np.dtype(np.float64)


def is_array(value: object, shape: tuple[int, ...]) -> TypeGuard[Floats]:
    """Whether a value can go to the compiled code as it is, where its numbers are checked. Not if it is read-only: to the compiler that is
    another type, for which all would be compiled again."""
    return type(value) is np.ndarray and value.dtype is FLOAT and value.shape == shape and value.flags.carray


def unbiased(x: Floats, model: ErrorModel) -> tuple[Floats, Floats]:
    """The prediction as unbiased by a model, (d,), and the covariance of its error, (d, d)."""
    if model.dim != x.size:
        checks.refuse("error_cov", f"be a model of {x.size} features", f"one of {model.dim}")
    if model.kind == "reported":
        remedy = "Give the covariance of this prediction: model.covariances([variances])[0]."
        checks.refuse("error_cov", "be a model with one error covariance for all rounds", "one of reported variances", remedy)
    return model.unbias(x), np.ascontiguousarray(model.error_cov)
