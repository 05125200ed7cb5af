"""From the crossproducts of a log to the running sums of each method's estimating equation."""

import numpy as np

from mebandit.estimation.best_linear import calibration
from mebandit.estimation.moments import Crossproducts, Moments, pack
from mebandit.values import Floats


def normal_equations(products: Crossproducts, method: str, *, error_cov: Floats | None, intercept: bool, beta: Floats) -> Moments:
    """The running sums from which `solve` finds a method's θ, see `estimation.methods`. Columns of a baseline serve "dr" alone, in β.

    Args:
        products: The crossproducts of the log; for "rc" those of x̂ in place of x̃.
        method: One of `METHODS`.
        error_cov: Σe, (d, d), or None where it varies between rounds, and `products` hold its sums.
        intercept: Whether an intercept is fitted for every arm.
        beta: The outcome regressions of the pseudo-outcomes of "dr", (K, d + b + 1).
    """
    errors = products.weighted_errors(error_cov)
    if method == "dr":
        _, weighted, twice, offered = products.full
        pseudo = _with_pseudo_outcomes(weighted, twice, offered, beta)
        own = np.r_[: products.context_dim + 1, products.dim + 1]
        return _as_moments(pseudo[:, own[:, None], own], products.squares[1], errors[2], errors[2], products.rounds, intercept)
    unit, weighted, _, _ = products.context.full
    if method == "meb":
        return _as_moments(weighted, products.squares[0], errors[1], errors[2], products.rounds, intercept)
    return _as_moments(unit, products.rounds, errors[0], errors[0], products.rounds, intercept)


def _with_pseudo_outcomes(weighted: Floats, twice: Floats, offered: Floats, beta: Floats) -> Floats:
    """Σ c vv' with the pseudo-outcome y = z'β + u (r - z'β) in place of r, (K, d + 2, d + 2), z = (1, x̃).

    Σ c z y = O β + Σ c u z (r - z'β) and Σ c y² = β'O β + 2 β'Σ c u z (r - z'β) + Σ c u² (r - z'β)², O = Σ c zz' over all rounds.
    """
    tables = offered.copy()
    fitted = np.einsum("kij,kj->ki", offered[:, :-1, :-1], beta)
    left = weighted[:, :-1, -1] - np.einsum("kij,kj->ki", weighted[:, :-1, :-1], beta)
    residual = np.hstack([-beta, np.ones((len(beta), 1))])
    squared = np.einsum("ki,kij,kj->k", residual, twice, residual)
    tables[:, :-1, -1] = tables[:, -1, :-1] = fitted + left
    tables[:, -1, -1] = np.einsum("ki,ki->k", beta, fitted + 2 * left) + squared
    return tables


def outcome_regressions(products: Crossproducts) -> Floats:
    """β_a, (K, d + 1): least squares of r on z = (1, x̃) in the rounds of each action; the shortest solution where there are several.

    With a baseline s, z = (1, x̃, s), and β_a has b coefficients more."""
    unit = products.full[0]
    beta = np.zeros((products.n_actions, products.dim + 1))
    for a, table in enumerate(unit):
        n = table[0, 0]
        if n > 0:
            mean, r = table[0, 1:-1] / n, table[0, -1] / n
            cov, cross = table[1:-1, 1:-1] / n - np.outer(mean, mean), table[1:-1, -1] / n - mean * r
            still = np.diag(cov) <= 1e-13 * mean**2  # a variance of 0, but for rounding
            cov[still], cov[:, still], cross[still] = 0.0, 0.0, 0.0
            scale = calibration(mean, cov, np.zeros_like(cov)).scale
            slope = np.linalg.pinv(cov / np.outer(scale, scale), rcond=1e-10, hermitian=True) @ (cross / scale) / scale
            beta[a] = np.append(r - mean @ slope, slope)
    return beta


def _as_moments(tables: Floats, squares: Floats, errors: Floats, offered: Floats, counts: Floats, intercept: bool) -> Moments:
    """Running sums from Σ vv', v = (1, x̃, r), with or without the 1 among the features."""
    k, first = len(tables), 0 if intercept else 1
    features = slice(first, -1)
    pad = ((0, 0), (int(intercept), 0), (int(intercept), 0))
    played, available = (pack(np.pad(matrix, pad)) for matrix in (errors, offered))
    head = np.column_stack([counts, tables[:, 0, 0], squares, tables[:, 0, features], pack(tables[:, features, features])])
    rows = np.hstack([head, played, tables[:, 0, -1:], tables[:, -1, -1:], tables[:, features, -1]])
    sums = np.zeros((2 * k + 1, rows.shape[1]))
    sums[:k] = rows
    sums[k : 2 * k, head.shape[1] : head.shape[1] + played.shape[1]] = available
    return Moments(sums, k, tables.shape[1] - 1 - first)


def second_moment(products: Crossproducts, intercept: bool) -> Floats:
    """The mean of x̃x̃', or the covariance of x̃ if an intercept is fitted, (d, d)."""
    sums = products.full[0].sum(axis=0)
    sums = sums / max(sums[0, 0], 1.0)
    return np.asarray(sums[1:-1, 1:-1] - (np.outer(sums[0, 1:-1], sums[0, 1:-1]) if intercept else 0.0))
