"""Error models of predicted classes, and estimates made with them. A tolerance of 4.5 is in standard errors."""

import numpy as np
import pytest

import mebandit as mb
from mebandit.measurement import from_confusion, from_known, join
from tests.measurement.cases import CONFUSION, play


def test_confusion_by_hand() -> None:
    model = from_confusion([[80, 20], [10, 90]])
    np.testing.assert_allclose(model.slope, [[0.8, 0.1], [0.2, 0.9]])
    determinant = 0.7
    V0, V1 = 0.8 * 0.2 / determinant**2, 0.1 * 0.9 / determinant**2
    np.testing.assert_allclose(model.error_cov, (V0 + V1) / 2 * np.array([[1, -1], [-1, 1]]))
    np.testing.assert_allclose(model.error_cov_in([0.25, 0.75])[0, 0], 0.25 * V0 + 0.75 * V1)
    np.testing.assert_allclose(model.error_cov_in([-0.1, 2.0])[0, 0], V1)
    np.testing.assert_allclose(model.unbias(np.eye(2)).sum(axis=1), 1)
    given = from_confusion([[0.8, 0.2], [0.1, 0.9]], prevalence=[1, 0])
    assert given.error_cov[0, 0] == pytest.approx(V0)
    assert not given.parameters_cov.any()
    assert from_known(0.2, 2).error_cov_in([0.5, 0.5])[0, 0] == 0.2


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_a_class_without_a_column_changes_nothing_for_the_others(reference: int) -> None:
    """x̃ sums to 1, so that the column of a class says nothing that the others do not: everything is that of all classes, without it."""
    counts = np.round(CONFUSION * [[300], [200], [500]])
    whole, model, left = from_confusion(counts), from_confusion(counts, reference=reference), [i for i in range(3) if i != reference]
    sub, mean = np.ix_(left, left), np.array([0.5, 0.2, 0.3])
    np.testing.assert_allclose(model.unbias(np.eye(3)[:, left]), whole.unbias(np.eye(3))[:, left], atol=1e-12)
    np.testing.assert_allclose(model.error_cov, whole.error_cov[sub], atol=1e-12)
    np.testing.assert_allclose(model.error_cov_std_error, whole.error_cov_std_error[sub], rtol=1e-5)
    np.testing.assert_allclose(model.error_cov_in(mean[left]), whole.error_cov_in(mean)[sub], atol=1e-12)
    order = [reference, *left]
    np.testing.assert_allclose(model.class_probabilities, CONFUSION.T[np.ix_(order, order)], atol=0.01)
    rng = np.random.default_rng(2)
    true = rng.choice(3, 4000, p=mean)
    seen = np.eye(3)[(rng.random(4000)[:, None] > np.cumsum(CONFUSION[true], axis=1)).sum(axis=1)]
    log = play(seen, np.eye(3)[true], np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]]), 3)
    with_all = mb.estimate(*log, whole, method="dr")
    without = mb.estimate(seen[:, left], *log[1:], model, method="dr", intercept=True)
    np.testing.assert_allclose(without.intercept, with_all.theta[:, reference], rtol=1e-6)
    np.testing.assert_allclose(without.intercept_std_error, with_all.std_error[:, reference], rtol=1e-3)  # derivatives by differences
    np.testing.assert_allclose(without.theta + without.intercept[:, None], with_all.theta[:, left], rtol=1e-6)


def test_a_confusion_matrix_is_told_by_class_and_doubted_where_it_looks_turned() -> None:
    words = from_confusion([[80, 20], [10, 90]]).describe(["idle", "active"])
    assert (
        "when 'idle' is true, the prediction is 'idle' 0.80, 'active' 0.20\nwhen 'active' is true, the prediction is 'idle' 0.10, " in words
    )
    assert "mostly predicted" not in words
    turned = from_confusion([[20, 80], [90, 10]], reference=0).describe(["active"])
    assert "when the reference class is true, the prediction is the reference class 0.20, 'active' 0.80" in turned
    assert "the reference class is mostly predicted as another class: check that rows are the truth" in turned


@pytest.mark.parametrize("reference", [None, 1])
def test_predictions_that_are_no_classes_are_refused_with_a_confusion_matrix(reference: int | None) -> None:
    rng = np.random.default_rng(4)
    model, left = from_confusion(np.round(CONFUSION * 300), reference=reference), [0, 2] if reference else [0, 1, 2]
    classes = np.eye(3)[rng.integers(0, 3, 200)]
    log = (rng.integers(0, 2, 200), rng.normal(size=200), np.full(200, 0.5))
    mb.estimate(classes[:, left], *log, model)
    two, half = classes.copy(), classes.copy()
    two[7, left], half[7] = 1.0, [0.5, 0.2, 0.3]
    for wrong in (two, half, *([classes * (np.arange(200) != 7)[:, None]] if reference is None else [])):
        with pytest.raises(mb.InvalidInput, match=r"the predicted classes \(coordinate 0, .*\) must be 1 for the class that was predicted"):
            mb.estimate(wrong[:, left], *log, model)
    with pytest.raises(mb.InvalidInput, match=r"the predicted classes \(a, b.*\) must be 1 for the class that was predicted"):
        mb.estimate(np.c_[half[:, left], log[1]], *log, join(model.named(*"abc"[: model.dim]), from_known([0.1]).named("x")))


def test_a_class_that_is_never_confused_has_no_error() -> None:
    model = from_confusion([[50, 0, 0], [0, 40, 10], [0, 5, 45]])
    assert not model.error_cov[0].any()
    assert not model.error_cov_std_error[0].any()


def test_an_estimate_from_predicted_classes_finds_the_truth() -> None:
    rng = np.random.default_rng(10)
    theta = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]])
    true = rng.choice(3, 60_000, p=[0.6, 0.3, 0.1])
    seen = (rng.random(60_000)[:, None] > np.cumsum(CONFUSION[true], axis=1)).sum(axis=1)
    model = from_confusion(CONFUSION)
    x̃ = np.eye(3)[seen]
    log = play(x̃, np.eye(3)[true], theta, 1)
    unbiased = model.unbias(x̃)
    found = mb.estimate(unbiased, *log[1:], model.error_cov_in(unbiased.mean(axis=0)))
    assert (np.abs(found.theta - theta) < 4.5 * found.std_error).all()
    assert np.abs(mb.estimate(*log, 0.0, method="ridge").theta - theta).max() > 0.2
