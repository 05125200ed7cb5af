"""A log as a value: what it accepts, what it finds, what it refuses, and that every analysis takes it."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import mebandit as mb
from mebandit.logs.log import LogColumns
from tests.analysis.test_fit import ERROR, FEATURES, make_log


def test_a_log_and_its_keywords_give_the_same_results(tmp_path: Path) -> None:
    table = make_log().rename(columns={"propensity": "p"})
    table.to_csv(tmp_path / "log.csv", index=False)
    columns: Any = {"predicted": FEATURES, "propensity": "p", "error_cov": ERROR}
    log = mb.Log(tmp_path / "log.csv", **columns)
    assert mb.fit(log).to_json() == mb.fit(tmp_path / "log.csv", **columns).to_json() == mb.fit(table, **columns).to_json()
    assert mb.value(log, 1).to_plain() == mb.value(table, 1, **columns).to_plain()
    assert mb.learn_then_value(log).to_plain() == mb.learn_then_value(table, **columns).to_plain()
    assert mb.export(log, tmp_path / "log.npz", to="obp") == len(table)
    assert mb.plan(log, half_width=0.2).rounds == mb.plan(mb.fit(log), half_width=0.2).rounds


def test_keywords_replace_what_a_log_says() -> None:
    table = make_log()
    log = mb.Log(table, predicted=FEATURES, error_cov=0.0)
    changed = mb.fit(log, error_cov=ERROR, methods="meb")
    np.testing.assert_array_equal(changed.best.theta, mb.fit(table, predicted=FEATURES, error_cov=ERROR, methods="meb").best.theta)
    assert log.error_cov == 0.0


def test_a_log_is_frozen_and_prints_what_was_given() -> None:
    log = mb.Log(make_log(), predicted="one, stress", unit="user", error_cov=0.1)
    assert repr(log) == "Log(<table of 600 rows>, predicted='one, stress', unit='user', error_cov=0.1)"
    assert log.columns.predicted == ("one", "stress")
    with pytest.raises(FrozenInstanceError):
        log.unit = None  # type: ignore[misc]


def test_a_log_is_checked_when_it_is_made() -> None:
    table = make_log()
    with pytest.raises(mb.LogError, match=r"must have a column 'strss'; got none of that name\. Is it 'stress'\?"):
        mb.Log(table, predicted=["one", "strss"])
    with pytest.raises(mb.InvalidInput, match="error_cov must be positive semidefinite"):
        mb.Log(table, predicted=FEATURES, error_cov=-1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'features'"):
        mb.fit(table, features=FEATURES)  # type: ignore[call-arg]


def test_keywords_are_those_of_the_log() -> None:
    import inspect

    assert list(LogColumns.__annotations__) == list(inspect.signature(mb.Log).parameters)[1:]


def test_rounds_of_a_journal_and_of_a_simulation_are_logs_as_they_are(tmp_path: Path) -> None:
    world, policy = mb.environments.Gaussian(error_cov=0.5), mb.meb(2, 5, floor=0.2)
    rounds = mb.simulate_log(world, policy, horizon=300, seed=1)
    rounds.to_parquet(tmp_path / "log.parquet")
    learner = mb.Learner(policy, seed=2, journal=tmp_path / "trial.jsonl")
    for x, s, r in zip(rounds.predicted[:50], rounds.error_cov, rounds.rewards, strict=False):
        learner.learn(learner.decide(x, s), r)
    learner.close()
    read = mb.read_journal(tmp_path / "trial.jsonl")
    assert type(read) is type(rounds) is mb.History
    assert mb.fit(rounds).to_json() == mb.fit(tmp_path / "log.parquet").to_json()
    assert mb.fit(read).to_json() == mb.fit(tmp_path / "trial.jsonl").to_json()
    assert pq.read_table(tmp_path / "log.parquet").equals(rounds.to_arrow())
    assert mb.Log(rounds).columns.predicted == tuple(f"predicted_{i}" for i in range(5))


NOT_ROUNDS: dict[str, Any] = {
    "decision": [0.5] * 9,
    "predicted": None,
    "error_cov": np.eye(5),
    "allowed": np.ones((9, 3)),
    "actions": np.full(9, 2),
    "propensities": np.ones(9),
    "rewards": {"a": 1},
}


@pytest.mark.parametrize("field", NOT_ROUNDS)
def test_rounds_whose_arrays_do_not_fit_together_are_refused(field: str, tmp_path: Path) -> None:
    rounds = mb.simulate_log(mb.environments.Gaussian(), mb.meb(2, 5), horizon=9, seed=1)._replace(**{field: NOT_ROUNDS[field]})
    for use in (lambda: mb.fit(rounds), lambda: mb.Log(rounds), lambda: rounds.to_parquet(tmp_path / "rounds.parquet")):
        with pytest.raises(mb.InvalidInput, match=rf"^{field} must .+; got"):
            use()
    assert not any(tmp_path.iterdir())


def test_a_frame_may_have_the_names_of_a_journal() -> None:
    frame = pd.DataFrame({"predicted_0": [1.0, 2.0], "action": [0, 1], "reward": [0.0, 1.0], "propensity_0": [0.5, 0.5]})
    frame["propensity_1"] = 0.5
    log = mb.Log(frame)
    assert log.columns.propensity == ("propensity_0", "propensity_1")
    assert log.error is None
    with pytest.raises(mb.InvalidInput, match="the error covariance must be known"):
        mb.fit(log)
