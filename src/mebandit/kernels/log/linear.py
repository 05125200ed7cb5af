"""Linear and quadratic functions of the features, and sums of products, over many rounds of a stored log at a time.

Features come in fives, the most usual number, filled up with rows of zeros: a round's are then read once for a whole function of them.
"""

from ..compile import jit, summing
from .crossproducts import CHUNK

FIVE = 5


@jit
def fill(out, value):
    """The same number everywhere."""
    for k in range(out.size):
        out[k] = value


@summing
def add_linear(out, slope, x, start):
    """out += slope'x at the rounds of x from `start` on."""
    end, single = start + out.size, slope.size % FIVE
    for i in range(single):
        x0, c0 = x[i, start:end], slope[i]
        for k in range(out.size):
            out[k] += c0 * x0[k]
    for i in range(single, slope.size, FIVE):
        x0, x1, x2, x3, x4 = x[i, start:end], x[i + 1, start:end], x[i + 2, start:end], x[i + 3, start:end], x[i + 4, start:end]
        c0, c1, c2, c3, c4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        for k in range(out.size):
            out[k] += c0 * x0[k] + c1 * x1[k] + c2 * x2[k] + c3 * x3[k] + c4 * x4[k]


@summing
def write_linear(out, coefficients, x, start):
    """out = c_0 + c'x at the rounds of x from `start` on, x in fives."""
    end = start + out.size
    x0, x1, x2, x3, x4 = x[0, start:end], x[1, start:end], x[2, start:end], x[3, start:end], x[4, start:end]
    level, c0, c1, c2, c3, c4 = coefficients[0], coefficients[1], coefficients[2], coefficients[3], coefficients[4], coefficients[5]
    for k in range(out.size):
        out[k] = level + c0 * x0[k] + c1 * x1[k] + c2 * x2[k] + c3 * x3[k] + c4 * x4[k]
    if x.shape[0] > FIVE:
        add_linear(out, coefficients[1 + FIVE :], x[FIVE:], start)


@jit
def write_quadratic(out, table, x, start):
    """out = (1, x)'A (1, x) at the rounds of x from `start` on, for a table A that is zero below its diagonal, x in fives."""
    fill(out, 0.0)
    add_quadratic(out, table, x, start)


@summing
def add_quadratic(out, table, x, start):
    """`write_quadratic`, added to what is there."""
    end = start + out.size
    for i in range(1, table.shape[0], FIVE):
        own = table[i : i + FIVE, i : i + FIVE]
        x0, x1, x2, x3, x4 = x[i - 1, start:end], x[i, start:end], x[i + 1, start:end], x[i + 2, start:end], x[i + 3, start:end]
        level = table[0, 0] if i == 1 else 0.0
        c0, c1, c2, c3, c4 = table[0, i], table[0, i + 1], table[0, i + 2], table[0, i + 3], table[0, i + 4]
        a00, a01, a02, a03, a04 = own[0, 0], own[0, 1], own[0, 2], own[0, 3], own[0, 4]
        a11, a12, a13, a14 = own[1, 1], own[1, 2], own[1, 3], own[1, 4]
        a22, a23, a24, a33, a34, a44 = own[2, 2], own[2, 3], own[2, 4], own[3, 3], own[3, 4], own[4, 4]
        for k in range(out.size):
            y0, y1, y2, y3, y4 = x0[k], x1[k], x2[k], x3[k], x4[k]
            first = y0 * (c0 + a00 * y0 + a01 * y1 + a02 * y2 + a03 * y3 + a04 * y4)
            second = y1 * (c1 + a11 * y1 + a12 * y2 + a13 * y3 + a14 * y4)
            rest = y2 * (c2 + a22 * y2 + a23 * y3 + a24 * y4) + y3 * (c3 + a33 * y3 + a34 * y4) + y4 * (c4 + a44 * y4)
            out[k] += level + first + second + rest
        for row in range(i, i + FIVE if i + FIVE < table.shape[0] else i):
            add_times_linear(out, x[row - 1, start:end], table[row, i + FIVE :], x[i + FIVE - 1 :], start)


@summing
def add_times_linear(out, factor, slope, x, start):
    """out += factor slope'x at the rounds of x from `start` on, x in fives."""
    end = start + out.size
    for i in range(0, slope.size, FIVE):
        x0, x1, x2, x3, x4 = x[i, start:end], x[i + 1, start:end], x[i + 2, start:end], x[i + 3, start:end], x[i + 4, start:end]
        c0, c1, c2, c3, c4 = slope[i], slope[i + 1], slope[i + 2], slope[i + 3], slope[i + 4]
        for k in range(out.size):
            out[k] += factor[k] * (c0 * x0[k] + c1 * x1[k] + c2 * x2[k] + c3 * x3[k] + c4 * x4[k])


@jit
def affine(x, matrix, offset, out):
    """out = offset + matrix x for every round; for a matrix this small, faster than a library call that wakes its own threads."""
    d, n = x.shape
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        for i in range(d):
            fill(out[i, start:end], offset[i])
            add_linear(out[i, start:end], matrix[i], x, start)


@jit
def add(out, x, times):
    """out += times x, round by round."""
    for k in range(out.size):
        out[k] += times * x[k]


@jit
def multiply(out, x, times):
    """out times x times a number in the place of out, round by round."""
    for k in range(out.size):
        out[k] *= times * x[k]


@jit
def add_product(out, x, y, times):
    """out += times x y, round by round."""
    for k in range(out.size):
        out[k] += times * (x[k] * y[k])


@jit
def add_outer(sums, rows, size, first, end):
    """Sums of the products of the first `size` rows with each other and with all rows, over the rounds first, ..., end - 1, in the upper
    triangle. Two rows with two rows at a time, so that what is loaded once is used twice; a row without a pair is its own."""
    last = rows.shape[0] - 1
    for i in range(0, size, 2):
        below = min(i + 1, last)
        for j in range(i, last + 1, 2):
            beside = min(j + 1, last)
            a, b, x, y = rows[i, first:end], rows[below, first:end], rows[j, first:end], rows[beside, first:end]
            one, two, three, four = products_of_pairs(a, b, x, y)
            sums[i, j] += one
            if beside > j:
                sums[i, beside] += two
            if below > i and j > i:
                sums[below, j] += three
            if below > i and beside > j:
                sums[below, beside] += four


@summing
def products_of_pairs(a, b, x, y):
    """a'x, a'y, b'x and b'y."""
    ax, ay, bx, by = 0.0, 0.0, 0.0, 0.0
    for k in range(a.size):
        ax += a[k] * x[k]
        ay += a[k] * y[k]
        bx += b[k] * x[k]
        by += b[k] * y[k]
    return ax, ay, bx, by


@summing
def total(x):
    """The sum."""
    found = 0.0
    for k in range(x.size):
        found += x[k]
    return found
