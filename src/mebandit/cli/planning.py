"""`mebandit plan`."""

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from mebandit.checks import InvalidInput
from mebandit.cli.options import covariance, log_arguments, log_options, stored_log, whole
from mebandit.cli.terminal import commands, print_table

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # takes no type in older versions
FILES = ("plan.png", "plan.json", "plan.html")
"""what is written to a folder"""


class Numbers(ParamType):
    """A number; several with commas; rows of a matrix separated by semicolons."""

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
@click.option("--assurance", type=float, default=None, help="With --half-width: the wanted probability that the trial has it at most.")
@click.option("--power", type=float, default=0.8, show_default=True, help="Wanted power of the two-sided test that the coefficient is 0.")
@click.option(
    "--level", type=float, default=0.95, show_default=True, help="Confidence level of the interval; the test has the level 1 - this."
)
@click.option("--effect", type=float, default=None, help="True value of the coefficient, if not given by --theta.")
@click.option(
    "--coefficient",
    default="0",
    show_default=True,
    help="The feature, by number from 0 or by its name in the pilot; of a pilot also average, the effect at its mean context, and "
    "intercept, that at x = 0.",
)
@click.option("--treatment", default="1", show_default=True, help="The action, by number, or by its label in the pilot.")
@click.option(
    "--control",
    default="0",
    show_default=True,
    help="The action to compare with, likewise; -1: none, plan for the coefficient of the action itself.",
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
@click.option("--noise-sd", type=float, default=1.0, show_default=True, help="Standard deviation of the reward's noise.")
@click.option("--policy", type=click.Choice(["meb", "meb_dr", "constant"]), default="meb", show_default=True)
@click.option("--floor", type=float, default=0.2, show_default=True, help="Smallest probability of an action.")
@click.option(
    "--probabilities", type=Numbers(), default=None, help="Probabilities of the actions under --policy constant; equal by default."
)
@click.option("--rounds-per-user", type=float, default=1.0, show_default=True)
@click.option("--correlation", type=float, default=0.0, show_default=True, help="Intraclass correlation within users.")
@click.option("--days", type=float, help="Days of the trial: the plan is then in participants.")
@click.option("--decision-points", type=float, default=1.0, show_default=True, help="With --days: decision points a day.")
@click.option(
    "--availability", type=float, help="With --days: share of the points at which participants are available.  [default: the pilot's]"
)
@click.option(
    "--attrition", type=float, default=0.0, show_default=True, help="With --days: share of the participants who leave before the end."
)
@click.option("--missing", type=float, help="With --days: share of the outcomes that will be missing.  [default: the pilot's]")
@click.option(
    "--pilot",
    type=click.Path(path_type=Path),
    multiple=True,
    help="The fit.json of a pilot, or its log (repeat for several files); replaces the assumptions about the world.",
)
@log_options
@click.option("--intercept", is_flag=True, help="Fit an intercept for every action of the pilot.")
@click.option(
    "--replicates", type=int, default=400, show_default=True, help="Number of simulated trials for each number of rounds; 0: none."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for a report page, the picture and plan.json.")
def plan(as_json: bool, out: Path | None, control: str, pilot: tuple[Path, ...], **given: Any) -> None:
    """Compute how many rounds a trial needs.

    The number comes from a formula, or from a pilot. Trials of that many rounds are then simulated with the intended policy, and the number
    is raised if they fall short of the goal. With --days the plan is in participants. What says how a log is read goes with --pilot;
    --error-cov also describes a world without one.

    \b
      mebandit plan --effect 0.3 --dim 3 --error-cov 0.5
      mebandit plan --half-width 0.1 --theta '0,-1;0.5,1' --mean 1,0.5 --cov 0,1 --error-cov 0,0.5
      mebandit plan --pilot analysis/fit.json --coefficient average --effect 0.2 --days 60 --decision-points 4
    """
    from mebandit.analysis.planning.plan import plan as make_plan
    from mebandit.runtime.files import folder_for_results

    begun = monotonic()
    if given["treatment"].lstrip("-").isdecimal():
        given["treatment"] = int(given["treatment"])
    given["control"] = None if control == "-1" else int(control) if control.isdecimal() else control
    with folder_for_results(out, list(pilot), FILES) as folder:
        fitted = _pilot(pilot, given, folder)
        which = given["coefficient"]
        if whole(which) and not (fitted is not None and which in fitted.features):
            given["coefficient"] = int(which)
        found = make_plan(fitted, **given)
        if as_json:
            click.echo(found.to_json())
        else:
            _show(found)
        if folder is not None:
            page = _write(found, folder, seed=None if found.pilot_rounds else given["seed"], seconds=monotonic() - begun)
            click.echo(f"Report page: {page.resolve()}", err=as_json)


LOG_ONLY = ("on_bad", "set_aside")
"""options that every command has which reads a log, with a default that says nothing"""


def _pilot(paths: tuple[Path, ...], given: dict[str, Any], folder: Path | None) -> Any:
    """What the plan reads of the pilot, whose options are taken out of the given ones; without a pilot only --error-cov may be given."""
    from mebandit.analysis.planning.plan import pilot_of
    from mebandit.logs.log import LogColumns

    names = [*LogColumns.__annotations__, "columns", "error_model", *LOG_ONLY]
    of_log = {name: given.pop(name) for name in names}
    intercept, cov = given.pop("intercept"), of_log["error_cov"]
    arguments = log_arguments(of_log, folder)
    arguments.pop("floor", None)  # an option of its own
    said = sorted({*arguments, *(["intercept"] if intercept else [])} - set(LOG_ONLY if arguments.get("on_bad") == "refuse" else ()))
    if not paths:
        if cov is not None:
            said.remove("error_cov")  # that of the world
        if said:
            raise InvalidInput(f"columns go with a --pilot, whose log has them; got {', '.join(said)} without one.")
        given["error_cov"] = covariance(cov)
        return None
    if len(paths) == 1 and paths[0].suffix == ".json":
        if said:
            raise InvalidInput(f"columns go with a --pilot that is a log, not with its fit.json; got {', '.join(said)}.")
        return pilot_of(paths[0], given["method"], None, {})
    return pilot_of(stored_log(paths, arguments), given["method"], None, {"intercept": intercept} | arguments)


def _show(found: Any) -> None:
    needed, checked = found.needed(), found.checked()
    print_table("Rounds needed", needed.header, needed.rows, set())
    if checked.rows:
        print_table("Simulated trials", checked.header, checked.rows, set())
    Console().print(found.describe(), highlight=False, markup=False)


def _write(found: Any, folder: Path, *, seed: int | None, seconds: float) -> Path:
    from mebandit.reports.figures import picture
    from mebandit.runtime.files import write_together

    page = found.page().render(command=shlex.join(["mebandit", *sys.argv[1:]]), seed=seed, seconds=seconds)
    write_together(folder, {"plan.png": picture(found.plot()).png, "plan.json": found.to_json() + "\n", "plan.html": page})
    return folder / "plan.html"
