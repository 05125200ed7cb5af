"""Error models as JSON files. Every part is checked when a file is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.measurement.description import name_of_test
from mebandit.measurement.hypotheses import ChiSquare
from mebandit.measurement.model import KINDS, PAIRED, ErrorModel, Part, check_joinable, names_of, non_negative, side_by_side
from mebandit.measurement.parameters import n_parameters
from mebandit.runtime.files import parse_json, write_whole

FORMAT, VERSION = "mebandit-error-model", 1


def save(model: ErrorModel, path: Path) -> None:
    """Write a model to a file, without loss of precision."""
    plain = {"format": FORMAT, "version": VERSION, **_to_plain(model)}
    write_whole(path, json.dumps(plain, allow_nan=False, indent=1) + "\n")


def load(path: Path) -> ErrorModel:
    """Read and check a model that `save` wrote."""
    try:
        data = parse_json(path.read_bytes())
    except OSError as error:
        raise LogError(f"an error model must be a readable file; got {path} ({error.strerror}).") from error
    except ValueError as error:
        raise LogError(f"{path} must be a JSON file written by ErrorModel.save; got something else ({type(error).__name__}).") from error
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        found = f"{data.get('format')!r} version {data.get('version')!r}" if isinstance(data, dict) else type(data).__name__
        raise LogError(f"{path} must be a {FORMAT} version {VERSION}; got {found}.")
    try:
        return _from_plain(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise LogError(f"{path} must be an undamaged error model; got one in which this is wrong: {reason}.") from error


def _to_plain(model: ErrorModel) -> dict[str, Any]:
    if model.parts:
        parts = [{"places": part.places.tolist(), "model": _to_plain(part.model)} for part in model.parts]
        return {"kind": model.kind, "parts": parts, "features": list(model.features)}
    return {name: _value_to_plain(getattr(model, name)) for name in model.__dataclass_fields__ if name != "parts"}


def _value_to_plain(value: Any) -> Any:
    """Arrays as lists, with null for NaN."""
    if isinstance(value, np.ndarray):
        return [None if v != v else v for v in value.tolist()] if value.ndim == 1 else value.tolist()
    return {key: list(test) if isinstance(test, tuple) else test for key, test in value.items()} if isinstance(value, dict) else value


def _from_plain(data: dict[str, Any]) -> ErrorModel:
    if data["kind"] == "joined":
        return _joined_from_plain(data)
    d = checks.integer("the length of offset", len(data["offset"]), 1)
    size = n_parameters(d)
    kind = checks.one_of("kind", data["kind"], KINDS)
    B = checks.floats("slope", data["slope"], (d, d))
    if np.linalg.cond(B) > 1e12:
        checks.refuse("slope", "be a matrix that can be inverted", checks.shown(B))
    classes = len(data["prevalence"]) if kind == "misclassified" else 0
    if classes not in ((d, d + 1) if kind == "misclassified" else (0,)):
        checks.refuse("prevalence", f"have {d} class shares, or {d + 1} with a reference class", f"{classes}")
    q = checks.floats("prevalence", data["prevalence"] or np.empty(0), (classes,))
    known = [np.nan if v is None else checks.number("reliability", v, "be from 0 to 1", 0.0, 1.0) for v in data["reliability"]]
    return ErrorModel(
        kind=kind,
        offset=checks.floats("offset", data["offset"], (d,)),
        slope=B,
        raw_cov=checks.covariance("raw_cov", checks.floats("raw_cov", data["raw_cov"], (d, d)), d),
        parameters_cov=checks.covariance("parameters_cov", checks.floats("parameters_cov", data["parameters_cov"], (size, size)), size),
        sample_size=checks.integer("sample_size", data["sample_size"], 0),
        verdict=checks.one_of("verdict", data["verdict"], ("", *PAIRED, "undecided")),
        tests={name: _test_from_plain(name, values, d) for name, values in data["tests"].items()},
        reliability=checks.shaped("reliability", known, (d,)),
        prevalence=checks.probabilities("prevalence", q, np.ones(classes, dtype=np.bool_)) if q.size else q,
        scale=non_negative("scale", checks.floats("scale", data["scale"], (d,))[None], (1, d))[0],
        scale_std_error=non_negative("scale_std_error", checks.floats("scale_std_error", data["scale_std_error"], (d,))[None], (1, d))[0],
        notes=_notes_from_plain(data["notes"], data["verdict"]),
        features=names_of(data.get("features", []), d),
    )


def _joined_from_plain(data: dict[str, Any]) -> ErrorModel:
    parts = [
        Part(_from_plain(part["model"]), np.array([checks.integer("places", place, 0) for place in part["places"]]))
        for part in data["parts"]
    ]
    places = [place for part in parts for place in part.places.tolist()]
    whole = bool(parts) and sorted(places) == list(range(len(places)))
    if not whole or any(part.model.parts or part.places.size != part.model.dim for part in parts):
        checks.refuse("parts", "be models of coordinates 0, 1, ..., each once", checks.shown(places))
    for part in parts:
        check_joinable(part.model)
    return side_by_side(parts, names_of(data["features"], len(places)))


def _notes_from_plain(notes: dict[str, Any], verdict: str) -> dict[str, float]:
    if verdict == "undecided" and "factor" not in notes:
        checks.refuse("notes", "say what a wrong choice would cost, where the verdict is undecided", "no factor")
    return {name: checks.number("notes", value, low=0.0) for name, value in notes.items()}


def _test_from_plain(name: str, values: list[Any], d: int) -> ChiSquare:
    statistic, df, p_value = values
    name_of_test(name, [""] * d)  # raises for an unknown test
    return ChiSquare(
        checks.number("statistic", statistic, "be a number of at least 0", 0.0),
        checks.integer("df", df, 0),
        checks.number("p_value", p_value, "be from 0 to 1", 0.0, 1.0),
    )
