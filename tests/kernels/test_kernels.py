"""The compiled functions against outside oracles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import mebandit as mb
from mebandit import kernels
from mebandit.kernels import layout
from tests import reference


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """The known-answer vectors of the Random123 distribution."""
    assert kernels.philox(*(np.uint32(v) for v in (*counter, *key))) == expected


def test_uniforms_are_uniform_and_differ_by_every_key() -> None:
    keys = [(1, 0, 0, 1, 0), (2, 0, 0, 1, 0), (1, 1, 0, 1, 0), (1, 0, 1, 1, 0), (1, 0, 0, 2, 0), (1, 0, 0, 1, 1), (2**40, 0, 0, 1, 0)]
    drawn = [kernels.uniform_pair(*key) for key in keys]
    assert len(set(drawn)) == len(keys)
    many = np.array([kernels.uniform_pair(5, 0, 0, t, 3) for t in range(20_000)])
    assert stats.kstest(many.ravel(), "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(many.T)[0, 1]) < 4.5 / np.sqrt(len(many))


def test_normal_quantile_agrees_with_scipy() -> None:
    borders = np.array([0.5 - kernels.CENTRAL, 0.5 + kernels.CENTRAL])
    near = (borders[:, None] + np.linspace(-1e-3, 1e-3, 401)).ravel()
    u = np.concatenate([np.linspace(1e-12, 1 - 1e-12, 5001), near, borders, 10.0 ** -np.arange(2, 17), [0.5]])
    ours = np.array([kernels.normal_quantile(v) for v in u])
    np.testing.assert_allclose(ours, special.ndtri(u), rtol=4e-15, atol=1e-15)


@pytest.mark.parametrize("kind", ["NORMAL", "STUDENT_T", "UNIFORM_NOISE", "TWO_POINT"])
def test_standardized_variates_have_mean_zero_and_variance_one(kind: str) -> None:
    df = 9.0
    z = np.array([kernels.standardized(getattr(kernels, kind), df, *kernels.uniform_pair(1, 0, 0, t, 0)) for t in range(40_000)])
    assert abs(z.mean()) < 4.5 / np.sqrt(len(z))
    assert abs((z**2).mean() - 1) < 4.5 * (z**2).std() / np.sqrt(len(z)) + 1e-12
    if kind == "STUDENT_T":
        assert stats.kstest(z * np.sqrt(df / (df - 2)), stats.t(df).cdf).pvalue > 1e-4


@given(st.integers(1, 25), st.integers(0, 2**32 - 1))
def test_factor_and_solve_agree_with_lapack(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p + 2))
    a, b = root @ root.T, rng.normal(size=p)
    packed, out, work = a[np.triu_indices(p)].copy(), b.copy(), np.empty(2 * p)
    assert kernels.factor_once(packed, p, work)
    kernels.solve_factored(packed, p, out)
    tolerance = 50 * np.finfo(float).eps * np.linalg.cond(a)
    np.testing.assert_allclose(out, np.linalg.solve(a, b), rtol=tolerance, atol=tolerance * np.abs(out).max())
    np.testing.assert_allclose(kernels.quadratic_form((), packed, p, b, work), b @ np.linalg.solve(a, b), rtol=tolerance)


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_factor_refuses_what_is_not_positive_definite(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(p, p)))[0]
    values = rng.uniform(0.5, 2, p)
    values[rng.integers(p)] = -rng.uniform(0.01, 1)
    a = (vectors * values) @ vectors.T
    assert not kernels.factor_once(a[np.triu_indices(p)].copy(), p, np.empty(2 * p))
    rank_one = np.ones((p, p))
    assert not kernels.factor_once(rank_one[np.triu_indices(p)].copy(), p, np.empty(2 * p))


@settings(max_examples=12)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.01, 100.0))
def test_best_of_normals_agrees_with_adaptive_quadrature(k: int, seed: int, disparity: float) -> None:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=k)
    sd = np.exp(rng.uniform(-1, 1, k) * np.log(disparity))
    work, out = np.empty(9 * k + 10), np.empty(k)
    work[:k], work[k : 2 * k] = mean, sd
    kernels.best_of_normals(work, np.ones(k, dtype=bool), out)
    np.testing.assert_allclose(out, reference.best_of_normals(mean, sd), atol=1e-7)
    assert abs(out.sum() - 1) < 1e-12


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda p: sum(p) > 0.01), st.floats(0, 1), st.integers(1, 2**6 - 1))
def test_clip_to_floor_keeps_the_floor_and_the_sum(weights: list[float], share: float, mask: int) -> None:
    k = len(weights)
    allowed = np.array([(mask >> i) & 1 for i in range(k)], dtype=bool)
    if not allowed.any():
        return
    p = np.array(weights) * allowed
    p = p / p.sum() if p.sum() > 0 else allowed / allowed.sum()
    floor = share / k
    before = p.copy()
    kernels.clip_to_floor(p, allowed, floor)
    assert abs(p.sum() - 1) < 1e-9
    assert (p[allowed] >= floor - 1e-12).all()
    assert (p <= 1).all()
    assert not p[~allowed].any()
    if (before[allowed] >= floor).all():
        np.testing.assert_allclose(p, before, atol=1e-9)
    if k == 2 and allowed.all():
        assert abs(p[1] - reference.clip_two_arms(before[1], floor)) < 1e-9


@given(st.floats(0.05, 1.0), st.floats(0.1, 10.0), st.floats(0.01, 10.0), st.floats(-8.0, 12.0), st.sampled_from([-1.0, 1.0]))
def test_the_departure_is_that_of_the_score_of_an_exponentially_modified_normal(
    skewed: float, signal: float, s: float, away: float, sign: float
) -> None:
    """psi(a) by differences of scipy's log density."""
    v, alpha = signal + s, skewed * np.sqrt(signal)
    a, sd = away * np.sqrt(v), np.sqrt(v - alpha**2)
    density, step = stats.exponnorm(alpha / sd, -alpha, sd), 1e-4 * np.sqrt(v)
    psi = (density.logpdf(a + step) - density.logpdf(a - step)) / (2 * step)
    found = kernels.departure(sign * a, sign * alpha, v, s)
    np.testing.assert_allclose(found, sign * s * (psi + a / v), rtol=1e-5, atol=1e-5 * s / np.sqrt(v))


@pytest.mark.parametrize("s", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("a", [-2.5, -1.0, 0.0, 0.7, 3.0, 8.0])
def test_the_curve_is_the_posterior_mean_of_an_exponential_context(a: float, s: float) -> None:
    """x = Exp - 1 and x~ = x + N(0, s): E[x | x~ = a] by quadrature."""

    def weighted(x: float, power: int) -> float:
        return float(x**power * np.exp(-(x + 1) - (a - x) ** 2 / (2 * s)))

    bounds = (-1.0, max(a, 0) + 12 * np.sqrt(s))
    mean = integrate.quad(weighted, *bounds, args=(1,))[0] / integrate.quad(weighted, *bounds, args=(0,))[0]
    assert a - s * a / (1 + s) + kernels.departure(a, 1.0, 1 + s, s) == pytest.approx(mean, rel=1e-6, abs=1e-8)


def test_inverse_mills_agrees_with_scipy_far_out() -> None:
    z = np.concatenate([np.linspace(-60, 40, 2001), [-20.0, np.nextafter(-20, -21), -1e8, 1e8, -1e150, 1e150]])
    expected = [-v if v < -1e3 else np.exp(stats.norm.logpdf(v) - special.log_ndtr(v)) for v in z]
    np.testing.assert_allclose([kernels.inverse_mills(v) for v in z], expected, rtol=2e-12, atol=1e-300)


@pytest.mark.parametrize(
    ("k3", "k3_se", "signal", "alpha"),
    [
        (2.0, 0.0, 3.0, 1.0),
        (-2.0, 0.0, 3.0, -1.0),
        (2.0, 0.5**0.5, 3.0, 0.75 ** (1 / 3)),
        (2.0, 1.45, 3.0, 0.0),
        (2.0, 0.0, 0.25, 0.5),
        (-2.0, 0.0, 0.25, -0.5),
        (2.0, 0.0, 0.0, 0.0),
        (2.0, 0.0, -0.1, 0.0),
        (0.2, 0.0, 3.0, 0.1 ** (1 / 3)),
        (0.15, 0.0, 3.0, 0.0),
    ],
    ids=[
        "right",
        "left",
        "doubtful",
        "in doubt",
        "more than the signal",
        "likewise left",
        "constant",
        "overstated error",
        "slight",
        "negligible",
    ],
)
def test_the_exponential_part_has_the_third_cumulant(k3: float, k3_se: float, signal: float, alpha: float) -> None:
    policy, n, mean, v = mb.meb(2, 1, context="blp", curved=True), 100.0, 3.0, 2.0
    state = policy.init()
    context = state.sums[layout.context_row(2)]
    context[layout.COUNT], context[layout.FEATURES] = n, n * mean
    context[layout.gram_at(1)], context[layout.cross_at(1)] = n * (v + mean**2), n * k3
    state.sums[layout.recent_row(2), layout.cross_at(1)] = n**2 * k3_se**2
    state.fit[layout.signal_fit(2), layout.factor_at(1)] = signal
    kernels.refit_curve(state.sums.ravel(), state.fit.ravel(), 2, 1)
    assert state.fit[layout.curve_fit(2), 0] == pytest.approx(alpha, rel=1e-12)


@given(st.integers(1, 400), st.integers(0, 2**32 - 1), st.floats(0.01, 100.0), st.floats(-1.0, 4.0))
def test_the_share_of_the_curve_is_a_ridge_regression(n: int, seed: int, scale: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    departed = scale * rng.normal(size=n)
    e = share * departed + scale * rng.normal(size=n)
    policy = mb.meb(2, 3, context="blp", curved=True)
    state = policy.init()
    state.sums[-1, :4] = n, e @ e, departed @ departed, departed @ e
    kernels.refit_share(policy.spec, state.sums.ravel(), state.fit.ravel(), 3)
    assert state.fit[layout.curve_fit(2), layout.share_at(3)] == pytest.approx(reference.share(e, departed), rel=1e-9, abs=1e-12)


def test_draw_follows_the_probabilities() -> None:
    p = np.array([0.2, 0.0, 0.5, 0.3])
    u = np.linspace(0.0005, 0.9995, 1000)
    counts = np.bincount([kernels.draw(p, v) for v in u], minlength=4)
    np.testing.assert_array_equal(counts, [200, 0, 500, 300])
    assert kernels.draw(np.array([0.5, 0.5 - 1e-16, 0.0]), 1 - 1e-17) == 1, (
        "a uniform beyond the rounded sum takes the last possible action"
    )
