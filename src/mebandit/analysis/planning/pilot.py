"""A plan from a pilot: the standard errors of its analysis say how variable an estimate is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from mebandit import checks
from mebandit.analysis.effects import AVERAGE, INTERCEPT, LARGEST_RATIO
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.planning.accuracy import Accuracy
from mebandit.analysis.planning.duration import Duration
from mebandit.analysis.planning.goal import Goal
from mebandit.analysis.planning.result import Plan
from mebandit.checks import LogError
from mebandit.logs.coding import action_number
from mebandit.runtime.files import parse_json
from mebandit.values import Floats


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The results of a pilot's analysis that a plan needs, by one method."""

    coefficients: Floats
    """the intercepts, if they were fitted, and θ, (K, p)"""
    covariance: Floats
    """the covariance of all coefficients, action after action, (K p, K p)"""
    of_error_model: Floats
    """the part of this covariance that comes from the error model, which more rounds do not reduce"""
    features: tuple[str, ...]
    actions: tuple[str, ...]
    """labels of the actions, or none"""
    mean: Floats
    """the mean context, (d,)"""
    mean_cov: Floats
    """its covariance as an estimate, (d, d)"""
    rounds: int
    units: int
    availability: float
    """share of the decision points at which participants were available"""
    missing: float
    """share of the outcomes that were missing"""

    @classmethod
    def of(cls, analysis: Analysis, method: str) -> Self:
        """Of what `fit` returned."""
        return cls.from_plain(analysis.to_plain(), method, "the pilot")

    @classmethod
    def load(cls, path: Path, method: str) -> Self:
        """Of the file that `mebandit fit` wrote."""
        try:
            plain = parse_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise LogError(f"{path} must be a fit.json that can be read; got {' '.join(str(error).split())}.") from error
        if not isinstance(plain, dict) or plain.get("format") != "mebandit-fit":
            raise LogError(f"{path} must be a fit.json, as `mebandit fit --out` writes it; got another file.")
        return cls.from_plain(plain, method, str(path))

    @classmethod
    def from_plain(cls, plain: dict[str, Any], method: str, where: str) -> Self:
        """Of the JSON of an analysis.

        Args:
            plain: What `Analysis.to_plain` gives.
            method: The method of the trial's analysis.
            where: What a refusal names.
        """
        try:
            estimates = plain["estimates"]
            own = estimates.get(method)
            found = None if own is None else cls._of_estimate(own, plain)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            reason = f"without {error}" if isinstance(error, KeyError) else f"in which this is wrong: {str(error).rstrip('.')}"
            raise LogError(f"{where} must be written by this version of mebandit; got one {reason}. Fit the pilot again.") from error
        if found is None:
            checks.refuse("method", "be one that the pilot was fitted with", repr(method), f"It has {', '.join(estimates)}.")
        return found

    @classmethod
    def _of_estimate(cls, own: dict[str, Any], plain: dict[str, Any]) -> Self:
        """Of one estimate in the JSON of an analysis, every part checked."""
        features, actions = tuple(plain["features"]), tuple(plain["actions"])
        theta, covariance = checks.floats("theta", own["theta"], (None, len(features))), np.array(own["covariance"], dtype=float)
        fitted = len(covariance) > theta.size
        size = theta.size + fitted * len(theta)
        d, of_model = len(features), own["model_covariance"]
        if not (d and all(isinstance(name, str) for name in features + actions) and len(actions) in (0, len(theta))):
            checks.refuse("features and actions", "be names", checks.shown(features + actions))
        return cls(
            coefficients=np.column_stack([checks.floats("intercept", own["intercept"], (len(theta),)), theta]) if fitted else theta,
            covariance=checks.floats("covariance", covariance, (size, size)),
            of_error_model=np.zeros((size, size)) if of_model is None else checks.floats("model_covariance", of_model, (size, size)),
            features=features,
            actions=actions,
            mean=checks.floats("mean_context", plain["mean_context"], (d,)),
            mean_cov=checks.floats("mean_context_cov", plain["mean_context_cov"], (d, d)),
            rounds=checks.integer("rounds", plain["rounds"], 1, 2**53),
            units=checks.integer("units", plain["units"], 0, 2**53),
            availability=checks.number("available_share", plain["rows"]["available_share"], "be a share", 0.0, 1.0),
            missing=checks.number("missing_share", plain["rows"]["missing_share"], "be a share", 0.0, 1.0),
        )

    @property
    def has_intercept(self) -> bool:
        return bool(self.coefficients.shape[1] > len(self.features))

    def action(self, what: str, given: int | str) -> int:
        """The number of an action that is given by number or label; `what` is the argument that a refusal names."""
        return action_number(what, given, self.actions, len(self.coefficients))

    def side(self, action: int) -> Floats:
        """1 for an action and 0 for the others, (K,)."""
        return np.asarray(np.eye(len(self.coefficients))[action])

    def weights(self, effect: int | str) -> tuple[str, Floats]:
        """The name of an effect, and what it weighs the coefficients of an action with, (p,)."""
        first = int(self.has_intercept)
        named = [AVERAGE, *([INTERCEPT] if self.has_intercept else []), *self.features]
        if isinstance(effect, str) and effect not in self.features:
            checks.one_of("coefficient", effect, named)
            at = self.mean if effect == AVERAGE else np.zeros(self.mean.size)
            return effect, np.r_[np.ones(first), at]
        place = self.features.index(effect) if isinstance(effect, str) else checks.integer("coefficient", effect, 0, len(self.features) - 1)
        return self.features[place], np.eye(first + len(self.features))[first + place]


def from_pilot(pilot: Pilot, goal: Goal, method: str, grown: float, duration: Duration | None) -> Plan:
    """V̂ = n s.e.² of the pilot, without what its error model is uncertain by; the effect is the given one, or else the pilot's estimate."""
    name, weights = pilot.weights(goal.feature or goal.coefficient)
    side = pilot.side(goal.treatment) - (0.0 if goal.control is None else pilot.side(goal.control))
    whole = np.kron(side, weights)
    value, total = float(whole @ pilot.coefficients.ravel()), float(whole @ pilot.covariance @ whole)
    fixed = max(0.0, float(whole @ pilot.of_error_model @ whole))  # rounding may leave a zero below zero
    df = float(pilot.units or pilot.rounds)
    if name == AVERAGE:
        slopes = side @ pilot.coefficients[:, -pilot.mean.size :]
        added = float(slopes @ pilot.mean_cov @ slopes)
        df *= (1 + min(added / total, LARGEST_RATIO)) ** 2 if total > 0 else 1.0  # the mean context counts as known exactly
        total += added
    place = pilot.features.index(name) if name in pilot.features else 0
    goal = replace(goal, feature=name, coefficient=place, labels=pilot.actions)
    goal = replace(goal, effect=value) if np.isnan(goal.effect) else goal
    variance, rounds_per_df = grown * pilot.rounds * (total - fixed), grown * pilot.rounds / df
    if duration is not None and pilot.units:
        longer = duration.rounds * pilot.units / pilot.rounds
        # Where a participant gives more rounds than in the pilot, participants count, not rounds: the safe side of what is not known.
        variance, rounds_per_df = variance * max(1.0, longer), rounds_per_df * longer
    accuracy = Accuracy(variance=variance, fixed=fixed, rounds_per_df=rounds_per_df, pilot_df=max(df - 1.0, 1.0))
    n = goal.rounds(accuracy)
    if n == 0:
        rule = "be small enough for the goal, since more rounds do not reduce it"
        remedy = "Base the error model on more validation data, or lower the goal."
        checks.refuse("the uncertainty of the error model", rule, f"a standard error of {np.sqrt(fixed):.3g} from it alone", remedy)
    return Plan(
        rounds=n, formula=n, worst=None, simulated=(), goal=goal, method=method, accuracy=accuracy, design_effect=grown, design=None,
        duration=duration, pilot_rounds=pilot.rounds, pilot_units=pilot.units,
    )  # fmt: skip
