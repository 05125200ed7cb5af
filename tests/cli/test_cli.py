"""The command line as a person uses it: real processes, real files, a real interruption."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import mebandit as mb
from mebandit import kernels
from mebandit.experiments import spec
from mebandit.reports.page import Page
from mebandit.reports.table import Table
from mebandit.runtime import files
from tests.command import run

SPEC = """
[simulation]
horizon = 400
replicates = 4
seed = 3

[environment]
kind = "Gaussian"
noise_sd = 0.2

[grid]
error_cov = [0.1, 1.0]
error = ["normal", "uniform"]

[[policy]]
kind = "meb"

[[policy]]
kind = "meb"
name = "MEB rarely"
preset = "clipped"
refit = { type = "PowersOf", base = 2 }

[[policy]]
kind = "robust_ucb"
"""


def test_simulate_writes_tables_and_a_page_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    first = run("simulate", "spec.toml", "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "cell 4/4" in first.stderr
    assert "already done" not in first.stderr
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert summary["cell"].nunique() == 4
    assert set(summary["policy"]) >= {"MEB", "MEB rarely", "RobustUCB", "uniform", "oracle on x̃"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace("http://creativecommons.org", "")
    curves = (tmp_path / "out" / "curves.csv").read_bytes()
    cells = sorted((tmp_path / "out" / "cells").glob("*.curves.csv"))
    stamps = [cell.stat().st_mtime_ns for cell in cells]
    cells[0].unlink()
    again = run("simulate", "spec.toml", "--out", "out", "--workers", "1", cwd=tmp_path)
    assert again.stderr.count("already done") == 3
    assert (tmp_path / "out" / "curves.csv").read_bytes() == curves
    assert [cell.stat().st_mtime_ns for cell in cells[1:]] == stamps[1:]


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """The process is killed after its first cell; the second run repeats nothing and ends as an undisturbed run would."""
    text = SPEC.replace("horizon = 400", "horizon = 60000").replace("replicates = 4", "replicates = 10")
    (tmp_path / "spec.toml").write_text(text)
    command = [sys.executable, "-m", "mebandit", "simulate", "spec.toml", "--out", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cells = tmp_path / "out" / "cells"  # a cell is finished once the last of its files is there
    while process.poll() is None and not (cells.exists() and any(cells.glob("*.effort.json"))):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = list(cells.glob("*.effort.json"))
    assert 1 <= len(finished) < 4
    again = run("simulate", "spec.toml", "--out", "out", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("already done") == len(finished)
    run("simulate", "spec.toml", "--out", "undisturbed", cwd=tmp_path)
    assert (tmp_path / "out" / "curves.csv").read_bytes() == (tmp_path / "undisturbed" / "curves.csv").read_bytes()


def test_cells_keep_their_results_when_others_are_added(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    before = spec.read_spec(tmp_path / "spec.toml")
    (tmp_path / "spec.toml").write_text(SPEC.replace("[0.1, 1.0]", "[0.05, 0.1, 1.0]"))
    after = spec.read_spec(tmp_path / "spec.toml")
    assert {c.fingerprint for c in before} < {c.fingerprint for c in after}
    assert {c.world_key for c in before} < {c.world_key for c in after}
    (tmp_path / "spec.toml").write_text(SPEC.replace("seed = 3", "seed = 4"))
    assert not {c.fingerprint for c in before} & {c.fingerprint for c in spec.read_spec(tmp_path / "spec.toml")}


def test_cells_are_computed_again_by_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    before = {c.fingerprint for c in spec.read_spec(tmp_path / "spec.toml")}
    monkeypatch.setattr(kernels, "STAMP", "of other kernels")
    assert not before & {c.fingerprint for c in spec.read_spec(tmp_path / "spec.toml")}


def test_a_world_within_a_world_keeps_its_randomness(tmp_path: Path) -> None:
    """What is reported of a world does not change it: the same rounds, other results."""
    inner = 'kind = "Gaussian"\nnoise_sd = 0.2\n'
    plain = SPEC.replace('error_cov = [0.1, 1.0]\nerror = ["normal", "uniform"]', "noise_sd = [0.2]")
    nested = plain.replace(inner, 'kind = "Misreported"\nworld = { kind = "Gaussian" }\n').replace(
        "noise_sd = [0.2]", "factor = [1.0, 2.0]"
    )
    (tmp_path / "nested.toml").write_text(nested)
    first, second = spec.read_spec(tmp_path / "nested.toml")
    assert first.world_key == second.world_key
    assert first.fingerprint != second.fingerprint
    (tmp_path / "broken.toml").write_text(nested.replace('world = { kind = "Gaussian" }', "world = 3"))
    with pytest.raises(mb.InvalidInput, match="environment Misreported world must be a table that describes an environment; got 3"):
        spec.read_spec(tmp_path / "broken.toml")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("horizon = 400", "horizon = -1"), "simulation.horizon must be a whole number from 1 to 4294967294; got -1."),
        (
            ("horizon = 400", "horizn = 400"),
            "[simulation] must have only floor, horizon, milestones, references, replicates, seed; got horizn.",
        ),
        (('kind = "Gaussian"', 'kind = "Gauss"'), "environment.kind must be one of 'Gaussian', 'HeartSteps'"),
        (("noise_sd = 0.2", "noise = 0.2"), "environment Gaussian must have only"),
        (("error_cov = [0.1, 1.0]", "error_cov = 0.1"), "[grid] must give a list of values for each setting"),
        (("error_cov = [0.1, 1.0]", "error_cov = [-0.1]"), "error_cov must be positive semidefinite"),
        (('kind = "robust_ucb"', 'kind = "sarsa"'), "policy.kind must be one of 'meb'"),
        (('kind = "robust_ucb"', 'kind = "meb"'), "policies must have different names"),
        (("base = 2", "base = 1"), "PowersOf.base must be a whole number from 2 to 4611686018427387904; got 1."),
        (("[simulation]", "[simulation"), "spec must be TOML"),
    ],
)
def test_a_wrong_spec_ends_with_one_sentence_before_any_computing(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.replace(*change))
    with pytest.raises(mb.MebanditError) as caught:
        spec.read_spec(tmp_path / "spec.toml")
    assert sentence in str(caught.value)
    assert "spec.toml" in str(caught.value)


def test_refusals_are_sentences_and_exit_codes(tmp_path: Path) -> None:
    missing = run("simulate", "none.toml", cwd=tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.strip() == "mebandit: SPEC must be a readable file; got none.toml (No such file or directory)."
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "spec.toml").write_text(SPEC)
    blocked = run("simulate", "spec.toml", "--out", "taken", cwd=tmp_path)
    assert blocked.returncode == 1
    assert blocked.stderr.startswith("mebandit: the output folder must be writable; got taken")
    assert run("simulat", cwd=tmp_path).returncode == 2


def test_help_is_for_newcomers(tmp_path: Path) -> None:
    text = run("--help", cwd=tmp_path).stdout
    assert "demo" in text
    assert "simulate" in text
    assert "measured with error" in text
    assert mb.__version__ in run("--version", cwd=tmp_path).stdout


def test_demo_prints_the_comparison_and_writes_the_page(tmp_path: Path) -> None:
    done = run("demo", "--out", "page", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "oracle on E[x|x̃]" in done.stdout
    page = tmp_path / "page" / "report.html"
    assert str(page) in done.stdout.replace("\n", "")
    assert page.read_text().count("<svg") == 4


def test_an_interrupted_write_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_whole(tmp_path / "a.csv", "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(tmp_path / "a.csv", "new")
    assert (tmp_path / "a.csv").read_text() == "old"


def test_a_page_escapes_what_it_shows() -> None:
    page = Page("<b>").text("a < b & c").table(Table(["<x>"], [["<script>bad"]])).render(command="x", seed=1, seconds=0.0)
    assert "<script>bad" not in page
    assert "&lt;script&gt;bad" in page
    assert "a &lt; b &amp; c" in page
