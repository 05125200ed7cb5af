"""An error model in words: the lines of `ErrorModel.describe`."""

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

_SUBTRACT = "What to do: give the predictions as they are, and error_cov, to a method that corrects for it."
_UNBIAS = "What to do: give unbias(predicted) and error_cov, never the raw predictions with a covariance, to a method that corrects for it."

_ADVICE = {
    "known": _SUBTRACT,
    "replicates": _SUBTRACT,
    "classical": _SUBTRACT,
    "berkson": _UNBIAS,
    "biased": _UNBIAS,
    "misclassified": "What to do: give unbias(one-hot predictions) and error_cov_in(their mean) to a method that corrects for it.",
    "reported": "What to do: give the predictions as they are, and covariances(their variances), to a method that corrects for it.",
    "joined": "What to do: give the predictions as they are, and this model as error_cov, to fit or estimate, which do all the rest.",
}


def describe(model: "ErrorModel", features: Sequence[str]) -> str:
    """What it is, how large the errors are, what was tested, and what to do; coordinates by name where `features` has them."""
    names = list(map(repr, features)) or [f"coordinate {j}" for j in range(model.dim)]
    if not model.parts:
        return "\n".join([*_lines(model, names), _advice(model)])
    lines = [f"kind: joined, of {len(model.parts)} models whose errors are taken to be uncorrelated"]
    for part in model.parts:
        lines += ["", *_lines(part.model, [names[j] for j in part.places])]
        if part.model.verdict == "undecided":
            lines.append(cost_of_doubt(part.model))
    return "\n".join([*lines, "", _advice(model)])


def _lines(model: "ErrorModel", names: Sequence[str]) -> list[str]:
    """All but what to do."""
    source = _SOURCES[model.kind].format(n=model.sample_size) if model.sample_size else "taken as given"
    lines = [f"kind: {model.kind}, {source}"]
    if model.notes.get("left_out"):
        lines.append(f"{model.notes['left_out']:.0f} subjects with fewer than two readings were left out")
    lines += [_coordinate_line(model, j, name) for j, name in enumerate(names)]
    lines += _class_lines(model, names) if model.kind == "misclassified" else []
    lines += [f"{name_of_test(name, names)}: {test}" for name, test in model.tests.items()]
    if model.verdict:
        lines.append(f"the pairs say: {model.verdict}")
    return lines


def _advice(model: "ErrorModel") -> str:
    """One sentence on what to do."""
    if model.is_doubted and model.verdict == "berkson":
        return "What to do: do not subtract this covariance; use least squares on the raw predictions, or from_validation without `assume`."
    if model.is_doubted:
        return "What to do: do not use these predictions as they are; take from_validation without `assume`, and its unbias(predicted)."
    advice = _ADVICE[model.kind]
    if model.verdict == "undecided":
        advice = f"{advice[:-1]}; classical and Berkson error cannot be told apart here, and {cost_of_doubt(model)}."
    return advice


def cost_of_doubt(model: "ErrorModel") -> str:
    """What depends on the choice between classical and Berkson error."""
    factor = model.notes["factor"]
    return f"taking one for the other would change θ by {f'a factor of at most {factor:.3g}' if factor < 1e6 else 'any factor'}"


def _coordinate_line(model: "ErrorModel", j: int, name: str) -> str:
    variance, error = model.error_cov[j, j], model.error_cov_std_error[j, j]
    if variance == 0:
        return f"{name}: no error"
    line = f"{name}: error variance {variance:.3g}"
    line += f" (s.e. {error:.2g})" if error > 0 else ""
    if model.kind == "reported" and model.sample_size:
        line += f", {model.scale[j]:.3g} (s.e. {model.scale_std_error[j]:.2g}) times what is reported"
    line += f", reliability {model.reliability[j]:.2f}" if np.isfinite(model.reliability[j]) else ""
    if model.kind in ("berkson", "biased"):
        b, B, others = model.offset[j], model.slope[j, j], np.delete(model.slope[j], j)
        mixed = " and parts of other coordinates" if np.abs(others).max(initial=0.0) > 0.1 * abs(B) else ""
        line += f"; given the truth x, {b:.2g} {'-' if B < 0 else '+'} {abs(B):.2g} x{mixed} on average"
    return line


def _class_lines(model: "ErrorModel", names: Sequence[str]) -> list[str]:
    """What each class is predicted to be, and how often."""
    p = model.class_probabilities
    labels = [*(["the reference class"] if len(p) > model.dim else []), *names]
    lines = [
        f"where {label} is true, predicted are {', '.join(f'{other} {share:.2f}' for other, share in zip(labels, p[:, i], strict=True))}"
        for i, label in enumerate(labels)
    ]
    odd = [label for i, label in enumerate(labels) if p[i, i] < p[:, i].max()]
    if odd:
        lines.append(f"{odd[0]} is mostly predicted to be another: are rows the truth, and are rows and columns in one order?")
    return lines


def name_of_test(name: str, names: Sequence[str]) -> str:
    """A test in words, from its key: a kind, and the number of a coordinate where it is of one."""
    kind, _, j = name.partition(" ")
    coordinate = names[int(j)] if j else ""
    return {
        "classical": "test of classical error",
        "berkson": "test of Berkson error",
        "shift": "test of readings with the same mean",
        "level": f"test of an error variance that is the same at all levels, {coordinate}",
        "calibration": f"test of reported variances that are right, {coordinate}",
    }[kind]
