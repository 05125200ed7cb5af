"""What `value` returns: the values of policies by three estimators, with intervals, and the differences between policies."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.analysis.bounded_values import Band
from mebandit.analysis.linear_rule import LinearRule
from mebandit.estimation.result import scalar_interval
from mebandit.estimation.student import satterthwaite
from mebandit.values import Floats

ESTIMATORS = ("ips", "snips", "dr")


@dataclass(frozen=True)
class Figure:
    """A number with its standard error."""

    value: float
    std_error: float
    df: float
    """degrees of freedom of the standard error; infinite for the normal approximation"""
    size: float
    """the rounds, or clusters, that it was estimated from"""

    def interval(self, level: float = 0.95, *, anytime: bool = False) -> tuple[float, float]:
        """A confidence interval by Student's t.

        Args:
            level: Confidence level, between 0 and 1 (default 0.95).
            anytime: Whether it holds at every look at a growing log, as in `Estimate.interval` (default False).
        """
        return scalar_interval(self, level, anytime=anytime)

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        """As JSON can hold it."""
        df = self.df if np.isfinite(self.df) else None
        return {"value": self.value, "std_error": self.std_error, "df": df, "interval": list(self.interval(level))}


class Spread(NamedTuple):
    """The scores of all values of a log together: their covariance, and what their degrees of freedom follow from."""

    covariance: Floats
    """of the means whose errors the scores add up to, (m, m); see `value_scores`"""
    groups: Floats
    """the scores by cluster, or by at most 512 groups of rounds, (groups, m); empty: the normal approximation"""
    size: float
    """rounds, or clusters"""

    def figure(self, value: float, weights: Floats) -> Figure:
        """A linear combination of the means.

        Args:
            value: The combination itself.
            weights: Of the means, (m,).
        """
        df = float(satterthwaite(self.groups, weights[None])[0]) if len(self.groups) else np.inf
        return Figure(value, float(np.sqrt(max(float(weights @ self.covariance @ weights), 0.0))), df, self.size)


@dataclass(frozen=True)
class ValueEstimate(Figure):
    """The value of a policy by one estimator, and its difference from the value of the logged policy."""

    difference: Figure

    def to_plain(self, level: float = 0.95) -> dict[str, Any]:
        return super().to_plain(level) | {"difference": self.difference.to_plain(level)}


@dataclass(frozen=True, eq=False)
class Value:
    """What a policy would have earned per round."""

    name: str
    """the policy's name in printed results"""
    policy: Any
    """as it was given; for a `Fitted` rule, the `LinearRule` that was estimated"""
    estimates: dict[str, ValueEstimate]
    """by estimator: ips, snips, dr"""
    logged: Figure
    """the mean reward of the rounds: the value of the logged policy"""
    rounds: int
    """rounds from which the value is estimated, without the rows that were set aside"""
    units: int
    """number of clusters for the standard errors; 0: rounds are independent"""
    effective: float
    """effective sample size (Σρ)²/Σρ²"""
    largest_share: float
    """the largest weight, as a share of Σρ"""
    mean_weight: Figure
    """mean of the weights ρ; its expectation is 1 - `unsupported`"""
    unsupported: float
    """mean probability that the policy gives to actions whose logged probability is 0"""
    warnings: tuple[str, ...]
    """sentences on what makes the value doubtful; empty if nothing does"""
    level: float = 0.95
    """confidence level of the intervals that are printed and saved; 0.95 by default"""
    band: Band | None = None
    """the empirical-Bernstein confidence sequence of the value, where the bounds of the rewards were given"""

    @property
    def best(self) -> ValueEstimate:
        """The estimate to read first: dr."""
        return self.estimates["dr"]

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        plain = {
            "estimates": {name: found.to_plain(self.level) for name, found in self.estimates.items()},
            "logged": self.logged.to_plain(self.level),
            "rounds": self.rounds,
            "units": self.units,
            "effective": self.effective,
            "largest_share": self.largest_share,
            "mean_weight": self.mean_weight.to_plain(self.level),
            "unsupported": self.unsupported,
            "warnings": list(self.warnings),
        }
        plain["anytime"] = {name: list(found.interval(self.level, anytime=True)) for name, found in self.estimates.items()}
        if self.band is not None:
            plain["anytime_bounded"] = self.band.to_plain()
        if isinstance(self.policy, LinearRule):
            plain["theta"] = np.asarray(self.policy.theta).tolist()
        return plain

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.rounds:,} rounds, effective sample size {self.effective:,.0f}"]
        for name, found in self.estimates.items():
            (low, high), more = found.interval(self.level), found.difference
            below, above = more.interval(self.level)
            difference = f"difference from the logged policy {more.value:+.4f} [{below:+.4f}, {above:+.4f}]"
            lines.append(f"  {name:6s}{found.value:9.4f} [{low:.4f}, {high:.4f}]   {difference}")
        return "\n".join([*lines, *(f"  Note: {words}" for words in self.warnings)])


@dataclass(frozen=True, eq=False)
class Values(Mapping[str, Value]):
    """The values of several policies from the same rounds, by name."""

    found: dict[str, Value]
    """the value of each policy, by the policy's name"""
    faults: int
    """rows that were set aside"""
    spread: Spread = field(repr=False)
    """the scores of all values together"""
    places: dict[tuple[str, str], int] = field(repr=False)
    """which of them is of which policy and estimator"""
    first: int = 0
    """the first row of the log, from 0, that is used for the values: rows before it were used to estimate the rule"""

    def __getitem__(self, name: str) -> Value:
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def contrast(self, a: str, b: str, estimator: str = "dr") -> Figure:
        """The difference in value between policies a and b, from the same rounds, so that common noise cancels.

        Args:
            a: The name of a policy.
            b: The name of the policy to subtract.
            estimator: "ips", "snips" or "dr" (default).
        """
        checks.one_of("estimator", estimator, ESTIMATORS)
        for name in (a, b):
            checks.one_of("policy", name, self.found)
        one = np.eye(len(self.spread.covariance))
        value = self.found[a].estimates[estimator].value - self.found[b].estimates[estimator].value
        return self.spread.figure(value, one[self.places[a, estimator]] - one[self.places[b, estimator]])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of policies, each in the order in which they were given."""
        return list(combinations(self.found, 2))

    def to_plain(self) -> dict[str, Any]:
        """Everything as JSON can hold it: policies.<name>.estimates.<estimator>.value, .std_error, .interval, .difference (from the logged
        policy), ...; differences is a list of pairs of policies, with the same figures for the first less the second."""
        one = next(iter(self.found.values()))
        return {
            "format": "mebandit-value",
            "version": 1,
            "rounds": one.rounds,
            "units": one.units,
            "rows_set_aside": self.faults,
            "first_row": self.first + 1,
            "level": one.level,
            "logged": one.logged.to_plain(one.level),
            "policies": {name: found.to_plain() for name, found in self.found.items()},
            "differences": [
                {"policy": a, "minus": b, "estimates": {e: self.contrast(a, b, e).to_plain(one.level) for e in ESTIMATORS}}
                for a, b in self.pairs
            ],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), allow_nan=False, indent=2)

    def __str__(self) -> str:
        return "\n".join(map(str, self.found.values()))
