"""`plan`: how many rounds a trial needs, by formula or from a pilot, and tried out in simulated trials."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from mebandit import checks
from mebandit.analysis.fit import fit
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.planning.design import DesignOptions, design_of
from mebandit.analysis.planning.formulas import METHODS, Design, variance
from mebandit.analysis.planning.goal import Goal, GoalOptions, design_effect, goal_of, with_effect
from mebandit.analysis.planning.pilot import from_pilot
from mebandit.analysis.planning.result import Plan, can_be_simulated, independent
from mebandit.analysis.planning.simulated import Trial, tried
from mebandit.estimation.methods import Method
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers


class PilotColumns(TypedDict, total=False):
    """The columns of a pilot's log, as in `mebandit.Log`. `action` is here the number of an action: name its column in a `Log`."""

    predicted: Any
    reward: str
    propensity: Any
    unit: str | None
    error_columns: Any
    n_actions: int | None
    intercept: bool
    """fit an intercept for every action of the pilot (default False)"""


class PlanOptions(GoalOptions, DesignOptions, PilotColumns, total=False):
    """The keywords of `plan`: what the trial is for, the world and the policy, the columns of a pilot."""


def plan(
    pilot: Any = None,
    *,
    method: Method = "dr",
    rounds_per_user: float = 1.0,
    correlation: float = 0.0,
    replicates: int = 400,
    seed: int = 1,
    workers: Workers = None,
    progress: Show = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """How many rounds a trial needs for an interval of a wanted half-width, or for a test of wanted power.

    The parameter is one coefficient of θ_action - θ_baseline. Either the world is described (`theta`, or `effect` and `dim`; `error_cov`;
    ...), or a pilot says how variable the estimate is.

    Args:
        pilot: What `mebandit.fit` found in a pilot; or the pilot's log (a `Log`, or what `Log` takes), which is then fitted.
            None (default): the world is described.
        method: How the trial will be analysed: "dr" (default), "meb" or "rc".
        rounds_per_user: m, if rounds come in users whose scores are correlated (default 1). A pilot with units has the correlation in its
            standard errors already.
        correlation: ρ, their intraclass correlation (default 0): the variance is 1 + (m - 1)ρ times as large.
        replicates: Simulated trials for each number of rounds (default 400). They check the number, which is raised if they fall short;
            0 leaves them out.
        seed: Of the simulated trials (default 1).
        workers: Threads, or the address of a Dask scheduler; None (default): all cores. The result does not depend on it.
        progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.
        **options: What the trial is for (`GoalOptions`), the world and the policy (`DesignOptions`), the columns of a pilot.

    Returns:
        The plan: `rounds`, the formula's number, the simulated trials, and `describe()` in words.

    >>> found = plan(effect=0.3, dim=3, error_cov=0.5, policy="constant", method="dr", replicates=0)
    >>> found.rounds
    536
    """
    left: dict[str, Any] = dict(options)
    asked, world = _taken(left, GoalOptions), _taken(left, DesignOptions)
    goal = goal_of(**asked)
    checks.one_of("method", method, METHODS)
    grown = design_effect(rounds_per_user, correlation)
    trial = Trial(checks.integer("replicates", replicates, 0), checks.integer("seed", seed, 0, 2**63 - 1), workers, progress)
    if pilot is not None:
        error = {} if world.get("error_cov") is None else {"error_cov": world["error_cov"]}
        found = pilot if isinstance(pilot, Analysis) else fit(pilot, methods=method, progress=progress, **error, **left)
        return from_pilot(found, goal, method, grown)
    if left:
        checks.refuse("columns", "go with a pilot", checks.shown(sorted(left)))
    if goal.feature:
        checks.refuse("coefficient", "be the number of a feature, where no pilot's log has names for them", repr(goal.feature))
    design = design_of(goal, **world)
    planned = _by_formula(with_effect(goal, design.theta, asked.get("effect")), design, method, grown)
    if replicates == 0 or not can_be_simulated(independent(planned.formula, grown), design.dim):
        return planned
    return tried(planned, design, trial)


def _taken(left: dict[str, Any], options: type[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of one kind, taken out of what is left."""
    return {name: left.pop(name) for name in options.__annotations__ if name in left}


def _by_formula(goal: Goal, design: Design, method: str, grown: float) -> Plan:
    """The plan before any trial is simulated."""
    V = grown * goal.part(variance(design, method))
    worst = None
    if design.policy != "constant":
        worst = goal.rounds(grown * goal.part(variance(design.played_with(design.floor), method)))
    n = goal.rounds(V)
    return Plan(rounds=n, formula=n, worst=worst, simulated=(), goal=goal, method=method, variance=V, design_effect=grown, design=design)
