"""Error models from repeated readings. A tolerance of 4.5 is in standard errors."""

import math

import numpy as np
import pytest

from mebandit.measurement import from_replicates


def test_replicates_by_hand() -> None:
    readings = np.array([[[1.0], [3.0]], [[2.0], [2.0]], [[5.0], [np.nan]], [[0.0], [4.0]]])
    model = from_replicates(readings)
    assert model.error_cov[0, 0] == pytest.approx((2 + 0 + 8) / 3)
    assert (model.sample_size, model.notes["left_out"]) == (3, 1)
    assert "1 subjects with fewer than two readings were left out" in model.describe()
    assert from_replicates(readings, averaged=4).error_cov[0, 0] == pytest.approx(10 / 12)


def test_replicates_find_the_error_and_what_is_wrong_with_it() -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(3, 2, (1500, 1, 2))
    clean = truth + rng.normal(0, [0.8, 1.2], (1500, 3, 2))
    clean[rng.random(1500) < 0.3, 0] = np.nan
    model = from_replicates(clean, averaged=3)
    assert (np.abs(model.error_cov - np.diag([0.64, 1.44]) / 3) < 4.5 * model.error_cov_std_error).all()
    np.testing.assert_allclose(model.reliability, [4 / (4 + 0.64 / 3), 4 / (4 + 1.44 / 3)], atol=0.02)
    assert min(test.p_value for test in model.tests.values()) > 0.01
    assert model.tests["shift"].df == 4
    single = from_replicates(rng.normal(0, 1, (4000, 1, 1)) + rng.normal(0, math.sqrt(2), (4000, 2, 1)))
    np.testing.assert_allclose(single.reliability, 1 / 3, atol=0.05)
    shifted = from_replicates(clean + np.array([0.0, 0.2, 0.0])[None, :, None]).tests
    assert shifted["shift"].p_value < 1e-6
    growing = from_replicates(truth + rng.normal(0, 1, (1500, 3, 2)) * np.abs(truth) * [0.3, 0.0]).tests
    assert growing["level 0"].p_value < 1e-6
    assert "level 1" not in growing
