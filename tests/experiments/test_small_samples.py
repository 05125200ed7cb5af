"""The study of small trials: a cell counted by hand, and a world whose participants differ."""

import numpy as np

from mebandit.environments.base import tape_of
from mebandit.experiments.small_samples import GAUSSIAN, SANDWICHES, Clustered, Setting, as_markdown, run_small_samples, trial
from mebandit.values import Stretch


def test_participants_differ_and_stay_themselves() -> None:
    """The noise that a participant adds is linear in the context: the same coefficients in all rounds of the participant."""
    world = Clustered(world=GAUSSIAN, participants=5, spread=2.0)
    stretch = Stretch(3, 0, 1, 0, 60)
    tape = world.tape(stretch)
    added = tape.noise - tape_of(GAUSSIAN, stretch).noise
    slopes = []
    for i in range(5):
        own = slice(i, None, 5)
        z = np.column_stack([np.ones(12), tape.context[own]])
        found, left, *_ = np.linalg.lstsq(z, added[own], rcond=None)
        assert np.abs(left).max() < 1e-20
        slopes.append(found[1:])
    assert np.std(slopes) > 0.5
    later = world.tape(Stretch(3, 0, 1, 30, 60))
    np.testing.assert_allclose(later.noise, tape.noise[30:], rtol=1e-12)


def test_corrected_intervals_hold_more_often_in_small_trials() -> None:
    rows = [Setting("participants", Clustered(world=GAUSSIAN, participants=10), 100, 10)]
    found = run_small_samples(rows=rows, replicates=60, seed=9, workers=1, progress=False)
    before, after = (found.held["participants, 100"][kind, "dr"] for kind in SANDWICHES)
    assert after.arms.mean() > before.arms.mean() + 0.04
    assert after.cell in as_markdown(found, command="me")
    held = np.stack([trial(rows[0], 9, 0, i) for i in range(60)])
    np.testing.assert_allclose(np.nanmean(held, axis=0)[1, 1, :4], after.arms)
