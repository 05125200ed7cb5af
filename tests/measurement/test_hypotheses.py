"""The chi-square distribution."""

import pytest
from scipy import stats

from mebandit import measurement


@pytest.mark.parametrize("df", [1, 2, 3, 7, 30, 31, 200])
def test_the_chi_square_tail_is_that_of_scipy(df: int) -> None:
    for x in [0.0, 1e-8, 0.3, df / 2, df - 0.1, df + 1.9, df + 2.1, 2.0 * df, 5.0 * df + 30]:
        ours, theirs = measurement.chi_square_tail(x, df), float(stats.chi2.sf(x, df))
        assert abs(ours - theirs) < 1e-12
        assert abs(ours - theirs) <= 1e-10 * theirs


def test_far_tails_keep_their_size() -> None:
    assert measurement.chi_square_tail(1000.0, 3) == pytest.approx(float(stats.chi2.sf(1000.0, 3)), rel=1e-10)
    assert measurement.chi_square_tail(1e5, 3) == 0.0
