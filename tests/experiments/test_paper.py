"""The paper's tables, computed again: the layout that others rely on, identical files, and the published numbers."""

import re
import subprocess
import sys
from math import sqrt
from pathlib import Path

import pandas as pd
import pytest

import mebandit as mb
from mebandit.experiments.paper import published, rates, table1, updates
from mebandit.experiments.paper.catalogue import EXPERIMENTS, run_experiments
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import run_cells


def test_table1b_is_a_tidy_csv_that_workers_do_not_change(tmp_path: Path) -> None:
    options = PaperOptions(replicates=3, seed=5)
    run_experiments(["table1b"], tmp_path / "one", options, workers=1)
    run_experiments(["table1b"], tmp_path / "two", options, workers=2)
    one = (tmp_path / "one" / "table1b.csv").read_bytes()
    assert one == (tmp_path / "two" / "table1b.csv").read_bytes()
    table = pd.read_csv(tmp_path / "one" / "table1b.csv")
    assert {"protocol", "sigma_eta", "sigma_e2", "policy", "mean", "std_error", "published", "replicates", "horizon"} <= set(table.columns)
    assert set(table["protocol"]) == {"published", "as_written"}
    assert set(table["policy"]) >= set(published.POLICIES)
    assert set(table["horizon"]) == {5000, 2500}
    for name in ("table1b_published_description.png", "table1b_published_description.svg", "report.html"):
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


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mebandit paper all` with two replicates, through the command line."""
    folder = tmp_path_factory.mktemp("paper")
    command = [sys.executable, "-m", "mebandit", "paper", "all", "--replicates", "2", "--out", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(folder / "out" / "report.html") in done.stdout.replace("\n", "")
    return folder / "out"


def test_paper_all_writes_every_table_and_figure_and_one_page(everything: Path) -> None:
    for name in EXPERIMENTS:
        assert len(pd.read_csv(everything / f"{name}.csv")) > 5
    pictures = {path.stem for path in everything.glob("*.png")}
    assert pictures == {path.stem for path in everything.glob("*.svg")}
    page = (everything / "report.html").read_text()
    assert page.count("<svg") == len(pictures) == page.count("<h2>") + 1, "one for each section, and two of the worlds"
    assert "million policy rounds" in page
    assert "mebandit paper all --protocol both --replicates 2 --seed 1" in page
    outside = page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace("http://creativecommons.org", "")
    assert "http://" not in outside
    assert "https://" not in outside
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL).lower().replace("finance", "")
    assert not list(everything.rglob("*.part"))


def test_one_worker_gives_the_same_tables_as_two(everything: Path, tmp_path: Path) -> None:
    long = ("table1a", "figures", "rates", "ours", "worlds")  # the same code, more rounds
    names = [name for name in EXPERIMENTS if name not in long]
    run_experiments(names, tmp_path, PaperOptions(replicates=2), workers=1)
    for name in names:
        assert (tmp_path / f"{name}.csv").read_bytes() == (everything / f"{name}.csv").read_bytes()


def test_the_examples_end_where_theory_says(everything: Path, tmp_path: Path) -> None:
    table = run_experiments(["examples"], tmp_path, PaperOptions(replicates=60))["examples"].table
    b2 = table[table["example"] == "B.2"]
    assert b2[b2["policy"] == "textbook correction"]["expected"].tolist() == pytest.approx([-1.0, -7 / 6, -29 / 19])
    known = table[(table["example"] != "B.1") & table["expected"].notna()]
    assert ((known["mean"] - known["expected"]).abs() < 4.5 * known["std_error"] + 1e-3).all()
    b1 = table[(table["example"] == "B.1") & (table["quantity"] == "error")].set_index("policy")["mean"]
    assert b1["UCB"] == pytest.approx(0.43722, abs=0.01)
    assert b1["MEB"] < 0.2


def test_regret_grows_at_the_rate_of_the_theory(everything: Path) -> None:
    table = pd.read_csv(everything / "rates.csv")
    found = {key: rates.slope(own)[0] for key, own in table.groupby(["setting", "policy"])}
    assert found["standard", "MEB"] == pytest.approx(2 / 3, abs=0.04)
    assert found["clipped", "MEB"] == pytest.approx(1 / 2, abs=0.04)
    assert found["clipped", rates.EARLY] < 0.5
    assert found["clipped", "UCB"] == pytest.approx(1.0, abs=0.04)
    assert (table["mean"] < table["bound"]).all()


def test_the_docs_show_what_the_code_computes(tmp_path: Path) -> None:
    """One experiment at its default settings: each number of the page of the docs is within half a standard error of ours."""
    (section,) = run_experiments(["updates"], tmp_path, PaperOptions())["updates"].sections
    docs = (Path(__file__).parents[2] / "docs" / "background" / "reproduction.md").read_text(encoding="utf-8")
    part = docs.split(f"## {section.title}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")][2:]
    assert [row[0] for row in rows] == [row[0] for row in section.table.rows]
    for mine, shown in zip(section.table.rows, rows, strict=True):
        (mean, se), (documented, _) = (map(float, text.split(" ± ")) for text in (mine[2], shown[2]))
        assert documented == pytest.approx(mean, abs=0.5 * se)


def test_wrong_options_are_refused_before_any_computing(tmp_path: Path) -> None:
    with pytest.raises(mb.InvalidInput, match="protocol must be one of 'published', 'as_written', 'both'; got 'printed'"):
        PaperOptions(protocol="printed")
    with pytest.raises(mb.InvalidInput, match="replicates must be a whole number from 2 to 4294967295; got 1"):
        PaperOptions(replicates=1)
    with pytest.raises(mb.InvalidInput, match="experiment must be one of"):
        run_experiments(["table9"], tmp_path, PaperOptions())
    (tmp_path / "taken").write_text("")
    with pytest.raises(mb.LogError, match="the output folder must be writable"):
        run_experiments(["table1a"], tmp_path / "taken", PaperOptions())
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]
    with pytest.raises(mb.LogError, match="must have rows with the columns"):
        run_experiments(["table1b"], tmp_path / "out", PaperOptions(heartsteps_csv=tmp_path / "taken"))
    assert not (tmp_path / "out").exists()


def test_a_damaged_cell_is_computed_again(tmp_path: Path) -> None:
    cells = updates.cells(PaperOptions(replicates=2))
    whole = run_cells(cells, tmp_path).replicates
    (damaged,) = (tmp_path / "cells").glob("*.replicates.csv")
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.warns(UserWarning, match=r"replicates\.csv, which has changed since\. They have to be computed again"):
        again = run_cells(cells, tmp_path)
    pd.testing.assert_frame_equal(again.replicates, whole)
