"""The paper's tables, computed again: the layout that others rely on, identical files, and the published numbers."""

from math import sqrt
from pathlib import Path

import pandas as pd
import pytest

import mebandit as mb
from mebandit.experiments.paper import published, table1
from mebandit.experiments.paper.catalogue import Options, run_experiments
from mebandit.experiments.runner import run_cells


def test_table1b_is_a_tidy_csv_that_workers_do_not_change(tmp_path: Path) -> None:
    options = Options(replicates=3, seed=5)
    run_experiments(["table1b"], tmp_path / "one", options, workers=1)
    run_experiments(["table1b"], tmp_path / "two", options, workers=2)
    one = (tmp_path / "one" / "table1b.csv").read_bytes()
    assert one == (tmp_path / "two" / "table1b.csv").read_bytes()
    table = pd.read_csv(tmp_path / "one" / "table1b.csv")
    assert {"protocol", "sigma_eta", "sigma_e2", "policy", "mean", "std_error", "published", "replicates", "horizon"} <= set(table.columns)
    assert set(table["protocol"]) == {"published", "as_written"}
    assert set(table["policy"]) >= set(published.POLICIES)
    assert set(table["horizon"]) == {5000, 2500}
    for name in ("table1b.png", "table1b.svg", "report.html"):
        assert (tmp_path / "one" / name).stat().st_size > 1000
    stamp = (tmp_path / "one" / "table1b.csv").stat().st_mtime_ns
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "one" / "cells").iterdir()}
    run_experiments(["table1b"], tmp_path / "one", options)
    assert (tmp_path / "one" / "table1b.csv").read_bytes() == one
    assert (tmp_path / "one" / "table1b.csv").stat().st_mtime_ns != stamp
    assert {path: path.stat().st_mtime_ns for path in cells} == cells, "finished cells are read, not computed again"


def test_table1a_reproduces_the_published_numbers(tmp_path: Path) -> None:
    """Ten replicates of the published protocol at σ_η = 0.1: MEB and MEB-naive, and everybody at σ_ε² = 0.1.

    The paper's numbers are means of 100 runs, so their own standard error is taken as ours over sqrt(10).
    """
    cells = [cell for cell in table1.cells_1a("published", replicates=10, seed=1) if cell.labels["sigma_eta"] == 0.1]
    table = table1.table_1a(run_cells(cells, tmp_path))
    for row in table.to_dict("records"):
        if row["policy"] in ("MEB", "MEB-naive") or (row["sigma_e2"] == 0.1 and row["policy"] in ("TS", "UCB")):
            combined = row["std_error"] * sqrt(1 + 1 / 10)
            assert abs(row["mean"] - row["published"]) < max(4.5 * combined, 0.15 * row["published"]), row


def test_the_published_table_has_nine_cells_of_five_policies() -> None:
    for cells in (published.TABLE_1A, published.TABLE_1B):
        assert len(cells) == 9
        assert {len(row) for row in cells.values()} == {5}


def test_wrong_options_are_refused_before_any_computing(tmp_path: Path) -> None:
    with pytest.raises(mb.InvalidInput, match="protocol must be one of 'published', 'as_written', 'both'; got 'printed'"):
        Options(protocol="printed")
    with pytest.raises(mb.InvalidInput, match="replicates must be a whole number of at least 2; got 1"):
        Options(replicates=1)
    with pytest.raises(mb.InvalidInput, match="experiment must be one of"):
        run_experiments(["table9"], tmp_path, Options())
    (tmp_path / "taken").write_text("")
    with pytest.raises(mb.LogError, match="the output folder must be writable"):
        run_experiments(["table1a"], tmp_path / "taken", Options())
