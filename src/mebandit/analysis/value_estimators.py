"""The value of a target policy by three estimators, from sums over the rounds of a log.

With ρ = π_e(a | x̃)/π(a) the ratio of the target policy's probability to the logged one, z = (1, x̃), and β_a least squares of r on z in
action a:

    ips     inverse propensity score        V = mean of ρ r
    snips   self-normalised ips             V = Σ ρ r / Σ ρ
    dr      doubly robust                   V = mean of y,  y = Σ_a π_e(a | x̃) z'β_a + ρ (r - z'β_a)

The regression in dr must predict E[r | x̃, a], so it is the regression on x̃. ⟨θ_a, x̃⟩ is another thing: θ is about x, and E[x | x̃] is not
x̃. Whatever β_a is, dr is right, because the propensities are known; a good β_a makes its variance smaller.

All are means of ψ_t whose expectation given the past is the value, so that Σ (ψ_t - V)²/n² estimates their variance also where earlier
rounds decided later ones. With clusters, ψ is first summed within each.
"""

from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.analysis.diagnostics.finding import percent
from mebandit.analysis.linear_rule import LinearRule
from mebandit.analysis.value_result import Figure, Value, ValueEstimate, Values, spread
from mebandit.logs.reading import ByUnit
from mebandit.values import Floats

FEW, HEAVY = 100.0, 0.1
"""poor overlap: a smaller effective sample size, or a larger share of one round in the total weight; conventions"""


class Sums(NamedTuple):
    """What the last time through a log gives; g = (1, r, and for every policy ρ, ρ r, y)."""

    moments: Floats
    """Σ gg'"""
    by_unit: ByUnit
    """Σ g by unit, (units, size)"""
    largest: Floats
    """the largest ρ, by policy"""
    unsupported: Floats
    """Σ of the probability given to actions that the logged policy never takes there, by policy"""


def merged(first: Sums, second: Sums) -> Sums:
    return Sums(
        first.moments + second.moments,
        first.by_unit.merge(second.by_unit),
        np.maximum(first.largest, second.largest),
        first.unsupported + second.unsupported,
    )


def _influences(i: int, sums: Floats, center: float) -> dict[str, tuple[float, Floats]]:
    """V and c for each estimator of policy i, with ψ - V = c'g; see the head of this file; r = center + g_1."""
    n, (ρ, ρr, y) = sums[0], (2 + 3 * i, 3 + 3 * i, 4 + 3 * i)
    unit = np.eye(sums.size)
    mean, ratio, robust = (sums[ρr] + center * sums[ρ]) / n, sums[ρr] / sums[ρ], sums[y] / n
    return {
        "ips": (float(mean), unit[ρr] + center * unit[ρ] - mean * unit[0]),
        "snips": (float(center + ratio), (unit[ρr] - ratio * unit[ρ]) * n / sums[ρ]),
        "dr": (float(center + robust), unit[y] - robust * unit[0]),
    }


class Totals(NamedTuple):
    """The sums in full."""

    full: Floats
    """Σ gg' over rounds"""
    meat: Floats
    """Σ gg' over rounds, or over units of their sums"""
    center: float
    """what was taken off r"""

    @property
    def n(self) -> int:
        return int(self.full[0, 0])

    def mean(self, i: int) -> Figure:
        """The mean of g_i."""
        at = float(self.full[0, i]) / self.n
        return Figure(at, spread(np.eye(len(self.full))[i] - at * np.eye(len(self.full))[0], self.meat, self.n))


def assembled(sums: Sums, targets: dict[str, Any], center: float, faults: int, first: int, level: float, clustered: bool) -> Values:
    """Values and their standard errors from the sums."""
    full = sums.moments
    if full[0, 0] < 2:
        checks.refuse("the log", "have at least two rounds to estimate values from", f"{full[0, 0]:g}")
    units = int((sums.by_unit.totals[:, 0] > 0).sum()) if clustered else 0
    if clustered and units < 2:
        checks.refuse("unit", "name at least two units", f"{units}", "One cluster says nothing about the spread between clusters.")
    totals = Totals(full, sums.by_unit.totals.T @ sums.by_unit.totals if clustered else full, center)
    found: dict[str, Value] = {}
    influences: dict[tuple[str, str], Floats] = {}
    for i, (name, policy) in enumerate(targets.items()):
        if not full[0, 2 + 3 * i] > 0:
            checks.refuse(f"policy {name!r}", "share actions with the log", "one that takes none of the logged actions")
        estimates, cs = _estimates(i, totals)
        influences |= {(name, estimator): c for estimator, c in cs.items()}
        found[name] = _value(i, name, policy, estimates, totals, sums, units, level)
    return Values(found, faults, totals.meat, influences, first)


def _estimates(i: int, totals: Totals) -> tuple[dict[str, ValueEstimate], dict[str, Floats]]:
    """The estimates of policy i, each with its difference to the logged policy, and their influences."""
    unit, n = np.eye(len(totals.full)), totals.n
    logged = totals.center + totals.mean(1).value
    own = unit[1] - totals.mean(1).value * unit[0]
    estimates, cs = {}, {}
    for estimator, (V, c) in _influences(i, totals.full[0], totals.center).items():
        difference = Figure(V - logged, spread(c - own, totals.meat, n))
        estimates[estimator], cs[estimator] = ValueEstimate(V, spread(c, totals.meat, n), difference), c
    return estimates, cs


def _value(
    i: int, name: str, policy: Any, estimates: dict[str, ValueEstimate], totals: Totals, sums: Sums, units: int, level: float
) -> Value:
    """The value of policy i with what is to be said about it."""
    r, ρ = totals.mean(1), 2 + 3 * i
    weight, total = totals.mean(ρ), float(totals.full[0, ρ])
    effective, share = total**2 / float(totals.full[ρ, ρ]), float(sums.largest[i]) / total
    unsupported = float(sums.unsupported[i]) / totals.n
    return Value(
        name=name,
        policy=policy,
        estimates=estimates,
        logged=Figure(totals.center + r.value, r.std_error),
        rounds=totals.n,
        units=units,
        effective=effective,
        largest_share=share,
        mean_weight=weight,
        unsupported=unsupported,
        warnings=_notes(effective, share, weight, unsupported) + _reuse(policy, totals.n),
        level=level,
    )


def _reuse(policy: Any, rounds: int) -> tuple[str, ...]:
    """A sentence on a θ that was, as it seems, fitted to the rounds from which its value is estimated."""
    if not (isinstance(policy, LinearRule) and policy.fitted_to == rounds):
        return ()
    remedy = "Estimate it from the first half of the log and its value from the second."
    words = f"θ was fitted to {rounds:,} rounds, as many as its value is estimated from. If they are the same, the value is biased upwards."
    return (f"{words} {remedy}",)


def _notes(effective: float, share: float, weight: Figure, unsupported: float) -> tuple[str, ...]:
    """Sentences on what makes a value doubtful."""
    notes = []
    if unsupported > 0:
        notes.append(
            f"The policy gives {percent(unsupported)} of its probability to actions whose logged probability is 0: "
            "their rewards are not in the log."
        )
    if effective < FEW or share > HEAVY:
        notes.append(
            f"The overlap is poor: the effective sample size is {effective:,.0f}, and one round has {percent(share)} of "
            "the total weight. The intervals may be too short."
        )
    off = abs(weight.value + unsupported - 1.0)
    if off > 4.0 * weight.std_error + 1e-9:
        notes.append(
            f"The mean weight is {weight.value:.3f} ± {weight.std_error:.3f}, and should be {1.0 - unsupported:.3f}: the logged "
            "propensities are not the probabilities with which the actions were drawn, or the policy takes actions that could not be drawn."
        )
    return tuple(notes)
