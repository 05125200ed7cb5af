"""A plan from a pilot: the standard errors of its analysis say how variable an estimate is."""

from dataclasses import replace

import numpy as np

from mebandit import checks
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.planning.goal import Goal
from mebandit.analysis.planning.result import Plan


def from_pilot(pilot: Analysis, goal: Goal, method: str, grown: float) -> Plan:
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
        rule = "be small enough for the goal, since more rounds do not reduce it"
        remedy = "Base the error model on more validation data, or lower the goal."
        checks.refuse("the uncertainty of the error model", rule, f"a standard error of {np.sqrt(fixed):.3g} from it alone", remedy)
    return Plan(
        rounds=n, formula=n, worst=None, simulated=(), goal=goal, method=method, variance=V,
        design_effect=grown, design=None, pilot_rounds=pilot.rounds, pilot_units=pilot.units, fixed=fixed,
    )  # fmt: skip
