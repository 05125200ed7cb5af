"""The benchmark "logs": rows per second of `mebandit.fit`, beside pyarrow reading the same columns of the same file.

This module is also a script: it reads names from `WORK`, a line each, and answers with the seconds and the largest memory so far.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from mebandit.analysis.fit import fit
from mebandit.estimation.methods import METHODS, Method
from mebandit.experiments.bench.measuring import BenchOptions, Done, Times, Worker, in_turns, peak_megabytes, timed
from mebandit.reports.page import Section
from mebandit.reports.table import Table

FEATURES = [f"x{i}" for i in range(5)]
NEEDED = [*FEATURES, "action", "reward", "propensity"]
THETA = np.array([[5.0, 6, 4, 6, 4], [6.0, 5, 5, 5, 5]])
PIECE = 1_000_000


def write_log(path: Path, rows: int) -> None:
    """Write a log of the paper's synthetic environment, with error variance 1, under two policies that read x̃.

    The columns of the first belong to a greedy policy with a floor, whose probabilities are 0.2 and 0.8; those that end in _smooth to a
    policy whose probabilities all differ.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, PIECE):
        n = min(PIECE, rows - start)
        x = rng.normal(1, 1, (n, 5))
        seen = x + rng.normal(0, 1, x.shape)
        columns: dict[str, object] = {name: seen[:, i] for i, name in enumerate(FEATURES)}
        gap = seen[:, 0] - seen[:, 1]
        for suffix, send in (("", np.where(gap > 0, 0.8, 0.2)), ("_smooth", 0.2 + 0.6 / (1 + np.exp(-gap)))):
            action = (rng.random(n) < send).astype(np.int64)
            reward = np.einsum("ti,ti->t", THETA[action], x) + rng.normal(0, 0.3, n)
            taken = np.where(action == 1, send, 1 - send)
            columns |= {f"action{suffix}": action, f"reward{suffix}": reward, f"propensity{suffix}": taken}
        table = pa.table(columns)
        writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
    if writer is not None:
        writer.close()


def read_by_group(path: Path) -> None:
    """Read with pyarrow, row group by row group, on all cores."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group, columns=NEEDED)


def read_as_dataset(path: Path) -> None:
    """Read with the scanner of pyarrow, batch by batch, on all cores."""
    import pyarrow.dataset as ds

    for _ in ds.dataset(path).to_batches(columns=NEEDED):
        pass


def read_whole(path: Path) -> None:
    """Read the whole file into memory with pyarrow, on all cores."""
    import pyarrow.parquet as pq

    pq.read_table(path, columns=NEEDED)


def fit_with(*methods: Method, smooth: bool = False) -> Callable[[Path], None]:
    """A function that analyses the log of one of the two policies."""
    suffix = "_smooth" if smooth else ""

    def work(path: Path) -> None:
        action, reward, propensity = (f"{name}{suffix}" for name in ("action", "reward", "propensity"))
        fit(
            path,
            predicted=FEATURES,
            action=action,
            reward=reward,
            propensity=propensity,
            error_cov=1.0,
            methods=methods,
            progress=False,
        )

    return work


READING, ALL = "pyarrow, by row group", "mebandit fit, all five methods"
WORK: dict[str, Callable[[Path], None]] = {
    READING: read_by_group,
    "pyarrow, dataset scanner": read_as_dataset,
    "pyarrow, read_table": read_whole,
    "mebandit fit, meb": fit_with("meb"),
    "mebandit fit, meb and dr": fit_with("meb", "dr"),
    ALL: fit_with(*METHODS),
    "mebandit fit, all five, probabilities that all differ": fit_with(*METHODS, smooth=True),
}
TURNS = 5
"""turns at most: times of large logs vary little"""


def steps(options: BenchOptions) -> int:
    """The number of steps of the progress bar."""
    return 2 * (min(options.repeats, TURNS) + 1) * len(WORK)


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Measure on logs of two lengths."""
    with tempfile.TemporaryDirectory() as folder:
        path, rows = Path(folder) / "log.parquet", []
        found: dict[str, Times] = {}
        for n in (max(options.rows // 10, 1), options.rows):
            write_log(path, n)
            found, memory = _measure(path, min(options.repeats, TURNS), done)
            for name, times in found.items():
                speed = f"{n / times.median / 1e6:.1f} ({n / times.best / 1e6:.1f})"
                rows.append([name, f"{n:,}", speed, f"{times.over(found[READING]):.1f}", f"{memory[name] / 1e3:.2f}"])
    slowest = found[ALL]
    return [
        Section(
            title="Analysing a log, d = 5, K = 2",
            setting="A Parquet file in the system's cache; every row of the table is a process of its own on all cores, in turns. `fit` "
            "checks every row, and gives estimates, standard errors, sensitivities and diagnostics.",
            finding=f"All five methods take {slowest.over(found[READING]):.1f} times as long as pyarrow takes to read the columns of "
            f"{options.rows:,} rows, {options.rows / slowest.median / 1e6:.1f} million rows per second.",
            table=Table(["", "rows", "million rows/s: median (best)", "times pyarrow", "GB held at most"], rows),
        )
    ]


def _measure(path: Path, repeats: int, done: Done) -> tuple[dict[str, Times], dict[str, float]]:
    """Seconds and megabytes of all work; the first turn is not counted."""
    memory: dict[str, float] = {}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(sys.executable, "-m", __name__, str(path))) for name in WORK}

        def turn(name: str) -> float:
            seconds, memory[name] = workers[name].ask(name)
            return float(seconds)

        times = in_turns({name: partial(turn, name) for name in WORK}, repeats + 1, done)
    return {name: Times(found.turns[1:]) for name, found in times.items()}, memory


def answer(path: Path) -> None:
    """Do what the lines of standard input name."""
    for line in sys.stdin:
        name = json.loads(line)
        seconds = timed(partial(WORK[name], path))()
        print(json.dumps([seconds, peak_megabytes()]), flush=True)


if __name__ == "__main__":
    answer(Path(sys.argv[1]))
