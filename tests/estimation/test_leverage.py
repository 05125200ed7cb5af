"""Small-sample corrections: beside statsmodels, beside estimates that leave a cluster out, and Student's t beside scipy."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm

import mebandit as mb
from mebandit.estimation.anytime import boundary
from mebandit.estimation.leverage import Sandwich
from mebandit.estimation.methods import Method
from mebandit.estimation.student import f_tail, satterthwaite, t_quantile
from mebandit.values import Floats, Integers


def small_log(n: int = 60) -> tuple[Floats, Integers, Floats, Floats]:
    rng = np.random.default_rng(5)
    x = rng.normal(1, 1, (n, 2))
    propensities = np.where(x[:, :1] > 1, [0.3, 0.7], [0.6, 0.4])
    actions = (rng.random(n) < propensities[:, 1]).astype(np.int64)
    rewards = np.where(actions == 1, x @ [1.0, -1.0], x @ [0.5, 0.0]) + rng.standard_t(5, n)
    return x, actions, rewards, propensities


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("method", ["ridge", "naive", "meb", "rc"])
def test_without_error_and_with_constant_probabilities_it_is_statsmodels(method: Method, intercept: bool) -> None:
    """HC2 and HC3 of least squares in the rounds of each action, and Mancl-DeRouen's covariance of clusters.

    All but ridge have weights that are the same in all rounds, and so cancel. "meb" and "rc" hold nothing more where the error is zero.
    """
    x, actions, rewards, _ = small_log()
    design = sm.add_constant(x) if intercept else x
    unit = np.arange(60) // 5
    kinds: tuple[Sandwich, ...] = ("hc2", "hc3", "hc0")
    for kind in kinds:
        found = mb.estimate(x, actions, rewards, np.full(60, 0.5), 0.0, method=method, intercept=intercept, sandwich=kind)
        p = design.shape[1]
        for a in (0, 1):
            theirs = sm.OLS(rewards[actions == a], design[actions == a]).fit(cov_type=kind.upper()).cov_params()
            np.testing.assert_allclose(found.covariance[a * p : (a + 1) * p, a * p : (a + 1) * p], theirs, rtol=1e-8, atol=1e-12)
    both = np.hstack([design * (actions == a)[:, None] for a in (0, 1)])
    theirs = sm.GEE(rewards, both, groups=unit).fit(cov_type="bias_reduced", scale=1.0, ddof_scale=0).cov_params()
    found = mb.estimate(x, actions, rewards, np.full(60, 0.5), 0.0, method=method, intercept=intercept, unit=unit, sandwich="hc3")
    p = design.shape[1]
    for a in (0, 1):  # their leverage is of all actions together, but the rounds of an action have none on the other
        own = np.ix_(range(a * p, (a + 1) * p), range(a * p, (a + 1) * p))
        np.testing.assert_allclose(found.covariance[own], theirs[own], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("method", ["ridge", "naive", "meb", "dr", "rc", "dr with a baseline"])
@pytest.mark.parametrize("kind", ["hc2", "hc3"])
def test_a_round_is_a_cluster_of_its_own(method: str, kind: Sandwich) -> None:
    """The compiled correction of rounds and the one of clusters, by eigenvectors, are two ways to the same numbers."""
    x, actions, rewards, propensities = small_log()
    name: Method = method.partition(" ")[0]  # type: ignore[assignment]
    given: dict[str, Any] = {"baseline": np.sin(np.arange(60))} if "baseline" in method else {}
    each = mb.estimate(x, actions, rewards, propensities, 0.1, method=name, intercept=True, sandwich=kind, **given)
    own = mb.estimate(x, actions, rewards, propensities, 0.1, method=name, intercept=True, sandwich=kind, unit=np.arange(60), **given)
    tolerance = 1e-9 if method != "rc" else 0.02  # the correction of clusters is of the whole score, with what calibration adds
    np.testing.assert_allclose(own.covariance, each.covariance, rtol=tolerance, atol=tolerance * np.abs(each.covariance).max())
    np.testing.assert_allclose(own.df, each.df, rtol=0.1 if method == "rc" else 1e-6)


@pytest.mark.parametrize("columns", [0, 2])
def test_hc3_of_dr_is_the_jackknife_over_clusters(columns: int) -> None:
    """Without error the influence of a cluster is the estimate less the one without it, regression of the outcomes, baseline and all."""
    x, actions, rewards, propensities = small_log(120)
    unit, s = np.arange(120) // 6, np.random.default_rng(6).normal(0, 1, (120, 2))
    rewards = rewards + 2 * s[:, 0]
    given = s[:, :columns] if columns else None
    whole = mb.estimate(x, actions, rewards, propensities, 0.0, method="dr", unit=unit, sandwich="hc3", baseline=given)
    out = []
    for g in range(20):
        keep = unit != g
        rest = None if given is None else given[keep]
        one = mb.estimate(x[keep], actions[keep], rewards[keep], propensities[keep], 0.0, method="dr", baseline=rest)
        out.append(one.theta - whole.theta)
    moved = np.reshape(out, (20, 4))
    np.testing.assert_allclose(whole.covariance, moved.T @ moved, rtol=1e-8, atol=1e-12)
    assert whole.influence is not None
    np.testing.assert_allclose(whole.influence, -moved, rtol=1e-7, atol=1e-9)


def test_quantiles_are_those_of_scipy() -> None:
    df = np.array([1.0, 1.5, 2.0, 3.7, 10.0, 100.0, 12_345.0, np.inf])
    for p in (0.6, 0.95, 0.975, 0.9995):
        np.testing.assert_allclose(t_quantile(p, df), scipy.stats.t.ppf(p, df), rtol=1e-10)


def test_degrees_of_freedom_are_the_number_of_clusters_for_normal_scores_and_fewer_for_heavy_tails() -> None:
    """df = 2 G / (kurtosis - 1): G for normal scores, 2 G / 5 for the Laplace distribution, whose kurtosis is 6."""
    rng = np.random.default_rng(0)
    normal, laplace = rng.normal(size=(512, 400)), rng.laplace(size=(512, 400))
    weights = np.eye(400)
    assert satterthwaite(normal, weights).mean() == pytest.approx(512 * 0.95, rel=0.06)  # not above 512, in a half of cases
    assert np.median(satterthwaite(laplace, weights)) == pytest.approx(2 * 512 / 5, rel=0.15)


def test_tails_of_f_are_those_of_scipy() -> None:
    for statistic, above, below in ((0.3, 1, 3.5), (2.0, 4, 12.0), (5.0, 2, 200.0), (0.0, 3, 5.0)):
        assert f_tail(statistic, above, below) == pytest.approx(scipy.stats.f.sf(statistic, above, below), rel=1e-10)


def test_a_joint_test_of_one_coefficient_is_its_t_test() -> None:
    """W = (θ/s)², and the p-value is where the interval begins to hold 0; with the plain sandwich W is chi-square."""
    x, actions, rewards, propensities = small_log(200)
    found = mb.estimate(x, actions, rewards, propensities, 0.1, method="dr")
    one = found.wald([[0.0, 1.0, 0.0, 0.0]])
    ratio = found.theta[0, 1] / found.std_error[0, 1]
    assert one.statistic == pytest.approx(ratio**2)
    assert one.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(ratio), found.df[0, 1]))
    plain = mb.estimate(x, actions, rewards, propensities, 0.1, method="dr", sandwich="hc0")
    L = np.hstack([-np.eye(2), np.eye(2)])
    both = plain.wald(L)
    gap = plain.theta[1] - plain.theta[0]
    assert both.statistic == pytest.approx(gap @ np.linalg.solve(L @ plain.covariance @ L.T, gap))
    assert both.p_value == pytest.approx(scipy.stats.chi2.sf(both.statistic, 2), rel=1e-10)


def test_anytime_intervals_are_wider_and_narrowest_in_multiples_near_the_chosen_round() -> None:
    """The boundary grows to both sides of n*; a band at every look contains the interval of one look."""
    x, actions, rewards, propensities = small_log(200)
    found = mb.estimate(x, actions, rewards, propensities, 0.1)
    one, always = (np.diff(found.interval(0.9, anytime=anytime))[..., 0] for anytime in (False, True))
    assert (always > 1.3 * one).all()
    assert np.isfinite(found.contrast(1, 0).interval(anytime=True)).all()
    multiples = [boundary(n, 0.95) for n in (20, 100, 450, 2000, 50_000)]
    assert min(multiples) == multiples[2]
    assert boundary(500, 0.99) > boundary(500, 0.95) > 1.96
