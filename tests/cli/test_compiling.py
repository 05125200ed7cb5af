"""`mebandit compile` fills the cache, and says where it is."""

import os
import subprocess
import sys
from pathlib import Path

import mebandit


def run(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": str(Path(mebandit.__file__).parents[1]), "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, *arguments], env=os.environ | paths, capture_output=True, text=True, check=False)


LIVE = """
import mebandit as mb
learner = mb.Learner(mb.greedy(3, 2), seed=1)
learner.learn(learner.decide([0.1, 0.2], 0.3), 1.0)
print(learner.theta, learner.diagnostics, learner.estimate())
"""


def test_what_it_has_compiled_no_later_process_compiles(tmp_path: Path) -> None:
    options = ("--recipe", "greedy", "--n-actions", "2", "--dim", "2", "--no-simulate", "--no-fit")
    found = run("-m", "mebandit", "compile", *options, cache=tmp_path)
    assert found.returncode == 0, found.stderr
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert found.stdout.startswith(f"Compiled: {len(kept)} functions, ")
    assert str(tmp_path) in found.stdout
    assert run("-c", LIVE, cache=tmp_path).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept
