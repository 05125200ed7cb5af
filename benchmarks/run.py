"""What a round costs: in the simulator, through the live learner, and as contexts and actions grow.

python benchmarks/run.py        (or: make bench)
"""

import platform
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import mebandit as mb
from mebandit import schedules
from mebandit.environments import Environment, Gaussian
from mebandit.policies import LinearPolicy, Policy, bayes_oracle
from mebandit.simulate import BLOCK, Trajectory
from mebandit.values import Stretch

console = Console(width=110)


def best_of(work: Callable[[], object], repeats: int = 5) -> float:
    """The shortest time of several, in seconds: the machine is shared, so noise only adds."""
    times = []
    for _ in range(repeats):
        begun = perf_counter()
        work()
        times.append(perf_counter() - begun)
    return min(times)


def world(dim: int, n_actions: int) -> Gaussian:
    rng = np.random.default_rng(0)
    return Gaussian(theta=rng.normal(size=(n_actions, dim)), mean=1.0 / np.sqrt(dim), cov=1.0 / dim, error_cov=0.25 / dim)


def round_cost(environment: Environment, policy: Policy, rounds: int, *, warm: int = 0) -> float:
    """Seconds per round of the compiled loop, the tape already drawn, after `warm` rounds."""
    benchmark = np.zeros(max(rounds, BLOCK))
    cheap = replace(policy, refit=schedules.PowersOf(2)) if isinstance(policy, LinearPolicy) else policy
    trajectory = Trajectory(cheap, schedules.log_spaced(10**9))
    for start in range(0, warm, BLOCK):
        trajectory.play(environment.tape(Stretch(1, 0, 0, start, start + BLOCK)), start, benchmark)
    trajectory.policy = policy
    tape = environment.tape(Stretch(1, 0, 1, 0, rounds))
    trajectory.play(tape, 10**6, benchmark)
    return best_of(lambda: trajectory.play(tape, 10**6, benchmark)) / rounds


def tape_cost(environment: Environment) -> float:
    environment.tape(Stretch(1, 0, 0, 0, BLOCK))
    return best_of(lambda: environment.tape(Stretch(1, 0, 0, 0, BLOCK))) / BLOCK


def live_cost(policy: Policy, rounds: int = 4000) -> float:
    """Seconds per decide + learn, input checks on."""
    rng = np.random.default_rng(0)
    predicted = rng.normal(1, 1, (rounds, policy.dim))
    rewards = rng.normal(size=rounds)
    error_cov = 0.25 * np.eye(policy.dim)
    learner = mb.Learner(policy, seed=1)

    def work() -> None:
        for x, r in zip(predicted, rewards, strict=True):
            learner.learn(learner.decide(x, error_cov), float(r))

    work()
    return best_of(work, 3) / rounds


def show(title: str, header: list[str], rows: list[list[str]]) -> None:
    table = Table(*header, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def policies() -> list[LinearPolicy]:
    return [
        mb.meb(2, 5),
        mb.meb_naive(2, 5),
        mb.meb_dr(2, 5),
        mb.greedy(2, 5),
        mb.lin_ucb(2, 5),
        mb.thompson(2, 5),
        mb.robust_ucb(2, 5, horizon=50_000),
        mb.oracle(2, 5),
        bayes_oracle(2, 5),
    ]


def main() -> None:
    console.print(f"mebandit {mb.__version__}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; one core")
    environment = Gaussian(error_cov=1.0)
    tape = tape_cost(environment)
    rows = [["drawing the tape (shared by all policies)", f"{tape * 1e6:.3f}", ""]]
    for policy in policies():
        cost = round_cost(environment, policy, BLOCK, warm=20_000)
        rows.append([policy.name, f"{cost * 1e6:.3f}", f"{1 / cost / 1e6:.2f}"])
        if policy.name == "MEB":
            rows.append(["MEB with its own tape", f"{(cost + tape) * 1e6:.3f}", f"{1 / (cost + tape) / 1e6:.2f}"])
    show("A simulated round, d = 5, K = 2, refit every round", ["", "microseconds", "million rounds/s"], rows)

    shapes = ((2, 5), (5, 20), (10, 50))
    live = [[f"d = {d}, K = {k}", *(f"{live_cost(make(k, d)) * 1e6:.1f}" for make in (mb.meb, mb.lin_ucb))] for k, d in shapes]
    show("Learner.decide + Learner.learn, input checks on, microseconds", ["", "MEB", "UCB"], live)

    for k, dims in ((2, (5, 10, 20, 50, 100, 200)), (10, (5, 20, 50))):
        rows = []
        for d in dims:
            rounds = max(16, min(BLOCK, 400_000 // (k * d)))
            costs = [round_cost(world(d, k), mb.meb(k, d, refit=r), rounds, warm=20 * k * d) for r in (1, schedules.PowersOf(2))]
            rows.append([f"d = {d}", *(f"{c * 1e6:,.2f}" for c in costs), f"{costs[0] / costs[1]:.0f}"])
        show(f"MEB by dimension, K = {k}, microseconds per round", ["", "refit every round", "refit at powers of 2", "ratio"], rows)

    rows = []
    for k in (2, 5, 10, 20, 50):
        costs = [round_cost(world(5, k), make(k, 5), 256, warm=1000 * k) for make in (mb.meb, mb.lin_ucb, mb.thompson)]
        rows.append([f"K = {k}", *(f"{c * 1e6:,.2f}" for c in costs)])
    show("By number of actions, d = 5, microseconds per round", ["", "MEB", "UCB", "TS"], rows)


if __name__ == "__main__":
    main()
