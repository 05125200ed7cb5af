"""The benchmark "simulate": simulated rounds per second on one core, for each policy."""

from dataclasses import replace

import numpy as np

from mebandit import schedules
from mebandit.environments import Environment, Gaussian
from mebandit.experiments.bench.measuring import BenchOptions, Done, Times, in_turns, timed
from mebandit.policies import LinearPolicy, bayes_oracle, greedy, lin_ucb, meb, meb_dr, meb_naive, oracle, robust_ucb, thompson
from mebandit.reports.page import Section
from mebandit.reports.table import Table
from mebandit.simulation.simulate import BLOCK, Trajectory
from mebandit.values import Stretch

POLICIES = (
    meb_dr(2, 5),
    meb(2, 5),
    meb_naive(2, 5),
    greedy(2, 5),
    lin_ucb(2, 5),
    thompson(2, 5),
    robust_ucb(2, 5, horizon=50_000),
    oracle(2, 5),
    bayes_oracle(2, 5),
)
TAPE = "the tape"
LATE = 10**6
"""the first round that is timed, so that schedules and sums are those of a long run"""


class Runner:
    """A policy that has learned for some rounds, and plays the same block repeatedly."""

    def __init__(self, environment: Environment, policy: LinearPolicy, *, warm: int, rounds: int = BLOCK) -> None:
        self.benchmark = np.zeros(max(rounds, BLOCK))
        self.trajectory = Trajectory(replace(policy, refit=schedules.PowersOf(2)), schedules.log_spaced(10**9))
        for start in range(0, warm, BLOCK):
            self.trajectory.play(environment.tape(Stretch(1, 0, 0, start, start + BLOCK)), start, self.benchmark)
        self.trajectory.policy = policy
        self.tape = environment.tape(Stretch(1, 0, 1, 0, rounds))
        self.play()

    def play(self) -> None:
        """Play the block once."""
        self.trajectory.play(self.tape, LATE, self.benchmark)


def steps(options: BenchOptions) -> int:
    """The number of steps of the progress bar."""
    return (len(POLICIES) + 1) * options.repeats


def run(options: BenchOptions, done: Done) -> list[Section]:
    """Time the drawing of a tape, and every policy on it."""
    environment = Gaussian(error_cov=1.0)
    work = {TAPE: timed(lambda: environment.tape(Stretch(1, 0, 0, 0, BLOCK)))}
    work |= {policy.name: timed(Runner(environment, policy, warm=20_000).play) for policy in POLICIES}
    found = {name: times.per(BLOCK) for name, times in in_turns(work, options.repeats, done).items()}
    tape = found.pop(TAPE)
    rows = []
    for name, times in found.items():
        own = Times(tuple(a + b for a, b in zip(times.turns, tape.turns, strict=True)))
        rows.append([name, times.micro(), *(f"{1e-6 / t.median:.2f} ({1e-6 / t.best:.2f})" for t in (times, own))])
    header = ["policy", "µs per round: median (best)", "million rounds/s", "with a tape of its own"]
    return [
        Section(
            title="Simulated rounds, d = 5, K = 2",
            setting="The paper's synthetic world, one core, after 20,000 rounds, θ solved for after each round. All policies of a "
            "replicate play one tape of random numbers, so that drawing it is shared; the last column has each draw its own.",
            finding=f"Drawing the tape takes {1e6 * tape.median:.2f} µs per round. MEB plays {1e-6 / found['MEB'].median:.1f} million "
            f"rounds per second and core, MEB-DR {1e-6 / found['MEB-DR'].median:.1f}.",
            table=Table(header, rows),
        )
    ]
