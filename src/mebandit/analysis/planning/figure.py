"""The figure of a plan: what a number of rounds gives."""

import re
from typing import TYPE_CHECKING

import numpy as np

from mebandit.analysis.planning.result import Plan
from mebandit.reports.colours import PALETTE
from mebandit.runtime.escaping import in_figure

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def draw(planned: Plan) -> "matplotlib.figure.Figure":
    """Power or half-width against the number of rounds: the formula's line, simulated trials, and the number to plan for."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes, goal = figure.subplots(), planned.goal
    shown = [planned.rounds, planned.formula, *(c.rounds * planned.design_effect for c in planned.simulated)]
    n = np.linspace(0.75 * min(0.55 * planned.formula, *shown), 1.12 * max(1.4 * planned.rounds, *shown), 300)
    axes.plot(n, [goal.reached(planned.accuracy, at) for at in n], color=PALETTE["blue"], linewidth=2, label="formula")
    if planned.simulated:
        at = [c.rounds * planned.design_effect for c in planned.simulated]
        values = [(c.power, 2 * c.power_se) if goal.tests else (c.half_width, 2 * c.half_width_se) for c in planned.simulated]
        mean, bars = zip(*values, strict=True)
        label = f"{planned.simulated[0].replicates} simulated trials each, ± 2 s.e."
        axes.errorbar(at, mean, yerr=bars, fmt="o", color=PALETTE["red"], markersize=6, capsize=3, linewidth=1.4, label=label, zorder=3)
    _mark(axes, planned)
    axes.set_xlim(n[0], n[-1])
    if goal.tests:
        axes.set_ylim(min(axes.get_ylim()[0], 0.9 * goal.power), 1.0)
    else:
        axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("rounds")
    name = re.sub(r"θ_(\d+)", r"$\\theta_{\1}$", in_figure(goal.name)).replace(" - ", " − ")
    axes.set_ylabel(f"power to detect {name} = {goal.effect:g}" if goal.tests else f"half-width of the interval of {name}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="lower right" if goal.tests else "upper right")
    return figure


def _mark(axes: "matplotlib.axes.Axes", planned: Plan) -> None:
    """The wanted value and the number of rounds to plan for."""
    target = planned.goal.target
    axes.axhline(target, color="0.45", linestyle=(0, (4, 2)), linewidth=1.2)
    axes.axvline(planned.rounds, color="0.45", linestyle=(0, (4, 2)), linewidth=1.2)
    high = planned.goal.tests
    participants = "" if planned.participants is None else f"\n{planned.participants:,} participants"
    words = f"{planned.rounds:,} rounds{participants}\n{'power' if high else 'half-width'} {target:g}"
    place = (-8, 8) if high else (8, 8)
    axes.annotate(
        words, (planned.rounds, target), xytext=place, textcoords="offset points",
        ha="right" if high else "left", va="bottom", fontsize=10, fontweight="bold",
    )  # fmt: skip
