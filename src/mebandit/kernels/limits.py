"""Sizes of numbers: what inputs may have, and what keeps products and sums of them finite."""

# Sizes at which products and sums of inputs could leave the floating-point range; nothing measured is as large.
LARGEST = 1e50

# A variance of an error below this, a standard deviation below 1 / LARGEST, is none: `checks.covariance` takes it as 0.
LEAST_VARIANCE = 1e-100

# A smaller propensity is refused, since its weight would drown everything else, and no action that has one is drawn.
LEAST = 1e-12

# The probabilities of a stored round may be rounded: their sum may differ from 1 by this.
ROUNDED = 1e-3

# Products of two numbers of this size are finite, and with usable ones: what is larger is no solution, and no evidence.
LARGEST_FACTOR = 1e100

# Sums of numbers of at most this size are finite.
LARGEST_SUM = 1e300
