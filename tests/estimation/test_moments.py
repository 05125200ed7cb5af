"""Running sums and crossproducts."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mebandit.estimation import moments
from tests.strategies import Case, logs


@given(logs(), st.data())
def test_half_and_half_is_the_whole(case: Case, data: st.DataObject) -> None:
    n = len(case.x)
    cut = data.draw(st.integers(0, n))
    rounds = moments.check_rounds(
        case.x, case.actions, case.r, case.propensities, case.sigma, n_actions=case.n_actions, stabilizer=case.stabilizer
    )

    def part(start: int, stop: int) -> moments.Crossproducts:
        pieces: list[Any] = [field[start:stop] if len(field) == n else field for field in rounds]
        piece = moments.Rounds(*pieces)._replace(predicted=rounds.predicted[:, start:stop].copy())
        return moments.crossproducts(piece, case.n_actions, varying=case.sigma.ndim == 3)

    merged = part(0, cut).merge(part(cut, n))
    for mine, whole in zip(merged, part(0, n), strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())
    for mine, other in zip(merged, part(cut, n).merge(part(0, cut)), strict=True):
        np.testing.assert_array_equal(mine, other)
