"""Several sites: what each has learned is added up, in a stated order and no round twice."""

import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mebandit as mb
from mebandit.estimation.estimate import solved_estimate
from mebandit.estimation.moments import Moments
from mebandit.policies import LinearPolicy
from tests.command import run


def site(seed: int, policy: LinearPolicy, *, rounds: int = 60, journal: Path | None = None) -> mb.Learner:
    """A learner after some rounds, the last of which still waits for its reward."""
    rng = np.random.default_rng(seed)
    learner = mb.Learner(policy, seed=seed, journal=journal)
    go_on(learner, rounds - 1, rng)
    learner.decide(rng.normal(1, 1, policy.dim), 0.3)
    return learner


def go_on(learner: mb.Learner, rounds: int, rng: np.random.Generator) -> None:
    for _ in range(rounds):
        learner.learn(learner.decide(rng.normal(1, 1, learner.policy.dim), 0.3), rng.normal())


def merge(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("merge", *arguments, cwd=cwd)


@pytest.mark.parametrize("make", [mb.meb, mb.meb_dr, mb.lin_ucb])
def test_merged_files_hold_the_sums_in_the_order_of_the_files(make: partial[LinearPolicy], tmp_path: Path) -> None:
    a, b, c = (site(seed, make(2, 3), rounds=60 + seed) for seed in (1, 2, 3))
    for name, learner in {"a": a, "b": b, "c": c}.items():
        learner.save(tmp_path / f"{name}.json")
    done = merge("a.json", "b.json", "c.json", "--out", "pooled.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pooled = mb.Learner.load(tmp_path / "pooled.json")
    np.testing.assert_array_equal(pooled.state.sums, (a.state.sums + b.state.sums) + c.state.sums)
    np.testing.assert_array_equal(pooled.theta, a.merge(b).merge(c).theta)
    assert (pooled.seed, pooled.decided, pooled.learned, pooled.pending) == (1, 186, 183, a.pending)
    for words in ("a.json", "61", "pooled", "186", "183", str(tmp_path / "pooled.json")):
        assert words in done.stdout.replace("\n", "")
    go_on(pooled, 3, np.random.default_rng(0))


def test_the_pooled_estimate_is_that_of_the_pooled_sums() -> None:
    """Bit for bit: merging solves for θ from the added sums and from nothing else."""
    policy = mb.meb(2, 3)
    a, b = site(1, policy), site(2, policy, rounds=90)
    pooled = a.merge(b)
    np.testing.assert_array_equal(pooled.estimate().theta, b.merge(a).estimate().theta, "of two sites either order gives the same bits")
    sums = Moments(a.state.sums + b.state.sums, 2, 3)
    found = solved_estimate(sums, method="meb", ridge=policy.estimator.ridge, guard=policy.estimator.guard, intercept=False)
    np.testing.assert_array_equal(pooled.estimate().theta, found.theta)
    np.testing.assert_array_equal(pooled.theta, found.theta)


def test_no_history_is_counted_twice(tmp_path: Path) -> None:
    a, b = site(1, mb.meb(2, 3), journal=tmp_path / "a.jsonl"), site(2, mb.meb(2, 3))
    a.save(tmp_path / "a.json")
    b.save(tmp_path / "b.json")
    shutil.copy(tmp_path / "a.json", tmp_path / "copy.json")
    go_on(a, 5, np.random.default_rng(9))
    a.save(tmp_path / "a later.json")
    a.close()
    recovered = mb.Learner.recover(tmp_path / "a.jsonl")
    recovered.save(tmp_path / "a recovered.json")
    assert merge("a.json", "b.json", "--out", "both.json", cwd=tmp_path).returncode == 0
    for first, second in (
        ("a.json", "a.json"),
        ("a.json", "copy.json"),
        ("a.json", "a later.json"),
        ("a recovered.json", "a.json"),
        ("both.json", "b.json"),
    ):
        done = merge(first, second, "--out", "pooled.json", cwd=tmp_path)
        assert done.returncode == 1
        rule = "the learner to merge must know other rounds; got one that has a history in common with this one"
        assert done.stderr.strip() == f"mebandit: {second}: {rule}. Its rounds would count twice."
        assert not (tmp_path / "pooled.json").exists()
    same_seed = site(1, mb.meb(2, 3))
    assert same_seed.merge(a).learned == 59 + 64, "two sites may have the same seed, and even the same rounds"


def test_what_cannot_be_merged_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name, policy in {
        "a": mb.meb(2, 3),
        "floor": mb.meb(2, 3, floor=0.1),
        "dim": mb.meb(2, 4),
        "r": mb.robust_ucb(2, 3, horizon=99),
    }.items():
        site(1, policy, rounds=5).save(tmp_path / f"{name}.json")
    site(2, mb.robust_ucb(2, 3, horizon=99), rounds=5).save(tmp_path / "r2.json")
    (tmp_path / "broken.json").write_text((tmp_path / "a.json").read_text().replace("1", "2", 1))
    before = (tmp_path / "a.json").read_bytes()
    (tmp_path / "log.csv").write_text("action,reward\n1,2.0\n")
    for arguments, sentence in (
        (["a.json", "floor.json", "--out", "o.json"], "floor.json: the learner to merge must run the same policy; got LinearPolicy("),
        (["a.json", "dim.json", "--out", "o.json"], "dim.json: the learner to merge must run the same policy; got LinearPolicy("),
        (["r.json", "r2.json", "--out", "o.json"], "r2.json: policy must have a memory that is a sum, to be merged; got robust_ucb"),
        (["a.json", "--out", "o.json"], "STATES must be at least two files; got 1."),
        (["a.json", "broken.json", "--out", "o.json"], "state file must be"),
        (["a.json", "none.json", "--out", "o.json"], "state file must be readable; got none.json"),
        (["a.json", "dim.json", "--out", "a.json"], "the file to write must be another one than what is read; got a.json for both."),
        (["a.json", "dim.json", "--out", "log.csv"], "the file to write must be new, or an earlier one of its kind; got log.csv, which"),
        (["a.json", "dim.json", "--out", "none/o.json"], "the file to write must be in a folder that can be written to; got none/o.json."),
    ):
        done = merge(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"mebandit: {sentence}"), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "o.json").exists()
    assert (tmp_path / "a.json").read_bytes() == before
    assert (tmp_path / "log.csv").read_text() == "action,reward\n1,2.0\n"
