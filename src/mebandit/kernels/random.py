"""Counted randomness: a random number is a function of where it is used; normal quantiles."""

import math

import numpy as np

from .compile import inlined, jit, quotient

# What a pair of uniforms is for: decisions, the mixture component, the user, then auxiliary data, context, error and reward noise from
# these numbers on.
LIVE, DECISION, COMPONENT, USER, CONTEXT, ERROR, NOISE, AUXILIARY = 0, 1, 2, 3, 1 << 8, 1 << 16, 1 << 24, 1 << 25
_U32 = np.uint64(0xFFFFFFFF)


@inlined
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 of Salmon et al. (2011): four 32-bit words for a counter (c0..c3) under a key (k0, k1)."""
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * np.uint64(c0)
        p1 = np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(p1 >> np.uint64(32)) ^ np.uint32(c1) ^ np.uint32(k0)
        c2 = np.uint32(p0 >> np.uint64(32)) ^ np.uint32(c3) ^ np.uint32(k1)
        c1 = np.uint32(p1)
        c3 = np.uint32(p0)
        k0 = np.uint32(k0 + np.uint32(0x9E3779B9))
        k1 = np.uint32(k1 + np.uint32(0xBB67AE85))
    return c0, c1, c2, c3


@inlined
def uniform_pair(seed, cell, replicate, time, purpose):
    """Two independent uniforms in (0, 1), a pure function of where they are used (53 bits each)."""
    c0, c1, c2, c3 = philox(
        np.uint32(time),
        np.uint32(purpose),
        np.uint32(replicate),
        np.uint32(cell),
        np.uint32(np.uint64(seed) & _U32),
        np.uint32(np.uint64(seed) >> np.uint64(32)),
    )
    first = (np.uint64(c0) << np.uint64(21)) ^ (np.uint64(c1) >> np.uint64(11))
    second = (np.uint64(c2) << np.uint64(21)) ^ (np.uint64(c3) >> np.uint64(11))
    return (np.float64(first) + 0.5) * 2.0**-53, (np.float64(second) + 0.5) * 2.0**-53


@inlined
def normal_quantile(u):
    """The standard normal quantile, to a few units in the 15th digit."""
    q = u - 0.5
    x = central_quantile(q)
    if abs(q) > CENTRAL:
        x = tail_quantile(q, math.sqrt(-math.log(min(u, 1.0 - u))))
    return x


CENTRAL = 0.498  # half the share of all values, those within 2.88 of 0, that one rational function serves


@inlined
def central_quantile(q):
    """For u = 1/2 + q in the middle: x = q A(r) / B(r), r = CENTRAL^2 - q^2, both of degree 14 with positive coefficients.

    The rational function with the least largest relative error, 8e-17 (`scripts/normal_quantile.py` finds it). So wide a middle, because
    a GPU's 32 threads in step all wait when one of them is in a tail.
    """
    r = CENTRAL * CENTRAL - q * q
    s = r * r
    even = 6.361926041597229e19 * s + 2.108422812802713e21
    even = ((even * s + 4.32038529688751e20) * s + 4.568313028261998e18) * s + 4411639363018253.0
    even = ((even * s + 497025193376.16925) * s + 6675654.111411372) * s + 5.779441243163621
    odd = 9.707056752815622e20 * s + 1.4697318922600763e21
    odd = ((odd * s + 6.138192602294497e19) * s + 1.8767747840100467e17) * s + 60782826590314.914
    odd = (odd * s + 2404242006.086179) * s + 9753.998751918556
    a = odd * r + even
    even = 1.410057384674648e20 * s + 1.2241332075610327e21
    even = ((even * s + 1.573965750976574e20) * s + 1.2655521406879736e18) * s + 1017257130734300.2
    even = ((even * s + 100780398159.64357) * s + 1234955.8624500933) * s + 1.0
    odd = 8.579390656664661e20 * s + 6.514749522932839e20
    odd = ((odd * s + 1.921101747986153e19) * s + 4.703592662406788e16) * s + 13070520687499.021
    odd = (odd * s + 463899775.0712329) * s + 1740.7103941133946
    b = odd * r + even
    return quotient(q * a, b)


@inlined
def tail_quantile(q, r):
    """For u = 1/2 + q in a tail, r^2 = -log min(u, 1 - u): the tails of algorithm AS 241 (Wichura 1988)."""
    if r <= 5.0:
        r -= 1.6
        a = 7.7454501427834140764e-4 * r + 0.0227238449892691845833
        a = ((a * r + 0.24178072517745061177) * r + 1.27045825245236838258) * r + 3.64784832476320460504
        a = ((a * r + 5.7694972214606914055) * r + 4.6303378461565452959) * r + 1.42343711074968357734
        b = 1.05075007164441684324e-9 * r + 5.475938084995344946e-4
        b = ((b * r + 0.0151986665636164571966) * r + 0.14810397642748007459) * r + 0.68976733498510000455
        b = ((b * r + 1.6763848301838038494) * r + 2.05319162663775882187) * r + 1.0
    else:
        r -= 5.0
        a = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
        a = ((a * r + 0.0012426609473880784386) * r + 0.026532189526576123093) * r + 0.29656057182850489123
        a = ((a * r + 1.7848265399172913358) * r + 5.4637849111641143699) * r + 6.6579046435011037772
        b = 2.04426310338993978564e-15 * r + 1.4215117583164458887e-7
        b = ((b * r + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4) * r + 0.0148753612908506148525
        b = ((b * r + 0.13692988092273580531) * r + 0.59983220655588793769) * r + 1.0
    return a / b if q > 0 else -a / b


@jit
def normal_cdf(x):
    return 0.5 * math.erfc(-x * 0.7071067811865475244)
