"""How many rounds a trial needs: by formula (`mebandit.analysis.planning.formulas`) or from a pilot, then tried out in simulated trials."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.analysis.fit import Analysis, fit
from mebandit.analysis.planning.formulas import METHODS, POLICIES, Design, Goal, design_effect, quantile, variance
from mebandit.analysis.planning.trials import Constant, run_trials
from mebandit.environments import Gaussian
from mebandit.policies import Policy, meb, meb_dr
from mebandit.reports.page import Page, Table
from mebandit.runtime.escaping import in_figure
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers
from mebandit.simulation.results import save_figure
from mebandit.values import Floats

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

TRIES = 5
"""how often the number of rounds is raised, at most"""
LONGEST, LARGEST = 500_000, 2e7
"""trials of more rounds, or of more numbers in their Σe,t, are not simulated"""
POWERS = (0.7, 0.8, 0.9, 0.95)
WIDTHS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""multiples of the wanted half-width, for the table"""


class Check(NamedTuple):
    """What simulated trials of some number of rounds gave, with Monte-Carlo standard errors."""

    rounds: int
    replicates: int
    power: float
    power_se: float
    half_width: float
    half_width_se: float
    coverage: float
    coverage_se: float
    unidentified: int
    """trials whose data identified nothing; they count as not significant and not covering"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A number of rounds, and why."""

    rounds: int
    """what to plan for: the formula's number, raised where simulated trials fell short"""
    formula: int
    """by formula alone"""
    worst: int | None
    """by formula if every action only ever had the floor's probability: an upper bound for whatever the policy does"""
    simulated: tuple[Check, ...]
    """by number of rounds; empty if nothing was simulated"""
    goal: Goal
    method: str
    variance: float
    """n times the squared standard error, design effect included"""
    design_effect: float
    design: Design | None
    """None: from a pilot"""
    pilot_rounds: int = 0
    pilot_units: int = 0
    fixed: float = 0.0
    """what the uncertainty of a pilot's error model adds to the squared standard error, however many rounds there are"""

    @property
    def at_rounds(self) -> Check | None:
        """What simulated trials of `rounds` rounds gave."""
        n = _independent(self.rounds, self.design_effect)
        return next((check for check in self.simulated if check.rounds == n), None)

    def describe(self) -> str:
        """The plan in words."""
        words = [self._asked, self._found]
        if self.design_effect > 1:
            words.append(f"The design effect {self.design_effect:.2f} for rounds that come in users is included.")
        check = self.at_rounds
        if check is not None:
            words.append(_in_words(check, self))
        elif self.design is None:
            if self.fixed > 0:
                least = quantile(1 - self.goal.alpha / 2) * np.sqrt(self.fixed)
                words.append(f"The error model is uncertain too: with it, no number of rounds brings the half-width below {least:.3g}.")
            words.append("A pilot says how variable the estimate is, not how contexts are distributed, so nothing was simulated.")
        else:
            words.append("Nothing was simulated." if _possible(self.rounds, self.design.dim) else "That is too long to be simulated here.")
        return " ".join(words)

    @property
    def _asked(self) -> str:
        goal = self.goal
        if goal.tests:
            return f"To find {goal.name} = {goal.effect:g} at level {goal.alpha:g} with power {goal.power:g}, by {self.method}:"
        return f"For a {100 * (1 - goal.alpha):g} % interval of {goal.name} of half-width {goal.half_width:g}, by {self.method}:"

    @property
    def _found(self) -> str:
        source = "by formula" if self.design is not None else f"from a pilot of {self.pilot_rounds:,} rounds"
        if self.pilot_units:
            units = max(-(-self.rounds * self.pilot_units // self.pilot_rounds), 2)  # one says nothing of the spread between them
            source += f" of {self.pilot_units:,} units, with as many rounds of each: {units:,} of them"
        raised = "" if self.rounds == self.formula else f" ({self.formula:,} {source}, raised since simulated trials fell short)"
        bound = "" if self.worst is None else f" If every action only had the floor's probability, it would take {self.worst:,}."
        return f"{self.rounds:,} rounds{raised or ' ' + source}.{bound}"

    def needed(self) -> Table:
        """Rounds for several powers or half-widths, by formula times what the simulation added."""
        goal, raised = self.goal, self.rounds / self.formula
        aims = sorted({*POWERS, goal.power}) if goal.tests else [goal.target * m for m in WIDTHS]
        counts = [goal.rounds(self.variance, aim, self.fixed) for aim in aims]
        rows = [[f"{aim:.3g}", *(f"{round(n):,}" if n else "never" for n in (m, m * raised))] for aim, m in zip(aims, counts, strict=True)]
        best = {(i, j) for i, aim in enumerate(aims) if aim == goal.target for j in range(3)}
        return Table(["power" if goal.tests else "half-width", "rounds by formula", "rounds to plan for"], rows, best)

    def checked(self) -> Table:
        """The simulated trials."""
        rows = []
        for c in self.simulated:
            expected = self.goal.reached(self.variance, c.rounds * self.design_effect, self.fixed)
            found, se = (c.power, c.power_se) if self.goal.tests else (c.half_width, c.half_width_se)
            shown = [f"{found:.3g} ± {se:.2g}", f"{100 * c.coverage:.1f} ± {100 * c.coverage_se:.1f}"]
            rows.append([f"{c.rounds:,}", f"{expected:.3g}", *shown])
        what = "power" if self.goal.tests else "half-width"
        rounds = "rounds" if self.design_effect == 1 else "independent rounds"
        return Table([rounds, f"{what} by formula", f"{what} simulated", "coverage, %"], rows)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        goal = {name: getattr(self.goal, name) for name in self.goal.__dataclass_fields__}
        same = ("rounds", "formula", "worst", "method", "variance", "design_effect", "pilot_rounds", "pilot_units", "fixed")
        plain = {name: getattr(self, name) for name in same}
        found = {"format": "mebandit-plan", "version": 1, "goal": goal} | plain | {"simulated": [c._asdict() for c in self.simulated]}
        return dict(without_nan(found))

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), allow_nan=False, indent=2)

    def plot(self, *, path: str | Path | None = None) -> "matplotlib.figure.Figure":
        """Power or half-width against the number of rounds; saved if a path is given."""
        figure = draw(self)
        if path is not None:
            save_figure(figure, path)
        return figure

    def page(self) -> Page:
        """The plan as a report page."""
        page = Page("How many rounds?").text(self.describe()).figure(self.plot()).heading("Rounds needed").table(self.needed())
        if self.simulated:
            page.heading("Simulated trials").table(self.checked())
            page.text("± is one Monte-Carlo standard error. Each trial was played by the intended policy and analysed like a real one.")
        return page


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _in_words(check: Check, plan: Plan) -> str:
    goal = plan.goal
    trials = f"{check.replicates} simulated trials" + (f" of {check.rounds:,} independent rounds" if plan.design_effect > 1 else "")
    covers = f"the interval covers in {100 * check.coverage:.1f} ± {100 * check.coverage_se:.1f} %"
    if goal.tests:
        return f"In {trials} the power is {check.power:.3f} ± {check.power_se:.3f}, and {covers}."
    return f"In {trials} the mean half-width is {check.half_width:.3g} ± {check.half_width_se:.2g}, and {covers}."


def plan(
    pilot: Any = None,
    *,
    half_width: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    effect: float | None = None,
    coefficient: int | str = 0,
    action: int = 1,
    baseline: int | None = 0,
    method: str = "dr",
    theta: ArrayLike | None = None,
    dim: int | None = None,
    mean: ArrayLike = 0.0,
    cov: ArrayLike = 1.0,
    error_cov: ArrayLike | None = None,
    noise_sd: float = 1.0,
    policy: str = "meb",
    floor: float = 0.2,
    probabilities: ArrayLike | None = None,
    rounds_per_user: float = 1.0,
    correlation: float = 0.0,
    replicates: int = 400,
    seed: int = 1,
    workers: Workers = None,
    progress: Show = None,
    **columns: Any,
) -> Plan:
    """How many rounds a trial needs for an interval of a wanted `half_width`, or, without one, for a test of wanted `power`.

    The parameter is one `coefficient` of θ_action - θ_baseline, by its number or by the name of its feature in a pilot; or of θ_action if
    `baseline` is None. The test, at 1 - `level`, asks whether it is 0 when it is `effect`. The world is `theta` (K, d), or `effect` alone
    with `dim`: then θ_baseline is 0, and θ_action is `effect` in that coefficient. Contexts have `mean` and `cov` (a constant feature: mean
    1, variance 0), predictions the error covariance `error_cov`, rewards the noise `noise_sd`. The policy is "meb" or "meb_dr" with a
    `floor`, or "constant" with `probabilities` (1/K by default).
    A `pilot` stands in for all that: what `mebandit.fit` found, or a log, which is then fitted with `error_cov` and the `columns` that
    `fit` takes (fit it yourself if its actions are in a column of another name than "action"). If rounds come in users whose scores are
    correlated, give `rounds_per_user` m and the intraclass `correlation` ρ: the variance is then 1 + (m - 1)ρ times as large (a pilot with
    units has that in its standard errors already).
    `replicates` simulated trials check the number, which is raised if they fall short; 0 leaves that out.

    >>> found = plan(effect=0.3, dim=3, error_cov=0.5, policy="constant", method="dr", replicates=0)
    >>> found.rounds
    536
    """
    goal = _goal(half_width, power, level, effect, coefficient, action, baseline)
    checks.one_of("method", method, METHODS)
    grown = design_effect(rounds_per_user, correlation)
    replicates = checks.integer("replicates", replicates, 0)
    seed = checks.integer("seed", seed, 0, 2**63 - 1)
    if pilot is not None:
        found = pilot if isinstance(pilot, Analysis) else fit(pilot, error_cov=error_cov, methods=method, progress=progress, **columns)
        return _from_pilot(found, goal, method, grown)
    if columns:
        checks.refuse("columns", "go with a pilot", checks.shown(sorted(columns)))
    if goal.feature:
        checks.refuse("coefficient", "be the number of a feature, where no pilot's log has names for them", repr(goal.feature))
    design = _design(goal, theta, dim, mean, cov, error_cov, noise_sd, policy, floor, probabilities)
    goal = _with_effect(goal, design, effect)
    V = grown * goal.part(variance(design, method))
    formula = goal.rounds(V)
    worst = None
    if design.policy != "constant":
        worst = goal.rounds(grown * goal.part(variance(design.played_with(design.floor), method)))
    planned = Plan(
        rounds=formula, formula=formula, worst=worst, simulated=(), goal=goal, method=method, variance=V, design_effect=grown, design=design
    )
    if replicates == 0 or not _possible(_independent(formula, grown), design.dim):
        return planned
    return _tried(planned, design, _Trial(replicates, seed, workers, progress))


def _goal(
    half_width: float | None, power: float, level: float, effect: float | None, coefficient: int | str, action: int, baseline: int | None
) -> Goal:
    """What is asked for, as far as it can be checked without the world."""
    if half_width is not None:
        half_width = checks.number("half_width", half_width, "be a number above 0", 1e-300)
    elif effect is not None and checks.number("effect", effect) == 0:
        checks.refuse("effect", "differ from 0, to be found", "0", "Ask for a half_width instead.")
    if baseline is not None and checks.integer("baseline", baseline, 0) == checks.integer("action", action, 0):
        checks.refuse("baseline", "differ from action", f"{baseline} for both", "For θ of the action itself: baseline=None.")
    return Goal(
        coefficient=0 if isinstance(coefficient, str) and coefficient else checks.integer("coefficient", coefficient, 0),
        feature=coefficient if isinstance(coefficient, str) else "",
        action=checks.integer("action", action, 0),
        baseline=baseline,
        half_width=half_width,
        effect=float("nan") if effect is None else checks.number("effect", effect),
        power=checks.number("power", power, "be between 0.05 and 0.9999", 0.05, 0.9999),
        level=checks.number("level", level, "be between 0.5 and 1, as 0.95 for 95 %", 0.5, 1 - 1e-9),
    )


def _design(
    goal: Goal,
    theta: Any,
    dim: int | None,
    mean: Any,
    cov: Any,
    error_cov: Any,
    noise_sd: float,
    policy: str,
    floor: float,
    probabilities: Any,
) -> Design:
    """The world, from a θ or from the effect alone, each part checked."""
    checks.one_of("policy", policy, POLICIES)
    if error_cov is None:
        checks.refuse("error_cov", "be the covariance of the prediction's error", "nothing", "No error: error_cov=0.0.")
    rows = _theta(goal, theta, dim)
    k, d = rows.shape
    for name, value in (("action", goal.action), ("baseline", goal.baseline)):
        if value is not None:
            checks.integer(name, value, 0, k - 1)
    checks.integer("coefficient", goal.coefficient, 0, d - 1)
    if probabilities is not None and policy != "constant":
        checks.refuse("probabilities", "go with the policy 'constant'", f"the policy {policy!r}")
    pi = np.full(k, 1.0 / k) if probabilities is None else checks.floats("probabilities", probabilities, (k,))
    if (pi <= 0).any() or abs(pi.sum() - 1) > 1e-9:
        checks.refuse("probabilities", "be above 0 and sum to 1", checks.shown(pi))
    design = Design(
        theta=rows,
        mean=checks.floats("mean", np.full(d, mean) if np.ndim(mean) == 0 else mean, (d,)),
        cov=checks.covariance("cov", cov, d),
        error_cov=checks.covariance("error_cov", error_cov, d),
        noise_sd=checks.number("noise_sd", noise_sd, "be a number of at least 0", 0.0),
        policy=policy,
        floor=checks.number("floor", floor, f"be above 0 and at most 1/{k}", 1e-6, 1.0 / k),
        probabilities=pi,
    )
    if np.linalg.eigvalsh(design.signal)[0] < 1e-10 * max(np.trace(design.signal), 1e-300):
        checks.refuse("mean and cov", "make E[xx'] invertible, for θ to be identified", f"one of {checks.shown(design.signal)}")
    return design


def _theta(goal: Goal, theta: Any, dim: int | None) -> Floats:
    if theta is not None:
        rows = checks.floats("theta", theta, (None, None))
        checks.integer("the number of rows of theta", len(rows), 2)
        if dim is not None and dim != rows.shape[1]:
            checks.refuse("dim", "be the number of columns of theta", f"{dim} and {rows.shape[1]}")
        return rows
    if np.isnan(goal.effect) or dim is None:
        checks.refuse("the world", "be given as theta, or as effect and dim", "neither")
    rows = np.zeros((max(2, goal.action + 1, (goal.baseline or 0) + 1), checks.integer("dim", dim, 1)))
    checks.integer("coefficient", goal.coefficient, 0, rows.shape[1] - 1)
    rows[goal.action, goal.coefficient] = goal.effect
    return rows


def _with_effect(goal: Goal, design: Design, given: float | None) -> Goal:
    """The goal with the effect that the world has."""
    own, j = design.theta[:, goal.coefficient], goal.coefficient
    effect = float(own[goal.action] - (0.0 if goal.baseline is None else own[goal.baseline]))
    if given is not None and abs(effect - given) > 1e-9 * max(1.0, abs(given)):
        checks.refuse("effect", f"be that of theta in coefficient {j}, {effect:g}", f"{given:g}", "Give one of the two.")
    if goal.tests and effect == 0:
        checks.refuse("theta", f"have {goal.name} other than 0, to be found", "0", "Ask for a half_width instead.")
    return replace(goal, effect=effect)


def _from_pilot(pilot: Analysis, goal: Goal, method: str, grown: float) -> Plan:
    """V = n s.e.² of the pilot, without what its error model is uncertain by; the effect is the given one, or else the pilot's estimate."""
    found = pilot.estimates.get(method)
    if found is None:
        checks.refuse("method", "be one that the pilot was fitted with", repr(method), f"It has {', '.join(pilot.estimates)}.")
    k, d = found.theta.shape
    if goal.feature:
        goal = replace(goal, coefficient=pilot.features.index(checks.one_of("coefficient", goal.feature, pilot.features)))
    checks.integer("coefficient", goal.coefficient, 0, d - 1)
    goal = replace(goal, feature=pilot.features[goal.coefficient])
    j, a = goal.coefficient, checks.integer("action", goal.action, 0, k - 1)
    by_model = found if found.model_covariance is None else replace(found, covariance=found.model_covariance)
    if goal.baseline is None:
        value, parts = found.theta[a, j], [e.std_error[a, j] ** 2 for e in (found, by_model)]
    else:
        b = checks.integer("baseline", goal.baseline, 0, k - 1)
        value, parts = found.contrast(a, b).theta[j], [e.contrast(a, b).std_error[j] ** 2 for e in (found, by_model)]
    goal = replace(goal, effect=float(value)) if np.isnan(goal.effect) else goal
    fixed = 0.0 if found.model_covariance is None else float(parts[1])
    V = grown * pilot.rounds * (float(parts[0]) - fixed)
    n = goal.rounds(V, fixed=fixed)
    if n == 0:
        rule = "leave room for what is asked; more rounds do not make it smaller"
        remedy = "Give the error model more pairs or readings, or ask for less."
        checks.refuse("the uncertainty of the error model", rule, f"a standard error of {np.sqrt(fixed):.3g} from it alone", remedy)
    return Plan(
        rounds=n, formula=n, worst=None, simulated=(), goal=goal, method=method, variance=V,
        design_effect=grown, design=None, pilot_rounds=pilot.rounds, pilot_units=pilot.units, fixed=fixed,
    )  # fmt: skip


def _independent(rounds: int, design_effect: float) -> int:
    """How many independent rounds say as much."""
    return max(1, round(rounds / design_effect))


def _possible(rounds: int, dim: int) -> bool:
    """Whether trials of so many rounds are simulated."""
    return rounds <= LONGEST and rounds * dim**2 <= LARGEST


@dataclass(frozen=True)
class _Trial:
    """How trials are simulated."""

    replicates: int
    seed: int
    workers: Workers
    progress: Show

    def check(self, planned: Plan, design: Design, n: int) -> Check:
        """Trials of n independent rounds; each number of rounds has luck of its own."""
        world = Gaussian(
            theta=design.theta, mean=design.mean, cov=design.cov, error_cov=design.error_cov, noise_sd=design.noise_sd
        )  # fmt: skip
        trials = run_trials(
            world, intended(design), horizon=n, replicates=self.replicates, seed=self.seed, cell=n % 2**32,
            methods=(planned.method,), error_cov=design.error_cov, workers=self.workers, progress=self.progress,
        )  # fmt: skip
        goal, j = planned.goal, planned.goal.coefficient
        if goal.baseline is None:
            theta, se = (part[:, goal.action, j] for part in trials.arms(planned.method))
        else:
            theta, se = (part[:, j] for part in trials.contrast(planned.method, goal.action, goal.baseline))
        return counted(theta, se, goal, n)


def counted(theta: Floats, std_error: Floats, goal: Goal, n: int) -> Check:
    """What trials of n rounds gave, from the estimates of the coefficient and their standard errors."""
    half, known = quantile(1 - goal.alpha / 2) * std_error, np.isfinite(std_error)
    found, covers = np.abs(theta) > half, np.abs(theta - goal.effect) <= half
    if not known.any():
        half, known = np.full(1, np.inf), np.ones(1, dtype=np.bool_)
    sizes = half[known]
    spread = float(sizes.std(ddof=1) / np.sqrt(sizes.size)) if sizes.size > 1 else 0.0
    return Check(
        n, theta.size, *_share(found), float(sizes.mean()), spread, *_share(covers), int(theta.size - np.isfinite(std_error).sum())
    )  # fmt: skip


def _share(held: Any) -> tuple[float, float]:
    """A share with its standard error, which is not 0 where all trials agree (Laplace's rule of succession)."""
    n, share = held.size, float(held.mean())
    smooth = (share * n + 1) / (n + 2)
    return share, float(np.sqrt(smooth * (1 - smooth) / n))


def intended(design: Design) -> Policy | Constant:
    """The policy that the trial will be run with."""
    if design.policy == "constant":
        return Constant(design.probabilities)
    return {"meb": meb, "meb_dr": meb_dr}[design.policy](design.n_actions, design.dim, floor=design.floor)


def _tried(planned: Plan, design: Design, trial: _Trial) -> Plan:
    """The plan after simulated trials: raised until they reach what is wanted within Monte-Carlo error; then a few more for the picture."""
    found: dict[int, Check] = {}
    rounds = planned.formula
    for _ in range(TRIES):
        n = _independent(rounds, planned.design_effect)
        if not _possible(n, design.dim):
            break
        check = found[n] = trial.check(planned, design, n)
        if _enough(check, planned.goal):
            break
        rounds = _raised(rounds, check, planned.goal)
    n = _independent(rounds, planned.design_effect)
    for share in (0.5, 0.75, 1.0, 1.4):
        at = max(2, round(share * n))
        if at not in found and _possible(at, design.dim):
            found[at] = trial.check(planned, design, at)
    return replace(planned, rounds=rounds, simulated=tuple(found[at] for at in sorted(found)))


def _enough(check: Check, goal: Goal) -> bool:
    """Whether the target is reached, but for two Monte-Carlo standard errors."""
    if goal.tests:
        return check.power >= goal.power - 2 * check.power_se
    return check.half_width <= goal.target + 2 * check.half_width_se


def _raised(rounds: int, check: Check, goal: Goal) -> int:
    """Rounds times what makes up for the miss: standard errors fall like 1/√n."""
    z = quantile(1 - goal.alpha / 2)
    if goal.tests:
        attained = quantile(min(max(check.power, goal.alpha), 0.999))
        factor = ((z + quantile(goal.power)) / max(z + attained, 0.1)) ** 2
    else:
        factor = (check.half_width / goal.target) ** 2
    return int(np.ceil(rounds * min(max(factor, 1.05), 4.0)))


def draw(planned: Plan) -> "matplotlib.figure.Figure":
    """Power or half-width against the number of rounds: the formula's line, simulated trials, and the number to plan for."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes, goal = figure.subplots(), planned.goal
    shown = [planned.rounds, planned.formula, *(c.rounds * planned.design_effect for c in planned.simulated)]
    n = np.linspace(0.75 * min(0.55 * planned.formula, *shown), 1.12 * max(1.4 * planned.rounds, *shown), 300)
    axes.plot(n, [goal.reached(planned.variance, at, planned.fixed) for at in n], color="#4c78a8", linewidth=2, label="formula")
    if planned.simulated:
        at = [c.rounds * planned.design_effect for c in planned.simulated]
        values = [(c.power, 2 * c.power_se) if goal.tests else (c.half_width, 2 * c.half_width_se) for c in planned.simulated]
        mean, bars = zip(*values, strict=True)
        label = f"{planned.simulated[0].replicates} simulated trials each, ± 2 s.e."
        axes.errorbar(at, mean, yerr=bars, fmt="o", color="#e45756", markersize=6, capsize=3, linewidth=1.4, label=label, zorder=3)
    _mark(axes, planned)
    axes.set_xlim(n[0], n[-1])
    if goal.tests:
        axes.set_ylim(min(axes.get_ylim()[0], 0.9 * goal.power), 1.0)
    else:
        axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("rounds")
    name = re.sub(r"θ_(\d+)", r"$\\theta_{\1}$", in_figure(goal.name)).replace(" - ", " − ")
    axes.set_ylabel(f"power to find {name} = {goal.effect:g}" if goal.tests else f"half-width of the interval of {name}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="lower right" if goal.tests else "upper right")
    return figure


def _mark(axes: "matplotlib.axes.Axes", planned: Plan) -> None:
    """The wanted value and the number of rounds to plan for."""
    target = planned.goal.target
    axes.axhline(target, color="0.45", linestyle=(0, (4, 2)), linewidth=1.2)
    axes.axvline(planned.rounds, color="0.45", linestyle=(0, (4, 2)), linewidth=1.2)
    high = planned.goal.tests
    words = f"{planned.rounds:,} rounds\n{'power' if high else 'half-width'} {target:g}"
    place = (-8, 8) if high else (8, 8)
    axes.annotate(
        words, (planned.rounds, target), xytext=place, textcoords="offset points",
        ha="right" if high else "left", va="bottom", fontsize=10, fontweight="bold",
    )  # fmt: skip
