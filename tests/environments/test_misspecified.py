"""Environments that break the model: their rewards, errors and contexts are what their formulas say."""

from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Autocorrelated, Berkson, Drifting, Gaussian, HeartSteps, Misclassified, Nonlinear
from mebandit.values import Stretch
from tests.environments.test_environments import assert_mean, long_tape

WORLD = Gaussian(theta=((1.0, -0.5), (0.2, 0.8)), mean=0.5, error_cov=((0.6, 0.2), (0.2, 0.4)), noise_sd=0.3)
STRETCH = Stretch(3, 1, 2, 40, 400)


def test_a_nonlinear_reward_has_the_mean_of_its_formula() -> None:
    offset, quadratic = np.array([0.5, -1.0]), np.array([[0.3, 0.0], [-0.2, 0.1]])
    tape, before = Nonlinear(world=WORLD, offset=offset, quadratic=quadratic).tape(STRETCH), WORLD.tape(STRETCH)
    x = before.context
    np.testing.assert_allclose(tape.mean_reward, x @ np.array(WORLD.theta).T + offset + x**2 @ quadratic.T, rtol=1e-13)
    np.testing.assert_array_equal(tape.noise, before.noise)
    np.testing.assert_array_equal(tape.error, before.error)


def test_binary_rewards_are_0_or_1_with_the_probabilities_of_the_logistic_formula() -> None:
    tape = long_tape(Nonlinear(world=WORLD, offset=-1.0, binary=True))
    outcomes = tape.mean_reward + tape.noise
    np.testing.assert_allclose(outcomes, outcomes.round(), atol=1e-15)
    assert set(outcomes.round().ravel()) == {0.0, 1.0}
    scores = tape.context @ np.array(WORLD.theta).T - 1.0
    np.testing.assert_allclose(tape.mean_reward, 1 / (1 + np.exp(-scores)), rtol=1e-12)
    assert_mean(tape.noise, 0.0)
    assert_mean(tape.noise * tape.context[:, :1], 0.0)
    assert_mean(tape.noise**2 - tape.mean_reward * (1 - tape.mean_reward), 0.0)


@pytest.mark.parametrize("binary", [False, True])
def test_regret_and_rewards_of_a_nonlinear_world_are_those_of_its_mean_rewards(binary: bool) -> None:
    """In the compiled loop, in the loop in Python, and in the log that a policy leaves."""
    world, policy = Nonlinear(world=WORLD, offset=(0.0, 0.7), quadratic=0.2, binary=binary), mb.meb(2, 2, floor=0.1)
    log, tape = mb.simulate_log(world, policy, horizon=300, seed=5), world.tape(Stretch(5, 0, 0, 0, 300))
    t = np.arange(300)
    np.testing.assert_allclose(log.rewards, (tape.mean_reward + tape.noise)[t, log.actions], rtol=1e-13, atol=1e-15)
    best, mine = tape.mean_reward.max(axis=1), (log.propensities * tape.mean_reward).sum(axis=1)
    found = mb.simulate(world, [policy], horizon=300, replicates=1, seed=5, workers=1, references=False, progress=False)
    assert found.standard_regret[0, 0, -1] == pytest.approx((best - mine).sum(), rel=1e-12)
    benchmark = 0.8 * best + 0.1 * tape.mean_reward.sum(axis=1)
    assert found.clipped_regret[0, 0, -1] == pytest.approx((benchmark - mine).sum(), rel=1e-12)
    stepwise = mb.simulate(world, {"own": Stepwise(policy)}, horizon=300, replicates=1, seed=5, workers=1, references=False, floor=0.1)
    np.testing.assert_array_equal(stepwise.standard_regret, found.standard_regret)


class Stepwise:
    """A library policy behind the three methods alone, which the simulator plays round by round in Python."""

    n_actions, dim = 2, 2

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def init(self) -> Any:
        return self.inner.init()

    def propensities(self, state: Any, observation: Any) -> Any:
        return self.inner.propensities(state, observation)

    def update(self, state: Any, round: Any) -> Any:
        return self.inner.update(state, round)


def test_berkson_error_is_uncorrelated_with_the_prediction() -> None:
    tape, before = long_tape(Berkson(world=WORLD)), long_tape(WORLD)
    predicted = tape.context + tape.error
    np.testing.assert_allclose(predicted, before.context, atol=1e-14)
    assert_mean(np.einsum("ti,tj->tij", tape.error, predicted - 0.5), 0.0)
    assert_mean(np.einsum("ti,tj->tij", tape.error, tape.error), tape.error_cov[0])
    np.testing.assert_array_equal(tape.guess, before.context)


def test_autocorrelated_errors_and_contexts_keep_their_variance_and_have_the_correlation_asked_for() -> None:
    tape = long_tape(Autocorrelated(world=WORLD, error=0.8, context=-0.5, mean=0.5))
    for series, phi, variance in ((tape.error[:, 0], 0.8, 0.6), (tape.context[:, 1] - 0.5, -0.5, 1.0)):
        for lag in (1, 2, 5):
            apart = series[:-lag] * series[lag:]
            blocks = apart[: len(apart) // 500 * 500].reshape(-1, 500).mean(axis=1)  # nearly independent
            assert_mean(blocks, variance * phi**lag)
    shocks = long_tape(WORLD, 6).error
    slow = [shocks[0]]
    for shock in shocks[1:]:
        slow.append(0.8 * slow[-1] + 0.6 * shock)
    np.testing.assert_allclose(tape.error[:6], slow, rtol=1e-12)


def test_a_step_comes_after_half_a_period_and_stays() -> None:
    moved = Drifting(world=WORLD, mean=(2.0, 0.0), period=100, shape="step").tape(Stretch(1, 0, 0, 0, 300))
    jump = (moved.context - WORLD.tape(Stretch(1, 0, 0, 0, 300)).context)[:, 0]
    np.testing.assert_allclose(jump, np.where(np.arange(1, 301) > 50, 2.0, 0.0), atol=1e-14)


def test_groups_have_their_own_means() -> None:
    covs = np.stack([np.eye(2), 4 * np.eye(2)])
    tape = long_tape(Gaussian(theta=np.eye(2), mean=((1.0, 2.0), (-1.0, 0.0)), error_cov=covs))
    for group, mean in enumerate(((1.0, 2.0), (-1.0, 0.0))):
        own = tape.component == group
        assert_mean(tape.context[own], mean)
        assert_mean(tape.error[own] ** 2, np.diag(covs[group]))
    with pytest.raises(mb.InvalidInput, match=r"mean must have shape \(2, 2\); got shape \(3, 2\)"):
        Gaussian(theta=np.eye(2), mean=np.zeros((3, 2)), error_cov=covs)


def test_lognormal_contexts_have_their_moments() -> None:
    tape = long_tape(Gaussian(theta=np.eye(2), mean=(1.0, -2.0), cov=np.diag([1.0, 4.0]), context="lognormal"))
    away = (tape.context - np.array([1.0, -2.0])) / np.array([1.0, 2.0])
    v = 0.75**2
    lowest = -1 / np.sqrt(np.exp(v) - 1)
    assert_mean(away, 0.0)
    assert_mean(away**2, 1.0)
    assert_mean(np.log(away - lowest), -np.log(np.sqrt(np.exp(v) - 1)) - v / 2)
    assert away.min() > lowest


@pytest.mark.parametrize("reference", [False, True])
def test_the_prediction_of_a_misread_class_is_unbiased_with_the_covariance_that_is_told(reference: bool) -> None:
    confusion, p = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]), np.array([0.5, 0.3, 0.2])
    world = Misclassified(confusion=confusion, probabilities=p, theta=np.ones((2, 3)), reference=reference)
    tape = long_tape(world)
    for c in range(3):
        truth = np.eye(3)[c]
        if reference:
            truth = np.concatenate([[1.0], truth[1:]])
        own = (tape.context == truth).all(axis=1)
        assert_mean(own.astype(float), p[c])
        assert_mean(tape.error[own], 0.0)
    assert_mean(np.einsum("ti,tj->tij", tape.error, tape.error), tape.error_cov[0])
    assert_mean(tape.context - tape.guess, 0.0)  # and in each class seen
    for seen in np.unique(tape.guess.round(9), axis=0):
        own = (np.abs(tape.guess - seen) < 1e-8).all(axis=1)
        assert_mean((tape.context - tape.guess)[own], 0.0)


def test_the_covariance_told_is_what_from_confusion_estimates() -> None:
    confusion = np.array([[0.9, 0.1], [0.3, 0.7]])
    counts = (confusion * np.array([[6e6], [4e6]])).astype(int)
    told = Misclassified(confusion=confusion, probabilities=(0.6, 0.4), theta=np.ones((2, 2))).tape(STRETCH).error_cov[0]
    np.testing.assert_allclose(mb.measurement.from_confusion(counts).error_cov, told, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Nonlinear(world=WORLD, offset=(1.0, 2.0, 3.0)), r"offset must have shape \(2,\); got shape \(3,\)"),
        (lambda: Nonlinear(world=WORLD, binary="yes"), "binary must be"),  # type: ignore[arg-type]
        (
            lambda: Nonlinear(world=HeartSteps(), offset=1.0).tape(STRETCH),
            "world must be an environment in which past actions do not change",
        ),
        (lambda: Drifting(world=Nonlinear(world=WORLD), mean=1.0).tape(STRETCH), "world must have rewards that are linear in the context"),
        (lambda: Drifting(world=WORLD, shape="jump"), "shape must be one of 'sine', 'step'; got 'jump'"),
        (lambda: Autocorrelated(world=WORLD, error=1.0), r"error must be in \(-1, 1\); got 1"),
        (lambda: Misclassified(confusion=np.full((2, 2), 0.5), theta=np.eye(2)), "confusion must be invertible"),
        (
            lambda: Misclassified(confusion=np.eye(2) * 0.9, theta=np.eye(2)),
            "confusion must have 2 probabilities that sum to 1 in each row",
        ),
    ],
)
def test_impossible_settings_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises(mb.InvalidInput, match=sentence):
        make()
