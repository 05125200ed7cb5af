"""Cover the truth with intervals from logs of simulated trials that ran through the decision service.

python scripts/coverage_of_service.py                   200 trials of 500 decisions
python scripts/coverage_of_service.py --trials 1000

In each trial some contexts are missing, some units unavailable, and some outcomes late, missing or revised; the fallback decides where the
context is missing, and while the trial is paused (tests/service/trials.py). The log is exported as Parquet and fitted.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.service.trials import EFFECT, exported, run

import mebandit as mb

METHODS: tuple[Literal["ridge", "meb", "dr"], ...] = ("ridge", "meb", "dr")


def main() -> None:
    """Run the trials, and count."""
    parser = argparse.ArgumentParser(description="Coverage of intervals from the service's logs.")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--decisions", type=int, default=500)
    parser.add_argument("--folder", default=None, help="where the stores are made, such as /dev/shm, which waits for no disk")
    options = parser.parse_args()
    covered: dict[str, list[Any]] = {method: [] for method in METHODS}
    for seed in range(options.trials):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            run(f"{folder}/trial.db", options.decisions, seed)
            found = mb.fit(exported(f"{folder}/trial.db"), available="available", missing_outcomes="leave-out", methods=METHODS)
        for method in METHODS:
            low, high = np.moveaxis(found.estimates[method].interval(0.95), -1, 0)
            covered[method].append(((low <= EFFECT) & (high >= EFFECT)).mean())
    print(f"{options.trials:,} trials of {options.decisions:,} decisions; 95 % intervals of {EFFECT.size} coefficients.")
    for name, shares in covered.items():
        error = np.std(shares, ddof=1) / np.sqrt(len(shares))
        print(f"{name}: {100 * np.mean(shares):.1f} % cover (standard error {100 * error:.1f}).")


if __name__ == "__main__":
    main()
