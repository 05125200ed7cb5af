"""Estimators against the paper's formulas, its closed forms, and published errors-in-variables output."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import mebandit as mb
from mebandit.estimation import moments
from mebandit.estimation.best_linear import Calibration, best_linear_predictor
from mebandit.estimation.methods import Method
from mebandit.estimation.moments import pack
from mebandit.values import Floats
from tests import reference
from tests.strategies import Case, logs


def estimate(case: Case, **options: object) -> mb.Estimate:
    settings: dict[str, object] = {"n_actions": case.n_actions, "ridge": 0.5, "stabilizer": case.stabilizer} | options
    return mb.estimate(case.x, case.actions, case.r, case.propensities, case.sigma, **settings)  # type: ignore[arg-type]


def close(ours: object, theirs: object, condition: float = 1.0) -> None:
    """Agreement to rounding, given the condition number of the matrix solved with."""
    scale = float(np.abs(np.asarray(theirs)).max()) + 1e-300
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=1e-12 * max(condition, 1.0) * scale)


@given(logs())
def test_ridge_is_the_formula(case: Case) -> None:
    theta = estimate(case, method="ridge").theta
    for a in range(case.n_actions):
        close(theta[a], reference.ridge_estimate(case.x, case.actions, case.r, a, 0.5), 1e3)


@given(logs(), st.sampled_from(["naive", "meb"]))
def test_corrected_estimates_are_the_formulas_where_the_guard_stays_out(case: Case, method: str) -> None:
    found = estimate(case, method=method)
    for a in range(case.n_actions):
        if found.guarded[a]:
            continue
        if method == "naive":
            expected = reference.naive_estimate(case.x, case.actions, case.r, case.sigma, a, 0.5)
        else:
            expected = reference.proposed_estimate(
                case.x, case.actions, case.r, case.sigma, case.taken, case.stabilizer, case.allowed, a, 0.5
            )
        smallest = found.diagnostics["smallest_eigenvalue"][a] * max(found.diagnostics["n_effective"][a], 1e-9)
        close(found.theta[a], expected, 1e4 / smallest)


@given(logs(rounds=(60, 120), error=0.05))
def test_the_doubly_robust_estimate_and_its_covariance_are_the_formulas(case: Case) -> None:
    assume(np.bincount(case.actions, minlength=case.n_actions).min() > 0)
    found = estimate(case, method="dr", ridge=0.0)
    assume(not found.guarded.any())
    k, d = found.theta.shape
    psi, bread = np.zeros((len(case.r), k, d)), np.zeros((k, d, k, d))
    for a in range(k):
        args = (case.x, case.actions, case.r, case.sigma, case.taken, case.stabilizer[:, a], case.allowed, a)
        theta, G, psi[:, a] = reference.doubly_robust_estimate(*args)
        close(found.theta[a], theta, 1e4 * np.linalg.cond(G))
        bread[a, :, a] = np.linalg.inv(G)
    flat, stacked = bread.reshape(k * d, k * d), psi.reshape(-1, k * d)
    np.testing.assert_allclose(found.covariance, flat @ stacked.T @ stacked @ flat.T, rtol=1e-5, atol=1e-9 * np.abs(found.covariance).max())


@given(logs(rounds=(40, 120), error=0.05))
def test_regression_calibration_is_least_squares_on_the_best_linear_predictor(case: Case) -> None:
    assume(np.bincount(case.actions, minlength=case.n_actions).min() > 0)
    mean, v = case.x.mean(axis=0), np.cov(case.x.T, bias=True).reshape(case.x.shape[1], -1)
    Sx = v - case.sigma.mean(axis=0)
    assume(np.linalg.eigvalsh(Sx)[0] > 0.01)
    seen = np.array([mean + Sx @ np.linalg.solve(Sx + s, x - mean) for x, s in zip(case.x, case.sigma, strict=True)])
    np.testing.assert_allclose(best_linear_predictor(case.x, case.sigma), seen, atol=1e-9)
    found = estimate(case, method="rc")
    for a in range(case.n_actions):
        close(found.theta[a], reference.ridge_estimate(seen, case.actions, case.r, a, 0.5), 1e6)


def test_the_doubly_robust_estimate_is_right_for_skewed_contexts_and_regression_calibration_is_not() -> None:
    """Exponential contexts, a policy that reads x̃: within 4.5 standard errors of θ, and far from it."""
    rng = np.random.default_rng(3)
    theta, n = np.array([[1.0, -1.0], [0.5, 2.0]]), 40_000
    x = rng.exponential(1, (n, 2))
    seen = x + rng.normal(0, 1, x.shape)
    p1 = np.where(seen[:, 1] > 1, 0.9, 0.1)
    actions = (rng.random(n) < p1).astype(int)
    rewards = np.einsum("td,td->t", theta[actions], x) + rng.normal(0, 0.1, n)
    log = (seen, actions, rewards, np.where(actions == 1, p1, 1 - p1), 1.0)
    robust, calibrated, meb = (mb.estimate(*log, method=method) for method in ("dr", "rc", "meb"))
    assert (np.abs(robust.theta - theta) < 4.5 * robust.std_error).all()
    assert np.abs(calibrated.theta - theta).max() > 0.2
    assert (robust.contrast(1, 0).std_error < meb.contrast(1, 0).std_error).all()


@pytest.mark.parametrize("seed", [302, 320, 406, 477, 525])
def test_calibration_that_leaves_no_variance_has_no_solution_instead_of_one_of_rounding(seed: int) -> None:
    """Three features whose error is said to be larger than their spread in two directions: x̂ is a line, and what keeps its Gram matrix from
    being singular is the rounding of that of x̃. With these seeds elimination alone did not notice."""
    rng = np.random.default_rng(seed)
    x = rng.normal(100, 1, (100, 3)) @ rng.normal(size=(3, 3))
    seen = x + rng.normal(size=(100, 3)) * x.std(axis=0)
    values, vectors = np.linalg.eigh(np.cov(seen.T, bias=True))
    error = (vectors * (values * [1.5, 1.5, 0.5])) @ vectors.T
    actions = rng.integers(0, 2, 100)
    with pytest.raises(mb.SingularMoments, match="must be identified by the data"):
        mb.estimate(seen, actions, x[:, 0] * actions, np.full(100, 0.5), error, method="rc")


@pytest.mark.parametrize("varying", [False, True])
def test_what_a_constant_feature_is_does_not_matter_to_regression_calibration(varying: bool) -> None:
    """A column of c with another c: its coefficient is divided by it, and nothing else changes."""
    rng = np.random.default_rng(0)
    x, v, actions = 3 + rng.normal(size=500), rng.uniform(0.3, 0.7, 500), rng.integers(0, 2, 500)
    seen, rewards = x + rng.normal(size=500) * np.sqrt(v), x * actions + rng.normal(size=500)
    error = np.zeros((500, 2, 2))
    error[:, 1, 1] = v if varying else 0.5
    found = [
        mb.estimate(np.c_[np.full(500, c), seen], actions, rewards, np.full(500, 0.5), error if varying else error[0], method="rc")
        for c in (1.0, 0.1, 1 / 3, 0.7, 100.0, 1e6 / 7)
    ]
    for own, c in zip(found, (1.0, 0.1, 1 / 3, 0.7, 100.0, 1e6 / 7), strict=True):
        np.testing.assert_allclose(own.theta * [c, 1.0], found[0].theta, rtol=1e-6)
        np.testing.assert_allclose(own.std_error * [c, 1.0], found[0].std_error, rtol=1e-6)


def test_the_best_linear_predictor_of_what_is_far_from_zero_and_of_constants() -> None:
    """Seconds since 1970 with a spread of two minutes; and a constant that binary numbers round."""
    rng = np.random.default_rng(1)
    x = rng.normal(0, 100, (500, 2)) + rng.normal(0, 50, (500, 2))
    near = best_linear_predictor(x, 2500.0)
    np.testing.assert_allclose(best_linear_predictor(x + 1.7e9, 2500.0) - 1.7e9, near, atol=1e-4)
    beside = best_linear_predictor(np.c_[np.full(500, 0.1), x], np.diag([0.0, 2500.0, 2500.0]))
    np.testing.assert_allclose(beside, np.c_[np.full(500, 0.1), near], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1.0, 1e6])
def test_units_do_not_decide_whether_regression_calibration_has_a_solution(unit: float) -> None:
    """A sensor that reads 0 in all rounds of an action; a feature that goes with it tells what it would have read."""
    rng = np.random.default_rng(3)
    x, actions = rng.normal(size=(400, 2)) @ [[1.0, 0.8], [0.0, 0.6]], rng.integers(0, 2, 400)
    seen = np.c_[np.where(actions == 1, 0.0, x[:, 0]), x[:, 1] + 0.5 * rng.normal(size=400)]
    scale = np.array([unit, 1.0])
    found = mb.estimate(seen * scale, actions, x[:, 1], np.full(400, 0.5), np.diag([0.2, 0.25] * scale**2), method="rc", ridge=0.0)
    assert np.isfinite(found.theta).all()


@pytest.mark.parametrize("method", ["ridge", "naive", "meb", "dr", "rc"])
def test_an_arm_that_was_never_taken_is_an_error_in_every_method(method: Method) -> None:
    with pytest.raises(mb.SingularMoments, match="theta of action 1 must be identified by the data; got 0 rounds"):
        mb.estimate(np.ones((3, 1)), [0, 0, 0], [1.0, 2.0, 3.0], [0.5, 0.5, 0.5], 0.1, method=method)


@given(logs(rounds=(40, 120), error=0.02))
def test_the_guard_stays_out_where_the_matrix_is_safely_positive_definite(case: Case) -> None:
    found = estimate(case)
    for a in range(case.n_actions):
        matrix = reference.proposed_matrix(case.x, case.actions, case.sigma, case.taken, case.stabilizer, case.allowed, a)
        taken = np.einsum("t,tij->ij", case.stabilizer[:, a] * case.allowed[:, a], case.sigma)
        w = reference.stabilized_weights(case.actions, case.taken, case.stabilizer, a)
        if not w.any():
            continue
        n = w.sum() ** 2 / (w**2).sum()
        margin = float(np.linalg.eigvalsh(matrix + 0.5 * np.eye(case.x.shape[1]) - taken / n)[0])
        if abs(margin) > 1e-9:
            assert bool(found.guarded[a]) == (margin < 0)


@pytest.mark.parametrize(("error_var", "guarded"), [(0.90, False), (0.95, True), (1.05, True)])
def test_safely_positive_definite_means_by_a_margin_of_one_round(error_var: float, guarded: bool) -> None:
    """Ten rounds an arm with x̃² = 1: the matrix is 10 (1 - σ²), positive below 1, and safe while 10 (1 - σ²) > σ², up to 10/11."""
    r = np.random.default_rng(0).normal(size=20)
    found = mb.estimate(np.ones((20, 1)), np.arange(20) % 2, r, np.full(20, 0.5), error_var)
    assert found.guarded.tolist() == [guarded, guarded]
    if not guarded:
        np.testing.assert_allclose(found.theta[0, 0], r[::2].sum() / (10 * (1 - error_var)))


@given(logs(rounds=(12, 60), restricted=False, error=2.0))
def test_the_guard_is_fullers_estimator(case: Case) -> None:
    d = case.x.shape[1]
    counts = np.bincount(case.actions, minlength=case.n_actions)
    assume((counts > d + 2).all())
    found = mb.estimate(case.x, case.actions, case.r, case.propensities, case.sigma, n_actions=case.n_actions, guard="always")
    for a in range(case.n_actions):
        u = np.where(case.actions == a, 1 / case.taken, 0.0)
        theta, kappa = reference.fuller_estimate(case.x, case.r, u, case.sigma)
        assert found.guarded[a]
        np.testing.assert_allclose(found.diagnostics["kappa"][a], kappa, atol=1e-9)
        np.testing.assert_allclose(found.theta[a], theta, rtol=1e-5, atol=1e-7)


@given(logs(error=5.0), st.sampled_from(["auto", "always"]), st.sampled_from(["naive", "meb"]))
def test_no_nan_and_no_indefinite_matrix_leaves_a_guarded_estimate(case: Case, guard: str, method: str) -> None:
    found = estimate(case, guard=guard, method=method)
    assert np.isfinite(found.theta).all()
    assert (found.diagnostics["smallest_eigenvalue"] > 0).all()


def test_without_the_guard_the_formula_stands_even_if_indefinite() -> None:
    rng = np.random.default_rng(3)
    x, actions, r = rng.normal(size=(30, 2)), np.arange(30) % 2, rng.normal(size=30)
    sigma = np.tile(3 * np.eye(2), (30, 1, 1))
    bare = mb.estimate(x, actions, r, np.full(30, 0.5), 3.0, guard="never")
    half, everyone = np.full((30, 2), 0.5), np.ones((30, 2))
    for a in (0, 1):
        expected = reference.proposed_estimate(x, actions, r, sigma, np.full(30, 0.5), half, everyone, a, 0.0)
        np.testing.assert_allclose(bare.theta[a], expected, rtol=1e-10)
    assert not bare.guarded.any()
    assert (bare.diagnostics["smallest_eigenvalue"] < 0).all()
    assert mb.estimate(x, actions, r, np.full(30, 0.5), 3.0).guarded.all()


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


@given(logs(restricted=False), st.floats(0.01, 100))
def test_a_constant_stabilizer_cancels(case: Case, constant: float) -> None:
    first = estimate(case, stabilizer=np.full(case.n_actions, 0.3), ridge=0.0, guard="never") if _full_rank(case) else None
    assume(first is not None)
    assert first is not None
    second = estimate(case, stabilizer=np.full(case.n_actions, constant), ridge=0.0, guard="never")
    close(second.theta, first.theta, 1e6 / np.abs(first.diagnostics["smallest_eigenvalue"]).min())


def _full_rank(case: Case) -> bool:
    return bool((np.bincount(case.actions, minlength=case.n_actions) > case.x.shape[1] + 1).all())


@given(logs(rounds=(30, 60), restricted=False))
def test_without_error_and_with_unit_weights_meb_is_least_squares(case: Case) -> None:
    assume(_full_rank(case))
    n = len(case.x)
    flat = np.full(n, 1 / case.n_actions)
    ours = mb.estimate(case.x, case.actions, case.r, flat, 0.0, n_actions=case.n_actions)
    plain = mb.estimate(case.x, case.actions, case.r, flat, 0.0, n_actions=case.n_actions, method="ridge")
    close(ours.theta, plain.theta, 1e6)
    assert not ours.guarded.any()


@given(logs(), st.sampled_from(["ridge", "naive", "meb"]), st.randoms(use_true_random=False))
def test_relabelling_actions_permutes_everything(case: Case, method: str, random: object) -> None:
    order = list(range(case.n_actions))
    random.shuffle(order)  # type: ignore[attr-defined]
    new = np.array(order)
    inverse = np.argsort(new)
    relabelled = case._replace(
        actions=new[case.actions], propensities=case.propensities[:, inverse], stabilizer=case.stabilizer[:, inverse]
    )
    np.testing.assert_array_equal(estimate(relabelled, method=method).theta[new], estimate(case, method=method).theta)


@given(logs(rounds=(30, 80), restricted=False, error=0.05), st.integers(0, 2**32 - 1), st.sampled_from(["ridge", "naive", "meb"]))
def test_a_linear_map_of_the_context_maps_the_parameters(case: Case, seed: int, method: str) -> None:
    assume(_full_rank(case))
    d = case.x.shape[1]
    a = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0] * np.linspace(0.5, 2.0, d)
    moved = case._replace(x=case.x @ a.T, sigma=a @ case.sigma @ a.T)
    first, second = estimate(case, method=method, ridge=0.0), estimate(moved, method=method, ridge=0.0)
    assume(not first.guarded.any() and (first.diagnostics["smallest_eigenvalue"] > 1e-3).all())
    assert not second.guarded.any()
    np.testing.assert_allclose(second.theta, first.theta @ np.linalg.inv(a), rtol=1e-6, atol=1e-6)


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


@given(logs(rounds=(60, 120), error=0.05))
def test_the_covariance_is_the_sandwich(case: Case) -> None:
    assume(_full_rank(case))
    found = estimate(case, ridge=0.0)
    assume(not found.guarded.any() and (found.diagnostics["smallest_eigenvalue"] > 1e-2).all())
    expected = reference.proposed_covariance(
        case.x, case.actions, case.r, case.sigma, case.taken, case.stabilizer, case.allowed, found.theta
    )
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("method", ["ridge", "naive", "rc"])
def test_the_covariance_is_that_of_the_stacked_equations(method: Method, varying: bool, intercept: bool) -> None:
    """All that is estimated at once, the mean and covariance of x too, which x̂ needs: J^-1 (Σ ψψ') J^-T with a numerical derivative J of
    Σ ψ. Eleven features are two groups of five and one; three actions of eleven or twelve coefficients, an odd or an even number."""
    rng, n, d, k = np.random.default_rng(3), 1500, 11, 3
    mix, D = np.eye(d) + 0.1 * rng.normal(size=(d, d)), np.diag(np.linspace(0, 0.2, d))
    E = np.where(rng.random(n) < 0.5, 0.3, 1.7)[:, None, None] * D if varying else np.tile(D, (n, 1, 1))
    x = 0.5 + rng.normal(size=(n, d)) @ mix
    seen, actions, first = x + rng.normal(size=(n, d)) * np.sqrt(E[:, range(d), range(d)]), rng.integers(0, k, n), int(intercept)
    r = np.einsum("ti,ti->t", rng.normal(size=(k, d))[actions], x) + rng.normal(size=n)
    found = mb.estimate(seen, actions, r, np.full(n, 1 / k), E if varying else D, n_actions=k, method=method, intercept=intercept)
    assert not found.guarded.any()
    theta, upper, p = np.hstack([found.intercept[:, None], found.theta])[:, 1 - first :], np.triu_indices(d), d + first
    center = seen.mean(axis=0)
    start = np.concatenate([center, (np.cov(seen.T, ddof=0) - E.mean(axis=0))[upper], theta.ravel()])

    def scores(parameters: Floats) -> Floats:
        mean, theta, S = parameters[:d], parameters[-k * p :].reshape(k, p), np.zeros((d, d))
        S[upper] = parameters[d : -k * p]
        S = np.triu(S) + np.triu(S, 1).T
        y, C = seen - mean, S + E
        used = seen - np.einsum("tij,tj->ti", E, np.linalg.solve(C, y[:, :, None])[:, :, 0]) if method == "rc" else seen
        v = np.hstack([np.ones((n, first)), used])
        taken = np.pad(E if method == "naive" else np.zeros((n, d, d)), ((0, 0), (first, 0), (first, 0)))
        played = actions[:, None] == np.arange(k)
        left = v @ theta.T - r[:, None]
        psi = played[:, :, None] * (left[:, :, None] * v[:, None, :] - np.einsum("ki,tij->tkj", theta, taken))
        return np.hstack([y, (y[:, :, None] * y[:, None, :] - C)[:, upper[0], upper[1]], psi.reshape(n, -1)])

    at = scores(start)
    np.testing.assert_allclose(at.sum(axis=0), 0, atol=1e-6 * np.abs(at).sum(axis=0).max())
    steps = 1e-5 * np.eye(start.size)
    J = np.stack([(scores(start + step) - scores(start - step)).sum(axis=0) / 2e-5 for step in steps], axis=1)
    expected = (np.linalg.inv(J) @ (at.T @ at) @ np.linalg.inv(J).T)[-k * p :, -k * p :]
    np.testing.assert_allclose(found.covariance, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("units", [1.0, 1e-6, 1e6])
def test_the_best_linear_predictor_of_rounds_with_their_own_error(units: float) -> None:
    """Against pseudo-inverses, where some features have no error, one is constant and one follows from others, so that Sx + Σe is singular,
    not in every round in the same directions."""
    rng, n = np.random.default_rng(5), 400
    B = rng.normal(size=(5, 4))
    B[0], B[2] = 0.0, B[1] - B[3]
    half = np.array([0, 1, 0, 1, 1])[:, None] * rng.normal(size=(n, 5, 2)) * rng.choice([0.0, 0.5, 2.0], (n, 1, 1))
    mean, S, E = rng.normal(size=5), B @ B.T, half @ half.transpose(0, 2, 1)
    y = rng.normal(size=(n, 4)) @ B.T + np.einsum("tij,tj->ti", half, rng.normal(size=(n, 2)))
    expected = mean + y - np.einsum("tij,tjk,tk->ti", E, np.linalg.pinv(S + E, rcond=1e-10, hermitian=True), y)
    scale = np.array([1.0, units, 1.0, 1.0, 1.0])
    found = (
        Calibration(scale * mean, scale, S).apply(np.ascontiguousarray((scale * (mean + y)).T), pack(E * np.outer(scale, scale))).T / scale
    )
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    assert np.abs(found - mean - y).max() > 0.1


def test_the_bare_formula_needs_enough_rounds() -> None:
    """Two rounds for three features, and no guard: only rounding keeps the matrix from being singular."""
    actions = np.repeat([1, 0], [2, 398])
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(400, 3)) * [1.0, 1e-3, 1e3]
        with pytest.raises(mb.SingularMoments, match="theta of action 1 must be identified by the data; got 2 rounds"):
            mb.estimate(x, actions, x.sum(axis=1), np.full(400, 0.5), 0.0, method="ridge", guard="never")
        enough = mb.estimate(x, np.arange(400) % 2, x.sum(axis=1), np.full(400, 0.5), 0.0, method="ridge", guard="never")
        np.testing.assert_allclose(enough.theta, 1.0, rtol=1e-5)
    silent = np.column_stack([x[:, 0], np.zeros(400)])  # which a ridge decides
    for guard in ("auto", "never"):
        ridged = mb.estimate(silent, actions % 2, x[:, 0], np.full(400, 0.5), 0.0, method="ridge", ridge=1e3, guard=guard)
        np.testing.assert_array_equal(ridged.theta[:, 1], 0.0)


def test_standard_errors_match_the_spread_of_estimates() -> None:
    """Under uniform play, over 400 logs: the mean of the squared standard errors is the variance of the estimates."""
    rng = np.random.default_rng(8)
    estimates, variances, contrasts = [], [], []
    for _ in range(400):
        x = rng.normal(1, 1, (400, 2))
        actions = rng.integers(0, 2, 400)
        rewards = np.where(actions == 1, x[:, 0] - x[:, 1], x[:, 0]) + rng.normal(0, 0.5, 400)
        found = mb.estimate(x + rng.normal(0, 0.5, x.shape), actions, rewards, np.full(400, 0.5), 0.25)
        estimates.append(found.theta)
        variances.append(found.std_error**2)
        contrasts.append(found.contrast(1, 0).std_error ** 2)
    spread = np.var(estimates, axis=0, ddof=1)
    relative = 4.5 * np.sqrt(2 / 399)
    np.testing.assert_allclose(np.mean(variances, axis=0), spread, rtol=relative + 0.05)
    gaps = np.array(estimates)[:, 1] - np.array(estimates)[:, 0]
    np.testing.assert_allclose(np.mean(contrasts, axis=0), np.var(gaps, axis=0, ddof=1), rtol=relative + 0.05)


def test_clustering_adds_within_a_unit_before_squaring() -> None:
    rng = np.random.default_rng(2)
    x, actions, r = rng.normal(size=(60, 2)), np.arange(60) % 2, rng.normal(size=60)
    each = mb.estimate(x, actions, r, np.full(60, 0.5), 0.1)
    own = mb.estimate(x, actions, r, np.full(60, 0.5), 0.1, unit=np.arange(60))
    np.testing.assert_allclose(own.covariance, each.covariance)
    doubled = mb.estimate(
        np.repeat(x, 2, axis=0), np.repeat(actions, 2), np.repeat(r, 2), np.full(120, 0.5), 0.1, unit=np.repeat(np.arange(60), 2)
    )
    np.testing.assert_allclose(doubled.theta, each.theta, rtol=1e-9)
    np.testing.assert_allclose(doubled.covariance, each.covariance, rtol=1e-9)


def test_intervals_and_contrasts_have_the_right_shapes() -> None:
    rng = np.random.default_rng(4)
    x, actions, r = rng.normal(size=(90, 2)), np.arange(90) % 3, rng.normal(size=90)
    found = mb.estimate(x, actions, r, np.full(90, 1 / 3), 0.1, n_actions=3, intercept=True)
    assert found.interval().shape == (3, 2, 2)
    np.testing.assert_allclose(found.interval(0.95).mean(axis=-1), found.theta)
    np.testing.assert_allclose(np.diff(found.interval(0.95))[..., 0], 2 * 1.959964 * found.std_error, rtol=1e-6)
    gap = found.contrast(2, 0)
    np.testing.assert_array_equal(gap.theta, found.theta[2] - found.theta[0])
    np.testing.assert_allclose(gap.std_error**2, found.std_error[2] ** 2 + found.std_error[0] ** 2, rtol=0.5)


def test_an_arm_without_data_is_an_error_without_ridge_and_zero_with_it() -> None:
    x, r = np.ones((5, 1)) * np.arange(1, 6)[:, None], np.ones(5)
    with pytest.raises(mb.SingularMoments, match="theta of action 1 must be identified by the data; got 0 rounds"):
        mb.estimate(x, np.zeros(5, int), r, np.full(5, 0.5), 0.1)
    assert mb.estimate(x, np.zeros(5, int), r, np.full(5, 0.5), 0.1, ridge=1.0).theta[1, 0] == 0.0


def test_a_round_teaches_nothing_about_an_action_that_was_not_allowed() -> None:
    """Adding forced rounds of action 0 leaves action 1's estimate as it was, in every estimator."""
    rng = np.random.default_rng(6)
    x, actions, r = rng.normal(size=(40, 2)), np.arange(40) % 2, rng.normal(size=40)
    pi = np.full((40, 2), 0.5)
    forced_pi = np.vstack([pi, np.tile([1.0, 0.0], (20, 1))])
    forced_x, forced_r = np.vstack([x, rng.normal(size=(20, 2))]), np.concatenate([r, rng.normal(size=20)])
    forced_actions = np.concatenate([actions, np.zeros(20, int)])
    for method in ("ridge", "naive", "meb"):
        before = mb.estimate(x, actions, r, pi, 0.1, method=method)
        after = mb.estimate(forced_x, forced_actions, forced_r, forced_pi, 0.1, method=method)
        np.testing.assert_allclose(after.theta[1], before.theta[1], rtol=1e-12)
        assert (np.abs(after.theta[0] - before.theta[0]) > 1e-3).all()


def test_the_method_of_moments_leaves_out_rounds_in_which_the_action_was_not_allowed() -> None:
    pi = np.array([[0.5, 0.5], [1.0, 0.0]] * 500)
    actions = np.array([1, 0] * 500)
    pi[::4], actions[::4] = [0.5, 0.5], 0
    mean = mb.estimate_moments(
        [lambda x, y: y], lambda m: m, context=np.ones((1000, 1)), actions=actions, outcome=np.ones(1000), propensities=pi, action=1
    )
    assert mean == pytest.approx(1.0)


def test_the_method_of_moments_contains_the_proposed_estimator() -> None:
    """App. D.3 with f = (x̃x̃' - Σe, x̃ r) and φ(G, c) = G^-1 c, up to the weights of Σe (Σ w Σe in place of Σ π^nd Σe)."""
    rng = np.random.default_rng(9)
    n = 50_000
    x = rng.normal(1, 1, (n, 2))
    noisy = x + rng.normal(0, 0.5, x.shape)
    p1 = np.where(noisy[:, 0] > 1, 0.8, 0.2)
    actions = (rng.random(n) < p1).astype(int)
    rewards = np.where(actions == 1, x @ [1.0, 2.0], x @ [0.5, -1.0])
    taken = np.where(actions == 1, p1, 1 - p1)

    def gram(z: reference.Floats, y: reference.Floats) -> reference.Floats:
        return np.asarray(np.einsum("ti,tj->tij", z, z) - 0.25 * np.eye(2))

    found = mb.estimate_moments(
        [gram, lambda z, y: z * y[:, None]],
        np.linalg.solve,
        context=noisy,
        actions=actions,
        outcome=rewards,
        propensities=taken,
        action=1,
    )
    direct = mb.estimate(noisy, actions, rewards, taken, 0.25)
    assert (np.abs(found - [1.0, 2.0]) < 4.5 * direct.std_error[1]).all()
    naive = mb.estimate(noisy, actions, rewards, taken, 0.25, method="naive")
    assert (np.abs(naive.theta[1] - [1.0, 2.0]) > 4.5 * naive.std_error[1]).any(), "the unweighted moments are biased here"
