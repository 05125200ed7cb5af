"""`mebandit merge a.json b.json`."""

from pathlib import Path

import click

from mebandit import checks
from mebandit.checks import InvalidInput
from mebandit.cli.terminal import commands, print_table
from mebandit.live.learner import Learner
from mebandit.live.state_files import FORMAT
from mebandit.runtime.files import begins_with, check_output


@commands.command()
@click.argument("states", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="State file of the pooled learner.")
def merge(states: tuple[Path, ...], out: Path) -> None:
    """Pool the learners of several sites, without sharing their rounds.

    STATES are files written by `Learner.save`, all with the same policy. Their sums are added in the order of the files, (a + b) + c. The
    pooled learner keeps the seed and the waiting decisions of the first.

    \b
      mebandit merge north.json south.json --out pooled.json
    """
    if len(states) < 2:
        checks.refuse("states", "be at least two files", len(states))
    check_output(out, states, ours=begins_with(FORMAT))
    sites = [Learner.load(path) for path in states]
    pooled = sites[0]
    for path, site in zip(states[1:], sites[1:], strict=True):
        try:
            pooled = pooled.merge(site)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error
    pooled.save(out)
    rows = [
        [name, *(f"{n:,}" for n in (s.decided, s.learned, s.waiting))]
        for name, s in zip([*map(str, states), "pooled"], [*sites, pooled], strict=True)
    ]
    print_table("Merged", ["", "decisions", "rewards learned", "waiting"], rows, set())
    click.echo(f"State: {out.resolve()}")
