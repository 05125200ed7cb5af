"""For someone choosing a policy: simulate several in an environment like yours, on the same random numbers, and compare them.

Change the numbers of the environment to those of your application. Compare every regret with the reference policies: uniform play, the
oracle that knows θ and acts on x̃ as if it were x (MEB with a perfect estimate), and the oracle that knows E[x | x̃], the best possible.
"""

import tempfile
from pathlib import Path

import mebandit as mb

HORIZON, REPLICATES = 10_000, 8


def main() -> None:
    world = mb.environments.Gaussian(
        theta=((1.0, 0.5, -0.5), (0.5, 1.0, 0.5), (0.8, -0.5, 1.0)),
        mean=(1.0, 0.5, 0.0),
        cov=1.0,
        error_cov=(0.5, 0.5, 0.1),
        noise_sd=0.5,
    )
    policies = [
        mb.meb(3, 3, floor=0.1),
        mb.meb(3, 3, name="MEB, its schedule", **mb.clipped(0.1, HORIZON, 3, n_actions=3)),
        mb.meb_naive(3, 3, floor=0.1),
        mb.lin_ucb(3, 3, floor=0.1),
        mb.thompson(3, 3, floor=0.1),
        mb.greedy(3, 3, floor=0.1, intercept=True, name="LS + intercept"),
    ]
    results = mb.simulate(world, policies, horizon=HORIZON, replicates=REPLICATES, seed=1, progress=False)
    print(f"{HORIZON} rounds, {REPLICATES} replicates; clipped regret per round and estimation error of the worst action, with s.e.\n")
    columns = ["policy", "clipped_regret", "clipped_regret_se", "estimation_error", "estimation_error_se"]
    print(results.summary()[columns].to_string(index=False, float_format="{:.4f}".format))
    above = results.mean("MEB") - results.mean("oracle on x̃")
    print(f"\nOf MEB's regret, {results.mean('oracle on x̃'):.4f} would remain if θ were known and {above:.4f} is the price of learning it.")
    learners = [policy.name for policy in policies]
    for what, measure in (("decisions", "clipped_regret"), ("estimates", "estimation_error")):
        print(f"Best {what} here: {min(learners, key=lambda name: results.mean(name, measure))}")
    folder = Path(tempfile.mkdtemp(prefix="mebandit-"))
    for measure in ("clipped_regret", "estimation_error"):
        results.plot(measure, path=folder / f"{measure}.png")
    print(f"Plots: {folder}")


if __name__ == "__main__":
    main()
