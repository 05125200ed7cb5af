"""What stays in memory from one time through a log to the next changes no result, and a file that changes meanwhile is noticed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mebandit as mb
from mebandit.logs import pieces, source
from tests.analysis.test_fit import ERROR, FEATURES, make_log

SOME = 40_000
"""bytes of room for some of the CSV files of a log of 600 rows, but not for all"""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks from a small log, several of them in each row group."""
    monkeypatch.setattr(pieces, "ROWS", 64)
    monkeypatch.setattr(pieces, "PARQUET_BYTES", 15_000)
    monkeypatch.setattr(pieces, "CSV_BYTES", 4096)


def spoilt_log() -> pd.DataFrame:
    """Rows that break a rule, in several blocks; and an action that was certain."""
    log = make_log()
    log.loc[[9, 200, 599], "reward"] = np.nan
    log.loc[[300, 301], ["propensity", "p0", "p1"]] = [[1.0, 1.0 - a, a] for a in log.loc[[300, 301], "action"]]
    return log


def stored(log: pd.DataFrame, folder: Path) -> dict[str, Path]:
    """The log in files of every kind; in the folder of CSVs the second has cells that are no numbers."""
    log.to_parquet(folder / "log.parquet", row_group_size=150)
    log.to_csv(folder / "log.csv", index=False)
    (folder / "csv").mkdir()
    log[:200].to_csv(folder / "csv" / "a.csv", index=False)
    log[200:].astype({"reward": object}).fillna({"reward": "lost"}).to_csv(folder / "csv" / "b.csv", index=False)
    (folder / "mixed").mkdir()
    log[:300].to_csv(folder / "mixed" / "a.csv", index=False)
    log[300:].to_parquet(folder / "mixed" / "b.parquet", row_group_size=70)
    return {name: folder / name for name in ("log.parquet", "log.csv", "csv", "mixed")}


ASKED: dict[str, dict[str, Any]] = {
    "one error": {"error_cov": ERROR},
    "an error for each round": {"error_columns": ["0", "variance"], "unit": "user"},
    "all propensities": {"error_cov": ERROR, "propensity": ["p0", "p1"]},
}


@pytest.mark.parametrize("asked", ASKED)
def test_results_do_not_depend_on_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Nothing, some of it or all: bit for bit the same, whatever the file and the number of threads."""

    def outcome(log: Path, room: int, workers: int) -> tuple[str, str, str]:
        monkeypatch.setattr(source, "ROOM", room)
        aside: dict[str, Any] = {"on_bad": "set-aside", "set_aside": tmp_path / "aside.csv", "workers": workers}
        found = mb.fit(log, predicted=FEATURES, **ASKED[asked], **aside)
        rules = {"learned": mb.Fitted(method="rc"), "uniform": "uniform"}
        values = mb.value(log, rules, predicted=FEATURES, **ASKED[asked], **aside)
        return found.to_json(), values.to_json(), (tmp_path / "aside.csv").read_text()

    for name, log in stored(spoilt_log(), tmp_path).items():
        found = {(room, workers): outcome(log, room, workers) for room in (0, SOME, 1 << 20) for workers in (1, 3)}
        first = found[0, 1]
        assert first[2].count("\n") == 4, name
        assert all(each == first for each in found.values()), name


def after_first_time(change: Callable[[], object]) -> Callable[[int, int], None]:
    """Something that happens when all of a log has been read once."""

    def progress(done: int, total: int) -> None:
        if done == total:
            change()

    return progress


@pytest.mark.parametrize("room", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_csv_is_read_once_and_what_has_to_be_read_again_must_be_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, room: int
) -> None:
    """The log is gone, or another, after the first of three times."""
    log, path = make_log(), tmp_path / f"log.{kind}"
    given: dict[str, Any] = {"predicted": FEATURES, **ASKED["an error for each round"]}

    def write(log: pd.DataFrame) -> None:
        log.to_csv(path, index=False) if kind == "csv" else log.to_parquet(path, row_group_size=150)

    write(log)
    expected = mb.fit(path, **given).to_json()
    monkeypatch.setattr(source, "ROOM", room)
    changes: dict[str, Callable[[], object]] = {
        "must stay as it is until": lambda: write(make_log(700)),
        "must be there until": lambda: path.unlink(missing_ok=True),
    }
    for sentence, change in changes.items():
        write(log)
        if kind == "csv" and room > 0:
            assert mb.fit(path, progress=after_first_time(change), **given).to_json() == expected
        else:
            with pytest.raises(mb.LogError, match=rf"log\.{kind} {sentence} its analysis is over; got [^\n]*\.$"):
                mb.fit(path, progress=after_first_time(change), **given)


def test_only_csv_files_that_there_is_room_for_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, files = make_log(), [tmp_path / "a.csv", tmp_path / "b.csv"]
    log[:200].to_csv(files[0], index=False)
    log[200:].to_csv(files[1], index=False)
    monkeypatch.setattr(source, "ROOM", files[0].stat().st_size + 1)
    given: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR}
    expected = mb.fit(files, **given).to_json()
    assert mb.fit(files, progress=after_first_time(lambda: files[0].unlink(missing_ok=True)), **given).to_json() == expected
    log[:200].to_csv(files[0], index=False)
    with pytest.raises(mb.LogError, match=r"b\.csv must be there until its analysis is over"):
        mb.fit(files, progress=after_first_time(lambda: files[1].unlink(missing_ok=True)), **given)
