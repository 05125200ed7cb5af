"""Who, when, and fields of the caller's own: in the journal, and as columns of its table."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mebandit as mb


def journal_of(path: Path, rounds: int = 60) -> mb.Learner:
    """A learner that has written some rounds of six participants."""
    rng = np.random.default_rng(4)
    learner = mb.Learner(mb.meb(2, 1, floor=0.2), seed=3, journal=path)
    for t in range(rounds):
        note: Any = {"ward": 3, "nurse": "Ada", "night": t % 2 == 0} if t % 3 else None
        unit, at = f"P{t % 6}", datetime(2024, 3, 1 + t // 6, 8)
        decision = learner.decide(rng.normal(size=1), 0.1, unit=unit, at=at, note=note)
        learner.learn(decision, float(rng.normal()))
    return learner


def test_they_come_out_as_columns(tmp_path: Path) -> None:
    learner = journal_of(tmp_path / "trial.jsonl")
    learner.close()
    table = mb.read_journal(tmp_path / "trial.jsonl").to_arrow().to_pandas()
    assert table["unit"].tolist() == [f"P{t % 6}" for t in range(60)]
    assert table["time"].iloc[59] == "2024-03-10T08:00:00"
    assert table["nurse"].isna().tolist() == [t % 3 == 0 for t in range(60)]
    assert table["night"].iloc[[1, 2]].tolist() == [False, True]
    assert table["ward"].max() == 3
    found = mb.fit(tmp_path / "trial.jsonl", unit="unit", time="time", methods="meb")
    assert found.units == 6
    with pytest.raises(mb.LogError, match="must have a column 'user'"):
        mb.fit(tmp_path / "trial.jsonl", unit="user")


def test_they_change_nothing_for_the_learner(tmp_path: Path) -> None:
    learner = journal_of(tmp_path / "trial.jsonl")
    learner.close()
    assert mb.check_journal(tmp_path / "trial.jsonl").fault == ""
    recovered = mb.Learner.recover(tmp_path / "trial.jsonl")
    np.testing.assert_array_equal(recovered.theta, learner.theta)
    recovered.decide([0.1], 0.1, unit=7)
    recovered.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"unit": 1.5}, "unit must be a text or a whole number that names the participant; got 1.5."),
        ({"unit": ""}, "unit must be a text or a whole number that names the participant; got ''."),
        ({"at": [1]}, "at must be a date, a time, a text or a number; got [1]."),
        ({"at": float("nan")}, "at must be a date, a time, a text or a number; got nan."),
        ({"note": "ward 3"}, "note must be fields by name, such as {'ward': 3}; got 'ward 3'."),
        ({"note": {"reward": 1.0}}, "the fields of note must have names other than those of the journal's columns"),
        ({"note": {"predicted_0": 1.0}}, "the fields of note must have names other than those of the journal's columns"),
        ({"note": {"ward": [3]}}, "note['ward'] must be a text, a number, True, False or None; got [3]."),
        ({"note": {"text": "x" * 20_000}}, "unit, at and note must have at most 10,000 characters together"),
        ({"unit": 2**63}, "unit must be a whole number from -9223372036854775807 to 9223372036854775807; got 9223372036854775808."),
        ({"note": {"n": 10**30}}, "note['n'] must be a whole number from -9223372036854775807 to 9223372036854775807; got 1000000"),
        ({"unit": "\ud800"}, "unit, at and note must be texts of whole characters; got"),
        ({"at": "\udcff"}, "unit, at and note must be texts of whole characters; got"),
        ({"note": {"\ud800": 1}}, "unit, at and note must be texts of whole characters; got"),
        ({"at": pd.NaT}, "at must be a date, a time, a text or a number; got NaT."),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(given: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    learner = mb.Learner(mb.meb(2, 1, floor=0.2), journal=tmp_path / "trial.jsonl")
    before = (tmp_path / "trial.jsonl").read_bytes()
    with pytest.raises(mb.InvalidInput) as refusal:
        learner.decide([0.1], 0.1, **given)
    assert sentence in str(refusal.value)
    assert (tmp_path / "trial.jsonl").read_bytes() == before
    assert learner.decided == 0


def test_without_a_journal_they_would_be_lost() -> None:
    with pytest.raises(mb.InvalidInput, match="unit, at and note must go with a journal, which keeps them; got a learner without one"):
        mb.Learner(mb.meb(2, 1, floor=0.2)).decide([0.1], 0.1, unit="P1")


def test_numbers_of_several_types_make_one_column(tmp_path: Path) -> None:
    """Whole numbers that no float holds beside fractions, which Arrow refuses to put together."""
    path = tmp_path / "trial.jsonl"
    with mb.Learner(mb.meb(2, 1, floor=0.2), journal=path) as learner:
        for dose in (2**60 + 1, 0.5, True, None):
            learner.learn(learner.decide([0.1], 0.1, note={"dose": dose, "size": 2**60 + 1 if dose == 0.5 else 0.5}), 1.0)
    table = mb.read_journal(path).to_arrow()
    assert table["dose"].to_pylist() == [str(2**60 + 1), "0.5", "True", None]
    assert table["size"].to_pylist() == [0.5, 2.0**60, 0.5, 0.5]


@pytest.mark.parametrize("wrong", [{"note": [1]}, {"note": {"reward": 1}}, {"unit": {}}, {"at": [1]}])
def test_what_no_learner_has_said_is_refused_in_a_journal(wrong: dict[str, Any], tmp_path: Path) -> None:
    """A journal without checksums, as version 0.1.0 wrote them, may hold anything."""
    path = tmp_path / "trial.jsonl"
    with mb.Learner(mb.meb(2, 1, floor=0.2), journal=path) as learner:
        learner.learn(learner.decide([0.1], 0.1), 1.0)
    first, decided, learned = ({k: v for k, v in json.loads(line).items() if k != "crc"} for line in path.read_text().splitlines())
    path.write_text("".join(json.dumps(line) + "\n" for line in (first | {"version": 1}, decided | wrong, learned)))
    with pytest.raises(mb.LogError, match="line 2 must be a whole event"):
        mb.read_journal(path)


@pytest.mark.parametrize(
    "about", [None, 3, [1], {3: [1.0]}, {"a": [1]}, {"a": 1}, {"a": np.ones((2, 2))}, {"a": [10**30, 1]}, {"a": [1, "x"]}]
)
def test_columns_that_rounds_cannot_have_are_refused(about: Any) -> None:
    rounds = mb.simulate_log(mb.environments.Gaussian(), mb.meb(2, 5, floor=0.2), horizon=2, seed=1)._replace(about=about)
    with pytest.raises(mb.InvalidInput, match=r"^about.* must .+; got"):
        rounds.to_arrow()
