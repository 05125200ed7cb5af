"""For a mobile-health team: a trial that sends suggestions on predicted stress, survives a crash, and is analysed from its journal.

Stress is predicted by a sensor model whose error variance is known from a validation study. No suggestion is sent while driving; rewards
(say, log steps in the next half hour) come twenty decisions later, and one in ten never comes.
"""

import tempfile
from pathlib import Path

import numpy as np

import mebandit as mb

TRUTH = np.array([[1.0, -0.5], [1.2, 0.3]])  # what a simulation knows: action x (intercept, stress); action 1 sends a suggestion
ERROR_COV = np.diag([0.0, 0.3])  # the intercept is seen exactly; the stress prediction has error variance 0.3
DECISIONS, DELAY, CRASH_AT = 3000, 20, 1500


def run_trial(journal: Path) -> mb.Learner:
    rng = np.random.default_rng(7)
    policy = mb.meb(2, 2, floor=0.1, warmup=100)
    learner = mb.Learner(policy, seed=7, journal=journal)
    rewards: dict[int, float] = {}
    for t in range(1, DECISIONS + 1):
        stress = rng.normal()
        predicted = [1.0, stress + rng.normal(0, np.sqrt(ERROR_COV[1, 1]))]
        driving = rng.random() < 0.15  # must not depend on the prediction's error
        decision = learner.decide(predicted, ERROR_COV, allowed=[0] if driving else None)
        rewards[decision.id] = TRUTH[decision.action] @ [1.0, stress] + rng.normal(0, 0.5)
        late = t - DELAY
        if late in learner.pending:
            if rng.random() < 0.1:
                learner.forget(late)  # the phone was switched off: this reward will never come
            else:
                learner.learn(late, rewards[late])
        if t == CRASH_AT:  # the process dies here; another one goes on from the journal
            before = learner.theta
            learner.close()
            learner = mb.Learner.recover(journal)
            print(f"Crash after decision {t}: {learner.learned} rewards recovered, {learner.waiting} decisions still waiting,")
            print(f"  the same parameters in every bit: {np.array_equal(before, learner.theta)}")
    return learner


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "trial.jsonl"
        learner = run_trial(journal)
        print(f"{learner.decided} decisions, {learner.learned} rewards learned, {learner.waiting} not here yet\n")
        log = mb.read_journal(journal)
    found = mb.estimate(log.predicted, log.actions, log.rewards, log.propensities, log.error_cov)
    effect = found.contrast(1, 0)
    print("Effect of a suggestion     truth  estimate  95 % interval")
    for i, name in enumerate(["at stress 0", "per unit of stress"]):
        low, high = effect.interval()[i]
        print(f"  {name:22s} {TRUTH[1, i] - TRUTH[0, i]:7.2f} {effect.theta[i]:9.2f}  [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
