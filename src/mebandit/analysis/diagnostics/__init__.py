"""What may be wrong with a log, or with what is believed of its errors: numbers, a verdict, and a sentence for each.

Green: nothing to see. Yellow: know it when you read the estimates. Red: the estimates should not be trusted before this is settled.
The limits between them are conventions, written out beside each check.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mebandit import kernels
from mebandit.estimation.best_linear import Calibration
from mebandit.estimation.correction import Correction
from mebandit.estimation.estimators import PREFERRED, Estimate, Solution, digits_lost
from mebandit.estimation.moments import Crossproducts, Rounds, pack, unpack
from mebandit.kernels import layout
from mebandit.logs.formats import Fault
from mebandit.logs.source import Block, ends_of
from mebandit.measurement import ErrorModel
from mebandit.measurement.words import cost_of_doubt
from mebandit.values import Floats

GREEN, YELLOW, RED = "green", "yellow", "red"

BINS, LEVELS, SEGMENTS = 20, 10, 20
ROUNDING = 1e-9
"""of a number that is held against a limit"""


class Finding(NamedTuple):
    """One diagnostic."""

    name: str
    verdict: str
    sentence: str
    values: dict[str, list[float]]
    """the numbers behind it, by name"""


class Tally(NamedTuple):
    """What is counted while the log is read; merged by adding up, but `least` and `ends`, the furthest."""

    propensity: Floats
    """rounds by action and propensity of the action taken, (K, 20)"""
    least: Floats
    """the smallest propensity with which each action was taken, (K,)"""
    below: Floats
    """rounds whose propensity is below the floor, (1,)"""
    forecast: Floats
    """by action and level of its propensity: rounds, rounds with that action, Σ π, Σ π (1 - π), (K, 10, 4); of two only the second"""
    chance: Floats
    """by action, where all π are known: Σ w zz', w = 1/π_t(a) - 1, z = (1, x̃), packed, (K, ...)"""
    segments: Floats
    """by twentieth of the log: Σ zz' and, where it varies, Σ Σe, packed, (20, ...)"""
    powers: Floats
    """Σ y³ and Σ y⁴, y = x̃ - its mean, (2, d)"""
    close: Floats
    """rounds with a choice; those where the two best actions differ by less than 1 and 1.96 s.d. of the error in that direction, (3,)"""
    reported: Floats
    """with v the reported variance: Σ v, Σ v², Σ y², Σ v y², Σ v³, Σ v⁴, (d, 6)"""
    ends: Floats
    """the smallest and the largest value of every feature and of the reward, (2, d + 1)"""

    def mapped(self, matrix: Floats) -> "Tally":
        """Of z -> matrix z, for a matrix that leaves 1 as it is, but for powers, ends and what depends on the error."""
        zz = self.chance.shape[1]
        chance, segments = (pack(matrix @ unpack(sums, len(matrix)) @ matrix.T) for sums in (self.chance, self.segments[:, :zz]))
        return self._replace(chance=chance, segments=np.hstack([segments, self.segments[:, zz:]]))

    def merge(self, other: "Tally") -> "Tally":
        added = [a + b for a, b in zip(self, other, strict=True)]
        ends = np.stack([np.minimum(self.ends[0], other.ends[0]), np.maximum(self.ends[1], other.ends[1])])
        return Tally(*added)._replace(least=np.minimum(self.least, other.least), ends=ends)


def empty_tally(n_actions: int, d: int) -> Tally:
    size = (d + 1) * (d + 2) // 2
    return Tally(
        propensity=np.zeros((n_actions, BINS)),
        least=np.ones(n_actions),
        below=np.zeros(1),
        forecast=np.zeros((n_actions, LEVELS, 4)),
        chance=np.zeros((n_actions, size)),
        segments=np.zeros((SEGMENTS, size + d * (d + 1) // 2)),
        powers=np.zeros((2, d)),
        close=np.zeros(3),
        reported=np.zeros((d, 6)),
        ends=np.outer([np.inf, -np.inf], np.ones(d + 1)),
    )


def tally_of(block: Block, rounds: Rounds, n_actions: int, rows: int, mean: Floats, floor: float | None, *, varying: bool) -> Tally:
    """What a block of a log of so many rows adds, but for `close`; `rounds` are those of the block with unbiased predictions."""
    tally = empty_tally(n_actions, len(rounds.predicted))
    tally.ends[:] = block.ends
    if rounds.predicted is not block.rounds.predicted:
        tally.ends[:, :-1] = np.stack([ends_of(x) for x in rounds.predicted], axis=1)
    kernels.count_probabilities(tally, rounds.actions, rounds.propensities, block.forecast, floor or 0.0)
    for part, begin, end in parts_of(block, rows):
        kernels.add_chance(tally.chance, begin, end, rounds, block.forecast)
        kernels.add_predictions(tally, part, begin, end, varying, mean, rounds)
    return tally


def parts_of(block: Block, rows: int) -> Iterator[tuple[int, int, int]]:
    """The twentieths of a log of so many rows that a block touches, and the first and the end of its rounds in each; one at least."""
    n, begin = block.rounds.rewards.size, 0
    for part in range(SEGMENTS):
        end = min(-(-rows * (part + 1) // SEGMENTS) - block.start, n) if part + 1 < SEGMENTS else n
        if begin < end or (begin == n == 0 and part + 1 == SEGMENTS):
            yield part, begin, end
            begin = end


class Evidence(NamedTuple):
    """What the diagnostics read."""

    features: tuple[str, ...]
    products: Crossproducts
    solution: Solution
    estimates: dict[str, Estimate]
    tally: Tally
    error: Correction
    """what was taken out, with the mean Σe"""
    floor: float | None
    units: int
    """clusters behind the standard errors; 0: rounds stand alone"""
    faults: Sequence[Fault] = ()
    """rows that were set aside"""
    berkson: str = ""
    """the warning, where Σe is subtracted though pairs of prediction and truth say that the error is Berkson"""
    pairs: ErrorModel | None = None
    """what pairs say, where Σe is subtracted from predictions as they are"""

    @property
    def calibration(self) -> Calibration:
        return self.solution.calibration


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """All diagnostics of a log, the gravest first."""
    found = [
        signal(evidence),
        reliability(evidence),
        effective_size(evidence),
        propensities(evidence),
        frequencies(evidence),
        minimum_signal(evidence),
        small_error(evidence),
        far_out(evidence),
        drift(evidence),
        skewness(evidence),
        precision(evidence),
    ]
    if evidence.berkson:
        found.insert(0, Finding("kind of error", RED, evidence.berkson[0].upper() + evidence.berkson[1:], {}))
    elif evidence.pairs is not None:
        found.insert(0, against_pairs(evidence, evidence.pairs))
    if not evidence.solution.options.intercept and not evidence.products.constant.any():
        found.append(zero_at_zero(evidence))
    if evidence.faults:
        found.append(set_aside(evidence))
    if evidence.units:
        found.append(clusters(evidence))
    if (evidence.products.products[3, :, 0] * evidence.products.n_actions < evidence.products.rounds.sum() - 0.5).any():
        found.append(availability(evidence))
    if evidence.error.varying:
        found.append(reported_variances(evidence))
    return tuple(sorted(found, key=lambda finding: (RED, YELLOW, GREEN).index(finding.verdict)))


def _judged(value: float, yellow: float, red: float) -> str:
    """Small is bad: red below `red`, yellow below `yellow`, by more than rounding."""
    value *= 1 + ROUNDING
    return RED if not value >= red else YELLOW if value < yellow else GREEN


def _smallest_root(G: Floats, E: Floats) -> float:
    """The smallest λ with det(G - λ E) = 0, for positive definite G; infinite without error."""
    size = np.sqrt(np.where(np.diag(G) > 0, np.diag(G), 1.0))
    values, vectors = np.linalg.eigh(G / size / size[:, None])
    root = vectors / np.sqrt(np.maximum(values, 1e-15))
    largest = float(np.linalg.eigvalsh(root.T @ (E / size / size[:, None]) @ root)[-1])
    return 1.0 / largest if largest > 0 else float("inf")


def signal(evidence: Evidence) -> Finding:
    """How many times Σe the data could bear, by action: the smallest root of det(G - λ E) = 0. Below 1, x̃ varies less in some direction
    than its error is said to. And Fuller's λ, the smallest root of det(G - cc'/s - λ E) = 0, which takes the reward into account: it
    tends to 1 or more if Σe is right, and falls clearly below if Σe is too large for what x̃ explains of r."""
    roots, fuller, eigenvalues, slack = [], [], [], []
    for table, squares in zip(evidence.products.full[1], evidence.products.squares[0], strict=True):
        weight = max(table[0, 0], 1e-300)
        G, c, s = table[1:-1, 1:-1] / weight, table[1:-1, -1] / weight, table[-1, -1] / weight
        if evidence.solution.options.intercept:  # what counts is then the spread around the mean
            mean, r = table[0, 1:-1] / weight, table[0, -1] / weight
            G, c, s = G - np.outer(mean, mean), c - mean * r, s - r * r
        roots.append(_smallest_root(G, evidence.error.mean_cov))
        fuller.append(_smallest_root(G - (np.outer(c, c) / s if s > 0 else 0.0), evidence.error.mean_cov))
        eigenvalues.append(float(np.linalg.eigvalsh(G - evidence.error.mean_cov)[0]))
        slack.append(4.0 * np.sqrt(2.0 * squares) / weight)
    guarded = {method for method, fit in evidence.solution.fits.items() if (fit.report == layout.GUARDED).any()}
    least = min(roots)
    verdict = _judged(least, 1.5, 1.05)
    words = f"The data could bear {least:.3g} times the error covariance."
    if any(root < 1.0 - margin for root, margin in zip(fuller, slack, strict=True)):
        verdict = RED
        words += f" Fuller's λ is {min(fuller):.2f}, below 1: Σe is too large for these data. Is it right, and is the error classical?"
    elif verdict != GREEN:
        words += " In some direction x̃ is hardly more than error: the correction is large there, and so is its uncertainty."
    if guarded:
        words += f" The guard decided in {', '.join(sorted(guarded))}."
    values = {"could_bear": roots, "fuller_lambda": fuller, "smallest_eigenvalue": eigenvalues}
    return Finding("signal beyond the error", verdict, words, values)


def reliability(evidence: Evidence) -> Finding:
    """Sx (Sx + Σe)^-1: the share of what is seen that is context. Its diagonal by feature, and its smallest eigenvalue."""
    d = len(evidence.features)
    matrix = np.eye(d) - evidence.calibration.gain(evidence.error.mean_cov)
    S = evidence.calibration.context_cov * np.outer(evidence.calibration.scale, evidence.calibration.scale)
    context, error = np.diag(S), np.diag(evidence.error.mean_cov)
    own = np.divide(context, context + error, out=np.ones(d), where=error > 0)
    least = int(own.argmin())
    verdict = _judged(float(own[least]), 0.5, 0.2)
    words = (
        f"The least reliable feature is {evidence.features[least]!r}: {100 * own[least]:.0f} % of its variance is context, the rest error."
    )
    if verdict != GREEN:
        words += " Decide on its best linear predictor, and expect wide intervals."
        words += " (Is it a variance, and not a standard deviation?)" if evidence.error.model is None else ""
    told = np.full(d, np.nan) if evidence.error.model is None else evidence.error.model.reliability
    apart = np.nan_to_num(np.abs(told - own))
    if apart.max() > 0.2:
        i, verdict = int(apart.argmax()), max(verdict, YELLOW, key=_gravity)
        words += (
            f" {evidence.features[i]!r} was {100 * told[i]:.0f} % context in the data behind the error model, and is {100 * own[i]:.0f} % "
            "here: are its units the same, and was that data drawn where the log was?"
        )
    return Finding("reliability of x̃", verdict, words, {"by_feature": own.tolist(), "matrix": matrix.ravel().tolist()})


def effective_size(evidence: Evidence) -> Finding:
    """(Σw)²/Σw² and the largest w/Σw by action, w = π^nd/π."""
    weight = evidence.products.products[1, :, 0]
    effective = weight**2 / np.maximum(evidence.products.squares[0], 1e-300)
    share = 1.0 / evidence.products.n_actions / evidence.tally.least / np.maximum(weight, 1e-300)
    rounds = evidence.products.rounds
    worst = int(np.argmax(effective <= effective.min() * (1 + ROUNDING)))  # of several the first
    verdict = max(_judged(effective[worst], 100, 30), _judged(1 / share.max(), 20, 5), key=_gravity)
    words = (
        f"Action {worst} has {rounds[worst]:,.0f} rounds that count as {effective[worst]:,.0f} equally weighted ones; "
        f"the heaviest single round has {percent(share.max())} of its action's weight."
    )
    values = {"rounds": rounds.tolist(), "effective": effective.tolist(), "largest_share": share.tolist()}
    return Finding("effective sample size", verdict, words, values)


def percent(share: float) -> str:
    """A share in words, with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def _gravity(verdict: str) -> int:
    return (GREEN, YELLOW, RED).index(verdict)


def propensities(evidence: Evidence) -> Finding:
    """The smallest propensity, how they are spread, and how many are below the floor that was promised."""
    tally = evidence.tally
    least, below = float(tally.least.min()), float(tally.below[0])
    verdict = RED if below else _judged(least, 0.02, 0.001)
    words = f"The smallest propensity of an action that was taken is {least:.3g}."
    if below:
        words += f" {below:,.0f} rounds are below the floor {evidence.floor:g}: log the probabilities the actions were drawn with."
    elif verdict != GREEN:
        words += " Its weight is its inverse: a few rounds may decide everything."
    values = {"least": tally.least.tolist(), "below_floor": [below], "histogram": tally.propensity.sum(axis=0).tolist()}
    return Finding("propensities", verdict, words, values)


def frequencies(evidence: Evidence) -> Finding:
    """Are the logged probabilities those the actions were drawn with? If so, Σ (u - 1) and Σ (u - 1) (x̃ - mean) are zero but for chance,
    u = 1{a_t = a}/π_t(a), with the variance Σ (1/π - 1) (...)²; and in each tenth of π(a) the action comes with that frequency."""
    k, d = evidence.products.n_actions, len(evidence.features)
    center = np.eye(d + 2)
    center[1:-1, 0] = -evidence.calibration.mean
    _, once, twice, offered = k * evidence.products.mapped(center).full[:, :, :-1, :-1]  # without π^nd = 1/K
    spread = np.diagonal(unpack(evidence.tally.mapped(center[:-1, :-1]).chance, d + 1), axis1=1, axis2=2)
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
    words = f"Actions came as often as their logged probabilities say, whatever was predicted (largest z-score {largest:.1f})."
    if verdict != GREEN:
        words = f"Action {a} did not come as often as its logged probabilities say (z-score {largest:.1f}). Was it drawn with them?"
        if k > 2 and not evidence.tally.chance.any():
            words += " If it was not always allowed, give one propensity column for each action, 0 where it was not."
    shown = {"stated": expected[-1], "observed": taken[-1]}
    values = {name: np.divide(sums, count[-1], out=np.full(LEVELS, np.nan), where=count[-1] > 0).tolist() for name, sums in shown.items()}
    return Finding("probability and frequency", verdict, words, values | {"z": z.ravel().tolist(), "rounds": count[-1].tolist()})


def _z(difference: Floats, variance: Floats) -> Floats:
    """In standard deviations; zero where nothing can vary and nothing differs."""
    sd = np.sqrt(np.maximum(variance, 1e-12))
    return np.where((variance <= 1e-12) & (np.abs(difference) < 1e-6), 0.0, difference / sd)


def minimum_signal(evidence: Evidence) -> Finding:
    """Assumption 2: λ0, the smallest eigenvalue of (1/t) Σ (x̃x̃' - Σe) / K in units of each feature's mean square, over t from T/20 and
    50 d on. With an intercept, of the spread about the mean, in units of each feature's variance."""
    d = len(evidence.features)
    size = d * (d + 1) // 2
    segments = evidence.tally.segments.copy()
    if not evidence.error.varying:
        segments[:, 1 + d + size :] = segments[:, :1] * pack(evidence.error.mean_cov)
    sums = np.cumsum(segments, axis=0)
    sums = sums[sums[:, 0] >= min(50 * d, sums[-1, 0])]  # the shortest stretches say nothing
    gram = unpack((sums[:, 1 + d : 1 + d + size] - sums[:, 1 + d + size :]) / sums[:, :1], d)
    seen = unpack(sums[-1, 1 + d : 1 + d + size] / sums[-1, 0], d)
    unit = "mean square 1"
    if evidence.solution.options.intercept:
        mean, unit = sums[:, 1 : 1 + d] / sums[:, :1], "variance 1"
        gram, seen = gram - mean[:, :, None] * mean[:, None], seen - np.outer(mean[-1], mean[-1])
    scale = np.sqrt(np.where(np.diag(seen) > 0, np.diag(seen), 1.0))
    along = np.linalg.eigvalsh(gram / np.outer(scale, scale))[:, 0] / evidence.products.n_actions
    raw = float(np.linalg.eigvalsh(gram[-1])[0]) / evidence.products.n_actions
    verdict = _judged(float(along.min()), 1e-4, 1e-6)
    words = f"The smallest λ0 along the log is {along.min():.3g} (features scaled to {unit}), {raw:.3g} in their own units at its end."
    if verdict != GREEN:
        words += " Some direction of the context hardly varies: its coefficients are poorly identified."
    return Finding("Assumption 2, minimum signal", verdict, words, {"along_the_log": along.tolist(), "at_the_end": [raw]})


def small_error(evidence: Evidence) -> Finding:
    """Assumption 3 asks that the error never changes which action is best. Here: how often the gap |⟨θ_a - θ_b, x̃⟩| between the two
    best actions is within one and within 1.96 standard deviations of its error."""
    choices, within, inside = evidence.tally.close
    one, two = (within / choices, inside / choices) if choices else (0.0, 0.0)
    verdict = GREEN if two < 0.8 else YELLOW
    words = (
        f"In {100 * two:.0f} % of the rounds the gap between the best two actions is inside 1.96 standard deviations of its error, "
        f"in {100 * one:.0f} % inside one."
    )
    if verdict != GREEN:
        words += " There no rule on x̃ can tell which is better; one on the best linear predictor loses least."
    return Finding("Assumption 3, small error", verdict, words, {"within_1_sd": [one], "within_1.96_sd": [two]})


def far_out(evidence: Evidence) -> Finding:
    """How far the furthest value of a feature or of the reward is from its mean, in standard deviations z, and its share z²/n of the
    variance. A code for "missing", such as -999, shows here if all else is far from it. Red: one round has more than a twentieth."""
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
    words = f"The value furthest out is {value:.4g} in {name}, {z[worst]:.1f} standard deviations from the mean."
    if verdict != GREEN:
        words += f" Its square alone makes {percent(share)} of the variance. Is it a measurement, or a code for something missing?"
    return Finding(
        "values far out", verdict, words, {"standard_deviations": z.tolist(), "least": ends[0].tolist(), "most": ends[1].tolist()}
    )


def drift(evidence: Evidence) -> Finding:
    """The means of x̃ in twenty parts of the log, in standard deviations of x̃; beside what sampling alone would do."""
    d = len(evidence.features)
    parts = evidence.tally.segments[evidence.tally.segments[:, 0] > 0]
    means = parts[:, 1 : 1 + d] / parts[:, :1]
    away = (means - evidence.calibration.mean) / evidence.calibration.scale
    noise = 4.0 / np.sqrt(parts[:, 0].min())
    strays = np.abs(away).max(axis=0)
    worst, beyond = int(strays.argmax()), [name for name, far in zip(evidence.features, strays, strict=True) if far >= max(0.3, noise)]
    verdict = YELLOW if beyond else GREEN
    words = f"The mean of {evidence.features[worst]!r} strays furthest, {strays[worst]:.2f} standard deviations from its overall mean."
    if len(beyond) > 1:
        words += f" Beyond chance and 0.3: {', '.join(map(repr, beyond))}."
    if verdict != GREEN:
        words += " Regression calibration and decisions on a fixed best linear predictor are off; use a mean that forgets (ew_blp)."
    return Finding("drift of x̃", verdict, words, {name: away[:, i].tolist() for i, name in enumerate(evidence.features)})


def skewness(evidence: Evidence) -> Finding:
    """The third standardised moment of x̃ by feature: regression calibration supposes that E[x | x̃] is linear, as for normal x."""
    n = max(evidence.products.rounds.sum(), 1.0)
    third, fourth = evidence.tally.powers / n
    s = evidence.calibration.scale
    skew, kurtosis = np.where(evidence.products.constant, 0.0, [third / s / s / s, fourth / s / s / s / s])
    worst = int(np.abs(skew).argmax())
    verdict = GREEN if np.abs(skew).max() < max(0.5, 4 * np.sqrt(6 / n)) else YELLOW
    words = f"The most skewed feature is {evidence.features[worst]!r}, with skewness {skew[worst]:.2f}."
    if verdict != GREEN:
        words += " Prefer dr or meb to rc, which supposes that E[x | x̃] is linear."
    return Finding("skewness of x̃", verdict, words, {"skewness": skew.tolist(), "kurtosis": kurtosis.tolist()})


def precision(evidence: Evidence) -> Finding:
    """What rounding does to features, or rewards, that are far from 0 beside their spread; see `digits_lost`."""
    lost = digits_lost(evidence.products)
    worst = int(lost.argmax())
    verdict = GREEN if lost[worst] < 1e-9 else YELLOW if lost[worst] < 1e-6 else RED
    words = f"Rounding is at most {max(lost[worst], 1e-16):.0e} of what is estimated from."
    if verdict != GREEN:
        words += f" {evidence.features[worst]!r}, or the reward, is far from 0 beside its spread: subtract a constant from it."
    return Finding("numerical precision", verdict, words, {"lost": lost.tolist()})


def zero_at_zero(evidence: Evidence) -> Finding:
    """Without an intercept every action earns 0 at x = 0. If so, the weighted mean of r - ⟨θ_a, x̃⟩ is 0 but for chance, b_a with

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
    words = f"Rewards of action {a} are {level[a]:.2g} off the fitted line on average (z-score {z[a]:.1f})."
    if verdict != GREEN:
        words += " The line goes through 0 at x = 0: fit an intercept (intercept=True, --intercept)."
    return Finding("no intercept", verdict, words, {"mean_residual": level.tolist(), "z": z.tolist()})


def set_aside(evidence: Evidence) -> Finding:
    """The share of rows that were set aside, and the columns that they broke a rule in. Yellow: 1 %; red: 10 %."""
    n, rows = len(evidence.faults), len(evidence.faults) + evidence.products.rounds.sum()
    columns = Counter(fault.column for fault in evidence.faults).most_common()
    verdict = GREEN if n < 0.01 * rows else YELLOW if n < 0.1 * rows else RED
    words = f"{percent(n / rows)} of the rows were set aside, for {', '.join(f'{name!r} ({count:,})' for name, count in columns[:5])}."
    if verdict != GREEN:
        words += " What is left may no longer stand for all of them."
    return Finding("rows set aside", verdict, words, {"share": [n / rows]})


def clusters(evidence: Evidence) -> Finding:
    """Standard errors from G units are too small where G is."""
    verdict = _judged(evidence.units, 40, 15)
    words = f"Standard errors are clustered by {evidence.units:,} units."
    if verdict != GREEN:
        words += " With so few they are too small, and intervals too short."
    return Finding("number of units", verdict, words, {"units": [float(evidence.units)]})


def against_pairs(evidence: Evidence, pairs: ErrorModel) -> Finding:
    """What pairs of prediction and truth, or replicates, say of the error that was taken out of raw predictions."""
    if pairs.verdict == "biased":
        return bias(evidence, pairs)
    return undecided(pairs) if pairs.verdict == "undecided" and pairs.kind != "classical" else size_of_error(evidence, pairs)


def bias(evidence: Evidence, pairs: ErrorModel) -> Finding:
    """Where pairs say that E[x̃ | x] = b + B x is not x and x̃ was not unbiased: how far off, (b + (B - I) m)/s and (B - I)_ij s_j/s_i with
    the mean m and the standard deviations s of x̃. Red beyond 0.2."""
    m, s = evidence.calibration.mean, evidence.calibration.scale
    tilt = pairs.slope - np.eye(pairs.dim)
    shift, tilted = np.abs(pairs.offset + tilt @ m) / s, np.abs(tilt * s) / s[:, None]
    off = np.maximum(shift, tilted.max(axis=1))
    i, words = int(off.argmax()), "The validation pairs say that the predictions are biased"
    remedy = ". Let from_validation (mebandit error-model --truth) make the error model, without `assume`: fit then unbiases them first."
    if not off[i]:  # the model was made to be used as classical, and has no b and B
        return Finding("kind of error", YELLOW, words + remedy, {})
    terms = [
        f"{'-' if B < 0 else '+'} {abs(B):.2g} {name}"
        for B, name, far in zip(pairs.slope[i], evidence.features, tilted[i], strict=True)
        if far > 0.05 or name == evidence.features[i]
    ]
    words += f": given the truth, {evidence.features[i]!r} is {pairs.offset[i]:.2g} {' '.join(terms)} on average"
    values = {"shift": shift.tolist(), "slope": tilted.ravel().tolist()}
    return Finding("kind of error", RED if off[i] > 0.2 else YELLOW, words + remedy, values)


def undecided(pairs: ErrorModel) -> Finding:
    """Pairs that cannot tell classical from Berkson error, and how much depends on it."""
    words = f"The validation pairs cannot tell classical from Berkson error; {cost_of_doubt(pairs)}."
    return Finding("kind of error", YELLOW, words, {"factor": [pairs.notes["factor"]]})


def size_of_error(evidence: Evidence, pairs: ErrorModel) -> Finding:
    """The Σe that was taken out beside that of pairs of prediction and truth. Yellow: an entry differs by more than three standard errors
    and a tenth of the larger variances, √(v_i v_j); red: a third."""
    taken, told, se = evidence.error.mean_cov, pairs.error_cov, pairs.error_cov_std_error
    own = np.zeros_like(se) if evidence.error.model is None else evidence.error.model.error_cov_std_error
    size = np.sqrt(np.maximum(np.diag(taken), np.diag(told)))
    size = np.where(size > 0, size, 1.0)
    apart, sure = np.abs(taken - told) / size / size[:, None], np.abs(taken - told) > 3 * np.hypot(se, own)
    i, j = sorted(map(int, np.unravel_index(int(np.where(sure, apart, 1e-6 * apart).argmax()), apart.shape)))
    verdict = GREEN if not sure[i, j] or apart[i, j] < 0.1 else YELLOW if apart[i, j] < 1 / 3 else RED
    what = f"variance of {evidence.features[i]!r}" if i == j else f"covariance of {evidence.features[i]!r} and {evidence.features[j]!r}"
    words = f"{taken[i, j]:.3g} is taken for the error {what}; `validation` says {told[i, j]:.3g} ± {se[i, j]:.2g}."
    if verdict != GREEN:
        words += " Take that model for the error (error_cov=model, --error-model), or find out why it differs."
    values = {"taken": taken.ravel().tolist(), "pairs": told.ravel().tolist(), "std_error": se.ravel().tolist()}
    return Finding("size of the error", verdict, words, values)


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
    words = "Which actions were allowed hardly depends on what was predicted."
    if verdict == RED:
        side = "high" if away[a, i] > 0 else "low"
        words = (
            f"Action {a} was allowed where {evidence.features[i]!r} was {side}. If x̃ decided that, the errors of those rounds do not have "
            "mean zero, and meb and dr are biased for it; prefer rc."
        )
    return Finding("availability of actions", verdict, words, {"share_allowed": share.tolist(), "mean_shift": away.ravel().tolist()})


def reported_variances(evidence: Evidence) -> Finding:
    """Where the reported error variance v is larger, x̃ should spread more, by as much: the slope of (x̃ - mean)² on v is 1 if the
    reported variances are right and x does not depend on them. Slopes with their standard errors, by feature."""
    n = max(evidence.products.rounds.sum(), 1.0)
    v, v2, y, vy, v3, v4 = evidence.tally.reported.T / n
    spread = v2 - v * v
    moving = spread > 1e-12 * np.maximum(v * v, 1e-300)
    slope = np.divide(vy - v * y, spread, out=np.full_like(v, np.nan), where=moving)
    S = np.maximum(y - v, 0.0)  # the variance of (x̃ - mean)² is 2 (S + v)² for normal x̃
    weighted = v2 * S**2 + 2 * v3 * S + v4 - 2 * v * (v * S**2 + 2 * v2 * S + v3) + v * v * (S**2 + 2 * v * S + v2)
    error = np.sqrt(np.divide(2 * np.maximum(weighted, 0.0), spread**2 * n, out=np.full_like(v, np.nan), where=moving))
    z = np.abs(slope - 1.0) / error
    if not moving.any():
        return Finding("reported variances", GREEN, "The reported error variances hardly differ between rounds.", {})
    worst = int(np.nanargmax(z))
    off = float(z[worst])
    verdict = GREEN if off < 3 else YELLOW if off < 6 or abs(slope[worst] - 1) < 0.5 else RED
    words = (
        f"Where {evidence.features[worst]!r} is reported to be less certain by 1, x̃ varies by {slope[worst]:.2f} ± {error[worst]:.2f} more."
    )
    if verdict != GREEN:
        words += " It should be 1: the reported variances are off, or tell of x itself. Check them on pairs (measurement.from_variances)."
    return Finding("reported variances", verdict, words, {"slope": slope.tolist(), "std_error": error.tolist()})
