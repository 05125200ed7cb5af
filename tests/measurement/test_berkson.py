"""Berkson error that is corrected as classical."""

import math
import warnings

import numpy as np
import pytest

from mebandit import measurement
from mebandit.measurement import from_known, from_validation
from tests.measurement.cases import make_pairs


def test_overcorrection_is_the_limit_of_the_wrong_estimate() -> None:
    M, Σ = np.array([[1.0, 0.3], [0.3, 0.8]]), np.diag([0.0, 0.4])
    found = measurement.overcorrection(Σ, M)
    np.testing.assert_allclose(found.matrix, np.linalg.inv(M - Σ) @ M, atol=1e-12)
    assert found.factor == pytest.approx(np.linalg.eigvals(found.matrix).real.max())
    exploded = measurement.overcorrection([[0.8]], [[0.7]])
    assert math.isinf(exploded.factor)
    assert np.isnan(exploded.matrix).all()


def test_a_warning_comes_where_the_correction_is_wrong_and_only_there() -> None:
    pairs = make_pairs("berkson", 1, 1000, 0)
    M = pairs[0].T @ pairs[0] / 1000
    assumed = from_validation(*pairs, assume="classical")
    with pytest.warns(measurement.BerksonWarning, match=f"factor of up to {measurement.overcorrection(assumed, M).factor:.3g}"):
        measurement.warn_if_berkson(assumed, M)
    with pytest.warns(measurement.BerksonWarning, match="not positive definite"):
        measurement.warn_if_berkson(from_validation(*pairs), M, error_cov=10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measurement.warn_if_berkson(from_validation(*pairs), M)
        measurement.warn_if_berkson(from_validation(*make_pairs("classical", 1, 1000, 0)), M)
        measurement.warn_if_berkson(from_known(0.3, 1), M)
