"""Diagnostics of the measurement error: is Σe too large for the data, how reliable is x̃, do validation data agree?"""

import numpy as np

from mebandit.analysis.diagnostics.finding import Evidence, Pairs, gravity, judged
from mebandit.estimation.moments import pack, unpack
from mebandit.kernels import layout
from mebandit.measurement import ErrorModel
from mebandit.measurement.description import cost_of_doubt
from mebandit.values import GREEN, RED, YELLOW, Finding, Floats


def _smallest_root(G: Floats, E: Floats) -> float:
    """The smallest λ with det(G - λ E) = 0, for positive definite G; infinite without error."""
    size = np.sqrt(np.where(np.diag(G) > 0, np.diag(G), 1.0))
    values, vectors = np.linalg.eigh(G / size / size[:, None])
    root = vectors / np.sqrt(np.maximum(values, 1e-15))
    largest = float(np.linalg.eigvalsh(root.T @ (E / size / size[:, None]) @ root)[-1])
    return 1.0 / largest if largest > 0 else float("inf")


def signal(evidence: Evidence) -> Finding:
    """Is the correction feasible? By action, the largest multiple of Σe for which it is: the smallest root λ of det(G - λ E) = 0. Below 1,
    x̃ varies less in some direction than its error is assumed to. And Fuller's λ, the smallest root of det(G - cc'/s - λ E) = 0, which
    takes the reward into account: it tends to 1 or more if Σe is right, and falls clearly below 1 if Σe is too large for what x̃
    explains of r."""
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
    verdict = judged(least, 1.5, 1.05)
    words = f"The correction would remain feasible with an error covariance up to {least:.3g} times as large."
    if any(root < 1.0 - margin for root, margin in zip(fuller, slack, strict=True)):
        verdict = RED
        words += f" Fuller's λ is {min(fuller):.2f}, below 1: Σe is too large for these data. Check Σe, and whether the error is classical."
    elif verdict != GREEN:
        words += " In some direction nearly all variation of x̃ is error: the correction is large there, and so is its uncertainty."
    if guarded:
        words += f" These estimates are stabilised (Fuller-type): {', '.join(sorted(guarded))}."
    values = {"feasible_multiple": roots, "fuller_lambda": fuller, "smallest_eigenvalue": eigenvalues}
    return Finding("feasibility of the correction", verdict, words, values)


def reliability(evidence: Evidence) -> Finding:
    """Reliability, Sx (Sx + Σe)^-1: the share of the variance of x̃ that is variance of x; by feature Sx_ii / (Sx + Σe)_ii."""
    d = len(evidence.features)
    matrix = np.eye(d) - evidence.calibration.gain(evidence.error.mean_cov)
    S = evidence.calibration.context_cov * np.outer(evidence.calibration.scale, evidence.calibration.scale)
    context, error = np.diag(S), np.diag(evidence.error.mean_cov)
    own = np.divide(context, context + error, out=np.ones(d), where=error > 0)
    least = int(own.argmin())
    verdict = judged(float(own[least]), 0.5, 0.2)
    share = f"{100 * own[least]:.0f} % of its variance is context, the rest is error"
    words = f"The least reliable feature is {evidence.features[least]!r}: {share}."
    if verdict != GREEN:
        words += " Use the best linear predictor of x for decisions, and expect wide intervals."
        words += " Check that Σe holds variances, not standard deviations." if evidence.error.model is None else ""
    told = np.full(d, np.nan) if evidence.error.model is None else evidence.error.model.reliability
    apart = np.nan_to_num(np.abs(told - own))
    if apart.max() > 0.2:
        i, verdict = int(apart.argmax()), max(verdict, YELLOW, key=gravity)
        words += (
            f" The reliability of {evidence.features[i]!r} was {100 * told[i]:.0f} % in the data behind the error model, and is "
            f"{100 * own[i]:.0f} % here. Check that its unit of measurement is the same, and that both come from the same population."
        )
    return Finding("reliability of x̃", verdict, words, {"by_feature": own.tolist(), "matrix": matrix.ravel().tolist()})


def small_error(evidence: Evidence) -> Finding:
    """Assumption 3 asks that the error never changes which action is best. Here: how often the gap |⟨θ_a - θ_b, x̃⟩| between the two
    best actions is within one and within 1.96 standard deviations of its error."""
    choices, within, inside = evidence.tally.close
    one, two = (within / choices, inside / choices) if choices else (0.0, 0.0)
    verdict = GREEN if two < 0.8 else YELLOW
    words = (
        f"In {100 * two:.0f} % of the rounds the gap between the best two actions is smaller than 1.96 standard deviations of its error, "
        f"in {100 * one:.0f} % smaller than one."
    )
    if verdict != GREEN:
        words += " There a rule that reads x̃ cannot tell which is better; a rule on the best linear predictor loses least."
    return Finding("Assumption 3, small error", verdict, words, {"within_1_sd": [one], "within_1.96_sd": [two]})


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
    verdict = judged(float(along.min()), 1e-4, 1e-6)
    words = f"The smallest λ0 over the course of the log is {along.min():.3g} (features scaled to {unit}); at its end, unscaled, {raw:.3g}."
    if verdict != GREEN:
        words += " In some direction the context hardly varies: the coefficients are poorly identified there."
    return Finding("Assumption 2, minimum signal", verdict, words, {"along_the_log": along.tolist(), "at_the_end": [raw]})


def against_pairs(evidence: Evidence, pairs: Pairs) -> Finding:
    """What validation data say about the error that was subtracted from uncorrected predictions."""
    if pairs.model.verdict == "biased":
        return bias(evidence, pairs)
    return (
        undecided(pairs.model) if pairs.model.verdict == "undecided" and pairs.model.kind != "classical" else size_of_error(evidence, pairs)
    )


def bias(evidence: Evidence, known: Pairs) -> Finding:
    """Where pairs say that E[x̃ | x] = b + B x is not x and x̃ was not unbiased: how far off, (b + (B - I) m)/s and (B - I)_ij s_j/s_i with
    the mean m and the standard deviations s of x̃. Red beyond 0.2."""
    pairs, features = known.model, [evidence.features[i] for i in known.places]
    m, s = evidence.calibration.mean[known.places], evidence.calibration.scale[known.places]
    tilt = pairs.slope - np.eye(pairs.dim)
    shift, tilted = np.abs(pairs.offset + tilt @ m) / s, np.abs(tilt * s) / s[:, None]
    off = np.maximum(shift, tilted.max(axis=1))
    i, words = int(off.argmax()), "The validation data say that the predictions are biased"
    remedy = ". Estimate the error model from these data without assuming a type of error: fit then corrects the bias first."
    if not off[i]:  # the model was made to be used as classical, and has no b and B
        return Finding("kind of error", YELLOW, words + remedy, {})
    terms = [
        f"{'-' if B < 0 else '+'} {abs(B):.2g} {name}"
        for B, name, far in zip(pairs.slope[i], features, tilted[i], strict=True)
        if far > 0.05 or name == features[i]
    ]
    words += f": given the truth, {features[i]!r} is {pairs.offset[i]:.2g} {' '.join(terms)} on average"
    values = {"shift": shift.tolist(), "slope": tilted.ravel().tolist()}
    return Finding("kind of error", RED if off[i] > 0.2 else YELLOW, words + remedy, values)


def undecided(pairs: ErrorModel) -> Finding:
    """Validation data that cannot distinguish classical from Berkson error, and how much depends on it."""
    words = f"The validation data cannot distinguish classical from Berkson error; {cost_of_doubt(pairs)}."
    return Finding("kind of error", YELLOW, words, {"factor": [pairs.notes["factor"]]})


def size_of_error(evidence: Evidence, known: Pairs) -> Finding:
    """The assumed Σe compared with that of validation data. Yellow: an entry differs by more than three standard errors and by a tenth of
    the larger variances, √(v_i v_j); red: by a third."""
    pairs, features, own_part = known.model, [evidence.features[i] for i in known.places], np.ix_(known.places, known.places)
    taken, told, se = evidence.error.mean_cov[own_part], pairs.error_cov, pairs.error_cov_std_error
    own = np.zeros_like(se) if evidence.error.model is None else evidence.error.model.error_cov_std_error[own_part]
    size = np.sqrt(np.maximum(np.diag(taken), np.diag(told)))
    size = np.where(size > 0, size, 1.0)
    apart, sure = np.abs(taken - told) / size / size[:, None], np.abs(taken - told) > 3 * np.hypot(se, own)
    i, j = sorted(map(int, np.unravel_index(int(np.where(sure, apart, 1e-6 * apart).argmax()), apart.shape)))
    verdict = GREEN if not sure[i, j] or apart[i, j] < 0.1 else YELLOW if apart[i, j] < 1 / 3 else RED
    what = f"variance of {features[i]!r}" if i == j else f"covariance of {features[i]!r} and {features[j]!r}"
    words = f"The assumed error {what} is {taken[i, j]:.3g}; the validation data say {told[i, j]:.3g} ± {se[i, j]:.2g}."
    if verdict != GREEN:
        words += " Use the model from the validation data as the error model, or find out why they differ."
    values = {"taken": taken.ravel().tolist(), "pairs": told.ravel().tolist(), "std_error": se.ravel().tolist()}
    return Finding("size of the error", verdict, words, values)


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
        return Finding("reported variances", GREEN, "The reported error variances hardly differ between rows.", {})
    worst = int(np.nanargmax(z))
    off = float(z[worst])
    verdict = GREEN if off < 3 else YELLOW if off < 6 or abs(slope[worst] - 1) < 0.5 else RED
    words = (
        f"Where the reported error variance of {evidence.features[worst]!r} is larger by 1, the variance of x̃ is larger by "
        f"{slope[worst]:.2f} ± {error[worst]:.2f}."
    )
    if verdict != GREEN:
        words += " It should be 1: the reported variances are wrong, or depend on x. Check them with validation data."
    return Finding("reported variances", verdict, words, {"slope": slope.tolist(), "std_error": error.tolist()})
