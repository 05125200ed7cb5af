"""The finished rounds of a run as arrays: what a journal or a simulation leaves, and what estimates are computed from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.runtime.files import whole_file
from mebandit.values import Booleans, Floats, Integers


class History(NamedTuple):
    """The T finished rounds of a live or a simulated run as arrays, in the order in which they were learned.

    `mebandit.fit` and `mebandit.Log` take it as it is, `mebandit.estimate` its arrays.
    """

    decision: Integers
    """the id of each decision, (T,)"""
    predicted: Floats
    """x̃_t, (T, d)"""
    error_cov: Floats
    """Σ_e,t, as the policy was told, (T, d, d)"""
    allowed: Booleans
    """which actions could be taken, (T, K)"""
    actions: Integers
    """a_t, (T,)"""
    propensities: Floats
    """π_t(·), zero where not allowed, (T, K)"""
    rewards: Floats
    """r_t, (T,)"""
    about: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """what the caller of a learner said of each decision, by column: unit, time, and fields of its own; empty by default"""

    def part(self, rounds: slice) -> "History":
        """Some of the rounds, as views."""
        about = {name: values[rounds] for name, values in self.about.items()}
        return History._make([*(array[rounds] for array in self[:-1]), about])

    def to_arrow(self) -> Any:
        """One row per round: decision, predicted_i, action, propensity, propensity_a, allowed_a, reward, error_cov_i_j (j <= i), and what
        was said of each decision."""
        import pyarrow as pa

        rounds = checked(self)
        n, d = rounds.predicted.shape
        k = rounds.propensities.shape[1]
        columns: dict[str, Any] = {"decision": rounds.decision}
        columns |= {f"predicted_{i}": rounds.predicted[:, i] for i in range(d)}
        columns |= {"action": rounds.actions, "propensity": rounds.propensities[np.arange(n), rounds.actions]}
        columns |= {f"propensity_{a}": rounds.propensities[:, a] for a in range(k)}
        columns |= {f"allowed_{a}": rounds.allowed[:, a] for a in range(k)}
        columns |= {"reward": rounds.rewards}
        columns |= {f"error_cov_{i}_{j}": rounds.error_cov[:, i, j] for i in range(d) for j in range(i + 1)}
        return pa.table(columns | {name: _column(name, values) for name, values in rounds.about.items()})

    def to_parquet(self, path: str | Path) -> None:
        """Write `to_arrow` to a Parquet file: first under another name, then renamed, so that no half file is ever seen.

        Args:
            path: Path of the file. A file that is there already is replaced.
        """
        import pyarrow.parquet as pq

        table = self.to_arrow()
        with whole_file(path) as file:
            pq.write_table(table, file)


def checked(rounds: History) -> History:
    """Rounds whose arrays fit together. NaN and infinities pass: whoever reads the rounds says in which one they are."""
    predicted = checks.shaped("predicted", rounds.predicted, (None, None))
    n, d = predicted.shape
    propensities = checks.shaped("propensities", rounds.propensities, (n, None))
    k = propensities.shape[1]
    checks.shaped("decision", rounds.decision, (n,))
    decision = np.asarray(rounds.decision)
    if decision.dtype.kind not in "iu":
        checks.refuse("decision", "be whole numbers", checks.shown(decision))
    return History(
        decision=decision,
        predicted=predicted,
        error_cov=checks.shaped("error_cov", rounds.error_cov, (n, d, d)),
        allowed=checks.shaped("allowed", rounds.allowed, (n, k)) != 0,
        actions=checks.actions("actions", rounds.actions, k, n),
        propensities=propensities,
        rewards=checks.shaped("rewards", rounds.rewards, (n,)),
        about=_checked_about(rounds.about, n),
    )


def _checked_about(about: Mapping[str, Sequence[Any]], n: int) -> Mapping[str, Sequence[Any]]:
    """Columns of n values by name."""
    if not isinstance(about, Mapping) or not all(isinstance(name, str) for name in about):
        checks.refuse("about", "be columns by name", checks.shown(about))
    for name, values in about.items():
        if np.ndim(np.empty(0) if isinstance(values, (list, tuple)) else values) != 1 or len(values) != n:
            checks.refuse(f"about[{name!r}]", f"have {n} values", checks.shown(values))
    return about


def _column(name: str, values: Sequence[Any]) -> Any:
    """Values as a column of Arrow."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        checks.refuse(f"about[{name!r}]", "be texts or numbers that one column can hold", f"{checks.shown(values)} ({error})")
