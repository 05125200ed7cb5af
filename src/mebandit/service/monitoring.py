"""Whether an experiment runs as designed: each check a verdict, and the sentence that says why and what to do."""

import json
from collections import defaultdict
from math import sqrt
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from mebandit.service.service import Live
from mebandit.service.store import outcomes
from mebandit.service.store.database import all_rows
from mebandit.service.store.schema import decision, truth
from mebandit.values import GREEN, RED, YELLOW, Finding

LAST = 10_000
"""decisions that are looked at"""
FALLBACKS = 0.05, 0.2
"""shares of decisions by the fallback from which the verdict is yellow, and red"""
DEVIATION = 3.3, 4.9
"""standard deviations from which it is: two-sided probabilities of 1e-3 and 1e-6"""
LEAST_TRUTHS = 30
"""pairs of a prediction and the truth that a verdict needs"""


def checked(connection: Connection, live: Live) -> list[Finding]:
    """What is checked of an experiment, of its last decisions.

    Args:
        connection: to the store.
        live: the experiment.
    """
    asked = select(decision).where(decision.c.experiment == live.name).order_by(decision.c.id.desc()).limit(LAST)
    rows = all_rows(connection, asked)
    waiting = outcomes.n_to_learn(connection, live.name)
    found = [_running(live), _fallbacks(rows), _learning(live, waiting)]
    drawn = [row for row in rows if row["mode"] in ("learned", "warmup", "fallback")]
    return [*found, _floor(live, drawn), _shares(live, drawn), *_errors(connection, live)]


def _running(live: Live) -> Finding:
    if live.trouble is not None:
        return Finding("status", RED, f"The fallback decides, since {live.trouble[:1].lower()}{live.trouble[1:]}", {})
    verdict = GREEN if live.status == "running" else YELLOW
    return Finding("status", verdict, f"The experiment is {live.status}; version {live.row['active']} decides.", {})


def _verdict(size: float, limits: tuple[float, float]) -> str:
    return GREEN if size < limits[0] else YELLOW if size < limits[1] else RED


def _fallbacks(rows: list[Any]) -> Finding:
    made = [row for row in rows if row["action"] is not None]
    share = sum(row["mode"] == "fallback" for row in made) / max(len(made), 1)
    said = f"The fallback made {share:.1%} of the last {len(made):,} decisions."
    remedy = "" if share < FALLBACKS[0] else " The incidents name the reasons."
    return Finding("fallback", _verdict(share, FALLBACKS), said + remedy, {"share": [share]})


def _learning(live: Live, waiting: int) -> Finding:
    cadence = live.experiment.configuration.cadence
    late = waiting > 10 * (cadence.outcomes or 100) and not cadence.by_hand
    said = f"{waiting:,} outcomes wait to be learned."
    return Finding("learning", YELLOW if late else GREEN, said + (" Is a trainer running?" if late else ""), {"waiting": [float(waiting)]})


def _floor(live: Live, rows: list[Any]) -> Finding:
    """The smallest probability of an allowed action among those that the policy gave."""
    floor = live.experiment.policy.floor_at(1)
    shares = [json.loads(row["propensities"])[a] for row in rows if row["mode"] == "learned" for a in json.loads(row["allowed"])]
    least = min(shares, default=1.0)
    kept = least >= floor - 1e-12
    said = f"The smallest probability is {least:.4g}; the floor is {floor:g}."
    return Finding("floor", GREEN if kept else RED, said, {"least": [least], "floor": [floor]})


def _shares(live: Live, rows: list[Any]) -> Finding:
    """The randomisation test: z_a = Σ (1{a_t = a} - π_t(a)) / sqrt(Σ π_t(a) (1 - π_t(a)))."""
    if not rows:
        return Finding("randomisation", GREEN, "No action was drawn yet.", {})
    pi = np.array([json.loads(row["propensities"]) for row in rows])
    taken = np.array([row["action"] for row in rows])[:, None] == np.arange(pi.shape[1])
    variance = (pi * (1 - pi)).sum(axis=0)
    z = np.divide((taken - pi).sum(axis=0), np.sqrt(variance), out=np.zeros(pi.shape[1]), where=variance > 0)
    worst = int(np.abs(z).argmax())
    said = f"Actions were taken as often as their probabilities say, within {abs(z[worst]):.2g} standard deviations."
    verdict = _verdict(abs(z[worst]), DEVIATION)
    if verdict != GREEN:
        name = live.experiment.actions[worst]
        said = f"{name!r} was taken {z[worst]:+.2g} standard deviations away from its probabilities. Replay the store to see where."
    return Finding("randomisation", verdict, said, {"z": z.tolist()})


def _errors(connection: Connection, live: Live) -> list[Finding]:
    """Whether predictions are as far from the truths as was told: the mean of (x̃ - x)² / σ² is 1 if so."""
    asked = (
        select(truth.c.feature, truth.c.value, decision.c.predicted, decision.c.error_cov)
        .join(decision, (decision.c.experiment == truth.c.experiment) & (decision.c.name == truth.c.decision))
        .where(truth.c.experiment == live.name, decision.c.predicted.is_not(None))
        .order_by(truth.c.id.desc())
        .limit(LAST)
    )
    ratios: dict[str, list[float]] = defaultdict(list)
    for feature, value, predicted, error_cov in connection.execute(asked):
        i = live.experiment.features.index(feature)
        variance = json.loads(error_cov)[i][i]
        if variance > 0:
            ratios[feature].append((json.loads(predicted)[i] - value) ** 2 / variance)
    found = []
    for feature, each in ratios.items():
        n, ratio = len(each), float(np.mean(each))
        z = (ratio - 1) / max(float(np.std(each)) / sqrt(n), 1e-12)
        verdict = GREEN if n < LEAST_TRUTHS else _verdict(abs(z), DEVIATION)
        said = f"The squared error of {feature} is {ratio:.2f} times what was told, by {n:,} truths."
        remedy = "" if verdict == GREEN else " Fit the error model anew, with these truths."
        found.append(Finding(f"error of {feature}", verdict, said + remedy, {"ratio": [ratio], "n": [float(n)]}))
    return found


def counts(connection: Connection, name: str) -> dict[str, int]:
    """Decisions by mode."""
    asked = select(decision.c.mode, func.count()).where(decision.c.experiment == name).group_by(decision.c.mode)
    return {str(mode): int(n) for mode, n in connection.execute(asked)}
