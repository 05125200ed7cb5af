"""What was learned: `fit` on the rounds that the experiment learned, corrected beside uncorrected, with its diagnostics."""

import json
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from mebandit.checks import MebanditError
from mebandit.estimation.methods import Method
from mebandit.service.checks.sums import vectors
from mebandit.service.experiment import Experiment
from mebandit.service.store.database import all_rows
from mebandit.service.store.schema import decision, effect, learned, outcome
from mebandit.values import Finding

LEAST = 100
"""rounds that a fit needs"""
GROWTH = 1.05
"""by how much the rounds must have grown before they are fitted again"""
MOST = 200_000
"""rounds that are fitted: the newest"""
LEVEL = 0.95
METHODS: tuple[Method, ...] = ("dr", "ridge")
"""corrected and uncorrected"""


class Fitted(NamedTuple):
    """What `fit` said."""

    learned: int
    """rounds that the version knew"""
    rounds: int
    """rounds that were fitted"""
    findings: tuple[Finding, ...]
    effects: list[dict[str, Any]]
    """of each action but the first against the first, by method: name of the coefficient, value, low, high; see `effects_of`"""

    def plain(self) -> dict[str, Any]:
        """All of it, as JSON can hold it; numbers that are not finite become null."""
        findings = [list(each) for each in self.findings]
        told: dict[str, Any] = {"learned": self.learned, "rounds": self.rounds, "findings": findings, "effects": self.effects}
        return {name: finite(value) for name, value in told.items()}


def fitted_from(plain: dict[str, Any] | None) -> Fitted | None:
    """What `Fitted.plain` gave, back."""
    if plain is None:
        return None
    findings = tuple(
        Finding(name, verdict, sentence, {key: [math.nan if v is None else v for v in each] for key, each in values.items()})
        for name, verdict, sentence, values in plain["findings"]
    )
    return Fitted(plain["learned"], plain["rounds"], findings, plain["effects"])


def finite(value: Any) -> Any:
    """A value with null for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    if isinstance(value, float):  # NumPy's numbers as well
        return float(value) if math.isfinite(value) else None
    return value


def fit_again(connection: Connection, x: str, experiment: Experiment, before: Fitted | None) -> Fitted | None:
    """What `fit` says of the rounds learned so far; what it said before, where they have hardly grown."""
    n = connection.execute(select(func.max(learned.c.seq)).where(learned.c.experiment == x)).scalar() or 0
    if n < LEAST or (before is not None and n < GROWTH * before.learned):
        return before
    import mebandit as mb

    table = rounds_of(connection, x, experiment, n)
    features = [f"predicted_{i}" for i in range(len(experiment.features))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = mb.fit(table, predicted=features, methods=METHODS, unit="unit", progress=False, workers=1)
        except MebanditError as error:
            return Fitted(n, len(table["action"]), (Finding("fit", "yellow", f"The rounds could not be fitted: {error}", {}),), [])
    names = dict(zip(features, experiment.features, strict=True))
    findings = tuple(_renamed(each, names) for each in found.diagnostics)
    return Fitted(n, len(table["action"]), findings, effects_of(found, experiment))


def _renamed(found: Finding, names: dict[str, str]) -> Finding:
    """A finding with the features under the names that the experiment gives them."""
    sentence = found.sentence
    for column, name in names.items():
        sentence = sentence.replace(repr(column), repr(name))
    return found._replace(sentence=sentence, values={names.get(key, key): list(map(float, each)) for key, each in found.values.items()})


def effects_of(found: Any, experiment: Experiment) -> list[dict[str, Any]]:
    """Differences between each action and the first: at the mean context, and by feature; intervals that hold at every look."""
    rows = []
    for a in range(1, len(experiment.actions)):
        for method, estimate in found.estimates.items():
            contrast = estimate.contrast(a, 0)
            ends = contrast.interval(LEVEL, anytime=True)
            average = found.average_effect(a, 0, method=method)
            half = ends_of_average(average, estimate.size)
            about = {"action": experiment.actions[a], "against": experiment.actions[0], "method": method}
            rows.append(about | {"what": "average", "value": average.value, "low": average.value - half, "high": average.value + half})
            rows += [
                about | {"what": name, "value": float(value), "low": float(low), "high": float(high)}
                for name, value, (low, high) in zip(experiment.features, contrast.theta, ends, strict=True)
            ]
    return rows


def ends_of_average(average: Any, n: float) -> float:
    """Half the width of an interval for the average effect that holds at every look."""
    from mebandit.estimation.anytime import multiples

    return float(multiples(n, LEVEL, np.array(average.df)) * average.std_error)


def rounds_of(connection: Connection, x: str, experiment: Experiment, n: int) -> dict[str, Any]:
    """The rounds that were learned, as the columns that `fit` reads."""
    asked = (
        select(
            decision.c.name, decision.c.unit, decision.c.predicted, decision.c.error_cov, decision.c.action, decision.c.propensities,
            outcome.c.value,
        )
        .select_from(learned)
        .join(decision, (decision.c.experiment == learned.c.experiment) & (decision.c.name == learned.c.decision))
        .join(
            outcome,
            (outcome.c.experiment == learned.c.experiment)
            & (outcome.c.decision == learned.c.decision)
            & (outcome.c.revision == learned.c.revision),
        )
        .where(learned.c.experiment == x, learned.c.seq > n - MOST, learned.c.seq <= n)
        .where(decision.c.predicted.is_not(None))
        .order_by(learned.c.seq)
    )  # fmt: skip
    rows = connection.execute(asked).all()
    predicted, pi = vectors(row.predicted for row in rows), vectors(row.propensities for row in rows)
    error = vectors(row.error_cov for row in rows)
    d = len(experiment.features)
    columns: dict[str, Any] = {
        "unit": np.array([row.unit or f"\0{row.name}" for row in rows]),
        "action": np.array([row.action for row in rows]),
        "reward": np.array([row.value for row in rows]),
    }
    columns |= {f"predicted_{i}": predicted[:, i] for i in range(d)}
    columns |= {f"propensity_{a}": pi[:, a] for a in range(pi.shape[1])}
    return columns | {f"error_cov_{i}_{j}": error[:, i, j] for i in range(d) for j in range(i + 1)}


def effects_over_time(connection: Connection, x: str) -> list[dict[str, Any]]:
    """What was estimated, version by version."""
    asked = select(effect).where(effect.c.experiment == x).order_by(effect.c.learned)
    return [row | {"body": json.loads(row["body"])} for row in all_rows(connection, asked)]
