"""The value of a target policy by three estimators, from sums over the rounds of a log.

With ρ = π_e(a | x̃)/π(a) the ratio of the target policy's probability to the logged one, z = (1, x̃), and β_a least squares of r on z in
action a:

    ips     inverse propensity score        V = mean of ρ r
    snips   self-normalised ips             V = Σ ρ r / Σ ρ
    dr      doubly robust                   V = mean of y,  y = Σ_a π_e(a | x̃) z'β_a + ρ (r - z'β_a)

The regression in dr must predict E[r | x̃, a], so it is the regression on x̃. ⟨θ_a, x̃⟩ is another thing: θ is about x, and E[x | x̃] is not
x̃. Whatever β_a is, dr is right, because the propensities are known; a good β_a makes its variance smaller.

All are means of ψ_t whose expectation given the past is the value, so that Σ (ψ_t - V)²/n² estimates their variance also where earlier
rounds decided later ones. With clusters, ψ is first summed within each. In small samples ψ is too small; `value_scores` corrects that.
"""

from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.analysis.diagnostics.finding import percent
from mebandit.analysis.linear_rule import LinearRule
from mebandit.analysis.value_result import ESTIMATORS, Figure, Spread, Value, ValueEstimate, Values
from mebandit.analysis.value_scores import Means, places
from mebandit.logs.reading import ByUnit
from mebandit.values import Floats

FEW, HEAVY = 100.0, 0.1
"""poor overlap: a smaller effective sample size, or a larger share of one round in the total weight; conventions"""


class Sums(NamedTuple):
    """What the second time through a log gives."""

    totals: Floats
    """Σ g over all rounds, g = (1, r, and for every policy ρ, ρ r, y)"""
    squares: Floats
    """Σ ρ², by policy"""
    effect: Floats
    """E = Σ (π_e(b | x̃) - 1{a = b} ρ) z, (policies, K, d + 1)"""
    by_unit: ByUnit
    """Σ g by unit, beside what `clusters_left_out` needs, (units, ...); no units: nothing"""
    largest: Floats
    """the largest ρ, by policy"""
    unsupported: Floats
    """Σ of the probability given to actions that the logged policy never takes there, by policy"""


def merged(first: Sums, second: Sums) -> Sums:
    return Sums(
        first.totals + second.totals,
        first.squares + second.squares,
        first.effect + second.effect,
        first.by_unit.merge(second.by_unit),
        np.maximum(first.largest, second.largest),
        first.unsupported + second.unsupported,
    )


def means_of(sums: Sums, targets: dict[str, Any], center: float) -> Means:
    """The estimates, from the sums.

    Args:
        sums: Those of the log.
        targets: The policies by name.
        center: What was taken off the rewards.
    """
    n = float(sums.totals[0])
    if n < 2:
        checks.refuse("the log", "have at least two rounds to estimate values from", f"{n:g}")
    weights = sums.totals[2::3]
    for name, weight in zip(targets, weights, strict=True):
        if not weight > 0:
            checks.refuse(f"policy {name!r}", "share actions with the log", "one that takes none of the logged actions")
    ρr, y = sums.totals[3::3], sums.totals[4::3]
    values = np.column_stack([(ρr + center * weights) / n, ρr / weights, y / n])
    return Means(n, float(sums.totals[1]) / n, weights, values, sums.effect)


def assembled(
    means: Means, spread: Spread, sums: Sums, targets: dict[str, Any], *, center: float, faults: int, first: int, level: float, units: int
) -> Values:
    """Values and their standard errors.

    Args:
        means: The estimates.
        spread: Their scores.
        sums: What the weights are like.
        targets: The policies by name.
        center: What was taken off the rewards.
        faults: Rows that were set aside.
        first: The first row that was used.
        level: Of the intervals.
        units: The number of clusters; 0: rounds are independent.
    """
    one = np.eye(len(spread.covariance))
    logged = spread.figure(center + means.reward, one[0])
    found: dict[str, Value] = {}
    columns: dict[tuple[str, str], int] = {}
    for i, (name, policy) in enumerate(targets.items()):
        estimates = {}
        for estimator, V in zip(ESTIMATORS, means.values[i] + [0.0, center, center], strict=True):
            columns[name, estimator] = at = places(i)[estimator]
            own, difference = spread.figure(float(V), one[at]), spread.figure(float(V) - logged.value, one[at] - one[0])
            estimates[estimator] = ValueEstimate(own.value, own.std_error, own.df, own.size, difference)
        weight = spread.figure(means.weight[i] / means.n, one[places(i)["weight"]])
        found[name] = _value(i, name, policy, estimates, weight, logged, sums, units, level)
    return Values(found, faults, spread, columns, first)


def _value(
    i: int,
    name: str,
    policy: Any,
    estimates: dict[str, ValueEstimate],
    weight: Figure,
    logged: Figure,
    sums: Sums,
    units: int,
    level: float,
) -> Value:
    """The value of policy i with what is to be said about it."""
    n, total = int(sums.totals[0]), float(sums.totals[2 + 3 * i])
    effective, share = total**2 / float(sums.squares[i]), float(sums.largest[i]) / total
    unsupported = float(sums.unsupported[i]) / n
    return Value(
        name=name,
        policy=policy,
        estimates=estimates,
        logged=logged,
        rounds=n,
        units=units,
        effective=effective,
        largest_share=share,
        mean_weight=weight,
        unsupported=unsupported,
        warnings=_notes(effective, share, weight, unsupported) + _reuse(policy, n),
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
