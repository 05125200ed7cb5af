"""How often the truth leaves an anytime band at any of many looks, with rewards that come late, and how wide the band is.

The tables of docs/background/anytime.md are made here.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.analysis.effects import average_effect
from mebandit.environments.base import tape_of
from mebandit.estimation.anytime import boundary, multiples
from mebandit.estimation.estimate import estimates_of
from mebandit.estimation.methods import Options
from mebandit.estimation.moments import Rounds, check_rounds
from mebandit.estimation.student import t_quantile
from mebandit.experiments.small_samples import GAUSSIAN, THETA
from mebandit.live.learner import Learner
from mebandit.policies import meb_dr
from mebandit.reports.table import Table
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.values import Floats, Stretch

LATE = 20
"""rounds after which a reward comes"""
LOOKS = tuple(range(20, 1001, 20))
"""rounds with a reward at each look"""
QUANTITIES = ("θ_0[0]", "θ_0[1]", "θ_1[0]", "θ_1[1]", "θ_1 - θ_0 [0]", "θ_1 - θ_0 [1]", "average effect")
WIDTHS = (40, 60, 100, 200, 400, 600, 1000)
"""looks at which the width is measured"""
LEVEL = 0.95
STARTS = (20, 60, 100, 200, 400)
"""looks at which one may begin to look"""


def late_log(seed: int, replicate: int, rounds: int) -> Rounds:
    """The rounds of a learner with the default policy, who learns every reward `LATE` rounds after its decision, in the order of decisions.

    Args:
        seed: Of the simulation.
        replicate: The number of the trial.
        rounds: How many there are.
    """
    tape = tape_of(GAUSSIAN, Stretch(seed, 0, replicate, 0, rounds))
    seen, error_cov = tape.context + tape.error, tape.error_cov[0]
    learner = Learner(meb_dr(2, 2), seed=seed + replicate)
    waiting, actions, propensities, rewards = [], np.zeros(rounds, dtype=np.int64), np.zeros(rounds), np.zeros(rounds)
    for t in range(rounds):
        decision = learner.decide(seen[t], error_cov)
        actions[t], propensities[t] = decision.action, decision.propensity
        rewards[t] = np.dot(THETA[decision.action], tape.context[t]) + tape.noise[t, decision.action % tape.noise.shape[1]]
        waiting.append(decision)
        if t >= LATE:
            learner.learn(waiting[t - LATE], rewards[t - LATE])
    return check_rounds(seen, actions, rewards, propensities, error_cov, n_actions=2)


class Bands(NamedTuple):
    """What one trial gives, by look and quantity."""

    outside: Floats
    """whether the truth is outside the anytime band; NaN where there is none, (looks, quantities)"""
    outside_once: Floats
    """the same for the interval of one look"""
    ratio: Floats
    """the width of the anytime band of the average effect in widths of its one-look interval, at the looks `WIDTHS`, (looks,)"""


def trial(seed: int, replicate: int) -> Bands:
    """One trial, looked at `LOOKS`."""
    rounds = late_log(seed, replicate, LOOKS[-1])
    truth = np.array(THETA)
    values = np.r_[truth.ravel(), truth[1] - truth[0], (truth[1] - truth[0]).sum()]
    shape = len(LOOKS), len(values)
    found = Bands(np.full(shape, np.nan), np.full(shape, np.nan), np.full(len(LOOKS), np.nan))
    for i, n in enumerate(LOOKS):
        counts = np.bincount(rounds.actions[:n], minlength=2)
        if counts.min() < 1:
            continue
        own = estimates_of(rounds.taken(np.arange(n)), 2, ("dr",), Options(), strict=False)["dr"]
        if own.guarded.any():
            continue
        contrast, effect = own.contrast(1, 0), average_effect(own, 1, 0, np.ones(2), np.zeros((2, 2)))
        center, std_error, df = (
            np.r_[np.ravel(arms), between, alone]
            for arms, between, alone in (
                (own.theta, contrast.theta, effect.value),
                (own.std_error, contrast.std_error, effect.std_error),
                (own.df, contrast.df, effect.df),
            )
        )
        away = np.abs(center - values) / std_error
        found.outside[i], found.outside_once[i] = _beyond(away, df, n), _beyond(away, df, None)
        if n in WIDTHS:
            found.ratio[i] = multiples(n, LEVEL, df[-1:])[0] / t_quantile(0.5 + LEVEL / 2, df[-1:])[0]
    return found


def _beyond(away: Floats, df: Floats, n: int | None) -> Floats:
    """Whether estimates are further from the truth, in standard errors, than their intervals reach; n rounds, None: at one look."""
    least = boundary(n, LEVEL) if n else float(kernels.normal_quantile(0.5 + LEVEL / 2))  # Student's t reaches at least as far
    beyond, far = np.where(np.isfinite(away), 0.0, np.nan), away > least
    reach = multiples(n, LEVEL, df[far]) if n else t_quantile(0.5 + LEVEL / 2, df[far])
    beyond[far] = away[far] > reach
    return beyond


@dataclass(frozen=True)
class AnytimeStudy:
    """All trials together."""

    bands: Bands
    """(trials, looks, quantities)"""
    seed: int

    @property
    def replicates(self) -> int:
        """The number of trials."""
        return len(self.bands.outside)

    def left(self, start: int, outside: Floats) -> Floats:
        """The share of trials in which the truth was outside at any look from `start` on, by quantity.

        Args:
            start: The rounds with a reward at the first look.
            outside: Of bands or of intervals.
        """
        first = LOOKS.index(start)
        return np.asarray((np.nan_to_num(outside[:, first:]) > 0).any(axis=1).mean(axis=0))

    def left_table(self) -> Table:
        """That share in %, by first look."""
        rows = []
        for start in STARTS:
            band, once = (100 * self.left(start, own) for own in (self.bands.outside, self.bands.outside_once))
            rows.append([f"{start}", *(f"{one:.1f}" for one in band), f"{band.max():.1f}", f"{once.min():.0f} to {once.max():.0f}"])
        return Table(["first look at", *QUANTITIES, "largest", "one-look intervals"], rows)

    def width_table(self) -> Table:
        """How wide the band is, in widths of a one-look interval, and how often there is one."""
        rows = []
        for n in WIDTHS:
            ratio = self.bands.ratio[:, LOOKS.index(n)]
            there = np.isfinite(ratio)
            rows.append([f"{n}", f"{100 * there.mean():.1f} %", *(f"{q:.2f}" for q in np.quantile(ratio[there], (0.1, 0.5, 0.9)))])
        return Table(["rounds", "trials with a band", "10th percentile", "median", "90th percentile"], rows)


def run_anytime(*, replicates: int = 2000, seed: int = 3, workers: Workers = None, progress: Show = None) -> AnytimeStudy:
    """Trials of the default policy with late rewards, each looked at 50 times.

    Args:
        replicates: The number of trials.
        seed: Of the simulation.
        workers: As in `simulate`.
        progress: As in `simulate`.
    """
    with hired(workers) as pool, progress_bar(replicates, "anytime bands", progress) as done:
        found = list(pool.in_order(partial(trial, seed), range(replicates), done))
    return AnytimeStudy(Bands(*(np.stack(parts) for parts in zip(*found, strict=True))), seed)
