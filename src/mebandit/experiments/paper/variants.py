"""What the experiments "estimated-variance", "updates" and "k-arms" share: variants of MEB in the synthetic environment.

The variants of an experiment meet the same random numbers, and are compared at the last round.
"""

from math import sqrt
from typing import TYPE_CHECKING, Any

from mebandit.environments import Environment
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell, simulated
from mebandit.policies import LinearPolicy
from mebandit.reports.figures import canvas, draw_policies, legend_beside

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

REPLICATES, HORIZON = 40, 20_000
ERROR_VAR = 1.0
"""variance of the error of each feature"""


def variant(name: str, environment: Environment, policies: list[LinearPolicy], options: PaperOptions, **labels: Any) -> SimulationCell:
    """A cell of the synthetic environment, or of a variation of it."""
    setup: dict[str, Any] = {"horizon": HORIZON, "replicates": options.replicates_or(REPLICATES), "seed": options.seed}
    return simulated(name, environment, policies, labels=labels, **setup)


def tabulate(data: CellData, labels: list[str]) -> "pd.DataFrame":
    """A row per label and policy: mean and standard error of average clipped regret, and the estimation error of the worst action."""
    import pandas as pd

    rows = []
    for key, own in data.replicates.groupby([*labels, "policy"], sort=False):
        regret, n = own["clipped_regret"], len(own)
        numbers = {"mean": regret.mean(), "std_error": regret.std(ddof=1) / sqrt(n), "estimation_error": own["estimation_error"].mean()}
        rows.append(dict(zip([*labels, "policy"], key, strict=True)) | numbers | {"replicates": n, "horizon": HORIZON})
    return pd.DataFrame(rows)


def paired(first: "pd.Series[float]", second: "pd.Series[float]") -> str:
    """The mean difference ± its standard error, on common random numbers."""
    difference = first - second
    return f"{difference.mean():+.4f} ± {difference.std(ddof=1) / sqrt(len(difference)):.4f}"


def draw_curves_of(curves: "pd.DataFrame", column: str, measure: str) -> "matplotlib.figure.Figure":
    """The curves of a measure, one for each value of a column."""
    own = curves[(curves["measure"] == measure) & (curves["time"] >= 50)].drop(columns="policy" if column != "policy" else [])
    figure = canvas(8.6, 4.2)
    axes = figure.subplots()
    draw_policies(axes, own.rename(columns={column: "policy"}), log_scale=measure == "estimation_error")
    axes.set_xscale("log")
    axes.set_ylabel({"clipped_regret": "average clipped regret", "estimation_error": "error of θ̂, worst action"}[measure])
    legend_beside(axes)
    return figure
