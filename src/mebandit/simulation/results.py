"""What a simulation found: regret and estimation error by policy, replicate and round, as arrays, tidy tables and plots."""

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
    "estimation_error": "estimation error, worst arm",
    "guarded_fits": "fits decided by the guard so far",
}


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results by policy (P), replicate (N) and recorded round (R). Regrets are cumulative, at the true context."""

    policies: tuple[str, ...]
    references: tuple[str, ...]
    """those of the policies that are there for reference: uniform play and the oracles"""
    times: Integers
    """the recorded rounds, (R,)"""
    standard_regret: Floats
    """against the best action, (P, N, R)"""
    clipped_regret: Floats
    """against the best policy that keeps the floor, (P, N, R)"""
    guarded_fits: Floats
    """how often the guard decided a fit so far, (P, N, R); NaN for policies of other classes"""
    estimation_error: Floats
    """|θ̂_a - θ_a| by arm, (P, N, R, K); NaN where nothing is estimated"""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> dict[str, str]:
        """What can be asked for, with its name on an axis: `MEASURES`, and the error of each arm as estimation_error_0, ..."""
        return MEASURES | {f"estimation_error_{a}": f"estimation error, arm {a}" for a in range(self.estimation_error.shape[-1])}

    def of(self, measure: str) -> Floats:
        """A measure per round so far, (P, N, R): a regret divided by the rounds played, or the error of an arm, or of the worst."""
        checks.one_of("measure", measure, self.measures)
        if measure == "estimation_error":
            return np.asarray(self.estimation_error.max(axis=-1))
        if measure not in MEASURES:
            return self.estimation_error[..., int(measure.removeprefix("estimation_error_"))]
        values: Floats = getattr(self, measure)
        return values if measure == "guarded_fits" else values / self.times

    def mean(self, policy: str, measure: str = "clipped_regret") -> float:
        """The mean over replicates at the last round."""
        return float(self.of(measure)[self._index(policy), :, -1].mean())

    def std_error(self, policy: str, measure: str = "clipped_regret") -> float:
        """The Monte-Carlo standard error of `mean`."""
        return float(_std_error(self.of(measure)[self._index(policy), :, -1]))

    def _index(self, policy: str) -> int:
        return self.policies.index(checks.one_of("policy", policy, self.policies))

    def summary(self) -> "pd.DataFrame":
        """A row per policy: mean and standard error of each measure at the horizon."""
        import pandas as pd

        table: dict[str, Any] = {"policy": self.policies}
        for measure in MEASURES:
            last = self.of(measure)[:, :, -1]
            table[measure] = last.mean(axis=1)
            table[f"{measure}_se"] = _std_error(last)
        return pd.DataFrame(table)

    def curves(self) -> "pd.DataFrame":
        """A row per policy, measure and recorded round: mean and standard error over replicates."""
        import pandas as pd

        parts = []
        for measure in self.measures:
            values = self.of(measure)
            for i, policy in enumerate(self.policies):
                row = {"policy": policy, "measure": measure, "time": self.times}
                parts.append(pd.DataFrame(row | {"mean": values[i].mean(axis=0), "std_error": _std_error(values[i], axis=0)}))
        return pd.concat(parts, ignore_index=True)

    def replicates(self, at: Sequence[int] = ()) -> "pd.DataFrame":
        """A row per policy, replicate and recorded round of `at` (by default the last): what tests and spreads are computed from."""
        import pandas as pd

        columns = [int(np.searchsorted(self.times, t)) for t in at] if len(at) else [-1]
        for i, t in zip(columns, at, strict=False):
            if i >= self.times.size or self.times[i] != t:
                checks.refuse("at", "be recorded rounds", t, "Ask for it when simulating: milestones=[...].")
        n_policies, n = self.standard_regret.shape[:2]
        table = {
            "policy": np.repeat(self.policies, n * len(columns)),
            "replicate": np.tile(np.repeat(np.arange(n), len(columns)), n_policies),
            "time": np.tile(self.times[columns], n_policies * n),
        }
        return pd.DataFrame(table | {measure: self.of(measure)[:, :, columns].ravel() for measure in self.measures})

    def to_arrow(self) -> Any:
        """`curves` as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.curves(), preserve_index=False)

    def plot(self, measure: str = "clipped_regret", *, path: str | Path | None = None) -> "matplotlib.figure.Figure":
        """Curves with bands of two standard errors, references dashed; saved if a path is given."""
        figure = draw_curves(self.curves(), measure, references=self.references)
        if path is not None:
            save_figure(figure, path)
        return figure


def draw_curves(curves: "pd.DataFrame", measure: str, *, references: Collection[str] = ()) -> "matplotlib.figure.Figure":
    """A figure of one measure from a table as `Results.curves` gives it."""
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
