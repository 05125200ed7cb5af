"""The simulated trial: three commands lead from its files to effects and to the size of the next trial."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mebandit.cli.terminal import commands
from mebandit.experiments import trial

OPTIONS = {
    "predicted": "stress,steps,location",
    "reward": "outcome",
    "propensity": "prob_send",
    "probability-of": "send",
    "available": "available",
    "unit": "participant",
    "time": "time",
    "missing-outcomes": "leave-out",
}
COLUMNS = [text for name, value in OPTIONS.items() for text in (f"--{name}", value)]


def call(*arguments: str) -> str:
    found = CliRunner().invoke(commands, arguments)
    assert found.exception is None, found.exception
    return found.output


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the first two commands were run."""
    folder = tmp_path_factory.mktemp("trial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trial.write_trial(".")
        call("error-model", "validation.csv", "--predicted", "stress", "--truth", "reported", "--out", "stress.json")
        call("fit", "trial.csv", *COLUMNS, "--error-model", "stress.json", "--intercept", "--out", "analysis")
    return folder


def truth() -> dict[str, float]:
    """What a message does, by effect. Of the available points 0.7 · 0.3 / (0.7 · 0.3 + 0.88 · 0.7) are at work."""
    own = dict(zip(("intercept", "stress", "steps", "location=other", "location=work"), trial.EFFECT, strict=True))
    at_work = 0.7 * 0.3 / (0.7 * 0.3 + 0.88 * 0.7)
    average = own["intercept"] + 0.8 * own["stress"] + at_work * own["location=work"]
    return {name: float(value) for name, value in own.items()} | {"average": float(average)}


@pytest.mark.parametrize("method", ["meb", "dr", "rc"])
def test_the_intervals_of_the_effects_hold_the_truth(analysis: Path, method: str) -> None:
    plain = json.loads((analysis / "analysis" / "fit.json").read_text())
    assert (plain["actions"], plain["references"]) == (["none", "send"], {"location": "home"})
    found, true = plain["contrasts"]["1-0"][method], truth()
    average = plain["average_effects"]["1-0"][method]
    estimated = dict(zip(plain["features"], zip(found["theta"], found["std_error"], strict=True), strict=True))
    estimated |= {"intercept": (found["intercept"], found["intercept_std_error"]), "average": (average["value"], average["std_error"])}
    assert set(estimated) == set(true)
    for name, (value, error) in estimated.items():
        assert abs(value - true[name]) < 2.5 * error, name
    assert average["interval"][0] < true["average"] < average["interval"][1]


def test_without_the_correction_the_moderation_by_stress_is_missed(analysis: Path) -> None:
    plain = json.loads((analysis / "analysis" / "fit.json").read_text())
    found = plain["contrasts"]["1-0"]["ridge"]
    value, error = found["theta"][0], found["std_error"][0]
    assert value - truth()["stress"] > 3 * error


def test_the_plan_is_in_participants(analysis: Path) -> None:
    def planned(**changed: Any) -> dict[str, Any]:
        given = {"coefficient": "average", "effect": 0.1, "days": 30, "decision-points": 4} | changed
        options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        return dict(json.loads(call("plan", "--pilot", str(analysis / "analysis" / "fit.json"), *options, "--json")))

    found = planned()
    duration = found["duration"]
    assert duration["availability"] == pytest.approx(0.826, abs=0.01)
    assert duration["missing"] == pytest.approx(0.075, abs=0.01)
    each = 30 * 4 * duration["availability"] * (1 - duration["missing"])
    assert found["participants"] == pytest.approx(found["rounds"] / each, abs=1)
    assert planned(days=60)["participants"] == pytest.approx(found["participants"] / 2, abs=1)
    assert planned(attrition=0.4)["participants"] == pytest.approx(found["participants"] / 0.8, abs=1)
    assert planned(availability=0.413)["participants"] == pytest.approx(found["participants"] * 2, rel=0.1)
    assert planned(effect=0.05)["rounds"] > 3.9 * found["rounds"]
    own, longer = (planned(**{"days": days, "decision-points": 5, "effect": 0.03})["participants"] for days in (90, 360))
    assert longer == pytest.approx(own, rel=0.02), "what the pilot does not know of longer trials counts for nothing"
    typed = call("plan", "--pilot", str(analysis / "analysis" / "fit.json"), "--days", "30", "--effect", "0.1", "--treatment", "send")
    words = " ".join(typed.split())
    assert "participants x 30 days x 1 decision points" in words


def test_the_pages_are_of_the_trial(analysis: Path) -> None:
    report = (analysis / "analysis" / "report.html").read_text()
    average = "Average effect over the rounds of the log, by dr: send - none 0.35"
    for words in ("send - none", "Reference: location=home", "missing outcomes", "average effect", average):
        assert words in report
    assert (analysis / "analysis" / "effects.pdf").read_bytes().startswith(b"%PDF")


def test_sending_when_available_is_valued_over_all_decision_points(analysis: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(analysis)
    plain = json.loads(
        call("value", "trial.csv", *COLUMNS, "--policy", "send when available", "--policy", "none", "--difference", "--json")
    )
    found = plain["policies"]["send when available"]["estimates"]["dr"]
    # E[outcome | message when available] = 2 - 0.4 · 0.8 + 0.2 · 0.1 - 0.3 · 0.3 + what a message adds where it is sent
    share = 0.7 * 0.3 + 0.88 * 0.7
    true = 2 - 0.4 * 0.8 + 0.2 * 0.1 - 0.3 * 0.3 + share * truth()["average"]
    assert abs(found["value"] - true) < 3 * found["std_error"] + 0.01  # outcomes after messages are missing more often
    difference = plain["differences"][0]["estimates"]["dr"]
    assert abs(difference["value"] - share * truth()["average"]) < 3 * difference["std_error"]
    assert np.isfinite(difference["std_error"])
