"""What a policy of one's own costs in a simulation: `python scripts/speed_of_own_policies.py [ROUNDS]`.

The simple rule, greedy on the mean rewards, is simulated in Python and with both step functions compiled by numba; beside it the library's
`uniform`, which runs in the compiled loop. Microseconds of CPU time per round, the best of five runs in turns; the first runs compile.
"""

import sys
from time import process_time
from typing import NamedTuple

import numba
import numpy as np

import mebandit as mb
from mebandit.policies import uniform
from mebandit.values import Floats


class Totals(NamedTuple):
    taken: Floats
    reward: Floats


class Best:
    """The action with the best mean reward so far; any action with probability 0.1 at least."""

    n_actions, dim, floor, name = 2, 5, 0.1, "in Python"

    def init(self) -> Totals:
        return Totals(np.zeros(2), np.zeros(2))

    def propensities(self, state: Totals, observation: mb.Observation) -> Floats:
        pi = np.full(2, 0.1)
        pi[np.argmax(state.reward / np.maximum(state.taken, 1))] += 0.8
        return pi

    def update(self, state: Totals, round: mb.Round) -> Totals:
        played = np.arange(2) == round.action
        return Totals(state.taken + played, state.reward + played * round.reward)


@numba.njit(cache=False)
def best_propensities(count: Floats, reward: Floats) -> Floats:
    pi = np.full(2, 0.1)
    pi[np.argmax(reward / np.maximum(count, 1))] += 0.8
    return pi


@numba.njit(cache=False)
def best_update(count: Floats, reward: Floats, action: int, r: float) -> tuple[Floats, Floats]:
    count, reward = count.copy(), reward.copy()
    count[action] += 1
    reward[action] += r
    return count, reward


class CompiledBest(Best):
    name = "steps compiled"

    def propensities(self, state: Totals, observation: mb.Observation) -> Floats:
        return np.asarray(best_propensities(*state))

    def update(self, state: Totals, round: mb.Round) -> Totals:
        return Totals(*best_update(*state, round.action, round.reward))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    each: dict[str, mb.policies.Policy] = {"in Python": Best(), "steps compiled": CompiledBest(), "the library's": uniform(2, 5, floor=0.1)}
    spent: dict[str, list[float]] = {name: [] for name in each}
    for _ in range(6):
        for name, policy in each.items():
            begun = process_time()
            mb.simulate(mb.environments.Gaussian(), [policy], horizon=rounds, replicates=1, references=False, workers=1, progress=False)
            spent[name].append(1e6 * (process_time() - begun) / rounds)
    for name, seconds in spent.items():
        print(f"{name:15s} {min(seconds[1:]):7.2f} µs of CPU time per round")


if __name__ == "__main__":
    main()
