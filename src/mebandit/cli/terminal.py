"""What every command shares: the group it belongs to, and how a table looks on a terminal."""

import re
import sys
from typing import Any

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mebandit import __version__

EPILOG = "Start with: mebandit demo. The library itself is `import mebandit`; see the README."


class Unread(Exception):
    """Nobody reads what is printed any more, as in `mebandit fit ... | head -1`."""


class Commands(click.Group):
    """Commands that tell, by `Unread`, that their output is not read, however click and rich take that."""

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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="mebandit")
def commands() -> None:
    """Bandits that act on predicted contexts.

    A contextual bandit that sees a prediction x̃ = x + ε instead of the context x learns the wrong model, because x̃ is not x. mebandit
    corrects for the error, in simulation and live.
    """


def print_table(title: str, header: list[str], rows: list[list[str]], muted: set[int]) -> None:
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
