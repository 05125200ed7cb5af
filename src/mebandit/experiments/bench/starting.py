"""The benchmark "start": the first call in a new process, with a compile cache and without."""

import sys
import tempfile
from contextlib import ExitStack
from functools import partial

from mebandit.experiments.bench.measuring import BenchOptions, Done, Times, in_turns, seconds_of
from mebandit.reports.page import Section
from mebandit.reports.table import Table

SCRIPTS = {
    "Python alone": "",
    "import numpy": "import numpy",
    "import numba": "import numba",
    "import mebandit": "import mebandit",
    "first decide and learn": """
import mebandit as mb
learner = mb.Learner(mb.meb_dr(2, 5), seed=1)
learner.learn(learner.decide([0.1, 0.2, 0.3, 0.4, 0.5], 0.2), 1.0)
""",
    "first simulation": """
import mebandit as mb
mb.simulate(mb.environments.Gaussian(), [mb.meb_dr(2, 5)], horizon=100, replicates=1, workers=1, progress=False)
""",
}
COMPILING = ("first decide and learn", "first simulation")
WEIGHT = 40
"""steps of the progress bar for a process that compiles"""


def steps(options: BenchOptions) -> int:
    """The number of steps of the progress bar."""
    return len(SCRIPTS) * options.repeats + WEIGHT * len(COMPILING)


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Measure, with a compile cache for each script."""
    with ExitStack() as stack:
        caches = {name: stack.enter_context(tempfile.TemporaryDirectory()) for name in SCRIPTS}
        cold = {}
        for name in COMPILING:
            cold[name] = process(SCRIPTS[name], caches[name])
            for _ in range(WEIGHT):
                done()
        warm = in_turns({name: partial(process, script, caches[name]) for name, script in SCRIPTS.items()}, options.repeats, done)
    return [section(warm, cold)]


def process(script: str, cache: str) -> float:
    """Seconds of a new process that uses the compile cache in a folder."""
    return seconds_of(sys.executable, "-c", script, environment={"NUMBA_CACHE_DIR": cache})


def section(warm: dict[str, Times], cold: dict[str, float]) -> Section:
    """The report, from the times with a cache and without."""
    rows = [[name, f"{times.median:.2f} ({times.best:.2f})", f"{cold[name]:.1f}" if name in cold else ""] for name, times in warm.items()]
    first, bare = warm["first decide and learn"].median, warm["import numba"].median
    return Section(
        title="From a cold start",
        setting="Seconds of a whole process, from its start to its end: with everything in the compile cache, median (best); and with an "
        "empty cache, once.",
        finding=f"With the cache, a process has decided and learned after {first:.2f} s, {first - bare:.2f} s of which are not spent on "
        f"importing numba. The first use on a machine compiles for {cold['first decide and learn']:.0f} s.",
        table=Table(["process", "with a compile cache", "with none"], rows),
    )
