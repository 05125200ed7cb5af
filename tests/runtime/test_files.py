"""Files: full disks, links, names that programs take for markup, and output that nobody reads."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

import mebandit as mb
from mebandit.analysis import value_page
from mebandit.checks import MebanditError
from mebandit.cli import main
from mebandit.cli.terminal import commands
from mebandit.estimation.history import History
from mebandit.reports.figures import draw_policies, save_figure
from mebandit.runtime import escaping as texts
from mebandit.runtime import files

HOSTILE = ["=1+1", "@name", "$x_{$", "_hidden"]


def log_of(*names: str, rounds: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    x, action = rng.normal(1, 1, (rounds, len(names))), np.arange(rounds) % 2
    frame = pd.DataFrame(x, columns=list(names))
    reward = action * x[:, 0] + rng.normal(0, 0.1, rounds)
    return frame.assign(action=action, reward=reward, propensity=0.5, who=[f"-u{i % 6}" for i in range(rounds)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one file of each kind, to work in."""
    frame = log_of("x0", "x1")
    frame.assign(x2=frame["x0"] + frame["x1"]).to_csv(tmp_path / "log.csv", index=False)
    for seed, name in enumerate(("north.json", "south.json")):
        learner = mb.Learner(mb.meb(2, 2), seed=seed)
        learner.learn(learner.decide([1.0, 2.0], 0.1), 1.0)
        learner.save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond a size: writing then fails as on a full disk, in Python and in other libraries alike."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def call(*arguments: str) -> None:
    CliRunner().invoke(commands, list(arguments), catch_exceptions=False)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


FIT = ("fit", "log.csv", "--predicted", "x0,x1", "--error-cov", "0.1,0")
PLAN = ("plan", "--effect", "0.3", "--replicates", "0", "--error-cov", "0.1")
ROUNDS = History(
    decision=np.arange(3),
    predicted=np.ones((3, 1)),
    error_cov=np.ones((3, 1, 1)),
    allowed=np.ones((3, 2), dtype=np.bool_),
    actions=np.zeros(3, dtype=np.int64),
    propensities=np.full((3, 2), 0.5),
    rewards=np.ones(3),
)
SEVERAL: dict[str, Callable[[], object]] = {
    "fit": lambda: call(*FIT, "--method", "meb", "--out", "new/out"),
    "value": lambda: call("value", *FIT[1:4], "--out", "new/out"),
    "plan": lambda: call(*PLAN, "--dim", "2", "--out", "new/out"),
}
"""what writes several files, some small and some large"""
ONE: dict[str, Callable[[], object]] = {
    "set aside": lambda: call(*FIT, "--on-bad", "set-aside"),
    "export to csv": lambda: call("export", *FIT[1:4], "--unit", "who", "--to", "mrt", "--out", "trial.csv"),
    "export to parquet": lambda: call("export", *FIT[1:4], "--unit", "who", "--to", "mrt", "--out", "trial.parquet"),
    "export to npz": lambda: call("export", *FIT[1:4], "--to", "obp", "--out", "log.npz"),
    "error model": lambda: call("error-model", "log.csv", "--predicted", "x0", "--truth", "x2", "--out", "model.json"),
    "merge": lambda: call("merge", "north.json", "south.json", "--out", "pooled.json"),
    "state": lambda: mb.Learner(mb.meb(2, 2)).save("state.json"),
    "picture": lambda: save_figure(Figure(), "figure.png"),
    "rounds": lambda: ROUNDS.to_parquet("rounds.parquet"),
}


@pytest.mark.parametrize("writer", [*SEVERAL, *ONE])
def test_a_full_disk_changes_nothing(writer: str, folder: Path) -> None:
    """A sentence, and all files are as they were; once with nothing there, once with earlier results."""
    if writer == "set aside":
        (folder / "log.csv").write_text((folder / "log.csv").read_text() + "1,2,7,1,0.5,u,3\n")
    write, size = (SEVERAL[writer], 3000) if writer in SEVERAL else (ONE[writer], 10)
    before = contents(folder)
    for left in (1, 0) if writer in ONE else (0,):
        with room_for(size), pytest.raises(MebanditError, match=r"^the file to write must be .*; got .* \(File too large\)\.$"):
            write()
        assert contents(folder) == before
        if left:
            write()
            before = contents(folder)


def test_results_come_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with room_for(100), pytest.raises(MebanditError):
        files.write_together(tmp_path, {"a": "new", "b": "x" * 101})
    assert contents(tmp_path) == {"a": b"old"}
    files.write_together(tmp_path, {"a": "new", "b": b"x"})
    assert contents(tmp_path) == {"a": b"new", "b": b"x"}


def test_a_link_is_replaced_or_refused_and_never_written_through(folder: Path) -> None:
    """What a link points to stays as it is."""
    (folder / "mine.txt").write_text("mine")
    for name in ("model.json", "exported.csv", "pooled.json"):
        (folder / name).symlink_to("mine.txt")
    for arguments in (
        ("error-model", "log.csv", "--predicted", "x0", "--truth", "x1", "--out", "model.json"),
        ("export", *FIT[1:4], "--to", "mrt", "--out", "exported.csv"),
        ("merge", "north.json", "south.json", "--out", "pooled.json"),
    ):
        with pytest.raises(MebanditError, match="which holds something else"):
            call(*arguments)
    (folder / "out").mkdir()
    for name in ("fit.json", "report.html", "forest.png"):
        (folder / "out" / name).symlink_to(folder / "mine.txt")
    call(*FIT, "--out", "out")
    mb.Learner.load(folder / "north.json").save(folder / "pooled.json")
    assert not any(path.is_symlink() for path in (folder / "out").iterdir())
    assert not (folder / "pooled.json").is_symlink()
    assert (folder / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "loop", None, 3, ["a"]])
def test_what_is_no_path_is_refused_everywhere(path: Any, folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    learner = mb.Learner(mb.meb(2, 1))
    for use in (
        mb.read_journal,
        mb.check_journal,
        mb.Learner.recover,
        mb.Learner.load,
        mb.ErrorModel.load,
        learner.save,
        lambda p: mb.Learner(mb.meb(2, 1), journal=3 if p is None else p),  # type: ignore[arg-type]
        lambda p: mb.export(log_of("x"), p, to="obp", predicted="x"),
        lambda p: mb.fit([p], predicted="x", error_cov=0),
        lambda p: mb.repair_journal(folder / "log.csv", p),
    ):
        with pytest.raises(MebanditError):
            use(path)


@pytest.mark.parametrize("use", [mb.read_journal, mb.check_journal, mb.Learner.recover, lambda p: mb.Learner(mb.meb(2, 1), journal=p)])
def test_a_folder_is_no_journal(use: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(MebanditError, match=r"^journal must be .*; got .*\.$"):
        use(tmp_path)


# Names -----------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose names are markup, and what `fit` writes of it."""
    folder = tmp_path_factory.mktemp("hostile")
    log_of(*HOSTILE).to_csv(folder / "log.csv", index=False)
    names = ("--predicted", ",".join(HOSTILE))
    call("fit", str(folder / "log.csv"), *names, "--error-cov", "0.1", "--method", "meb", "--out", str(folder / "out"))
    return folder


def test_names_in_figures_are_shown_as_they_are(hostile: Path, tmp_path: Path) -> None:
    for figure in ("forest", "sensitivity", "drift"):
        drawn = (hostile / "out" / f"{figure}.svg").read_text()
        assert [name for name in HOSTILE if f"{name} -->" not in drawn] == [], figure
    values = mb.value(log_of("x"), dict.fromkeys(HOSTILE, "uniform"), predicted="x")
    value_page.write(values, tmp_path, command="", seconds=0.0)
    assert all(f"{name} -->" in (tmp_path / "value.svg").read_text() for name in HOSTILE)
    named = ("--predicted", "$x_{$", "--coefficient", "$x_{$")
    call(*PLAN, "--pilot", str(hostile / "log.csv"), *named, "--out", str(tmp_path / "plan"))
    curves = pd.DataFrame({"policy": np.repeat(HOSTILE, 2), "time": [1, 2] * 4, "mean": 1.0, "std_error": 0.1})
    canvas = Figure()
    draw_policies(canvas.subplots(), curves, references=HOSTILE[:1])
    canvas.legend()
    save_figure(canvas, tmp_path / "policies.svg")
    assert all(f"{name} -->" in (tmp_path / "policies.svg").read_text() for name in HOSTILE)


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-x", "@x", "\tx", "\r=x"])
def test_a_spreadsheet_computes_nothing(name: str) -> None:
    table = pd.DataFrame({name: [-0.5, 1e-300], "text": [name, "fine"], "number": ["-0.5", "+1e5"]})
    text = texts.as_csv(table)
    back = pd.read_csv(StringIO(text, newline=""), lineterminator="\n", keep_default_na=False)
    assert list(back.columns) == [f"'{name}", "text", "number"]
    assert back["text"].tolist() == [f"'{name}", "fine"]
    assert back.iloc[:, 0].tolist() == [-0.5, 1e-300]
    assert ",-0.5\n" in text


def test_tables_of_results_keep_names_from_being_formulas(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for table in ("estimates", "contrasts", "sensitivity"):
        found = pd.read_csv(hostile / "out" / f"{table}.csv")
        assert list(dict.fromkeys(found["feature"])) == ["'=1+1", "'@name", "$x_{$", "_hidden"]
        assert (found["theta"] < 0).any()
    log = (str(hostile / "log.csv"), "--predicted", ",".join(HOSTILE))
    call("value", *log, "--policy", "uniform", "--policy", "+0.5,0.5", "--out", "out")
    assert "'+0.5,0.5" in set(pd.read_csv("out/value.csv")["policy"])
    call("export", *log, "--unit", "who", "--to", "mrt", "--out", "trial.csv")  # which programs read: as it was
    back = pd.read_csv("trial.csv")
    assert list(back.columns[-4:]) == HOSTILE
    assert set(back["id"]) == {f"-u{i}" for i in range(6)}


# Output that cannot be written, or that nobody reads -------------------------------------------------------------------------------------


def run(*arguments: str, **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "mebandit", *arguments], stderr=subprocess.PIPE, text=True, **streams)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_a_sentence(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        process = run(*FIT, stdout=full)
        said = process.communicate()[1]
    assert process.returncode == 1
    assert said == "mebandit: the output must be one that can be read or written; got: No space left on device.\n"


@pytest.mark.parametrize("kind", [(), ("--json",)])
def test_output_that_nobody_reads_ends_quietly(kind: tuple[str, ...], folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = run(*FIT, *kind, stdout=write)
    os.close(write)
    assert process.communicate()[1] == ""
    assert process.returncode == 141


def test_ctrl_c_ends_with_a_sentence_and_its_status(folder: Path) -> None:
    """The command waits for a file that nobody writes; that it has opened it says that it is at work."""
    os.mkfifo("theta.json")
    process = run("value", *FIT[1:4], "--theta", "theta.json", stdout=subprocess.DEVNULL)
    with open("theta.json", "wb"):
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130
    assert said.startswith("\nmebandit: interrupted")  # below the ^C of the terminal
    assert said.count("\n") == 2


def test_what_does_not_fit_into_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # which the command sets
    monkeypatch.setattr(sys, "argv", ["mebandit", *PLAN, "--dim", "10000000"])
    with pytest.raises(
        SystemExit, match=r"^mebandit: the computation must fit into memory; got one that does not \([^\n]*\)\. Ask for fewer [^\n]*\.$"
    ):
        main()
