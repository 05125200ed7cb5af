"""What may be wrong with a log, or with what is assumed about its errors: a verdict and a sentence for each, and the numbers behind it."""

from mebandit.analysis.diagnostics.data import clusters, drift, missing_outcomes, outliers, precision, set_aside, skewness, zero_at_zero
from mebandit.analysis.diagnostics.error import against_pairs, minimum_signal, reliability, reported_variances, signal, small_error
from mebandit.analysis.diagnostics.finding import Evidence
from mebandit.analysis.diagnostics.propensity import availability, effective_size, frequencies, propensities
from mebandit.values import GREEN, RED, YELLOW, Finding


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
        outliers(evidence),
        drift(evidence),
        skewness(evidence),
        precision(evidence),
    ]
    if evidence.berkson:
        found.insert(0, Finding("kind of error", RED, evidence.berkson[0].upper() + evidence.berkson[1:], {}))
    else:
        found[:0] = [against_pairs(evidence, pairs) for pairs in evidence.pairs]
    if not evidence.solution.options.intercept and not evidence.products.constant.any():
        found.append(zero_at_zero(evidence))
    if evidence.faults:
        found.append(set_aside(evidence))
    if evidence.left_out is not None and evidence.left_out.missing.any():
        found.append(missing_outcomes(evidence, evidence.left_out))
    if evidence.units:
        found.append(clusters(evidence))
    if (evidence.products.products[3, :, 0] * evidence.products.n_actions < evidence.products.rounds.sum() - 0.5).any():
        found.append(availability(evidence))
    if evidence.error.varying:
        found.append(reported_variances(evidence))
    return tuple(sorted(found, key=lambda finding: (RED, YELLOW, GREEN).index(finding.verdict)))
