"""What the tests of the estimators share."""

import numpy as np

import mebandit as mb
from tests.strategies import Case


def estimate(case: Case, **options: object) -> mb.Estimate:
    settings: dict[str, object] = {"n_actions": case.n_actions, "ridge": 0.5, "stabilizer": case.stabilizer, "sandwich": "hc0"} | options
    return mb.estimate(case.x, case.actions, case.r, case.propensities, case.sigma, **settings)  # type: ignore[arg-type]


def close(ours: object, theirs: object, condition: float = 1.0) -> None:
    """Agreement to rounding, given the condition number of the matrix solved with."""
    scale = float(np.abs(np.asarray(theirs)).max()) + 1e-300
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=1e-12 * max(condition, 1.0) * scale)


def full_rank(case: Case) -> bool:
    return bool((np.bincount(case.actions, minlength=case.n_actions) > case.x.shape[1] + 1).all())
