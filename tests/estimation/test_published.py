"""Estimates against limits in closed form and published errors-in-variables output."""

import numpy as np
import pytest
import statsmodels.api as sm

import mebandit as mb


@pytest.mark.parametrize(("rho", "limit"), [(-0.5, -1.0), (0.0, -7 / 6), (0.5, -29 / 19)])
def test_example_b2_limits(rho: float, limit: float) -> None:
    """The naive estimate of θ_0 tends to -1.5 (ρ² + 7)/(ρ³ - 4ρ + 9), the proposed one to -1."""
    np.testing.assert_allclose(limit, -1.5 * (rho**2 + 7) / (rho**3 - 4 * rho + 9), rtol=1e-12)
    rng = np.random.default_rng(11)
    n = 400_000
    noisy = 1 + rng.uniform(-2, 2, (n, 1))
    p1 = np.where(noisy[:, 0] > rho, 2 / 3, 1 / 3)
    actions = (rng.random(n) < p1).astype(int)
    rewards = np.where(actions == 1, 1.0, -1.0) + rng.uniform(-0.1, 0.1, n)
    propensities = np.where(actions == 1, p1, 1 - p1)
    naive = mb.estimate(noisy, actions, rewards, propensities, 4 / 3, method="naive")
    proposed = mb.estimate(noisy, actions, rewards, propensities, 4 / 3)
    assert abs(naive.theta[0, 0] - limit) < 4.5 * naive.std_error[0, 0]
    assert abs(proposed.theta[0, 0] + 1) < 4.5 * proposed.std_error[0, 0]
    assert abs(proposed.theta[1, 0] - 1) < 4.5 * proposed.std_error[1, 0]


def test_least_squares_is_attenuated_to_its_known_limit() -> None:
    """θ̂ -> (Σx + Σe)^-1 Σx θ (App. B), here without actions mattering: uniform play, contexts of mean zero."""
    rng = np.random.default_rng(5)
    n, theta = 200_000, np.array([[1.0, -2.0], [3.0, 0.5]])
    root = np.array([[1.0, 0.4], [0.0, 0.8]])
    cov_x, cov_e = root @ root.T, np.array([[0.5, 0.2], [0.2, 0.3]])
    x = rng.normal(size=(n, 2)) @ root.T
    noisy = x + rng.multivariate_normal([0, 0], cov_e, n)
    actions = rng.integers(0, 2, n)
    rewards = (theta[actions] * x).sum(axis=1) + rng.normal(0, 0.1, n)
    limit = theta @ np.linalg.solve(cov_x + cov_e, cov_x).T
    plain = mb.estimate(noisy, actions, rewards, np.full(n, 0.5), cov_e, method="ridge")
    corrected = mb.estimate(noisy, actions, rewards, np.full(n, 0.5), cov_e)
    assert (np.abs(plain.theta - limit) < 4.5 * plain.std_error).all()
    assert (np.abs(corrected.theta - theta) < 4.5 * corrected.std_error).all()
    assert (np.abs(plain.theta - theta) > 10 * plain.std_error).all()


def test_fullers_corn_data() -> None:
    """Fuller (1987, sec. 1.2): corn yield on soil nitrogen, error variance 57; slope 0.4232, intercept 67.56.

    Fuller's moments have the divisor n - 1, ours n, so the variance to subtract is 57 (n - 1) / n.
    """
    crop = np.array([86, 115, 90, 86, 110, 91, 99, 96, 99, 104, 96], dtype=float)
    nitrogen = np.array([70, 97, 53, 64, 95, 64, 50, 70, 94, 69, 51], dtype=float)
    both = mb.estimate(
        np.tile(nitrogen, 2)[:, None], np.repeat([0, 1], 11), np.tile(crop, 2), np.full(22, 0.5), 57 * 10 / 11, intercept=True
    )
    np.testing.assert_allclose(both.theta.ravel(), 0.4232, atol=5e-5)
    np.testing.assert_allclose(both.intercept, 67.56, atol=5e-3)
    assert not both.guarded.any()


# The reading and the writing score, two digits each, of the 91 male and 109 female students of the High School and Beyond sample
# "hsb2" (UCLA Institute for Digital Research and Education, Regression with Stata, chapter 4).
MALE = """
    5752 4433 6344 4752 4452 5059 3446 6357 5755 6046 5765 7360 5463 4557 4249 4752 5757 6865 5539 6349 6363 5040 6052 3744 3437 6565
    4757 4438 5244 4231 7652 6567 4241 5259 6065 6854 6562 4731 3931 4747 5559 5254 4241 6565 5559 5040 6559 4759 5754 5361 3933 4444
    6359 7362 3939 3737 4239 6357 4849 5046 4762 4444 3433 5042 4441 6054 4739 6343 5033 4444 6054 7367 6859 5545 4740 5561 6859 3136
    4741 6359 3649 6859 6365 5541 5562 5241 3449 5031 5549 5262 6349
"""


FEMALE = """
    6859 6862 3944 4444 5062 7165 6365 3444 6363 6860 4759 4746 6352 5259 5554 6062 3535 4754 7165 5752 4450 6559 6865 7361 3644 4354
    7367 5257 4147 6054 5052 5052 4746 4762 5557 5041 3953 5049 3435 5759 5765 6862 4254 6159 7663 4759 4652 3941 5249 2846 4254 4742
    4757 5259 4752 5062 4452 4741 4555 4737 6554 4357 4754 5762 6859 5255 4257 4239 6667 4762 5750 4761 5762 5259 4444 5059 3954 5762
    5760 4257 4746 4236 6059 4449 6360 6567 3954 5052 5265 6062 4449 5267 5565 5067 6565 5254 4744 6362 5046 4254 3657 5052 4159 4765
    5559 4246 5741 5562 6365
"""


def test_statas_errors_in_variables_regression() -> None:
    """`eivreg write read female, reliab(read .9)` on these data gives .6289607, 5.555659 and the constant 16.89655."""
    rows = [(group, int(pair[:2]), int(pair[2:])) for group, text in enumerate((MALE, FEMALE)) for pair in text.split()]
    female, read, write = np.array(rows, dtype=float).T
    n, x = read.size, np.column_stack([read, female])
    both = mb.estimate(
        np.tile(x, (2, 1)), np.repeat([0, 1], n), np.tile(write, 2), np.full(2 * n, 0.5), [0.1 * read.var(), 0.0], intercept=True
    )
    np.testing.assert_allclose(both.theta, [[0.6289607, 5.555659]] * 2, rtol=1e-6)
    np.testing.assert_allclose(both.intercept, 16.89655, rtol=1e-6)
    once = mb.errors_in_variables(x, write, reliability=[0.9, 1.0])
    np.testing.assert_allclose(once.theta, [[0.6289607, 5.555659]], rtol=1e-6)
    np.testing.assert_allclose(once.intercept, 16.89655, rtol=1e-6)


def test_one_action_is_plain_regression_with_error() -> None:
    """Fuller's corn with the variance of the error given; and no error is least squares, with HC3 standard errors of statsmodels."""
    crop = np.array([86, 115, 90, 86, 110, 91, 99, 96, 99, 104, 96], dtype=float)
    nitrogen = np.array([70, 97, 53, 64, 95, 64, 50, 70, 94, 69, 51], dtype=float)
    found = mb.errors_in_variables(nitrogen[:, None], crop, 57 * 10 / 11)
    assert (found.theta[0, 0], found.intercept[0]) == (pytest.approx(0.4232, abs=5e-5), pytest.approx(67.56, abs=5e-3))
    plain = mb.errors_in_variables(nitrogen[:, None], crop, 0.0, sandwich="hc3")
    theirs = sm.OLS(crop, sm.add_constant(nitrogen)).fit(cov_type="HC3").cov_params()
    np.testing.assert_allclose(plain.covariance, theirs, rtol=1e-8)


def test_a_reliability_counts_its_variance_as_estimated() -> None:
    """The intervals cover, where those with the estimated variance taken as known do not have the right length."""
    kept, lengths, spread = [], [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        x = rng.normal(0, 1, 200)
        found = mb.errors_in_variables((x + rng.normal(0, 1, 200))[:, None], 2 * x + rng.normal(0, 0.3, 200), reliability=0.5)
        low, high = found.interval()[0, 0]
        kept.append(low <= 2 <= high)
        lengths.append(found.std_error[0, 0])
        spread.append(found.theta[0, 0])
    assert 0.9 <= np.mean(kept) <= 0.99
    assert np.mean(lengths) == pytest.approx(np.std(spread), rel=0.15)


def test_the_error_is_given_once() -> None:
    x, y = np.ones((5, 1)), np.ones(5)
    for given, words in {
        (None, None): "got neither",
        (0.1, 0.9): "got both",
        (None, 1.2): "reliability must be above 0 and at most 1",
    }.items():
        with pytest.raises(mb.InvalidInput, match=words):
            mb.errors_in_variables(x, y, given[0], reliability=given[1])
