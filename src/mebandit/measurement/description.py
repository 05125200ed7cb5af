"""The lines of `ErrorModel.describe`: an error model in words, with what to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mebandit.measurement.model import ErrorModel

_SOURCES = {
    "known": "taken as given",
    "replicates": "from {n} subjects with repeated readings",
    "classical": "from {n} pairs of prediction and truth",
    "berkson": "from {n} pairs of prediction and truth",
    "biased": "from {n} pairs of prediction and truth",
    "misclassified": "from {n} predicted classes with their truth",
    "reported": "its scale from {n} pairs of prediction and truth",
}

_CORRECTING = "to a method that corrects for measurement error"
_SUBTRACT = f"What to do: pass the unchanged predictions, and error_cov, {_CORRECTING}."
_UNBIAS = f"What to do: pass unbias(predicted) instead of the raw predictions, and error_cov, {_CORRECTING}."

_ADVICE = {
    "known": _SUBTRACT,
    "replicates": _SUBTRACT,
    "classical": _SUBTRACT,
    "berkson": _UNBIAS,
    "biased": _UNBIAS,
    "misclassified": f"What to do: pass unbias(one-hot predictions), and error_cov_in(their mean), {_CORRECTING}.",
    "reported": f"What to do: pass the unchanged predictions, and covariances(their variances), {_CORRECTING}.",
    "joined": "What to do: pass the unchanged predictions, and this model as error_cov, to fit or estimate, which also unbias them.",
}


def describe(model: "ErrorModel", features: Sequence[str]) -> str:
    """The kind of error, its size, the tests, and what to do; coordinates by name if `features` has names."""
    names = list(map(repr, features)) or [f"coordinate {j}" for j in range(model.dim)]
    if not model.parts:
        return "\n".join([*_lines(model, names), _advice(model)])
    lines = [f"kind: joined, of {len(model.parts)} models whose errors are assumed uncorrelated"]
    for part in model.parts:
        lines += ["", *_lines(part.model, [names[j] for j in part.places])]
        if part.model.verdict == "undecided":
            lines.append(cost_of_doubt(part.model))
    return "\n".join([*lines, "", _advice(model)])


def _lines(model: "ErrorModel", names: Sequence[str]) -> list[str]:
    """All lines but the advice."""
    source = _SOURCES[model.kind].format(n=model.sample_size) if model.sample_size else "taken as given"
    lines = [f"kind: {model.kind}, {source}"]
    if model.notes.get("left_out"):
        lines.append(f"{model.notes['left_out']:.0f} subjects with fewer than two readings were left out")
    lines += [_coordinate_line(model, j, name) for j, name in enumerate(names)]
    lines += _class_lines(model, names) if model.kind == "misclassified" else []
    lines += [f"{name_of_test(name, names)}: {test}" for name, test in model.tests.items()]
    if model.verdict:
        lines.append(f"verdict of the pairs: {model.verdict}")
    return lines


def _advice(model: "ErrorModel") -> str:
    """What to do, in one sentence."""
    if model.is_doubted and model.verdict == "berkson":
        return "What to do: do not subtract this covariance; use least squares on the raw predictions, or from_validation without `assume`."
    if model.is_doubted:
        return "What to do: do not use the raw predictions; use from_validation without `assume`, and its unbias(predicted)."
    advice = _ADVICE[model.kind]
    if model.verdict == "undecided" and model.kind not in ("biased", "joined"):  # which need no choice
        advice = f"{advice[:-1]}; classical and Berkson error cannot be told apart here, and {cost_of_doubt(model)}."
    return advice


def cost_of_doubt(model: "ErrorModel") -> str:
    """By how much θ depends on the choice between classical and Berkson error, as a clause."""
    factor = model.notes["factor"]
    return f"taking one for the other would change θ by {f'a factor of at most {factor:.3g}' if factor < 1e6 else 'any factor'}"


def _coordinate_line(model: "ErrorModel", j: int, name: str) -> str:
    variance, error = model.error_cov[j, j], model.error_cov_std_error[j, j]
    if variance == 0:
        return f"{name}: no error"
    line = f"{name}: error variance {variance:.3g}"
    line += f" (s.e. {error:.2g})" if error > 0 else ""
    if model.kind == "reported" and model.sample_size:
        line += f", {model.scale[j]:.3g} (s.e. {model.scale_std_error[j]:.2g}) times the reported variance"
    line += f", reliability {model.reliability[j]:.2f}" if np.isfinite(model.reliability[j]) else ""
    if model.kind in ("berkson", "biased"):
        b, B, others = model.offset[j], model.slope[j, j], np.delete(model.slope[j], j)
        mixed = " and parts of other coordinates" if np.abs(others).max(initial=0.0) > 0.1 * abs(B) else ""
        line += f"; given the truth x, {b:.2g} {'-' if B < 0 else '+'} {abs(B):.2g} x{mixed} on average"
    return line


def _class_lines(model: "ErrorModel", names: Sequence[str]) -> list[str]:
    """How often each true class is predicted as each class."""
    p = model.class_probabilities
    labels = [*(["the reference class"] if len(p) > model.dim else []), *names]
    lines = [
        f"when {label} is true, the prediction is {', '.join(f'{other} {share:.2f}' for other, share in zip(labels, p[:, i], strict=True))}"
        for i, label in enumerate(labels)
    ]
    odd = [label for i, label in enumerate(labels) if p[i, i] < p[:, i].max()]
    if odd:
        lines.append(
            f"{odd[0]} is mostly predicted as another class: check that rows are the truth, and that rows and columns have the same order"
        )
    return lines


def name_of_test(name: str, names: Sequence[str]) -> str:
    """A test in words, from its key: a name, followed by the number of a coordinate if the test is of one."""
    kind, _, j = name.partition(" ")
    coordinate = names[int(j)] if j else ""
    return {
        "classical": "test of classical error",
        "berkson": "test of Berkson error",
        "shift": "test of equal means of the readings",
        "level": f"test of an error variance that does not depend on the level, {coordinate}",
        "calibration": f"test of correct reported variances, {coordinate}",
    }[kind]
