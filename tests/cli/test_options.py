"""The options that say what a log is: the same in every command that reads one."""

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.cli.options import COLUMN_KEYS, COLUMN_OPTIONS, ERROR_OPTIONS, ROW_OPTIONS, covariance
from mebandit.cli.terminal import commands
from mebandit.logs.log import LogColumns
from tests.logs.test_coding import trial

READERS = ("fit", "value", "plan", "export")


def help_of(command: str) -> dict[str, str]:
    """The help text of each option of a command, by the option."""
    context = click.Context(commands.commands[command])
    records = (parameter.get_help_record(context) for parameter in commands.commands[command].params)
    return dict(record for record in records if record is not None)


def test_log_options_are_the_same_in_all_commands() -> None:
    @click.command()
    def alone() -> None:
        pass

    for option in (*COLUMN_OPTIONS, *ERROR_OPTIONS, *ROW_OPTIONS):
        option(alone)
    context = click.Context(alone)
    shared = [record for parameter in alone.params if (record := parameter.get_help_record(context)) is not None]
    assert len(shared) == 20
    for command in READERS:
        own = help_of(command)
        assert [own.get(option) for option, _ in shared] == [text for _, text in shared], command


def test_every_keyword_of_a_log_is_an_option_and_a_key_of_a_columns_file() -> None:
    typed = {parameter.name for parameter in commands.commands["fit"].params}
    assert set(LogColumns.__annotations__) <= typed
    assert set(LogColumns.__annotations__) | {"floor"} == set(COLUMN_KEYS)


def test_an_option_has_one_meaning_in_all_commands() -> None:
    """--action names a column everywhere; what a plan compares has other names."""
    assert all(help_of(command)["--action TEXT"].startswith("Column of the action taken") for command in READERS)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0.5", 0.5),
        ("0,0.5", [0.0, 0.5]),
        ("1,0;0,2", [[1.0, 0.0], [0.0, 2.0]]),
        ("stress=0.25", {"stress": 0.25}),
        ("stress=0.25, steps=1", {"stress": 0.25, "steps": 1.0}),
        ("cov.csv", Path("cov.csv")),
    ],
)
def test_an_error_covariance_is_typed_in_these_ways(text: str, meant: object) -> None:
    assert covariance(text) == meant


def test_a_trial_is_read_alike_by_all_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = trial()
    log["reward"] = log["reward"].mask(np.arange(len(log)) % 10 == 3)
    log.to_csv("log.csv", index=False)
    typed = "--predicted stress,place --action message --propensity p_send --probability-of send --available free --unit who --time when"
    options = [*typed.split(), "--missing-outcomes", "leave-out", "--error-cov", "stress=0.1"]

    def call(*arguments: str) -> str:
        found = CliRunner().invoke(commands, arguments)
        assert found.exception is None, found.exception
        return found.output

    fitted = call("fit", "log.csv", *options, "--intercept", "--out", "analysis")
    assert "2 actions (none, send)" in fitted
    assert "rows without an available participant were left out" in " ".join(fitted.split())
    values = call("value", "log.csv", *options, "--json")
    assert '"send when available"' in values
    (tmp_path / "columns.toml").write_text(
        'predicted = ["stress", "place"]\naction = "message"\npropensity = "p_send"\nprobability_of = "send"\navailable = "free"\n'
        'unit = "who"\ntime = "when"\nmissing_outcomes = "leave-out"\nerror_cov = { stress = 0.1 }\n'
    )
    assert call("value", "log.csv", "--columns", "columns.toml", "--json") == values
    assert "rounds" in call("export", "log.csv", *options, "--to", "mrt", "--out", "mrt.csv")
    asked = ("--coefficient", "stress", "--treatment", "send", "--control", "none", "--effect", "0.2", "--days", "30", "--json")
    by_log = call("plan", "--pilot", "log.csv", *options, "--intercept", *asked)
    assert call("plan", "--pilot", "analysis/fit.json", *asked) == by_log
    rows = log[log["free"] & log["reward"].notna()]
    assert f'"pilot_rounds": {len(rows)}' in by_log
    direct = mb.fit(rows, predicted="stress,place", action="message", error_cov={"stress": 0.1}, intercept=True, unit="who", methods="dr")
    free, lost = float(log["free"].mean()), float(log["reward"][log["free"]].isna().mean())
    planned = mb.plan(direct, coefficient="stress", treatment="send", effect=0.2, days=30, availability=free, missing=lost)
    assert json.loads(by_log)["variance"] == planned.accuracy.variance
    assert json.loads(by_log)["rounds"] == pytest.approx(planned.rounds, abs=1)  # participants without a row count as participants there


def test_the_tables_of_a_trial_fit_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trial().query("free").to_csv("log.csv", index=False)
    typed = ["fit", "log.csv", "--predicted", "stress,place", "--action", "message", "--error-cov", "stress=0.1", "--intercept"]
    printed = CliRunner().invoke(commands, typed).output
    assert "Differences between actions: send - none" in printed
    tables = printed[printed.index("Coefficients") : printed.index("Diagnostics")]
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80
