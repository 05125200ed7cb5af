"""The live learner: any order of rewards, nothing lost, nothing changed by a refused call."""

import copy
import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mebandit as mb
from mebandit import kernels
from mebandit.measurement import from_confusion, from_known, from_validation, from_variances
from mebandit.policies import LinearPolicy, states
from mebandit.values import Observation, Round
from tests import reference


def drive(learner: mb.Learner, n: int, *, seed: int = 0, restrict: bool = True) -> list[mb.Decision]:
    """n decisions on random contexts, some of them restricted; no rewards yet."""
    rng = np.random.default_rng(seed)
    d, k = learner.policy.dim, learner.policy.n_actions
    made = []
    for _ in range(n):
        allowed = [int(rng.integers(k))] if restrict and rng.random() < 0.2 else None
        made.append(learner.decide(rng.normal(1, 1, d), 0.2 * np.eye(d), allowed=allowed))
    return made


def reward_of(decision: mb.Decision) -> float:
    return float(np.sin(decision.id * 12.9898))


@pytest.mark.parametrize("make", [mb.meb, mb.meb_naive, mb.greedy, mb.lin_ucb, mb.thompson])
def test_the_learner_is_the_policys_fold(make: Any) -> None:
    """decide + learn gives the propensities and the state of the pure three-method policy, bit for bit."""
    policy = make(3, 2, warmup=4)
    learner, state = mb.Learner(policy, seed=5), policy.init()
    rng = np.random.default_rng(1)
    for t in range(1, 80):
        x, s = rng.normal(size=2), np.diag(rng.uniform(0, 0.5, 2))
        allowed = np.ones(3, dtype=bool) if t % 5 else np.array([True, False, True])
        decision = learner.decide(x, s, allowed=allowed)
        auxiliary = learner._pending[decision.id][0].auxiliary
        observation = Observation(x, s, allowed, t, auxiliary)
        np.testing.assert_array_equal(decision.propensities, policy.propensities(state, observation))
        assert decision.propensity == decision.propensities[decision.action]
        assert allowed[decision.action]
        reward = float(rng.normal())
        learner.learn(decision, reward)
        state = policy.update(state, Round(observation, decision.action, decision.propensities, reward))
        assert states.same(learner.state, state)


SCHEDULES: dict[str, dict[str, Any]] = {
    "none": {},
    "floor": {"floor": mb.schedules.Power(-0.5, 0.3)},
    "refits": {"refit": 4},
    "stabilizer": {"stabilizer": lambda t: [1.0, 1.0 + t % 3, 2.0]},
    "first rounds": {"warmup": 5, "correct_from": 9, "intercept": True},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [mb.meb, mb.meb_dr, mb.lin_ucb, mb.oracle, mb.robust_ucb])
def test_a_workspace_changes_nothing(make: Any, schedule: str) -> None:
    """A policy at work in compiled code decides and learns as it does step by step, whatever the order of the rewards."""
    from tests.policies.test_policies import Stepwise

    needs: dict[Any, dict[str, Any]] = {mb.oracle: {"theta": np.eye(3)}, mb.robust_ucb: {"horizon": 50}}
    known = inspect.signature(make).parameters
    options = {name: option for name, option in SCHEDULES[schedule].items() if name in known} | needs.get(make, {})
    policy, rng = make(3, 3, **options), np.random.default_rng(3)
    learners = [mb.Learner(policy, seed=2**40), mb.Learner(Stepwise(policy), seed=2**40)]
    waiting: list[int] = []
    for t in range(60):
        x, s = rng.exponential(size=3), (0.1 + t // 7 % 3) * np.array([[0.3, 0.1, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 0.0]])
        allowed = None if t % 4 else [0, 2]
        one, two = (learner.decide(x, s, allowed=allowed) for learner in learners)
        assert one[:3] == two[:3]
        assert one.propensities.tolist() == two.propensities.tolist()
        assert states.same(*(learner._pending[one.id][0] for learner in learners))
        waiting.append(one.id)
        while len(waiting) > t % 3:
            number = waiting.pop(int(rng.integers(len(waiting))))
            for learner in learners:
                learner.learn(number, float(np.sin(number) + x[0]))
        assert states.same(learners[0].state, learners[1].state)


def test_a_copied_learner_goes_on_by_itself() -> None:
    learner = mb.Learner(mb.meb(2, 2), seed=1)
    for decision in drive(learner, 20):
        learner.learn(decision, reward_of(decision))
    before, twin = learner.state, copy.deepcopy(learner)
    assert states.same(twin.state, before)
    for decision in drive(twin, 20, seed=5):
        twin.learn(decision, reward_of(decision))
    assert states.same(learner.state, before)
    for decision in drive(learner, 20, seed=5):
        learner.learn(decision, reward_of(decision))
    assert states.same(twin.state, learner.state)
    assert not states.same(twin.state, before)


def test_no_array_makes_the_compiler_start_again() -> None:
    """Of whatever layout and type: what the compiler would take for another type is copied first."""
    learner, s = mb.Learner(mb.meb(2, 2), seed=1), np.array([[0.5, 0.1], [0.1, 0.3]])
    expected = learner.decide(np.array([0.25, 1.0]), s).propensities
    program = kernels.live_program(kernels.layout.PLAIN, 2)
    known = [len(function.signatures) for function in program]
    fixed, fixed_s, odd = np.array([0.25, 1.0]), s.copy(), np.empty(17, dtype=np.uint8)[1:].view(np.float64)
    odd[:] = fixed
    for array in (fixed, fixed_s):
        array.setflags(write=False)
    for x in (
        fixed,
        odd,
        np.array([0.25, 9.0, 1.0, 9.0])[::2],
        np.array([0.25, 1.0], dtype=np.float32),
        np.array([0.25, 1.0], dtype=">f8"),
        [0.25, 1.0],
    ):
        for error_cov in (fixed_s, np.asfortranarray(s), s[::-1, ::-1][::-1, ::-1], s.tolist()):
            decision = learner.decide(x, error_cov)
            assert decision.propensities.tolist() == expected.tolist()
            learner.learn(decision, 0.0)
    assert [len(function.signatures) for function in program] == known


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint64, int])
def test_a_reward_is_a_number_of_any_type(kind: type) -> None:
    learner, other = mb.Learner(mb.meb(2, 1), seed=1), mb.Learner(mb.meb(2, 1), seed=1)
    learner.learn(learner.decide([1.0], 0.1), kind(3))
    other.learn(other.decide([1.0], 0.1), 3.0)
    assert learner.theta.tolist() == other.theta.tolist()


def test_actions_are_drawn_with_the_probabilities_reported() -> None:
    learner = mb.Learner(mb.thompson(3, 1, floor=0.1), seed=2)
    for decision in drive(learner, 30, restrict=False):
        learner.learn(decision, reward_of(decision))
    counts, expected, variance = np.zeros(3), np.zeros(3), np.zeros(3)
    for decision in drive(learner, 20_000, seed=4, restrict=False):
        counts[decision.action] += 1
        expected += decision.propensities
        variance += decision.propensities * (1 - decision.propensities)
        learner.forget(decision)
    assert (np.abs(counts - expected) < 4.5 * np.sqrt(variance)).all()


def test_an_error_covariance_changed_in_place_is_a_new_one() -> None:
    """What was given with the last decision is remembered by its numbers, not by the array that held them."""
    learner, s = mb.Learner(mb.meb(2, 2), seed=1), np.eye(2)
    before = [learner.decide([0.3, 1.0], s).id for _ in range(2)]
    s *= 2
    after = learner.decide([0.3, 1.0], s).id
    held = [learner._pending[i][0].error_cov[1, 1] for i in (*before, after)]
    assert held == [1.0, 1.0, 2.0]
    for bad in (-1.0, np.nan):
        s[1, 1] = bad
        with pytest.raises(mb.MebanditError, match="error_cov must be"):
            learner.decide([0.3, 1.0], s)
    assert learner.decided == 3


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25))
def test_rewards_may_come_in_any_order_or_never(seed: int, n: int) -> None:
    """The sums are those of the rounds that were rewarded, in the order in which they were."""
    rng = np.random.default_rng(seed)
    policy = mb.meb(2, 2)
    learner = mb.Learner(policy, seed=1)
    made = drive(learner, n, seed=seed)
    pending = dict(learner._pending)
    order = rng.permutation(n)[: rng.integers(0, n + 1)]
    for i in order:
        learner.learn(made[i] if i % 2 else made[i].id, reward_of(made[i]))
    rounds = [Round(pending[d.id][0], d.action, d.propensities, reward_of(d)) for d in (made[i] for i in order)]
    assert states.same(learner.state, mb.replay(policy, rounds))
    assert learner.waiting == n - len(order)
    assert set(learner.pending) == {d.id for d in made} - {made[i].id for i in order}


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(0, 10), st.sampled_from(["meb", "lin_ucb", "thompson", "robust"]))
def test_save_and_load_are_exact(seed: int, learned: int, waiting: int, name: str) -> None:
    import tempfile

    policy = mb.robust_ucb(2, 3, horizon=9) if name == "robust" else getattr(mb, name)(2, 3, floor=mb.schedules.Power(-0.2, 0.5))
    learner = mb.Learner(policy, seed=seed)
    for decision in drive(learner, learned + waiting, seed=seed)[:learned]:
        learner.learn(decision, reward_of(decision))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        learner.save(path)
        loaded = mb.Learner.load(path)
        assert sorted(os.listdir(folder)) == ["state.json"]
    assert loaded.policy == learner.policy
    assert states.same(loaded.state, learner.state)
    assert (loaded.decided, loaded.learned, loaded.pending) == (learner.decided, learner.learned, learner.pending)
    for number in learner.pending:
        learner.learn(number, 0.5)
        loaded.learn(number, 0.5)
    again, same = drive(learner, 5, seed=9), drive(loaded, 5, seed=9)
    assert [(d.id, d.action, d.propensity) for d in again] == [(d.id, d.action, d.propensity) for d in same]
    assert states.same(loaded.state, learner.state)


def test_a_policy_of_ones_own_can_be_saved_and_loaded(tmp_path: Path) -> None:
    class Counting:
        """Plays the arms in proportion to 1 + the number of positive rewards."""

        n_actions, dim = 2, 1

        def init(self) -> dict[str, Any]:
            return {"wins": np.zeros(2), "rounds": 0, "history": [], "best": -np.inf, "nothing": np.array([np.nan, np.inf])}

        def propensities(self, state: dict[str, Any], observation: Observation) -> reference.Floats:
            weights: reference.Floats = (1 + state["wins"]) * observation.allowed
            return np.asarray(weights / weights.sum())

        def update(self, state: dict[str, Any], round: Round) -> dict[str, Any]:
            wins = state["wins"].copy()
            wins[round.action] += round.reward > 0
            return state | {"wins": wins, "rounds": state["rounds"] + 1, "history": [*state["history"], round.action]}

    mb.check_policy(Counting())
    learner = mb.Learner(Counting(), seed=3)
    for decision in drive(learner, 30):
        learner.learn(decision, reward_of(decision))
    learner.save(tmp_path / "own.json")
    with pytest.raises(mb.LogError, match="must be read with its policy; got none"):
        mb.Learner.load(tmp_path / "own.json")
    loaded = mb.Learner.load(tmp_path / "own.json", policy=Counting())
    assert states.same(loaded.state, learner.state)
    assert loaded.state["rounds"] == len(loaded.state["history"]) == 30
    with pytest.raises(mb.InvalidInput, match="policy must be a linear one that keeps what it learns, to give an estimate; got Counting"):
        learner.estimate()
    with pytest.raises(mb.InvalidInput, match="run the same policy"):
        learner.merge(mb.Learner(mb.meb(2, 1)))


def test_what_cannot_be_learned_from_is_not_in_the_journal(tmp_path: Path) -> None:
    """A stabilizer of one's own that breaks in the third round: the call is refused, and the journal does not hold it."""
    policy = mb.meb(2, 1, stabilizer=lambda t: (0.5, 0.5) if t < 3 else (0.0, 1.0))
    learner = mb.Learner(policy, journal=tmp_path / "j.jsonl")
    made = drive(learner, 3)
    for decision in made[:2]:
        learner.learn(decision, 1.0)
    kept, before = learner.state, (tmp_path / "j.jsonl").read_bytes()
    for _ in range(2):
        with pytest.raises(mb.InvalidInput, match="stabilizer must be at least 1e-12"):
            learner.learn(made[2], 1.0)
    assert (tmp_path / "j.jsonl").read_bytes() == before
    assert states.same(learner.state, kept)
    learner.close()
    assert states.same(mb.Learner.recover(tmp_path / "j.jsonl", policy=policy).state, kept)


def test_a_file_is_read_only_with_its_own_policy(tmp_path: Path) -> None:
    def floor(t: int) -> float:
        return 0.2

    mb.Learner(mb.meb(2, 2, floor=floor), seed=1).save(tmp_path / "s.json")
    with pytest.raises(mb.LogError, match="must be read with its policy; got none"):
        mb.Learner.load(tmp_path / "s.json")
    for other in (mb.lin_ucb(2, 2, floor=floor), mb.meb(2, 2, floor=floor, ridge=2.0), mb.meb(2, 2)):
        with pytest.raises(mb.LogError, match="must be read with the policy it was written with"):
            mb.Learner.load(tmp_path / "s.json", policy=other)
    assert mb.Learner.load(tmp_path / "s.json", policy=mb.meb(2, 2, floor=floor)).policy.floor is floor  # type: ignore[attr-defined]
    mb.Learner(mb.meb(np.int64(2), 2, warmup=np.int64(30), floor=np.float64(0.1)), seed=1).save(tmp_path / "n.json")  # type: ignore[arg-type]
    assert mb.Learner.load(tmp_path / "n.json").policy == mb.meb(2, 2, warmup=30, floor=0.1)


def test_a_state_laid_out_otherwise_is_refused(tmp_path: Path) -> None:
    """As before there was a row for what the rewards say of the curve."""
    learner, path = mb.Learner(mb.meb_dr(2, 2), seed=1), tmp_path / "s.json"
    learner.save(path)
    rewrite(path, state=states.to_plain(learner.state._replace(sums=learner.state.sums[:-1])))
    with pytest.raises(mb.LogError, match=r"s\.json, in which this is wrong: state\.sums must be a contiguous array of float64 of shape"):
        mb.Learner.load(path)


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a state file (None: take them out), and let its checksum match."""
    body = {name: part for name, part in (json.loads(path.read_text()) | changes).items() if name != "sha256" and part is not None}
    path.write_text(json.dumps(body | {"sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest()}))


def test_a_state_file_names_the_layout_of_its_memory(tmp_path: Path) -> None:
    """Another layout is refused with what to do; a file of 0.1.0, which names none, has the first, which differs for meb_dr alone."""
    learner, path = mb.Learner(mb.meb(2, 2), seed=1), tmp_path / "s.json"
    learner.learn(learner.decide([1.0, 0.5], 0.1), 1.0)
    learner.save(path)
    assert json.loads(path.read_text())["layout"] == kernels.layout.VERSION
    rewrite(path, layout=kernels.layout.VERSION + 1)
    with pytest.raises(
        mb.LogError, match=r"must hold a memory of layout \d+; got layout \d+ in .*s\.json\. Recover the learner from its journal"
    ):
        mb.Learner.load(path)
    rewrite(path, layout=None)
    assert states.same(mb.Learner.load(path).state, learner.state)
    mb.Learner(mb.meb_dr(2, 2), seed=1).save(tmp_path / "ours.json")
    rewrite(tmp_path / "ours.json", layout=1)
    with pytest.raises(mb.LogError, match=r"must hold a memory of layout 3; got layout 1 in .*ours\.json\. Recover the learner"):
        mb.Learner.load(tmp_path / "ours.json")
    rewrite(path, layout=kernels.layout.VERSION, version=3)
    with pytest.raises(mb.LogError, match="state file must be mebandit-learner version 1 or 2; got 'mebandit-learner' version 3"):
        mb.Learner.load(path)


BIASED = from_validation(
    [[0.2 + 1.5 * x + e] for x, e in ((0.0, 0.3), (1.0, -0.4), (2.0, 0.2), (3.0, -0.1), (4.0, 0.1))] * 8,
    [[0.0], [1.0], [2.0], [3.0], [4.0]] * 8,
)


@pytest.mark.parametrize(
    "model",
    [from_known([0.3]), BIASED, from_confusion([[0.8, 0.2], [0.1, 0.9]], prevalence=[0.4, 0.6])],
    ids=lambda model: model.kind,
)
@pytest.mark.parametrize("wrap", [False, True])
def test_an_error_model_stands_for_a_covariance(tmp_path: Path, model: mb.measurement.ErrorModel, wrap: bool) -> None:
    """The prediction is unbiased first; what is remembered, written and read back is that prediction with its covariance."""
    from tests.policies.test_policies import Stepwise

    policy: Any = Stepwise(mb.meb(2, model.dim)) if wrap else mb.meb(2, model.dim)
    path, rng = tmp_path / "j.jsonl", np.random.default_rng(0)
    with mb.Learner(policy, seed=3, journal=path) as learner:
        by_hand, raw = mb.Learner(policy, seed=3), rng.normal(1, 1, (20, model.dim))
        for t in range(20):
            one, two = learner.decide(raw[t], model), by_hand.decide(model.unbias(raw[t]), model.error_cov)
            assert one.propensities.tolist() == two.propensities.tolist()
            learner.learn(one, float(np.sin(t)))
            by_hand.learn(two, float(np.sin(t)))
        assert states.same(learner.state, by_hand.state)
    log = mb.read_journal(path)
    np.testing.assert_array_equal(log.predicted, [model.unbias(x) for x in raw])
    np.testing.assert_array_equal(log.error_cov, np.broadcast_to(model.error_cov, log.error_cov.shape))
    with mb.Learner.recover(path, policy=policy if wrap else None) as again:
        assert states.same(again.state, by_hand.state)


def test_an_error_model_that_does_not_fit_is_refused() -> None:
    learner = mb.Learner(mb.meb(2, 2), seed=1)
    with pytest.raises(mb.InvalidInput, match="error_cov must be a model of 2 features; got one of 1"):
        learner.decide([1.0, 2.0], from_known([0.3]))
    with pytest.raises(mb.InvalidInput, match="predicted must be finite"):
        learner.decide([1.0, np.nan], from_known([0.3, 0.2]))
    rng = np.random.default_rng(1)
    reported = from_variances(rng.uniform(0.1, 0.4, (50, 2)))
    with pytest.raises(mb.InvalidInput, match=r"one of reported variances. Give the covariance of this prediction: model.covariances"):
        learner.decide([1.0, 2.0], reported)
    assert learner.decide([1.0, 2.0], reported.covariances([[0.2, 0.3]])[0]).id == 1


def test_a_subclass_is_a_class_of_its_own() -> None:
    class Always(LinearPolicy):
        def propensities(self, state: Any, observation: Observation) -> reference.Floats:
            return np.array([1.0, 0.0])

    policy = Always(name="always", n_actions=2, dim=1, floor=0.0)
    assert mb.Learner(policy).decide([1.0], 0.1).propensities.tolist() == [1.0, 0.0]
    results = mb.simulate(mb.environments.Example21(), [policy], horizon=50, replicates=2, references=False)
    plain = mb.simulate(mb.environments.Example21(), [mb.greedy(2, 1, floor=0.0)], horizon=50, replicates=2, references=False)
    assert results.mean("always", "standard_regret") != plain.mean("Greedy", "standard_regret")


def test_merge_knows_what_both_sites_learned() -> None:
    policy = mb.meb(2, 2)
    first, second = mb.Learner(policy, seed=1), mb.Learner(policy, seed=2)
    for learner, n in ((first, 40), (second, 25)):
        for decision in drive(learner, n, seed=n)[:-3]:
            learner.learn(decision, reward_of(decision))
    kept = first.state
    merged = first.merge(second)
    np.testing.assert_array_equal(merged.state.sums, first.state.sums + second.state.sums)
    assert (merged.decided, merged.learned, merged.pending) == (65, 59, first.pending)
    assert states.same(first.state, kept)
    merged.learn(first.pending[0], 1.0)
    assert first.waiting == 3


def test_estimate_is_that_of_the_batch(tmp_path: Path) -> None:
    learner = mb.Learner(mb.meb(2, 2, intercept=True), seed=1, journal=tmp_path / "trial.jsonl")
    for decision in drive(learner, 120):
        learner.learn(decision, reward_of(decision))
    log = mb.read_journal(tmp_path / "trial.jsonl")
    batch = mb.estimate(log.predicted, log.actions, log.rewards, log.propensities, log.error_cov, ridge=1.0, intercept=True)
    live = learner.estimate()
    np.testing.assert_allclose(live.theta, batch.theta, rtol=1e-9)
    np.testing.assert_array_equal(live.theta, learner.theta)
    np.testing.assert_allclose(live.intercept, batch.intercept, rtol=1e-9)
    assert np.isnan(live.std_error).all()
    assert np.isfinite(batch.std_error).all()


def test_a_forced_round_is_taken_with_certainty_and_logged_so(tmp_path: Path) -> None:
    learner = mb.Learner(mb.meb(3, 1, floor=0.2), seed=1, journal=tmp_path / "j.jsonl")
    forced = learner.decide([0.3], 0.1, allowed=[2])
    assert (forced.action, forced.propensity) == (2, 1.0)
    two = learner.decide([0.3], 0.1, allowed=[True, False, True])
    np.testing.assert_allclose(two.propensities, [0.5, 0.0, 0.5])
    learner.learn(forced, 1.0)
    learner.learn(two, -1.0)
    log = mb.read_journal(tmp_path / "j.jsonl")
    np.testing.assert_array_equal(log.allowed, [[False, False, True], [True, False, True]])
    table = log.to_arrow()
    assert table.column("propensity").to_pylist() == [1.0, 0.5]
    log.to_parquet(tmp_path / "log.parquet")
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "log.parquet").equals(table)


def test_a_journal_gives_the_learner_back(tmp_path: Path) -> None:
    path = tmp_path / "trial.jsonl"
    policy = mb.meb(2, 2, warmup=5)
    learner = mb.Learner(policy, seed=4, journal=path)
    made = drive(learner, 60)
    for decision in made[::-2]:
        learner.learn(decision, reward_of(decision))
    learner.forget(made[0])
    with pytest.raises(mb.LogError, match="journal must have one writer at a time"):
        mb.Learner.recover(path)
    x = np.array([0.1, 0.2])
    twin = mb.Learner(policy, seed=4)
    twin._workspace.restore(learner.state, learner.learned)
    twin._pending, twin.decided, twin.learned = dict(learner._pending), learner.decided, learner.learned
    expected = twin.decide(x, np.eye(2))
    learner.close()
    with pytest.raises(mb.LogError, match="journal must be open"):
        learner.decide(x, np.eye(2))
    recovered = mb.Learner.recover(path)
    assert recovered.policy == policy
    assert states.same(recovered.state, learner.state)
    assert (recovered.decided, recovered.learned) == (60, 30)
    assert set(recovered.pending) == set(learner.pending)
    again = recovered.decide(x, np.eye(2))
    assert (again.id, again.action, again.propensities.tolist()) == (expected.id, expected.action, expected.propensities.tolist())
    recovered.close()
    with pytest.raises(mb.LogError, match="must be read with the policy it was written with"):
        mb.Learner.recover(path, policy=mb.meb(2, 2))
    with pytest.raises(mb.InvalidInput, match="journal must be a new file"):
        mb.Learner(policy, journal=path)


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    """A crash in the middle of writing: the call never returned, so its event does not count, and the journal goes on."""
    path = tmp_path / "trial.jsonl"
    policy = mb.meb(2, 2)
    learner = mb.Learner(policy, seed=4, journal=path)
    for decision in drive(learner, 5):
        learner.learn(decision, 1.0)
    before = learner.state
    learner.decide([1.0, 2.0], 0.1)
    learner.close()
    path.write_bytes(path.read_bytes()[:-cut])
    recovered = mb.Learner.recover(path)
    assert states.same(recovered.state, before)
    assert recovered.decided == 5
    with recovered:
        recovered.decide([1.0, 2.0], 0.1)
    assert mb.Learner.recover(path).decided == 6


def test_an_event_that_cannot_be_written_is_taken_back_and_can_be_tried_again(tmp_path: Path) -> None:
    """A full disk, played by a limit on the size of files: the refused call changes neither the learner nor the journal."""
    import resource

    path = tmp_path / "trial.jsonl"
    learner = mb.Learner(mb.meb(2, 2), seed=4, journal=path)
    made = drive(learner, 3)
    before, kept = path.read_bytes(), learner.state
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        for call in (lambda: learner.learn(made[0], 1.0), lambda: learner.decide([1.0, 2.0], 0.1), lambda: learner.forget(made[1])):
            with pytest.raises(mb.LogError, match="journal must be a file that can be written"):
                call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert states.same(learner.state, kept)
    assert (learner.decided, learner.waiting) == (3, 3)
    learner.learn(made[0], 1.0)
    learner.close()
    recovered = mb.Learner.recover(path)
    assert states.same(recovered.state, learner.state)


def test_a_killed_process_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """A real process is killed while it decides and learns; every answer it gave is in the journal, and nothing half-written counts."""
    path = tmp_path / "trial.jsonl"
    script = textwrap.dedent(
        """
        import sys
        import numpy as np
        import mebandit as mb
        learner = mb.Learner(mb.meb(2, 3), seed=8, journal=sys.argv[1])
        rng = np.random.default_rng(0)
        while True:
            decision = learner.decide(rng.normal(size=3), 0.1 * np.eye(3))
            learner.learn(decision, float(rng.normal()))
            print(learner.learned, flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    answered = 0
    for line in process.stdout:
        answered = int(line)
        if answered == 400:
            process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    recovered = mb.Learner.recover(path)
    assert recovered.learned >= answered >= 400
    fresh = mb.Learner(mb.meb(2, 3), seed=8)
    rng = np.random.default_rng(0)
    for _ in range(recovered.learned):
        fresh.learn(fresh.decide(rng.normal(size=3), 0.1 * np.eye(3)), float(rng.normal()))
    assert states.same(fresh.state, recovered.state)


def test_a_save_that_is_interrupted_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = mb.Learner(mb.meb(2, 1), seed=1)
    learner.save(tmp_path / "s.json")
    old = (tmp_path / "s.json").read_bytes()
    learner.learn(learner.decide([1.0], 0.1), 1.0)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(mb.LogError, match=r"the file to write must be one that can be written; got .*disk full"):
        learner.save(tmp_path / "s.json")
    assert (tmp_path / "s.json").read_bytes() == old
    assert mb.Learner.load(tmp_path / "s.json").learned == 0


def test_ids_and_rewards_may_be_of_numpys_types() -> None:
    learner = mb.Learner(mb.meb(2, 1), seed=1)
    for reward in (np.float64(1.0), np.int64(2), True, np.True_):
        learner.learn(np.int64(learner.decide([1.0], 0.1).id), reward)  # type: ignore[arg-type]
    assert learner.learned == 4


def test_the_state_file_is_plain_json(tmp_path: Path) -> None:
    mb.Learner(mb.meb(2, 1, floor=0.3), seed=1).save(tmp_path / "s.json")
    body = json.loads((tmp_path / "s.json").read_text())
    assert body["policy"] == {
        "type": "LinearPolicy",
        "version": 2,
        "n_actions": 2,
        "dim": 1,
        "estimator": {"type": "MEB", "ridge": 1.0, "guard": "auto", "correct_from": 1, "context": None, "stabilizer": None},
        "rule": {"type": "Greedy"},
        "floor": 0.3,
        "warmup": 0,
        "refit": 1,
        "intercept": False,
        "discount": 1.0,
        "name": "MEB",
    }


def test_what_the_caller_does_to_its_arrays_later_changes_nothing() -> None:
    learner = mb.Learner(mb.meb(2, 2), seed=1)
    x, s, mask = np.array([1.0, 2.0]), 0.1 * np.eye(2), np.array([True, True])
    decision = learner.decide(x, s, allowed=mask)
    twin = mb.Learner(mb.meb(2, 2), seed=1)
    twin.learn(twin.decide(x.copy(), s.copy(), allowed=mask.copy()), 1.0)
    x[:], s[:], mask[:] = 99.0, 99.0, [True, False]
    with pytest.raises(ValueError, match="read-only"):
        decision.propensities[0] = 1.0
    learner.learn(decision, 1.0)
    assert states.same(learner.state, twin.state)


def test_a_learner_plays_one_policy_with_one_seed() -> None:
    learner = mb.Learner(mb.meb(2, 1), seed=1)
    for name, value in (("policy", mb.meb(2, 1, floor=0.5)), ("seed", 2)):
        with pytest.raises(AttributeError, match=f"property '{name}'"):
            setattr(learner, name, value)


def test_a_warm_up_may_last_longer_than_any_trial() -> None:
    learner = mb.Learner(mb.meb(2, 1, warmup=10**30, correct_from=10**30, floor=0.1), seed=1)
    for _ in range(20):
        decision = learner.decide([1.0], 0.1)
        assert decision.propensity == 0.5
        learner.learn(decision, 1.0)
