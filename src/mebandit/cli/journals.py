"""`mebandit journal check trial.jsonl` and `mebandit journal repair trial.jsonl --out new.jsonl`."""

import sys
from pathlib import Path

import click

from mebandit.cli.terminal import commands, print_table
from mebandit.live.recovery import JournalCheck, check_journal, repair_journal


@commands.group()
def journal() -> None:
    """Check or repair the journal of a live trial.

    A journal is the file that a learner with journal=... writes: a line for each decision, reward and decision that was given up.

    \b
      mebandit journal check trial.jsonl
      mebandit journal repair trial.jsonl --out repaired.jsonl
    """


@journal.command()
@click.argument("journal", type=click.Path(path_type=Path))
def check(journal: Path) -> None:
    """Say whether a journal is whole, and name its first bad line.

    Every line is compared with its checksum, its events with each other, and every decision with what the policy and the seed give. The
    journal is only read, also while a learner writes to it. The exit status is 1 if a line is bad.
    """
    found = check_journal(journal)
    _print_counts("Journal", found)
    if found.fault:
        remedy = f"To keep the {found.lines:,} lines before it: mebandit journal repair {journal} --out NEW"
        sys.exit(f"mebandit: {found.fault}\n{remedy if found.lines else ''}".rstrip())
    if found.left:
        click.echo(f"The last line has no end ({found.left} bytes): its call never returned, and it does not count.")
    if not found.replayed:
        click.echo(
            "Decisions were not computed again, since the policy is a class of your own: mb.check_journal(path, policy=...) does that."
        )
    click.echo("Every line is good.")


@journal.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New journal to write.")
def repair(journal: Path, out: Path) -> None:
    """Copy what comes before a journal's first bad line to a new journal.

    The damaged journal stays as it is. `Learner.recover` goes on with the new one. Decisions and rewards from the bad line on are not in
    it, and the ids of those decisions are given again.
    """
    found = repair_journal(journal, out)
    _print_counts("Repaired journal", found)
    if found.fault:
        click.echo(f"Left out: {found.left:,} bytes, because {found.fault}")
    click.echo(f"Journal: {out.resolve()}")


def _print_counts(title: str, found: JournalCheck) -> None:
    names = ["good lines", "decisions", "rewards learned", "waiting"]
    print_table(title, names, [[f"{n:,}" for n in (found.lines, found.decided, found.learned, found.waiting)]], set())
