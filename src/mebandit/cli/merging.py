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
@click.option("--out", required=True, type=click.Path(path_type=Path), help="State file to write.")
def merge(states: tuple[Path, ...], out: Path) -> None:
    """Add up what learners at several sites have learned, without their rounds.

    STATES are files that `Learner.save` wrote, of learners with the same policy. Sums are added in the order of the files, (a + b) + c. The
    result goes on with the first one's seed and waiting decisions.

    \b
      mebandit merge north.json south.json --out pooled.json
    """
    if len(states) < 2:
        checks.refuse("the states to merge", "be at least two files", f"{len(states)}")
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
