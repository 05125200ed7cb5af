"""`plan`: how many rounds a trial needs, by formula or from a pilot, and tried out in simulated trials."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from mebandit import checks
from mebandit.analysis.fit import fit
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.planning.accuracy import Accuracy
from mebandit.analysis.planning.design import DesignOptions, design_of
from mebandit.analysis.planning.duration import Duration, DurationOptions, duration_of
from mebandit.analysis.planning.formulas import METHODS, Design, variance
from mebandit.analysis.planning.goal import Goal, GoalOptions, design_effect, goal_of, with_effect
from mebandit.analysis.planning.pilot import Pilot, from_pilot
from mebandit.analysis.planning.result import Plan, can_be_simulated, independent
from mebandit.analysis.planning.simulated import Trial, tried
from mebandit.estimation.methods import Method
from mebandit.logs.log import LogColumns
from mebandit.runtime.progress import Show
from mebandit.runtime.workers import Workers


class PilotOptions(LogColumns, total=False):
    """The keywords of `plan` that say how the log of a pilot is read: those of `mebandit.Log` but `error_cov`, and these of `fit`."""

    intercept: bool
    """fit an intercept for every action of the pilot (default False)"""
    on_bad: str
    """as in `fit` (default "refuse")"""
    set_aside: str | Path | None
    """as in `fit` (default None)"""


class PlanOptions(GoalOptions, DesignOptions, DurationOptions, PilotOptions, total=False):  # type: ignore[misc]
    """The keywords of `plan`: what the trial is for, the world and the policy, the length of the trial, the columns of a pilot."""


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

    The parameter is one coefficient of θ_treatment - θ_control, or of a pilot also the average effect. Either the world is described
    (`theta`, or `effect` and `dim`; `error_cov`; ...), or a pilot says how variable the estimate is.

    Args:
        pilot: What `mebandit.fit` found in a pilot, or the path of its fit.json; or the pilot's log (a `Log`, or what `Log` takes), which
            is then fitted. None (default): the world is described.
        method: How the trial will be analysed: "dr" (default), "meb" or "rc".
        rounds_per_user: m, if rounds come in users whose scores are correlated (default 1). A pilot with units has the correlation in its
            standard errors already.
        correlation: ρ, their intraclass correlation (default 0): the variance is 1 + (m - 1)ρ times as large.
        replicates: Simulated trials for each number of rounds (default 400). They check the number, which is raised if they fall short;
            0 leaves them out.
        seed: Of the simulated trials (default 1).
        workers: Threads, or the address of a Dask scheduler; None (default): all cores. The result does not depend on it.
        progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.
        **options: What the trial is for (`GoalOptions`), the world and the policy (`DesignOptions`), the length of the trial in days and
            decision points (`DurationOptions`), the columns of a pilot's log (`PilotOptions`).

    Returns:
        The plan: `rounds`, and `participants` if days are given, the formula's number, the simulated trials, and `describe()` in words.

    >>> found = plan(effect=0.3, dim=3, error_cov=0.5, policy="constant", method="dr", replicates=0)
    >>> found.rounds
    537
    """
    left: dict[str, Any] = dict(options)
    asked, length, world = _taken(left, GoalOptions), _taken(left, DurationOptions), _taken(left, DesignOptions)
    checks.one_of("method", method, METHODS)
    trial = Trial(checks.integer("replicates", replicates, 0), checks.integer("seed", seed, 0, 2**63 - 1), workers, progress)
    if pilot is not None:
        goal_of(**asked | {"treatment": 1, "control": None})  # what is wrong without the pilot comes first
        error = {} if world.get("error_cov") is None else {"error_cov": world["error_cov"]}
        found = pilot_of(pilot, method, progress, error | left)
        sides = {name: found.action(name, asked[name]) for name in ("treatment", "control") if asked.get(name) is not None}
        duration = duration_of(**length, usual=(found.availability, found.missing))
        return from_pilot(found, goal_of(**asked | sides), method, design_effect(rounds_per_user, correlation), duration)
    goal, duration = goal_of(**asked), duration_of(**length)
    grown = design_effect(_rounds_each(rounds_per_user, duration), correlation)
    _check_without_pilot(goal, left)
    design = design_of(goal, **world)
    planned = replace(_by_formula(with_effect(goal, design.theta, asked.get("effect")), design, method, grown), duration=duration)
    if replicates == 0 or not can_be_simulated(independent(planned.formula, grown), design.dim):
        return planned
    return tried(planned, design, trial)


def _rounds_each(given: float, duration: Duration | None) -> float:
    """Rounds of a user: as given, or computed from days, decision points and availability."""
    if duration is None:
        return given
    if given != 1.0:
        checks.refuse("rounds_per_user", "be left out where days are given", f"{given:g}")
    return max(duration.rounds, 1.0)


def _check_without_pilot(goal: Goal, left: Mapping[str, Any]) -> None:
    """Refuse what only a pilot's log has."""
    if left:
        checks.refuse("columns", "go with a pilot", checks.shown(sorted(left)))
    if goal.feature:
        checks.refuse("coefficient", "be the number of a feature, where no pilot's log has names for them", repr(goal.feature))


def pilot_of(given: Any, method: Method, progress: Show, options: dict[str, Any]) -> Pilot:
    """What a plan reads of a pilot, whether it comes as an analysis, as a fit.json or as a log.

    Args:
        given: The pilot.
        method: The method of the trial's analysis.
        progress: As in `plan`.
        options: The keywords of `fit` for a log.
    """
    if isinstance(given, Pilot):
        return given
    if isinstance(given, Analysis):
        return Pilot.of(given, method)
    paths = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(paths) == 1 and isinstance(paths[0], (str, Path)) and Path(paths[0]).suffix == ".json":
        if options:
            checks.refuse("columns", "go with a pilot's log, not with its fit.json", checks.shown(sorted(options)))
        return Pilot.load(Path(paths[0]), method)
    return Pilot.of(fit(given, methods=method, progress=progress, **options), method)


def _taken(left: dict[str, Any], options: type[Mapping[str, Any]]) -> dict[str, Any]:
    """The options of one kind, removed from the options not yet used."""
    return {name: left.pop(name) for name in options.__annotations__ if name in left}


def _by_formula(goal: Goal, design: Design, method: str, grown: float) -> Plan:
    """The plan before any trial is simulated."""
    accuracy = Accuracy(variance=grown * goal.part(variance(design, method)), rounds_per_df=grown)
    worst = None
    if design.policy != "constant":
        at_floor = grown * goal.part(variance(design.played_with(design.floor), method))
        worst = goal.rounds(replace(accuracy, variance=at_floor))
    n = goal.rounds(accuracy)
    return Plan(
        rounds=n, formula=n, worst=worst, simulated=(), goal=goal, method=method, accuracy=accuracy, design_effect=grown, design=design
    )  # fmt: skip
