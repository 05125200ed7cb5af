"""What the library computes, as numbers to compare versions with: `python -m tests.golden FILE` writes them, `test_golden.py` compares.

Only the public names are used, so that the same script runs with earlier versions. Every entry holds its main results as they are, and a
digest of all that it computed, which changes with any bit.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mebandit as mb

Entry = dict[str, Any]


def entry(results: dict[str, Any], *everything: Any) -> Entry:
    """Results as lists, with a digest of their bits and of everything else."""
    arrays = [np.ascontiguousarray(part, dtype=np.float64) for part in (*results.values(), *everything)]
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return {name: np.asarray(value, dtype=np.float64).tolist() for name, value in results.items()} | {"digest": digest}


def stabilizer(time: int) -> tuple[float, ...]:
    return (0.5, 0.25, 0.25) if time % 2 else (0.2, 0.4, 0.4)


LIVE: dict[str, Callable[[], Any]] = {
    "meb": lambda: mb.meb(3, 2, floor=0.1, warmup=6),
    "meb with schedules": lambda: mb.meb(3, 2, floor=mb.standard(500, 2, n_actions=3).floor, refit=5, stabilizer=stabilizer),
    "meb with intercept, guard always": lambda: mb.meb(3, 2, intercept=True, guard="always"),
    "meb_naive": lambda: mb.meb_naive(3, 2, ridge=0.5),
    "meb_dr": lambda: mb.meb_dr(3, 2),
    "meb_dr, fading": lambda: mb.meb_dr(3, 2, intercept=True, memory=5, discount=0.99),
    "meb on a calibrated context": lambda: mb.meb(3, 2, context="auto", curved=True, weights="precision"),
    "greedy with intercept": lambda: mb.greedy(3, 2, intercept=True),
    "lin_ucb": lambda: mb.lin_ucb(3, 2, width=1.5),
    "thompson": lambda: mb.thompson(3, 2),
    "robust_ucb": lambda: mb.robust_ucb(3, 2, horizon=60),
    "oracle": lambda: mb.oracle(3, 2, theta=[[1.0, 0.0], [0.0, 1.0], [0.5, 0.6]]),
}


def live(policy: Any, rounds: int = 90) -> Entry:
    """A learner with restricted actions, errors that change, rewards that are late, out of order, or never come."""
    rng, learner = np.random.default_rng(11), mb.Learner(policy, seed=4)
    theta = np.array([[1.0, -0.5], [0.2, 0.9], [0.7, 0.1]])
    waiting, probabilities, actions = [], [], []
    for t in range(rounds):
        x = rng.normal(1, 1, 2) + 0.5 * rng.exponential(1, 2)
        s = np.diag(rng.uniform(0, 0.6, 2)) if t % 7 else np.array([[0.4, 0.1], [0.1, 0.2]])
        decision = learner.decide(x, s, allowed=[0, 2] if t % 5 == 3 else None)
        probabilities.append(decision.propensities)
        actions.append(decision.action)
        waiting.append((decision, float(theta[decision.action] @ x + rng.normal(0, 0.3))))
        if t % 3:
            learner.learn(*waiting.pop(int(rng.integers(len(waiting)))))
        if t % 20 == 19:
            learner.forget(waiting.pop(0)[0])
    return entry({"theta": learner.theta, "last probabilities": probabilities[-1]}, probabilities, actions)


WORLDS: dict[str, Callable[[], Any]] = {
    "Gaussian": lambda: mb.environments.Gaussian(error_cov=1.0),
    "HeartSteps": lambda: mb.environments.HeartSteps(),
    "Drifting": lambda: mb.environments.Drifting(world=mb.environments.Gaussian(error_cov=0.5), mean=1.0),
}


def simulated(world: Any, rounds: int = 400) -> Entry:
    k, d = world.n_actions, world.dim
    policies = {
        "meb": mb.meb(k, d),
        "naive": mb.meb_naive(k, d, refit=20),
        "greedy": mb.greedy(k, d, intercept=True),
        "ucb": mb.lin_ucb(k, d),
        "ts": mb.thompson(k, d),
        "robust": mb.robust_ucb(k, d, horizon=rounds),
    }
    found = mb.simulate(world, policies, horizon=rounds, replicates=3, seed=7)
    regret, error = found.clipped_regret[:, :, -1], found.estimation_error[: len(policies), :, -1].max(axis=-1)
    return entry({"clipped regret": regret, "error of theta": error}, found.standard_regret, found.clipped_regret, found.estimation_error)


def rounds_of_a_log(n: int = 3000) -> dict[str, Any]:
    """A log of three actions, with units, a constant and varying errors."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(n), rng.normal(1, 1, n), rng.exponential(1, n)])
    errors = np.zeros((n, 3, 3))
    errors[:, 1, 1], errors[:, 2, 2], errors[:, 1, 2] = rng.choice([0.2, 0.5], n), 0.3, 0.1
    errors[:, 2, 1] = 0.1
    predicted = x + np.einsum("tij,tj->ti", np.linalg.cholesky(errors + 1e-15 * np.eye(3)), rng.normal(size=(n, 3)))
    predicted[:, 0] = 1.0
    scores = np.column_stack([predicted[:, 1], 1.5 - predicted[:, 2], 0.5 * predicted[:, 1]])
    pi = np.full((n, 3), 0.1)
    pi[np.arange(n), scores.argmax(axis=1)] = 0.8
    actions = (rng.random(n)[:, None] > pi.cumsum(axis=1)).sum(axis=1)
    theta = np.array([[0.0, 1.0, 0.5], [0.5, -0.5, 0.2], [1.0, 0.3, -0.4]])
    rewards = np.einsum("ti,ti->t", theta[actions], x) + rng.normal(0, 0.4, n)
    return {
        "predicted": predicted,
        "actions": actions,
        "rewards": rewards,
        "propensities": pi,
        "errors": errors,
        "unit": np.arange(n) // 30,
    }


SETTINGS: dict[str, dict[str, Any]] = {
    "one error covariance": {"error_cov": [0.0, 0.35, 0.3]},
    "an error covariance by round": {},
    "units": {"error_cov": [0.0, 0.35, 0.3], "units": True},
    "guard always": {"error_cov": [0.0, 0.35, 0.3], "guard": "always"},
}


def estimated(method: Any, error_cov: Any = None, units: bool = False, **options: Any) -> Entry:
    log = rounds_of_a_log()
    if units:
        options["unit"] = log["unit"]
    errors = log["errors"] if error_cov is None else error_cov
    found = mb.estimate(
        log["predicted"],
        log["actions"],
        log["rewards"],
        log["propensities"],
        errors,
        n_actions=3,
        method=method,
        sandwich="hc0",
        **options,
    )
    return entry({"theta": found.theta, "std_error": found.std_error}, found.contrast(1, 0).std_error)


def fitted(**options: Any) -> Entry:
    """`fit` on a Parquet file, all methods."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = rounds_of_a_log()
    columns = {f"x{i}": log["predicted"][:, i] for i in range(3)}
    taken = log["propensities"][np.arange(len(log["actions"])), log["actions"]]
    table = {**columns, "action": log["actions"], "reward": log["rewards"], "propensity": taken, "unit": log["unit"]}
    given: dict[str, Any] = {
        "predicted": list(columns),
        "propensity": "propensity",
        "error_cov": [0.0, 0.35, 0.3],
        "n_actions": 3,
        "sandwich": "hc0",
    }
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table(table), f"{folder}/log.parquet")
        found = mb.fit(f"{folder}/log.parquet", **given, **options)
    results = {f"{name} {part}": getattr(e, part) for name, e in found.estimates.items() for part in ("theta", "std_error")}
    return entry(results)


def entries() -> dict[str, Callable[[], Entry]]:
    """Every entry by its name."""
    made: dict[str, Callable[[], Entry]] = {}
    for name, policy in LIVE.items():
        made[f"live: {name}"] = partial(_of, live, policy)
    for name, world in WORLDS.items():
        made[f"simulated: {name}"] = partial(_of, simulated, world)
    for setting, options in SETTINGS.items():
        for method in ("ridge", "naive", "meb", "dr", "rc"):
            made[f"estimated: {method}, {setting}"] = partial(estimated, method, **options)
    for unit in (None, "unit"):
        made[f"fitted: unit {unit}"] = partial(fitted, unit=unit)
    return made


def _of(compute: Callable[[Any], Entry], make: Callable[[], Any]) -> Entry:
    return compute(make())


if __name__ == "__main__":
    made = {name: make() for name, make in entries().items()}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in made.items())
    Path(sys.argv[1]).write_text(f"{{\n{text}\n}}\n")
