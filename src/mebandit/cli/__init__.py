"""The command line, a module for each family of commands."""

import os
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper

from mebandit.checks import MebanditError

try:
    import click

    from mebandit.cli import (  # noqa: F401  commands are known once their module is imported
        analysing,
        benching,
        compiling,
        journals,
        merging,
        planning,
        simulating,
        valuing,
    )
    from mebandit.cli.terminal import Unread, commands
except ImportError:
    sys.exit("The mebandit command needs a few packages more than the library. Install them with: pip install 'mebandit[all]'")

INTERRUPTED, UNREAD = 130, 141
"""the exit statuses of a process that Ctrl-C ends, and of one whose output nobody reads any more (`mebandit fit ... | head -1`)"""


def main() -> None:
    """The entry point: a refusal is one sentence, not a traceback, and so are a warning, a full disk and too little memory."""
    warnings.formatwarning = lambda message, *_, **__: f"mebandit: {message}\n"
    for stream in (sys.stdout, sys.stderr):  # what a stream has no letters for is written by its code
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):
                stream.reconfigure(errors="backslashreplace")
    try:
        commands.main(prog_name="mebandit", standalone_mode=False)
        sys.stdout.flush()
    except MebanditError as error:
        sys.exit(f"mebandit: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        told = "interrupted; nothing is half-written. `simulate` and `paper` go on where they stopped when run again."
        click.echo(f"mebandit: {told}", err=True)
        sys.exit(INTERRUPTED)
    except MemoryError as error:
        said = f" ({error})" if str(error) else ""
        sys.exit(f"mebandit: what is asked for must fit into memory; got more{said}. Ask for fewer actions, features or workers.")
    except Unread:
        _print_no_more()
        sys.exit(UNREAD)
    except OSError as error:
        _print_no_more()
        sys.exit(f"mebandit: {error.filename or 'the output'} must be one that can be read or written; got: {error.strerror or error}.")


def _print_no_more() -> None:
    """Drop what is left to print, which Python would try once more at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
