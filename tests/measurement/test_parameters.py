"""The parameters of error models and their sampling covariance."""

import numpy as np
import pytest

import mebandit as mb
from mebandit.measurement import from_confusion, from_replicates, from_validation
from tests.measurement.cases import CONFUSION, MIX, MODELS, make_pairs


def replications(kind: str, runs: int) -> list[mb.ErrorModel]:
    if kind == "misclassified":
        rngs = [np.random.default_rng([s, 8]) for s in range(runs)]
        return [
            from_confusion(
                np.array([r.multinomial(n, p) for n, p in zip((200, 300, 250), CONFUSION, strict=True)]), prevalence=[0.3, 0.4, 0.3]
            )
            for r in rngs
        ]
    if kind == "replicates":
        made = []
        for s in range(runs):
            rng = np.random.default_rng([s, 9])
            readings = rng.normal(0, 2, (200, 1, 2)) + (rng.exponential(1, (200, 3, 2)) - 1) @ MIX[:2, :2]
            readings[::3, 2] = np.nan
            made.append(from_replicates(readings, averaged=2))
        return made
    return [from_validation(*make_pairs(kind, 2, 300, s, skewed=True), assume=kind) for s in range(runs)]


@pytest.mark.parametrize("kind", ["classical", "berkson", "biased", "misclassified", "replicates"])
def test_the_sampling_covariance_is_that_over_replications(kind: str) -> None:
    """Skewed errors of growing variance; a variance over 400 runs of heavy-tailed estimates is known to some 25 %."""
    models = replications(kind, 400)
    seen = np.cov(np.array([model.parameters for model in models]).T)
    told = np.mean([model.parameters_cov for model in models], axis=0)
    free = np.diag(told) > 0
    np.testing.assert_array_equal(np.diag(seen)[~free] < 1e-20, True)
    ratio = np.diag(told)[free] / np.diag(seen)[free]
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4
    size = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))[np.ix_(free, free)]
    assert np.abs((told - seen)[np.ix_(free, free)] / size).max() < 0.35
    errors = np.array([model.error_cov for model in models])
    inside = np.array([model.error_cov_std_error for model in models])
    shares = inside.mean(axis=0) / errors.std(axis=0)
    assert ((shares > 0.75) & (shares < 1.25)).all()


def test_other_parameters_make_another_model() -> None:
    for name, make in MODELS.items():
        model = make()
        same = model.at(model.parameters)
        np.testing.assert_allclose(same.error_cov, model.error_cov, atol=1e-15)
        np.testing.assert_array_equal(same.parameters, model.parameters)
        moved = model.parameters
        moved[-1] *= 2  # the last entry of Ω
        if name == "misclassified":
            np.testing.assert_allclose(model.at(moved).error_cov, model.error_cov)
        else:
            assert model.at(moved).raw_cov[-1, -1] == 2 * model.raw_cov[-1, -1]
        if name == "reported":
            assert model.at(moved).scale[-1] == pytest.approx(2 * model.scale[-1])
