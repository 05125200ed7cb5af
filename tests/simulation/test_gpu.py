"""The engine for GPUs, in numba's simulator of one: the same source in plain Python, thread by thread.

The simulator is chosen when numba is imported, so these tests run in a process of their own; `benchmarks/gpu.py` compares the engines on
a real device.
"""

import os
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.environments import Estimated, Gaussian, HeartSteps
from mebandit.experiments.paper.table1 import cells_1a
from mebandit.experiments.runner import run_cells
from mebandit.runtime.progress import compiling_notice
from mebandit.simulation import gpu
from mebandit.simulation.simulate import contest

SIMULATED = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONWARNINGS": "ignore"}

COMPARISON = """
import numpy as np
import mebandit as mb
from mebandit.environments import Drifting, Example21, ExampleB1, ExampleB2, Gaussian, HeartSteps, Misreported

LEVELS = np.stack([np.eye(2), 0.1 * np.eye(2)])
THREE = Gaussian(theta=[[1.0, 0], [0, 1], [1, 1]], mean=0.5, cov=[[1.0, 0.3], [0.3, 2]], error_cov=LEVELS, error="student_t", hold=3)


def policies(k, d):
    ours = [mb.meb(k, d, refit=3), mb.meb_naive(k, d), mb.meb_dr(k, d), mb.greedy(k, d, intercept=True)]
    return [*ours, mb.lin_ucb(k, d), mb.thompson(k, d), mb.robust_ucb(k, d, horizon=30)]


WORLDS = [
    (Gaussian(error_cov=1.0), policies(2, 5)),
    (THREE, policies(3, 2)),
    (Gaussian(context="exponential", error="uniform"), [mb.meb(2, 5, guard="always"), mb.meb_dr(2, 5, intercept=True, discount=0.99)]),
    (HeartSteps(), [mb.meb(2, 7), mb.meb_dr(2, 7)]),
    (Drifting(world=Gaussian(error_cov=1.0), mean=1.0, theta=0.5, period=30), [mb.meb_dr(2, 5)]),
    (Misreported(world=ExampleB1(), factor=0.5), [mb.meb(2, 2, guard="never")]),
    (Example21(), [mb.meb(2, 1)]),
    (ExampleB2(), [mb.meb(2, 1), mb.oracle(2, 1, theta=[[0.5], [1.0]])]),
]
for environment, played in WORLDS:
    settings = {"replicates": 3, "seed": 3, "cell": 2, "horizon": 30, "points": 6, "milestones": (7,), "progress": False}
    here = mb.simulate(environment, played, **settings)
    there = mb.simulate(environment, played, engine="cuda", **settings)
    for name in ("standard_regret", "clipped_regret", "guarded_fits", "estimation_error"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-9, atol=1e-9, err_msg=f"{environment} {name}")
    assert there.policies == here.policies and (there.times == here.times).all()
print("agreed")
"""


def test_both_engines_agree_in_every_world_and_for_every_policy() -> None:
    answer = subprocess.run([sys.executable, "-c", COMPARISON], env=SIMULATED, capture_output=True, text=True)
    assert answer.stdout.strip() == "agreed", answer.stderr


PIECES = """
import numpy as np
import mebandit as mb
from mebandit.simulation import gpu
from mebandit.environments import HeartSteps

settings = {"horizon": 6, "replicates": 5, "progress": False}
whole = mb.simulate(HeartSteps(), [mb.meb(2, 7)], engine="cuda", **settings)
gpu.MOST, seen = 2, []
pieces = mb.simulate(HeartSteps(), [mb.meb(2, 7)], engine="cuda", **settings | {"progress": lambda done, total: seen.append((done, total))})
assert np.array_equal(whole.clipped_regret, pieces.clipped_regret)
assert seen == [(i, 5) for i in range(1, 6)], seen
print("agreed")
"""


def test_launches_in_pieces_change_nothing_and_report_progress() -> None:
    answer = subprocess.run([sys.executable, "-c", PIECES], env=SIMULATED, capture_output=True, text=True)
    assert answer.stdout.strip() == "agreed", answer.stderr


def skip_with_a_device() -> None:
    if gpu.missing() is None:
        pytest.skip("there is a CUDA device here")


def test_a_refused_engine_leaves_no_folder_and_a_finished_one_is_read(tmp_path: Path) -> None:
    skip_with_a_device()
    cells = cells_1a("published", replicates=1, seed=1, horizon=10)[:1]
    with pytest.raises(mb.MebanditError, match="engine must be 'cpu' or 'auto' on this machine"):
        run_cells(cells, tmp_path / "out", engine="cuda")
    assert not (tmp_path / "out").exists()
    done = run_cells(cells, tmp_path / "out", progress=False)
    assert run_cells(cells, tmp_path / "out", engine="cuda").curves.equals(done.curves)


def test_compiling_for_long_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with compiling_notice(lambda: False, True, "compiling something"):
        sleep(1.5)
    with compiling_notice(lambda: True, True, "compiling nothing"):
        sleep(1.5)
    assert capsys.readouterr().err == "mebandit: compiling something\n"


def test_without_a_device_cuda_says_so_and_auto_takes_the_processor() -> None:
    skip_with_a_device()
    settings: dict[str, Any] = {"horizon": 20, "replicates": 2, "progress": False}
    with pytest.raises(
        mb.MebanditError, match=r"engine must be 'cpu' or 'auto' on this machine; got 'cuda', but .* Install mebandit\[cuda\]"
    ):
        mb.simulate(Gaussian(), [mb.meb(2, 5)], engine="cuda", **settings)
    found = mb.simulate(Gaussian(), [mb.meb(2, 5)], engine="auto", **settings)
    assert np.array_equal(found.clipped_regret, mb.simulate(Gaussian(), [mb.meb(2, 5)], **settings).clipped_regret)
    with pytest.raises(mb.MebanditError, match=r"engine must be one of 'cpu', 'cuda', 'auto'; got 'gpu'"):
        mb.simulate(Gaussian(), [mb.meb(2, 5)], engine="gpu", **settings)


def test_what_a_thread_cannot_play_is_said_in_a_sentence() -> None:
    settings: dict[str, Any] = {
        "horizon": 10,
        "replicates": 1,
        "seed": 1,
        "cell": 0,
        "floor": None,
        "references": False,
        "points": 2,
        "milestones": (),
    }
    large = Gaussian(theta=np.ones((10, 60)))
    assert "keeps" in str(gpu.unfit(contest(large, [mb.meb(10, 60)], **settings)))
    assert "Estimated" in str(gpu.unfit(contest(Estimated(world=Gaussian()), [mb.meb(2, 5)], **settings)))
    assert gpu.unfit(contest(HeartSteps(), [mb.meb(2, 7)], **settings)) is None


def test_importing_the_library_imports_no_cuda() -> None:
    code = "import sys, mebandit; print('numba.cuda' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
