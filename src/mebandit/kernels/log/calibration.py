"""Regression calibration of the rounds of a stored log, each with an error covariance of its own."""

import numpy as np

from ..compile import jit, spliced
from ..layout import packed_size
from ..linalg import solve_factored

# Of the variance of a feature: what is left of it, given others, counts as nothing below this.
SINGULAR_SPREAD = 1e-13


@spliced
def packed_place(i, j, width):
    """Where a packed upper triangle has its element i, j, i <= j."""
    return i * width - (i * (i - 1)) // 2 + j - i


@jit
def calibrate_rounds(x, errors, mean, scale, context_cov, out):
    """x^ = x~ - Sigma_e (S_x + Sigma_e)^-1 (x~ - mean) for rounds that each have their own, packed, Sigma_e; S_x is in units of `scale`."""
    d = x.shape[0]
    a, h, work = np.empty(packed_size(d)), np.empty(d), np.empty(d)
    for t in range(x.shape[1]):
        factor_spread(context_cov, errors[t], scale, d, a, work)
        for i in range(d):
            h[i] = x[i, t] - mean[i]
        solve_spread(a, scale, d, h)
        times_packed(errors[t], h, d, work)
        for i in range(d):
            out[i, t] = x[i, t] - work[i]


@jit
def add_jacobian(sums, theta, mean, scale, context_cov, log):
    """Take rounds that each have their own Sigma_e into the sums of the nuisance Jacobian, see `mebandit.estimation.nuisance`.

    Where Sigma_e grows by (E_j Sigma_e + Sigma_e E_j) / 2, all that concerns feature j by the same small part, dx^ = (G - I) dSigma_e H y.
    """
    d, p = log.predicted.shape[0], theta.shape[1]
    first = p - d
    a, h, gy, v = np.empty(packed_size(d)), np.empty(d), np.empty(d), np.ones(p)
    gain, grown, row, column = np.empty((d, d)), np.empty((d, d)), np.empty(d), np.empty(d)
    for t in range(log.actions.size):
        error, b = log.errors[t], log.actions[t]
        factor_spread(context_cov, error, scale, d, a, gy)
        for i in range(d):
            h[i] = log.predicted[i, t] - mean[i]
        solve_spread(a, scale, d, h)
        times_packed(error, h, d, gy)
        rho = -log.rewards[t] + (theta[b, 0] if first else 0.0)
        for i in range(d):
            v[first + i] = log.predicted[i, t] - gy[i]
            rho += v[first + i] * theta[b, first + i]
            write_packed_row(error, i, d, gain[i])
            solve_spread(a, scale, d, gain[i])  # a row of G = Sigma_e H
        for i in range(d):
            times_packed(error, gain[i], d, column)
            write_packed_row(error, i, d, row)
            for j in range(d):  # a row of (G - I) (diag(G y) + Sigma_e diag(H y)) / 2
                grown[i, j] = 0.5 * ((gain[i, j] - (i == j)) * gy[j] + (column[j] - row[j]) * h[j])
        add_moves(sums.by_scale[b], rho, v, theta[b], first, grown, row)
        add_moves(sums.by_mean[b], rho, v, theta[b], first, gain, row)
        for i in range(p):
            for j in range(d):
                move = v[i] * row[j] + (rho * gain[i - first, j] if i >= first else 0.0)
                for k in range(d):
                    sums.by_spread[b, i, j, k] += move * h[k]


@spliced
def add_moves(to, rho, v, theta, first, dx, along):
    """to += dpsi = rho dv + v theta'dx^ for every column of dx^, psi = v rho and v = x^, or (1, x^); `along` is left as theta'dx^."""
    d = dx.shape[0]
    for j in range(d):
        along[j] = 0.0
        for i in range(d):
            along[j] += theta[first + i] * dx[i, j]
    for i in range(v.size):
        for j in range(d):
            to[i, j] += v[i] * along[j] + (rho * dx[i - first, j] if i >= first else 0.0)


@jit
def factor_spread(context_cov, error, scale, d, a, work):
    """S_x + Sigma_e = U'DU in units of `scale`, packed in a: U right of the diagonal, 1/D on it. What is zero but for rounding counts as
    zero, and so does its 1/D: `solve_factored` then gives the solution that is zero there."""
    k = 0
    for i in range(d):
        for j in range(i, d):
            a[k] = context_cov[k] + error[k] / (scale[i] * scale[j])
            if i == j:
                work[i] = a[k]
            k += 1
    at = 0
    for k in range(d):
        n = d - k - 1
        inverse = 1.0 / a[at] if a[at] > SINGULAR_SPREAD * work[k] else 0.0
        a[at] = inverse
        rest = at + 1 + n
        for i in range(n):
            ratio = a[at + 1 + i] * inverse
            for j in range(i, n):
                a[rest] -= ratio * a[at + 1 + j]
                rest += 1
        for i in range(n):
            a[at + 1 + i] *= inverse
        at += d - k


@spliced
def solve_spread(a, scale, d, b):
    """b = (S_x + Sigma_e)^-1 b in place, from `factor_spread`."""
    for i in range(d):
        b[i] /= scale[i]
    solve_factored(a, d, b)
    for i in range(d):
        b[i] /= scale[i]


@spliced
def times_packed(packed, x, d, out):
    """out = A x for a packed A."""
    k = 0
    for i in range(d):
        out[i] = 0.0
    for i in range(d):
        for j in range(i, d):
            out[i] += packed[k] * x[j]
            if j > i:
                out[j] += packed[k] * x[i]
            k += 1


@spliced
def write_packed_row(packed, i, d, out):
    """out = row i of a packed symmetric matrix."""
    for j in range(d):
        low, high = min(i, j), max(i, j)
        out[j] = packed[packed_place(low, high, d)]
