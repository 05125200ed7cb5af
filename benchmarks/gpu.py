"""Benchmarks of the GPU engine: compile times, rounds per second, Table 1(a), agreement with the CPU and with closed forms.

    python benchmarks/gpu.py [FILE]       prints Markdown, and writes it to FILE

Needs an NVIDIA GPU and mebandit[cuda]; takes about ten minutes, most of them compiling.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import mebandit as mb
from mebandit.environments import Environment, Gaussian, HeartSteps
from mebandit.experiments.paper.ours import worlds
from mebandit.experiments.paper.table1 import FLOOR, LEARNERS, cells_1a
from mebandit.policies import LinearPolicy, bayes_oracle, uniform
from mebandit.reports.table import Table
from mebandit.simulation import gpu as engine
from mebandit.simulation.results import Results
from mebandit.simulation.simulate import Contest, contest

device = engine.target()

# Clipped regret per round in the paper's synthetic environment at a floor of 0.2, by the variance of the error.
CLOSED_FORMS = {
    0.1: {"oracle on x̃": 0.02285, "oracle on E[x|x̃]": 0.02243, "uniform": 0.58789},
    0.25: {"oracle on x̃": 0.05271, "oracle on E[x|x̃]": 0.05053, "uniform": 0.58789},
    1.0: {"oracle on x̃": 0.15342, "oracle on E[x|x̃]": 0.13615, "uniform": 0.58789},
    2.0: {"oracle on x̃": 0.22787, "oracle on E[x|x̃]": 0.19053, "uniform": 0.58789},
}


def policies() -> list[LinearPolicy]:
    """All recipes, for two actions and five features."""
    learners = [mb.meb(2, 5), mb.meb_naive(2, 5), mb.meb_dr(2, 5), mb.greedy(2, 5), mb.lin_ucb(2, 5), mb.thompson(2, 5)]
    return [*learners, mb.robust_ucb(2, 5, horizon=50_000), mb.oracle(2, 5), bayes_oracle(2, 5)]


def planned(environment: Environment, played: Sequence[Any], horizon: int, replicates: int, **settings: Any) -> Contest:
    rest: dict[str, Any] = {"seed": 1, "cell": 0, "floor": FLOOR, "references": False, "points": 2, "milestones": ()} | settings
    return contest(environment, played, horizon=horizon, replicates=replicates, **rest)


def seconds(*contests: Contest) -> float:
    """The seconds that the GPU takes for some contests, all launched together; results stay on the GPU."""
    batch = [engine.prepared(each, *span) for each in contests for span in engine.spans(each)]
    device.synchronize()
    begun = perf_counter()
    engine.started(batch)
    device.synchronize()
    return perf_counter() - begun


def played(*contests: Contest) -> list[Results]:
    """The results of some contests, from the GPU."""
    found = engine.played(contests, lambda: None)
    return [each.results(next(found) for _ in range(each.replicates)) for each in contests]


LAUNCHES = ((1 << 14, 1000), (1 << 18, 1000), (1 << 17, 10_000), (1 << 16, 50_000))
"""trajectories and rounds of the launches that are timed"""


def rates() -> Table:
    """Compile time and rounds per second of every policy."""
    rows = []
    for policy in policies():
        first = seconds(planned(Gaussian(error_cov=1.0), [policy], 2, 32))
        per_second = []
        for n, horizon in LAUNCHES:
            tries = 3 if horizon == 1000 else 1
            best = min(seconds(planned(Gaussian(error_cov=1.0), [policy], horizon, n)) for _ in range(tries))
            per_second.append(f"{n * horizon / best / 1e9:.2f}")
        rows.append([policy.name, f"{first:.1f}", *per_second])
    return Table(["policy", "s, compiling", *(f"{n:,} trajectories, T = {horizon:,}" for n, horizon in LAUNCHES)], rows)


def million() -> str:
    """The time of a million replicates."""
    best = min(seconds(planned(Gaussian(error_cov=1.0), [mb.meb(2, 5)], 1000, 1_000_000)) for _ in range(3))
    return f"1,000,000 replicates of MEB, T = 1000: {best:.2f} s."


def table_1a() -> tuple[str, Table]:
    """The nine cells at 100 replicates, on both engines."""
    cells = cells_1a("published", replicates=100, seed=1)
    contests = [cell.contest for cell in cells]
    short = [cell.contest for cell in cells_1a("published", replicates=2, seed=1, horizon=3)]
    begun = perf_counter()
    played(*short)
    compiling = perf_counter() - begun
    with_references = min(seconds(*contests) for _ in range(2))
    own = [planned(each.environment, [each.policies[name] for name in LEARNERS], 50_000, 100, cell=each.cell) for each in contests]
    alone = min(seconds(*own) for _ in range(2))
    there, again = played(*contests), played(*contests[:2])
    same = all(np.array_equal(a.clipped_regret, b.clipped_regret) for a, b in zip(there, again, strict=False))
    begun = perf_counter()
    here = [
        mb.simulate(c.environment, c.policies, cell=c.cell, horizon=50_000, replicates=100, floor=FLOOR, references=False) for c in contests
    ]
    cpu = perf_counter() - begun
    rows = []
    for cell, ours, theirs in zip(cells, there, here, strict=True):
        for i, name in enumerate(ours.policies):
            x, y = ours.clipped_regret[i, :, -1] / 50_000, theirs.clipped_regret[theirs.policies.index(name), :, -1] / 50_000
            combined = np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 100)
            rows.append((abs(x.mean() - y.mean()) / combined, np.mean(np.abs(x - y) > 1e-9), name, cell.name))
    worst = max(rows)
    words = (
        f"Table 1(a), 100 replicates, T = 50,000, nine cells: {alone:.2f} s for the five algorithms and ours, {with_references:.2f} s with "
        f"the references and RobustUCB with restarts too (450 million policy rounds), after {compiling:.0f} s of compiling; "
        f"{cpu:.0f} s on {os.cpu_count()} cores of the machine's CPU, compiling included. Of {len(rows)} means of both "
        f"engines none differs by more than {worst[0]:.2g} combined standard errors ({worst[2]}, {worst[3]}). A second run gave "
        f"{'the same numbers' if same else 'OTHER NUMBERS'}."
    )
    by_policy = {name: [share for _, share, policy, _ in rows if policy == name] for name in there[0].policies}
    table = [[name, f"{100 * float(np.mean(shares)):.1f} %"] for name, shares in by_policy.items()]
    return words, Table(["policy", "trajectories with another decision after a tie up to rounding"], table)


def other_worlds(horizon: int = 2000, replicates: int = 200) -> Table:
    """Both engines in environments of other sizes, which use other parts of the code."""
    stress = worlds(1.0)
    asked: dict[str, tuple[Environment, list[LinearPolicy]]] = {
        "HeartSteps": (HeartSteps(), [mb.meb(2, 7), mb.meb_dr(2, 7), mb.thompson(2, 7)]),
        "five actions": (stress["five actions"], [mb.meb(5, 5), mb.thompson(5, 5)]),
        "error level by user": (stress["error level by user"], [mb.meb_dr(2, 5)]),
        "drifting θ": (stress["drifting θ"], [mb.meb(2, 5)]),
        "heavy-tailed error": (stress["heavy-tailed error"], [mb.lin_ucb(2, 5)]),
    }
    rows = []
    for name, (environment, policies) in asked.items():
        begun = perf_counter()
        there = played(planned(environment, policies, horizon, replicates))[0].clipped_regret[:, :, -1] / horizon
        took = perf_counter() - begun
        settings: dict[str, Any] = {"seed": 1, "floor": FLOOR, "references": False, "progress": False}
        again = mb.simulate(environment, policies, horizon=horizon, replicates=replicates, **settings)
        here = again.clipped_regret[:, :, -1] / horizon
        for policy, x, y in zip(policies, there, here, strict=True):
            error = np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / x.size)
            means = [f"{x.mean():.6f}", f"{y.mean():.6f}", f"{abs(x.mean() - y.mean()) / error:.2g}"]
            rows.append([name, policy.name, *means, f"{100 * np.mean(np.abs(x - y) > 1e-9):.1f} %", f"{took:.0f}"])
    heads = ["world", "policy", "GPU", "CPU", "difference, in s.e.", "other decisions", "s, with compiling"]
    return Table(heads, rows)


def closed_forms() -> Table:
    """Regret of the oracles and of uniform play, beside its exact value."""
    rows = []
    for error_cov, expected in CLOSED_FORMS.items():
        asked = [mb.oracle(2, 5, floor=FLOOR), bayes_oracle(2, 5, floor=FLOOR), uniform(2, 5)]
        results = played(planned(Gaussian(error_cov=error_cov), asked, 20_000, 100_000))[0]
        for i, name in enumerate(results.policies):
            each = results.clipped_regret[i, :, -1] / 20_000
            rows.append([f"{error_cov:g}", name, f"{each.mean():.5f}", f"{each.std() / np.sqrt(each.size):.6f}", f"{expected[name]:.5f}"])
    return Table(["σ_ε²", "", "100,000 replicates, T = 20,000", "± s.e.", "closed form"], rows)


def sections() -> Iterator[str]:
    """The parts of the report, in Markdown."""
    found = device.get_current_device().name
    name = found.decode() if isinstance(found, bytes) else found
    yield "# On a GPU"
    versions = ", ".join(f"{each} {version(each)}" for each in ("numba", "numba-cuda"))
    yield f"`python benchmarks/gpu.py`, {name}, {versions}, mebandit {mb.__version__}. Compile times are not included."
    yield "## Billions of rounds per second, d = 5, K = 2, refit every round, float64\n\n" + rates().as_markdown()
    yield million()
    words, ties = table_1a()
    yield "## Table 1(a)\n\n" + words + "\n\n" + ties.as_markdown()
    yield "## Other environments"
    yield f"200 replicates, T = 2000: regret against a benchmark with a floor of {FLOOR}, which for five actions is uniform play."
    yield other_worlds().as_markdown()
    yield "## Oracles against closed forms\n\n" + closed_forms().as_markdown()


def main() -> None:
    parts = []
    for section in sections():
        print(section, end="\n\n", flush=True)
        parts.append(section)
        if len(sys.argv) > 1:  # as it comes: a lent device may go before the end
            Path(sys.argv[1]).write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
