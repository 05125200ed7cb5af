"""Files of error models that are damaged or foreign."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mebandit as mb
from mebandit.measurement import from_known, join
from tests.measurement.cases import MODELS, assert_same

DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "format": lambda data: data.update(format="something"),
    "version": lambda data: data.update(version=2),
    "kind": lambda data: data.update(kind="strange"),
    "slope": lambda data: data.update(slope=[[1.0, 1.0], [1.0, 1.0]]),
    "missing": lambda data: data.pop("raw_cov"),
    "negative": lambda data: data.update(raw_cov=[[-1.0, 0.0], [0.0, 1.0]]),
    "scalar for a matrix": lambda data: data.update(raw_cov=0.3),
    "shape": lambda data: data.update(parameters_cov=[[1.0]]),
    "nan": lambda data: data.update(offset=[float("nan"), 0.0]),
    "no list": lambda data: data.update(offset=3),
    "empty": lambda data: data.update(offset=[]),
    "texts": lambda data: data.update(reliability=["a", "b"]),
    "tests": lambda data: data.update(tests={"classical": [1.0, 2]}),
    "unknown test": lambda data: data.update(tests={"other": [1.0, 2, 0.5]}),
    "verdict": lambda data: data.update(verdict="perhaps"),
    "scale": lambda data: data.update(scale=[-1.0, 1.0]),
    "notes": lambda data: data.update(notes=[1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    MODELS["classical"]().save(path)
    data = json.loads(path.read_text())
    DAMAGE[damage](data)
    path.write_text(json.dumps(data))
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)


JOINED_DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no parts": lambda data: data.update(parts=[]),
    "parts of another type": lambda data: data.update(parts=3),
    "part without a model": lambda data: data["parts"][0].pop("model"),
    "damaged part": lambda data: data["parts"][1]["model"].update(raw_cov=[[-1.0]]),
    "place taken twice": lambda data: data["parts"][0].update(places=[0, 1]),
    "places that are no numbers": lambda data: data["parts"][0].update(places=["a", "b"]),
    "broken places": lambda data: data["parts"][0].update(places=[0.5, 2.0]),
    "nested badly": lambda data: data["parts"][0].update(places=[[0, 2]]),
    "too few places": lambda data: data["parts"][0].update(places=[0]),
    "part within a part": lambda data: data["parts"].__setitem__(
        0, {"places": [0, 2], "model": {"kind": "joined", "parts": data["parts"][:1], "features": []}}
    ),
    "names": lambda data: data.update(features=["a"]),
    "reported part": lambda data: data["parts"][0]["model"].update(kind="reported"),
    "part against its pairs": lambda data: data["parts"][0]["model"].update(kind="classical", verdict="berkson"),
    "undecided without its cost": lambda data: data["parts"][0]["model"].update(kind="classical", verdict="undecided"),
}


@pytest.mark.parametrize("damage", JOINED_DAMAGE)
def test_a_damaged_file_of_a_joined_model_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    model = join(MODELS["known"]().named("a", "c"), from_known([0.1]).named("b"), features=["a", "b", "c"])
    model.save(path)
    data = json.loads(path.read_text())
    assert_same(mb.ErrorModel.load(path), model)
    JOINED_DAMAGE[damage](data)
    path.write_text(json.dumps(data))
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'"text"', b"PK\x03\x04"])
def test_a_foreign_file_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    path.write_bytes(content)
    with pytest.raises(mb.LogError, match=r"^[^\n]* must [^\n]+; got [^\n]+\.$"):
        mb.ErrorModel.load(path)
    with pytest.raises(mb.LogError, match=r"must be a readable file; got .*nowhere"):
        mb.ErrorModel.load(tmp_path / "nowhere")
    with pytest.raises(mb.LogError, match="the file to write must be one that can be written"):
        MODELS["known"]().save(tmp_path / "nowhere" / "errors.json")
