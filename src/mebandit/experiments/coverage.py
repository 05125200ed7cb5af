"""How often nominal intervals cover the truth, in trials run by an adaptive policy; the page docs/background/coverage.md is made here."""

from dataclasses import dataclass

import numpy as np

from mebandit.analysis.planning.trials import Trials, run_trials
from mebandit.environments import Gaussian
from mebandit.estimation.student import t_quantile
from mebandit.policies import meb
from mebandit.reports.table import Table
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.values import Floats

ORDER = ("meb", "dr", "rc", "naive", "ridge")
HORIZONS = (1000, 5000)
ONE, BY_ROUND = "one Σe", "a Σe for each round"
WORLDS = {ONE: Gaussian(error_cov=1.0), BY_ROUND: Gaussian(error_cov=np.stack([0.5 * np.eye(5), 1.5 * np.eye(5)]))}


@dataclass(frozen=True)
class CoverageOfIntervals:
    """What intervals of nominal level 95 % did, by coefficient."""

    coverage: Floats
    """the share of trials in which the interval held the truth"""
    std_error: Floats
    """the mean standard error that the trials reported"""
    spread: Floats
    """the standard deviation of the estimates between trials"""
    bias: Floats

    @property
    def ratio(self) -> float:
        """reported over real: below 1 the intervals are too short"""
        return float((self.std_error / self.spread).mean())

    @property
    def cells(self) -> list[str]:
        covered = 100 * self.coverage
        spread = f"{covered.mean():.1f} ({covered.min():.1f} to {covered.max():.1f})"
        return [spread, f"{self.std_error.mean():.3f}", f"{self.spread.mean():.3f}", f"{self.ratio:.2f}"]


def counted(found: tuple[Floats, Floats, Floats], truth: Floats) -> CoverageOfIntervals:
    """Count over trials, the first axis, how often the 95 % interval of each coefficient holds its true value."""
    theta, std_error, df = found
    held = np.abs(theta - truth) <= t_quantile(0.975, df) * std_error
    return CoverageOfIntervals(held.mean(axis=0), std_error.mean(axis=0), theta.std(axis=0, ddof=1), theta.mean(axis=0) - truth)


@dataclass(frozen=True)
class Coverage:
    """The study: by world and horizon, the trials."""

    trials: dict[str, dict[int, Trials]]
    replicates: int
    seed: int

    def of(self, world: str, horizon: int, method: str, what: str) -> CoverageOfIntervals:
        """`what` is "arms", every coefficient of every θ_a, or "contrast", those of θ_1 - θ_0."""
        truth, trials = np.array(WORLDS[world].theta), self.trials[world][horizon]
        if what == "arms":
            return counted(trials.arms(method), truth)
        return counted(trials.contrast(method), truth[1] - truth[0])

    def table(self, world: str, what: str) -> Table:
        header = ["rounds, method", "coverage in %: mean (min to max)", "mean s.e.", "real s.d.", "s.e. / s.d."]
        keys = [(horizon, method) for horizon in self.trials[world] for method in ORDER]
        rows = [[f"{horizon:,} {method}", *self.of(world, horizon, method, what).cells] for horizon, method in keys]
        return Table(header, rows, muted={i for i, (_, method) in enumerate(keys) if method not in ("meb", "dr")})

    @property
    def verdict(self) -> str:
        """The tables in words, from their numbers."""
        keys = [(world, horizon) for world, by_horizon in self.trials.items() for horizon in by_horizon]
        every = [self.of(*key, m, what).coverage for key in keys for m in ("meb", "dr") for what in ("arms", "contrast")]
        low, high = (100 * f(np.concatenate([c.ravel() for c in every])) for f in (np.min, np.max))
        last = keys[0][0], max(self.trials[keys[0][0]])
        meb_se, dr_se = (self.of(*last, m, "contrast").std_error.mean() for m in ("meb", "dr"))
        rc = [100 * self.of(*key, "rc", what).coverage.mean() for key in keys for what in ("arms", "contrast")]
        ridge = self.of(*last, "ridge", "arms")
        noise = 100 * np.sqrt(0.95 * 0.05 / self.replicates)
        kept = "have about their nominal coverage" if low >= 93 and high <= 97 else "do not all have their nominal coverage"
        return (
            f"The intervals of `meb` and `dr` {kept}. Over all coefficients, contrasts, numbers of rounds and both kinds of error they "
            f"cover in {low:.1f} to {high:.1f} % of the trials. (Each percentage has a standard error of {noise:.1f} points.) With one Σe "
            f"for all rounds, the intervals of `dr` for θ_1 - θ_0 are shorter than those of `meb` by {100 * (1 - dr_se / meb_se):.0f} %. "
            f"Contexts are normal here; then `rc` covers in {min(rc):.1f} to {max(rc):.1f} % on average, and its intervals are shorter "
            f"still. `naive` and `ridge` do not tend to θ, so their coverage gets worse with more data (ridge: "
            f"{100 * ridge.coverage.mean():.0f} % at {last[1]:,} rounds)."
        )


def run_coverage(
    *,
    worlds: tuple[str, ...] = tuple(WORLDS),
    horizons: tuple[int, ...] = HORIZONS,
    replicates: int = 4000,
    seed: int = 1,
    workers: Workers = None,
    progress: Show = None,
) -> Coverage:
    """Trials run by MEB with the floor 0.2 in the paper's world, σε² = 1 for all rounds or on average, analysed by every method."""
    found: dict[str, dict[int, Trials]] = {world: {} for world in worlds}
    for world in worlds:
        known = np.array(WORLDS[world].error_cov)
        for horizon in horizons:
            found[world][horizon] = run_trials(
                WORLDS[world],
                meb(2, 5, floor=0.2),
                horizon=horizon,
                cell=horizon,
                methods=ORDER,
                error_cov=known if known.ndim == 2 else None,
                replicates=replicates,
                seed=seed,
                workers=workers,
                progress=progress,
            )
    return Coverage(found, replicates, seed)


def as_markdown(found: Coverage, *, command: str) -> str:
    """The page of the docs."""
    horizons = " and ".join(f"{h:,}" for h in next(iter(found.trials.values())))
    tables = []
    for world in found.trials:
        for what, of in (("arms", "θ"), ("contrast", "θ_1 - θ_0")):
            tables += [f"## Every coefficient of {of}, {world}", found.table(world, what).as_markdown()]
    tables[0] += "\n\nThe mean is over the ten coefficients; min and max are the lowest and the highest coverage of a single coefficient."
    return "\n\n".join(
        [
            "# Coverage of the intervals",
            "A nominal 95 % interval should contain the truth in 95 of 100 trials. This should also hold if a policy collected the data "
            "and learned from them. This page counts.",
            f"**Setting.** The paper's synthetic world: x ~ N(1, I), d = 5, two actions, reward noise {WORLDS[ONE].noise_sd:g}. In the "
            "first two tables each coordinate has error variance 1. In the last two tables it is 0.5 or 1.5, at random in each round, and "
            "the learner is told which. The policy is `mb.meb(2, 5, floor=0.2)`. It solves for θ after each round, so every "
            f"decision depends on all earlier ones. There are {found.replicates:,} trials of {horizons} rounds. Each is analysed by every "
            f"method with the known Σe, and the seed is {found.seed}. "
            "Intervals: `mb.estimate(...).interval()` and `.contrast(1, 0).interval()`.",
            found.verdict,
            *tables,
            "## Count for a world of your own",
            f"`{command}` writes this page. For a world and a policy of your own, `mb.simulate_log` gives the log of one simulated trial:",
            EXAMPLE.strip(),
            "[Plan the sample size](../guides/planning.md) uses the same simulated trials to plan one.",
            "",
        ]
    )


EXAMPLE = """
```python
import numpy as np

import mebandit as mb

world = mb.environments.Gaussian(theta=[[0.5, -1.0], [0.0, 1.0]], error_cov=0.5, noise_sd=0.5)
covered = []
for replicate in range(200):
    log = mb.simulate_log(world, mb.meb(2, 2, floor=0.2), horizon=1000, seed=1, replicate=replicate)
    found = mb.estimate(log.predicted, log.actions, log.rewards, log.propensities, 0.5, method="dr")
    low, high = found.contrast(1, 0).interval().T
    covered.append((low <= [-0.5, 2.0]) & ([-0.5, 2.0] <= high))
print(np.mean(covered, axis=0))
```

```text
[0.96  0.945]
```
"""
