"""The power of planned trials, simulated apart from the plan: `python scripts/power_of_a_plan.py [REPLICATES]`.

A simulated pilot is fitted and the next trial is planned. Then trials of the planned size, with the planned effect and each with validation
pairs of its own, are drawn and fitted, and those are counted whose interval excludes zero.
Clustered standard errors from 60 participants are themselves uncertain by 9 %, and so is the power that follows: the pilot here has 600.
"""

import sys

import numpy as np

import mebandit as mb
from mebandit.experiments import trial
from mebandit.logs.log import LogColumns
from mebandit.values import Floats

COLUMNS: LogColumns = {
    "predicted": "stress,steps,location", "reward": "outcome", "propensity": "prob_send", "probability_of": "send",
    "available": "available", "unit": "participant", "time": "time", "missing_outcomes": "leave-out",
}  # fmt: skip
POWER = 0.8
AT_WORK = 0.7 * 0.3 / (0.7 * 0.3 + 0.88 * 0.7)
"""the share of the available points"""

DAYS, PILOT = 20, 600
"""days of pilot and trial, and participants of the pilot"""

PLANS = {"location=work": 0.15, "average": 0.1}
"""the size of each effect"""


def with_effect(coefficient: str, size: float) -> Floats:
    """What a message adds, with one effect of a given size."""
    own: Floats = trial.EFFECT.copy()
    if coefficient == "average":
        own[0] = size - 0.8 * own[1] - AT_WORK * own[4]
    else:
        own[4] = size
    return own


def fitted(participants: int, effect: Floats, seed: int) -> mb.Analysis:
    """A trial with validation pairs."""
    pairs = trial.make_validation(seed=seed)
    model = mb.measurement.from_validation(pairs[["stress"]].to_numpy(), pairs[["reported"]].to_numpy()).named("stress")
    log = mb.Log(trial.make_trial(participants, DAYS, effect=effect, seed=seed), **COLUMNS)
    return mb.fit(log, error_cov=model, intercept=True, methods="dr")


def is_found(analysis: mb.Analysis, coefficient: str) -> bool:
    """Whether the interval of an effect excludes zero."""
    if coefficient == "average":
        low, high = analysis.average_effect().interval()
    else:
        low, high = analysis.best.contrast(1, 0).interval()[analysis.features.index(coefficient)]
    return bool(low * high > 0)


def main() -> None:
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    pilot = fitted(PILOT, trial.EFFECT, 1)
    for coefficient, size in PLANS.items():
        n = mb.plan(pilot, coefficient=coefficient, effect=size, power=POWER, days=DAYS, decision_points=5).participants
        assert n is not None
        hits = np.array([is_found(fitted(n, with_effect(coefficient, size), 1000 + seed), coefficient) for seed in range(replicates)])
        error = np.sqrt(hits.mean() * (1 - hits.mean()) / replicates)
        planned = f"{coefficient} = {size:g}: {n} participants for a power of {100 * POWER:.0f} %"
        print(f"{planned}; in {replicates} trials {100 * hits.mean():.1f} ± {100 * error:.1f} %", flush=True)


if __name__ == "__main__":
    main()
