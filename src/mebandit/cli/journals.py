"""`mebandit journal check trial.jsonl` and `mebandit journal repair trial.jsonl --out new.jsonl`."""

import sys
from pathlib import Path

import click

from mebandit.cli.terminal import commands, print_table
from mebandit.live.recovery import JournalCheck, check_journal, repair_journal


@commands.group()
def journal() -> None:
    """Check or repair the journal of a live trial.

    A journal is the file that `Learner(policy, journal=...)` writes: a line for each decision, each reward and each forgotten decision.

    \b
      mebandit journal check trial.jsonl
      mebandit journal repair trial.jsonl --out repaired.jsonl
    """


@journal.command()
@click.argument("journal", type=click.Path(path_type=Path))
def check(journal: Path) -> None:
    """Check that a journal is undamaged; if not, name its first bad line.

    Every line is compared with its checksum and with the lines before it. Every decision is compared with what the policy decides from
    the seed. The journal is only read, and a learner may write to it meanwhile. The exit status is 1 if a line is bad.
    """
    found = check_journal(journal)
    _print_counts("Journal", found)
    if found.fault:
        remedy = f"To keep the {found.lines:,} lines before it: mebandit journal repair {journal} --out NEW"
        sys.exit(f"mebandit: {found.fault}\n{remedy if found.lines else ''}".rstrip())
    if found.left:
        click.echo(f"The last line is incomplete ({found.left} bytes), since its call never returned. It is ignored.")
    if not found.replayed:
        click.echo(
            "Decisions were not reproduced, since the policy is a class of your own. In Python, mb.check_journal(path, policy=...) does."
        )
    click.echo("Every line is undamaged.")


@journal.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New journal to write.")
def repair(journal: Path, out: Path) -> None:
    """Copy the undamaged beginning of a journal to a new journal.

    The copy ends before the first bad line. The damaged journal is not changed. `Learner.recover` continues with the copy: decisions and
    rewards from the bad line on are lost, and the ids of those decisions are used again.
    """
    found = repair_journal(journal, out)
    _print_counts("Repaired journal", found)
    if found.fault:
        click.echo(f"Left out: {found.left:,} bytes, because {found.fault}")
    click.echo(f"Journal: {out.resolve()}")


def _print_counts(title: str, found: JournalCheck) -> None:
    names = ["good lines", "decisions", "rewards learned", "waiting"]
    print_table(title, names, [[f"{n:,}" for n in (found.lines, found.decided, found.learned, found.waiting)]], set())
