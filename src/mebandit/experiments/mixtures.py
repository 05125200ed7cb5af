"""Coverage where the error is a mixture of classical and Berkson error, and a few validation pairs say what it is."""

from functools import partial

import numpy as np

from mebandit.checks import MebanditError
from mebandit.estimation.estimate import estimate
from mebandit.measurement import from_validation
from mebandit.reports.table import Table
from mebandit.runtime.progress import Show, progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.values import Floats

ROUNDS, ERROR = 1000, 0.5
PAIRS, SHARES = (60, 100, 300), (0.0, 0.5, 1.0)
"""numbers of validation pairs; shares of the error's variance that are of Berkson's kind"""
SLOPES = np.array([0.0, 1.0])
"""of the two actions"""


def drawn(n: int, share: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Contexts and predictions: x = w + u and x̃ = w + v, where u is Berkson's error and v the classical one."""
    w = rng.normal(1, 1, n)
    return w + rng.normal(0, np.sqrt(share * ERROR), n), w + rng.normal(0, np.sqrt((1 - share) * ERROR), n)


def trial(pairs: int, share: float, seed: int, replicate: int) -> Floats:
    """Whether the intervals of dr hold the slopes of both actions and their difference; NaN where there is no estimate."""
    rng = np.random.default_rng([seed, pairs, round(100 * share), replicate])
    truth, seen = drawn(pairs, share, rng)
    x, predicted = drawn(ROUNDS, share, rng)
    send = np.where(predicted > 1, 0.8, 0.2)
    actions = (rng.random(ROUNDS) < send).astype(np.int64)
    rewards = 0.5 + SLOPES[actions] * x + rng.normal(0, 0.5, ROUNDS)
    propensities = np.where(actions == 1, send, 1 - send)
    try:
        model = from_validation(seen[:, None], truth[:, None])
        own = estimate(predicted[:, None], actions, rewards, propensities, model, method="dr", intercept=True)
    except MebanditError:
        return np.full(3, np.nan)
    ends, goal = np.vstack([own.interval()[:, 0], own.contrast(1, 0).interval()]), np.append(SLOPES, 1.0)
    return np.asarray((ends[:, 0] <= goal) & (goal <= ends[:, 1]), dtype=np.float64)


def mixture_table(*, replicates: int = 2000, seed: int = 6, workers: Workers = None, progress: Show = None) -> Table:
    """Coverage in % by the number of pairs and the share of Berkson error.

    Args:
        replicates: Trials of each.
        seed: Of the simulation.
        workers: As in `simulate`.
        progress: As in `simulate`.
    """
    rows = []
    for pairs in PAIRS:
        for share in SHARES:
            with hired(workers) as pool, progress_bar(replicates, f"{pairs} pairs, {share:g}", progress) as done:
                found = np.stack(list(pool.in_order(partial(trial, pairs, share, seed), range(replicates), done)))
            rows.append([f"{pairs}", f"{100 * share:.0f} %", *(f"{100 * x:.1f}" for x in np.nanmean(found, axis=0))])
    return Table(["pairs", "Berkson's share", "slope of action 0", "slope of action 1", "difference"], rows)
