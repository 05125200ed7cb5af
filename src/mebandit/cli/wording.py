"""Messages of the library in the language of the command line.

The library names its arguments as Python has them: at the head of a refusal, in code such as `intercept=True`, or by a name with an
underscore. Here, and nowhere else, such a name becomes the option that sets it. Quoted text and paths stay as they are.
"""

import re
import sys
from functools import cache

import click

from mebandit.cli.terminal import commands

OTHER_NAMES = {"methods": "--method"}
"""arguments of the library whose option has another name"""

CODE = re.compile(r"(?<![\w'\"/.\-])`?(?P<name>[a-z]\w*)=(?P<value>'[^']*'|\[[^\]]*\]|[\w.+\-]+)`?")
QUOTED_NAME = re.compile(r"`(?P<name>[a-z]\w*)`")
HEAD = re.compile(r"^(?P<name>[a-z]\w*)(?= must )")
LONG_NAME = re.compile(r"(?<![\w'\"/.\-])(?P<name>[a-z]+(?:_[a-z]+)+)(?![\w'\"/]|\.\w)")


@cache
def options(command: str | None) -> dict[str, str]:
    """The option that sets an argument, by the argument's name: of one command, or of all."""
    chosen = [commands.commands[command]] if command else list(commands.commands.values())
    every = (param for each in chosen for param in each.params if isinstance(param, click.Option))
    return OTHER_NAMES | {str(param.name): max(param.opts, key=len) for param in every}


def running() -> str | None:
    """The name of the command that is running; None: none is."""
    return next((word for word in sys.argv[1:2] if word in commands.commands), None)


def in_options(text: str) -> str:
    """A message with options in the place of arguments.

    >>> in_options("n_actions must be at least 2; got 1. Fit an intercept (`intercept=True`), or set on_bad='set-aside'.")
    '--n-actions must be at least 2; got 1. Fit an intercept (--intercept), or set --on-bad set-aside.'
    """
    known = options(running())
    text = CODE.sub(lambda found: _set(found, known), text)
    for pattern in (QUOTED_NAME, HEAD, LONG_NAME):
        text = pattern.sub(lambda found: known.get(found["name"], found[0]), text)
    return text


def _set(found: re.Match[str], known: dict[str, str]) -> str:
    """`name=value` as an option with its value; without one where that is True."""
    option = known.get(found["name"])
    if option is None:
        return found[0]
    value = found["value"].strip("'[]").replace(", ", ",")
    return option if value == "True" else f"{option} {value}"
