"""Compare meb_dr with MEB and with least squares with an intercept, over enough replicates to make Monte-Carlo errors negligible.

    python scripts/compare_on_gpu.py [--replicates 20000]       prints the table of docs/background/which-policy.md

Needs an NVIDIA GPU and mebandit[cuda]; takes about five minutes, mostly for compiling.
"""

import argparse

import numpy as np

import mebandit as mb
from mebandit.experiments.paper.ours import worlds
from mebandit.reports.table import Table
from mebandit.values import Floats

WORLDS = ("synthetic", "drifting mean", "two error levels", "skewed contexts", "heavy-tailed error")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare meb_dr with MEB and least squares with an intercept, on a GPU.")
    parser.add_argument("--replicates", type=int, default=20_000)
    replicates = parser.parse_args().replicates
    policies = {"meb_dr": mb.meb_dr(2, 5), "meb": mb.meb(2, 5), "LS + intercept": mb.greedy(2, 5, intercept=True)}
    rows = []
    for name in WORLDS:
        for variance in (0.1, 1.0, 2.0):
            played = mb.simulate(
                worlds(variance)[name],
                policies,
                horizon=10_000,
                replicates=replicates,
                seed=2026,
                points=2,
                engine="cuda",
                references=False,
            )
            ours, *others = played.of("clipped_regret")[:, :, -1]
            rows.append([name, f"{variance:g}", f"{ours.mean():.5f}", *(apart(ours, other) for other in others)])
    print(Table(["world", "σε²", "meb_dr", "against meb", "against LS + intercept"], rows).as_markdown())


def apart(ours: Floats, other: Floats) -> str:
    """mean(ours) / mean(other) - 1 in per cent, ± its standard error on common random numbers."""
    ratio = ours.mean() / other.mean()
    error = (ours - ratio * other).std(ddof=1) / np.sqrt(ours.size) / other.mean()
    return f"{100 * (ratio - 1):+.1f} ± {100 * error:.1f} %"


if __name__ == "__main__":
    main()
