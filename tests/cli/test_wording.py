"""The command line names options where the library names arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

from mebandit.cli.wording import in_options
from tests.analysis.test_fit import make_log


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("n_actions must be at least 2; got 1.", "--n-actions must be at least 2; got 1."),
        ("ridge must be a number; got 'ridge must'.", "--ridge must be a number; got 'ridge must'."),
        ("the ridge must be positive, and the unit too.", "the ridge must be positive, and the unit too."),
        ("Set `ridge` above 0.", "Set --ridge above 0."),
        ("Give error_cov=[0, 0.5].", "Give --error-cov 0,0.5."),
        ("Fit an intercept (`intercept=True`).", "Fit an intercept (--intercept)."),
        ("log.csv must have a column 'n_actions'; it has error_cov_0_0.", "log.csv must have a column 'n_actions'; it has error_cov_0_0."),
        ("the file /logs/error_cov/n_actions.csv is empty", "the file /logs/error_cov/n_actions.csv is empty"),
        ("methods must be one of 'ridge', 'dr'.", "--method must be one of 'ridge', 'dr'."),
        ("on_bad='set-aside' sets them aside", "--on-bad set-aside sets them aside"),
        ("set_aside.csv must be writable", "set_aside.csv must be writable"),
    ],
)
def test_arguments_become_options(said: str, shown: str) -> None:
    assert in_options(said) == shown


def test_a_refusal_on_the_command_line_names_options(tmp_path: Path) -> None:
    make_log().drop(columns="user").to_csv(tmp_path / "log.csv", index=False)

    def refusal(*options: str) -> str:
        command = [sys.executable, "-m", "mebandit", "fit", "log.csv", "--predicted", "one,stress", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr

    assert refusal() == (
        "mebandit: the error covariance must be known, to be corrected for; got nothing. Give --error-cov, or name the columns that hold "
        "it in --error-columns; --error-cov 0 for predictions without error.\n"
    )
    assert refusal("--error-cov", "0.1,0.5").startswith("mebandit: the error variance of 'one' must be 0")
    assert refusal("--error-cov", "0,0.5", "--ridge", "-1") == "mebandit: --ridge must be a number of at least 0; got -1.0.\n"


def test_only_options_of_the_running_command_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "features must differ; got ones that do not."
    monkeypatch.setattr(sys, "argv", ["mebandit", "fit", "log.csv"])
    assert in_options(said) == said
    monkeypatch.setattr(sys, "argv", ["mebandit", "error-model", "pairs.csv"])
    assert in_options(said) == "--" + said
