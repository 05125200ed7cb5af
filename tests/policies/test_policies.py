"""Policies: the contract, the floor, bit-for-bit agreement of all ways to run one, and the algorithms as the paper writes them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mebandit as mb
from mebandit import kernels, policies, schedules
from mebandit.environments import Drifting, Environment, ExampleB1, Gaussian, HeartSteps
from mebandit.kernels import layout
from mebandit.policies import (
    MEB,
    UCB,
    BestLinear,
    Calibrated,
    Greedy,
    LeastSquares,
    LinearPolicy,
    Naive,
    Oracle,
    Robust,
    Thompson,
    Uniform,
    bayes_oracle,
    states,
    uniform,
)
from mebandit.policies.estimators import CALIBRATED
from mebandit.simulation.simulate import Trajectory
from mebandit.values import LinearState, Observation, Round, Stretch
from tests import reference

RECIPES: dict[str, Any] = {
    "meb": lambda k, d, **o: mb.meb(k, d, **o),
    "meb_naive": lambda k, d, **o: mb.meb_naive(k, d, **o),
    "greedy": lambda k, d, **o: mb.greedy(k, d, **o),
    "lin_ucb": lambda k, d, **o: mb.lin_ucb(k, d, **o),
    "thompson": lambda k, d, **o: mb.thompson(k, d, **o),
    "robust_ucb": lambda k, d, **o: mb.robust_ucb(k, d, horizon=100, **o),
    "oracle": lambda k, d, **o: mb.oracle(k, d, theta=np.arange(k * d).reshape(k, d) - 2.0, **o),
    "uniform": lambda k, d, **o: uniform(k, d, **o),
    "meb_dr": lambda k, d, **o: mb.meb_dr(k, d, **o),
    "meb_dr, fading": lambda k, d, **o: mb.meb_dr(k, d, memory=5, discount=0.99, **o),
    "meb on blp": lambda k, d, **o: mb.meb(k, d, context="blp", weights="precision", curved=True, **o),
}


class Stepwise:
    """A user's own class around a library policy: only the three methods, so everything runs through the Python loop."""

    def __init__(self, inner: LinearPolicy) -> None:
        self.inner, self.n_actions, self.dim, self.floor = inner, inner.n_actions, inner.dim, inner.floor

    def init(self) -> LinearState:
        return self.inner.init()

    def propensities(self, state: LinearState, observation: Observation) -> reference.Floats:
        return self.inner.propensities(state, observation)

    def update(self, state: LinearState, round: Round) -> LinearState:
        return self.inner.update(state, round)

    def theta(self, state: LinearState) -> reference.Floats:
        return self.inner.theta(state)


class Remembering(Stepwise):
    """Keeps every round it learned from."""

    def __init__(self, inner: LinearPolicy, history: list[Round]) -> None:
        super().__init__(inner)
        self.history = history

    def update(self, state: LinearState, round: Round) -> LinearState:
        self.history.append(round)
        return super().update(state, round)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_keeps_the_contract(name: str, k: int, intercept: bool) -> None:
    learns = {} if name in ("oracle", "uniform") else {"intercept": intercept}
    mb.check_policy(RECIPES[name](k, 2, **learns))
    options = {"floor": schedules.Power(-0.5, 0.3)} | ({} if name == "uniform" else {"warmup": 3}) | (learns and learns | {"refit": 4})
    mb.check_policy(RECIPES[name](k, 2, **options))


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "oracle"])
@pytest.mark.parametrize(
    "environment",
    [Gaussian(error_cov=np.stack([0.1 * np.eye(5), np.eye(5)]), context="exponential"), ExampleB1(), HeartSteps(noise_sd=0.5)],
    ids=["two-level error, skewed", "B.1", "HeartSteps"],
)
def test_stepwise_is_compiled_is_replayed_bit_for_bit(name: str, environment: Environment) -> None:
    options: dict[str, dict[str, Any]] = {"meb": {"refit": schedules.Steps((30,), (1, 0))}, "greedy": {"intercept": True}}
    policy = RECIPES[name](2, environment.dim, **options.get(name, {}))
    rounds = 300
    tape = environment.tape(Stretch(3, 0, 0, 0, rounds))
    record_at, benchmark = schedules.log_spaced(rounds, 20), np.full(rounds, 0.2)
    compiled = Trajectory(policy, record_at)
    stepwise = Trajectory(Stepwise(policy), record_at)
    history: list[Round] = []
    stepwise.policy = Remembering(policy, history)
    for start, stop in ((0, 128), (128, rounds)):
        piece = environment.tape(Stretch(3, 0, 0, start, stop))
        compiled.play(piece, start, benchmark[start:stop])
    stepwise.play(tape, 0, benchmark)
    assert states.same(compiled.state, stepwise.state)
    assert states.same(mb.replay(policy, history), compiled.state)
    np.testing.assert_array_equal(compiled.records.totals[:3], stepwise.records.totals[:3])
    np.testing.assert_array_equal(compiled.records.recorded.reshape(-1, 3)[:, :2], stepwise.records.recorded.reshape(-1, 3)[:, :2])
    if name != "uniform":
        np.testing.assert_allclose(compiled.records.arm_errors, stepwise.records.arm_errors, rtol=1e-12)


def history_of(seed: int, k: int, d: int, n: int, floor: float = 0.1) -> list[Round]:
    rng = np.random.default_rng(seed)
    rounds = []
    for t in range(1, n + 1):
        factor = rng.normal(size=(d, d)) / (3 * d)
        observation = Observation(rng.normal(1, 1, d), factor @ factor.T, np.ones(k, dtype=bool), t, float(rng.random()))
        pi = floor + (1 - k * floor) * rng.dirichlet(np.ones(k))
        rounds.append(Round(observation, int(rng.choice(k, p=pi / pi.sum())), pi, float(rng.normal())))
    return rounds


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 5), st.integers(1, 60))
def test_the_fold_is_the_batch_formula(seed: int, k: int, d: int, n: int) -> None:
    rounds = history_of(seed, k, d, n)
    columns: dict[str, Any] = {
        "predicted": np.array([r.observation.predicted for r in rounds]),
        "actions": np.array([r.action for r in rounds]),
        "rewards": np.array([r.reward for r in rounds]),
        "propensities": np.array([r.propensities for r in rounds]),
        "error_cov": np.array([r.observation.error_cov for r in rounds]),
    }
    for make, method in ((mb.meb, "meb"), (mb.meb_naive, "naive"), (mb.greedy, "ridge")):
        policy = make(k, d)
        batch = mb.estimate(**columns, n_actions=k, method=method, ridge=1.0)  # type: ignore[arg-type]
        np.testing.assert_allclose(policy.theta(mb.replay(policy, rounds)), batch.theta, rtol=1e-7, atol=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 4), st.integers(0, 40), st.integers(0, 40))
def test_merging_two_states_is_the_state_of_both(seed: int, k: int, d: int, n: int, m: int) -> None:
    rounds = history_of(seed, k, d, n + m)
    for make in (mb.meb, mb.meb_naive, mb.lin_ucb):
        policy = make(k, d)
        first, second = mb.replay(policy, rounds[:n]), mb.replay(policy, rounds[n:])
        kept = states.copied(first), states.copied(second)
        merged, whole = policy.merge(first, second), mb.replay(policy, rounds)
        np.testing.assert_allclose(merged.sums, whole.sums, rtol=1e-12, atol=1e-12 * (np.abs(whole.sums).max() + 1))
        np.testing.assert_array_equal(merged.sums, first.sums + second.sums)
        assert states.same(first, kept[0])
        assert states.same(second, kept[1])


@pytest.mark.parametrize("world", ["steady", "drifting", "skewed", "B.1"])
def test_meb_dr_is_what_its_formulas_say(world: str) -> None:
    """Against a version that recomputes everything from the whole history, in worlds that between them use every ingredient.

    But in the steady world the first 40 rounds have no error, so that no guard is needed later, and θ can be compared too.
    """
    k, d, rounds = 2 if world == "B.1" else 3, 2, 350
    rng = np.random.default_rng(3)
    policy = mb.meb_dr(k, d, floor=0.1, memory=8)
    slow = reference.SlowMebDr(k, d, floor=0.1, memory=8)
    state, theta = policy.init(), np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.2]])[:k]
    switched = followed = 0
    for t in range(1, rounds + 1):
        if world == "B.1":
            x = np.array([[1.0, 3.0], [-3.0, 1.0], [-1.0, -3.0], [3.0, -1.0]])[rng.integers(4)]
            x = x + rng.normal(0, 0.01, d)  # else they are orthogonal, and rounding decides
            sigma = np.full((d, d), 5 * 0.81) * (t > 40)
            seen = x + rng.choice([-0.9, 0.9]) * x[0] * (t > 40)
        else:
            x = rng.exponential(1, d) ** [1, 2] * [1, -0.5] if world == "skewed" else rng.normal(0, 1, d)
            x = x + 2 * np.sin(t / 30) * (world == "drifting")
            sigma = np.array([[0.4, 0.1], [0.1, 0.3]])
            if world != "steady":
                sigma = sigma * rng.integers(1, 4) * (t > 40)
            seen = x + rng.multivariate_normal(np.zeros(d), sigma)
        observation = Observation(seen, sigma, np.ones(k, dtype=bool), t)
        pi = policy.propensities(state, observation)
        np.testing.assert_allclose(pi, slow.propensities(seen, sigma), atol=1e-9, err_msg=f"round {t}")
        action = int(rng.choice(k, p=pi / pi.sum()))
        reward = float(theta[action] @ x + rng.normal(0, 0.1))
        state = policy.update(state, Round(observation, action, pi, reward))
        slow.learn(seen, sigma, action, float(pi[action]), reward)
        if world == "steady":
            slow.theta_dr = state.fit[k : 2 * k, :d].copy()
        else:
            np.testing.assert_allclose(policy.theta(state), slow.theta(), rtol=1e-6, atol=1e-7)
        switched += slow.evidence > 2.5 * np.sqrt(slow.evidence_sq)
        followed += slow.follows
    prior, curve = state.fit[layout.prior_fit(k)], state.fit[layout.curve_fit(k)]
    assert (state.extra[layout.EVIDENCE], state.extra[layout.EVIDENCE_SQ]) == pytest.approx((slow.evidence, slow.evidence_sq), rel=1e-6)
    assert (prior[layout.noise_at(d + 1)], prior[layout.pull_at(d + 1)]) == pytest.approx((slow.noise, slow.pull), rel=1e-6)
    assert (curve[layout.share_at(d + 1)], curve[layout.drift_at(d + 1)]) == pytest.approx((slow.share, slow.drift), rel=1e-6)
    assert (followed > rounds / 2) == (world == "drifting")
    assert slow.drift > 0 or world != "drifting"
    assert (switched > 0) == (world == "B.1")
    if world == "skewed":
        assert np.sign(slow.alpha).tolist() == [1, -1]
        assert 0 < slow.share < 2


def test_merged_memories_of_meb_dr_add_up() -> None:
    policy = mb.meb_dr(2, 3)
    first, second = mb.replay(policy, history_of(1, 2, 3, 80)), mb.replay(policy, history_of(2, 2, 3, 50))
    merged = policy.merge(first, second)
    np.testing.assert_array_equal(merged.sums, first.sums + second.sums)
    np.testing.assert_array_equal(merged.extra, first.extra + second.extra)
    assert np.isfinite(policy.theta(merged)).all()


def skewed_rounds(rng: np.random.Generator, n: int, *, skewed: str, first: int = 1) -> list[Round]:
    """Uniform play in a world of a constant, a normal and two skewed features, the second mirrored; `skewed`: "contexts" or the "error"."""
    rounds, theta = [], np.array([[0.0, 1.0, 1.0, 1.0], [0.0, -1.0, 1.0, -1.0]])
    for t in range(first, first + n):
        odd = (rng.exponential(1, 2) - 1) * [1, -1]
        plain, normal = rng.normal(0, 1, 2), rng.normal(0, 1, 2)
        x = np.array([1.0, normal[0], *(odd if skewed == "contexts" else plain)])
        e = np.array([0.0, normal[1], *(plain if skewed == "contexts" else odd)])
        action = int(rng.integers(2))
        observation = Observation(x + e, np.diag([0.0, 1, 1, 1]), np.ones(2, dtype=bool), t)
        rounds.append(Round(observation, action, np.full(2, 0.5), float(theta[action] @ x + rng.normal(0, 0.3))))
    return rounds


def on_calibrated(dim: int) -> LinearPolicy:
    """A policy whose memory of contexts begins with the first feature of x̃."""
    return mb.meb(2, dim, context="auto", curved=True)


def curve_of(state: LinearState, p: int) -> tuple[reference.Floats, float]:
    """alpha of every feature, and the share of the curve that is used."""
    return state.fit[5, :p], float(state.fit[5, p])


@pytest.mark.parametrize("make", [mb.meb_dr, lambda *shape, **o: mb.meb(*shape, context="blp", curved=True, **o)], ids=["meb_dr", "meb"])
@pytest.mark.parametrize("intercept", [False, True])
def test_skewed_features_are_found_and_the_rewards_decide_on_the_curve(make: Any, intercept: bool) -> None:
    """With exponential contexts and a normal error the curve is right. With the skewness in the error it is wrong, and not used."""
    policy = make(2, 4, intercept=intercept)
    p = policy.n_features
    alpha, share = curve_of(mb.replay(policy, skewed_rounds(np.random.default_rng(0), 8000, skewed="contexts")), p)
    assert not alpha[:-2].any(), "what is constant or normal has no curve"
    assert alpha[-2:] == pytest.approx([0.97, -0.97], abs=0.06), "1 but for what lies beyond 5 standard deviations"
    assert share == pytest.approx(1.1, abs=0.15), "1 but for that, and for the curve beyond 3"
    alpha, share = curve_of(mb.replay(policy, skewed_rounds(np.random.default_rng(1), 8000, skewed="error")), p)
    assert alpha[-2:] == pytest.approx([0.97, -0.97], abs=0.06)
    assert share == 0


def test_the_third_cumulant_varies_as_little_as_about_the_last_mean() -> None:
    """Of n normal x̃ it has the variance 6 v³ / n; sums of cubes about the mean so far would have 15 v³ / n."""
    policy, n, runs, rng = on_calibrated(1), 400, 300, np.random.default_rng(5)
    found = []
    for _ in range(runs):
        state = policy.init()
        for x in rng.normal(3, 2, n):
            kernels.learn_context((), policy.tuning, state.sums.ravel(), 2, np.array([x]), np.array([1.0]))
        found.append(state.sums[5, -1] / n)
    ratio = np.var(found) / (6 * 2**6 / n)
    assert abs(ratio - 1) < 4.5 * np.sqrt(2 / runs) + 10 / n  # the first 10 rounds only say where the mean is


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("n", [40, 1000])
def test_correlations_count_as_far_as_they_are_significant(n: int, correlation: float) -> None:
    """Sx = V - Σe, off its diagonal times 1 - 2m / (n Σ r²), r² of the m pairs of features that vary; here the first is constant.

    Then Sx_ii / V_ii are drawn together as far as chance explains their differences, and correlations stay.
    """
    policy, rng, d = on_calibrated(4), np.random.default_rng(n), 3
    cov, error_cov = np.eye(d) + correlation * (1 - np.eye(d)), np.diag([0.0, 1.0, 1.0, 1.0])
    x = np.column_stack([np.ones(n), rng.multivariate_normal(np.ones(d), cov, n) + rng.normal(size=(n, d))])
    state = policy.init()
    for t in range(n):
        observation = Observation(x[t], error_cov, np.ones(2, dtype=bool), t + 1)
        state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), float(rng.normal())))
    seen = int(state.fit[4, 0])
    V = np.cov(x[:seen].T, bias=True)
    pairs = np.triu_indices(4, 1)
    r = (V / np.sqrt(np.outer(np.diag(V), np.diag(V)).clip(1e-300)))[pairs][3:]
    share = max(0, 1 - 2 * 3 / (seen * (r**2).sum()))
    Sx = (V - error_cov) * np.where(np.eye(4), 1, share)
    v, before = np.diag(V)[1:], np.diag(Sx)[1:]
    rho, _ = reference.drawn_together(before / v, 2 / v**2 / seen)
    scale = np.append(1.0, np.sqrt(rho * v / before))
    Sx *= np.outer(scale, scale)
    np.testing.assert_allclose(state.fit[4, 4:14], Sx[np.triu_indices(4)], rtol=1e-9, atol=1e-12)
    assert (share > 0.9) == (correlation > 0 and n == 1000)


@pytest.mark.parametrize(("variances", "pooled"), [((1.0, 1.0, 1.0, 1.0, 1.0), True), ((0.2, 0.5, 1.0, 3.0, 9.0), False)])
def test_features_learn_their_reliability_from_each_other_where_they_are_alike(variances: tuple[float, ...], pooled: bool) -> None:
    """Alike, they have a fraction of the error that each had by itself; unlike, each has what it had by itself."""
    rng, n, truth = np.random.default_rng(3), 300, np.array(variances)
    alone, together = [], []
    for _ in range(40):
        policy, state = on_calibrated(5), on_calibrated(5).init()
        x = rng.normal(size=(n, 5)) * np.sqrt(truth) + rng.normal(size=(n, 5)) * np.sqrt(2.0)
        for t in range(n):
            observation = Observation(x[t], 2 * np.eye(5), np.ones(2, dtype=bool), t + 1)
            state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), 0.0))
        V = x[: int(state.fit[4, 0])].var(axis=0)
        alone.append(1 - 2 / V)
        together.append(state.fit[4, [5, 10, 14, 17, 19]] / V)
    rho = truth / (truth + 2)
    before, after = (np.sqrt(np.mean((np.array(found) - rho) ** 2)) for found in (alone, together))
    assert (0.4 * before < after < 0.75 * before) if pooled else (0.9 * before < after < 1.05 * before)


def test_a_very_small_feature_does_not_take_the_curve_from_the_others() -> None:
    """The cube of its variance is too small for a number."""
    rng, scale = np.random.default_rng(11), np.array([1e-60, 1.0, 1.0])
    policy, state = on_calibrated(3), on_calibrated(3).init()
    for t in range(1, 501):
        x = (rng.exponential(size=3) + 0.5 * rng.normal(size=3)) * scale
        observation = Observation(x, np.diag(0.25 * scale**2), np.ones(2, dtype=bool), t)
        state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), float(rng.normal())))
    np.testing.assert_allclose(curve_of(state, 3)[0][1:], 1.0, atol=0.2)


def test_an_overstated_error_does_not_make_unlike_features_alike() -> None:
    """The error of the last feature is reported a hundred times its variance; the others keep reliabilities of 0.9 and 1/6 all the same."""
    rng, n = np.random.default_rng(8), 2000
    policy, state = on_calibrated(3), on_calibrated(3).init()
    x = rng.normal(size=(n, 3)) * np.sqrt([9.0, 0.2, 1.0]) + rng.normal(size=(n, 3)) * np.sqrt([1.0, 1.0, 0.01])
    for t in range(n):
        observation = Observation(x[t], np.diag([1.0, 1.0, 100.0]), np.ones(2, dtype=bool), t + 1)
        state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), float(rng.normal())))
    V = x[: int(state.fit[4, 0])].var(axis=0)
    np.testing.assert_allclose(state.fit[4, [3, 6, 8]] / V, [0.9, 1 / 6, 0.0], atol=0.03)


def test_features_without_error_have_no_part_in_the_reliability_of_others() -> None:
    """Three features with an error, all alike, and three without: only the first three are drawn together, and the others stay at 1."""
    rng, n, error_cov = np.random.default_rng(9), 200, np.diag([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    policy, state = on_calibrated(6), on_calibrated(6).init()
    x = rng.normal(size=(n, 6)) + rng.normal(size=(n, 6)) * np.sqrt(np.diag(error_cov))
    for t in range(n):
        observation = Observation(x[t], error_cov, np.ones(2, dtype=bool), t + 1)
        state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), float(rng.normal())))
    seen = int(state.fit[4, 0])
    V = x[:seen].var(axis=0)
    found = state.fit[4, 6 + np.array([0, 6, 11, 15, 18, 20])] / V
    np.testing.assert_allclose(found[:3], reference.drawn_together(1 - 1 / V[:3], 2 / V[:3] ** 2 / seen)[0], rtol=1e-9)
    np.testing.assert_allclose(found[3:], 1.0, rtol=1e-12)


def test_the_fit_of_an_arm_that_is_not_offered_keeps_in_step_with_its_sums() -> None:
    """θ is what the sums say also for an arm whose first fit moves with those of the others: as many rounds later, solving again moves it
    little, and what is reported was solved for when it was asked for."""
    rng = np.random.default_rng(10)
    policy, state = mb.meb_dr(3, 2), mb.meb_dr(3, 2).init()
    for t in range(1, 401):
        x = rng.normal(1, 1, 2)
        allowed = np.array([True, True, t < 60])
        pi = allowed / allowed.sum()
        action = int(rng.choice(3, p=pi))
        observation = Observation(x + rng.normal(size=2), np.eye(2), allowed, t)
        state = policy.advance(state, Round(observation, action, pi, float(x @ [2.0, -1.0]) * (action - 1)))
    again = LinearState(*(part.copy() for part in state))
    again.fit[3:6, -2] = layout.ALL_STALE
    policy.refit_now(again)
    np.testing.assert_allclose(again.fit[3:6, :2], policy.theta(state), rtol=1e-12)
    np.testing.assert_allclose(again.fit[3:6, :2], state.fit[3:6, :2], rtol=0.1)


def test_an_arm_that_was_never_played_is_worth_the_mean_reward() -> None:
    """Its slopes are 0, and its intercept is drawn to the mean of all rewards at the mean of the contexts."""
    rng = np.random.default_rng(6)
    policy = mb.meb_dr(3, 2)
    state, rewards = policy.init(), []
    for t in range(1, 501):
        x = rng.normal(100, 1, 2) + rng.normal(size=2)
        observation = Observation(x, np.eye(2), np.array([True, True, False]), t)
        rewards.append(float(x @ [2.0, -1.0]))
        state = policy.advance(state, Round(observation, t % 2, np.array([0.5, 0.5, 0.0]), rewards[-1]))
    assert state.fit[2, 1:3] == pytest.approx(0.0, abs=1e-9)
    assert state.fit[2, 0] == pytest.approx(state.fit[layout.prior_fit(3), layout.middle_at(3)], rel=1e-9)
    assert state.fit[2, 0] == pytest.approx(np.mean(rewards), rel=0.01)


@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1.0, 1e40])
def test_the_curve_is_a_number_for_errors_and_rewards_of_any_size(scale: float) -> None:
    """Also where the exponential part has all of the variance; and a small error moves little."""
    policy, state = on_calibrated(4), on_calibrated(4).init()
    for round in skewed_rounds(np.random.default_rng(4), 200, skewed="contexts"):
        state = policy.advance(state, round._replace(reward=scale * round.reward))
    assert 0 <= curve_of(state, 4)[1] <= 2
    state.fit[5, :4] = np.sqrt(state.fit[4, [4, 8, 11, 13]])
    z, work = np.array([1.0, -3.0, -3.0, -3.0]), np.empty(200)
    for s in (0.0, 5e-324, 1e-100, 1e-17, 1e-12, 1e-6, 1.0, 1e6, 1e50):
        error, seen = np.zeros(10), np.empty(layout.seen_size(4))
        error[[4, 7, 9]] = s
        kernels.calibrate((), policy.spec, policy.tuning, state.sums.ravel(), state.fit.ravel(), z, error, seen, work)
        assert np.isfinite(seen).all()
        assert np.abs(seen[:4] - z).max() <= 4 * s + 6 * np.sqrt(s)


def test_the_first_rounds_say_nothing_of_the_curve() -> None:
    """2 p K of them, though there is a curve before."""
    policy, rounds = on_calibrated(4), skewed_rounds(np.random.default_rng(3), 16, skewed="contexts")
    before, after = mb.replay(policy, rounds[:15]), mb.replay(policy, rounds)
    assert curve_of(before, 4)[0].any()
    assert not before.sums[-1].any()
    assert curve_of(before, 4)[1] == 0
    assert after.sums[-1, 0] == 1
    assert curve_of(after, 4)[1] > 0


def test_what_the_rewards_say_of_the_curve_fades_and_is_merged() -> None:
    rng = np.random.default_rng(2)
    policy = mb.meb(2, 4, context="auto", curved=True, discount=0.99)
    first = mb.replay(policy, skewed_rounds(rng, 300, skewed="contexts"))
    later = policy.update(first, *skewed_rounds(rng, 1, skewed="contexts", first=301))
    assert later.sums[-1, 0] == 0.99 * first.sums[-1, 0] + 1
    second = mb.replay(policy, skewed_rounds(rng, 500, skewed="contexts"))
    merged = policy.merge(first, second)
    n, ee, hh, he = first.sums[-1, :4] + second.sums[-1, :4]
    share = (he + 4 * ee / n) / (hh + 4 * ee / n)
    assert 0 < share < 2
    assert share != curve_of(first, 4)[1]
    assert curve_of(merged, 4)[1] == pytest.approx(share, rel=1e-12)


def test_the_evidence_of_meb_dr_has_the_standard_error_it_claims() -> None:
    """Two fits that are equally right, in a world where they often disagree: the evidence over its root sum of squares has variance 1."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        policy, state = mb.meb_dr(2, 1, refit=10**9), mb.meb_dr(2, 1).init()
        state.fit[:2, 1], state.fit[2:4, 0] = [1.0, -1.0], [-1.0, 1.0]  # the fits always disagree, and are never solved for again
        for t in range(1, 1201):
            observation = Observation(rng.normal(0, 1, 1), np.eye(1), np.ones(2, dtype=bool), t)
            reward = float(rng.normal(0, 1))
            state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), reward))
        found.append(state.extra[layout.EVIDENCE] / np.sqrt(state.extra[layout.EVIDENCE_SQ]))
    assert np.std(found) == pytest.approx(1.0, abs=4.5 / np.sqrt(2 * len(found)))


def test_one_overstated_error_does_not_spoil_the_other_coordinates() -> None:
    """The error of the last coordinate is reported four times too large; Sx of the others stays at its truth, 1."""
    rng = np.random.default_rng(1)
    policy = on_calibrated(3)
    state, told = policy.init(), np.diag([1.0, 1.0, 4 * 1.01])
    for t in range(1, 2001):
        seen = rng.normal(0, 1, 3) * np.array([1.0, 1.0, 0.1]) + rng.normal(0, 1, 3)
        observation = Observation(seen, told, np.ones(2, dtype=bool), t)
        state = policy.advance(state, Round(observation, int(rng.integers(2)), np.full(2, 0.5), float(rng.normal())))
    Sx = state.fit[4, [3, 6, 8]]
    assert Sx[:2] == pytest.approx(1.0, abs=0.2)
    assert 0 <= Sx[2] < 0.1


@pytest.mark.parametrize("error_cov", [np.eye(3), np.stack([0.2 * np.eye(3), 1.8 * np.eye(3)])], ids=["one error", "two errors"])
def test_the_reported_theta_is_what_estimate_says(error_cov: Any) -> None:
    """But for its ridge and its inner regression, which was calibrated as rounds came in, it is the doubly robust estimate of the log."""
    world = Gaussian(theta=[[1.0, -0.5, 0.3], [0.2, 0.8, -0.4]], error_cov=error_cov, noise_sd=0.3)
    policy = mb.meb_dr(2, 3, floor=0.1)
    log = mb.simulate_log(world, policy, horizon=4000, seed=3)
    state, t = policy.init(), np.arange(4000)
    for i in t:
        observation = Observation(log.predicted[i], log.error_cov[i], log.allowed[i], int(i) + 1)
        state = policy.advance(state, Round(observation, int(log.actions[i]), log.propensities[i], float(log.rewards[i])))
    own = log.propensities[t, log.actions]
    said = mb.estimate(log.predicted, log.actions, log.rewards, own, log.error_cov, method="dr")
    assert np.abs((policy.theta(state) - said.theta) / said.std_error).max() < 0.7


def compared(environment: Environment, *, horizon: int = 10_000, replicates: int = 20) -> dict[str, tuple[float, float]]:
    """meb_dr against meb and least squares with an intercept: the share of their regret, and its standard error on common numbers."""
    shape = (environment.n_actions, environment.dim)
    others = [mb.meb(*shape), mb.greedy(*shape, intercept=True, name="LS + intercept")]
    results = mb.simulate(environment, [mb.meb_dr(*shape), *others], horizon=horizon, replicates=replicates, references=False)
    regret = results.of("clipped_regret")[:, :, -1]
    found = {}
    for i, other in enumerate(others, 1):
        share = regret[0].mean() / regret[i].mean()
        spread = (regret[0] - share * regret[i]).std(ddof=1) / np.sqrt(replicates) / regret[i].mean()
        found[other.name] = (float(share), float(spread))
    return found


TWO_LEVELS = np.stack([0.1 * np.eye(5), 1.9 * np.eye(5)])
ALTERNATING = (1.0, -1.0, 1.0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("environment", "of_meb", "of_least_squares"),
    [
        (Gaussian(error_cov=0.1), 1.0, 1.03),
        (Gaussian(error_cov=1.0), 0.85, 1.03),
        (Gaussian(error_cov=2.0), 0.75, 1.03),
        (Gaussian(error_cov=TWO_LEVELS), 0.75, 0.75),
        (Gaussian(error_cov=2 * TWO_LEVELS), 0.75, 0.75),
        (Drifting(world=Gaussian(error_cov=1.0), mean=ALTERNATING), 0.75, 0.75),
        (Drifting(world=Gaussian(error_cov=2.0), mean=ALTERNATING), 0.75, 0.75),
        (Gaussian(error_cov=1.0, context="exponential"), 0.7, 0.75),
        (Gaussian(error_cov=2.0, context="exponential"), 0.7, 0.82),
        (ExampleB1(), 1.0, 0.5),
    ],
    ids=["σ²=.1", "σ²=1", "σ²=2", "two levels 1", "two levels 2", "drift 1", "drift 2", "skew 1", "skew 2", "B.1"],
)
def test_meb_dr_has_less_regret(environment: Environment, of_meb: float, of_least_squares: float) -> None:
    """Not more than these shares of the others' regret, up to 3 standard errors of the share."""
    found = compared(environment)
    for other, most in (("MEB", of_meb), ("LS + intercept", of_least_squares)):
        share, spread = found[other]
        assert share <= most + 3 * spread, f"{share:.3f} ± {spread:.3f} of {other}"


def test_options_that_make_no_sense_together_cannot_be_written_down() -> None:
    """An option that a part does not have is no argument of it."""
    for make in (
        lambda: mb.greedy(2, 3, context="blp"),  # type: ignore[call-arg]
        lambda: mb.meb_dr(2, 3, stabilizer=(0.5, 0.5)),  # type: ignore[call-arg]
        lambda: mb.meb_dr(2, 3, correct_from=5),  # type: ignore[call-arg]
        lambda: mb.lin_ucb(2, 3, gamma=0.5),  # type: ignore[call-arg]
        lambda: LeastSquares(context=BestLinear()),  # type: ignore[call-arg]
        lambda: Calibrated(stabilizer=(0.5, 0.5)),  # type: ignore[call-arg]
        lambda: mb.meb_dr(2, 3, context="blp"),  # type: ignore[call-arg]
        lambda: UCB(epoch=3),  # type: ignore[call-arg]
        lambda: MEB(1.0),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            make()


def test_contradictory_options_are_refused() -> None:
    refused: list[tuple[str, Any]] = [
        ("weights must be 'unit' where context is 'predicted'; got 'precision'", lambda: mb.meb(2, 3, weights="precision")),
        ("curved must be False where context is 'predicted'; got True", lambda: mb.meb(2, 3, curved=True)),
        ("context must be one of 'predicted', 'blp', 'ew_blp', 'auto'; got 'kalman'", lambda: mb.meb(2, 3, context="kalman")),
        (r"context must be BestLinear\(...\); got None", lambda: Calibrated(context=None)),  # type: ignore[arg-type]
        (r"context must be BestLinear\(...\) or None; got 'blp'", lambda: MEB(context="blp")),  # type: ignore[arg-type]
        (
            r"rule must be Greedy\(\) or UCB\(...\) for the estimator Calibrated; got Thompson\(\)",
            lambda: LinearPolicy(n_actions=2, dim=3, estimator=Calibrated(), rule=Thompson()),
        ),
        (
            r"estimator must be LeastSquares\(...\) for the rule Robust; got MEB\(\)",
            lambda: LinearPolicy(n_actions=2, dim=3, estimator=MEB(), rule=Robust.over(100)),
        ),
        ("rule must be a rule, such as", lambda: LinearPolicy(n_actions=2, dim=3, rule="ucb")),  # type: ignore[arg-type]
        ("estimator must be an estimator, such as", lambda: LinearPolicy(n_actions=2, dim=3, estimator=UCB())),  # type: ignore[arg-type]
        (r"ridge must be a number above 0; got 0.0. UCB divides by it", lambda: mb.lin_ucb(2, 3, ridge=0.0)),
        (r"discount must be in \[0.5, 1\]; got 0.1", lambda: mb.meb_dr(2, 3, discount=0.1)),
        ("mean must be one of 'running', 'forgetting', 'auto'; got 'blp'", lambda: BestLinear(mean="blp")),
    ]
    for sentence, make in refused:
        with pytest.raises(mb.InvalidInput, match=sentence):
            make()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_composition(name: str) -> None:
    """The parts of each recipe, put together by hand."""
    θ = tuple(tuple(float(a * 2 + i) - 2 for i in range(2)) for a in range(3))
    parts: dict[str, tuple[Any, Any]] = {
        "meb": (MEB(), Greedy()),
        "meb_naive": (Naive(), Greedy()),
        "greedy": (LeastSquares(), Greedy()),
        "lin_ucb": (LeastSquares(), UCB()),
        "thompson": (LeastSquares(), Thompson()),
        "robust_ucb": (LeastSquares(), Robust.over(100)),
        "oracle": (LeastSquares(), Oracle(theta=θ)),
        "uniform": (LeastSquares(), Uniform()),
        "meb_dr": (Calibrated(), UCB(width=0.6)),
        "meb_dr, fading": (Calibrated(context=replace(CALIBRATED, memory=5.0)), UCB(width=0.6)),
        "meb on blp": (MEB(context=BestLinear(curved=True, weights="precision")), Greedy()),
    }
    made = RECIPES[name](3, 2)
    estimator, rule = parts[name]
    assert made == LinearPolicy(n_actions=3, dim=2, estimator=estimator, rule=rule, discount=made.discount, name=made.name)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(RECIPES)), st.integers(2, 5), st.floats(0.01, 1.0), st.integers(1, 31))
def test_the_floor_is_kept_among_the_allowed(seed: int, name: str, k: int, share: float, mask: int) -> None:
    allowed = np.array([(mask >> i) & 1 for i in range(k)], dtype=bool)
    if not allowed.any():
        allowed[0] = True
    floor = share / k
    policy = RECIPES[name](k, 2, floor=floor)
    state = mb.replay(policy, history_of(seed, k, 2, 15, floor=0.5 / k))
    pi = policy.propensities(state, Observation(np.array([0.3, -1.0]), np.eye(2), allowed, 16, 0.5))
    assert abs(pi.sum() - 1) < 1e-12
    assert (pi[allowed] >= floor - 1e-12).all()
    assert not pi[~allowed].any()


@pytest.mark.parametrize("name", ["meb", "meb_naive", "greedy", "lin_ucb", "thompson"])
def test_relabelling_actions_permutes_the_probabilities(name: str) -> None:
    k, order = 3, np.array([2, 0, 1])
    rounds = history_of(5, k, 2, 40)
    moved = [r._replace(action=int(order[r.action]), propensities=r.propensities[np.argsort(order)]) for r in rounds]
    policy = RECIPES[name](k, 2)
    look = Observation(np.array([0.7, 0.2]), np.eye(2), np.ones(k, dtype=bool), 41, 0.5)
    ours = policy.propensities(mb.replay(policy, rounds), look)
    theirs = policy.propensities(mb.replay(policy, moved), look)
    np.testing.assert_allclose(theirs[order], ours, rtol=1e-9)


def test_meb_is_algorithm_1() -> None:
    """Warm-up at 1/K, then 1 - (K - 1) p0 on the argmax of ⟨θ̂^(t-1), x̃_t⟩ with the reference estimator, refit at the set S."""
    k, d, warmup, floor = 3, 2, 5, 0.1
    policy = mb.meb(k, d, floor=floor, warmup=warmup, refit=schedules.At((8, 9, 20, 40)), ridge=1.0)
    rounds = history_of(12, k, d, 60)
    state = policy.init()
    fitted: reference.Floats = np.zeros((k, d))
    for t, round in enumerate(rounds, start=1):
        pi = policy.propensities(state, round.observation)
        scores = fitted @ round.observation.predicted
        clipped = np.where(scores == scores.max(), 1 - (k - 1) * floor, floor)
        expected = np.full(k, 1 / k) if t <= max(warmup, 8) else clipped
        np.testing.assert_allclose(pi, expected, atol=1e-12)
        state = policy.update(state, round)
        if t in (8, 9, 20, 40):
            past = rounds[:t]
            found = mb.estimate(
                [r.observation.predicted for r in past],
                [r.action for r in past],
                [r.reward for r in past],
                [r.propensities for r in past],
                np.array([r.observation.error_cov for r in past]),
                n_actions=k,
                ridge=1.0,
            )
            np.testing.assert_allclose(policy.theta(state), found.theta, rtol=1e-9)
            fitted = policy.theta(state)
        np.testing.assert_array_equal(policy.theta(state), fitted)


def test_before_correct_from_the_fit_is_uncorrected() -> None:
    rounds = history_of(3, 2, 2, 30)
    late, never = mb.meb(2, 2, correct_from=21), mb.meb(2, 2, correct_from=1000)
    now = mb.meb(2, 2)
    assert np.array_equal(late.theta(mb.replay(late, rounds[:20])), never.theta(mb.replay(never, rounds[:20])))
    assert np.array_equal(late.theta(mb.replay(late, rounds[:21])), now.theta(mb.replay(now, rounds[:21])))
    assert not np.array_equal(now.theta(mb.replay(now, rounds)), never.theta(mb.replay(never, rounds)))


def test_an_arm_not_played_since_is_corrected_too_when_the_correction_begins() -> None:
    rounds = [r._replace(action=0) if t > 10 else r for t, r in enumerate(history_of(3, 2, 2, 25), start=1)]
    late, now = mb.meb_naive(2, 2, correct_from=21), mb.meb_naive(2, 2)
    assert np.array_equal(late.theta(mb.replay(late, rounds)), now.theta(mb.replay(now, rounds)))


def test_thompson_is_the_exact_two_arm_probability() -> None:
    policy = mb.thompson(2, 2, width=0.7, floor=0.05)
    rounds = history_of(4, 2, 2, 25)
    state = mb.replay(policy, rounds)
    x = np.array([0.4, -0.3])
    mean, var = np.empty(2), np.empty(2)
    for a in (0, 1):
        own = [r for r in rounds if r.action == a]
        v = np.eye(2) + sum(np.outer(r.observation.predicted, r.observation.predicted) for r in own)
        mean[a] = x @ np.linalg.solve(v, sum(r.observation.predicted * r.reward for r in own))
        var[a] = 0.49 * x @ np.linalg.solve(v, x)
    from scipy.stats import norm

    p1 = float(norm.cdf((mean[1] - mean[0]) / np.sqrt(var.sum())))
    pi = policy.propensities(state, Observation(x, np.eye(2), np.ones(2, dtype=bool), 26, 0.5))
    np.testing.assert_allclose(pi[1], reference.clip_two_arms(p1, 0.05), rtol=1e-9)


def test_ucb_adds_the_width_of_the_ellipsoid() -> None:
    policy = mb.lin_ucb(2, 2, width=2.0, floor=0.0)
    rounds = history_of(7, 2, 2, 25)
    state = mb.replay(policy, rounds)
    for x in np.random.default_rng(0).normal(size=(20, 2)):
        bound = np.empty(2)
        for a in (0, 1):
            own = [r for r in rounds if r.action == a]
            v = np.eye(2) + sum(np.outer(r.observation.predicted, r.observation.predicted) for r in own)
            theta = np.linalg.solve(v, sum(r.observation.predicted * r.reward for r in own))
            bound[a] = theta @ x + 2 * np.sqrt(x @ np.linalg.solve(v, x))
        pi = policy.propensities(state, Observation(x, np.eye(2), np.ones(2, dtype=bool), 26, 0.5))
        assert int(pi.argmax()) == int(bound.argmax())


def test_robust_ucb_restarts_each_epoch_and_spreads_over_budgets() -> None:
    policy = mb.robust_ucb(2, 2, horizon=400)
    assert policy.rule == Robust(epoch=20, n_budgets=11, gamma=policy.rule.gamma)  # type: ignore[attr-defined]
    state, chosen = policy.init(), set()
    for t, round in enumerate(history_of(1, 2, 2, 400), start=1):
        state = policy.update(state, round)
        if t % 20 == 0:
            assert not state.sums.any()
            assert not policy.theta(state).any()
            chosen.add(int(state.extra[5]))
        else:
            assert state.sums.any()
    assert len(chosen) > 3
    with pytest.raises(mb.InvalidInput, match="memory that is a sum"):
        policy.merge(state, state)


def test_the_oracles_act_on_what_they_know() -> None:
    x = np.array([1.0, -1.0])
    look = Observation(x, np.eye(2), np.ones(2, dtype=bool), 1, 0.5)
    policy = mb.oracle(2, 2, theta=[[1.0, 0.0], [0.0, 1.0]], floor=0.1)
    np.testing.assert_allclose(policy.propensities(policy.init(), look), [0.9, 0.1])
    np.testing.assert_array_equal(policy.theta(policy.init()), np.eye(2))
    results = mb.simulate(Gaussian(error_cov=2.0), [bayes_oracle(2, 5), mb.oracle(2, 5)], horizon=3000, replicates=4, references=False)
    assert results.mean("oracle on E[x|x̃]") < results.mean("oracle on x̃")


def test_a_policy_prints_as_its_constructor_call() -> None:
    for make in RECIPES.values():
        policy = make(3, 2, floor=schedules.Power(-0.3, 0.2))
        assert eval(repr(policy), vars(policies) | vars(schedules)) == policy


class Forgetful(Stepwise):
    """Breaks the contract on demand."""

    def __init__(self, fault: str) -> None:
        super().__init__(mb.greedy(2, 2))
        self.fault = fault

    def propensities(self, state: LinearState, observation: Observation) -> reference.Floats:
        pi = super().propensities(state, observation)
        if self.fault == "sum":
            return pi * 0.9
        if self.fault == "mask":
            return np.full(2, 0.5)
        if self.fault == "floor":
            return np.array([1.0, 0.0]) if observation.allowed.all() else pi
        if self.fault == "random":
            return np.random.default_rng().dirichlet([9, 9]) if observation.allowed.all() else pi
        return pi

    def update(self, state: LinearState, round: Round) -> LinearState:
        return self.inner.advance(state, round) if self.fault == "mutates" else super().update(state, round)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("sum", "Forgetful.propensities must be non-negative, sum to 1"),
        ("mask", "be 0 for actions that are not allowed"),
        ("floor", "must be at least the floor 0.2"),
        ("random", "Forgetful.propensities must be repeatable"),
        ("mutates", "Forgetful.update must leave the state it was given as it was"),
    ],
)
def test_check_policy_names_the_broken_rule(fault: str, sentence: str) -> None:
    with pytest.raises(mb.InvalidInput, match=sentence):
        mb.check_policy(Forgetful(fault))


def test_check_policy_wants_the_three_methods() -> None:
    with pytest.raises(mb.InvalidInput, match="policy must have n_actions, dim, init, propensities and update; got object without"):
        mb.check_policy(object())
