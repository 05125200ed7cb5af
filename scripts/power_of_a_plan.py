"""The power of planned trials, simulated apart from the plan: `python scripts/power_of_a_plan.py [REPLICATES]`.

In each replicate a pilot is drawn and fitted, the next trial is planned from it, and one trial of the planned size is drawn, with the
planned effect and validation pairs of its own, and fitted. Those are counted whose interval excludes zero. One pilot alone plans too few or
too many participants, since its standard error is uncertain; the plan promises its power on average over pilots.
"""

import sys

import numpy as np

import mebandit as mb
from mebandit.experiments import trial
from mebandit.logs.log import LogColumns
from mebandit.runtime.progress import progress_bar
from mebandit.values import Floats

COLUMNS: LogColumns = {
    "predicted": "stress,steps,location", "reward": "outcome", "propensity": "prob_send", "probability_of": "send",
    "available": "available", "unit": "participant", "time": "time", "missing_outcomes": "leave-out",
}  # fmt: skip
POWER = 0.8
AT_WORK = 0.7 * 0.3 / (0.7 * 0.3 + 0.88 * 0.7)
"""the share of the available points"""

DAYS, PILOT = 20, 60
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
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for coefficient, size in PLANS.items():
        sizes, hits = np.zeros(replicates), np.zeros(replicates)
        with progress_bar(replicates, f"pilots and trials, {coefficient}", None) as done:
            for i in range(replicates):
                pilot = fitted(PILOT, trial.EFFECT, i)
                n = mb.plan(pilot, coefficient=coefficient, effect=size, power=POWER, days=DAYS, decision_points=5).participants
                assert n is not None
                sizes[i], hits[i] = n, is_found(fitted(n, with_effect(coefficient, size), 10**6 + i), coefficient)
                done()
        error = np.sqrt(hits.mean() * (1 - hits.mean()) / replicates)
        low, middle, high = np.quantile(sizes, [0.05, 0.5, 0.95])
        planned = f"{coefficient} = {size:g}: {middle:.0f} participants ({low:.0f} to {high:.0f}) for a power of {100 * POWER:.0f} %"
        print(f"{planned}; found in {100 * hits.mean():.1f} ± {100 * error:.1f} % of {replicates} trials", flush=True)


if __name__ == "__main__":
    main()
