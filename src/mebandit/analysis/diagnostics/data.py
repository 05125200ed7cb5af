"""Diagnostics of the rows: outliers, drift, skewness, rounding, a missing intercept, rows set aside, number of clusters."""

from collections import Counter

import numpy as np

from mebandit.analysis.diagnostics.finding import Evidence, judged, percent
from mebandit.estimation.methods import PREFERRED
from mebandit.estimation.precision import digits_lost
from mebandit.logs.left_out import LeftOut
from mebandit.values import GREEN, RED, YELLOW, Finding


def outliers(evidence: Evidence) -> Finding:
    """How far the most extreme value of a feature or of the reward is from its mean, in standard deviations z, and its share z²/n of the
    variance. A code for a missing value, such as -999, shows here. Red: one round has more than a twentieth of the variance."""
    sums, ends = evidence.products.full[0].sum(axis=0), evidence.tally.ends
    n = max(sums[0, 0], 1.0)
    mean = sums[0, 1:] / n
    sd = np.sqrt(np.maximum(np.diag(sums)[1:] / n - mean**2, 0.0))
    moves = sd > 1e-7 * np.abs(mean)
    z = np.where(moves, np.maximum(ends[1] - mean, mean - ends[0]) / np.where(moves, sd, 1.0), 0.0)
    worst = int(z.argmax())
    value = ends[int(ends[1, worst] - mean[worst] > mean[worst] - ends[0, worst]), worst]
    share = z[worst] ** 2 / n
    verdict = RED if z[worst] > 10 and share > 0.05 else YELLOW if z[worst] > 30 else GREEN
    name = "the reward" if worst == len(evidence.features) else repr(evidence.features[worst])
    words = f"The most extreme value is {value:.4g} in {name}, {z[worst]:.1f} standard deviations from the mean."
    if verdict != GREEN:
        words += f" It alone makes up {percent(share)} of the variance. Check whether it is a measurement or a code for a missing value."
    return Finding("outliers", verdict, words, {"standard_deviations": z.tolist(), "least": ends[0].tolist(), "most": ends[1].tolist()})


def drift(evidence: Evidence) -> Finding:
    """The means of x̃ in twenty parts of the log, in standard deviations of x̃, compared with what sampling alone would do."""
    d = len(evidence.features)
    parts = evidence.tally.segments[evidence.tally.segments[:, 0] > 0]
    means = parts[:, 1 : 1 + d] / parts[:, :1]
    away = (means - evidence.calibration.mean) / evidence.calibration.scale
    noise = 4.0 / np.sqrt(parts[:, 0].min())
    strays = np.abs(away).max(axis=0)
    worst, beyond = int(strays.argmax()), [name for name, far in zip(evidence.features, strays, strict=True) if far >= max(0.3, noise)]
    verdict = YELLOW if beyond else GREEN
    words = f"The mean of {evidence.features[worst]!r} drifts most, by {strays[worst]:.2f} standard deviations from its overall mean."
    if len(beyond) > 1:
        words += f" By more than chance and 0.3: {', '.join(map(repr, beyond))}."
    if verdict != GREEN:
        words += " Regression calibration and a fixed best linear predictor are then biased; use an exponentially weighted mean (ew_blp)."
    return Finding("drift of x̃", verdict, words, {name: away[:, i].tolist() for i, name in enumerate(evidence.features)})


def skewness(evidence: Evidence) -> Finding:
    """The third standardised moment of x̃ by feature with error: regression calibration assumes that E[x | x̃] is linear, as for normal x."""
    n = max(evidence.products.rounds.sum(), 1.0)
    third, fourth = evidence.tally.powers / n
    s = evidence.calibration.scale
    exact = np.diag(evidence.error.mean_cov) == 0.0  # there x̂ is x̃, whatever its distribution
    skew, kurtosis = np.where(evidence.products.constant | exact, 0.0, [third / s / s / s, fourth / s / s / s / s])
    worst = int(np.abs(skew).argmax())
    verdict = GREEN if np.abs(skew).max() < max(0.5, 4 * np.sqrt(6 / n)) else YELLOW
    words = f"The most skewed feature is {evidence.features[worst]!r}, with skewness {skew[worst]:.2f}."
    if verdict != GREEN:
        words += " Prefer dr or meb to rc, which assumes that E[x | x̃] is linear."
    return Finding("skewness of x̃", verdict, words, {"skewness": skew.tolist(), "kurtosis": kurtosis.tolist()})


def precision(evidence: Evidence) -> Finding:
    """Rounding errors in features, or rewards, whose mean is large compared with their spread; see `digits_lost`."""
    lost = digits_lost(evidence.products)
    worst = int(lost.argmax())
    verdict = GREEN if lost[worst] < 1e-9 else YELLOW if lost[worst] < 1e-6 else RED
    words = f"Relative rounding error is below {max(lost[worst], 1e-16):.0e}."
    if verdict != GREEN:
        words += f" The mean of {evidence.features[worst]!r}, or of the reward, is large beside its spread: subtract a constant."
    return Finding("numerical precision", verdict, words, {"lost": lost.tolist()})


def zero_at_zero(evidence: Evidence) -> Finding:
    """Without an intercept the expected reward of every action is 0 at x = 0. If that holds, the weighted mean b_a of r - ⟨θ_a, x̃⟩ is 0 up
    to chance, with

        s.e.² = Σ w² (r - ⟨θ_a, x̃⟩)² / (Σ w)² + m'Cov(θ_a) m,    m the weighted mean of x̃:

    rather too large, as both parts move against each other. Red: beyond 5 of these and a tenth of the standard deviation of the reward."""
    method = next(method for method in PREFERRED if method in evidence.estimates)
    found, (unit, weighted, twice, _) = evidence.estimates[method], evidence.products.full
    k, d = found.theta.shape
    blocks = found.covariance.reshape(k, d, k, d)
    level, z = np.zeros(k), np.zeros(k)
    for a, θ in enumerate(found.theta):
        if np.isfinite(θ).all() and weighted[a, 0, 0] > 0:
            left, m = np.r_[0.0, -θ, 1.0], weighted[a, 0, 1:-1] / weighted[a, 0, 0]
            level[a] = left @ weighted[a, :, 0] / weighted[a, 0, 0]
            squares = max(left @ twice[a] @ left, 0.0) / evidence.products.n_actions  # Σ w² = Σ c (c u²), c = 1/K
            z[a] = abs(level[a]) / max(np.sqrt(squares / weighted[a, 0, 0] ** 2 + m @ blocks[a, :, a] @ m), 1e-300)
    total = unit.sum(axis=0)
    r = total[0, -1] / total[0, 0]
    sd = np.sqrt(max(total[-1, -1] / total[0, 0] - r * r, 1e-300))
    a = int(z.argmax())
    verdict = GREEN if z[a] < 5 else YELLOW if abs(level[a]) < 0.1 * sd else RED
    words = f"The mean residual of action {a} is {level[a]:.2g} (z-score {z[a]:.1f})."
    if verdict != GREEN:
        words += " The fitted line goes through 0 at x = 0: fit an intercept (`intercept=True`)."
    return Finding("no intercept", verdict, words, {"mean_residual": level.tolist(), "z": z.tolist()})


def set_aside(evidence: Evidence) -> Finding:
    """The share of rows that were set aside, and the columns that they broke a rule in. Yellow: 1 %; red: 10 %."""
    n, rows = len(evidence.faults), len(evidence.faults) + evidence.products.rounds.sum()
    columns = Counter(fault.column for fault in evidence.faults).most_common()
    verdict = GREEN if n < 0.01 * rows else YELLOW if n < 0.1 * rows else RED
    words = f"{percent(n / rows)} of the rows were set aside, for {', '.join(f'{name!r} ({count:,})' for name, count in columns[:5])}."
    if verdict != GREEN:
        words += " The remaining rows may not be representative."
    return Finding("rows set aside", verdict, words, {"share": [n / rows]})


def missing_outcomes(evidence: Evidence, left_out: LeftOut) -> Finding:
    """The share of outcomes that are missing, by action and over the time. Yellow: 5 %, or shares that differ between actions by more than
    three standard errors; red: 30 %."""
    weighted = evidence.coding.weighted
    missing, eligible = left_out.missing.sum(axis=1), left_out.eligible.sum(axis=1)
    share, overall = missing / np.maximum(eligible, 1.0), missing.sum() / max(eligible.sum(), 1.0)
    by_time = left_out.missing.sum(axis=0) / np.maximum(left_out.eligible.sum(axis=0), 1.0)
    away = np.abs(share - overall) > 3 * np.sqrt(overall * (1 - overall) / np.maximum(eligible, 1.0))
    verdict = RED if overall >= 0.3 else YELLOW if overall >= 0.05 or away.any() else GREEN
    words = f"{missing.sum():,.0f} of {eligible.sum():,.0f} outcomes are missing ({percent(overall)}): "
    words += ", ".join(f"{percent(own)} after action {evidence.action(a)}" for a, own in enumerate(share[:5])) + "."
    known = by_time[left_out.eligible.sum(axis=0) > 0]
    if known.size > 1:
        words += f" Over the time the share is {percent(known.min())} to {percent(known.max())}."
    words += " The rows without one are left out"
    words += ", and meb and dr weight the others by the inverse of their probability." if weighted else " (complete cases)."
    if verdict != GREEN:
        words += (
            " This is right if, given the action and the predictions, whether an outcome is missing does not depend on the outcome itself; "
            "otherwise all estimates are biased."
            if not weighted
            else " This is right if these probabilities are."
        )
    values = {"missing": missing.tolist(), "eligible": eligible.tolist(), "over_time": by_time.tolist()}
    return Finding("missing outcomes", verdict, words, values)


def clusters(evidence: Evidence) -> Finding:
    """Clustered standard errors are too small where there are few clusters."""
    verdict = judged(evidence.units, 40, 15)
    words = f"Standard errors are clustered by {evidence.units:,} units."
    if verdict != GREEN:
        words += " With so few, standard errors are too small and intervals too short."
    return Finding("number of units", verdict, words, {"units": [float(evidence.units)]})
