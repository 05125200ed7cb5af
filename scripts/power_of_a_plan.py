"""The power of a planned trial, simulated apart from the plan: `python scripts/power_of_a_plan.py [REPLICATES]`.

A simulated pilot is fitted and the next trial is planned. Then trials of the planned size, with the planned effect and each
with validation pairs of its own, are drawn and fitted, and those are counted whose interval excludes zero.
"""

import sys

import numpy as np

import mebandit as mb
from mebandit.analysis.effects import Effect
from mebandit.experiments import trial
from mebandit.logs.log import LogColumns

COLUMNS: LogColumns = {
    "predicted": "stress,steps,location", "reward": "outcome", "propensity": "prob_send", "probability_of": "send",
    "available": "available", "unit": "participant", "time": "time", "missing_outcomes": "leave-out",
}  # fmt: skip
EFFECT, POWER = 0.05, 0.8
AT_WORK = 0.7 * 0.3 / (0.7 * 0.3 + 0.88 * 0.7)
"""the share of the available points"""


def fitted(participants: int, effect: float | None, seed: int) -> mb.Analysis:
    """A trial with validation pairs; `effect` is the average effect, None that of the example."""
    own = trial.EFFECT.copy()
    if effect is not None:
        own[0] = effect - 0.8 * own[1] - AT_WORK * own[4]
    pairs = trial.make_validation(seed=seed)
    model = mb.measurement.from_validation(pairs[["stress"]].to_numpy(), pairs[["reported"]].to_numpy()).named("stress")
    log = mb.Log(trial.make_trial(participants, effect=own, seed=seed), **COLUMNS)
    return mb.fit(log, error_cov=model, intercept=True, methods="dr")


def main() -> None:
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    planned = mb.plan(fitted(60, None, 1), coefficient="average", effect=EFFECT, power=POWER, days=90, decision_points=5)
    assert planned.participants is not None
    print(planned.describe())
    hits = np.array([abs(e.value) > 1.959964 * e.std_error for e in effects(planned.participants, replicates)])
    error = np.sqrt(hits.mean() * (1 - hits.mean()) / replicates)
    shown = f"{100 * hits.mean():.1f} ± {100 * error:.1f} %"
    print(f"planned power {100 * POWER:.0f} %; in {replicates} trials of {planned.participants} participants {shown}")


def effects(participants: int, replicates: int) -> list[Effect]:
    """The average effect that each trial finds."""
    return [fitted(participants, EFFECT, 1000 + seed).average_effect() for seed in range(replicates)]


if __name__ == "__main__":
    main()
