"""Hostile calls: no crash, no exception but ours, nothing that is not finite, nothing changed by a refusal; see `scripts/fuzz.py`."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Gaussian, Misreported
from mebandit.environments.base import Drawn
from mebandit.policies import states
from mebandit.runtime.files import seal
from mebandit.values import LinearState, Observation, Round, Stretch, Tape, World

SCRIPT = Path(__file__).parents[1] / "scripts" / "fuzz.py"


def fuzz(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPT.parent)  # where Python looks when it runs the script
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCENES = [
    ("learner", 25),
    ("methods", 30),
    ("composing", 40),
    ("state_file", 20),
    ("estimating", 40),
    ("regressing", 40),
    ("watching", 6),
    ("measuring", 60),
    ("rounds", 6),
    ("simulating", 12),
    ("drawing", 40),
    ("experiments", 6),
    ("trials", 8),
    ("pilots", 8),
]


@pytest.mark.parametrize(("kind", "scenes"), SCENES)
def test_hostile_calls_are_refused(kind: str, scenes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = fuzz(monkeypatch).play
    assert [found for number in range(scenes) if (found := play(number, 0, tmp_path, kind)) is not None] == []


def test_the_script_goes_through_scenes_of_all_kinds() -> None:
    command = [sys.executable, str(SCRIPT), "--calls", "300", "--seed", "7", "--unchecked"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 places where something was wrong" in done.stdout


WITHIN_MEMORY = """
import numpy as np, mebandit as mb
from mebandit.policies import MEB, BestLinear, LinearPolicy
given = [{"mean": mean, "curved": curved} for mean in ("running", "forgetting", "auto") for curved in (False, True)]
contexts = [BestLinear(memory=2.0, weights="precision", **one) for one in given]
made = [LinearPolicy(n_actions=3, dim=2, estimator=MEB(context=context)) for context in contexts]
for policy in [*made, mb.meb_dr(3, 1), mb.meb_dr(3, 1, memory=2.0, discount=0.9)]:
    rng, learner = np.random.default_rng(1), mb.Learner(policy, seed=1)
    for t in range(60):
        x = rng.exponential(size=policy.dim) + t / 10
        learner.learn(learner.decide(x, 0.1 + 0.1 * (t % 3), allowed=[0, 2] if t % 5 == 0 else None), float(x.sum() + rng.normal()))
"""


def test_no_round_leaves_its_memory(tmp_path: Path) -> None:
    """With bounds checks: all recipes that calibrate, which keep different rows, in the code that is compiled for two features."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WITHIN_MEMORY], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_calibrated_context_has_a_usable_size() -> None:
    """Where the errors were huge and x~ hardly varied, an exact prediction later would be calibrated by a factor of 1e130."""
    learner, rng = mb.Learner(mb.meb_dr(2, 1), seed=1), np.random.default_rng(1)
    for t in range(40):
        learner.learn(learner.decide(rng.normal(size=1), 1e40 if t < 12 else 1e-90), float(rng.normal()))
        assert all((np.abs(part) <= 1e200).all() for part in learner.state), t  # far from where sums and products of them end


@pytest.mark.parametrize("wrong", [3.5, True, [[1.0]], [[1.0], [1.0, 2.0]], ["a", "a", "b"], ("a",)])
def test_names_and_rounds_that_there_cannot_be_are_refused(wrong: Any) -> None:
    model = mb.measurement.from_known([0.1, 0.2, 0.3])
    with pytest.raises(mb.InvalidInput, match=r"^features must be .+; got"):
        model.describe(wrong)
    found = mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=5, replicates=1, workers=1)
    with pytest.raises(mb.InvalidInput, match=r"^at must be .+; got"):
        found.replicates(at=wrong)
    with pytest.raises(mb.MebanditError, match=r"must be .+; got"):
        mb.environments.HeartSteps.from_csv(wrong)


def observation(**changes: Any) -> Observation:
    return Observation(np.array([1.0, 2.0]), 0.1 * np.eye(2), np.ones(2, dtype=np.bool_))._replace(**changes)


def finished(**changes: Any) -> Round:
    return Round(observation(), 0, np.array([0.5, 0.5]), 1.0)._replace(**changes)


NOT_ROUNDS: list[tuple[str, Any]] = [
    ("action", finished(action=-1)),
    ("action", finished(action=2)),
    ("action", finished(action=0.5)),
    ("action", finished(observation=observation(allowed=np.array([False, True])))),
    ("predicted", finished(observation=observation(predicted=np.ones(50)))),
    ("predicted", finished(observation=observation(predicted=np.array([np.nan, 1.0])))),
    ("error_cov", finished(observation=observation(error_cov=np.eye(9)))),
    ("allowed", finished(observation=observation(allowed=np.ones(70, dtype=np.bool_)))),
    ("time", finished(observation=observation(time=0))),
    ("auxiliary", finished(observation=observation(auxiliary=np.nan))),
    ("propensities", finished(propensities=np.array([1e-320, 1.0]))),
    ("propensities", finished(propensities=np.ones(1))),
    ("reward", finished(reward=np.inf)),
    ("round", "round"),
]


@pytest.mark.parametrize(("names", "round"), NOT_ROUNDS)
def test_a_round_that_there_cannot_be_is_refused(names: str, round: Any) -> None:
    policy = mb.meb_dr(2, 2)
    state = policy.update(policy.init(), finished())
    before = states.copied(state)
    calls: list[Callable[[], object]] = [
        lambda: policy.update(state, round),
        lambda: policy.advance(state, round),
        lambda: mb.replay(policy, [round]),
    ]
    for call in calls:
        with pytest.raises(mb.InvalidInput, match=rf"{names}.* must .+; got"):
            call()
    assert states.same(state, before)


def test_what_cannot_be_a_state_is_refused() -> None:
    policy = mb.robust_ucb(2, 2, horizon=50)
    good = policy.update(policy.init(), finished())
    away = good.extra.copy()
    away[5] = 1e9
    wrong: list[Any] = [
        tuple(good),
        good._replace(extra=away),
        good._replace(sums=good.sums[:-1]),
        good._replace(sums=good.sums.astype(np.float32)),
        good._replace(sums=np.asfortranarray(good.sums)),
        good._replace(fit=np.full_like(good.fit, np.nan)),
        LinearState(good.sums, good.fit, good.extra[:3]),
    ]
    for state in wrong:
        calls: list[Callable[[], object]] = [
            lambda: policy.propensities(state, observation()),  # noqa: B023
            lambda: policy.update(state, finished()),  # noqa: B023
            lambda: policy.refit_now(state),  # noqa: B023
            lambda: policy.theta(state),  # noqa: B023
            lambda: policy.moments(state),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(mb.InvalidInput, match=r"^state.* must .+; got"):
                call()


def test_a_state_file_cannot_point_anywhere(tmp_path: Path) -> None:
    """EXP3's choice of a budget is an index; a file that is well sealed may still hold 1e9 there."""
    path = tmp_path / "state.json"
    mb.Learner(mb.robust_ucb(2, 1, horizon=50)).save(path)
    body = json.loads(path.read_text())
    del body["sha256"]
    body["state"]["tuple"][2]["array"][5] = 1e9
    path.write_text(seal(body) + "\n")
    with pytest.raises(mb.LogError, match="budgets"):
        mb.Learner.load(path)


def test_a_policy_needs_a_budget() -> None:
    with pytest.raises(mb.InvalidInput, match="n_budgets must be a whole number from 1 to 1000; got 0"):
        mb.policies.Robust(epoch=1, n_budgets=0, gamma=0.0)


@pytest.mark.parametrize("recipe", [mb.meb, mb.meb_dr])
@pytest.mark.parametrize(("n_actions", "dim"), [(10**9, 2), (2**28, 2**28), (2**64, 2), (2, 10**30)])
def test_a_policy_needs_room(recipe: Any, n_actions: int, dim: int) -> None:
    with pytest.raises(mb.InvalidInput, match="n_actions and dim must make a memory"):
        recipe(n_actions, dim)


@pytest.mark.parametrize("change", [{"component": np.full(9, 10**6)}, {"carry_index": 99}, {"theta": np.ones((1, 2, 1))}])
def test_a_tape_that_points_nowhere_is_not_played(change: dict[str, Any]) -> None:
    class Own:
        n_actions, dim = 2, 5

        def tape(self, stretch: Stretch) -> Tape:
            return Gaussian(error_cov=np.stack([np.eye(5), 2 * np.eye(5)])).tape(stretch)._replace(**change)

    with pytest.raises(mb.InvalidInput, match=r"Own.tape \w+ must"):
        mb.simulate_log(Own(), mb.meb(2, 5), horizon=9, seed=1)
    with pytest.raises(mb.InvalidInput, match=r"Own.tape \w+ must"):
        mb.simulate(Misreported(world=Own(), factor=2.0), [mb.meb(2, 5)], horizon=9, replicates=1, workers=1)


WORLDS: dict[str, Any] = {
    "mean": np.ones((1, 100_000)),
    "factor": np.ones((1, 1, 1)),
    "error_factor": np.ones((7, 5, 5)),
    "error_mean": np.ones((1, 1)),
    "error_cov": -np.ones((1, 5, 5)),
    "cumulative": np.array([0.1, 0.2, 0.3]),
    "gain": np.ones((1, 1, 1)),
    "offset": np.empty((0, 5)),
    "theta": np.ones((1, 5)),
    "hold": 0,
    "context_kind": 99,
    "carry_index": 5,
    "carry_gain": np.ones(1),
    "noise_sd": np.nan,
}


@pytest.mark.parametrize("field", WORLDS)
def test_a_world_that_points_nowhere_is_not_drawn(field: str) -> None:
    """Neither by `draw_tape`, nor by an environment of one's own that lets compiled code draw its tapes."""

    @dataclass(frozen=True)
    class Own(Drawn):
        changes: dict[str, Any]
        n_actions, dim = 2, 5

        def world_of(self, stretch: Stretch) -> World:
            return Gaussian().world_of(stretch)._replace(**self.changes)

    stretch, good, bad = Stretch(1, 0, 0, 0, 9), Own({}), Own({field: WORLDS[field]})
    assert states.same(mb.environments.draw_tape(good.world_of(stretch), stretch), Gaussian().tape(stretch))
    assert states.same(good.tape(stretch), Gaussian().tape(stretch))
    calls: list[Callable[[], object]] = [
        lambda: mb.environments.draw_tape(bad.world_of(stretch), stretch),
        lambda: mb.simulate_log(bad, mb.meb(2, 5), horizon=9, seed=1),
    ]
    for call in calls:
        with pytest.raises(mb.InvalidInput, match=rf"world\.{field}\b.* must .+; got"):
            call()
    for wrong in (None, Stretch(1, 0, 0, 5, 0), Stretch(-1, 0, 0, 0, 5), ("x",) * 5):
        with pytest.raises(mb.InvalidInput, match="must"):
            mb.environments.draw_tape(good.world_of(stretch), wrong)  # type: ignore[arg-type]
    with pytest.raises(mb.InvalidInput, match="world must be a World"):
        mb.environments.draw_tape(None, stretch)  # type: ignore[arg-type]


# ---- nothing that is not finite ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variances", [[1e-310], [1e-310, 0.1], [1e-160, 1e-101]])
@pytest.mark.parametrize("make", [mb.meb_dr, mb.meb, lambda k, d: mb.meb(k, d, ridge=0.0, guard="always")])
def test_a_negligible_error_variance_is_none(variances: list[float], make: Any) -> None:
    """The same decisions and the same state, bit for bit, as with a variance of 0; live, from a journal's decisions and from a file."""
    d, rng = len(variances), np.random.default_rng(0)
    small, none = (mb.Learner(make(2, d), seed=1) for _ in range(2))
    for _ in range(60):
        x, reward = rng.normal(size=d), float(rng.normal())
        for learner, error in ((small, variances), (none, np.where(np.array(variances) < 1e-100, 0.0, variances))):
            learner.learn(learner.decide(x, error), reward)
    assert states.same(small.state, none.state)
    assert all(np.isfinite(part).all() for part in small.state)


def test_a_negligible_error_variance_is_none_in_a_log() -> None:
    rng = np.random.default_rng(0)
    x, actions, rewards = rng.normal(size=(80, 2)), rng.integers(2, size=80), rng.normal(size=80)
    pi = np.full(80, 0.5)
    small, none = (mb.estimate(x, actions, rewards, pi, [v, 0.1], method="dr") for v in (1e-310, 0.0))
    assert np.array_equal(small.theta, none.theta)
    assert np.array_equal(small.covariance, none.covariance)
    log = {"predicted_0": x[:, 0], "predicted_1": x[:, 1], "action": actions, "reward": rewards, "propensity": pi, "b": np.full(80, 0.1)}
    by_round = [mb.fit(log | {"a": np.full(80, v)}, error_columns=["a", "b"], workers=1, progress=False) for v in (1e-310, 0.0)]
    assert np.array_equal(by_round[0].estimates["dr"].theta, by_round[1].estimates["dr"].theta)


@pytest.mark.parametrize("propensity", [1e-320, 1e-13])
def test_the_smallest_propensity_is_the_same_everywhere(propensity: float) -> None:
    x, actions, rewards = np.ones((3, 1)), np.array([0, 1, 0]), np.ones(3)
    pi = np.array([0.5, propensity, 0.5])
    with pytest.raises(mb.InvalidInput, match="propensities must be from 1e-12 to 1 for the action taken"):
        mb.estimate(x, actions, rewards, pi, 0.1, method="dr")
    log = {"predicted_0": x[:, 0], "action": actions, "reward": rewards, "propensity": pi}
    for call in (mb.fit, lambda log, **o: mb.value(log, "uniform", **o)):
        with pytest.raises(mb.LogError, match="1e-12"):
            call(log, error_cov=0.1, workers=1, progress=False)
