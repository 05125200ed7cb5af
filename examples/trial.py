"""For a trial statistician: from a trial's own files to the figure in its paper, and to the size of the next trial.

The trial is simulated, so the truth is known: a message adds 0.32 to the outcome on average, 0.3 less per
point of stress, and 0.25 more at work.
"""

import pandas as pd

import mebandit as mb
from mebandit.experiments.trial import write_trial

write_trial(".")  # trial.csv and validation.csv, as a trial leaves them
pairs = pd.read_csv("validation.csv")
stress = mb.measurement.from_validation(pairs[["stress"]].to_numpy(), pairs[["reported"]].to_numpy()).named("stress")
log = mb.Log(
    "trial.csv", predicted="stress,steps,location", reward="outcome", propensity="prob_send", probability_of="send",
    available="available", unit="participant", time="time", missing_outcomes="leave-out", error_cov=stress,
)  # fmt: skip
found = mb.fit(log, intercept=True)
print(found)
found.plot("effects.pdf", outcome="outcome (points)", labels={"stress": "per point of stress", "steps": "per 1,000 steps"})
print(mb.plan(found, coefficient="average", effect=0.1, days=90, decision_points=5, attrition=0.1).describe())
