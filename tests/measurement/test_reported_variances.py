"""Error models of predictions that report their own variances. A tolerance of 4.5 is in standard errors."""

import math

import numpy as np
import pytest

from mebandit import measurement
from mebandit.measurement import from_variances


def test_reported_variances_are_believed_or_scaled() -> None:
    rng = np.random.default_rng(5)
    v = rng.uniform(0.1, 1.0, (4000, 2))
    x = rng.normal(0, 1, v.shape)
    predicted = x + rng.normal(0, 1, v.shape) * np.sqrt(v * [1.0, 1.8])
    believed = from_variances(v)
    np.testing.assert_allclose(believed.error_cov, np.diag(v.mean(axis=0)))
    np.testing.assert_array_equal(believed.covariances(v[:3])[1], np.diag(v[1]))
    model = from_variances(v, predicted=predicted, truth=x)
    assert (np.abs(model.scale - [1.0, 1.8]) < 4.5 * model.scale_std_error).all()
    assert model.scale_std_error == pytest.approx(np.array([1, 1.8]) * math.sqrt(2 / 4000), rel=0.1)
    assert model.tests["calibration 0"].p_value > 0.01
    assert model.tests["calibration 1"].p_value < 1e-6
    assert model.verdict == "classical"
    np.testing.assert_allclose(model.covariances(v)[7], np.diag(model.scale * v[7]))
    np.testing.assert_allclose(np.diag(model.error_cov_std_error), model.scale_std_error * v.mean(axis=0), rtol=1e-6)


def test_variances_of_a_calibrated_model_are_found_to_be_berkson() -> None:
    rng = np.random.default_rng(6)
    predicted, v = rng.normal(0, 1, (2000, 1)), rng.uniform(0.1, 0.6, (2000, 1))
    model = from_variances(v, predicted=predicted, truth=predicted + rng.normal(0, np.sqrt(v)))
    assert model.verdict == "berkson"
    with pytest.warns(measurement.BerksonWarning, match="factor"):
        measurement.warn_if_berkson(model, [[1.0]])
