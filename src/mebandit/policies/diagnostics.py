"""What a running learner can say about its own footing: the told error covariance, the rounds behind θ, and what the rewards say of both.

The limits are conventions, written beside each check.
"""

from math import sqrt
from typing import Any

import numpy as np

from mebandit.estimation.moments import unpack
from mebandit.kernels import layout
from mebandit.values import GREEN, RED, YELLOW, Finding, Floats, LinearState

LITTLE_LEFT = 0.2, 0.05
"""share of the variance of x̃ that Σe leaves in its worst direction: yellow below the first, red below the second"""

ENOUGH_ROUNDS = 10.0, 3.0
"""effective rounds of each action per coefficient: yellow below the first, red below the second"""

CONTRADICTED = 3.0
"""standard errors from which on the rewards contradict what was told"""

LARGE_SHARE = 0.15
"""of what was told, below which a contradiction changes little"""

CHECK = "Hold Σe against pairs of prediction and truth (mebandit.measurement.from_validation)"


def diagnosed(policy: Any, state: LinearState) -> tuple[Finding, ...]:
    """The findings on the memory of a `LinearPolicy`; those that its estimator keeps the sums for."""
    findings = []
    if policy.estimator.context is not None:
        findings.append(told_error(policy, state))
    if policy.rule.estimates:
        findings.append(effective_rounds(policy, state))
    if policy.estimator.leading and policy.estimator.context.curved:
        findings += [moving_error(policy, state), changing_error(policy, state)]
    return tuple(findings)


def told_error(policy: Any, state: LinearState) -> Finding:
    """The smallest share of cov(x̃) that the told Σe leaves, over all directions: the smallest eigenvalue of V^(-1/2) (V - Σ̄e) V^(-1/2)."""
    K, p = policy.n_actions, policy.n_features
    row, first = state.sums[layout.context_row(K)], p - policy.dim
    n, name = row[layout.COUNT], "told error"
    V, error = np.zeros((0, 0)), np.zeros((0, 0))
    if n > 0:
        mean = row[layout.FEATURES : layout.FEATURES + p] / n
        V = (unpack(row[layout.gram_at(p) : layout.error_at(p)][None], p)[0] / n - np.outer(mean, mean))[first:, first:]
        error = unpack(row[layout.error_at(p) : layout.reward_at(p)][None], p)[0][first:, first:] / n
    varies = (
        np.diag(V) > 1e-10 * (np.diag(V) + (row[layout.FEATURES + first : layout.FEATURES + p] / max(n, 1.0)) ** 2)
        if n > 0
        else np.zeros(0, bool)
    )
    if n < 10 * p or not varies.any():
        return Finding(name, GREEN, "There are too few rounds to hold Σe against the spread of the predictions.", {"rounds": [float(n)]})
    scale = np.sqrt(np.diag(V)[varies])
    V, error = (part[np.ix_(varies, varies)] / np.outer(scale, scale) for part in (V, error))
    lengths, axes = np.linalg.eigh(V)
    root = axes / np.sqrt(np.maximum(lengths, 1e-12))
    lost, directions = np.linalg.eigh(root.T @ error @ root)
    left, feature = 1.0 - float(lost[-1]), int(np.flatnonzero(varies)[np.argmax(np.abs(root @ directions[:, -1]))])
    verdict = RED if left < LITTLE_LEFT[1] else YELLOW if left < LITTLE_LEFT[0] else GREEN
    sentence = f"Σe as told leaves {max(left, 0.0):.2g} of the variance of x̃ where it leaves least, mostly feature {feature}."
    if verdict != GREEN:
        sentence += f" θ rests on what is left. {CHECK}, or leave the feature out."
    return Finding(name, verdict, sentence, {"share left": [left], "feature": [float(feature)]})


def effective_rounds(policy: Any, state: LinearState) -> Finding:
    """(Σ w)² / Σ w² over the rounds of each action, by coefficient."""
    K, q = policy.n_actions, policy.dim + policy.intercept
    weight, square = state.sums[:K, layout.WEIGHT], state.sums[:K, layout.WEIGHT_SQ]
    rounds: Floats = np.where(square > 0, weight**2 / np.where(square > 0, square, 1.0), 0.0)
    a = int(np.argmin(rounds))
    each = rounds[a] / q
    verdict = RED if each < ENOUGH_ROUNDS[1] else YELLOW if each < ENOUGH_ROUNDS[0] else GREEN
    sentence = f"θ of action {a} rests on {rounds[a]:.3g} effective rounds, {each:.2g} for each of its {q} coefficients."
    if verdict != GREEN:
        sentence += " Wait for more before it is read, or raise the floor."
    return Finding("effective rounds", verdict, sentence, {"effective rounds": rounds.tolist()})


def moving_error(policy: Any, state: LinearState) -> Finding:
    """Whether the predictions drift and the rewards do not follow: then it is the error that drifts, and Σe is told as if it did not."""
    K, p = policy.n_actions, policy.n_features
    follows = state.fit[layout.signal_fit(K), layout.report_at(p) + layout.KAPPA] == 1.0
    share, error = _share(state, layout.SHARE_COLUMNS)
    contradicted = bool(follows and share < CONTRADICTED * error < 2 * LARGE_SHARE)
    sentence = "The rewards do not contradict that errors are independent between rounds."
    if contradicted:
        sentence = (
            f"The predictions drift, and the rewards follow only {max(share, 0.0):.2g} ± {error:.1g} of that: the error itself seems to "
            "drift. Σe is then too large for what differs between rounds. Check the sensor or the predictor for drift."
        )
    return Finding("moving error", YELLOW if contradicted else GREEN, sentence, {"share": [share], "standard error": [error]})


def changing_error(policy: Any, state: LinearState) -> Finding:
    """Whether predictions with larger told errors are as much less reliable: 0 where Σe is right, towards 1 - 1/k where told k times it."""
    share, error = _share(state, 2 * layout.SHARE_COLUMNS)
    contradicted = abs(share) > max(LARGE_SHARE, CONTRADICTED * error)
    sentence = "The rewards do not contradict how the told Σe differs between rounds."
    if contradicted:
        direction = "smaller" if share > 0 else "larger"
        sentence = (
            f"The rewards say that differences of Σe between rounds are {direction} than told (off by {share:.2g} ± {error:.1g} of what "
            f"was corrected). {CHECK}."
        )
    return Finding("changing error", YELLOW if contradicted else GREEN, sentence, {"share": [share], "standard error": [error]})


def _share(state: LinearState, first: int) -> tuple[float, float]:
    """Least squares of what is left of the rewards on a departure, and its standard error; (0, inf) before there is one."""
    n, left, information, said = (float(number) for number in state.sums[-1, first : first + layout.SHARE_COLUMNS])
    if n < 30 or not information > 0:
        return 0.0, float("inf")
    return said / information, sqrt(left / n / information)
