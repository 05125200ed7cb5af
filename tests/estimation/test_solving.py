"""When the guard steps in, what it computes, and which data identify nothing."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import mebandit as mb
from mebandit.estimation.methods import Method
from tests import reference
from tests.estimation.cases import estimate
from tests.strategies import Case, logs


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


def test_an_arm_without_data_is_an_error_without_ridge_and_zero_with_it() -> None:
    x, r = np.ones((5, 1)) * np.arange(1, 6)[:, None], np.ones(5)
    with pytest.raises(mb.SingularMoments, match="theta of action 1 must be identified by the data; got 0 rounds"):
        mb.estimate(x, np.zeros(5, int), r, np.full(5, 0.5), 0.1)
    assert mb.estimate(x, np.zeros(5, int), r, np.full(5, 0.5), 0.1, ridge=1.0).theta[1, 0] == 0.0
