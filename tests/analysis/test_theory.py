"""The paper's bounds, against the formulas of its Section 2 written out for two actions, and the constants of its assumptions."""

from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest

import mebandit as mb
from mebandit.analysis import theory
from mebandit.environments import Example21, Gaussian, HeartSteps, SmallError
from mebandit.values import Stretch

KNOWN = theory.Constants(
    dim=3,
    n_actions=2,
    largest_context=1.0,
    theta_bound=2.0,
    reward_bound=2.5,
    fourth_moment=1.4,
    second_moment=0.9,
    signal=0.3,
    error_ratio=0.4,
)


def test_the_bounds_are_those_of_corollary_2_1_for_two_actions() -> None:
    d, R, r, xi, nu, lam, rho, T, p0 = 3, 2.0, 2.5, 1.4, 0.9, 0.3, 0.4, 5000, 0.1
    common = (sqrt(nu) + sqrt(xi) + 1) * (r + R) * sqrt(1 + log(T) / d)
    standard = 7 * d * T ** (2 / 3) * (R / (1 - rho) + common / ((1 - rho) * lam))
    clipped = 7 * d * sqrt(T) * (R + common * (1 - 2 * p0) / (sqrt(p0) * (1 - rho) * lam))
    assert theory.regret_bound(T, KNOWN, setting="standard", C=7) == pytest.approx(standard)
    assert theory.regret_bound(T, KNOWN, setting="clipped", floor=p0, C=7) == pytest.approx(clipped)


def test_the_bounds_for_rare_updates_and_an_estimated_covariance() -> None:
    d, R, r, xi, nu, lam, rho, T, p0, a = 3, 2.0, 2.5, 1.4, 0.9, 0.3, 0.4, 5000, 0.1, 0.5
    common = (sqrt(nu) + sqrt(xi) + 1) * (r + R) * sqrt(1 + log(T) / d)
    standard = d * T ** (2 / 3) * (R / a + R / (1 - rho) + common / (a ** (1 / 3) * lam * (1 - rho)))
    clipped = d * sqrt(T) * (R / a + common * (1 - 2 * p0) / (lam * (1 - rho) * sqrt(a * p0)))
    assert theory.regret_bound(T, KNOWN, setting="standard", refit_share=a) == pytest.approx(standard)
    assert theory.regret_bound(T, KNOWN, setting="clipped", floor=p0, refit_share=a) == pytest.approx(clipped)
    more = theory.regret_bound(T, KNOWN, setting="clipped", floor=p0, deviations=10.0) - theory.regret_bound(
        T, KNOWN, setting="clipped", floor=p0
    )
    assert more == pytest.approx(4 * (1 - 2 * p0) * R * d / ((1 - rho) * lam) * 10)


def test_the_estimation_bound_and_its_condition() -> None:
    d, R, r, xi, nu, lam, t, q = 3, 2.0, 2.5, 1.4, 0.9, 0.3, 800, 0.05
    ratio = (d + log(t)) / (q * t)
    expected = 2 * (r + R) * d / lam * max(ratio, (sqrt(nu) + sqrt(xi)) / sqrt(d) * sqrt(ratio)) + 2 * R * d / lam * 0.01
    assert theory.estimation_bound(t, q, KNOWN, C=2, deviation=0.01) == pytest.approx(expected)
    assert theory.least_propensity(t, KNOWN) == pytest.approx(max(d * (d + log(t)) / (lam * t), xi * (d + log(t)) / (lam**2 * t)))


def test_the_horizon_that_the_corollary_asks_for() -> None:
    d, xi, lam, T = 3, 1.4, 0.3, int(exp(9))
    grown = d + log(T)
    assert theory.least_horizon(T, KNOWN, setting="standard") == pytest.approx(
        max((1 + 1 / lam ** (9 / 4)) * grown**3, (xi / lam) ** (9 / 4) * grown ** (4 / 3))
    )
    assert theory.least_horizon(T, KNOWN, setting="clipped", floor=0.2, refit_share=0.5) == pytest.approx(
        2 * max(grown**2 / (lam * 0.2) ** 2, xi**2 / lam**4 * (1 + log(T) / d) ** 2)
    )
    with pytest.raises(mb.InvalidInput, match="setting must be one of 'standard', 'clipped'; got 'online'"):
        theory.least_horizon(T, KNOWN, setting="online")


def test_regret_from_errors_by_hand() -> None:
    """Three rounds, the first a warm-up: 2 R, then for errors .5 and .25 at floors .3 and .2."""
    standard = theory.regret_from_errors([9.0, 0.5, 0.25], KNOWN, setting="standard", floor=[0.4, 0.3, 0.2], warmup=1)
    assert standard == pytest.approx(2 * 2.0 + 2 / 0.6 * (0.3 * 2 + 0.5 + 0.2 * 2 + 0.25))
    clipped = theory.regret_from_errors([9.0, 0.5, 0.25], KNOWN, setting="clipped", floor=0.2, warmup=1)
    assert clipped == pytest.approx(2 * 2.0 + 2 / 0.6 * 0.6 * 0.75)
    three = theory.regret_from_errors([0.5], KNOWN._replace(n_actions=3), setting="standard", floor=0.1, warmup=0)
    assert three == pytest.approx(2 / 0.6 * (2 * 0.1 * 2 + 0.5))


def test_theorem_2_2_holds_on_simulated_rounds() -> None:
    """Regret measured in a world of Assumption 3 stays below what the measured errors of estimation allow, replicate by replicate."""
    world, horizon, warmup = SmallError(noise_sd=0.5), 400, 40
    known = theory.constants_of(world.tape(Stretch(0, 0, 0, 0, 5000)))
    policy = mb.meb(2, 2, floor=0.1, warmup=warmup)
    results = mb.simulate(world, [policy], horizon=horizon, replicates=20, floor=0.1, milestones=list(range(1, horizon + 1)))
    assert results.times.tolist() == list(range(1, horizon + 1))
    for n in range(20):
        errors = np.concatenate([[9.9], results.of("estimation_error")[0, n, :-1]])
        bound = theory.regret_from_errors(errors, known, setting="clipped", floor=0.1, warmup=warmup)
        assert results.clipped_regret[0, n, -1] <= bound


def test_constants_of_a_world_whose_assumptions_hold() -> None:
    known = theory.constants_of(SmallError(contexts=64, rho=0.5).tape(Stretch(1, 0, 0, 0, 40_000)))
    assert known.hold
    assert known.largest_context == pytest.approx(1.0)
    assert known.error_ratio == pytest.approx(0.5)
    assert known.theta_bound == 1.0
    x = SmallError().tape(Stretch(1, 0, 0, 0, 40_000))
    w = sqrt(2) * (x.context + x.error)
    directions = np.stack([np.cos(np.linspace(0, pi, 721)), np.sin(np.linspace(0, pi, 721))])
    assert known.fourth_moment == pytest.approx(((w @ directions) ** 4).mean(axis=0).max(), rel=1e-4)
    assert known.second_moment == pytest.approx(((w @ directions) ** 2).mean(axis=0).max(), rel=1e-4)
    radius2 = float((x.context**2).sum(axis=1).mean())
    assert known.signal == pytest.approx(2 * radius2 / 2 / 2, rel=0.15)  # d E[x_1²] / K, at its smallest over time


def test_where_an_assumption_fails_there_is_no_bound() -> None:
    far = KNOWN._replace(error_ratio=1.5)
    assert theory.regret_bound(1000, far, setting="standard") == inf
    assert theory.regret_from_errors([0.1], far, setting="clipped", floor=0.2, warmup=0) == inf
    assert theory.estimation_bound(100, 0.2, KNOWN._replace(signal=0.0)) == inf
    with pytest.raises(mb.InvalidInput, match=r"floor must be in \(0, 1/n_actions\] = \(0, 0.5\]; got 0.9"):
        theory.regret_bound(1000, KNOWN, setting="clipped", floor=0.9)
    with pytest.raises(mb.InvalidInput, match=r"q must be in \(0, 1\]; got 0"):
        theory.estimation_bound(100, 0.0, KNOWN)


def test_constants_say_where_the_assumptions_fail() -> None:
    assert not theory.constants_of(Gaussian().tape(Stretch(0, 0, 0, 0, 2000))).hold
    example = theory.constants_of(Example21().tape(Stretch(0, 0, 0, 0, 2000)))
    assert example.error_ratio == pytest.approx(6.0)  # ±0.2 seen as ∓1
    assert not example.hold
    with pytest.raises(mb.InvalidInput, match="past actions drive a feature"):
        theory.constants_of(HeartSteps().tape(Stretch(0, 0, 0, 0, 10)))
