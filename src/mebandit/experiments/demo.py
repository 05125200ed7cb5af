"""The demo: what measurement error does to a bandit, in seconds once all is compiled."""

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
    """One environment of the demo, and what was found in it."""

    title: str
    setting: str
    results: Results

    @property
    def header(self) -> list[str]:
        return ["policy", "regret per round", "± s.e.", "above x̃-oracle", "error of θ̂"]

    @property
    def rows(self) -> list[list[str]]:
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
        return {i for i, policy in enumerate(self.results.policies) if policy in self.results.references}

    def best(self, measure: str) -> int:
        """The row of the learner with the smallest mean."""
        learners = [i for i in range(len(self.results.policies)) if i not in self.references]
        return min(learners, key=lambda i: self.results.mean(self.results.policies[i], measure))


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    usual: Scene
    twisted: Scene
    seconds: float

    @property
    def verdict(self) -> str:
        """The tables in words, from their numbers."""
        mean, twisted = self.usual.results.mean, self.twisted.results.mean
        oracle = mean("oracle on x̃")
        taken = max(mean("UCB"), mean("TS")) - oracle
        plain = mean("LS + intercept")
        compared = "less than" if plain < mean("MEB") else "no less than"
        return (
            f"First world: not seeing x costs {oracle:.3f} per round even if θ is known. On top of that MEB loses "
            f"{mean('MEB') - oracle:.3f}, the textbook correction {mean('MEB-naive') - oracle:.3f}, and UCB and Thompson sampling, "
            f"which take x̃ for x, up to {taken:.3f}. Least squares with an intercept loses {plain:.3f} in all, {compared} MEB "
            f"({mean('MEB'):.3f}): with Gaussian contexts E[r | x̃] is affine, so an intercept repairs the decisions, though not the "
            "estimate of θ.\n"
            f"Second world: there it does not. Least squares turns θ towards the wrong action and loses {twisted('LS + intercept'):.3f} "
            f"per round, UCB {twisted('UCB'):.3f}, for ever; MEB loses {twisted('MEB'):.3f} and the textbook correction "
            f"{twisted('MEB-naive'):.3f}, and less the longer they run.\n"
            f"MEB-DR, the policy to take by default, loses {mean('MEB-DR'):.3f} in the first world and {twisted('MEB-DR'):.3f} in the "
            "second: it acts on a calibrated context where that is right, and falls back on an unbiased fit where that earns more."
        )


def run_demo(*, seed: int = SEED, progress: bool | None = None) -> Demo:
    """Six learners and the reference lines in two worlds of the paper."""
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
        "The paper's synthetic world",
        "A five-dimensional Gaussian context x is seen as x̃ = x + ε, with error variance 1 in each coordinate.",
    )
    twisted = play(
        ExampleB1(),
        10_000,
        "A world where least squares goes wrong (Example B.1)",
        "The error never changes which action is best, but it is correlated across the two coordinates of x.",
    )
    return Demo(usual, twisted, monotonic() - begun)


def write_report(demo: Demo, folder: Path, *, seed: int = SEED) -> Path:
    """The demo as a page."""
    page = Page("What measurement error does to a bandit")
    page.text(
        "All policies meet the same random numbers and take every action with probability at least 0.2. Regret is per round, at the true "
        "context, against the best policy that keeps that floor; the x̃-oracle knows θ and acts on what is seen."
    )
    for words in demo.verdict.split("\n"):
        page.text(words)
    for scene in (demo.usual, demo.twisted):
        page.heading(scene.title).text(scene.setting)
        marked = {(scene.best("clipped_regret"), 1), (scene.best("estimation_error"), 4)}
        page.table(Table(scene.header, scene.rows, marked, scene.references))
        page.figure(scene.results.plot("clipped_regret")).figure(scene.results.plot("estimation_error"))
    page.text("Bands are two standard errors over the replicates; grey lines are for reference and learn nothing.")
    page.heading("Use it").code(
        "import mebandit as mb\n\nlearner = mb.Learner(mb.meb_dr(2, 5, floor=0.2), seed=1, journal='trial.jsonl')\n"
        "decision = learner.decide(predicted, error_cov)   # decision.action, decision.propensities\n"
        "learner.learn(decision, reward)                   # now, later, or never"
    )
    path = folder / "report.html"
    write_whole(path, page.render(command="mebandit demo", seed=seed, seconds=demo.seconds))
    return path
