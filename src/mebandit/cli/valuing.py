"""`mebandit value log.parquet` and `mebandit export log.parquet`."""

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console

from mebandit.analysis.target_policies import WHEN_AVAILABLE
from mebandit.checks import InvalidInput, LogError
from mebandit.cli.options import (
    log_argument,
    log_arguments,
    log_options,
    sandwich_option,
    stored_log,
    threads_option,
    whole,
    workers_options,
)
from mebandit.cli.terminal import commands, print_table
from mebandit.estimation.methods import METHODS
from mebandit.runtime.files import parse_json

if TYPE_CHECKING:
    from mebandit.logs.log import Log


@commands.command()
@log_argument
@log_options
@workers_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    help="uniform; an action, by number or label; '1 when available' or 'send when available'; or probabilities separated by commas. "
    "Repeat for several.",
)
@click.option(
    "--theta",
    help="θ of a greedy rule: K rows of d numbers (CSV, JSON, or the output of `mebandit fit --json`); or fit: estimate it from the log.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="dr",
    show_default=True,
    help="The method whose θ is taken from a fit, or by which θ is estimated.",
)
@click.option("--floor", type=float, default=0.0, show_default=True, help="The rule's smallest probability of an action.")
@click.option("--context", type=click.Choice(["blp", "predicted"]), help="What the rule reads.  [default: blp where the error is given]")
@click.option("--intercept", is_flag=True, help="Fit an intercept for every action too.")
@click.option(
    "--learn-share",
    type=float,
    default=0.5,
    show_default=True,
    help="The share of the rows, the first ones, from which --theta fit estimates θ.",
)
@sandwich_option
@click.option("--anytime", is_flag=True, help="Print intervals that hold at every look at a growing log.")
@click.option(
    "--reward-bounds", help="With --anytime: the smallest and the largest possible reward, 0,1, for intervals without asymptotics."
)
@click.option("--difference", is_flag=True, help="Print the differences between the policies, with intervals.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: policies.<name>.estimates.<estimator>.value, .std_error, .interval, ...")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for tables, a figure and a report page.")
def value(log: tuple[Path, ...], as_json: bool, out: Path | None, difference: bool, anytime: bool, **given: Any) -> None:
    """Estimate what other policies would have earned, from a log, with confidence intervals.

    The policies are fixed ones (--policy), and greedy rules that read the predicted context or the best linear predictor (--theta). The
    default is uniform play, and each action always, or when available. --theta fit estimates θ from the first half of the rows, or of
    the --time, and all values from the second half, because from the same rows the value would be biased upwards. Without --time, rows
    must be in the order of time.

    \b
      mebandit value log.parquet --predicted x0,x1 --policy uniform --policy 1 --difference
      mebandit value log.parquet --predicted x0,x1 --theta fit.json --error-cov 0.1,0.5 --floor 0.1
      mebandit value trial.jsonl --theta fit --out values
    """
    from mebandit.analysis import value_page
    from mebandit.runtime.files import folder_for_results

    begun = monotonic()
    if given["reward_bounds"] is not None and not anytime:
        raise InvalidInput("--reward-bounds must go with --anytime; got it alone.")
    aside = given["set_aside"] or (out or Path()) / "set_aside.csv"
    with folder_for_results(out, log, value_page.FILES) as folder:
        found = _valued(log, folder, given)
        if folder is not None:
            command = shlex.join(["mebandit", *sys.argv[1:]])
            value_page.write(found, folder, command=command, seconds=monotonic() - begun)
    if as_json:
        click.echo(found.to_json())
        return
    console = Console()
    console.print(value_page.headline(found), highlight=False, markup=False, soft_wrap=True)
    shown = value_page.brief(found)
    print_table("Reward per round", shown.header, shown.rows, {i for i, row in enumerate(shown.rows) if row[1] != "dr"})
    if difference:
        between = value_page.differences(found, ["dr"])
        print_table("Differences between policies, * where the interval excludes zero", between.header, between.rows, set())
    if anytime:
        looks = value_page.anytime(found)
        print_table("Intervals that hold at every look together", looks.header, looks.rows, set())
    for words in value_page.notes(found):
        console.print(words, style="yellow", highlight=False, markup=False)
    if found.faults:
        click.echo(f"Rows set aside: {aside}")
    if folder is not None:
        click.echo(f"Tables and figure: {folder.resolve()}\nReport page: {(folder / 'value.html').resolve()}")


def _valued(log: tuple[Path, ...], folder: Path | None, given: dict[str, Any]) -> Any:
    """The values of the policies that the options name."""
    from mebandit.analysis.value import value

    rule = {name: given.pop(name) for name in ("theta", "method", "floor", "context", "intercept")}
    given["reward_bounds"] = _bounds(given["reward_bounds"])
    policies, level, share = given.pop("policies"), given.pop("level"), given.pop("learn_share")
    arguments = log_arguments(given, folder)
    arguments.pop("floor", None)  # of the logged policy; that of the rule is an option
    stored = stored_log(log, arguments)
    known = stored.error_cov is not None or stored.error_columns is not None
    rule["context"] = rule["context"] or ("blp" if known or rule["theta"] == "fit" else "predicted")
    targets = _fixed(policies, stored) | _rule(rule, stored) or _usual(stored)
    return value(stored, targets, level=level, learn_share=share, **arguments)


def _bounds(text: str | None) -> tuple[float, ...] | None:
    """The bounds of the rewards, from their text."""
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--reward-bounds must be two numbers with a comma, such as 0,1; got {text!r}.") from None


def _usual(log: "Log") -> dict[str, Any]:
    """Uniform play, and each action for ever, or whenever participants are available."""
    names = log.coding.actions or tuple(map(str, range(log.open().n_actions)))
    return _fixed(("uniform", *(name + (WHEN_AVAILABLE if log.available else "") for name in names)), log)


def _fixed(policies: tuple[str, ...], log: "Log") -> dict[str, Any]:
    """Policies that do not read the context, by name."""
    found: dict[str, Any] = {}
    for text in policies:
        if text == "uniform" or text.endswith(WHEN_AVAILABLE):
            found[text] = text
        elif whole(text) or text in log.coding.actions:
            found[f"always {text}"] = int(text) if text not in log.coding.actions else text
        else:
            try:
                found[text] = [float(part) for part in text.split(",")]
            except ValueError:
                rule = "be uniform, an action, one `when available`, or probabilities with commas"
                raise InvalidInput(f"--policy must {rule}; got {text!r}.") from None
    return found


def _rule(given: dict[str, Any], log: "Log") -> dict[str, Any]:
    """The linear rule that the options describe, by name; none without --theta."""
    from mebandit.analysis.linear_rule import Fitted, LinearRule

    theta, context, floor = given["theta"], given["context"], given["floor"]
    if theta is None:
        return {}
    if theta == "fit":
        return {"learned": Fitted(method=given["method"], context=context, floor=floor, intercept=given["intercept"])}
    path = Path(theta)
    data = _read_theta(path)
    if isinstance(data, dict):
        _check_fit(path, data, log)
    return {path.stem: LinearRule(floor=floor, context=context, **_theta(path, data, given["method"]))}


def _check_fit(path: Path, fit: dict[str, Any], log: "Log") -> None:
    """Refuse what was fitted to other features, or to predictions that were unbiased first where here they are not."""
    named, model, error = log.columns.predicted, None if log.error is None else log.error.model, fit.get("error")
    if "features" in fit and fit["features"] != list(named):
        got = ", ".join(map(str, fit["features"])) if isinstance(fit["features"], list) else str(fit["features"])
        raise InvalidInput(f"the θ of {path} must be for the log's features, {', '.join(named)}, in their order; got one for {got}.")
    if isinstance(error, dict) and error.get("unbiases") and not (model is not None and model.unbiases):
        rule = "be used with the error model with which it was fitted, which corrects the bias of predictions"
        raise InvalidInput(f"the θ of {path} must {rule}; got none. Give it by --error-model.")


def _theta(path: Path, data: Any, method: str) -> dict[str, Any]:
    """What a rule has to know: θ from a CSV or JSON of numbers; from what `mebandit fit --json` printed, intercepts and rounds too."""
    if not isinstance(data, dict):
        return {"theta": data}
    estimates = data.get("estimates")
    if not isinstance(estimates, dict) or not isinstance(estimates.get(method), dict) or "theta" not in estimates[method]:
        there = f"one with {', '.join(estimates)}" if isinstance(estimates, dict) else "one without estimates"
        raise LogError(f"{path} must have estimates.{method}.theta, as `mebandit fit --json` writes it; got {there}. Choose with --method.")
    return {"theta": estimates[method]["theta"], "intercept": estimates[method].get("intercept"), "fitted_to": data.get("rounds", 0)}


def _read_theta(path: Path) -> Any:
    """What a JSON file holds, or the numbers of a CSV."""
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2) if path.suffix != ".json" else parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"--theta must be a CSV or JSON file of numbers, or fit; got {path}, which cannot be read ({reason}).") from error


@commands.command()
@log_argument
@log_options
@threads_option
@click.option(
    "--to", required=True, type=click.Choice(["obp", "mrt"]), help="obp: Open Bandit Pipeline, .npz; mrt: trials, .csv or .parquet."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write.")
def export(log: tuple[Path, ...], to: str, out: Path, **given: Any) -> None:
    """Write a log in the layout of another package.

    \b
      obp   bandit_feedback of Open Bandit Pipeline, a .npz (made in memory)
      mrt   one row per decision: id, decision_point, availability, action, rand_prob, outcome, x̃ (a .csv or .parquet)
    """
    from mebandit.analysis.export import export

    arguments = log_arguments(given)
    arguments.pop("floor", None)  # which no layout has a place for
    rows = export(stored_log(log, arguments), out, to=to, **arguments)
    click.echo(f"{rows:,} rounds: {out.resolve()}")
