"""The experiment "rates": regret against the horizon where Assumptions 1 to 3 hold, beside the rates of Corollary 2.1."""

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit import schedules
from mebandit.analysis import theory
from mebandit.environments import SmallError
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell, simulated
from mebandit.policies import lin_ucb, meb
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.values import Stretch

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

REPLICATES = 20
HORIZONS = (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
FLOOR = 0.2
EXPONENTS = {"standard": 2 / 3, "clipped": 1 / 2}
EARLY = "MEB, no warm-up"


def cells(options: PaperOptions) -> list[SimulationCell]:
    """A cell for each setting and horizon, with the schedules of that horizon."""
    environment = SmallError()
    shape = (environment.n_actions, environment.dim)
    found = []
    for setting in theory.SETTINGS:
        for horizon in HORIZONS:
            preset = schedules.standard(horizon, 2) if setting == "standard" else schedules.clipped(FLOOR, horizon, 2)
            floor = 0.0 if setting == "standard" else FLOOR
            policies = [meb(*shape, **preset), meb(*shape, floor=preset.floor, name=EARLY), lin_ucb(*shape, floor=floor)]
            found.append(
                simulated(
                    f"rates {setting} T={horizon}",
                    environment,
                    policies,
                    labels={"setting": setting, "warmup": preset.warmup},
                    horizon=horizon,
                    replicates=options.replicates_or(REPLICATES),
                    seed=options.seed,
                    floor=floor,
                    references=False,
                    milestones=[preset.warmup],
                )
            )
    return found


def known_constants() -> theory.Constants:
    """The constants of Assumptions 1 to 3 in this environment, from a long tape."""
    return theory.constants_of(SmallError().tape(Stretch(0, 0, 0, 0, 20_000)))


def table(data: CellData) -> "pd.DataFrame":
    """A row per setting, policy and horizon: mean and standard error of regret, regret after the warm-up, the bound (C = 1), replicates."""
    import pandas as pd

    known = known_constants()
    rows: list[dict[str, Any]] = []
    for (cell, setting, warmup, policy), own in data.replicates.groupby(["cell", "setting", "warmup", "policy"], sort=False):
        horizon = int(str(cell).rpartition("=")[2])
        total = own.assign(total=own[f"{setting}_regret"] * own["time"]).pivot(index="replicate", columns="time", values="total")
        last, after = total[horizon], total[horizon] - total[warmup]
        rows.append(
            {"setting": setting, "policy": policy, "horizon": horizon, "warmup": warmup}
            | {"mean": last.mean(), "std_error": last.std(ddof=1) / sqrt(len(last)), "after_warmup": after.mean()}
            | {"bound": theory.regret_bound(horizon, known, setting=str(setting), floor=FLOOR), "replicates": len(last)}
        )
    return pd.DataFrame(rows)


def slope(own: "pd.DataFrame", column: str = "mean") -> tuple[float, float]:
    """The least-squares slope of log regret on log T over the four longest horizons, and its Monte-Carlo standard error."""
    own = own.iloc[-4:]
    x = np.log(own["horizon"].to_numpy(dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    spread = own["std_error"].to_numpy() / own["mean"].to_numpy()
    return round(float(weights @ np.log(own[column].to_numpy())), 12) + 0.0, float(sqrt(((weights * spread) ** 2).sum()))


def sections(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """The slopes of log regret on log T, beside those of the bounds."""
    known = known_constants()
    groups = {(str(setting), str(policy)): own for (setting, policy), own in table.groupby(["setting", "policy"], sort=False)}
    slopes = {key: slope(own) for key, own in groups.items()}
    rows = []
    for (setting, policy), own in groups.items():
        (b, se), last = slopes[setting, policy], own.iloc[-1]
        rate = f"{EXPONENTS[setting]:.3f}" if policy == "MEB" else ""
        rows.append([f"{setting}: {policy}", f"{b:.3f} ± {se:.3f}", rate, f"{last['mean']:.1f} ± {last['std_error']:.1f}"])
    theirs = [slopes[setting, "MEB"][0] for setting in theory.SETTINGS]
    early = [slopes[setting, EARLY][0] for setting in theory.SETTINGS]
    share = 1 - groups["clipped", "MEB"]["after_warmup"].iloc[-1] / groups["clipped", "MEB"]["mean"].iloc[-1]
    ucb = [groups[setting, "UCB"]["mean"].iloc[-1] / groups[setting, "MEB"]["mean"].iloc[-1] for setting in theory.SETTINGS]
    needed = [theory.least_horizon(HORIZONS[-1], known, setting=setting, floor=FLOOR) for setting in theory.SETTINGS]
    return [
        Section(
            title="Rates: regret against the horizon",
            setting=(
                "A world in which Assumptions 1 to 3 hold: 64 contexts around a circle, some nearly undecided, and an error that moves "
                f"the gap between the actions by half of it (|x̃| <= {known.largest_context:.2f}, λ0 = {known.signal:.2f}, ξ = "
                f"{known.fourth_moment:.2f}, ν = {known.second_moment:.2f}, ρ = {known.error_ratio:.2f}). One run per horizon, with that "
                "horizon's schedules. The grey lines have the bound's rate, d T^(2/3) or d T^(1/2) times √(1 + log T / d), drawn through "
                f"MEB's last point; with all unknown constants at 1 the bounds themselves ask for T above {needed[0]:.2g} and "
                f"{needed[1]:.2g}."
            ),
            finding=(
                f"MEB's regret grows as T to the power {theirs[0]:.2f} in the standard setting (2/3 in theory) and {theirs[1]:.2f} in the "
                f"clipped one (1/2). These are the rates of the schedules themselves: {share:.0%} of the clipped regret at the longest "
                f"horizon is the warm-up's. Without a warm-up the powers are {early[0]:.2f} and {early[1]:.2f}. UCB's regret grows as T to "
                f"the power {slopes['standard', 'UCB'][0]:.2f} and {slopes['clipped', 'UCB'][0]:.2f}: it never learns the right θ. Yet up "
                f"to T = {HORIZONS[-1]:,} it loses {ucb[0]:.2g} times what MEB loses in the standard setting, and {ucb[1]:.2g} times in "
                "the clipped one: where the bias is small, a warm-up and a floor of t^(-1/3) cost more than they gain."
            ),
            table=Table(["", "slope of log regret on log T", "the bound's rate", f"regret at T = {HORIZONS[-1]:,}"], rows),
            pictures={"rates": picture(draw(table, known))},
        )
    ]


def draw(table: "pd.DataFrame", known: theory.Constants) -> "matplotlib.figure.Figure":
    """Regret against the horizon on log scales, a panel for each setting."""
    figure, colours = canvas(9.6, 4.2), colours_of(map(str, table["policy"].unique()))
    for axes, setting in zip(figure.subplots(1, 2), theory.SETTINGS, strict=True):
        for policy, own in table[table["setting"] == setting].groupby("policy", sort=False):
            label = f"{policy}: slope {slope(own)[0]:.2f}"
            axes.errorbar(own["horizon"], own["mean"], yerr=2 * own["std_error"], fmt="o-", ms=5, color=colours[str(policy)], label=label)
            if policy == "MEB":
                T = np.geomspace(HORIZONS[0], HORIZONS[-1], 50)
                rate = T ** EXPONENTS[setting] * np.sqrt(1 + np.log(T) / known.dim)
                axes.plot(T, rate / rate[-1] * own["mean"].iloc[-1], color="0.45", linestyle=(0, (4, 2)), label="the bound's rate")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("horizon T")
        axes.set_ylabel("regret over T rounds")
        axes.set_title(f"{setting} setting", fontsize=10)
        plain(axes)
        axes.legend(frameon=False, fontsize=9)
    return figure
