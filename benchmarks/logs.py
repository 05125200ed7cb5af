"""What it takes to analyse a large log: rows per second and memory, beside pyarrow reading the same columns of the same file.

python benchmarks/logs.py --rows 20000000

Every measurement is a process of its own with the code compiled; they take turns, and the best of each is kept. First the file is in the
system's cache, then it is put out of it. On a shared machine compare ratios, and processor time rather than elapsed time.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

import mebandit as mb

FEATURES = [f"x{i}" for i in range(5)]
NEEDED = [*FEATURES, "action", "reward", "propensity"]
THETA = np.array([[5.0, 6, 4, 6, 4], [6.0, 5, 5, 5, 5]])
PIECE = 1_000_000
TURNS = 3


def write_log(path: Path, rows: int) -> None:
    """The paper's synthetic world under a policy that reads x̃, with an error variance of 1."""
    rng, writer = np.random.default_rng(0), None
    for start in range(0, rows, PIECE):
        n = min(PIECE, rows - start)
        x = rng.normal(1, 1, (n, 5))
        seen = x + rng.normal(0, 1, x.shape)
        send = np.where(seen[:, 0] > seen[:, 1], 0.8, 0.2)
        action = (rng.random(n) < send).astype(np.int64)
        reward = np.einsum("ti,ti->t", THETA[action], x) + rng.normal(0, 0.3, n)
        columns: dict[str, object] = {name: seen[:, i] for i, name in enumerate(FEATURES)}
        columns |= {"action": action, "reward": reward, "propensity": np.where(action == 1, send, 1 - send)}
        table = pa.table(columns)
        writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
    if writer is not None:
        writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())  # what is not yet on the disk cannot leave the cache


def read_alone(path: Path) -> None:
    """pyarrow, row group by row group, on all cores."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group, columns=NEEDED)


def read_as_dataset(path: Path) -> None:
    """pyarrow's own scanner, batch by batch, on all cores."""
    import pyarrow.dataset as ds

    for _ in ds.dataset(path).to_batches(columns=NEEDED):
        pass


def fit_with(*methods: str) -> Callable[[Path], None]:
    def work(path: Path) -> None:
        mb.fit(path, predicted=FEATURES, error_cov=1.0, methods=methods, progress=False)

    return work


WORK: dict[str, Callable[[Path], None]] = {
    "pyarrow, by row group": read_alone,
    "pyarrow, dataset scanner": read_as_dataset,
    "mebandit fit, meb": fit_with("meb"),
    "mebandit fit, meb and dr": fit_with("meb", "dr"),
    "mebandit fit, all five methods": fit_with("ridge", "naive", "meb", "dr", "rc"),
}


def timed(name: str, path: Path) -> tuple[float, float]:
    """Seconds elapsed, and seconds of all processors."""
    begun, used = perf_counter(), process_time()
    WORK[name](path)
    return perf_counter() - begun, process_time() - used


def measure(name: str, path: Path) -> None:
    """In a process of its own: the best of three, once more with the file out of the cache, and the most memory that was ever held."""
    warm = [timed(name, path) for _ in range(3)]
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cold = timed(name, path)
    found = [min(elapsed for elapsed, _ in warm), min(used for _, used in warm), cold[0]]
    print(json.dumps([*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))


def measured(path: Path) -> dict[str, np.ndarray]:
    """By name: seconds, processor seconds, seconds with a cold cache, and gigabytes."""
    found: dict[str, list[list[float]]] = {name: [] for name in WORK}
    for _ in range(TURNS):
        for name, each in found.items():
            done = subprocess.run([sys.executable, __file__, "--measure", name, str(path)], capture_output=True, text=True, check=True)
            each.append(json.loads(done.stdout))
    return {name: np.array([*np.min(each, axis=0)[:3], np.max(each, axis=0)[3]]) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure[0], Path(given.measure[1]))
        return
    console = Console(width=110)
    console.print(
        f"Python {platform.python_version()}, pyarrow {pa.__version__}, {platform.machine()}, {os.cpu_count()} cores", highlight=False
    )
    title = f"{given.rows:,} rows, d = 5, K = 2; in brackets times pyarrow"
    table = Table("", "seconds", "processor seconds", "seconds, cold cache", "million rows/s", "GB", title=title, title_justify="left")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, given.rows)
        found = measured(path)
    alone = next(iter(found.values()))
    for name, values in found.items():
        seconds = [f"{value:.2f} ({value / own:.1f})" for value, own in zip(values[:3], alone[:3], strict=True)]
        table.add_row(Text(name), *seconds, f"{given.rows / values[0] / 1e6:.1f}", f"{values[3]:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
