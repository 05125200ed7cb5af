"""What is spliced into a caller does there what it does on its own, each time it is."""

from typing import Any

import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from mebandit.kernels.compile import jit, spliced
from mebandit.kernels.splicing import TRANSLATED


@spliced
def clipped(x: float, most: float) -> float:
    if x > most:
        return most
    return x


@spliced
def total_below(values: Any, most: float, weights: tuple[float, ...]) -> float:
    total = 0.0
    for i in range(values.size):
        x = clipped(values[i], most)
        total += weights[0] * x + weights[1] * clipped(-x, 0.0)
    return total


@jit
def three_times(values: Any, most: float) -> tuple[float, float, float]:
    """Names of the callee are the caller's too, and the third call is in a loop."""
    total, x = total_below(values, most, (1.0, 0.0)), 2.0 * most
    weights = total_below(values, x, (0.5, 2.0))
    repeated = 0.0
    for i in range(3):
        repeated += total_below(values, i + total, (weights, 1.0))
    return total, weights, repeated


@pytest.mark.parametrize("most", [-1.0, 0.3, 5.0])
def test_a_spliced_function_gives_at_every_call_what_python_gives(most: float) -> None:
    values = np.array([-2.0, 0.25, 0.5, 1.0, 3.0])

    def plainly(most: float, weights: tuple[float, float]) -> float:
        least = np.minimum(values, most)
        return float(sum(weights[0] * x + weights[1] * min(-x, 0.0) for x in least))

    total, other = plainly(most, (1.0, 0.0)), plainly(2.0 * most, (0.5, 2.0))
    repeated = sum(plainly(i + total, (other, 1.0)) for i in range(3))
    assert three_times(values, most) == pytest.approx((total, other, repeated), rel=1e-14)


@pytest.mark.skipif(not isinstance(clipped, Dispatcher), reason="nothing is compiled")
def test_what_was_translated_once_is_not_changed_by_later_calls() -> None:
    def new_caller() -> Any:
        @jit
        def caller(values: Any) -> float:
            return float(total_below(values, 1.0, (1.0, 1.0)))

        caller._cache = NullCache()  # what is read from a cache is not translated
        return caller

    assert new_caller()(np.ones(2)) == 0.0
    before = [len(block.body) for block in TRANSLATED[total_below.py_func].blocks.values()]
    assert new_caller()(np.ones(2)) == 0.0
    assert [len(block.body) for block in TRANSLATED[total_below.py_func].blocks.values()] == before
