"""What `fit` returns: the estimates by every method, their sensitivity to Σe, and the diagnostics."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit import checks
from mebandit.analysis.effects import AVERAGE, Effect, Effects, JointTest, average_effect, average_effects, joint_tests
from mebandit.analysis.plain import without_nan
from mebandit.estimation.correction import Correction
from mebandit.estimation.methods import PREFERRED
from mebandit.estimation.result import Contrast, Estimate
from mebandit.logs.coding import action_number
from mebandit.logs.left_out import LeftOut
from mebandit.reports.figures import save_figure
from mebandit.values import Booleans, Finding, Floats

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(frozen=True)
class Analysis:
    """The result of `fit`: estimates by every method, their sensitivity to Σe, and diagnostics."""

    estimates: dict[str, Estimate]
    """by method"""
    features: tuple[str, ...]
    """names of the d features, the columns of x̃ in the log"""
    rounds: int
    """rounds that were used, without the rows that were set aside"""
    units: int
    """number of clusters for the standard errors; 0: rounds are independent"""
    faults: int
    """rows that were set aside"""
    sensitivity: dict[str, dict[float, Floats]]
    """θ (K, d) by method and multiple of Σe; NaN where there is no solution"""
    intercept_sensitivity: dict[str, dict[float, Floats]]
    """the same of the intercepts, (K,); zero unless they were fitted"""
    sensitivity_guarded: dict[str, dict[float, Booleans]]
    """which of these are stabilised (Fuller-type) estimates, (K,)"""
    diagnostics: tuple[Finding, ...]
    """what was checked, the worst finding first"""
    error: Correction
    """what is known of the prediction error, with its covariance Σe, (d, d), or the mean of Σe,t over the rounds"""
    mean_reward: float
    """mean reward of the rounds that were used"""
    propensity_histogram: Floats
    """rounds by action and twentieth of the propensity of the action taken, (K, 20)"""
    references: Mapping[str, str] = field(default_factory=dict)
    """the label of each categorical column that has no feature; the features of the other labels are relative to it"""
    left_out: LeftOut | None = None
    """rows that were left out since the outcome was missing, or the participant not available; None: not counted"""
    actions: tuple[str, ...] = ()
    """the labels of the actions; empty (the default): they have none"""
    mean_context: Floats = field(default_factory=lambda: np.empty(0))
    """mean of the predictions over the rounds that were used, without their bias, (d,)"""
    mean_context_cov: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """its covariance as an estimate of the mean context of the population, clustered like the standard errors, (d, d)"""
    outcome: str = "reward"
    """the name of the reward's column ("reward" by default)"""
    settings: dict[str, Any] = field(default_factory=dict)
    """how the log was analysed: the options of `fit`, by name; empty by default"""

    @property
    def n_actions(self) -> int:
        return len(next(iter(self.estimates.values())).theta)

    def called(self, action: int, *, beside: str = "") -> str:
        """An action by its label, or by its number.

        Args:
            action: The number of the action.
            beside: What stands before a number, such as "action " (default nothing).
        """
        action = checks.integer("action", action, 0, self.n_actions - 1)
        return self.actions[action] if self.actions else f"{beside}{action}"

    @property
    def best(self) -> Estimate:
        """The estimate to read first: dr, else meb, else what there is."""
        return next(self.estimates[method] for method in PREFERRED if method in self.estimates)

    @property
    def verdict(self) -> str:
        """The worst verdict among the diagnostics: "green", "yellow" or "red"."""
        return self.diagnostics[0].verdict

    def __str__(self) -> str:
        from mebandit.analysis.fit_page import describe  # which is about this class

        return describe(self)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        level: float = 0.95,
        method: str | None = None,
        outcome: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> "matplotlib.figure.Figure":
        """The figure of the effects alone, made to be printed: each action against the first, on average and by feature.

        Args:
            path: Where to save it, .pdf, .svg or .png; None (default): nowhere.
            level: Confidence level of the intervals, between 0 and 1 (default 0.95).
            method: Whose estimates are shown (default None: those of `best`).
            outcome: What the reward is called, with its unit (default None: the name of its column).
            labels: What features are called, with their units, by their names; "average" names the average effect (default None).
        """
        from mebandit.analysis.effects_figure import draw_effects  # which is about this class

        figure = draw_effects(self, level=level, method=method, outcome=outcome, labels=labels)
        if path is not None:
            save_figure(figure, path)
        return figure

    def average_effect(self, a: int | str = 1, b: int | str = 0, *, method: str | None = None) -> Effect:
        """The average effect of action a against b over the contexts of the population: at their mean, which the log estimates.

        Args:
            a: An action, by number or label (default 1).
            b: The action to compare it with (default 0).
            method: Whose estimate (default None: that of `best`).
        """
        found = self.best if method is None else self.estimates[checks.one_of("method", method, self.estimates)]
        first, second = (action_number(name, given, self.actions, self.n_actions) for name, given in (("a", a), ("b", b)))
        return average_effect(found, first, second, self.mean_context, self.mean_context_cov)

    def average_effects(self, b: int | str = 0, *, method: str | None = None) -> Effects:
        """The average effects of all other actions against action b, with intervals that hold together and a joint test.

        Args:
            b: The action to compare the others with (default 0).
            method: Whose estimate (default None: that of `best`).
        """
        found = self.best if method is None else self.estimates[checks.one_of("method", method, self.estimates)]
        second, one = action_number("b", b, self.actions, self.n_actions), np.eye(self.n_actions)
        return average_effects(found, np.delete(one, second, axis=0) - one[second], self.mean_context, self.mean_context_cov)

    def joint_tests(self, *, method: str | None = None) -> list[JointTest]:
        """Wald tests of several coefficients at once: that two actions do not differ, and that no feature moderates their difference.

        Args:
            method: Whose estimate (default None: that of `best`).
        """
        found = self.best if method is None else self.estimates[checks.one_of("method", method, self.estimates)]
        pairs = [(a, b) for a in range(self.n_actions) for b in (range(a) if self.n_actions <= 3 else (0,)) if a > 0]
        named = {(a, b): f"{self.called(a)} - {self.called(b)}" for a, b in pairs}
        return joint_tests(found, named, np.diag(self.mean_context_cov) > 0)

    def effect_at(self, at: Mapping[str, float], a: int | str = 1, b: int | str = 0, *, method: str | None = None) -> Effect:
        """The effect of action a against b at chosen values of some features, the others at their means.

        Args:
            at: Values by the name of the feature.
            a: An action, by number or label (default 1).
            b: The action to compare it with (default 0).
            method: Whose estimate (default None: that of `best`).
        """
        mean, cov = self.mean_context.copy(), self.mean_context_cov.copy()
        for name, value in at.items():
            j = self.features.index(checks.one_of("at", name, self.features))
            mean[j], cov[j], cov[:, j] = checks.number(f"at[{name!r}]", value), 0.0, 0.0
        found = self.best if method is None else self.estimates[checks.one_of("method", method, self.estimates)]
        first, second = (action_number(name, given, self.actions, self.n_actions) for name, given in (("a", a), ("b", b)))
        shown = ", ".join(f"{name} = {value:g}" for name, value in at.items())
        return average_effect(found, first, second, mean, cov)._replace(name=f"at {shown}" if at else AVERAGE)

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """Everything as JSON can hold it: estimates.<method>.theta, .std_error and .interval, contrasts, sensitivity, diagnostics.

        Args:
            level: Confidence level of the intervals, between 0 and 1 (default 0.95).
        """
        contrasts = {
            f"{a}-{b}": {method: _contrast_plain(found.contrast(a, b), level) for method, found in self.estimates.items()}
            for a in range(self.n_actions)
            for b in range(a)
        }
        plain = {
            "format": "mebandit-fit",
            "version": 1,
            "rounds": self.rounds,
            "units": self.units,
            "rows_set_aside": self.faults,
            "n_actions": self.n_actions,
            "features": list(self.features),
            "actions": list(self.actions),
            "references": dict(self.references),
            "mean_context": self.mean_context.tolist(),
            "mean_context_cov": self.mean_context_cov.tolist(),
            "rows": self._rows_plain(),
            "mean_reward": self.mean_reward,
            "error": self.error.to_plain(),
            "level": level,
            "estimates": {method: _estimate_plain(found, level) for method, found in self.estimates.items()},
            "contrasts": contrasts,
            "average_effects": {
                f"{a}-{b}": {method: self.average_effect(a, b, method=method).to_plain(level) for method in self.estimates}
                for a in range(self.n_actions)
                for b in range(a)
            },
            "average_effects_together": {"minus": 0, "interval": self.average_effects().interval(level).tolist()},
            "joint_tests": [test.to_plain() for test in self.joint_tests()],
            "sensitivity": _scales_plain(self.sensitivity),
            "intercept_sensitivity": _scales_plain(self.intercept_sensitivity),
            "sensitivity_guarded": _scales_plain(self.sensitivity_guarded),
            "diagnostics": [finding._asdict() for finding in self.diagnostics],
            "settings": self.settings,
        }
        return dict(without_nan(plain))

    def _rows_plain(self) -> dict[str, Any]:
        """What became of the rows, as JSON can hold it."""
        if self.left_out is None:
            return {"available_share": 1.0, "missing_share": 0.0, "not_available": 0, "missing_outcomes": 0, "missing_by_action": []}
        missing, eligible = self.left_out.missing.sum(), max(self.left_out.eligible.sum(), 1.0)
        return {
            "available_share": eligible / (eligible + self.left_out.unavailable),
            "missing_share": missing / eligible,
            "not_available": self.left_out.unavailable,
            "missing_outcomes": int(missing),
            "missing_by_action": self.left_out.missing.sum(axis=1).tolist(),
        }

    def to_json(self, level: float = 0.95) -> str:
        """`to_plain` as a JSON text.

        Args:
            level: Confidence level of the intervals, between 0 and 1 (default 0.95).
        """
        return json.dumps(self.to_plain(level), allow_nan=False, indent=2)


def _estimate_plain(found: Estimate, level: float) -> dict[str, Any]:
    return {
        "theta": found.theta.tolist(),
        "std_error": found.std_error.tolist(),
        "df": found.df.tolist(),
        "interval": found.interval(level).tolist(),
        "intercept": found.intercept.tolist(),
        "intercept_std_error": found.intercept_std_error.tolist(),
        "covariance": found.covariance.tolist(),
        "model_covariance": None if found.model_covariance is None else found.model_covariance.tolist(),
        "guarded": found.guarded.tolist(),
        "diagnostics": {name: values.tolist() for name, values in found.diagnostics.items()},
    }


def _contrast_plain(found: Contrast, level: float) -> dict[str, Any]:
    return {
        "theta": found.theta.tolist(),
        "std_error": found.std_error.tolist(),
        "df": np.broadcast_to(found.df, found.theta.shape).tolist(),
        "interval": found.interval(level).tolist(),
        "intercept": found.intercept,
        "intercept_std_error": found.intercept_std_error,
    }


def _scales_plain(by_method: Mapping[str, Mapping[float, Floats | Booleans]]) -> dict[str, Any]:
    return {method: {f"{scale:g}": found.tolist() for scale, found in by_scale.items()} for method, by_scale in by_method.items()}
