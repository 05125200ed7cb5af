"""The experiment "updates": MEB that solves for θ only after some rounds (Appendix E.4)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit import schedules
from mebandit.environments import Gaussian
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.paper.variants import ERROR_VAR, HORIZON, draw_curves_of, paired, tabulate, variant
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell
from mebandit.policies import meb
from mebandit.reports.figures import picture
from mebandit.reports.page import Section
from mebandit.reports.table import Table

if TYPE_CHECKING:
    import pandas as pd

REFITS: dict[str, Any] = {
    "every round": schedules.EveryRound(),
    "every 10 rounds": schedules.Every(10),
    "every 100 rounds": schedules.Every(100),
    "every 1000 rounds": schedules.Every(1000),
    "powers of 2": schedules.PowersOf(2),
    "powers of 4": schedules.PowersOf(4),
}
"""the rounds after which θ is solved for, by name"""


def cells(options: PaperOptions) -> list[SimulationCell]:
    """One cell, in which all schedules play."""
    policies = [meb(2, 5, refit=refit, name=name) for name, refit in REFITS.items()]
    return [variant("updates", Gaussian(error_cov=ERROR_VAR), policies, options, world="synthetic")]


def table(data: CellData) -> "pd.DataFrame":
    """A row for each schedule."""
    found = tabulate(data, ["world"])
    times = np.arange(1, HORIZON + 1)
    refits = {name: int(schedules.written_out(refit, times, bool).sum()) for name, refit in REFITS.items()}
    found.insert(2, "refits", [refits.get(policy, 0) for policy in found["policy"]])
    return found


def sections(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """Regret and estimation error by schedule."""
    own = table[table["policy"].isin(REFITS)].set_index("policy")
    regrets = data.replicates.pivot(index="replicate", columns="policy", values="clipped_regret")
    rows = [
        [
            name,
            f"{own['refits'][name]:,}",
            f"{own['mean'][name]:.4f} ± {own['std_error'][name]:.4f}",
            "" if name == "every round" else paired(regrets[name], regrets["every round"]),
            f"{own['estimation_error'][name]:.3f}",
        ]
        for name in REFITS
    ]
    two, once = own.loc["powers of 2"], own.loc["every round"]
    return [
        Section(
            title="MEB with infrequent updates (App. E.4)",
            setting=(
                f"The synthetic world, σ_ε² = {ERROR_VAR:g}, {HORIZON:,} rounds, {len(regrets)} replicates; θ̂ is solved for only after "
                "the rounds of a set S."
            ),
            finding=(
                f"{two['refits']} solves at powers of 2 give {two['mean']:.4f} per round where {once['refits']:,} give {once['mean']:.4f}: "
                f"{two['mean'] / once['mean'] - 1:+.1%}; {own['refits']['every 100 rounds']} at equal intervals give "
                f"{own['mean']['every 100 rounds']:.4f}."
            ),
            table=Table(["solved for", "solves", "clipped regret", "against every round", "error of θ̂"], rows),
            pictures={"updates": picture(draw_curves_of(data.curves[data.curves["policy"].isin(REFITS)], "policy", "clipped_regret"))},
        )
    ]
