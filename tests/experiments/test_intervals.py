"""The studies of intervals, in small: they run, their cells are shares, and a baseline and a band do what the pages say."""

import numpy as np

from mebandit.experiments import anytime, baselines, mixtures
from mebandit.experiments.interval_pages import anytime_text


def test_late_rewards_are_learned_in_the_order_of_decisions() -> None:
    """The first rounds of a trial do not depend on rewards that have not come; later ones do."""
    one, other = (anytime.late_log(3, 0, rounds) for rounds in (60, 80))
    np.testing.assert_array_equal(one.propensities, other.propensities[:60])
    assert len(set(one.propensities[: anytime.LATE].tolist())) == 1, "nothing is learned before the first reward"


def test_the_anytime_study_counts_what_leaves() -> None:
    found = anytime.run_anytime(replicates=2, workers=1, progress=False)
    band, once = (found.left(100, own) for own in (found.bands.outside, found.bands.outside_once))
    assert (band <= once).all()
    assert found.bands.ratio.shape == (2, len(anytime.LOOKS))
    assert np.nanmin(found.bands.ratio) > 1.5
    assert "| 1000 |" in anytime_text(found, "x")


def test_a_baseline_that_explains_half_of_the_variance_makes_standard_errors_a_fifth_smaller() -> None:
    found = [baselines.trial(baselines.linear, 5, 0, r) for r in range(20)]
    errors = np.mean([one.std_errors for one in found], axis=0)
    assert 0.4 < np.mean([one.share for one in found]) < 0.6
    assert (errors[1] < 0.8 * errors[0]).all()
    assert (errors[2] < 0.9 * errors[0]).all()


def test_intervals_hold_in_mixtures_of_error_kinds() -> None:
    held = np.stack([mixtures.trial(100, 0.5, 6, r) for r in range(25)])
    assert np.nanmean(held) > 0.85
