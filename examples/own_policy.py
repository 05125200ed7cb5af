"""For a researcher with a policy of their own: write three methods, have them checked, and run the policy beside the library's.

The policy is that of the paper's Example B.2: action 1 with probability 2/3 where x̃ > ρ, else with 1/3. It never adapts, so only the
estimators differ; its memory is that of a library policy. The textbook correction then tends to a wrong θ; the paper's estimator does not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import mebandit as mb
from mebandit.policies import LinearPolicy
from mebandit.values import Floats

RHO = 0.5


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A policy that acts by a fixed rule, and estimates θ as the policy `memory` does."""

    name: str
    memory: LinearPolicy
    rho: float
    n_actions: int = 2
    dim: int = 1
    floor: float = 1 / 3

    def init(self) -> Any:
        """The state before the first round."""
        return self.memory.init()

    def propensities(self, state: Any, observation: mb.Observation) -> Floats:
        """The probability of every action, 0 for those that are not allowed."""
        send = 2 / 3 if observation.predicted[0] > self.rho else 1 / 3
        pi: Floats = np.where(observation.allowed, [1 - send, send], 0.0)
        return np.asarray(pi / pi.sum())

    def update(self, state: Any, round: mb.Round) -> Any:
        """The state after one more round; the old one is not changed."""
        return self.memory.update(state, round)

    def theta(self, state: Any) -> Floats:
        """Optional: the current estimate of θ, from which the simulator computes the estimation error."""
        return self.memory.theta(state)


def main() -> None:
    memories = mb.meb(2, 1), mb.meb_naive(2, 1), mb.greedy(2, 1)
    policies = [Threshold(name=f"threshold, {memory.estimator.method}", memory=memory, rho=RHO) for memory in memories]
    for policy in policies:
        mb.check_policy(policy)
    results = mb.simulate(
        mb.environments.ExampleB2(), [*policies, mb.meb(2, 1, floor=1 / 3)], horizon=5000, replicates=4, seed=1, progress=False
    )
    print(results.summary()[["policy", "standard_regret", "estimation_error", "estimation_error_se"]].to_string(index=False))
    limit = -1.5 * (RHO**2 + 7) / (RHO**3 - 4 * RHO + 9)
    print(f"\nExample B.2 says: the naive θ_0 tends to {limit:.4f}, which is {abs(limit + 1):.4f} from the true -1.")


if __name__ == "__main__":
    main()
