"""The demonstration `mebandit demo`: what measurement error does to a bandit, in two simulated environments."""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from mebandit.environments import Environment, ExampleB1, Gaussian
from mebandit.policies import Policy, greedy, lin_ucb, meb, meb_dr, meb_naive, thompson
from mebandit.reports.page import Page
from mebandit.reports.table import Table
from mebandit.runtime.files import write_whole
from mebandit.simulation.results import Results
from mebandit.simulation.simulate import simulate

REPLICATES, SEED = 10, 1


@dataclass(frozen=True)
class Scene:
    """One environment of the demonstration, with its results."""

    title: str
    setting: str
    """what is simulated, in a sentence"""
    results: Results

    @property
    def header(self) -> list[str]:
        """The columns of the table."""
        return ["policy", "regret per round", "± s.e.", "above x̃-oracle", "error of θ̂"]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of the table, one for each policy."""
        oracle = self.results.mean("oracle on x̃")
        rows = []
        for policy in self.results.policies:
            mean, se = self.results.mean(policy), self.results.std_error(policy)
            error = self.results.mean(policy, "estimation_error")
            above = "" if policy == "oracle on x̃" else f"{mean - oracle:+.3f}"
            rows.append([policy, f"{abs(mean):.3f}", f"{se:.3f}", above, f"{error:.2f}" if error == error else ""])
        return rows

    @property
    def references(self) -> set[int]:
        """The rows of policies that learn nothing."""
        return {i for i, policy in enumerate(self.results.policies) if policy in self.results.references}

    def best(self, measure: str) -> int:
        """The row of the learner with the smallest mean."""
        learners = [i for i in range(len(self.results.policies)) if i not in self.references]
        return min(learners, key=lambda i: self.results.mean(self.results.policies[i], measure))


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration."""

    usual: Scene
    """an environment in which measurement error attenuates estimates"""
    twisted: Scene
    """an environment in which it rotates them"""
    seconds: float

    @property
    def verdict(self) -> str:
        """The tables in words, made from their numbers."""
        mean, twisted = self.usual.results.mean, self.twisted.results.mean
        oracle = mean("oracle on x̃")
        taken = max(mean("UCB"), mean("TS")) - oracle
        plain = mean("LS + intercept")
        compared = "less than" if plain < mean("MEB") else "no less than"
        return (
            f"First environment: not seeing x costs {oracle:.3f} per round, even if θ is known. MEB loses {mean('MEB') - oracle:.3f} more, "
            f"the textbook correction {mean('MEB-naive') - oracle:.3f} more, and UCB and Thompson sampling, which ignore the error, up to "
            f"{taken:.3f} more. Least squares with an intercept loses {plain:.3f} in all, {compared} MEB ({mean('MEB'):.3f}): with "
            "Gaussian contexts E[r | x̃] is affine, so an intercept repairs the decisions, though not the estimate of θ.\n"
            f"Second environment: here an intercept does not help. Least squares rotates θ towards the wrong action and loses "
            f"{twisted('LS + intercept'):.3f} per round, UCB {twisted('UCB'):.3f}, for ever. MEB loses {twisted('MEB'):.3f} and the "
            f"textbook correction {twisted('MEB-naive'):.3f}, and less the longer they run.\n"
            f"MEB-DR, the default policy, loses {mean('MEB-DR'):.3f} in the first environment and {twisted('MEB-DR'):.3f} in the second: "
            "it acts on a calibrated context where that is right, and uses an unbiased estimate where that earns more."
        )


def run_demo(*, seed: int = SEED, progress: bool | None = None) -> Demo:
    """Simulate six learners and the reference policies in two environments of the paper.

    Args:
        seed: The seed of the random numbers.
        progress: Whether to show a progress bar; by default on a terminal.
    """
    begun = monotonic()

    def play(environment: Environment, horizon: int, title: str, setting: str) -> Scene:
        shape = (environment.n_actions, environment.dim)
        policies: list[Policy] = [
            meb_dr(*shape), meb(*shape), meb_naive(*shape), lin_ucb(*shape), thompson(*shape),
            greedy(*shape, intercept=True, name="LS + intercept"),
        ]  # fmt: skip
        results = simulate(environment, policies, horizon=horizon, replicates=REPLICATES, seed=seed, progress=progress)
        return Scene(title, f"{setting} Two actions, {horizon:,} rounds, {REPLICATES} replicates.", results)

    usual = play(
        Gaussian(error_cov=1.0),
        50_000,
        "The synthetic environment of the paper",
        "A five-dimensional Gaussian context x is seen as x̃ = x + ε, with error variance 1 in each coordinate.",
    )
    twisted = play(
        ExampleB1(),
        10_000,
        "An environment where least squares goes wrong (Example B.1)",
        "The error never changes which action is best, but it is correlated across the two coordinates of x.",
    )
    return Demo(usual, twisted, monotonic() - begun)


def write_report(demo: Demo, folder: Path, *, seed: int = SEED) -> Path:
    """Write the results as a page, report.html."""
    page = Page("What measurement error does to a bandit")
    page.text(
        "All policies meet the same random numbers, and take every action with probability at least 0.2. Regret is per round, at the true "
        "context, against the best policy that keeps that floor; the x̃-oracle knows θ and acts on x̃."
    )
    for words in demo.verdict.split("\n"):
        page.text(words)
    for scene in (demo.usual, demo.twisted):
        page.heading(scene.title).text(scene.setting)
        marked = {(scene.best("clipped_regret"), 1), (scene.best("estimation_error"), 4)}
        page.table(Table(scene.header, scene.rows, marked, scene.references))
        page.figure(scene.results.plot("clipped_regret"), f"{scene.title}: average clipped regret over time, a line for each policy.")
        page.figure(scene.results.plot("estimation_error"), f"{scene.title}: error of the estimated θ over time, a line for each policy.")
    page.text("Bands are two standard errors over the replicates; grey lines are reference policies, which learn nothing.")
    page.heading("Use it").code(
        "import mebandit as mb\n\nlearner = mb.Learner(mb.meb_dr(2, 5, floor=0.2), seed=1, journal='trial.jsonl')\n"
        "decision = learner.decide(predicted, error_cov)   # decision.action, decision.propensities\n"
        "learner.learn(decision, reward)                   # now, later or never"
    )
    path = folder / "report.html"
    write_whole(path, page.render(command="mebandit demo", seed=seed, seconds=demo.seconds))
    return path
