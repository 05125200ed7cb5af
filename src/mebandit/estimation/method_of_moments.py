"""The paper's off-policy method of moments for any function of means (Appendix D.3)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.estimation.moments import check_rounds
from mebandit.values import Floats


def estimate_moments(
    functions: Sequence[Callable[[Floats, Floats], Floats]],
    solve: Callable[..., Any],
    *,
    context: ArrayLike,
    actions: ArrayLike,
    outcome: ArrayLike,
    propensities: ArrayLike,
    action: int,
    n_actions: int = 2,
    stabilizer: ArrayLike | None = None,
) -> Any:
    """The off-policy method of moments for one action: φ(mean of W f_1(X, Y), ..., mean of W f_m(X, Y)), Appendix D.3 of the paper.

    W_t = 1{a_t = a} π^nd_t(a) / π_t(a), divided by the mean of π^nd_t(a), so that the means are those of the outcome under action a.
    Rounds in which the action was not allowed are left out.

    Args:
        functions: f_1, ..., f_m. Each takes the contexts (n, d) and the outcomes (n,) of the n rounds in which the action was taken, and
            returns a number or an array for each of them, (n, ...).
        solve: φ, a function of the m weighted means. What it returns is returned.
        context: What the functions read as X, (T, d).
        actions: Actions taken, whole numbers from 0 to K - 1, (T,).
        outcome: Y, (T,).
        propensities: The probabilities with which actions were drawn: of the action taken, (T,), or of all, (T, K). With (T, K) an action
            of probability 0 was not allowed.
        action: The action a whose moments are estimated.
        n_actions: K; 2 by default.
        stabilizer: π^nd, (K,) or (T, K). A constant one, also the default, cancels; one that differs between rounds weights them.

    Returns:
        What `solve` returns.

    Raises:
        InvalidInput: An argument breaks a rule.
        SingularMoments: The action was never taken.

    >>> import numpy as np
    >>> x, y = np.array([[1.0], [2.0], [3.0]]), np.array([2.0, 4.0, 6.0])
    >>> ratio = lambda xy, xx: xy / xx
    >>> float(estimate_moments([lambda x, y: x[:, 0] * y, lambda x, y: x[:, 0] ** 2], ratio,
    ...     context=x, actions=[1, 1, 1], outcome=y, propensities=[0.5, 0.5, 0.9], action=1))
    2.0
    """
    rounds = check_rounds(context, actions, outcome, propensities, 0.0, n_actions=n_actions, stabilizer=stabilizer)
    action = checks.integer("action", action, 0, n_actions - 1)
    t = np.arange(rounds.rewards.size)
    nd = rounds.stabilizer[t % len(rounds.stabilizer), action] * rounds.allowed[t % len(rounds.allowed), action]
    played = rounds.actions == action
    if not played.any():
        raise checks.SingularMoments(f"action {action} must have been taken, for its moments to be known; got no round with it.")
    w = (nd / rounds.propensities)[played] / nd.sum()
    x, y = rounds.predicted[:, played].T, rounds.rewards[played]
    means = []
    for i, f in enumerate(functions):
        values = np.asarray(f(x, y), dtype=float)
        if values.shape[:1] != (len(y),):
            checks.refuse(f"functions[{i}]", f"return one row for each of the {len(y)} rounds", f"shape {values.shape}")
        means.append(np.tensordot(w, values, axes=1))
    return solve(*means)
