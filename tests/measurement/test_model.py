"""What every error model does, and which input is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit import measurement
from mebandit.measurement import from_confusion, from_known, from_replicates, from_validation, from_variances, join
from tests.measurement.cases import MODELS, assert_same, make_pairs


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_describes_unbiases_and_saves_itself(kind: str, tmp_path: Path) -> None:
    model = MODELS[kind]()
    assert model.kind == kind
    lines = model.describe().splitlines()
    assert lines[0].startswith(f"kind: {kind}, ")
    assert lines[-1].startswith("What to do: ")
    assert sum(line.startswith("coordinate") for line in lines) == model.dim
    names = [f"feature {j}" for j in range(model.dim)]
    assert model.describe(names) == "\n".join(re.sub(r"coordinate (\d+)", r"'feature \1'", line) for line in lines)
    with pytest.raises(mb.InvalidInput, match=r"features must be \d+ names, or none"):
        model.describe([*names, "one more"])
    x = np.random.default_rng(0).normal(0, 1, (5, model.dim))
    np.testing.assert_allclose(model.unbias(x) @ model.slope.T + model.offset, x, atol=1e-12)
    np.testing.assert_allclose(model.unbias(x[0]), model.unbias(x)[0])
    if kind in ("known", "replicates", "classical", "reported"):
        np.testing.assert_array_equal(model.unbias(x), x)
    model.save(tmp_path / "errors.json")
    assert_same(mb.ErrorModel.load(tmp_path / "errors.json"), model)


NAN = float("nan")
X = np.random.default_rng(0).normal(0, 1, (60, 2))
Y = X + np.random.default_rng(1).normal(0, 0.5, X.shape)
NOISE = np.random.default_rng(2).normal(0, 1, X.shape)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "number without dim": (lambda: from_known(0.3), "dim"),
    "negative variance": (lambda: from_known([-0.3]), "cov"),
    "wrong dim": (lambda: from_known([0.1, 0.2], 3), "cov"),
    "dim of zero": (lambda: from_known(0.1, 0), "dim"),
    "no covariance": (lambda: from_known(None), "cov"),  # type: ignore[arg-type]
    "flat readings": (lambda: from_replicates([[1.0, 2.0]]), "readings"),
    "one reading": (lambda: from_replicates(np.ones((9, 1, 1))), "readings"),
    "torn reading": (lambda: from_replicates([[[1.0, NAN], [1.0, 2.0]]] * 9), "reading"),
    "infinite reading": (lambda: from_replicates([[[1.0], [np.inf]]] * 9), "readings"),
    "few subjects": (lambda: from_replicates([[[1.0], [NAN]]] * 9), "readings"),
    "averaged": (lambda: from_replicates(np.ones((9, 2, 1)), averaged=0), "averaged"),
    "few pairs": (lambda: from_validation(X[:20], Y[:20]), "predicted and truth"),
    "other shape": (lambda: from_validation(X, Y[:, :1]), "truth"),
    "flat pairs": (lambda: from_validation(X[:, 0], Y[:, 0]), "predicted"),
    "no coordinates": (lambda: from_validation(X[:, :0], Y[:, :0]), "coordinates"),
    "NaN": (lambda: from_validation(np.where(X > 2, NAN, X), Y), "predicted"),
    "assume": (lambda: from_validation(X, Y, assume="known"), "assume"),
    "constant truth": (lambda: from_validation(X, np.ones_like(X)), "truth"),
    "constant prediction": (lambda: from_validation(np.ones_like(X), X), "predicted"),
    "repeated truth": (lambda: from_validation(Y, X[:, [0, 0]]), "truth"),
    "no trace": (lambda: from_validation(NOISE, X), "predicted"),
    "no trace in a direction": (lambda: from_validation(np.column_stack([Y[:, 0], 2 * Y[:, 0] + NOISE[:, 0]]), X), "predicted"),
    "flat confusion": (lambda: from_confusion([1, 2]), "matrix"),
    "one class": (lambda: from_confusion([[3]]), "classes"),
    "scalar confusion": (lambda: from_confusion(3), "classes"),
    "not square": (lambda: from_confusion([[1, 2, 3], [1, 2, 3]]), "matrix"),
    "negative count": (lambda: from_confusion([[10, -1], [1, 10]]), "matrix"),
    "empty row": (lambda: from_confusion([[10, 1], [0, 0]]), "matrix"),
    "neither counts nor shares": (lambda: from_confusion([[0.8, 0.3], [0.1, 0.9]]), "matrix"),
    "singular": (lambda: from_confusion([[0.5, 0.5], [0.5, 0.5]]), "matrix"),
    "singular within noise": (lambda: from_confusion([[55, 45], [45, 55]]), "matrix"),
    "prevalence": (lambda: from_confusion([[80, 20], [20, 80]], prevalence=[0.5, 0.6]), "prevalence"),
    "reference": (lambda: from_confusion([[80, 20], [20, 80]], reference=2), "reference"),
    "negative reported": (lambda: from_variances([[0.1], [-0.1]]), "variances"),
    "flat reported": (lambda: from_variances([0.1, 0.2]), "variances"),
    "one reported": (lambda: from_variances([[0.1]]), "variances"),
    "half a pair": (lambda: from_variances(np.ones_like(X), predicted=X), "predicted and truth"),
    "pairs of another shape": (lambda: from_variances(np.ones((5, 2)), predicted=X, truth=Y), "predicted"),
    "silent variance": (lambda: from_variances(np.zeros_like(X), predicted=X, truth=Y), "variances"),
    "unbias shape": (lambda: from_known([0.1, 0.2]).unbias([1.0]), "predicted"),
    "unbias NaN": (lambda: from_known([0.1, 0.2]).unbias([1.0, NAN]), "predicted"),
    "covariances of another kind": (lambda: from_known([0.1]).covariances([[0.1]]), "covariances"),
    "covariances of another width": (lambda: from_variances([[0.1], [0.2]]).covariances([[0.1, 0.2]]), "variances"),
    "classes of another kind": (lambda: from_known([0.1]).class_probabilities, "class_probabilities"),
    "no shares": (lambda: from_confusion([[80, 20], [20, 80]]).error_cov_in([-1.0, 0.0]), "mean"),
    "parameters": (lambda: from_known([0.1]).at([0.0]), "parameters"),
    "overcorrection of a fit": (lambda: measurement.overcorrection(MODELS["biased"](), np.eye(2)), "error"),
    "second moment": (lambda: measurement.overcorrection([[0.1]], [[-1.0]]), "second_moment"),
    "nothing to join": (lambda: join(), "models"),
    "no model to join": (lambda: join(0.3), "models"),  # type: ignore[arg-type]
    "joined variances": (lambda: join(MODELS["reported"]()), "models"),
    "joined against the pairs": (lambda: join(from_validation(*make_pairs("berkson", 1, 500, 1), assume="classical")), "models"),
    "joined twice": (lambda: join(from_known([0.1]).named("a"), from_known([0.2]).named("a")), "features"),
    "joined without names": (lambda: join(from_known([0.1]), features=["a"]), "models"),
    "joined without place": (lambda: join(from_known([0.1]).named("a"), features=["b"]), "features"),
    "order with repetitions": (lambda: join(from_known([0.1]).named("a"), features=["a", "b", "b"]), "features"),
    "order as a text": (lambda: join(from_known([0.1]).named("a"), features="a"), "features"),
    "order as a set": (lambda: join(from_known([0.1]).named("a"), features={"a", "b"}), "features"),  # type: ignore[arg-type]
    "order as a number": (lambda: join(from_known([0.1]).named("a"), features=3), "features"),  # type: ignore[arg-type]
    "too many names": (lambda: from_known([0.1]).named("a", "b"), "features"),
    "the same name twice": (lambda: from_known([0.1, 0.2]).named("a", "a"), "features"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    make, what = BAD[case]
    with pytest.raises(mb.InvalidInput) as caught:
        make()
    assert re.match(rf"^[^\n]*{what}[^\n]* must [^\n]+; got [^\n]+\.[^\n]*$", str(caught.value)), str(caught.value)
