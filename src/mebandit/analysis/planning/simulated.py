"""A plan tried out in simulated trials, and raised where they fall short."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mebandit.analysis.planning.accuracy import quantile
from mebandit.analysis.planning.formulas import Design
from mebandit.analysis.planning.goal import Goal
from mebandit.analysis.planning.result import Check, Plan, can_be_simulated, independent
from mebandit.analysis.planning.trials import Constant, run_trials
from mebandit.environments import Gaussian
from mebandit.estimation.student import t_quantile
from mebandit.policies import Policy, meb, meb_dr
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.values import Floats

TRIES = 5
"""how often the number of rounds is raised, at most"""


@dataclass(frozen=True)
class Trial:
    """How trials are simulated."""

    replicates: int
    seed: int
    workers: Workers
    progress: Show

    def check(self, planned: Plan, design: Design, n: int) -> Check:
        """Trials of n independent rounds; each number of rounds has random numbers of its own."""
        world = Gaussian(
            theta=design.theta, mean=design.mean, cov=design.cov, error_cov=design.error_cov, noise_sd=design.noise_sd
        )  # fmt: skip
        trials = run_trials(
            world, intended(design), horizon=n, replicates=self.replicates, seed=self.seed, cell=n % 2**32,
            methods=(planned.method,), error_cov=design.error_cov, workers=self.workers, progress=self.progress,
        )  # fmt: skip
        goal, j = planned.goal, planned.goal.coefficient
        if goal.control is None:
            theta, se, df = (part[:, goal.treatment, j] for part in trials.arms(planned.method))
        else:
            theta, se, df = (part[:, j] for part in trials.contrast(planned.method, goal.treatment, goal.control))
        return counted(theta, se, df, goal, n)


def counted(theta: Floats, std_error: Floats, df: Floats, goal: Goal, n: int) -> Check:
    """What trials of n rounds gave, from the estimates of the coefficient, their standard errors and degrees of freedom."""
    half, known = t_quantile(1 - goal.alpha / 2, df) * std_error, np.isfinite(std_error)
    found, covers = np.abs(theta) > half, np.abs(theta - goal.effect) <= half
    if not known.any():
        half, known = np.full(1, np.inf), np.ones(1, dtype=np.bool_)
    lost = int(theta.size - np.isfinite(std_error).sum())
    return Check(n, theta.size, *_share(found), *_typical(half[known], goal.assurance), *_share(covers), lost)


def _typical(sizes: Floats, assurance: float | None) -> tuple[float, float]:
    """The mean half-width, or with an assurance the one that this share of trials keeps, and its standard error."""
    if assurance is None:
        return float(sizes.mean()), float(sizes.std(ddof=1) / np.sqrt(sizes.size)) if sizes.size > 1 else 0.0
    off = np.sqrt(assurance * (1 - assurance) / sizes.size)
    low, high = np.quantile(sizes, np.clip([assurance - off, assurance + off], 0.0, 1.0))
    return float(np.quantile(sizes, assurance)), float(high - low) / 2


def _share(held: Any) -> tuple[float, float]:
    """A share with its standard error, which is not 0 where all trials agree (Laplace's rule of succession)."""
    n, share = held.size, float(held.mean())
    smooth = (share * n + 1) / (n + 2)
    return share, float(np.sqrt(smooth * (1 - smooth) / n))


def intended(design: Design) -> Policy | Constant:
    """The policy that the trial will be run with."""
    if design.policy == "constant":
        return Constant(design.probabilities)
    if design.policy == "meb":
        return meb(design.n_actions, design.dim, floor=design.floor)
    return meb_dr(design.n_actions, design.dim, floor=design.floor)


def tried(planned: Plan, design: Design, trial: Trial) -> Plan:
    """The plan after simulated trials: raised until they reach what is wanted within Monte-Carlo error; then a few more for the picture."""
    found: dict[int, Check] = {}
    rounds = planned.formula
    for _ in range(TRIES):
        n = independent(rounds, planned.design_effect)
        if not can_be_simulated(n, design.dim):
            break
        check = found[n] = trial.check(planned, design, n)
        if _enough(check, planned.goal):
            break
        rounds = _raised(rounds, check, planned.goal)
    n = independent(rounds, planned.design_effect)
    for share in (0.5, 0.75, 1.0, 1.4):
        at = max(2, round(share * n))
        if at not in found and can_be_simulated(at, design.dim):
            found[at] = trial.check(planned, design, at)
    return replace(planned, rounds=rounds, simulated=tuple(found[at] for at in sorted(found)))


def _enough(check: Check, goal: Goal) -> bool:
    """Whether the target is reached, but for two Monte-Carlo standard errors."""
    if goal.tests:
        return check.power >= goal.power - 2 * check.power_se
    return check.half_width <= goal.target + 2 * check.half_width_se


def _raised(rounds: int, check: Check, goal: Goal) -> int:
    """Rounds times what makes up for the miss: standard errors fall like 1/√n."""
    z = quantile(1 - goal.alpha / 2)
    if goal.tests:
        attained = quantile(min(max(check.power, goal.alpha), 0.999))
        factor = ((z + quantile(goal.power)) / max(z + attained, 0.1)) ** 2
    else:
        factor = (check.half_width / goal.target) ** 2
    return int(np.ceil(rounds * min(max(factor, 1.05), 4.0)))
