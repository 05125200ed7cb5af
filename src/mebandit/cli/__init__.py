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
        serving,
        simulating,
        valuing,
    )
    from mebandit.cli.naming import in_options
    from mebandit.cli.terminal import Unread, commands
except ImportError:
    sys.exit("The mebandit command needs a few more packages than the library. Install them with: pip install 'mebandit[all]'")

INTERRUPTED, UNREAD = 130, 141
"""exit statuses: after Ctrl-C, and when nobody reads the output any more (as in `mebandit fit ... | head -1`)"""


def main() -> None:
    """Run the command line. Errors and warnings are one sentence, not a traceback; so are a full disk and too little memory."""
    warnings.formatwarning = lambda message, *_, **__: f"mebandit: {in_options(str(message))}\n"
    for stream in (sys.stdout, sys.stderr):  # characters that the stream cannot encode are written as codes
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
        told = "interrupted. No file is half-written; `simulate` and `paper` continue when run again."
        click.echo(f"mebandit: {told}", err=True)
        sys.exit(INTERRUPTED)
    except MemoryError as error:
        said = f" ({error})" if str(error) else ""
        sys.exit(f"mebandit: the computation must fit into memory; got one that does not{said}. Use fewer actions, features or workers.")
    except Unread:
        _print_no_more()
        sys.exit(UNREAD)
    except OSError as error:
        _print_no_more()
        sys.exit(f"mebandit: {error.filename or 'the output'} must be one that can be read or written; got: {error.strerror or error}.")


def _print_no_more() -> None:
    """Send the rest of the output to nowhere. Python would otherwise try to print it once more when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
