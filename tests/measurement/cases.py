"""Pairs, logs and error models that the tests of error models share."""

import dataclasses
from collections.abc import Callable

import numpy as np

import mebandit as mb
from mebandit.measurement import from_confusion, from_known, from_replicates, from_validation, from_variances, join
from mebandit.values import Floats

MIX = np.array(
    [[1.0, 0.4, 0.0, 0.2, 0.1], [0.0, 1.0, 0.3, 0.0, 0.2], [0.1, 0.0, 1.0, 0.4, 0.0], [0.0, 0.1, 0.0, 1.0, 0.3], [0.2, 0, 0, 0, 1]]
)
CONFUSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.1, 0.85]])


def make_pairs(kind: str, d: int, n: int, seed: int, *, skewed: bool = False, intercept: bool = False) -> tuple[Floats, Floats]:
    """(predicted, truth) with error of a kind; skewed: exponential contexts, and skewed errors whose variance grows with the level."""
    rng = np.random.default_rng([seed, d])

    def draw() -> Floats:
        return rng.exponential(1, (n, d)) - 1 if skewed else rng.normal(0, 1, (n, d))

    start = 1 + draw() @ MIX[:d, :d]
    error = 0.55 * draw() * (np.sqrt(0.5 + 0.5 * np.minimum(start**2, 9)) if skewed else 1.0)
    if kind == "berkson":
        predicted, truth = start, start + error
    else:
        predicted, truth = (start if kind == "classical" else 0.3 + 1.3 * start) + error, start
    ones = np.ones((n, int(intercept)))
    return np.hstack([ones, predicted]), np.hstack([ones, truth])


def play(predicted: Floats, truth: Floats, theta: Floats, seed: int, column: int = -1) -> tuple[Floats, Floats, Floats, Floats]:
    """A log: two actions, drawn by a policy that reads the prediction."""
    rng = np.random.default_rng(seed)
    chance = 0.15 + 0.7 / (1 + np.exp(-2 * (predicted[:, column] - predicted[:, column].mean())))
    actions = (rng.random(len(truth)) < chance).astype(int)
    rewards = np.einsum("td,td->t", theta[actions], truth) + rng.normal(0, 0.3, len(truth))
    return predicted, actions, rewards, np.where(actions == 1, chance, 1 - chance)


def assert_same(a: mb.ErrorModel, b: mb.ErrorModel) -> None:
    for field in dataclasses.fields(mb.ErrorModel):
        first, second = getattr(a, field.name), getattr(b, field.name)
        if isinstance(first, np.ndarray):
            np.testing.assert_array_equal(first, second)
        elif field.name == "parts":
            assert len(first) == len(second)
            for one, other in zip(first, second, strict=True):
                assert one.places.tolist() == other.places.tolist()
                assert_same(one.model, other.model)
        else:
            assert first == second


MODELS: dict[str, Callable[[], mb.ErrorModel]] = {
    "known": lambda: from_known([[0.3, 0.1], [0.1, 0.2]]),
    "replicates": lambda: from_replicates(np.random.default_rng(1).normal(0, 1, (50, 3, 2)) + np.arange(50)[:, None, None]),
    "classical": lambda: from_validation(*make_pairs("classical", 2, 500, 1), assume="classical"),
    "berkson": lambda: from_validation(*make_pairs("berkson", 2, 500, 1, intercept=True), assume="berkson"),
    "biased": lambda: from_validation(*make_pairs("biased", 2, 500, 1)),
    "misclassified": lambda: from_confusion(np.round(CONFUSION * 300)),
    "reported": lambda: from_variances(
        np.full((500, 2), 0.3), **dict(zip(("predicted", "truth"), make_pairs("classical", 2, 500, 3), strict=True))
    ),
    "joined": lambda: join(
        from_confusion([[80, 20], [10, 90]], reference=1), MODELS["replicates"](), MODELS["misclassified"](), MODELS["biased"]()
    ),
}
