"""The simulated coverage of the confidence intervals of `mb.value`, on logs of a live learner.

    python scripts/coverage_of_values.py [replicates]

Each log is made by `mb.Learner` with a policy that learns after every round. True values are means over ten million draws.
"""

import sys
from typing import Any

import numpy as np

import mebandit as mb
from mebandit.values import Floats

THETA = np.array([[0.5, -1.0], [0.0, 1.0]])
ERROR = np.diag([0.0, 0.5])
ROUNDS = 1000
POLICIES: dict[str, Any] = {
    "uniform": "uniform",
    "always 1": 1,
    "θ on x̃": mb.LinearRule(THETA, floor=0.1),
    "θ on x̂": mb.LinearRule(THETA, floor=0.1, context="blp", mean=[1.0, 0.5], context_cov=np.diag([0.0, 1.0])),
}


def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Contexts and predictions, (n, 2) each."""
    x = np.column_stack([np.ones(n), rng.exponential(1, n) - 0.5])
    return x, x + np.outer(rng.normal(0, np.sqrt(0.5), n), [0, 1])


def live_log(seed: int) -> dict[str, Any]:
    """The log of one learner, as arrays by name."""
    rng = np.random.default_rng(seed)
    x, seen = draw(ROUNDS, rng)
    noise = rng.normal(0, 0.5, ROUNDS)
    learner = mb.Learner(mb.meb_dr(2, 2, floor=0.1), seed=seed)
    actions, propensity, reward = np.zeros(ROUNDS, dtype=int), np.zeros(ROUNDS), np.zeros(ROUNDS)
    for t in range(ROUNDS):
        decision = learner.decide(seen[t], ERROR)
        actions[t], propensity[t] = decision.action, decision.propensity
        reward[t] = THETA[decision.action] @ x[t] + noise[t]
        learner.learn(decision, reward[t])
    return {"x": seen, "action": actions, "reward": reward, "propensity": propensity}


def truths(n: int = 10_000_000) -> dict[str, float]:
    """The true value of every policy."""
    x, seen = draw(n, np.random.default_rng(0))
    first, second = (x @ THETA.T).T
    better = THETA[1] - THETA[0]
    x_hat = np.array([1.0, 0.5]) + (seen - [1.0, 0.5]) * [0.0, 1 / 1.5]
    greedy = {"θ on x̃": seen @ better > 0, "θ on x̂": x_hat @ better > 0}
    found = {"uniform": float((first + second).mean() / 2), "always 1": float(second.mean())}
    return found | {
        name: float(np.where(best, 0.9 * second + 0.1 * first, 0.1 * second + 0.9 * first).mean()) for name, best in greedy.items()
    }


def main(replicates: int) -> None:
    """Print bias, standard deviation, mean standard error and coverage."""
    truth = truths()
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(replicates):
        found = mb.value(live_log(seed), POLICIES, predicted=["x_0", "x_1"], error_cov=ERROR, workers=1, progress=False)
        for name, one in found.items():
            for estimator, own in one.estimates.items():
                rows.setdefault((name, estimator), []).append((own.value, own.std_error))
    print(f"{replicates} logs of {ROUNDS} rounds\n{'policy':10s}{'estimator':17s}   truth    bias (± s.e.)    s.d.   mean s.e.   covers")
    for (name, estimator), pairs in rows.items():
        V, se = np.array(pairs).T
        bias, spread = V.mean() - truth[name], V.std()
        covers = np.mean(np.abs(V - truth[name]) < 1.96 * se)
        error = spread / replicates**0.5
        print(f"{name:10s}{estimator:17s}{truth[name]:8.4f}{bias:9.4f} ({error:.4f}){spread:9.4f}{se.mean():10.4f}{covers:9.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
