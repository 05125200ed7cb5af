"""Random logs for property tests."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray


class Case(NamedTuple):
    """A log with everything that can vary: K, d, per-round covariance, stabilizer, restricted rounds."""

    x: NDArray[np.float64]
    actions: NDArray[np.int64]
    r: NDArray[np.float64]
    propensities: NDArray[np.float64]
    sigma: NDArray[np.float64]
    stabilizer: NDArray[np.float64]
    n_actions: int

    @property
    def allowed(self) -> NDArray[np.bool_]:
        return self.propensities > 0

    @property
    def taken(self) -> NDArray[np.float64]:
        return self.propensities[np.arange(len(self.actions)), self.actions]


@st.composite
def logs(draw: st.DrawFn, *, rounds: tuple[int, int] = (1, 60), restricted: bool = True, error: float = 0.3) -> Case:
    """A log drawn by numpy from a hypothesis seed: shapes shrink, numbers stay generic."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, d = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    n = draw(st.integers(*rounds))
    x = rng.normal(0.5, 1.0, (n, d))
    allowed = np.ones((n, k), dtype=bool)
    if restricted:
        allowed = rng.random((n, k)) < 0.8
        allowed[np.arange(n), rng.integers(k, size=n)] = True
    scores = rng.uniform(0.2, 1.0, (n, k)) * allowed
    propensities = scores / scores.sum(axis=1, keepdims=True)
    actions = np.array([rng.choice(k, p=row) for row in propensities])
    factor = rng.normal(0, np.sqrt(error / d), (n, d, d))
    stabilizer = rng.uniform(0.2, 1.0, (n, k)) if draw(st.booleans()) else np.tile(rng.uniform(0.2, 1.0, (1, k)), (n, 1))
    return Case(x, actions, rng.normal(size=n), propensities, factor @ factor.transpose(0, 2, 1), stabilizer, k)
