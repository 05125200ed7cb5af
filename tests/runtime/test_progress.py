"""Progress bars: what may be asked of them."""

from typing import Any

import numpy as np
import pytest

import mebandit as mb


@pytest.mark.parametrize("wrong", [np.zeros(3), "yes", 1, [True]])
def test_progress_is_asked_for_in_one_of_four_ways(wrong: Any) -> None:
    log = {"x": [1.0, 2.0], "action": [0, 1], "reward": [0.0, 1.0], "propensity": [0.5, 0.5]}
    with pytest.raises(mb.InvalidInput, match=r"^progress must be True, False, None or a function of two counts; got .*"):
        mb.value(log, "uniform", predicted="x", progress=wrong)
