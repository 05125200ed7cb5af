"""What a baseline does to the standard errors of dr, and that it does not bias them where its working model is wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from mebandit.analysis.effects import average_effect
from mebandit.environments.base import Wrapped, tape_of
from mebandit.estimation.estimate import estimate
from mebandit.experiments.small_samples import GAUSSIAN, THETA
from mebandit.policies import meb_dr
from mebandit.reports.table import Table
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.simulation.simulate import simulate_log
from mebandit.values import Floats, Stretch, Tape

ROUNDS = 500
SIZE = 1.28
"""standard deviation of what the extra column adds to rewards; that of everything else is about the same"""


def drawn(stretch: Stretch) -> Floats:
    """The extra column s of some rounds: standard normal, independent of the context."""
    return np.random.default_rng([stretch.seed, stretch.cell, stretch.replicate, 4]).standard_normal(stretch.stop)[stretch.start :]


def linear(s: Floats) -> Floats:
    """What s adds to the reward, with standard deviation 1: a line, which the working model can follow."""
    return s


def bent(s: Floats) -> Floats:
    """Half of its variance is a line and half a parabola, which the working model cannot follow."""
    return np.asarray((s + (s**2 - 1) / np.sqrt(2)) / np.sqrt(2))


def folded(s: Floats) -> Floats:
    """A parabola: the working model is wrong altogether."""
    return np.asarray((s**2 - 1) / np.sqrt(2))


SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "a line: the working model is right": linear,
    "a line and a parabola: it is half right": bent,
    "a parabola: it is wrong": folded,
}


@dataclass(frozen=True, kw_only=True)
class WithColumn(Wrapped):
    """An environment in whose rewards a further column s has a part, r_t = ⟨θ_a, x_t⟩ + `SIZE` g(s_t) + η_t."""

    shape: Callable[[Floats], Floats]
    """g"""

    def tape(self, stretch: Stretch) -> Tape:
        """All that is random in a stretch of rounds, see `Environment.tape`."""
        tape = tape_of(self.world, stretch)
        return tape._replace(noise=tape.noise + SIZE * self.shape(drawn(stretch))[:, None])


class Compared(NamedTuple):
    """One trial: the average effect and the first coefficient of θ_1 - θ_0, without the baseline, with it, and with it seen with error."""

    values: Floats
    """(3, 2)"""
    std_errors: Floats
    covered: Floats
    share: float
    """of the variance of the rewards that g(s) has"""


def trial(shape: Callable[[Floats], Floats], seed: int, cell: int, replicate: int) -> Compared:
    """One trial of the default policy, analysed three times."""
    world = WithColumn(world=GAUSSIAN, shape=shape)
    log = simulate_log(world, meb_dr(2, 2), horizon=ROUNDS, seed=seed, cell=cell, replicate=replicate)
    s = drawn(Stretch(seed, cell, replicate, 0, ROUNDS))
    noisy = s + np.random.default_rng([seed, cell, replicate, 5]).normal(0, 0.5, ROUNDS)
    truth = np.array(THETA)[1] - np.array(THETA)[0]
    rows = []
    for baseline in (None, s, noisy):
        found = estimate(log.predicted, log.actions, log.rewards, log.propensities, 0.5, method="dr", intercept=True, baseline=baseline)
        effect, contrast = average_effect(found, 1, 0, np.ones(2), np.zeros((2, 2))), found.contrast(1, 0)
        low, high = np.array([effect.interval(), contrast.interval()[0]]).T
        goal = np.array([truth.sum(), truth[0]])
        rows.append(((effect.value, contrast.theta[0]), (effect.std_error, contrast.std_error[0]), (low <= goal) & (goal <= high)))
    values, std_errors, covered = (np.array(part, dtype=np.float64) for part in zip(*rows, strict=True))
    return Compared(values, std_errors, covered, float(np.var(SIZE * shape(s)) / np.var(log.rewards)))


def baseline_table(*, replicates: int = 1000, seed: int = 5, workers: Workers = None, progress: Show = None) -> Table:
    """Standard errors, bias and coverage with and without the baseline, by what the extra column does to the reward.

    Args:
        replicates: Trials of each.
        seed: Of the simulation.
        workers: As in `simulate`.
        progress: As in `simulate`.
    """
    truth = np.array(THETA)[1] - np.array(THETA)[0]
    rows = []
    for cell, (name, shape) in enumerate(SHAPES.items()):
        with hired(workers) as pool, progress_bar(replicates, name, progress) as done:
            found = list(pool.in_order(partial(trial, shape, seed, cell), range(replicates), done))
        values, errors, covered, shares = (np.stack([np.asarray(one[i]) for one in found]) for i in range(4))
        for j, what in enumerate(("average effect", "θ_1 - θ_0 [0]")):
            for i, given in enumerate(("none", "s", "s with error")):
                mean = errors[:, i, j].mean()
                bias = values[:, i, j].mean() - (truth.sum() if j == 0 else truth[0])
                noise = values[:, i, j].std() / np.sqrt(len(found))
                less = 100 * (1 - mean / errors[:, 0, j].mean())
                cells = [f"{mean:.3f}", f"{less:.0f} %", f"{bias:+.4f} ± {noise:.4f}", f"{100 * covered[:, i, j].mean():.1f}"]
                rows.append([f"{name} ({100 * shares.mean():.0f} % of the variance)", what, given, *cells])
    return Table(["s adds to the reward", "parameter", "baseline", "mean s.e.", "smaller by", "bias ± s.e.", "coverage in %"], rows)
