"""Every method against its formula, its invariances, and the truth."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import mebandit as mb
from tests import reference
from tests.estimation.cases import close, estimate, full_rank
from tests.strategies import Case, logs


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


@given(logs(restricted=False), st.floats(0.01, 100))
def test_a_constant_stabilizer_cancels(case: Case, constant: float) -> None:
    first = estimate(case, stabilizer=np.full(case.n_actions, 0.3), ridge=0.0, guard="never") if full_rank(case) else None
    assume(first is not None)
    assert first is not None
    second = estimate(case, stabilizer=np.full(case.n_actions, constant), ridge=0.0, guard="never")
    close(second.theta, first.theta, 1e6 / np.abs(first.diagnostics["smallest_eigenvalue"]).min())


@given(logs(rounds=(30, 60), restricted=False))
def test_without_error_and_with_unit_weights_meb_is_least_squares(case: Case) -> None:
    assume(full_rank(case))
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
    assume(full_rank(case))
    d = case.x.shape[1]
    a = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0] * np.linspace(0.5, 2.0, d)
    moved = case._replace(x=case.x @ a.T, sigma=a @ case.sigma @ a.T)
    first, second = estimate(case, method=method, ridge=0.0), estimate(moved, method=method, ridge=0.0)
    assume(not first.guarded.any() and (first.diagnostics["smallest_eigenvalue"] > 1e-3).all())
    assert not second.guarded.any()
    np.testing.assert_allclose(second.theta, first.theta @ np.linalg.inv(a), rtol=1e-6, atol=1e-6)


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
