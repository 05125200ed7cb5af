"""Floating-point precision: how much rounding loses, and what is refused because of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mebandit import checks
from mebandit.estimation.moments import Crossproducts
from mebandit.values import Floats

LOST = 1e-4
"""the relative rounding error of a corrected Gram matrix above which nothing is estimated"""

TOO_FAR_APART = (
    "the numbers of a log must be of sizes that can be computed with together; got {}. Measure features and rewards in units in which they "
    "are neither very large nor very small."
)


def digits_lost(products: Crossproducts) -> Floats:
    """The relative rounding error of each feature, (d,).

    It is about 2e-16 (m/s)² in the Gram matrix and 2e-16 (m/s)(m_r/s_r) in its products with the reward. m and s are the mean and the
    standard deviation of the feature, m_r and s_r those of the reward. It is 0 for constant features.
    """
    sums = products.full[0].sum(axis=0)
    n = max(sums[0, 0], 1.0)
    mean = sums[0, 1:] / n
    variance = np.diag(sums)[1:] / n - mean**2
    ratio = np.abs(mean) / np.sqrt(np.maximum(variance, 1e-16 * np.maximum(mean**2, 1e-300)))
    moving = variance[:-1] > 1e-14 * mean[:-1] ** 2
    return np.where(moving, 2.2e-16 * ratio[:-1] * np.maximum(ratio[:-1], ratio[-1]), 0.0)


def check_digits(products: Crossproducts) -> None:
    """Refuse a log in which the relative rounding error of a feature is above `LOST`."""
    lost = digits_lost(products)
    if lost.max() > LOST:
        i = int(lost.argmax())
        rule = "not be so far from 0, compared with their spread, that rounding spoils the estimates"
        remedy = "Subtract a constant from both: with an intercept or a constant feature only the intercept changes."
        raise checks.SingularMoments(f"feature {i} and the rewards must {rule}; got a relative rounding error of {lost[i]:.1g}. {remedy}")


@contextmanager
def of_usable_sizes() -> Iterator[None]:
    """Turn a failure of linear algebra on numbers that overflowed into a `SingularMoments` that says what to do."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except np.linalg.LinAlgError as error:
        raise checks.SingularMoments(TOO_FAR_APART.format("matrices that are not finite")) from error
