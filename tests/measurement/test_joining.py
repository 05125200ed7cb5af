"""Several error models as one."""

from pathlib import Path

import numpy as np

import mebandit as mb
from mebandit.measurement import from_confusion, from_known, from_replicates, from_validation, join
from tests.measurement.cases import MODELS, assert_same, play


def test_joined_models_have_each_its_features_in_their_places() -> None:
    s, t = MODELS["biased"]().named("a", "b"), MODELS["misclassified"]().named("u", "v", "w")
    model = join(s, t, features=["v", "b", "one", "w", "a", "u"])
    assert model.features == ("v", "b", "one", "w", "a", "u")
    own, other = [4, 1], [5, 0, 3]
    x = np.random.default_rng(0).normal(0, 1, (7, 6))
    shares = np.array([0.5, 0.0, 1.0, 0.2, 0.0, 0.3])
    pairs = [
        (s.error_cov, t.error_cov, model.error_cov),
        (s.error_cov_std_error, t.error_cov_std_error, model.error_cov_std_error),
        (s.error_cov, t.error_cov_in(shares[other]), model.error_cov_in(shares)),
    ]
    for first, second, both in pairs:
        expected = np.zeros((6, 6))
        expected[np.ix_(own, own)], expected[np.ix_(other, other)] = first, second
        np.testing.assert_allclose(both, expected, atol=1e-12)
    np.testing.assert_allclose(model.unbias(x)[:, own], s.unbias(x[:, own]))
    np.testing.assert_allclose(model.unbias(x)[:, other], t.unbias(x[:, other]))
    np.testing.assert_array_equal(model.unbias(x)[:, 2], x[:, 2])
    assert model.unbiases
    assert not join(from_known([0.1]), MODELS["replicates"]()).unbiases


def test_joining_in_steps_is_joining_at_once(tmp_path: Path) -> None:
    a, b, c = MODELS["biased"]().named("a", "b"), from_known([0.3]).named("c"), MODELS["misclassified"]().named("u", "v", "w")
    order = ["v", "a", "w", "c", "b", "u"]
    once, twice = join(a, b, c, features=order), join(join(a, b, features=["b", "c", "a"]), c, features=order)
    assert_same(once, twice)
    once.save(tmp_path / "joined.json")
    assert_same(mb.ErrorModel.load(tmp_path / "joined.json"), once)
    assert join(a.named(), b, c).features == ()


def test_an_estimate_with_a_joined_model_is_right_and_knows_how_sure_it_is() -> None:
    """Sixty trials, each with its own hundred pairs of one feature, replicates of another and counts of a class: θ is off by as much as
    its standard errors say, most of which come from the error model."""
    theta, z, shares = np.array([[0.5, -1.0, 0.3, 0.8], [0.0, 1.0, -0.6, -0.4]]), [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, 77])
        x = rng.normal([1.0, 2.0], [1.0, 1.5], (3000, 2))
        true = rng.choice(2, 3000, p=[0.6, 0.4])
        seen = np.where(rng.random(3000) < 0.15, 1 - true, true)
        stress = 0.4 + 0.7 * x[:, 0] + rng.normal(0, 0.4, 3000)
        steps = x[:, 1] + rng.normal(0, 0.8, 3000)
        truth, start = np.column_stack([x[:, 0], np.eye(2)[true], x[:, 1]]), rng.normal(1, 1, 100)
        counts = rng.multinomial(150, [[0.85, 0.15], [0.15, 0.85]])
        models = [
            from_validation((0.4 + 0.7 * start + rng.normal(0, 0.4, 100))[:, None], start[:, None], assume="biased").named("stress"),
            from_replicates(rng.normal(0, 3, (100, 1, 1)) + rng.normal(0, 0.8, (100, 2, 1))).named("steps"),
            from_confusion(counts).named("idle", "active"),
        ]
        model = join(*models, features=["stress", "idle", "active", "steps"])
        log = play(np.column_stack([stress, np.eye(2)[seen], steps]), truth, theta, seed, column=0)
        names = {name: log[0][:, j] for j, name in enumerate(model.features)} | dict(
            zip(("action", "reward", "propensity"), log[1:], strict=True)
        )
        found = mb.fit(names, predicted=model.features, error_cov=model, methods="dr", progress=False).estimates["dr"]
        assert found.model_covariance is not None
        z.append(((found.theta - theta) / found.std_error)[:, [0, 3]])  # the classes' intervals are known to be too wide
        shares.append((np.diag(found.model_covariance) / np.diag(found.covariance)).reshape(2, 4)[:, [0, 3]])
    spread = np.mean(np.square(z), axis=0)
    assert ((spread > 0.5) & (spread < 1.8)).all()  # chi-square on 60, over 60: within 4 standard deviations
    assert np.median(shares) > 0.5
