"""The benchmarks' machinery, in real processes and with tiny sizes. What comes out is never compared with a clock."""

import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from mebandit.experiments.bench import contestants, live, measuring, starting
from mebandit.experiments.bench.measuring import BenchOptions, Stopped, Times, Worker, in_turns
from tests.command import run


def nothing() -> None:
    pass


def test_the_command_measures_and_writes_what_it_found(tmp_path: Path) -> None:
    done = run("bench", "live", "simulate", "scale", "logs", "--repeats", "1", "--rows", "2000", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "RESULTS.md").read_text()
    assert measuring.processor() in page
    assert f"numpy {np.__version__}" in page
    assert platform.node() not in page
    for title in ("Decide and learn, d = 20, K = 5", "Simulated rounds", "Growth with the number of rounds", "Analysing a log"):
        assert f"## {title}" in page
        assert title in done.stdout
    assert "river is not installed and was left out." in page
    assert "| numpy: LinUCB in a plain loop" in page
    for name in ("live", "growth"):
        assert f"](./{name}.png)" in page
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("arguments", "words"), [(("everything",), "everything"), (("live", "--python", "nowhere"), "nowhere")])
def test_what_cannot_be_measured_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = run("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_turns_are_taken_one_after_the_other() -> None:
    order: list[str] = []

    def turn(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = in_turns({"a": lambda: turn("a"), "b": lambda: turn("b")}, 3, nothing)
    assert order == ["a", "b"] * 3
    assert found["a"] == Times((1.0, 3.0, 5.0))
    assert (found["a"].median, found["a"].best) == (3.0, 1.0)
    assert found["b"].over(found["a"]) == pytest.approx(4 / 3)


def test_a_contestant_that_cannot_start_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pymab").mkdir()
    (tmp_path / "pymab" / "__init__.py").write_text("raise ImportError('half of it is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first, _ = live.run(BenchOptions(repeats=1), nothing)
    assert "pymab: LinUCB could not start (ImportError: half of it is missing) and was left out." in first.finding
    assert "mabwiser is not installed and was left out." in first.finding
    assert {row[0].split(":")[0] for row in first.table.rows} == {"mebandit", "numpy"}


def test_a_worker_that_ends_says_why() -> None:
    with Worker(sys.executable, "-c", "input(); raise SystemExit('no more')") as worker, pytest.raises(Stopped, match="no more"):
        worker.ask("anything")


def test_regret_is_a_share_of_that_of_uniform_play() -> None:
    task = live.make_task(3, 4, 20_000)
    everything = np.random.default_rng(1).integers(0, 4, 20_000)
    assert task.regret(everything.tolist()) == pytest.approx(1.0, abs=0.03)
    assert task.regret(task.values.argmax(axis=1).tolist()) == 0.0


@pytest.mark.parametrize("name", [*contestants.OURS, "numpy"])
def test_contestants_learn(name: str) -> None:
    """Well below uniform play, which has 1; they keep to 0.1 for what they explore."""
    task = live.make_task(3, 2, 800)
    arrays = {"n": np.array(1), "contexts_0": task.predicted, "rewards_0": task.rewards, "error_cov_0": task.error_cov}
    (player,) = contestants.players(name, arrays)
    _, actions = contestants.play(player, task.predicted, task.rewards)
    assert task.regret(actions) < 0.5


def test_a_start_is_that_of_a_whole_process_with_a_cache_of_its_own(tmp_path: Path) -> None:
    script = "import os, pathlib; pathlib.Path(os.environ['NUMBA_CACHE_DIR'], 'seen').touch()"
    assert starting.process(script, str(tmp_path)) > 0
    assert (tmp_path / "seen").exists()
    warm = {name: Times((1.0, 2.0, 3.0)) for name in starting.SCRIPTS}
    rows = starting.section(warm, dict.fromkeys(starting.COMPILING, 30.0)).table.rows
    assert ["first simulation", "2.00 (1.00)", "30.0"] in rows
    assert ["import mebandit", "2.00 (1.00)", ""] in rows
