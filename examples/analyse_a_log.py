"""For an analyst with a log: reward parameters by least squares, the textbook correction and the paper's estimator, side by side.

The log is simulated, so the truth is known. Its policy read the noisy context, as every live policy does. That is why the textbook
correction is biased. Least squares is attenuated towards zero in features that are measured with error, and biased in the others.
"""

import numpy as np

import mebandit as mb
from mebandit.estimation.methods import Method
from mebandit.values import Floats, Integers

TRUTH = np.array([[0.5, -1.0, 0.5], [0.0, 1.0, 0.5]])  # action x (intercept, stress, weekday effect)
ERROR_COV = np.diag([0.0, 0.5, 0.0])  # only the second feature is a prediction
METHODS: tuple[Method, ...] = ("ridge", "naive", "meb")


def make_log(n: int, seed: int) -> tuple[Floats, Integers, Floats, Floats]:
    """Predicted contexts, actions, rewards, and the probability each action was taken with."""
    rng = np.random.default_rng(seed)
    context = np.column_stack([np.ones(n), rng.normal(0.5, 1, n), rng.random(n) < 5 / 7])
    predicted = context + np.outer(rng.normal(0, np.sqrt(ERROR_COV[1, 1]), n), [0, 1, 0])
    send = np.where(predicted[:, 1] > 0.5, 0.8, 0.2)  # the rule reads the prediction
    actions = (rng.random(n) < send).astype(np.int64)
    rewards = np.einsum("ti,ti->t", TRUTH[actions], context) + rng.normal(0, 0.3, n)
    return predicted, actions, rewards, np.where(actions == 1, send, 1 - send)


def main() -> None:
    log = make_log(5000, seed=3)
    found = {method: mb.estimate(*log, ERROR_COV, method=method) for method in METHODS}
    print("Estimate (standard error)   truth" + "".join(f"{method:>18}" for method in METHODS))
    for a in range(2):
        for i, feature in enumerate(["intercept", "stress (predicted)", "weekday"]):
            cells = "".join(f"{e.theta[a, i]:10.3f} ({e.std_error[a, i]:.3f})" for e in found.values())
            print(f"action {a}, {feature:18s} {TRUTH[a, i]:6.1f}{cells}")
    print("\nDistance of the whole estimate from the truth:")
    for method, e in found.items():
        print(f"  {method:6s} {np.linalg.norm(e.theta - TRUTH):.3f}")
    meb = found["meb"]
    print(f"\nRounds by action: {meb.diagnostics['rounds'].astype(int)}, worth {meb.diagnostics['n_effective'].round()} unweighted ones")
    print(f"Was the estimate stabilised (Fuller)? {'yes' if meb.guarded.any() else 'no'}")


if __name__ == "__main__":
    main()
