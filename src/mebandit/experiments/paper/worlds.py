"""The experiment "worlds": the default policy beside simple ones in 77 worlds, which break the paper's assumptions in many ways."""

from collections.abc import Iterable
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit.environments import (
    Autocorrelated,
    Berkson,
    Drifting,
    Environment,
    Estimated,
    Example21,
    ExampleB1,
    ExampleB2,
    Gaussian,
    HeartSteps,
    Misclassified,
    Misreported,
    Nonlinear,
    SmallError,
)
from mebandit.experiments.paper.more_actions import THETA
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.paper.table1 import LEAST_SQUARES, OURS
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell, simulated
from mebandit.policies import LinearPolicy, greedy, lin_ucb, meb, meb_dr, thompson
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, legend_above, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.values import Floats

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

SHORT, LONG = 200, 10_000
MILESTONES = {SHORT: (100,), LONG: (1000, 2000)}
REPLICATES = 100
"""of the long trials; the short ones have `TIMES` as many"""
TIMES = 20
HEARTSTEPS: dict[str, Any] = {"burden_error_var": 1.0, "noise_sd": 1.0}
UCB, TS = "UCB + intercept", "TS + intercept"
SIMPLE = ("MEB", LEAST_SQUARES, UCB, TS)
"""the policies that the default must not lose to"""
LARGEST_LOSS, SMALL_SAMPLE_LOSS, STANDARD_ERRORS = 0.03, 0.05, 2.5
"""a cell is lost if the regret exceeds that of the best simple policy by more than this share, and by so many standard errors"""


def effects(n_actions: int, dim: int, seed: int, scale: float = 1.0) -> Floats:
    """Reward parameters θ for a world: normal random numbers, with two decimals so that they can be printed."""
    return (scale * np.random.default_rng(seed).normal(size=(n_actions, dim))).round(2)


def with_constant(theta: Any, reliability: float, **others: Any) -> Gaussian:
    """Features of variance 1 after a constant one, all but the constant with the same reliability Var x / Var x̃."""
    d = np.shape(theta)[1]
    noisy = np.arange(d) > 0
    cov, error_cov = np.diag(1.0 * noisy), np.diag((1 / reliability - 1) * noisy)
    given: dict[str, Any] = {"mean": 1.0 - noisy, "cov": cov, "error_cov": error_cov, "noise_sd": 0.5}
    return Gaussian(theta=theta, **given | others)


def plain_world(theta: Any, reliability: float = 0.6, **others: Any) -> Gaussian:
    """Features of mean 0.5 and variance 1, all with the same reliability."""
    given: dict[str, Any] = {"mean": 0.5, "error_cov": 1 / reliability - 1, "noise_sd": 0.5}
    return Gaussian(theta=theta, **given | others)


def equal_correlation(dim: int, correlation: float) -> Floats:
    """A correlation matrix with one correlation for all pairs."""
    return (1 - correlation) * np.eye(dim) + correlation


def paper_worlds() -> dict[str, Environment]:
    """The paper's synthetic world, and variations of it in one way each."""
    given: dict[str, Any] = {"error_cov": 1.0, "noise_sd": sqrt(0.1)}
    levels = np.stack([0.1 * np.eye(5), 1.9 * np.eye(5)])
    turning = (1.0, -1.0, 1.0, -1.0, 1.0)
    return {
        **{f"paper, σ_ε² = {s:g}": Gaussian(error_cov=s, noise_sd=sqrt(0.1)) for s in (0.1, 1.0, 2.0)},
        "paper, five actions": Gaussian(theta=THETA[:5], **given),
        "paper, ten actions": Gaussian(theta=THETA, **given),
        "paper, skewed contexts": Gaussian(context="exponential", **given),
        "paper, heavy-tailed error": Gaussian(error="student_t", error_df=3.0, **given),
        "paper, correlated error": Gaussian(error_cov=equal_correlation(5, 0.7), noise_sd=sqrt(0.1)),
        "paper, two error levels": Gaussian(error_cov=levels, noise_sd=sqrt(0.1)),
        "paper, error level by user": Gaussian(error_cov=levels, noise_sd=sqrt(0.1), hold=100),
        "paper, drifting mean": Drifting(world=Gaussian(**given), mean=turning),
        "paper, drifting θ": Drifting(world=Gaussian(**given), theta=np.stack([turning, -np.array(turning)]), period=5000),
    }


def trial_worlds() -> dict[str, Environment]:
    """Worlds with a constant feature, as in trials and in our documentation."""
    stress = [[0.3, 0.0], [0.0, 0.8]]
    return {
        **{f"constant + 1, reliability {r:g}": with_constant(stress, r) for r in (0.9, 0.5, 0.17)},
        "constant + 1, large noise": with_constant(effects(2, 2, 1), 0.5, noise_sd=2.0),
        "constant + 1, small noise": with_constant(effects(2, 2, 2), 0.5, noise_sd=0.1),
        "constant + 3, four actions": with_constant(effects(4, 4, 3), 0.5),
        "constant + 5, weak effects": with_constant(effects(2, 6, 4, 0.2), 0.6, noise_sd=1.0),
        "constant + 9": with_constant(effects(2, 10, 5, 0.5), 0.5),
        "no error, three actions": with_constant(effects(3, 4, 6), 1.0),
        **{f"yes/no feature, flips {f:g}": _yes_no(f) for f in (0.1, 0.3)},
        "four classes, four actions": Misclassified(confusion=0.6 * np.eye(4) + 0.1, theta=np.eye(4)),
        "three classes, rare ones": Misclassified(
            confusion=[[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]],
            probabilities=[0.8, 0.15, 0.05],
            theta=[[0.2, 0.0, 0.0], [0.0, 0.6, 1.0]],
            reference=True,
        ),
        "HeartSteps, σ_ε² = 1": HeartSteps(**HEARTSTEPS),
    }


def _yes_no(flips: float) -> Misclassified:
    """A yes/no feature that is wrong with some probability, beside a constant."""
    confusion = [[1 - flips, flips], [flips, 1 - flips]]
    return Misclassified(confusion=confusion, probabilities=[0.6, 0.4], theta=[[0.3, 0.0], [0.0, 0.8]], reference=True)


def misinformed_worlds() -> dict[str, Environment]:
    """Worlds in which the learner is told something wrong about the error, or the error is not classical."""
    world, trial = plain_world(effects(2, 3, 7), 0.5), with_constant(effects(2, 2, 8), 0.5)
    return {
        **{f"told {f:g} times Σe": Misreported(world=world, factor=f) for f in (0.0, 0.25, 2.0, 4.0)},
        **{f"constant + 1, told {f:g} times Σe": Misreported(world=trial, factor=f) for f in (0.0, 4.0)},
        "Σe estimated from few pairs": Estimated(world=world, start=10, every=20),
        "Berkson error": Berkson(world=plain_world(effects(2, 3, 9), 0.67)),
        "Berkson error, constant + 1": Berkson(world=with_constant(effects(2, 2, 10), 0.5)),
        **{f"autocorrelated error, φ = {f:g}": Autocorrelated(world=world, error=f) for f in (0.8, 0.95, 0.99)},
        "autocorrelated error, constant + 1": Autocorrelated(world=trial, error=0.95),
        "autocorrelated context": Autocorrelated(world=world, context=0.98, mean=0.5),
        "autocorrelated context and error": Autocorrelated(world=world, context=0.95, error=0.95, mean=0.5),
    }


def misspecified_worlds() -> dict[str, Environment]:
    """Worlds whose rewards are not linear in the context, or not continuous."""
    world = plain_world(effects(2, 3, 11), mean=0.0)
    return {
        "binary rewards": Nonlinear(world=world, binary=True),
        "rare binary rewards": Nonlinear(world=world, offset=-3.0, binary=True),
        "binary rewards, constant + 1": Nonlinear(world=with_constant(effects(2, 2, 12), 0.5), binary=True),
        "quadratic reward": Nonlinear(world=plain_world(effects(2, 2, 13)), quadratic=[[0.4, 0.0], [-0.4, 0.0]]),
        "hidden intercept": Nonlinear(world=world, offset=(0.0, 1.0)),
        "hidden intercepts, four actions": Nonlinear(world=plain_world(effects(4, 3, 14), mean=0.0), offset=(0.0, 0.5, -0.5, 1.0)),
    }


def shaped_worlds() -> dict[str, Environment]:
    """Few and many features and actions, low reliability, correlated and skewed contexts, features in unusual units."""
    body = Gaussian(theta=[[0.0, 0.5], [1.0, 0.0]], mean=(37.0, 0.0), cov=(0.25, 1.0), error_cov=(0.1, 0.5), noise_sd=0.5)
    units = np.array([1e3, 1.0, 1e-3])
    return {
        "one feature, mean 0": plain_world([[-0.5], [0.7]], 0.5, mean=0.0),
        "one feature, reliability 0.05": plain_world([[-0.5], [0.7]], 0.05, mean=0.0),
        "ten features": plain_world(effects(2, 10, 15, 0.3)),
        "twenty features": plain_world(effects(2, 20, 16, 0.25)),
        "three actions": plain_world(effects(3, 3, 17, 0.5)),
        "five actions, five features": plain_world(effects(5, 5, 18, 0.4), 0.5),
        "ten actions": plain_world(effects(10, 3, 19, 0.6)),
        "ten actions, two features": plain_world(effects(10, 2, 20, 0.7), 0.8),
        "reliability 0.1": plain_world(effects(2, 3, 21, 0.6), 0.1),
        "reliability 0.2, four actions": plain_world(effects(4, 2, 22, 0.7), 0.2),
        "reliability 0.9": plain_world(effects(2, 4, 23, 0.5), 0.9),
        "large reward noise": plain_world(effects(2, 3, 24, 0.6), noise_sd=3.0),
        "correlated contexts, 0.95": plain_world(effects(2, 5, 25, 0.5), 0.5, cov=equal_correlation(5, 0.95)),
        "correlated contexts, 0.7": plain_world(effects(2, 3, 26, 0.6), 0.5, cov=equal_correlation(3, 0.7)),
        "correlated error, three actions": plain_world(effects(3, 4, 27, 0.5), error_cov=equal_correlation(4, 0.8)),
        "lognormal contexts": plain_world(effects(2, 3, 28, 0.6), context="lognormal"),
        "lognormal, constant + 1": with_constant([[0.3, 0.0], [0.0, 0.8]], 0.6, context="lognormal"),
        "uniform error": plain_world(effects(2, 3, 29, 0.6), error="uniform"),
        "body temperature": Nonlinear(world=body, offset=(0.0, -37.0)),
        "units of 1000 and 1/1000": plain_world(
            effects(2, 3, 30, 0.6) / units, mean=0.5 * units, cov=np.diag(units**2), error_cov=np.diag(units**2)
        ),
    }


def varied_worlds() -> dict[str, Environment]:
    """Error levels and groups, drifts, and the counterexamples of the paper."""
    constant = np.diag([0.0, 1.0, 1.0])
    groups = [[1.0, 2.0, 2.0], [1.0, -1.0, -1.0]]
    trial = with_constant(effects(2, 3, 31), 0.5)
    return {
        "two error levels, constant + 2": with_constant(effects(2, 3, 32), 0.5, error_cov=np.stack([0.05 * constant, 3 * constant])),
        "error that depends on x": plain_world(
            effects(2, 2, 33), mean=[[-0.8, -0.8], [0.8, 0.8]], cov=0.36, error_cov=np.stack([0.1 * np.eye(2), 1.6 * np.eye(2)])
        ),
        "two groups": with_constant(effects(2, 3, 34), 0.5, mean=groups, error_cov=np.stack([constant, constant])),
        "step in the mean": Drifting(world=plain_world(effects(2, 3, 35), 0.5), mean=2.0, period=1000, shape="step"),
        "slow drift of the mean, constant + 2": Drifting(world=trial, mean=(0.0, 1.5, 1.5), period=5000),
        "drifting θ, constant + 2": Drifting(world=trial, theta=effects(2, 3, 36, 0.7), period=8000),
        "Example 2.1": Example21(),
        "Example B.1": ExampleB1(),
        "Example B.2": ExampleB2(),
        "small error (Assumption 3)": SmallError(rho=0.5, noise_sd=0.5),
    }


def worlds() -> dict[str, Environment]:
    """All worlds by name."""
    parts = paper_worlds(), trial_worlds(), misinformed_worlds(), misspecified_worlds(), shaped_worlds(), varied_worlds()
    return {name: world for part in parts for name, world in part.items()}


def policies(environment: Environment) -> Iterable[LinearPolicy]:
    """The simple policies, and the default."""
    k, d = environment.n_actions, environment.dim
    floor = 0.2 / k
    yield meb(k, d, floor=floor)
    yield greedy(k, d, intercept=True, floor=floor, name=LEAST_SQUARES)
    yield lin_ucb(k, d, intercept=True, floor=floor, name=UCB)
    yield thompson(k, d, intercept=True, floor=floor, name=TS)
    yield meb_dr(k, d, floor=floor, name=OURS)


def cells(options: PaperOptions) -> list[SimulationCell]:
    """A cell of short trials and a cell of long trials for each world."""
    each = options.replicates_or(REPLICATES)
    return [
        simulated(
            f"{name}, {horizon:,} rounds",
            world,
            policies(world),
            labels={"world": name},
            settings={"kind": "HeartSteps"} | HEARTSTEPS if isinstance(world, HeartSteps) else None,
            horizon=horizon,
            replicates=replicates,
            seed=options.seed,
            milestones=MILESTONES[horizon],
            references=False,
        )
        for name, world in worlds().items()
        for horizon, replicates in ((SHORT, TIMES * each), (LONG, each))
    ]


def table(data: CellData) -> "pd.DataFrame":
    """A row for each world, number of rounds and policy: regret as a share of the best simple policy's, and whether the cell is lost."""
    import pandas as pd

    rows = []
    for (world, rounds), own in data.replicates.groupby(["world", "time"], sort=False):
        time = int(str(rounds))
        regret = own.pivot(index="replicate", columns="policy", values="clipped_regret")
        n, means = len(regret), regret.mean()
        best = min(SIMPLE, key=lambda name: float(means[name]))
        for policy in (*SIMPLE, OURS):
            difference = regret[policy] - regret[best]
            se = float(difference.std(ddof=1)) / sqrt(n)
            share = float(means[policy] / means[best])
            allowed = SMALL_SAMPLE_LOSS if time <= SHORT else LARGEST_LOSS
            lost = share > 1 + allowed and float(difference.mean()) > STANDARD_ERRORS * se
            numbers = {"mean": means[policy], "std_error": regret[policy].std(ddof=1) / sqrt(n), "share": share, "lost": lost}
            rows.append({"world": world, "time": time, "policy": policy, "best_simple": best} | numbers | {"replicates": n})
    return pd.DataFrame(rows)


def sections(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """The shares of the default policy and of the simple ones, with the cells that it loses."""
    names, times = list(dict.fromkeys(table["world"])), sorted(set(table["time"]))
    share = table.pivot(index=["world", "time"], columns="policy", values="share")
    lost = table.pivot(index=["world", "time"], columns="policy", values="lost").astype(bool)
    best, ours, starred = (column.to_dict() for column in (_best(table), share[OURS], lost[OURS]))

    def shown(world: str, time: int) -> str:
        return f"{ours[world, time]:.2f}" + ("*" if starred[world, time] else "")

    rows = [[world, *(shown(world, time) for time in times), str(best[world, times[-1]])] for world in names]
    geometric = {name: float(np.exp(np.log(share[name]).mean())) for name in (OURS, *SIMPLE)}
    words = [f"{name} {mean:.3f} ({int(lost[name].sum())} lost)" for name, mean in geometric.items()]
    means = {t: float(np.exp(np.log(share[OURS].xs(t, level="time")).mean())) for t in times}
    by_time = ", ".join(f"{mean:.3f} at {t:,}" for t, mean in means.items())
    short, long = int(table["replicates"].max()), int(table["replicates"].min())
    return [
        Section(
            title="Worlds: the default policy beside simple ones",
            setting=(
                f"Average clipped regret of {OURS} as a share of that of the best simple policy in each cell ({', '.join(SIMPLE)}). The "
                "best is chosen after the fact, so a share of 1 is already good. All policies at their defaults, with a floor of 0.2/K. "
                f"{len(names)} worlds; {short} trials of {SHORT} rounds and {long} of {LONG:,}. A star marks a lost cell: a share above "
                f"{1 + LARGEST_LOSS:g} ({1 + SMALL_SAMPLE_LOSS:g} up to {SHORT} rounds), with a difference of more than "
                f"{STANDARD_ERRORS:g} standard errors."
            ),
            finding=(
                f"Geometric mean of the shares over {len(share)} cells, and cells lost: {', '.join(words)}. "
                f"{OURS} by number of rounds: {by_time}."
            ),
            table=Table(["world", *(f"T = {t:,}" for t in times), f"best simple, T = {times[-1]:,}"], rows),
            pictures={"worlds_sorted": picture(draw_sorted(share)), "worlds": picture(draw(share, lost, names, times))},
        )
    ]


def _best(table: "pd.DataFrame") -> "pd.Series[str]":
    """The best simple policy by world and number of rounds."""
    return table[table["policy"] == OURS].set_index(["world", "time"])["best_simple"]


def draw_sorted(share: "pd.DataFrame") -> "matplotlib.figure.Figure":
    """The shares of every policy in all worlds, the smallest first: how often it wins, and how much it loses where it loses."""
    times = [time for time in sorted(set(share.index.get_level_values("time"))) if time in (SHORT, MILESTONES[LONG][-1], LONG)]
    figure = canvas(9.6, 3.4)
    panels = figure.subplots(1, len(times), sharey=True, squeeze=False)[0]
    for axes, time in zip(panels, times, strict=True):
        own = share.xs(time, level="time")
        for policy, colour in colours_of(own.columns).items():
            width = 2.4 if policy == OURS else 1.3
            axes.plot(np.arange(1, len(own) + 1), np.sort(own[policy].to_numpy()), linewidth=width, color=colour, label=policy)
        axes.axhline(1.0, color="0.4", linewidth=1.0)
        axes.set_yscale("log")
        axes.set_ylim(0.35, 4.0)
        ticks = [0.5, 0.7, 1.0, 1.5, 2.0, 3.0]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_title(f"after {time:,} rounds")
        axes.set_xlabel("worlds, sorted for each policy")
        plain(axes)
    panels[0].set_ylabel("regret as a share of that of\nthe best simple policy")
    legend_above(figure, columns=5)
    return figure


def draw(share: "pd.DataFrame", lost: "pd.DataFrame", names: list[str], times: list[int]) -> "matplotlib.figure.Figure":
    """The share of the default policy in every cell; lost cells are filled."""
    figure = canvas(9.6, 0.17 * len(names) + 1.2)
    axes = figure.subplots()
    at = np.arange(len(names))[::-1]
    colours = colours_of(map(str, times))
    for time in times:
        values = share[OURS].xs(time, level="time").loc[names].to_numpy()
        filled = lost[OURS].xs(time, level="time").loc[names].to_numpy()
        axes.plot(values, at, "o", color=colours[str(time)], markerfacecolor="none", ms=5, label=f"T = {time:,}")
        axes.plot(values[filled], at[filled], "o", color=colours[str(time)], ms=5)
    axes.axvline(1.0, color="0.4", linewidth=1.2, label="the best simple policy = 1")
    axes.set_xscale("log")
    ticks = [0.5, 0.7, 1.0, 1.5, 2.0, 3.0]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_yticks(at, names, fontsize=7)
    axes.set_ylim(-1, len(names))
    axes.set_xlabel("regret as a share of that of the best simple policy (filled: lost)")
    plain(axes)
    legend_above(figure, columns=3)
    return figure
