"""The experiment "figures": the estimation error |θ̂_1 - θ_1| over time, in the nine cells of each environment of Table 1."""

from typing import TYPE_CHECKING

from mebandit.experiments.paper import table1
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell
from mebandit.reports.figures import canvas, draw_policies, legend_above, picture
from mebandit.reports.page import Section
from mebandit.reports.table import Table

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

POLICIES = ("TS", "UCB", "MEB", "MEB-naive")
LAST = {"table1a": 50_000, "table1b": 2_500}
"""the paper's figures end here"""


def cells(options: PaperOptions) -> list[SimulationCell]:
    """The cells of Table 1."""
    return [*table1.cells_of_1a(options), *table1.cells_of_1b(options)]


def table(data: CellData) -> "pd.DataFrame":
    """The curves of action 1, a row per cell, policy and recorded round."""
    curves = data.curves
    own = curves[(curves["measure"] == "estimation_error_1") & curves["policy"].isin(POLICIES)].copy()
    own.insert(0, "table", own["source"].isna().map({True: "table1a", False: "table1b"}))
    own = own[own["time"] <= own["table"].map(LAST)]
    return own[["table", "protocol", "source", "sigma_eta", "sigma_e2", "policy", "time", "mean", "std_error"]].reset_index(drop=True)


def sections(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """A section for each environment and protocol."""
    found = []
    for (name, protocol, source), part in table.groupby(["table", "protocol", "source"], sort=False, dropna=False):
        where = "synthetic environment" if source != source else f"HeartSteps V1, from the {source}"
        last = part[part["time"] == part["time"].max()].set_index(["sigma_eta", "sigma_e2", "policy"])["mean"].unstack("policy")
        rows = [[f"{a:g}", f"{b:g}", *(f"{last.loc[(a, b), p]:.3f}" for p in POLICIES)] for a, b in last.index]
        best = {(i, 2 + int(last.loc[key, list(POLICIES)].to_numpy().argmin())) for i, key in enumerate(last.index)}
        noisy = last[last.index.get_level_values("sigma_e2") == last.index.get_level_values("sigma_e2").max()]
        ratio = noisy[["TS", "UCB"]].min(axis=1) / noisy["MEB"]
        nearer = (last["MEB"] < last[["TS", "UCB"]].min(axis=1)).sum(), (last["MEB"] < last["MEB-naive"]).sum()
        file = "_".join(["errors", str(name), str(protocol), *([str(source)] if source == source else [])])
        found.append(
            Section(
                title=f"Estimation error, {where}, {protocol}",
                setting=(
                    f"|θ̂_1 - θ_1|, mean over replicates with a band of two standard errors, over {LAST[str(name)]:,} rounds of the cells "
                    f"of Table 1({str(name)[-1]}). The table has the last round."
                ),
                finding=(
                    f"MEB ends closer to θ_1 than TS and UCB, which share one estimator, in {nearer[0]} of {len(last)} cells, and closer "
                    f"than MEB-naive in {nearer[1]}. At the largest error variance the error of the better of TS and UCB is "
                    f"{ratio.min():.2g} to {ratio.max():.2g} times MEB's."
                ),
                table=Table([table1.noise_name(str(protocol)), "σ_ε²", *POLICIES], rows, best),
                pictures={file: picture(draw(part))},
            )
        )
    return found


def draw(part: "pd.DataFrame") -> "matplotlib.figure.Figure":
    """The figure as the paper arranges it: rows are σ_ε², columns the reward noise."""
    noise = table1.noise_name(str(part["protocol"].iloc[0]))
    columns, rows = (list(dict.fromkeys(sorted(part[name]))) for name in ("sigma_eta", "sigma_e2"))
    figure = canvas(9.6, 7.6)
    grid = figure.subplots(len(rows), len(columns), sharex=True, sharey="col")
    for i, sigma_e2 in enumerate(rows):
        for j, sigma_eta in enumerate(columns):
            own = part[(part["sigma_e2"] == sigma_e2) & (part["sigma_eta"] == sigma_eta) & (part["time"] >= 20)]
            draw_policies(grid[i, j], own, log_scale=True)
            grid[i, j].set_xlabel("round" if i == len(rows) - 1 else "")
            grid[i, j].set_title(f"{noise} = {sigma_eta:g}" if i == 0 else "", fontsize=10)
        grid[i, 0].set_ylabel(f"σ_ε² = {sigma_e2:g}\n|θ̂_1 - θ_1|")
    legend_above(figure, columns=len(POLICIES))
    return figure
