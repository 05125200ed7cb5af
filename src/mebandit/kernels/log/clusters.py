"""What is summed of a stored log by cluster."""

import numpy as np

from ..compile import jit
from ..layout import entry


@jit
def add_unit_products(products, unit, log):
    """Sums of vv', v = (1, x~, r), by unit, packed, (units, 3, K, size): with the weights 1{a_t = a}, c u and c, see `add_products`."""
    d, n = log.predicted.shape
    v = np.ones(d + 2)
    for t in range(n):
        for i in range(d):
            v[1 + i] = log.predicted[i, t]
        v[d + 1] = log.rewards[t]
        own, s, a = products[unit[t]], entry(t, log.stabilizer.shape[0]), log.actions[t]
        w = log.stabilizer[s, a] / log.propensities[t]
        for b in range(own.shape[1]):
            c = log.stabilizer[s, b] if log.allowed[entry(t, log.allowed.shape[0]), b] else 0.0
            k = 0
            for i in range(d + 2):
                for j in range(i, d + 2):
                    product = v[i] * v[j]
                    own[2, b, k] += c * product
                    if b == a:
                        own[0, b, k] += product
                        own[1, b, k] += w * product
                    k += 1
