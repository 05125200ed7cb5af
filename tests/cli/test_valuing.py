"""`mebandit value` and `mebandit export`, run as a person runs them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import mebandit as mb
from mebandit.analysis import value_page
from mebandit.checks import MebanditError
from mebandit.cli.terminal import commands
from mebandit.measurement import from_validation
from tests.analysis.test_value import ERROR, THETA, adaptive_log, value
from tests.command import run

COLUMNS = ("--predicted", "x_0,x_1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log and θ in every form, to work in."""
    log = adaptive_log(2000, seed=30)
    frame = pd.DataFrame(log["x"], columns=["x_0", "x_1"]).assign(**{name: log[name] for name in ("action", "reward", "propensity")})
    frame.assign(who=np.arange(2000) % 50).to_csv(tmp_path / "log.csv", index=False)
    np.savetxt(tmp_path / "theta.csv", THETA, delimiter=",")
    (tmp_path / "plain.json").write_text(json.dumps(THETA.tolist()))
    fitted = mb.fit(log, predicted=["x_0", "x_1"], error_cov=ERROR, methods=("meb", "dr"))
    (tmp_path / "fit.json").write_text(fitted.to_json())
    biased = from_validation(log["x"][:300] * [1.0, 1.3], log["x"][:300])
    fitted = mb.fit(log, predicted=["x_0", "x_1"], error_cov=biased, methods="dr")
    (tmp_path / "unbiased.json").write_text(fitted.to_json())
    biased.save(tmp_path / "biased.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments), catch_exceptions=True)


def test_the_numbers_are_those_of_the_library(folder: Path) -> None:
    log = adaptive_log(2000, seed=30)
    out = call("value", "log.csv", *COLUMNS, "--json")
    plain = json.loads(out.stdout)
    assert list(plain["policies"]) == ["uniform", "always 0", "always 1"]
    assert plain["policies"]["always 1"]["estimates"]["dr"]["value"] == pytest.approx(value(log, 1).best.value, rel=1e-9)
    rules = {}
    for name, method in (("theta.csv", "dr"), ("plain.json", "dr"), ("fit.json", "dr"), ("fit.json", "meb")):
        given = ("--theta", name, "--method", method, "--floor", "0.1", "--error-cov", "0,0.5", "--policy", "0.3,0.7")
        plain = json.loads(call("value", "log.csv", *COLUMNS, *given, "--json").stdout)["policies"]
        assert set(plain) == {"0.3,0.7", name.split(".")[0]}
        rules[name, method] = plain[name.split(".")[0]]
    expected = value(log, mb.LinearRule(THETA, floor=0.1, context="blp"), error_cov=ERROR)
    for name in ("theta.csv", "plain.json"):
        assert rules[name, "dr"]["estimates"]["dr"]["value"] == pytest.approx(expected.best.value, rel=1e-9)
    assert rules["fit.json", "dr"]["theta"] != rules["fit.json", "meb"]["theta"]
    assert [bool(rules[given]["warnings"]) for given in rules] == [False, False, True, True]
    assert "θ was fitted to 2,000 rounds, as many as its value is estimated from" in rules["fit.json", "dr"]["warnings"][0]
    assert call("value", "log.csv", *COLUMNS, "--theta", "unbiased.json", "--error-model", "biased.json").exit_code == 0
    pd.read_csv("log.csv")[:-1].to_csv("other.csv", index=False)
    elsewhere = json.loads(call("value", "other.csv", *COLUMNS, "--theta", "fit.json", "--error-cov", "0,0.5", "--json").stdout)
    assert elsewhere["policies"]["fit"]["warnings"] == []
    learned = json.loads(call("value", "log.csv", *COLUMNS, "--theta", "fit", "--error-cov", "0,0.5", "--json").stdout)
    direct = mb.learn_then_value(log, predicted=["x_0", "x_1"], error_cov=ERROR)
    assert learned["policies"]["learned"]["estimates"]["dr"]["value"] == pytest.approx(direct.best.value, rel=1e-9)
    assert (learned["rounds"], learned["first_row"]) == (1000, 1001)


def test_a_table_a_figure_and_a_page(folder: Path) -> None:
    done = run("value", "log.csv", *COLUMNS, "--unit", "who", "--theta", "fit", "--error-cov", "0,0.5", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "1,000 rounds of 50 units after the first 1,000 rows, which were used to estimate the rule." in done.stdout
    assert "learned" in done.stdout
    assert "snips" in done.stdout
    page = (folder / "out" / "value.html").read_text()
    assert page.count("<svg") == 1
    assert "seed" not in page
    assert len(pd.read_csv(folder / "out" / "value.csv")) == 3
    assert json.loads((folder / "out" / "value.json").read_text())["units"] == 50
    assert (folder / "out" / "value.png").stat().st_size > 5000
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(value_page.FILES)


def test_doubtful_values_are_said_to_be(folder: Path) -> None:
    frame = pd.read_csv("log.csv").assign(propensity=0.3)
    frame.to_csv("wrong.csv", index=False)
    assert "propensities are not" in " ".join(call("value", "wrong.csv", *COLUMNS, "--policy", "1").stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--policy", "best"), "--policy must be uniform, an action, one `when available`, or probabilities with commas; got 'best'."),
        (("--policy", "7"), "policy 'always 7' must be a whole number from 0 to 1; got 7."),
        (("--theta", "none.csv"), "--theta must be a CSV or JSON file of numbers, or fit; got none.csv, which cannot be read"),
        (
            ("--theta", "fit.json", "--method", "rc"),
            "fit.json must have estimates.rc.theta, as `mebandit fit --json` writes it; got one with",
        ),
        (
            ("--predicted", "x_1,x_0", "--theta", "fit.json"),
            "the θ of fit.json must be for the log's features, x_1, x_0, in their order; got one for x_0, x_1.",
        ),
        (
            ("--theta", "unbiased.json", "--error-cov", "0,0.5"),
            "the θ of unbiased.json must be used with the error model with which it was fitted, "
            "which corrects the bias of predictions; got none.",
        ),
        (("--theta", "fit"), "the error covariance must be known, to be corrected for; got nothing."),
        (("--predicted", "y"), "log.csv must have a column 'y'; got none of that name."),
        (("--error-cov", "1", "--error-model", "m.json"), "the error must be given once; got both --error-cov and --error-model."),
    ],
)
def test_a_refusal_is_a_sentence(arguments: tuple[str, ...], sentence: str, folder: Path) -> None:
    result = call("value", "log.csv", *COLUMNS, *arguments)
    assert isinstance(result.exception, MebanditError)
    assert sentence in str(result.exception)


def test_rows_are_set_aside_on_request(folder: Path) -> None:
    frame = pd.read_csv("log.csv")
    frame.loc[3, "propensity"] = 0.0
    frame.to_csv("bad.csv", index=False)
    refused = run("value", "bad.csv", *COLUMNS, cwd=folder)
    assert refused.returncode == 1
    assert refused.stderr.startswith("mebandit: bad.csv row 4 column 'propensity' must be in (0, 1]")
    done = call("value", "bad.csv", *COLUMNS, "--on-bad", "set-aside")
    assert "1,999 rounds" in done.stdout
    assert "1 rows were set aside." in done.stdout
    assert len(pd.read_csv("set_aside.csv")) == 1
    assert "Rows set aside: set_aside.csv" in done.stdout


def test_export_writes_what_the_library_writes(folder: Path) -> None:
    assert "2,000 rounds" in call("export", "log.csv", *COLUMNS, "--to", "obp", "--out", "log.npz").stdout
    with np.load("log.npz") as file:
        assert file["context"].shape == (2000, 2)
    call("export", "log.csv", *COLUMNS, "--to", "mrt", "--unit", "who", "--out", "trial.csv")
    assert pd.read_csv("trial.csv")["decision_point"].max() == 40
    assert "--to" in call("export", "log.csv", "--out", "x.csv").output


def test_a_rule_from_an_estimate_has_its_intercepts() -> None:
    log = adaptive_log(2000, seed=31)
    found = mb.fit(
        log | {"reward": log["reward"] + 3.0 * log["action"]}, predicted=["x_1"], error_cov=0.5, intercept=True, methods=["dr"]
    ).best
    rule = mb.LinearRule(found, floor=0.1)
    np.testing.assert_array_equal(rule.theta, found.theta)
    np.testing.assert_array_equal(rule.intercept, found.intercept)
    assert rule.fitted_to == 2000
    with pytest.raises(mb.InvalidInput, match="fitted_to must be"):
        mb.LinearRule(THETA, fitted_to="many")  # type: ignore[arg-type]


def test_differences_between_policies_are_printed_and_written(folder: Path) -> None:
    out = call("value", "log.csv", *COLUMNS, "--policy", "uniform", "--policy", "1", "--difference", "--out", "values")
    assert out.exception is None
    found = mb.value(adaptive_log(2000, seed=30), {"uniform": "uniform", "always 1": 1}, predicted=["x_0", "x_1"])
    expected = found.contrast("uniform", "always 1")
    printed = " ".join(out.stdout.split())
    assert f"uniform always 1 dr {expected.value:.3f}" in printed
    plain = json.loads((folder / "values" / "value.json").read_text())["differences"]
    assert [(each["policy"], each["minus"]) for each in plain] == [("uniform", "always 1")]
    assert plain[0]["estimates"]["dr"]["std_error"] == pytest.approx(expected.std_error, rel=1e-9)
    written = pd.read_csv(folder / "values" / "differences.csv").set_index("estimator")
    assert written.loc["dr", "low"] == pytest.approx(expected.interval()[0], rel=1e-9)
    assert "Differences between policies" in (folder / "values" / "value.html").read_text()
