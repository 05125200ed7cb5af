"""Confidence sequences over a log: each look is the analysis of the rounds up to it, in the order of time or of rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.cli.terminal import commands

COLUMNS: dict[str, Any] = {"predicted": "x", "error_cov": 0.25, "intercept": True}


def grown(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x = rng.normal(1, 1, n)
    action = rng.integers(0, 2, n)
    reward = np.where(action == 1, 1 + x, x) + rng.normal(0, 0.5, n)
    when = np.sort(rng.random(n))
    return pd.DataFrame({"x": x + rng.normal(0, 0.5, n), "action": action, "reward": reward, "propensity": 0.5, "when": when})


def test_each_look_is_the_analysis_of_the_rounds_up_to_it(tmp_path: Path) -> None:
    log = grown()
    log.to_parquet(tmp_path / "log.parquet", row_group_size=90)
    found = mb.confidence_sequence(tmp_path / "log.parquet", looks=8, **COLUMNS)
    assert [look.rounds for look in found.looks] == list(range(50, 401, 50))
    for look in (found.looks[1], found.looks[-1]):
        whole = mb.fit(log.iloc[: look.rounds], methods="dr", **COLUMNS)
        (_, average), (_, slope) = look.effects
        assert (average.value, average.std_error, average.df) == pytest.approx(whole.average_effect()[1:4], rel=1e-9)
        contrast = whole.best.contrast(1, 0)
        np.testing.assert_allclose(slope.interval(anytime=True), contrast.interval(anytime=True)[0], rtol=1e-9)
    table = found.table()
    assert ((table["low"] < table["once_low"]) & (table["once_high"] < table["high"])).all()


def test_with_a_time_column_looks_follow_time_and_not_rows() -> None:
    log = grown()
    shuffled = log.sample(frac=1, random_state=1)
    by_time = mb.confidence_sequence(shuffled, looks=5, time="when", **COLUMNS)
    share = (log["when"] - log["when"].min()) / np.ptp(log["when"])
    assert [look.rounds for look in by_time.looks] == [int((share < i / 5).sum()) if i < 5 else 400 for i in range(1, 6)]
    n = by_time.looks[2].rounds
    expected = mb.fit(log.iloc[:n], methods="dr", **COLUMNS).average_effect()
    assert by_time.looks[2].effects[0][1].value == pytest.approx(expected.value, rel=1e-9)


def test_looks_without_an_answer_have_no_band() -> None:
    """The first look has one action only; all but the last have the guard, where the error is as large as the predictions vary."""
    log = grown(60)
    log.loc[:9, "action"] = 0
    found = mb.confidence_sequence(log, looks=6, **COLUMNS)
    assert found.looks[0].effects == ()
    hopeless = mb.confidence_sequence(log, looks=2, **COLUMNS | {"error_cov": 2.0})
    assert all(look.effects == () for look in hopeless.looks)
    assert str(hopeless).endswith("No look identifies the effects.")
    assert len(hopeless.table()) == 0
    hopeless.plot()


def test_the_command_writes_bands_over_time(tmp_path: Path) -> None:
    grown().to_csv(tmp_path / "log.csv", index=False)
    given = ["fit", str(tmp_path / "log.csv"), "--predicted", "x", "--error-cov", "0.25", "--intercept", "--anytime"]
    done = CliRunner().invoke(commands, [*given, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "50 looks in the order of rows, by dr" in done.stdout
    table, said = pd.read_csv(tmp_path / "out" / "anytime.csv"), json.loads((tmp_path / "out" / "fit.json").read_text())
    assert len(said["anytime"]["looks"]) == 50
    assert said["anytime"]["looks"][-1]["effects"][0]["low"] == pytest.approx(table[table["effect"] == "average"]["low"].iloc[-1])
    assert "Over time" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "anytime.svg").stat().st_size > 1000
