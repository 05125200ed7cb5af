"""The benchmark "live": decide and learn, one round at a time, with `Learner` and with other libraries."""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mebandit.experiments.bench import contestants
from mebandit.experiments.bench.contestants import CONTESTANTS, EPSILON, OURS
from mebandit.experiments.bench.measuring import ONE_THREAD, BenchOptions, Done, Stopped, Times, Worker, in_turns
from mebandit.reports.colours import PALETTE
from mebandit.reports.figures import canvas, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.values import Floats

if TYPE_CHECKING:
    import matplotlib.figure

SIZES = ((5, 2), (20, 5))
"""(d, K) of the tasks"""
BLOCK = 250
"""rounds in a turn"""
REFERENCE = "lin_ucb"
"""our policy that the other libraries are compared with, since most of them have the same"""


class Task(NamedTuple):
    """A linear bandit whose contexts are seen with error, as arrays that every contestant plays."""

    predicted: Floats
    """x̃, (T, d)"""
    rewards: Floats
    """the reward of every action, (T, K)"""
    values: Floats
    """the mean reward of every action, ⟨θ_a, x⟩, (T, K)"""
    error_cov: Floats

    def regret(self, actions: list[int]) -> float:
        """The regret of actions against the best ones, as a share of the regret of uniform play in the same rounds."""
        played = self.values[: len(actions)]
        lost = played.max(axis=1) - played[np.arange(len(actions)), actions]
        return float(lost.sum() / (played.max(axis=1) - played.mean(axis=1)).sum())


def make_task(dim: int, n_actions: int, rounds: int) -> Task:
    """A random task of a size."""
    rng = np.random.default_rng(dim)
    theta = rng.normal(size=(n_actions, dim))
    x = rng.normal(1 / np.sqrt(dim), 1.0, (rounds, dim))
    predicted = x + rng.normal(0.0, 0.5, x.shape)
    values = x @ theta.T
    return Task(predicted, values + rng.normal(0.0, 0.3, values.shape), values, 0.25 * np.eye(dim))


@dataclass(frozen=True)
class Comparison:
    """The results for one size."""

    dim: int
    n_actions: int
    times: dict[str, Times]
    """seconds per round, by contestant"""
    regret: dict[str, float]

    @property
    def title(self) -> str:
        """The title of the section."""
        return f"Decide and learn, d = {self.dim}, K = {self.n_actions}"

    def ratio(self, name: str) -> float:
        """The time of a contestant, divided by that of `REFERENCE`."""
        return self.times[name].over(self.times[REFERENCE])

    @property
    def peers(self) -> list[str]:
        """The other libraries, fastest first, without the plain loop in numpy."""
        return sorted((n for n in self.times if n not in OURS and n != "numpy"), key=lambda n: self.times[n].median)

    def table(self) -> Table:
        """A row for each contestant: ours first, then the others, fastest first."""
        ours = [name for name in OURS if name in self.times]
        others = sorted(set(self.times) - set(OURS), key=lambda n: self.times[n].median)
        rows = [[_who(name), self.times[name].micro(), f"{self.ratio(name):.2f}", f"{self.regret[name]:.2f}"] for name in (*ours, *others)]
        return Table(["", "µs: median (best)", "× our LinUCB", "regret"], rows, {(i, 0) for i in range(len(ours))})

    def finding(self) -> str:
        """The table in words, made from its numbers."""
        if not self.peers:
            return "No other library was found to compare with."
        words = self._against("library", self.peers[0])
        ucb = [name for name in self.peers if _is_ucb(name)]
        if ucb and ucb[0] != self.peers[0]:
            words += " " + self._against("LinUCB", ucb[0])
        slow = ", ".join(_who(name) for name in self.peers if self.regret[name] >= 1)
        return words + (f" With a regret no less than that of uniform play: {slow}." if slow else " All of them learn.")

    def _against(self, kind: str, peer: str) -> str:
        """How many times as fast as another library each of our policies is, in words."""
        factors = {name: self.times[peer].over(self.times[name]) for name in OURS}
        said = ", ".join(f"{factor:.2f} ({CONTESTANTS[name].method.split(',')[0]})" for name, factor in factors.items())
        least = [CONTESTANTS[name].method.split(",")[0] for name, factor in factors.items() if factor < 2]
        short = f"; not twice as fast: {', '.join(least)}" if least else ""
        return f"The fastest {kind}, {_who(peer)}, takes {1e6 * self.times[peer].median:.1f} µs, times ours: {said}{short}."


def _who(name: str) -> str:
    """A contestant in words."""
    return f"{CONTESTANTS[name].library}: {CONTESTANTS[name].method}"


def _is_ucb(name: str) -> bool:
    return CONTESTANTS[name].method.startswith("LinUCB")


SETTING = (
    "All contestants meet the same contexts and, for the same actions, the same rewards, one round at a time, each in a process of its own "
    f"on one thread, in turns of {BLOCK} rounds (A B C A B C ...; the first turn is not counted). Every library is used as its "
    "documentation shows for decisions that come one by one, with its usual linear method; Vowpal Wabbit also in its faster mode for a "
    "fixed set of actions. Contexts are x̃ = x + ε, with an error variance of 0.25 beside a variance of 1. Regret is at the true context, "
    f"as a share of what uniform play loses; a policy that acts at random in {100 * EPSILON:g} % of the rounds, as ours do here, has at "
    f"least {EPSILON:g}.\n\n"
    "`Learner` does more than the others: it checks every number (also the covariance of the error), draws from probabilities "
    "that keep a floor and returns them, keeps a decision until its reward comes, whenever that is, and, but for LinUCB and least squares, "
    "corrects for the error. It solves for θ again after each round from exact sums, in d³/6 multiplications for every action whose sums "
    "changed (in MEB and MEB-DR all of them), where others update an inverse (LinUCB, d²) or take a gradient step (Vowpal Wabbit, d). "
    "While MEB's corrected matrix is not safely positive definite, as in the first 2,000 rounds or so at d = 20, K = 5, a round takes it "
    "about eleven times as long as later, which a median does not show."
)


def steps(options: BenchOptions) -> int:
    """The number of steps of the progress bar."""
    return len(SIZES) * (options.repeats + 1) * len(CONTESTANTS) + len(CONTESTANTS)


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Measure both sizes. A contestant that is missing or fails is named in the report, with the reason."""
    tasks = [make_task(dim, n_actions, BLOCK * (options.repeats + 1)) for dim, n_actions in SIZES]
    found, missing = find(options.pythons)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "tasks.npz"
        arrays = {f"contexts_{i}": task.predicted for i, task in enumerate(tasks)}
        arrays |= {f"rewards_{i}": task.rewards for i, task in enumerate(tasks)}
        arrays |= {f"error_cov_{i}": task.error_cov for i, task in enumerate(tasks)}
        np.savez(path, allow_pickle=False, n=np.array(len(tasks)), **arrays)
        workers = {}
        for name, (python, _) in found.items():
            worker = stack.enter_context(Worker(python, contestants.__file__, name, str(path), environment=ONE_THREAD))
            try:
                worker.answer()
                workers[name] = worker
            except Stopped as reason:
                missing.append(f"{_who(name)} could not start ({reason}) and was left out.")
            done()
        played = [_play(i, task, workers, options, done) for i, task in enumerate(tasks)]
    drawn = {"live": picture(draw(played))}
    versions = {CONTESTANTS[name].library: version for name, (_, version) in found.items() if name in workers}
    note = " ".join([f"Measured: {', '.join(f'{library} {version}' for library, version in versions.items())}.", *missing])
    return [
        Section(
            title=size.title,
            setting=SETTING if i == 0 else "As above.",
            finding=size.finding() + (f" {note}" if i == 0 else ""),
            table=size.table(),
            pictures=drawn if i == len(played) - 1 else {},
        )
        for i, size in enumerate(played)
    ]


def find(pythons: tuple[str, ...]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """For each contestant the first interpreter that has its library, and the version; and a sentence for each missing library."""
    found: dict[str, tuple[str, str]] = {}
    for python in (sys.executable, *pythons):
        answer = subprocess.run([python, contestants.__file__], capture_output=True, text=True, check=True).stdout
        for name, version in json.loads(answer).items():
            found.setdefault(name, (python, version))
    absent = dict.fromkeys(who.library for name, who in CONTESTANTS.items() if name not in found)
    ordered = {name: found[name] for name in CONTESTANTS if name in found}
    return ordered, [f"{library} is not installed and was left out." for library in absent]


def _play(number: int, task: Task, workers: dict[str, Worker], options: BenchOptions, done: Done) -> Comparison:
    actions: dict[str, list[int]] = {name: [] for name in workers}

    def turn(name: str) -> float:
        first = len(actions[name])
        seconds, taken = workers[name].ask([number, first, first + BLOCK])
        actions[name] += taken
        return float(seconds) / BLOCK

    times = in_turns({name: partial(turn, name) for name in workers}, options.repeats + 1, done)
    dim, n_actions = task.predicted.shape[1], task.rewards.shape[1]
    warm = {name: Times(found.turns[1:]) for name, found in times.items()}
    return Comparison(dim, n_actions, warm, {name: task.regret(taken) for name, taken in actions.items()})


def draw(played: list[Comparison]) -> "matplotlib.figure.Figure":
    """Microseconds per round, a dot for each contestant, on a log scale; a panel for each size, all in the order of the first."""
    from matplotlib.ticker import StrMethodFormatter

    names = sorted(played[0].times, key=lambda n: -played[0].times[n].median)
    figure = canvas(11, 1.4 + 0.3 * len(names))
    panels = np.atleast_1d(figure.subplots(1, len(played), sharex=True, sharey=True))
    for axes, size in zip(panels, played, strict=True):
        for i, name in enumerate(names):
            best, median = 1e6 * size.times[name].best, 1e6 * size.times[name].median
            color = PALETTE["blue" if name in OURS else "grey"]
            axes.plot([best, median], [i, i], color=color, linewidth=2.5, solid_capstyle="butt")
            axes.plot(median, i, marker="o", color=color, markersize=7)
            said = f"{median:,.0f}" if median >= 100 else f"{median:.1f}"
            axes.annotate(said, (median, i), (7, -3), textcoords="offset points", fontsize=8)
        twice = 2e6 * size.times[REFERENCE].median
        axes.axvline(twice, color=PALETTE["red"], linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate("twice our LinUCB", (twice, 0), (4, -3), textcoords="offset points", fontsize=8, color=PALETTE["red"])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_title(f"d = {size.dim}, K = {size.n_actions}", fontsize=10, loc="left")
        axes.set_xlabel("µs for decide + learn: best to median", fontsize=9)
        plain(axes, grid="x")
    panels[0].set_yticks(range(len(names)), [f"{CONTESTANTS[n].library}: {CONTESTANTS[n].method.split(',')[0]}" for n in names], fontsize=8)
    for label, name in zip(panels[0].get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name in OURS else "normal")
    panels[0].set_xlim(right=1.8e6 * max(t.median for size in played for t in size.times.values()))
    return figure
