"""Results of a simulation: regret and estimation error by policy, replicate and round, as arrays, tidy tables and plots."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit import checks
from mebandit.reports.figures import canvas, draw_policies, legend_beside, save_figure
from mebandit.values import Floats, Integers

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

MEASURES = {
    "clipped_regret": "average clipped regret",
    "standard_regret": "average standard regret",
    "estimation_error": "estimation error, worst action",
    "guarded_fits": "stabilised estimates so far",
}
"""the measures of a simulation, with their names on the axis of a figure"""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of `mebandit.simulate`, by policy (P), replicate (N) and recorded round (R).

    Regrets are sums over rounds, computed with the true context.
    """

    policies: tuple[str, ...]
    """the names of all policies"""
    references: tuple[str, ...]
    """the names of the reference policies among them, which learn nothing: uniform play and the oracles"""
    times: Integers
    """the recorded rounds, (R,)"""
    standard_regret: Floats
    """regret against the best action, (P, N, R)"""
    clipped_regret: Floats
    """regret against the best policy that keeps the floor, (P, N, R)"""
    guarded_fits: Floats
    """number of stabilised (Fuller-type) estimates so far, (P, N, R); NaN for policies of other classes"""
    estimation_error: Floats
    """|θ̂_a - θ_a| by action, (P, N, R, K); NaN where nothing is estimated"""
    settings: dict[str, Any] = field(default_factory=dict)
    """how the simulation was set up"""

    @property
    def measures(self) -> dict[str, str]:
        """The names of all measures, with their names on an axis: `MEASURES`, and the error of each action as estimation_error_0, ..."""
        return MEASURES | {f"estimation_error_{a}": f"estimation error, action {a}" for a in range(self.estimation_error.shape[-1])}

    def of(self, measure: str) -> Floats:
        """A measure by policy, replicate and recorded round, (P, N, R).

        Regrets are averages over the rounds so far.

        Args:
            measure: A key of `measures`.
        """
        checks.one_of("measure", measure, self.measures)
        if measure == "estimation_error":
            return np.asarray(self.estimation_error.max(axis=-1))
        if measure not in MEASURES:
            return self.estimation_error[..., int(measure.removeprefix("estimation_error_"))]
        values: Floats = getattr(self, measure)
        return values if measure == "guarded_fits" else values / self.times

    def mean(self, policy: str, measure: str = "clipped_regret") -> float:
        """The mean over replicates at the last round.

        Args:
            policy: The name of a policy.
            measure: A key of `measures`.
        """
        return float(self.of(measure)[self._index(policy), :, -1].mean())

    def std_error(self, policy: str, measure: str = "clipped_regret") -> float:
        """The Monte-Carlo standard error of `mean`.

        Args:
            policy: The name of a policy.
            measure: A key of `measures`.
        """
        return float(_std_error(self.of(measure)[self._index(policy), :, -1]))

    def _index(self, policy: str) -> int:
        return self.policies.index(checks.one_of("policy", policy, self.policies))

    def summary(self) -> "pd.DataFrame":
        """A table with a row for each policy: mean and standard error of each measure at the last round."""
        import pandas as pd

        table: dict[str, Any] = {"policy": self.policies}
        for measure in MEASURES:
            last = self.of(measure)[:, :, -1]
            table[measure] = last.mean(axis=1)
            table[f"{measure}_se"] = _std_error(last)
        return pd.DataFrame(table)

    def curves(self) -> "pd.DataFrame":
        """A table with a row for each policy, measure and recorded round: mean and standard error over replicates."""
        import pandas as pd

        parts = []
        for measure in self.measures:
            values = self.of(measure)
            for i, policy in enumerate(self.policies):
                row = {"policy": policy, "measure": measure, "time": self.times}
                parts.append(pd.DataFrame(row | {"mean": values[i].mean(axis=0), "std_error": _std_error(values[i], axis=0)}))
        return pd.concat(parts, ignore_index=True)

    def replicates(self, at: Sequence[int] = ()) -> "pd.DataFrame":
        """A table with a row for each policy, replicate and round: all measures.

        Args:
            at: Recorded rounds; by default the last.
        """
        import pandas as pd

        if not isinstance(at, (list, tuple, range)) and not (isinstance(at, np.ndarray) and at.ndim == 1):
            checks.refuse("at", "be a list of recorded rounds", checks.shown(at))
        columns = [self._column(t) for t in at] if len(at) else [-1]
        n_policies, n = self.standard_regret.shape[:2]
        table = {
            "policy": np.repeat(self.policies, n * len(columns)),
            "replicate": np.tile(np.repeat(np.arange(n), len(columns)), n_policies),
            "time": np.tile(self.times[columns], n_policies * n),
        }
        return pd.DataFrame(table | {measure: self.of(measure)[:, :, columns].ravel() for measure in self.measures})

    def _column(self, time: Any) -> int:
        """Where a recorded round is."""
        found = np.flatnonzero(self.times == checks.integer("at", time, 1))
        if not found.size:
            checks.refuse("at", "be recorded rounds", time, "Ask for it when simulating: milestones=[...].")
        return int(found[0])

    def to_arrow(self) -> Any:
        """`curves` as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.curves(), preserve_index=False)

    def plot(self, measure: str = "clipped_regret", *, path: str | Path | None = None) -> "matplotlib.figure.Figure":
        """Draw curves over time, with bands of two standard errors.

        Args:
            measure: A key of `MEASURES`.
            path: The file to save the figure to, such as "regret.png"; by default none.
        """
        figure = draw_curves(self.curves(), measure, references=self.references)
        if path is not None:
            save_figure(figure, path)
        return figure


def draw_curves(curves: "pd.DataFrame", measure: str, *, references: Collection[str] = ()) -> "matplotlib.figure.Figure":
    """Draw the curves of one measure.

    Args:
        curves: A table such as `Results.curves` returns.
        measure: A key of `MEASURES`.
        references: The policies that learn nothing; their lines are grey and dashed.
    """
    checks.one_of("measure", measure, MEASURES)
    figure = canvas(7.5, 4.4)
    axes = figure.subplots()
    own = curves[curves["measure"] == measure]
    draw_policies(axes, own, references=references, log_scale=measure == "estimation_error")
    if measure != "estimation_error":
        axes.set_ylim(bottom=min(0.0, float(own["mean"].min())))
    axes.set_xscale("log")
    axes.set_ylabel(MEASURES[measure])
    legend_beside(axes)
    return figure


def _std_error(values: Floats, axis: int = -1) -> Floats:
    """The standard error of a mean over replicates; NaN for a single one."""
    n = values.shape[axis]
    if n == 1:
        return np.full(np.delete(values.shape, axis), np.nan)
    return np.asarray(values.std(axis=axis, ddof=1) / np.sqrt(n))
