"""The command line, a module for each family of commands."""

import sys
import warnings

from mebandit.checks import MebanditError

try:
    import click

    from mebandit.cli import (  # noqa: F401  commands are known once their module is imported
        analysing,
        benching,
        journals,
        merging,
        planning,
        simulating,
        valuing,
    )
    from mebandit.cli.terminal import commands
except ImportError:
    sys.exit("The mebandit command needs a few packages more than the library. Install them with: pip install 'mebandit[all]'")


def main() -> None:
    """The entry point: a refusal is one sentence, not a traceback, and so is a warning."""
    warnings.formatwarning = lambda message, *_, **__: f"mebandit: {message}\n"
    try:
        commands.main(prog_name="mebandit", standalone_mode=False)
    except MebanditError as error:
        sys.exit(f"mebandit: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        sys.exit("mebandit: interrupted; nothing is half-written. `simulate` and `paper` go on where they stopped when run again.")
