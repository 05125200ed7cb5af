"""Compute the rational function of `mebandit.kernels.random.central_quantile`, and its error in floating point.

    python scripts/normal_quantile.py            (needs mpmath; takes a minute)

With x(q) the normal quantile at 1/2 + q and r = c^2 - q^2, it minimises max |A(r) / (B(r) x(q) / q) - 1| over 0 < q < c: least squares for
A - B x/q, reweighted by the last B (Sanathanan and Koerner) and, for the largest error to become least, by the last errors (Lawson).
"""

import mpmath as mp  # type: ignore[import-not-found]
import numpy as np

from mebandit import kernels

CENTRAL, DEGREE, NODES, ROUNDS = "0.498", 14, 220, 30


def found() -> tuple[mp.mpf, list[mp.mpf], list[mp.mpf]]:
    """The largest relative error of the best A and B, and their coefficients from the constant on; B's is 1."""
    c = mp.mpf(CENTRAL)
    far = -mp.log(1 - 2 * c)  # nodes as Chebyshev's in -log(1 - 2q): the quantile is singular at q = 1/2
    spread = [far * (1 - mp.cos(mp.pi * (i + mp.mpf(1) / 2) / NODES)) / 2 for i in range(NODES)]
    q = [(1 - mp.e ** (-y)) / 2 for y in spread]
    f = [mp.sqrt(2) * mp.erfinv(2 * each) / each for each in q]
    powers = [[(c * c - each * each) ** k for k in range(DEGREE + 1)] for each in q]
    weight, below = [mp.mpf(1)] * NODES, [mp.mpf(1)] * NODES
    best: tuple[mp.mpf, list[mp.mpf], list[mp.mpf]] = mp.inf, [], []
    for step in range(ROUNDS):
        rows = mp.matrix([[*powers[i], *(-f[i] * power for power in powers[i][1:])] for i in range(NODES)])
        scale = mp.diag([weight[i] / (f[i] * below[i]) ** 2 for i in range(NODES)])
        solution = mp.lu_solve(rows.T * scale * rows, rows.T * scale * mp.matrix(f))
        a, b = list(solution[: DEGREE + 1]), [mp.mpf(1), *solution[DEGREE + 1 :]]
        below = [mp.fdot(b, powers[i]) for i in range(NODES)]
        errors = [abs(mp.fdot(a, powers[i]) / below[i] / f[i] - 1) for i in range(NODES)]
        best = min(best, (max(errors), a, b), key=lambda each: each[0])
        if step > 2:
            weight = [w * e for w, e in zip(weight, errors, strict=True)]
            mean = mp.fsum(weight) / NODES
            weight = [w / mean + mp.mpf("1e-12") for w in weight]
    return best


def main() -> None:
    mp.mp.dps = 80
    error, a, b = found()
    print(f"largest relative error {mp.nstr(error, 2)}")
    for name, coefficients in (("A", a), ("B", b)):
        print(name, *(f"  {float(each)!r}" for each in coefficients), sep="\n")
    mp.mp.dps = 40
    u = np.concatenate([np.random.default_rng(0).random(2000), 10.0 ** np.random.default_rng(1).uniform(-16, -0.31, 2000)])
    exact = [mp.sqrt(2) * mp.erfinv(2 * mp.mpf(float(each)) - 1) for each in u]
    away = [abs(float(mp.mpf(float(kernels.normal_quantile(each))) / x - 1)) for each, x in zip(u, exact, strict=True)]
    print(f"in floating point: at most {max(away):.1e}, on average {np.mean(away):.1e}, relative to the quantile")


if __name__ == "__main__":
    main()
