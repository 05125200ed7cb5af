"""Error messages name what the user typed: options on the command line, arguments in Python."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.checks import Refusal
from mebandit.cli.naming import in_options, refusal_in_options
from mebandit.cli.terminal import commands
from tests.analysis.test_fit import make_log
from tests.command import run

COMMAND = click.Command(
    "example",
    params=[
        click.Argument(["log"], nargs=-1),
        click.Option(["--n-actions"], type=int),
        click.Option(["--error-cov"]),
        click.Option(["--action"]),
        click.Option(["--policy", "policies"], multiple=True),
        click.Option(["--intercept"], is_flag=True),
        click.Option(["--floor"], type=float),
    ],
)


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (Refusal("n_actions", "be at least 2", "1"), "--n-actions must be at least 2; got 1."),
        (Refusal("error_cov[3]", "be symmetric", "another"), "--error-cov[3] must be symmetric; got another."),
        (Refusal("n_actions and floor", "fit", "2 and 1"), "--n-actions and --floor must fit; got 2 and 1."),
        (Refusal("policy 'a'", "be known", "none"), "--policy 'a' must be known; got none."),
        (Refusal("log", "exist", "none"), "LOG must exist; got none."),
        (Refusal("the error", "be known", "no error_cov", "Give floor=1."), "the error must be known; got no --error-cov. Give --floor 1."),
        (Refusal("x", "fit", "y", "Take floor=0.1 or intercept=True."), "x must fit; got y. Take --floor 0.1 or --intercept."),
        # English words, contents of files, paths and calls stay as they are.
        (Refusal("theta of action 1", "be identified", "1"), "theta of action 1 must be identified; got 1."),
        (Refusal("the action", "be one of the log", "error_cov.csv"), "the action must be one of the log; got error_cov.csv."),
        (Refusal("unit", "be a column", "'n_actions'", "Or n_actions()."), "unit must be a column; got 'n_actions'. Or n_actions()."),
    ],
)  # fmt: skip
def test_arguments_become_options(refusal: Refusal, sentence: str) -> None:
    assert str(refusal_in_options(refusal, COMMAND)) == sentence


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            ["plan", "--effect", "0", "--dim", "3", "--error-cov", "0.5"],
            r"^--effect must differ from 0.* Ask for a --half-width instead\.$",
        ),
        (["plan", "--effect", "1", "--dim", "3"], r"^--error-cov must .* --error-cov 0\.0\.$"),
        (["simulate", "none.toml"], r"^SPEC must be a readable file; got none\.toml"),
        (["journal", "check", "none.jsonl"], r"none\.jsonl"),
    ],
)
def test_a_command_refuses_in_its_own_options(typed: list[str], sentence: str) -> None:
    found = CliRunner().invoke(commands, typed).exception
    assert isinstance(found, mb.MebanditError)
    with pytest.raises(type(found), match=sentence):
        raise found


def test_a_process_refuses_in_options_where_python_names_arguments(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("x0,action,reward,propensity\n" + "1.5,1,0.5,0.5\n2.5,0,0.5,0.5\n" * 20)
    arguments = ["fit", "log.csv", "--predicted", "x0", "--error-cov=-1"]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "mebandit: --error-cov must be positive semidefinite; got a matrix with the eigenvalue -1.\n"
    with pytest.raises(mb.InvalidInput, match=r"^error_cov must be positive semidefinite"):
        mb.fit(tmp_path / "log.csv", predicted="x0", error_cov=-1)


def test_the_first_screen_lists_every_command_under_a_heading() -> None:
    lines = CliRunner().invoke(commands, ["--help"]).output.splitlines()
    for name in commands.commands:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1, name
    assert max(map(len, lines)) <= 80


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
def test_arguments_in_a_sentence_become_options(said: str, shown: str) -> None:
    assert in_options(said) == shown


def test_a_refusal_on_the_command_line_names_options(tmp_path: Path) -> None:
    make_log().drop(columns="user").to_csv(tmp_path / "log.csv", index=False)

    def refusal(*options: str) -> str:
        return run("fit", "log.csv", "--predicted", "one,stress", *options, cwd=tmp_path).stderr

    assert refusal() == (
        "mebandit: the error covariance must be known, to be corrected for; got nothing. Give --error-cov, or name the columns that hold "
        "it in --error-columns; --error-cov 0 for predictions without error.\n"
    )
    assert refusal("--error-cov", "0.1,0.5").startswith("mebandit: the error variance of 'one' must be 0")
    assert refusal("--error-cov", "0,0.5", "--ridge", "-1") == "mebandit: --ridge must be a number of at least 0; got -1.0.\n"


def test_only_options_of_the_running_command_are_named() -> None:
    said = "features must differ; got ones that do not."
    with click.Context(commands.commands["fit"]):
        assert in_options(said) == said
    with click.Context(commands.commands["error-model"]):
        assert in_options(said) == "--" + said
