"""Compare the speed of two source trees: python benchmarks/compare.py OLD NEW [--parts live simulate start fit gpu] [--repeats 9].

Each tree has a process of its own; they take turns, and what is reported is the median over turns of new / old CPU time: so a busy
machine slows both alike. The first turn compiles and does not count. `gpu` needs an NVIDIA GPU, and compares seconds.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

RECIPES = {
    "meb": {},
    "meb_naive": {},
    "meb_dr": {},
    "greedy": {},
    "lin_ucb": {},
    "thompson": {},
    "robust_ucb": {"horizon": 10_000},
}
STARTS = {
    "import": "import mebandit",
    "first decide and learn": "import mebandit as mb; l = mb.Learner(mb.meb(2, 5), seed=1); l.learn(l.decide([0.5] * 5, 0.2), 1.0)",
    "first simulation": """
import mebandit as mb
mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=100, replicates=1, workers=1)
""",
    "first fit": """
import numpy as np, mebandit as mb
rng = np.random.default_rng(1)
log = {f"predicted_{i}": rng.normal(size=400) for i in range(5)}
log |= {"action": rng.integers(0, 2, 400), "reward": rng.normal(size=400), "propensity": np.full(400, 0.5)}
mb.fit(log, error_cov=0.2, propensity="propensity")
""",
}
LIVE_ROUNDS, SIMULATED_ROUNDS, FIT_ROWS = 2000, 20_000, 500_000
TRAJECTORIES, GPU_ROUNDS = 1 << 15, 100_000


def live(name: str, journal: bool) -> float:
    """CPU seconds of some live rounds."""
    import numpy as np

    import mebandit as mb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl" if journal else None
        learner = mb.Learner(getattr(mb, name)(2, 5, **RECIPES[name]), seed=1, journal=path)
        x, s = np.random.default_rng(1).normal(size=(LIVE_ROUNDS, 5)), 0.2 * np.eye(5)
        begun = process_time()
        for t in range(LIVE_ROUNDS):
            learner.learn(learner.decide(x[t], s), x[t, 0])
        took = process_time() - begun
        learner.close()
    return took


def simulated(name: str) -> float:
    import mebandit as mb

    policy, world = getattr(mb, name)(2, 5, **RECIPES[name]), mb.environments.Gaussian(error_cov=1.0)
    begun = process_time()
    mb.simulate(world, [policy], horizon=SIMULATED_ROUNDS, replicates=1, workers=1, references=False, progress=False)
    return process_time() - begun


def simulated_on_gpu(name: str) -> float:
    """Seconds, not CPU seconds."""
    import numpy as np

    import mebandit as mb

    vars(np).setdefault("row_stack", np.vstack)  # numba-cuda asks for it; numpy 2.5 has it no more
    policy, world = getattr(mb, name)(2, 5, **RECIPES[name]), mb.environments.Gaussian(error_cov=1.0)
    given = {"horizon": GPU_ROUNDS, "replicates": TRAJECTORIES, "points": 2, "references": False, "progress": False}
    begun = perf_counter()
    mb.simulate(world, [policy], engine="cuda", **given)
    return perf_counter() - begun


def fitted() -> float:
    import numpy as np

    import mebandit as mb

    rng = np.random.default_rng(1)
    log: dict[str, Any] = {f"predicted_{i}": rng.normal(size=FIT_ROWS) for i in range(5)}
    log |= {"action": rng.integers(0, 2, FIT_ROWS), "reward": rng.normal(size=FIT_ROWS), "propensity": np.full(FIT_ROWS, 0.5)}
    begun = process_time()
    mb.fit(log, error_cov=0.2, propensity="propensity", workers=1)
    return process_time() - begun


def tasks(parts: list[str]) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """What is compared, by name: a function of this file, and its arguments."""
    found: dict[str, tuple[str, tuple[Any, ...]]] = {}
    if "live" in parts:
        found |= {f"live round, {name}": ("live", (name, False)) for name in RECIPES}
        found["live round with a journal, meb"] = "live", ("meb", True)
    if "simulate" in parts:
        found |= {f"simulated round, {name}": ("simulated", (name,)) for name in RECIPES}
    if "fit" in parts:
        found["fit of a long log"] = "fitted", ()
    if "gpu" in parts:
        found |= {f"on a GPU, {name}": ("simulated_on_gpu", (name,)) for name in RECIPES}
    return found


def answer() -> None:
    """The process of a tree: a line of JSON in, the CPU seconds out."""
    functions = {"live": live, "simulated": simulated, "fitted": fitted, "simulated_on_gpu": simulated_on_gpu}
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(functions[name](*arguments)), flush=True)


def environment(tree: str, cache: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(tree).resolve() / "src"), "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}


def process(tree: str, cache: str) -> Any:
    command = [sys.executable, __file__, "--answer", tree, tree]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tree, cache))


def ask(workers: list[Any], question: tuple[str, tuple[Any, ...]]) -> list[float]:
    """The answers of some workers, who work at the same time."""
    for worker in workers:
        worker.stdin.write(json.dumps(question) + "\n")
        worker.stdin.flush()
    return [float(json.loads(worker.stdout.readline())) for worker in workers]


def start(tree: str, script: str) -> float:
    """CPU seconds of a process that begins with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=environment(tree, cache))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs=2, metavar="TREE")
    parser.add_argument("--parts", nargs="+", default=["live", "simulate", "start", "fit"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        answer()
        return
    if "start" in given.parts:
        for name, script in STARTS.items():
            old, new = (start(tree, script) for tree in given.trees)
            print(f"{name}: {old:.1f} -> {new:.1f} CPU seconds, {new / old:.2f}", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        workers = [process(tree, str(Path(cache) / str(i))) for i, tree in enumerate(given.trees)]
        for name, question in tasks(given.parts).items():
            ask(workers, question)
            turns = [[ask([worker], question)[0] for worker in workers] for _ in range(given.repeats)]
            print(f"{name}: {median(new / old for old, new in turns):.3f}", flush=True)
        for worker in workers:
            worker.stdin.close()
            worker.wait()


if __name__ == "__main__":
    main()
