"""How benchmarks measure: in turns, in separate processes where that matters, and on a machine that the report describes."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Any, NamedTuple, Self

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
"""environment variables that keep linear algebra to one core: for matrices this small, several cores are slower"""

Done = Callable[[], None]
"""is called after every step of a benchmark, for the progress bar"""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What a user can choose for the benchmarks."""

    repeats: int = 15
    """the number of turns of each measurement"""
    rows: int = 2_000_000
    """the number of rows of the log to analyse"""
    pythons: tuple[str, ...] = ()
    """other Python interpreters whose libraries are measured too"""


class Times(NamedTuple):
    """The seconds of one measurement, turn by turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over turns."""
        return median(self.turns)

    @property
    def best(self) -> float:
        """The shortest turn."""
        return min(self.turns)

    def over(self, other: "Times") -> float:
        """The ratio to another measurement: the median over turns of the ratio, since neighbouring turns meet the same disturbances."""
        return median(mine / theirs for mine, theirs in zip(self.turns, other.turns, strict=True))

    def per(self, n: float) -> "Times":
        """The times divided by a number of rounds."""
        return Times(tuple(seconds / n for seconds in self.turns))

    def micro(self) -> str:
        """Median and best in microseconds, as text."""
        return f"{1e6 * self.median:,.{_digits(1e6 * self.median)}f} ({1e6 * self.best:,.{_digits(1e6 * self.best)}f})"


def _digits(value: float) -> int:
    """Decimals to show."""
    return 2 if value < 1 else 1 if value < 100 else 0


def in_turns(work: Mapping[str, Callable[[], float]], repeats: int, done: Done) -> dict[str, Times]:
    """Time several things in turns, A B C A B C ..., so that other work on the machine slows all of them alike.

    Args:
        work: By name, a function that does the work once and returns the seconds.
        repeats: The number of turns of each.
        done: Called after every turn.
    """
    turns: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, seconds in work.items():
            turns[name].append(seconds())
            done()
    return {name: Times(tuple(found)) for name, found in turns.items()}


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A function that does the work, and returns the seconds it took."""

    def seconds() -> float:
        begun = perf_counter()
        work()
        return perf_counter() - begun

    return seconds


class Stopped(Exception):
    """A process ended before it answered."""


class Worker:
    """A process that reads questions as lines of JSON, and answers with lines of JSON."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115  it is closed with the worker
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | dict(environment or {}),
        )

    def ask(self, question: object) -> Any:
        """The answer to a question."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self.answer()

    def answer(self) -> Any:
        """The next answer. If the process has ended, `Stopped` with the last line of its standard error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise Stopped(said[-1] if said else f"exit code {self._process.returncode}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def seconds_of(*command: str, environment: Mapping[str, str] | None = None) -> float:
    """The seconds of a whole process, from its start to its end."""
    begun = perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | dict(environment or {}))
    return perf_counter() - begun


def peak_megabytes() -> float:
    """The largest memory of this process so far, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # where the system's other count begins with the parent's
        return next(float(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e3
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def machine(libraries: Iterable[str] = ("numpy", "numba", "pyarrow")) -> str:
    """The machine in a sentence: processor, cores, load, system and versions, without its name."""
    versions = [f"{name} {found}" for name in libraries if (found := installed(name))]
    busy = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    system = f"{platform.system()} {platform.machine()}"
    return f"{processor()}, {os.cpu_count()} cores{busy}; {system}, Python {platform.python_version()}, {', '.join(versions)}."


def processor() -> str:
    """The model of the processor, as the operating system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def installed(library: str) -> str:
    """The version of a library; an empty text if it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
