"""What every command shares: the group it belongs to, and how a table looks on a terminal."""

import re
import sys
from collections.abc import Mapping
from typing import Any

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mebandit import __version__
from mebandit.checks import MebanditError, Refusal
from mebandit.cli.naming import in_options, refusal_in_options

SECTIONS = {
    "Start here": ("demo",),
    "Live trials": ("plan", "serve", "replay", "journal", "merge"),
    "Analysis of a log": ("fit", "value", "error-model", "export"),
    "Research": ("simulate", "paper"),
    "Maintenance": ("compile", "bench"),
}
"""the commands of `mebandit --help`; those that are not named here come last"""

EPILOG = "More on one command: mebandit COMMAND --help. In Python: import mebandit."


class Unread(Exception):
    """Nobody reads what is printed any more, as in `mebandit fit ... | head -1`."""


class Command(click.Command):
    """A command whose error messages name its options, not the arguments of the Python function that it calls."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MebanditError as error:
            said = error.args[0] if error.args else ""
            raise type(error)(refusal_in_options(said, self) if isinstance(said, Refusal) else in_options(str(said))) from error


class Commands(click.Group):
    """A group of commands, listed under headings. It raises `Unread` when nobody reads the output, however click and rich report that."""

    command_class = Command
    group_class = type

    def invoke(self, ctx: click.Context) -> Any:
        try:
            found = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise Unread from error
        except SystemExit as end:  # by rich
            if isinstance(end.__context__, BrokenPipeError):
                raise Unread from end
            raise
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = {name: self.commands[name] for name in self.list_commands(ctx)}
        sections = {title: {name: left.pop(name) for name in names if name in left} for title, names in SECTIONS.items()}
        width = max(map(len, self.commands), default=0)
        for title, commands in (sections | {"Commands": left}).items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), command.get_short_help_str(limit=200)) for name, command in commands.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="mebandit")
def commands() -> None:
    """Contextual bandits for contexts that are measured with error.

    The policy sees a prediction x̃ = x + ε in place of the context x. Methods that ignore the error ε learn a wrong reward model, and take
    wrong actions. mebandit corrects for it, given the covariance of ε: in live trials, in the analysis of their logs, and in simulation.
    """


def listed(subjects: Mapping[str, str]) -> str:
    """Names with what they stand for, as lines that click leaves as they are."""
    width = max(map(len, subjects), default=0) + 2
    return "\n".join(["\b", *(f"  {name:{width}}{subject}" for name, subject in subjects.items())])


def print_table(title: str, header: list[str], rows: list[list[str]], muted: set[int]) -> None:
    """Print a table; `muted` rows are dim. Numbers are never cut: where the terminal is too narrow, lines run over its edge.

    Args:
        title: What stands above the table.
        header: The names of the columns.
        rows: The cells, which may have several lines each.
        muted: The numbers of the rows that are there for reference.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(header):
        lines = [line for row in rows for line in row[i].split("\n")]
        numeric = all(map(_is_number, lines))
        whole = [part for line in lines for part in ([line] if len(line) < 12 or line[0] == "[" else line.split())]
        table.add_column(
            Text(name),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            min_width=max(map(cell_len, [*name.split(), *whole]), default=1),
        )
    for i, row in enumerate(rows):
        table.add_row(*map(Text, row), style="dim" if i in muted else None)
    console = Console()
    least = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    (console if least <= console.width else Console(width=least)).print(table)  # a long line is better than a number cut short


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+±-]*[\d,]*\.?\d*(e[+-]\d+)?", text) is not None
