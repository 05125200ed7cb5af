"""The benchmark "scale": how cost and memory grow with features, actions, rounds and refits."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mebandit import schedules
from mebandit.environments import Gaussian
from mebandit.experiments.bench.measuring import BenchOptions, Done, Times, in_turns, timed
from mebandit.experiments.bench.simulating import Runner
from mebandit.live.learner import Learner
from mebandit.policies import LinearPolicy, lin_ucb, meb, meb_dr, thompson
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.simulation.simulate import BLOCK

if TYPE_CHECKING:
    import matplotlib.figure

DIMS = (5, 10, 20, 50, 100)
ACTIONS = (2, 5, 10, 20, 50)
HORIZONS = (10_000, 100_000, 1_000_000)
Recipes = dict[str, Callable[[int, int], LinearPolicy]]
BY_DIM: Recipes = {
    "MEB": meb,
    "MEB, refit every 10": lambda k, d: meb(k, d, refit=10),
    "MEB, refit at powers of 2": lambda k, d: meb(k, d, refit=schedules.PowersOf(2)),
    "UCB": lin_ucb,
}
BY_ACTIONS: Recipes = {"MEB": meb, "MEB-DR": meb_dr, "UCB": lin_ucb, "TS": thompson}


def world(dim: int, n_actions: int) -> Gaussian:
    """An environment of a size, with the same signal at every size."""
    rng = np.random.default_rng(0)
    return Gaussian(theta=rng.normal(size=(n_actions, dim)), mean=1.0 / np.sqrt(dim), cov=1.0 / dim, error_cov=0.25 / dim)


def steps(options: BenchOptions) -> int:
    """The number of steps of the progress bar."""
    return options.repeats * (len(DIMS) * len(BY_DIM) + len(ACTIONS) * len(BY_ACTIONS)) + 10 * len(HORIZONS)


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Measure the growth with features, actions and rounds, and the memory of a learner."""
    by_dim = {d: _costs(BY_DIM, 2, d, options, done) for d in DIMS}
    by_actions = {k: _costs(BY_ACTIONS, k, 5, options, done) for k in ACTIONS}
    drawn = picture(draw(by_dim, by_actions))
    return [
        Section(
            title="Growth with the number of features, K = 2",
            setting=SETTING,
            finding=f"From d = {DIMS[0]} to d = {DIMS[-1]} a round of MEB takes {_growth(by_dim, 'MEB'):,.0f} times as long where θ is "
            f"solved for after each (d³), {_growth(by_dim, 'MEB, refit at powers of 2'):,.0f} times where it is at powers of 2 (d²).",
            table=_table("d", by_dim),
        ),
        Section(
            title="Growth with the number of actions, d = 5",
            setting=SETTING,
            finding=f"From 2 actions to {ACTIONS[-1]} a round of MEB takes {_growth(by_actions, 'MEB'):,.0f} times as long, one of UCB "
            f"{_growth(by_actions, 'UCB'):,.0f} times. TS computes the probability of each action to be the best by quadrature.",
            table=_table("K", by_actions),
            pictures={"growth": drawn},
        ),
        _long_runs(done),
        _memory(),
    ]


SETTING = "Simulated rounds on one core, the tape drawn beforehand; microseconds per round, median (best)."


def _costs(recipes: Recipes, k: int, d: int, options: BenchOptions, done: Done) -> dict[str, Times]:
    """Seconds per round by recipe."""
    rounds = max(16, min(BLOCK, 200_000 // (k * d * d)))
    runners = {name: Runner(world(d, k), make(k, d), warm=40 * k * d, rounds=rounds) for name, make in recipes.items()}
    times = in_turns({name: timed(runner.play) for name, runner in runners.items()}, options.repeats, done)
    return {name: found.per(rounds) for name, found in times.items()}


def _growth(found: dict[int, dict[str, Times]], name: str) -> float:
    """The ratio of the times at the largest and the smallest size."""
    sizes = list(found)
    return found[sizes[-1]][name].median / found[sizes[0]][name].median


def _table(what: str, found: dict[int, dict[str, Times]]) -> Table:
    """A row for each size, a column for each recipe."""
    names = list(next(iter(found.values())))
    return Table([what, *names], [[str(size), *(costs[name].micro() for name in names)] for size, costs in found.items()])


LONG_RUN = """
import json, sys
from time import perf_counter
import mebandit as mb
from mebandit.experiments.bench.measuring import peak_megabytes
from mebandit.simulation.simulate import compile_ahead

compile_ahead()
times = []
for _ in range(3):
    begun = perf_counter()
    mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=int(sys.argv[1]), replicates=1, references=False, workers=1)
    times.append(perf_counter() - begun)
print(json.dumps([min(times), peak_megabytes()]))
"""


def _long_runs(done: Done) -> Section:
    """The time and memory of whole simulations, each in a process of its own, by horizon."""
    rows, each = [], []
    for horizon in HORIZONS:
        answer = subprocess.run([sys.executable, "-c", LONG_RUN, str(horizon)], check=True, capture_output=True, text=True).stdout
        seconds, megabytes = json.loads(answer)
        each.append(seconds / horizon)
        rows.append([f"{horizon:,}", f"{seconds:.2f}", f"{1e6 * seconds / horizon:.2f}", f"{megabytes:.0f}"])
        for _ in range(10):
            done()
    return Section(
        title="Growth with the number of rounds",
        setting="One replicate of MEB in the paper's world, tape and all, the best of three in a process of its own, and the most memory "
        "that this process held.",
        finding=f"A round takes {1e6 * each[0]:.2f} µs in a run of {HORIZONS[0]:,} and {1e6 * each[-1]:.2f} µs in one of {HORIZONS[-1]:,}. "
        "Random numbers are drawn block by block, so that no array has the length of the run.",
        table=Table(["rounds", "seconds", "µs per round", "MB held at most"], rows),
    )


def _memory() -> Section:
    """The memory of a learner, and of a decision that waits for its reward."""
    rows = []
    for k, d in ((2, 5), (5, 20), (10, 50)):
        cells = []
        for make in (meb, meb_dr):
            learner = Learner(make(k, d), seed=1)
            cells.append(f"{sum(part.nbytes for part in learner.state) / 1e3:,.1f}")
        cells.append(f"{_waiting(Learner(meb(k, d), seed=1)):,.0f}")
        rows.append([f"d = {d}, K = {k}", *cells])
    return Section(
        title="Memory of a learner",
        setting="The state in kilobytes, whatever was learned; and bytes for each decision that waits for its reward, under one Σe.",
        finding="The state has O(K d²) numbers and does not grow with rounds; forget decisions whose reward will never come.",
        table=Table(["", "MEB, kB", "MEB-DR, kB", "bytes per waiting decision"], rows),
    )


def _waiting(learner: Learner, decisions: int = 1000) -> float:
    """Bytes of a decision that waits for its reward."""
    x, error_cov = np.ones(learner.policy.dim), np.eye(learner.policy.dim)
    learner.decide(x, error_cov)
    tracemalloc.start()
    for _ in range(decisions):
        learner.decide(x, error_cov)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / decisions


def draw(by_dim: dict[int, dict[str, Times]], by_actions: dict[int, dict[str, Times]]) -> "matplotlib.figure.Figure":
    """Microseconds per round against d and against K, both on log scales."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    figure = canvas(11, 3.9)
    colours = colours_of([*next(iter(by_dim.values())), *next(iter(by_actions.values()))])
    panels = (("features d, K = 2", by_dim), ("actions K, d = 5", by_actions))
    for axes, (what, found) in zip(figure.subplots(1, 2), panels, strict=True):
        sizes = list(found)
        for name in found[sizes[0]]:
            medians = [1e6 * found[size][name].median for size in sizes]
            axes.plot(sizes, medians, marker="o", markersize=4, linewidth=1.6, label=name, color=colours[name])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlabel(what)
        axes.set_ylabel("µs per simulated round")
        plain(axes)
        axes.legend(frameon=False, fontsize=9)
    return figure
