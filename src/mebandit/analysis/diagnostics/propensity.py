"""Diagnostics of the propensities: are they the probabilities that the actions were drawn with, and are any too small?"""

import numpy as np

from mebandit import kernels
from mebandit.analysis.diagnostics.finding import ROUNDING, Evidence, gravity, judged, percent
from mebandit.analysis.diagnostics.tally import LEVELS
from mebandit.values import GREEN, RED, YELLOW, Finding, Floats


def effective_size(evidence: Evidence) -> Finding:
    """(Σw)²/Σw² and the largest w/Σw by action, w = π^nd/π."""
    weight = evidence.products.products[1, :, 0]
    effective = weight**2 / np.maximum(evidence.products.squares[0], 1e-300)
    share = 1.0 / evidence.products.n_actions / evidence.tally.least / np.maximum(weight, 1e-300)
    rounds = evidence.products.rounds
    worst = int(np.argmax(effective <= effective.min() * (1 + ROUNDING)))  # of several the first
    verdict = max(judged(effective[worst], 100, 30), judged(1 / share.max(), 20, 5), key=gravity)
    words = (
        f"Action {evidence.action(worst)} has {rounds[worst]:,.0f} rounds that carry the information of {effective[worst]:,.0f} equally "
        "weighted ones; "
        f"the round with the largest weight has {percent(share.max())} of its action's weight."
    )
    values = {"rounds": rounds.tolist(), "effective": effective.tolist(), "largest_share": share.tolist()}
    return Finding("effective sample size", verdict, words, values)


def propensities(evidence: Evidence) -> Finding:
    """The smallest propensity, the distribution of the propensities, and how many are below the exploration floor."""
    tally = evidence.tally
    least, below = float(tally.least.min()), float(tally.below[0])
    verdict = RED if below else judged(least, 0.02, 0.001)
    words = f"The smallest propensity of an action taken is {least:.3g}."
    if below:
        words += f" {below:,.0f} rounds are below the floor {evidence.floor:g}: log the probabilities with which the actions were drawn."
    elif verdict != GREEN:
        words += " The weight of a round is the inverse of its propensity: a few rounds may dominate the estimates."
    values = {"least": tally.least.tolist(), "below_floor": [below], "histogram": tally.propensity.sum(axis=0).tolist()}
    return Finding("propensities", verdict, words, values)


def frequencies(evidence: Evidence) -> Finding:
    """Are the logged probabilities those the actions were drawn with? If so, Σ (u - 1) and Σ (u - 1) (x̃ - mean) are zero but for chance,
    u = 1{a_t = a}/π_t(a), with the variance Σ (1/π - 1) (...)²; and in each tenth of π(a) the action comes with that frequency."""
    k, d = evidence.products.n_actions, len(evidence.features)
    center = np.eye(d + 2)
    center[1:-1, 0] = -evidence.calibration.mean
    _, once, twice, offered = k * evidence.products.mapped(center).full[:, :, :-1, :-1]  # without π^nd = 1/K
    spread = evidence.tally.chance
    if not spread.any():  # only that of the action taken is known: the variance comes from the rounds with it, and needs some
        spread = np.where(evidence.products.rounds[:, None] >= 30, np.diagonal(twice - once, axis1=1, axis2=2), np.inf)
    moving = np.append(True, ~evidence.products.constant)  # of what is constant, nothing but rounding is left
    z = np.where(moving, _z(once[:, 0] - offered[:, 0], spread), 0.0)
    count, taken, expected, variance = np.moveaxis(evidence.tally.forecast, -1, 0)
    levels = np.where(variance > 5, _z(taken - expected, variance), 0.0)
    both = np.hstack([z, levels])
    by_action = np.abs(both).max(axis=1)
    largest = float(by_action.max())
    a = int(np.flatnonzero(by_action >= (1 - 1e-9) * largest)[-1])  # of two actions that miss each other's rounds, the second
    limit = kernels.normal_quantile(1 - 0.0005 / both.size)
    verdict = GREEN if largest < limit else YELLOW if largest < limit + 1.5 else RED
    words = f"The frequencies of the actions agree with their logged probabilities, for all predictions (largest z-score {largest:.1f})."
    if verdict != GREEN:
        words = (
            f"The frequency of action {evidence.action(a)} does not agree with its logged probabilities (z-score {largest:.1f}). "
            f"{_better_reading(evidence, limit)}"
        )
        if k > 2 and not evidence.tally.chance.any():
            words += " If the action was not always allowed, log one propensity for each action, 0 where it was not allowed."
    shown = {"stated": expected[-1], "observed": taken[-1]}
    values = {name: np.divide(sums, count[-1], out=np.full(LEVELS, np.nan), where=count[-1] > 0).tolist() for name, sums in shown.items()}
    return Finding("probability and frequency", verdict, words, values | {"z": z.ravel().tolist(), "rounds": count[-1].tolist()})


def _better_reading(evidence: Evidence, limit: float) -> str:
    """What to do where frequencies do not agree: of two actions, which other reading of the column does agree, if one does."""
    count, expected, variance = np.moveaxis(evidence.tally.readings(evidence.coding.probability_of), -1, 0)
    z = (np.abs(count - expected) / np.sqrt(np.maximum(variance, 1.0))).max(axis=1)
    own = 2 if evidence.coding.probability_of is None else evidence.coding.probability_of
    others = [i for i in range(3) if z[i] < limit <= z[own]]
    if not expected.any() or not others:
        read = "the action taken, not of action 1" if own == 2 else f"action {evidence.action(own)}"
        return f"Check that this column is the probability of {read}."
    best = min(others, key=lambda i: z[i])
    if best == 2:
        return f"The column fits much better as the probability of the action taken (z-score {z[2]:.1f}): leave `probability_of` out."
    label = evidence.coding.actions[best] if evidence.coding.actions else best
    return (
        f"The column fits much better as the probability of action {evidence.action(best)}, whichever was taken (z-score {z[best]:.1f}): "
        f"set `probability_of={label!r}`."
    )


def _z(difference: Floats, variance: Floats) -> Floats:
    """In standard deviations; zero where nothing can vary and nothing differs."""
    sd = np.sqrt(np.maximum(variance, 1e-12))
    return np.where((variance <= 1e-12) & (np.abs(difference) < 1e-6), 0.0, difference / sd)


def availability(evidence: Evidence) -> Finding:
    """Where an action was not always allowed: how far the mean of x̃ in the rounds that offered it is from that in all, in standard
    deviations. If that depends on x̃, the errors in those rounds no longer have mean zero, and no weighting undoes it."""
    full, n = evidence.products.full, evidence.products.rounds.sum()
    everywhere = full[0].sum(axis=0)[0, 1:-1] / n
    weight = np.maximum(full[3, :, 0, 0], 1e-300)
    away = (full[3, :, 0, 1:-1] / weight[:, None] - everywhere) / evidence.calibration.scale
    share = weight * evidence.products.n_actions / n
    noise = 4.0 * np.sqrt((1 - np.minimum(share, 1.0)) / np.maximum(share * n, 1.0))
    beyond = np.abs(away).max(axis=1) - np.maximum(noise, 0.05)
    a = int(beyond.argmax())
    i = int(np.abs(away[a]).argmax())
    verdict = GREEN if beyond[a] <= 0 else RED
    words = "Which actions were allowed hardly depends on the prediction."
    if verdict == RED:
        side = "high" if away[a, i] > 0 else "low"
        words = (
            f"Action {evidence.action(a)} was allowed mostly where {evidence.features[i]!r} was {side}. If x̃ determined that, the errors "
            "of those rounds do not have mean zero, and meb and dr are biased for this action; prefer rc."
        )
    return Finding("availability of actions", verdict, words, {"share_allowed": share.tolist(), "mean_shift": away.ravel().tolist()})


def clusters(evidence: Evidence) -> Finding:
    """Standard errors from G units are too small where G is."""
    verdict = judged(evidence.units, 40, 15)
    words = f"Standard errors are clustered by {evidence.units:,} units."
    if verdict != GREEN:
        words += " With so few they are too small, and intervals too short."
    return Finding("number of units", verdict, words, {"units": [float(evidence.units)]})
