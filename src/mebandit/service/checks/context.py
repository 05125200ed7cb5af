"""Checks of the context and of what is assumed about its error; most are the verdicts of `fit` and of the policy."""

import json
import re
from collections import defaultdict
from math import sqrt

import numpy as np
from sqlalchemy import select

from mebandit.service.checks.look import Look, Result
from mebandit.service.store.database import in_utc
from mebandit.service.store.schema import decision, truth
from mebandit.values import GREEN, RED, YELLOW, Finding

TRUTHS = 500
"""truths that are compared with predictions, the last ones"""
LEAST_TRUTHS = 30
DEVIATION = 3.3, 4.9
"""standard errors from which the level is yellow, and red: two-sided probabilities of 1e-3 and 1e-6"""
APART = 0.1, 1 / 3
"""by how much a variance, or a bias in standard deviations of the error, must differ as well"""
DRIFT = 1.0
"""standard deviations of the predictions by which their mean may drift, before the level is red"""


def drift(look: Look) -> Result:
    """`fit`'s "drift of x̃" of the rounds that were learned: yellow as there, red beyond one standard deviation."""
    found = _of_fit(look, "drift of x̃")
    if found is None:
        return Result("drift", GREEN, None, DRIFT, "Too few rounds were learned to see a drift of the predictions.")
    far = max((abs(away) for each in found.values.values() for away in each), default=0.0)
    verdict = RED if far > DRIFT and found.verdict != GREEN else found.verdict
    remedy = "" if verdict == GREEN else "Ask whether a sensor, the app or the predictor was changed; compare with truths."
    return Result("drift", verdict, far, DRIFT, found.sentence, remedy)


def _of_fit(look: Look, name: str) -> Finding | None:
    """A diagnostic of `fit`."""
    findings = () if look.fitted is None else look.fitted.findings
    return next((each for each in findings if each.name == name), None)


def told_error(look: Look) -> Result:
    """Told Σe against cov(x̃): the policy's own verdict, from all rounds that it learned; else `fit`'s."""
    return _as_policy_says(look, "told error", "told error", "feasibility of the correction", "Hold Σe against truths.")


def effective_rounds(look: Look) -> Result:
    """The rounds behind each action's parameters: the policy's own verdict, from all rounds that it learned; else `fit`'s."""
    remedy = "Raise the floor in the next experiment; until then trust intervals more than estimates."
    return _as_policy_says(look, "effective rounds", "effective rounds", "effective sample size", remedy)


def _as_policy_says(look: Look, name: str, own: str, of_fit: str, remedy: str) -> Result:
    version, policy = look.live.version, look.live.experiment.policy
    if version.learned < 100 or version.learned < 2 * policy.warmup:
        return Result(name, GREEN, None, None, f"{version.learned:,} rounds were learned: too few to judge.")
    found = next((each for each in policy.diagnostics(version.state) if each.name == own), None) or _of_fit(look, of_fit)
    if found is None:
        return Result(name, GREEN, None, None, "The policy keeps no sums that could tell.")
    experiment = look.live.experiment
    said = re.sub(r"\bfeature (\d+)\b", lambda found: repr(experiment.features[int(found[1])]), found.sentence)
    said = re.sub(r"\baction (\d+)\b", lambda found: repr(experiment.actions[int(found[1])]), said)
    numbers = [number for each in found.values.values() for number in each]
    return Result(name, found.verdict, min(numbers, default=None), None, said, "" if found.verdict == GREEN else remedy)


def errors(look: Look) -> list[Result]:
    """Later truths against predictions, by feature: with e = x̃ - x and the told variance σ², the means of e²/σ², which is 1, and of e/σ,
    which is 0, if the error model is right. Red: by more than a third and 4.9 standard errors."""
    asked = (
        select(truth.c.feature, truth.c.value, decision.c.predicted, decision.c.error_cov, decision.c.unit)
        .join(decision, (decision.c.experiment == truth.c.experiment) & (decision.c.name == truth.c.decision))
        .where(truth.c.experiment == look.x, decision.c.predicted.is_not(None), truth.c.received_at <= in_utc(look.now))
        .order_by(truth.c.id.desc())
        .limit(TRUTHS)
    )
    told: dict[str, list[float]] = defaultdict(list)
    units: dict[str, set[str]] = defaultdict(set)
    features = look.live.experiment.features
    for feature, value, predicted, error_cov, unit in look.connection.execute(asked):
        i = features.index(feature)
        variance = json.loads(error_cov)[i][i]
        if variance > 0:
            told[feature].append((json.loads(predicted)[i] - value) / sqrt(variance))
            units[feature].update([unit] if unit else [])
    if not told:
        return [Result("error", GREEN, None, None, "No true values were told, so the error model was not checked.")]
    return [error_of(feature, np.array(each), frozenset(units[feature])) for feature, each in sorted(told.items())]


def error_of(feature: str, e: "np.ndarray[tuple[int], np.dtype[np.float64]]", units: frozenset[str]) -> Result:
    """The verdict on one feature.

    Args:
        feature: its name.
        e: (x̃ - x)/σ, (n,).
        units: whose predictions these are.
    """
    n, ratio, bias = len(e), float(np.mean(e * e)), float(np.mean(e))
    z_ratio = abs(ratio - 1) / max(float(np.std(e * e)) / max(ratio, 1e-12) / sqrt(n), 1e-12)  # as it varies if the ratio is 1
    z_bias = abs(bias) / max(float(np.std(e)) / sqrt(n), 1e-12)
    verdict = GREEN
    for mark, z, far in ((YELLOW, DEVIATION[0], APART[0]), (RED, DEVIATION[1], APART[1])):
        if (z_ratio >= z and abs(ratio - 1) > far) or (z_bias >= z and abs(bias) > far):
            verdict = mark
    if n < LEAST_TRUTHS:
        verdict = GREEN
    said = f"The squared error of {feature} is {ratio:.2f} times what was told, by {n:,} truths; predictions are {bias:+.2f} s.d. off."
    remedy = "" if verdict == GREEN else "Fit the error model anew with these truths (mebandit error-model), for the next experiment."
    values = {"ratio": [ratio], "bias": [bias], "n": [float(n)]}
    limit = 1 + APART[1]
    return Result(f"error of {feature}", verdict, ratio, limit, said, remedy, units if verdict != GREEN else frozenset(), values=values)
