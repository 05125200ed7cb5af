"""`Estimate`: intervals, contrasts, diagnostics."""

import numpy as np
import pytest
import scipy.stats

import mebandit as mb


def test_intervals_and_contrasts_have_the_right_shapes() -> None:
    rng = np.random.default_rng(4)
    x, actions, r = rng.normal(size=(90, 2)), np.arange(90) % 3, rng.normal(size=90)
    found = mb.estimate(x, actions, r, np.full(90, 1 / 3), 0.1, n_actions=3, intercept=True)
    assert found.interval().shape == (3, 2, 2)
    np.testing.assert_allclose(found.interval(0.95).mean(axis=-1), found.theta)
    quantiles = scipy.stats.t.ppf(0.975, found.df)
    np.testing.assert_allclose(np.diff(found.interval(0.95))[..., 0], 2 * quantiles * found.std_error, rtol=1e-6)
    gap = found.contrast(2, 0)
    np.testing.assert_array_equal(gap.theta, found.theta[2] - found.theta[0])
    np.testing.assert_allclose(gap.std_error**2, found.std_error[2] ** 2 + found.std_error[0] ** 2, rtol=0.5)


def test_the_diagnostics_tell_where_an_estimate_is_weak() -> None:
    """An action that is rarely drawn, features of other units, one far from zero: each figure against its formula."""
    rng = np.random.default_rng(5)
    n, action = 400, np.arange(400) % 4 == 3
    x = np.column_stack([rng.normal(3, 1, n), 1e4 * rng.normal(0, 1, n), np.full(n, 2.0)])
    propensity = np.where(action, rng.uniform(0.02, 0.3, n), 0.8)
    found = mb.estimate(x, action.astype(int), rng.normal(size=n), propensity, [0.1, 0.0, 0.0])
    w = np.where(action, 0.5 / propensity, 0.0)
    G = (w[:, None] * x).T @ x - np.diag([0.05 * n, 0.0, 0.0])
    size = np.sqrt(np.diag(G))
    told = found.diagnostics
    assert told["rounds"].tolist() == [300, 100]
    np.testing.assert_allclose(told["n_effective"][1], w.sum() ** 2 / (w**2).sum())
    np.testing.assert_allclose(told["condition"][1], np.linalg.cond(G / size / size[:, None]))
    np.testing.assert_array_equal(told["smallest_propensity"], [0.8, propensity[action].min()])
    np.testing.assert_array_equal(told["kappa"], 1.0)
    far = mb.estimate(x + np.array([1e5, 0.0, 0.0]), action.astype(int), rng.normal(size=n), propensity, 0.0, method="ridge", ridge=1e-9)
    np.testing.assert_allclose(far.diagnostics["rounding_error"][0], 2.2e-16 * 1e5**2, rtol=0.3)
    assert told["rounding_error"].max() < 1e-14
    assert far.diagnostics["rounding_error"][2] == 0.0


def test_diagnostics_of_an_action_that_was_never_taken() -> None:
    found = mb.estimate(np.ones((3, 1)), [0, 0, 0], [1.0, 2.0, 3.0], [0.5, 0.5, 0.5], 0.1, ridge=1.0)
    assert np.isnan(found.diagnostics["smallest_propensity"][1])
    silent = mb.estimate(np.zeros((4, 1)), [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], np.full(4, 0.5), 0.0, method="ridge", ridge=1.0)
    np.testing.assert_array_equal(silent.diagnostics["condition"], 1.0)


def test_intervals_are_withheld_where_the_guard_took_off_little_of_the_error() -> None:
    """One action with few rounds, one with many: no interval, contrast or joint test of the first; those of the second as ever."""
    rng = np.random.default_rng(6)
    n, action = 300, np.arange(300) < 5
    x = rng.normal(1, 1, (n, 1))
    seen, reward = x + rng.normal(0, 0.7, x.shape), 2 * x[:, 0] + rng.normal(0, 1, n)
    found = mb.estimate(seen, action.astype(int), reward, np.full(n, 0.5), 0.49, guard="always")
    assert found.diagnostics["kappa"][1] < 0.7 < found.diagnostics["kappa"][0]
    assert found.without_interval.tolist() == [False, True]
    assert np.isfinite(found.interval()[0]).all()
    for ends in (found.interval()[1], found.interval(anytime=True)[1], found.contrast(1, 0).interval()):
        assert np.isnan(ends).all()
    with pytest.raises(mb.InvalidInput, match="fewer than the degrees of freedom"):
        found.wald([[1.0, -1.0]])
    assert found.wald([[1.0, 0.0]]).p_value < 1e-6
    log = {"x": seen[:, 0], "action": action.astype(int), "reward": reward, "propensity": np.full(n, 0.5)}
    said = str(mb.fit(log, predicted="x", error_cov=0.49, guard="always", methods="meb"))
    assert "No intervals: meb (action 1): the guard took off less than 70 % of Σe" in said
