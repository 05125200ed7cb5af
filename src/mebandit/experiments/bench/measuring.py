"""How everything is measured: in turns, in processes of their own where that matters, on a machine that is named."""

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
"""what keeps linear algebra to one core: with matrices this small, more of them only get in each other's way"""

Done = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What a run of the benchmarks may be told."""

    repeats: int = 15
    """how often each takes its turn"""
    rows: int = 2_000_000
    """of the log that is analysed"""
    pythons: tuple[str, ...] = ()
    """interpreters in which to look for other libraries, after this one"""


class Times(NamedTuple):
    """The seconds that something took in its turns."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.turns)

    @property
    def best(self) -> float:
        return min(self.turns)

    def over(self, other: "Times") -> float:
        """How many times as long as another took: the median over turns, since turns that are neighbours met the same disturbances."""
        return median(mine / theirs for mine, theirs in zip(self.turns, other.turns, strict=True))

    def per(self, n: float) -> "Times":
        return Times(tuple(seconds / n for seconds in self.turns))

    def micro(self) -> str:
        """Median and best, in microseconds."""
        return f"{1e6 * self.median:,.{_digits(1e6 * self.median)}f} ({1e6 * self.best:,.{_digits(1e6 * self.best)}f})"


def _digits(value: float) -> int:
    return 2 if value < 1 else 1 if value < 100 else 0


def in_turns(work: Mapping[str, Callable[[], float]], repeats: int, done: Done) -> dict[str, Times]:
    """Time several things A B C A B C ...: a busy neighbour then slows all of them, and not the one that was running at the time."""
    turns: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, seconds in work.items():
            turns[name].append(seconds())
            done()
    return {name: Times(tuple(found)) for name, found in turns.items()}


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """The same work, giving back the seconds it took."""

    def seconds() -> float:
        begun = perf_counter()
        work()
        return perf_counter() - begun

    return seconds


class Stopped(Exception):
    """A process ended before it answered."""


class Worker:
    """A process that answers lines of JSON with lines of JSON."""

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
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self.answer()

    def answer(self) -> Any:
        """The next line; Stopped, with the last line of its complaint, if there is none."""
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
    """How long a whole process takes, from its start to its end."""
    begun = perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | dict(environment or {}))
    return perf_counter() - begun


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():  # where the system's other count begins with the parent's
        return next(float(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e3
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def machine(libraries: Iterable[str] = ("numpy", "numba", "pyarrow")) -> str:
    """The machine in a sentence: its processor, how many cores, and what runs on it; not whose it is."""
    versions = [f"{name} {found}" for name in libraries if (found := installed(name))]
    busy = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    system = f"{platform.system()} {platform.machine()}"
    return f"{processor()}, {os.cpu_count()} cores{busy}; {system}, Python {platform.python_version()}, {', '.join(versions)}."


def processor() -> str:
    """The processor's model, as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def installed(library: str) -> str:
    """The version of a library, or nothing."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
