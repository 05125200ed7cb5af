"""The experiment "k-arms": MEB and others with 2, 3, 5 and 10 actions (Appendix C)."""

from collections.abc import Mapping
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit.environments import Gaussian
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.paper.variants import ERROR_VAR, HORIZON, tabulate, variant
from mebandit.experiments.runner import CellData
from mebandit.experiments.spec import SimulationCell
from mebandit.policies import LinearPolicy, lin_ucb, meb, meb_dr, meb_naive, thompson
from mebandit.reports.colours import colours_of
from mebandit.reports.figures import canvas, legend_beside, picture, plain
from mebandit.reports.page import Section
from mebandit.reports.table import Table

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

ACTIONS = (2, 3, 5, 10)
THETA = (
    (5.0, 6.0, 4.0, 6.0, 4.0),
    (6.0, 5.0, 5.0, 5.0, 5.0),
    (4.0, 5.0, 6.0, 5.0, 5.0),
    (5.0, 4.0, 5.0, 6.0, 5.0),
    (5.0, 5.0, 5.0, 4.0, 6.0),
    (6.0, 4.0, 6.0, 4.0, 5.0),
    (4.0, 6.0, 5.0, 4.0, 6.0),
    (5.0, 5.0, 4.0, 6.0, 5.0),
    (6.0, 6.0, 5.0, 4.0, 4.0),
    (4.0, 4.0, 6.0, 5.0, 6.0),
)
"""the two actions of the paper, then others of the same kind: entries 4 to 6 with sum 25, so that no action is best at the mean context"""


def cells(options: PaperOptions) -> list[SimulationCell]:
    """A cell for each number of actions."""

    def policies(k: int) -> list[LinearPolicy]:
        return [meb(k, 5), meb_naive(k, 5), lin_ucb(k, 5), thompson(k, 5), meb_dr(k, 5)]

    return [variant(f"K = {k}", Gaussian(theta=THETA[:k], error_cov=ERROR_VAR), policies(k), options, n_actions=k) for k in ACTIONS]


def table(data: CellData) -> "pd.DataFrame":
    """A row for each number of actions and policy."""
    return tabulate(data, ["n_actions"])


def sections(table: "pd.DataFrame", data: CellData) -> list[Section]:
    """Regret by number of actions."""
    names = list(dict.fromkeys(table["policy"]))
    learners = [name for name in names if name not in ("uniform", "oracle on x̃", "oracle on E[x|x̃]")]
    mean = table.pivot(index="n_actions", columns="policy", values="mean")
    se = table.pivot(index="n_actions", columns="policy", values="std_error")
    rows = [[str(k), *(f"{mean.loc[k, p]:.4f} ± {se.loc[k, p]:.4f}" for p in names)] for k in ACTIONS]
    best = {(i, 1 + int(np.argmin([mean.loc[k, p] for p in learners]))) for i, k in enumerate(ACTIONS)}
    above = mean.sub(mean["oracle on x̃"], axis=0)
    share = above["MEB"] / above["UCB"]
    order = ", ".join(learners[i] for i in np.argsort([mean.loc[ACTIONS[-1], p] for p in learners]))
    fewest = table[table["policy"] == "MEB"].set_index("n_actions")["estimation_error"]
    return [
        Section(
            title="More actions (App. C)",
            setting=(
                f"The synthetic world, σ_ε² = {ERROR_VAR:g}, with K actions and {HORIZON:,} rounds: the paper's two, and others of the "
                "same kind. The floor is min(0.2, 1/(2K))."
            ),
            finding=(
                f"Above the x̃-oracle MEB loses {above['MEB'].min():.3f} to {above['MEB'].max():.3f} per round, {share.min():.0%} to "
                f"{share.max():.0%} of what UCB loses; at K = {ACTIONS[-1]} the order from best to worst is {order}. With a floor of "
                "1/(2K) an action is taken more rarely and weighted more: the error of MEB's θ̂ for the worst action is "
                f"{fewest[ACTIONS[0]]:.2f} at K = {ACTIONS[0]} and {fewest[ACTIONS[-1]]:.2f} at K = {ACTIONS[-1]}."
            ),
            table=Table(["K", *names], rows, best),
            pictures={"k_arms": picture(draw(mean, se))},
        )
    ]


def draw(mean: "pd.DataFrame", se: "pd.DataFrame") -> "matplotlib.figure.Figure":
    """Regret against the number of actions."""
    figure = canvas(7.2, 4.0)
    axes = figure.subplots()
    colours = colours_of(policy for policy in mean.columns if policy != "uniform" and not policy.startswith("oracle"))
    marks = iter(["s:", "^--", "v--"])
    for policy in mean.columns:
        style: Mapping[str, Any] = (
            {"fmt": "o-", "color": colours[policy]} if policy in colours else {"color": "0.5", "fmt": next(marks), "lw": 1}
        )
        axes.errorbar([log(k) for k in ACTIONS], mean[policy], yerr=2 * se[policy], label=policy, ms=5, **style)
    axes.set_xticks([log(k) for k in ACTIONS], [str(k) for k in ACTIONS])
    axes.set_xlabel("number of actions K")
    axes.set_ylabel("average clipped regret")
    axes.set_ylim(bottom=0)
    plain(axes)
    legend_beside(axes)
    return figure
