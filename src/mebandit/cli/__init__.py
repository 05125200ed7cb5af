"""The command line: `demo`, `simulate`, `paper` for simulations, `fit` for logs, `merge` for sites, `plan` for trials to come, `bench`."""

import os
import sys
import warnings
from contextlib import suppress

from mebandit.checks import MebanditError

try:
    import click

    from mebandit.cli import (  # noqa: F401  commands are known once their module is imported
        analysing,
        benching,
        merging,
        planning,
        simulating,
        valuing,
    )
    from mebandit.cli.terminal import commands
except ImportError:
    sys.exit("The mebandit command needs a few packages more than the library. Install them with: pip install 'mebandit[all]'")


def main() -> None:
    """The entry point: a refusal is one sentence, not a traceback, and so are a warning, a full disk and too little memory."""
    warnings.formatwarning = lambda message, *_, **__: f"mebandit: {message}\n"
    try:
        commands.main(prog_name="mebandit", standalone_mode=False)
        sys.stdout.flush()
    except MebanditError as error:
        sys.exit(f"mebandit: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        sys.exit("mebandit: interrupted; nothing is half-written. `simulate` and `paper` go on where they stopped when run again.")
    except MemoryError as error:
        sys.exit(f"mebandit: the memory must be enough for what was asked; got too little ({error or 'none was left'}).")
    except OSError as error:  # files are refused where they are opened; this is where the tables and sentences go
        with suppress(OSError):  # what is left of them would be tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"mebandit: the output must be one that can be written; got: {error}.")
