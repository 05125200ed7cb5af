"""`mebandit plan`."""

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.console import Console

from mebandit.checks import InvalidInput
from mebandit.cli.options import columns_file, whole
from mebandit.cli.terminal import commands, print_table

FILES = ("plan.png", "plan.json", "plan.html")
"""what is written to a folder"""


class Numbers(click.ParamType[Any]):
    """A number; several with commas; rows of them with semicolons."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            rows = [[float(cell) for cell in row.split(",")] for row in str(value).split(";")]
        except ValueError:
            self.fail(f"must be numbers, with commas between them and semicolons between rows; got {value!r}.", param, ctx)
        if len(rows) > 1:
            return rows
        return rows[0] if len(rows[0]) > 1 else rows[0][0]


@commands.command()
@click.option("--half-width", type=float, default=None, help="Wanted half-width of the interval; without it, the plan is for a test.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Wanted power of the two-sided test that the coefficient is 0.")
@click.option(
    "--level", type=float, default=0.95, show_default=True, help="Confidence level of the interval; the test has the level 1 - this."
)
@click.option("--effect", type=float, default=None, help="True value of the coefficient, if not given by --theta.")
@click.option("--coefficient", default="0", show_default=True, help="The feature, by number from 0, or by its name in the pilot's log.")
@click.option("--action", type=int, default=1, show_default=True)
@click.option(
    "--baseline", type=int, default=0, show_default=True, help="The action to compare with; -1: none, plan for θ of the action itself."
)
@click.option(
    "--method", type=click.Choice(["meb", "dr", "rc"]), default="dr", show_default=True, help="Estimation method of the trial's analysis."
)
@click.option("--theta", type=Numbers(), default=None, help="θ, a row for each action: '0,1;0.5,1'.")
@click.option("--dim", type=int, default=None, help="Number of features, if there is no --theta.")
@click.option("--mean", type=Numbers(), default="0", show_default=True, help="Mean of the context.")
@click.option(
    "--cov",
    type=Numbers(),
    default="1",
    show_default=True,
    help="Covariance of the context: a number, variances, or rows. 0 for a constant feature.",
)
@click.option("--error-cov", type=Numbers(), default=None, help="Covariance of the prediction error: a number, variances, or rows.")
@click.option("--noise-sd", type=float, default=1.0, show_default=True, help="Standard deviation of the reward's noise.")
@click.option("--policy", type=click.Choice(["meb", "meb_dr", "constant"]), default="meb", show_default=True)
@click.option("--floor", type=float, default=0.2, show_default=True, help="Smallest probability of an action.")
@click.option(
    "--probabilities", type=Numbers(), default=None, help="Probabilities of the actions under --policy constant; equal by default."
)
@click.option("--rounds-per-user", type=float, default=1.0, show_default=True)
@click.option("--correlation", type=float, default=0.0, show_default=True, help="Intraclass correlation within users.")
@click.option("--pilot", type=click.Path(path_type=Path), default=None, help="Log of a pilot; replaces the assumptions about the world.")
@click.option("--predicted", default=None, help="The pilot's columns of predicted features, separated by commas.")
@click.option("--reward", default=None, help="The pilot's column of the reward.  [default: reward]")
@click.option(
    "--propensity",
    default=None,
    help="The pilot's column of the probability of the action taken; or one for each action, separated by commas.",
)
@click.option("--unit", default=None, help="The pilot's column of the participant or cluster identifier.")
@click.option("--columns", type=click.Path(path_type=Path), help="A TOML file with the pilot's columns, as for mebandit fit.")
@click.option("--error-model", default=None, help="The pilot's error model, made by `mebandit error-model`; replaces --error-cov.")
@click.option("--intercept", is_flag=True, help="Fit an intercept for every action of the pilot.")
@click.option(
    "--replicates", type=int, default=400, show_default=True, help="Number of simulated trials for each number of rounds; 0: none."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for a report page, the picture and plan.json.")
def plan(as_json: bool, out: Path | None, baseline: int, pilot: Path | None, columns: Path | None, **given: Any) -> None:
    """Compute how many rounds a trial needs.

    The number comes from a formula, or from a pilot. Trials of that many rounds are then simulated with the intended policy, and the number
    is raised if they fall short of the goal. Two examples:

    \b
      mebandit plan --effect 0.3 --dim 3 --error-cov 0.5
      mebandit plan --half-width 0.1 --theta '0,-1;0.5,1' --mean 1,0.5 --cov 0,1 --error-cov 0,0.5
    """
    from mebandit.analysis.fit import fit
    from mebandit.analysis.planning.plan import plan as make_plan
    from mebandit.logs.log import Log
    from mebandit.runtime.files import folder_for_results

    begun = monotonic()
    of_pilot = {name: given.pop(name) for name in ("predicted", "reward", "propensity", "unit", "error_model", "intercept")}
    said = columns_file(columns) | {name: value for name, value in of_pilot.items() if value}
    said.pop("floor", None)  # an option of its own
    if given["error_cov"] is not None and "error_model" in said:
        raise InvalidInput("the error must be given once; got both --error-cov and --error-model.")
    if pilot is None and said:
        raise InvalidInput(f"columns go with a --pilot, whose log has them; got {', '.join(sorted(said))} without one.")
    with folder_for_results(out, [] if pilot is None else [pilot], FILES) as folder:
        error = said.pop("error_model", given["error_cov"])
        intercept = bool(said.pop("intercept", False))
        fitted = None if pilot is None else fit(Log(pilot, error_cov=error, **said), methods=given["method"], intercept=intercept)
        which = given["coefficient"]
        if whole(which) and not (fitted is not None and which in fitted.features):
            given["coefficient"] = int(which)
        found = make_plan(fitted, baseline=None if baseline == -1 else baseline, **given)
        if as_json:
            click.echo(found.to_json())
        else:
            _show(found)
        if folder is not None:
            page = _write(found, folder, seed=given["seed"], seconds=monotonic() - begun)
            click.echo(f"Report page: {page.resolve()}", err=as_json)


def _show(found: Any) -> None:
    needed, checked = found.needed(), found.checked()
    print_table("Rounds needed", needed.header, needed.rows, set())
    if checked.rows:
        print_table("Simulated trials", checked.header, checked.rows, set())
    Console().print(found.describe(), highlight=False, markup=False)


def _write(found: Any, folder: Path, *, seed: int, seconds: float) -> Path:
    from mebandit.reports.figures import picture
    from mebandit.runtime.files import write_together

    page = found.page().render(command=shlex.join(["mebandit", *sys.argv[1:]]), seed=seed, seconds=seconds)
    write_together(folder, {"plan.png": picture(found.plot()).png, "plan.json": found.to_json() + "\n", "plan.html": page})
    return folder / "plan.html"
