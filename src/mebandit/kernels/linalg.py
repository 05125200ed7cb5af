"""Small symmetric matrices, stored packed: products, factors and solutions."""

import math

import numpy as np

from .compile import jit, part, quotient, seldom, spliced
from .layout import SINGULAR, SOLVED, n_features, packed_size
from .limits import LARGEST, LARGEST_FACTOR, LEAST_VARIANCE

MIN_PIVOT = 1e-12


@jit
def copy(a, b, n):
    """b = a."""
    for i in range(n):
        b[i] = a[i]


@spliced
def dot(a, b, p):
    total = 0.0
    for i in range(p):
        total += a[i] * b[i]
    return total


@spliced
def factor(a, p, work):
    """A = U' D U in place for packed A; U right of the diagonal, 1/D on it. False if A is not positive definite beyond rounding.

    `work` has room for 2p numbers: the row of the pivot, apart from the rows it changes, for the compiler to see that they differ; and the
    diagonal as it was.
    """
    pivots, diagonal = part(work, 0, p), part(work, p, p)
    at = 0
    for k in range(p):
        diagonal[k] = a[at]
        at += p - k
    at = 0
    for k in range(p):
        if not a[at] > MIN_PIVOT * abs(diagonal[k]):
            return False
        inverse = quotient(1.0, a[at])
        a[at] = inverse
        n = p - k - 1
        u, rest = part(a, at + 1, n), at + 1 + n
        for i in range(n):
            pivots[i] = u[i]
        for i in range(n):
            ratio = pivots[i] * inverse
            below, right = part(a, rest, n - i), part(pivots, i, n - i)
            for j in range(n - i):
                below[j] -= ratio * right[j]
            u[i] = ratio
            rest += n - i
        at += p - k
    return True


@seldom
def factor_once(a, p, work):
    """`factor` as a function of its own, for where speed does not matter: spliced code takes its time to compile."""
    return factor(a, p, work)


@spliced
def solve_factored(a, p, b):
    """b = A^-1 b in place, from the factor of A. Whether it is of a usable size, and so finite, which costs nothing here."""
    row, total = 0, 0.0
    for k in range(p):
        y = b[k]
        for i in range(1, p - k):
            b[k + i] -= a[row + i] * y
        row += p - k
    for k in range(p - 1, -1, -1):
        row -= p - k
        s = b[k] * a[row]
        for i in range(1, p - k):
            s -= a[row + i] * b[k + i]
        b[k] = s
        total += abs(s)
    return total <= LARGEST_FACTOR


@seldom
def solve_factored_once(a, p, b):
    """`solve_factored`, likewise."""
    return solve_factored(a, p, b)


@seldom
def is_within(values, n, most):
    """Whether all of n numbers are at most so large; false where one is not finite."""
    for i in range(n):
        if not abs(values[i]) <= most:
            return False
    return True


@seldom
def add_symmetric(a, p, share, v, out):
    """out = out + share A v, for packed A."""
    k = 0
    for i in range(p):
        out[i] += share * a[k] * v[i]
        for j in range(1, p - i):
            out[i] += share * a[k + j] * v[i + j]
            out[i + j] += share * a[k + j] * v[i]
        k += p - i


@jit
def quadratic_form(dims, a, p, z, work):
    """z' A^-1 z from the factor of A."""
    p = n_features(dims, p)
    for i in range(p):
        work[i] = z[i]
    total, row = 0.0, 0
    for k in range(p):
        y = work[k]
        total += y * y * a[row]
        for i in range(1, p - k):
            work[k + i] -= a[row + i] * y
        row += p - k
    return total


@spliced
def clearly_above(a, p, trace, other_trace, share):
    """A cheap sufficient condition for A - share C to be positive definite, given the factor of A and both traces.

    lambda_min(A) >= det A ((p - 1) / tr A)^(p - 1) by the arithmetic-geometric mean, and lambda_max(C) <= tr C.
    """
    bound, diagonal = share * other_trace, 0
    for i in range(p):
        bound *= a[diagonal] * trace
        if i > 0:
            bound *= 1.0 / (p - 1)
        diagonal += p - i
    return trace > bound


@jit
def above(gram, c, ridge, share, p, aside):
    """Whether A - share C is positive definite: the exact and slower form of `clearly_above`."""
    size = packed_size(p)
    trial = part(aside, 0, size)
    write_corrected_once(gram, c, 1.0 + share, ridge, p, trial)
    return factor_once(trial, p, part(aside, size, 2 * p))


@spliced
def write_corrected(gram, c, share, ridge, p, out):
    """out = G + ridge I - share C, packed; returns the traces of that and of C."""
    for k in range(packed_size(p)):
        out[k] = gram[k] - share * c[k]
    trace, other_trace, k = 0.0, 0.0, 0
    for i in range(p):
        out[k] += ridge
        trace += out[k]
        other_trace += c[k]
        k += p - i
    return trace, other_trace


@seldom
def write_corrected_once(gram, c, share, ridge, p, out):
    """`write_corrected` as a function of its own."""
    return write_corrected(gram, c, share, ridge, p, out)


@seldom
def solve_indefinite(gram, c, ridge, p, theta, work):
    """The bare formula where its matrix is indefinite (guard="never"): elimination with partial pivoting."""
    wide = p + 1
    k = 0
    for i in range(p):
        for j in range(i, p):
            value = gram[k] - c[k] + (ridge if i == j else 0.0)
            work[i * wide + j] = value
            work[j * wide + i] = value
            k += 1
        work[i * wide + p] = theta[i]
    for j in range(p):
        top = j
        for i in range(j + 1, p):
            if abs(work[i * wide + j]) > abs(work[top * wide + j]):
                top = i
        if not abs(work[top * wide + j]) > 0.0:
            return SINGULAR
        for k in range(wide):
            work[j * wide + k], work[top * wide + k] = work[top * wide + k], work[j * wide + k]
        for i in range(j + 1, p):
            ratio = work[i * wide + j] / work[j * wide + j]
            for k in range(j, wide):
                work[i * wide + k] -= ratio * work[j * wide + k]
    for i in range(p - 1, -1, -1):
        s = work[i * wide + p]
        for k in range(i + 1, p):
            s -= work[i * wide + k] * theta[k]
        theta[i] = s / work[i * wide + i]
    return SOLVED


@jit
def pack_errors(error_cov, intercept):
    """Error covariances (C, d, d) as packed rows (C, size)."""
    packed = np.empty((error_cov.shape[0], packed_size(error_cov.shape[1] + intercept)))
    for c in range(error_cov.shape[0]):
        write_packed(error_cov[c], intercept, packed[c])
    return packed


@spliced
def write_packed(error_cov, intercept, out):
    """An error covariance, packed; zero for features of ones."""
    d, k = error_cov.shape[0], 0
    for i in range(intercept):
        for _ in range(d + intercept - i):
            out[k] = 0.0
            k += 1
    for i in range(d):
        for j in range(i, d):
            out[k] = error_cov[i, j]
            k += 1


@jit
def acceptable(x):
    """Whether every entry is a number of usable size (false for NaN and infinities)."""
    for i in range(x.size):
        if not abs(x[i]) <= LARGEST:
            return False
    return True


@jit
def is_covariance(s, work):
    """Whether s is symmetric and positive semidefinite up to rounding, in the scale of each variable, with no variance that should be 0.

    `work` has room for a packed matrix and two vectors.
    """
    d = s.shape[0]
    k = 0
    for i in range(d):
        if not 0.0 <= s[i, i] <= LARGEST or 0.0 < s[i, i] < LEAST_VARIANCE:
            return False
        for j in range(i, d):
            slack = 1e-9 * math.sqrt(s[i, i] * abs(s[j, j]))
            if not abs(s[i, j] - s[j, i]) <= slack or (slack == 0.0 and i != j and s[i, j] != 0.0):
                return False
            work[k] = s[i, j]
            k += 1
        work[k - d + i] = s[i, i] * (1.0 + 1e-9) if s[i, i] > 0.0 else 1.0
    return factor_once(work, d, part(work, k, 2 * d))
