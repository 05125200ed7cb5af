"""The files of a simulated micro-randomised trial, as a trial leaves them.

trial.csv has a row for each participant and decision point, sorted by participant; validation.csv has pairs of predicted and reported
stress. Participants are not always available, outcomes are missing, the location is a word, and the logged probability is that of sending
a message, also where none was sent.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from mebandit.values import Floats

LOCATIONS = ("home", "other", "work")
BASELINE = np.array([2.0, -0.4, 0.3, 0.1, -0.3])
"""expected outcome without a message, as a function of (1, stress, steps, location=other, location=work)"""
EFFECT = np.array([0.5, -0.3, 0.0, 0.0, 0.25])
"""what a message adds, as a function of the same"""
ERROR_VAR = 0.25
"""variance of predicted stress given true stress"""


def make_trial(participants: int = 60, days: int = 90, points: int = 5, *, effect: Floats = EFFECT, seed: int = 1) -> pd.DataFrame:
    """The log of a trial, sorted by participant as a database returns it."""
    rng = np.random.default_rng(seed)
    n = participants * days * points
    who, day, point = (part.ravel() for part in np.indices((participants, days, points)))
    stress = rng.normal(0.8, 0.5, participants)[who] + rng.normal(0, 0.9, n)
    steps, location = rng.normal(0, 1, n), rng.choice(3, n, p=[0.5, 0.2, 0.3])
    available = rng.random(n) < np.where(location == 2, 0.7, 0.88)
    predicted = stress + rng.normal(0, np.sqrt(ERROR_VAR), n)
    p_send = np.where(available, np.where(predicted > 0.8, 0.6, 0.3), 0.0)
    send = rng.random(n) < p_send
    context = np.column_stack([np.ones(n), stress, steps, location == 1, location == 2])
    outcome = context @ BASELINE + send * (context @ effect) + rng.normal(0, 0.3, participants)[who] + rng.normal(0, 1, n)
    outcome[rng.random(n) < np.where(send, 0.1, 0.06)] = np.nan
    return pd.DataFrame(
        {
            "participant": [f"P{i + 1:03d}" for i in who],
            "time": pd.Timestamp("2024-03-01 08:00") + pd.to_timedelta(24 * day + 3 * point, unit="h"),
            "available": available,
            "location": np.array(LOCATIONS)[location],
            "stress": predicted.round(4),
            "steps": steps.round(4),
            "action": np.where(send, "send", "none"),
            "prob_send": p_send,
            "outcome": outcome.round(4),
        }
    )


def make_validation(pairs: int = 300, *, seed: int = 1) -> pd.DataFrame:
    """Predicted stress beside the stress that people reported at the same time."""
    rng = np.random.default_rng([seed, 1])
    stress = 0.8 + rng.normal(0, np.sqrt(0.5**2 + 0.9**2), pairs)
    return pd.DataFrame({"stress": stress + rng.normal(0, np.sqrt(ERROR_VAR), pairs), "reported": stress})


def write_trial(folder: str | Path) -> None:
    """Write trial.csv and validation.csv into a folder."""
    make_trial().to_csv(Path(folder) / "trial.csv", index=False)
    make_validation().to_csv(Path(folder) / "validation.csv", index=False)
