"""How often nominal intervals cover the truth, in trials run by an adaptive policy; the page docs/coverage.md is made here."""

from dataclasses import dataclass

import numpy as np

from mebandit.analysis.planning import quantile
from mebandit.environments import Gaussian
from mebandit.experiments.trials import Trials, run_trials
from mebandit.policies import meb
from mebandit.progress import Show
from mebandit.report import Table
from mebandit.values import Floats
from mebandit.workers import Workers

ORDER = ("meb", "dr", "rc", "naive", "ridge")
HORIZONS = (1000, 5000)
WORLD = Gaussian(error_cov=1.0)


@dataclass(frozen=True)
class Counted:
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


def counted(found: tuple[Floats, Floats], truth: Floats) -> Counted:
    """Count over trials, the first axis, how often the 95 % interval of each coefficient holds its true value."""
    theta, std_error = found
    held = np.abs(theta - truth) <= quantile(0.975) * std_error
    return Counted(held.mean(axis=0), std_error.mean(axis=0), theta.std(axis=0, ddof=1), theta.mean(axis=0) - truth)


@dataclass(frozen=True)
class Coverage:
    """The study: by horizon, the trials."""

    trials: dict[int, Trials]
    replicates: int
    seed: int

    def of(self, horizon: int, method: str, what: str) -> Counted:
        """`what` is "arms", every coefficient of every θ_a, or "contrast", those of θ_1 - θ_0."""
        truth = np.array(WORLD.theta)
        if what == "arms":
            return counted(self.trials[horizon].arms(method), truth)
        return counted(self.trials[horizon].contrast(method), truth[1] - truth[0])

    def table(self, what: str) -> Table:
        header = ["rounds, method", "coverage in %: mean (min to max)", "mean s.e.", "real s.d.", "s.e. / s.d."]
        keys = [(horizon, method) for horizon in self.trials for method in ORDER]
        rows = [[f"{horizon:,} {method}", *self.of(horizon, method, what).cells] for horizon, method in keys]
        return Table(header, rows, muted={i for i, (_, method) in enumerate(keys) if method not in ("meb", "dr")})

    @property
    def verdict(self) -> str:
        """The tables in words, from their numbers."""
        every = [self.of(h, m, what).coverage for h in self.trials for m in ("meb", "dr") for what in ("arms", "contrast")]
        low, high = (100 * f(np.concatenate([c.ravel() for c in every])) for f in (np.min, np.max))
        longest = max(self.trials)
        meb_se, dr_se = (self.of(longest, m, "contrast").std_error.mean() for m in ("meb", "dr"))
        rc, contrast = self.of(longest, "rc", "arms"), self.of(longest, "rc", "contrast")
        ridge = self.of(longest, "ridge", "arms")
        noise = 100 * np.sqrt(0.95 * 0.05 / self.replicates)
        kept = "do what they promise" if low >= 93 and high <= 97 else "do not all do what they promise"
        return (
            f"The intervals of `meb` and `dr` {kept}: over all coefficients, contrasts and horizons they cover in "
            f"{low:.1f} to {high:.1f} % of the trials (a count has a standard error of {noise:.1f} points). `dr` is the shorter by "
            f"{100 * (1 - dr_se / meb_se):.0f} % for θ_1 - θ_0. `rc` covers θ in {100 * rc.coverage.mean():.1f} % and its contrast in "
            f"{100 * contrast.coverage.mean():.1f} %, here where contexts are normal, and is shorter "
            f"still. `naive` and `ridge` tend to something else than θ, so that their intervals get worse with "
            f"more data (ridge: {100 * ridge.coverage.mean():.0f} % at {longest:,} rounds)."
        )


def run_coverage(
    *,
    horizons: tuple[int, ...] = HORIZONS,
    replicates: int = 4000,
    seed: int = 1,
    workers: Workers = None,
    progress: Show = None,
) -> Coverage:
    """Trials run by MEB with the floor 0.2 in the paper's world, σε² = 1, analysed by every method."""
    policy, error_cov = meb(2, 5, floor=0.2), np.eye(5)
    options = {"replicates": replicates, "seed": seed, "workers": workers, "progress": progress}
    found = {}
    for horizon in horizons:
        found[horizon] = run_trials(WORLD, policy, horizon=horizon, cell=horizon, methods=ORDER, error_cov=error_cov, **options)  # type: ignore[arg-type]
    return Coverage(found, replicates, seed)


def as_markdown(found: Coverage, *, command: str) -> str:
    """The page of the docs."""
    horizons = " and ".join(f"{h:,}" for h in found.trials)
    return "\n\n".join(
        [
            "# Do the intervals cover?",
            "A nominal 95 % interval should hold the truth in 95 of 100 trials, also where the data come from a policy that has learned "
            "from the same data. This page counts.",
            f"**Setting.** The paper's synthetic world: x ~ N(1, I), d = 5, two actions, error variance 1 in each coordinate, reward noise "
            f"{WORLD.noise_sd:g}. The policy is `mb.meb(2, 5, floor=0.2)`, which refits after each round, so that every decision depends "
            f"on all earlier ones. {found.replicates:,} trials of {horizons} rounds, each analysed by every method with the known Σe; seed "
            f"{found.seed}. The intervals are those of `mb.estimate(...).interval()` and `.contrast(1, 0).interval()`.",
            found.verdict,
            "## Every coefficient of θ",
            "The mean is over the ten coefficients, min and max are the worst and best of them.",
            found.table("arms").as_markdown(),
            "## Every coefficient of θ_1 - θ_0",
            found.table("contrast").as_markdown(),
            "## Do it again",
            f"`{command}` writes this page. For a world and a policy of your own, `mb.simulate_log` gives the log of one simulated trial:",
            EXAMPLE.strip(),
            "[How many rounds do I need?](planning.md) uses the same simulated trials to plan one.",
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
[0.945 0.94 ]
```
"""
