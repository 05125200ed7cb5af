"""The store: what a replay finds, what the log is good for, groups of writes, and databases that cannot be used."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, insert, select

import mebandit as mb
from mebandit import checks
from mebandit.service.messages import Request
from mebandit.service.replay import check, replay
from mebandit.service.service import Service
from mebandit.service.store import experiments
from mebandit.service.store.database import Database
from mebandit.service.store.schema import incident, state
from tests.service.trials import EFFECT, exported, run, trial


def covers(interval: Any) -> Any:
    """Which intervals, (K, d, 2), have the effect in them."""
    return (interval[..., 0] <= EFFECT) & (interval[..., 1] >= EFFECT)


def test_the_estimator_covers_on_the_log_of_a_trial_that_ran_through_the_service(tmp_path: Path) -> None:
    """8 trials with 4 coefficients, whose intervals at 99.9 % all cover: chance alone breaks that with a probability below 0.05, and the
    seeds are fixed. Least squares on the same log is attenuated, and its intervals do not."""
    covered, attenuated = [], []
    for seed in range(8):
        store = str(tmp_path / f"{seed}.db")
        run(store, 200, seed)
        found = mb.fit(exported(store), available="available", missing_outcomes="leave-out", methods=("ridge", "dr"))
        covered.append(covers(found.estimates["dr"].interval(0.999)))
        attenuated.append(covers(found.estimates["ridge"].interval(0.95)))
    assert np.all(covered)
    assert np.mean(attenuated) < 0.9


TAMPERED: list[tuple[str, str]] = [
    ("UPDATE decision SET propensities = '[0.4, 0.6]' WHERE name = 'd3'", "decision 'd3' must have propensities"),
    ("UPDATE decision SET action = 1 - action WHERE name = 'd4'", "decision 'd4' must have action"),
    ("UPDATE decision SET uniform = uniform / 2 WHERE name = 'd4'", "decision 'd4' must have uniform"),
    ("UPDATE decision SET predicted = '[1.0, 0.5]' WHERE name = 'd5'", "decision 'd5' must have predicted"),
    ("UPDATE outcome SET value = value + 1e-12 WHERE decision = (SELECT decision FROM learned WHERE seq = 1)", "version 1 must have the"),
    ("UPDATE learned SET seq = seq + 1000 WHERE seq = 2", "version 1 must know"),
    ("DELETE FROM policy_version WHERE number = 2", "version 2 must be there"),
    ("UPDATE state SET body = replace(body, '1', '2') WHERE version = 0", "version 0 must be stored as it is computed"),
    ("UPDATE configuration SET body = replace(body, '0.1', '0.2')", "configuration 1 must have the hash"),
    ("UPDATE experiment SET secret = 'ff'", "must have the secret that was published"),
    ("UPDATE audit SET detail = '{}' WHERE id = 2", "audit row 2 must continue the chain"),
    ("DELETE FROM audit WHERE id = 1", "audit row 2 must continue the chain"),
]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "trial.db"
    trial(str(path), 60, 1)
    return path


@pytest.mark.parametrize(("statement", "words"), TAMPERED)
def test_a_replay_names_what_was_changed(tried: Path, tmp_path: Path, statement: str, words: str) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(tried) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute(statement)
    database = Database(str(copy))
    found = replay(database)
    database.close()
    assert words in found.difference


def test_a_store_that_is_whole_is_proved_and_lost_caches_are_computed_again(tried: Path) -> None:
    database = Database(str(tried))
    assert check(database) == []
    first = replay(database)
    assert (first.difference, first.decisions) == ("", 60)
    before = Service(database).found("walk").version.fingerprint
    with sqlite3.connect(tried) as connection:
        connection.execute("DELETE FROM state")
    assert Service(database).found("walk").version.fingerprint == before
    assert replay(database) == first
    database.close()


def test_a_state_that_cannot_be_read_lets_the_fallback_decide(tried: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(tried) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("UPDATE outcome SET value = value + 1")
        target.execute("DELETE FROM state")
    database = Database(str(copy))
    live = Service(database).found("walk")
    row = live.prepared(Request(decision="new", context={"stress": 0.5})).row
    assert row["mode"] == "fallback"
    assert row["reason"].startswith("Version ")
    database.close()


def test_writes_of_many_threads_are_grouped_and_one_that_fails_fails_alone(store: str) -> None:
    database = Database(store)

    def write(i: int) -> Callable[[Connection], int]:
        def work(connection: Connection) -> int:
            connection.execute(insert(incident).values(experiment="x", kind="k", subject=str(i), at="", said=""))
            if i % 7 == 0:
                checks.refuse("i", "not be a multiple of 7", i)
            return i

        return work

    results: dict[int, object] = {}

    def run(i: int) -> None:
        try:
            results[i] = database.run(write(i))
        except checks.InvalidInput as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(70)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        stored = sorted(int(subject) for subject in connection.execute(select(incident.c.subject)).scalars())
    database.close()
    assert stored == [i for i in range(70) if i % 7]
    assert all(results[i] == i if i % 7 else isinstance(results[i], checks.InvalidInput) for i in range(70))


def test_old_states_are_dropped_but_for_each_thousandth_round(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "KEPT_EVERY", 20)
    trial(store, 100, 2)
    database = Database(store)
    with database.read() as connection:
        kept = list(connection.execute(select(state.c.version).order_by(state.c.version)).scalars())
        last = max(row["number"] for row in experiments.versions_of(connection, "walk"))
    assert kept[0] == 0
    assert kept[-3:] == [last - 2, last - 1, last]
    assert len(kept) < last
    assert replay(database).difference == ""
    database.close()


def test_databases_that_cannot_be_used(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database " * 100)
    newer = tmp_path / "newer.db"
    Database(str(newer)).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE schema SET number = 99")
    for address, words in (
        (str(text), "file is not a database"),
        (str(tmp_path / "none" / "x.db"), "unable to open"),
        (str(newer), "got schema 99"),
        ("postgresql://user:secret@127.0.0.1:1/x", "postgresql://...@127.0.0.1:1/x"),
    ):
        with pytest.raises(mb.LogError, match="store must") as found:
            Database(address)
        assert words in str(found.value)
        assert "secret" not in str(found.value)
