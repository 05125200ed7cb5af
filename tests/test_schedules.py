"""Schedules and the presets of Corollary 2.1."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mebandit as mb
from mebandit import schedules


@given(st.integers(1, 10**7), st.integers(1, 50), st.integers(2, 10))
def test_the_presets_are_those_of_corollary_2_1(horizon: int, dim: int, k: int) -> None:
    standard = mb.standard(horizon, dim, n_actions=k)
    exact = 2 * dim * horizon ** (2 / 3)
    assert abs(standard.warmup - exact) <= 1
    assert standard.warmup >= exact - 1e-6
    for t in (1, 7, horizon):
        np.testing.assert_allclose(standard.floor(t), min(1 / 2, 1 / k, t ** (-1 / 3)))  # type: ignore[operator]
    clipped = mb.clipped(0.9 / k, horizon, dim, n_actions=k)
    assert clipped.floor == 0.9 / k
    assert clipped.warmup == math.ceil(2 * dim * math.sqrt(horizon))


def test_a_preset_is_given_to_a_policy_as_keywords() -> None:
    policy = mb.meb(3, 2, **mb.standard(1000, 2, n_actions=3))
    assert policy.warmup == 400
    assert policy.floor_at(1) == 1 / 3
    assert policy.floor_at(1000) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        (schedules.EveryRound(), list(range(1, 33))),
        (schedules.Every(5), [5, 10, 15, 20, 25, 30]),
        (schedules.PowersOf(2), [2, 4, 8, 16, 32]),
        (schedules.PowersOf(3), [3, 9, 27]),
        (schedules.At((4, 17)), [4, 17]),
        (schedules.Until(7, schedules.Every(3)), [3, 6]),
    ],
)
def test_refit_times(schedule: object, times: list[int]) -> None:
    rounds = np.arange(1, 33)
    assert rounds[schedules.written_out(schedule, rounds, bool)].tolist() == times  # type: ignore[arg-type]
    assert [t for t in rounds if schedule(int(t))] == times  # type: ignore[operator]


def test_steps_and_smallest() -> None:
    steps = schedules.Steps((2, 5), (0.5, 0.2, 0.0))
    np.testing.assert_array_equal(steps(np.arange(1, 8)), [0.5, 0.5, 0.2, 0.2, 0.2, 0.0, 0.0])
    smallest = schedules.Smallest((0.3, steps))
    np.testing.assert_array_equal(smallest(np.arange(1, 8)), [0.3, 0.3, 0.2, 0.2, 0.2, 0.0, 0.0])


def test_schedules_of_ones_own_may_stand_inside_the_librarys() -> None:
    def own(t: int) -> float:
        return 0.3 if t > 5 else 0.1

    np.testing.assert_array_equal(schedules.Smallest((0.2, own))(np.arange(4, 8)), [0.1, 0.1, 0.2, 0.2])
    until = schedules.Until(6, lambda t: t > 4)
    np.testing.assert_array_equal(until(np.arange(4, 9)), [False, True, True, False, False])
    mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5, floor=own), mb.lin_ucb(2, 5, floor=0.2)], horizon=10, replicates=1)


@pytest.mark.parametrize(
    ("names", "make"),
    [
        ("Smallest.floors", lambda: schedules.Smallest(())),
        ("Smallest.floors", lambda: schedules.Smallest(0.1)),  # type: ignore[arg-type]
        ("Smallest.floors", lambda: schedules.Smallest((0.1, None))),  # type: ignore[arg-type]
        ("Until.inner", lambda: schedules.Until(3, 2)),  # type: ignore[arg-type]
    ],
)
def test_what_is_made_of_no_schedules_is_refused(names: str, make: Callable[[], object]) -> None:
    with pytest.raises(mb.InvalidInput, match=rf"^{names} must be .+; got"):
        make()


def test_any_callable_is_a_schedule_and_is_checked_when_read() -> None:
    policy = mb.meb(2, 1, floor=lambda t: 0.5 / t)
    assert policy.floor_at(5) == 0.1
    with pytest.raises(mb.InvalidInput, match=r"floor\(1\) must be in \[0, 1/n_actions\] = \[0, 0.5\]; got 0.6"):
        mb.meb(2, 1, floor=lambda t: 0.6).floor_at(1)


@given(st.integers(1, 10**6))
def test_log_spaced_rounds_hold_both_ends_and_increase(horizon: int) -> None:
    times = schedules.log_spaced(horizon)
    assert times[0] == 1
    assert times[-1] == horizon
    assert (np.diff(times) > 0).all()
    assert len(times) <= 200
