"""A log in the layouts of other packages: the columns, keys and numbers that they read."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import mebandit as mb
from mebandit.analysis import export
from tests.analysis.test_value import Log, adaptive_log, chance, value


def trial(n: int = 200) -> Log:
    """A log of people who take turns; person 3 could not be sent anything."""
    log = adaptive_log(n, seed=18)
    who = np.arange(n) % 4
    sent = np.where(log["action"] == 1, log["propensity"], 1 - log["propensity"])
    log["action"] = np.where(who == 3, 0, log["action"])
    sent = np.where(who == 3, 0.0, sent)
    return {
        "x": log["x"],
        "action": log["action"],
        "reward": log["reward"],
        "p": np.column_stack([1 - sent, sent]),
        "who": np.array(["ann", "bob", "cyd", "dan"])[who],
    }


def test_obp_feedback_has_its_keys_and_shapes(tmp_path: Path) -> None:
    log = trial()
    rows = mb.export(log, tmp_path / "log.npz", to="obp", predicted=["x_0", "x_1"], propensity=["p_0", "p_1"])
    with np.load(tmp_path / "log.npz", allow_pickle=False) as file:
        feedback = {name: value if value.ndim else value.item() for name, value in file.items()}
    assert rows == feedback["n_rounds"] == 200
    assert set(feedback) == {"n_rounds", "n_actions", "context", "action_context", "action", "position", "reward", "pscore"}
    np.testing.assert_array_equal(feedback["context"], log["x"])
    np.testing.assert_array_equal(feedback["action"], log["action"])
    np.testing.assert_array_equal(feedback["reward"], log["reward"])
    np.testing.assert_array_equal(feedback["pscore"], log["p"][np.arange(200), log["action"]])
    assert np.issubdtype(feedback["action"].dtype, np.integer)
    assert feedback["action_context"].shape == (2, 2)
    assert feedback["position"].tolist() == [0] * 200
    # the weighted value by the formula of obp's InverseProbabilityWeighting, from what it would read
    pi = chance(feedback["context"])
    weighted = (pi[np.arange(200), feedback["action"]] / feedback["pscore"] * feedback["reward"]).mean()
    found = value(log, chance, propensity=["p_0", "p_1"])
    assert found.estimates["ips"].value == pytest.approx(weighted, rel=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trial_has_a_row_for_each_decision(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several blocks, with units whose decisions are counted across them."""
    log, path = trial(), tmp_path / f"trial.{ending}"
    monkeypatch.setattr("mebandit.logs.pieces.ROWS", 64)
    mb.export(log, path, to="mrt", predicted=["x_0", "x_1"], propensity=["p_0", "p_1"], unit="who")
    frame = pd.read_csv(path) if ending == "csv" else pq.read_table(path).to_pandas()
    assert list(frame.columns) == ["id", "decision_point", "availability", "action", "rand_prob", "outcome", "x_0", "x_1"]
    assert frame["id"].tolist() == log["who"].tolist()
    assert frame["decision_point"].tolist() == (1 + np.arange(200) // 4).tolist()
    assert frame["availability"].tolist() == (log["who"] != "dan").astype(int).tolist()
    np.testing.assert_array_equal(frame["action"], log["action"])
    np.testing.assert_allclose(frame["rand_prob"], log["p"][:, 1], rtol=1e-15)
    np.testing.assert_allclose(frame["outcome"], log["reward"], rtol=1e-15)
    assert not list(tmp_path.glob("*.part"))


def test_a_trial_with_one_propensity_column_and_no_unit(tmp_path: Path) -> None:
    log = adaptive_log(40, seed=19)
    mb.export(log, tmp_path / "t.csv", to="mrt", predicted=["x_0", "x_1"])
    frame = pd.read_csv(tmp_path / "t.csv")
    np.testing.assert_allclose(frame["rand_prob"], np.where(log["action"] == 1, log["propensity"], 1 - log["propensity"]), rtol=1e-12)
    assert frame["decision_point"].tolist() == list(range(1, 41))
    assert set(frame["id"]) == {1}


def test_a_refused_export_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    log = adaptive_log(30, seed=20)
    bad = log | {"reward": np.where(np.arange(30) == 4, np.nan, log["reward"])}
    x = {"predicted": ["x_0", "x_1"]}
    for given, name, settings, sentence in (
        (log, "a.csv", {"to": "json"} | x, "to must be one of 'obp', 'mrt'; got 'json'."),
        (log, "a.csv", {"to": "obp"} | x, "path must end in .npz for the layout 'obp'"),
        (log, "a.csv", {"to": "mrt", "n_actions": 3} | x, "n_actions must be 2 for the layout 'mrt'; got 3."),
        (log | {"id": log["reward"]}, "a.csv", {"to": "mrt", "predicted": "id"}, "predicted must have names other than id"),
        (bad, "a.csv", {"to": "mrt"} | x, "the table row 5 column 'reward' must be a finite number"),
        (log, "no/a.npz", {"to": "obp"} | x, "the file to write must be in a folder that can be written to"),
        (log, "no/a.parquet", {"to": "mrt"} | x, "the file to write must be in a folder that can be written to"),
    ):
        with pytest.raises(mb.MebanditError, match=re.escape(sentence)):
            mb.export(given, tmp_path / name, **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("to", "ending"), [("mrt", "csv"), ("mrt", "parquet"), ("obp", "npz")])
def test_an_export_takes_the_place_of_an_earlier_one_and_of_nothing_else(to: str, ending: str, tmp_path: Path) -> None:
    log, path = adaptive_log(30, seed=20), tmp_path / f"log.{ending}"
    assert mb.export(log, path, to=to, predicted=["x_0", "x_1"]) == 30
    assert mb.export(adaptive_log(40, seed=21), path, to=to, predicted=["x_0", "x_1"]) == 40
    frame = pd.DataFrame({name: value for name, value in log.items() if value.ndim == 1})
    write: dict[str, Any] = {"csv": frame.to_csv, "parquet": frame.to_parquet, "npz": lambda path: np.savez(path, **log)}
    write[ending](path)
    for before in (path.read_bytes(), b"neither"):
        path.write_bytes(before)
        with pytest.raises(mb.LogError, match=r"the file to write must be new, or an earlier one of its kind; got .*, which holds"):
            mb.export(log, path, to=to, predicted=["x_0", "x_1"])
        assert path.read_bytes() == before


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_export_that_breaks_off_leaves_no_file(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = iter([export._mrt_table])

    def breaks(*given: Any) -> Any:
        make = next(tables, None)
        if make is None:
            raise OSError(28, "No space left on device")
        return make(*given)

    monkeypatch.setattr("mebandit.logs.pieces.ROWS", 64)
    monkeypatch.setattr(export, "_mrt_table", breaks)
    with pytest.raises(mb.LogError, match="No space left on device"):
        mb.export(adaptive_log(200, seed=22), tmp_path / f"t.{ending}", to="mrt", predicted=["x_0", "x_1"])
    assert list(tmp_path.iterdir()) == []
