"""Messages of the library in the words of the command line: `--n-actions` where Python says `n_actions`.

The library names its arguments as Python has them. Here, and nowhere else, such a name becomes the option that sets it. Quoted text, paths
and calls stay as they are. Since `action` and `level` are English words too, only plain cases count as arguments inside a sentence: names
with an underscore, names in backticks, and names with a value, as in `floor=0.1`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import click

from mebandit.checks import Refusal

OTHER_NAMES = {"methods": "--method"}
"""arguments of the library whose option has another name"""

ALONE = r"(?<![\w'\"/.\-])"
VALUED = re.compile(ALONE + r"`?(?P<name>[a-z]\w*)=(?P<value>'[^']*'|\[[^\]]*\]|[\w.+\-]*\w)?`?")
IN_BACKTICKS = re.compile(r"`(?P<name>[a-z]\w*)`")
AT_THE_HEAD = re.compile(r"^(?P<name>[a-z]\w*)(?= must )")
WITH_UNDERSCORE = re.compile(ALONE + r"(?P<name>[a-z]+(?:_[a-z]+)+)(?![\w'\"/(]|\.\w)")


def refusal_in_options(refusal: Refusal, command: click.Command) -> Refusal:
    """The same refusal, with the options of a command in place of the arguments of a Python function.

    Args:
        refusal: What a Python function refused.
        command: The command that called it.
    """
    options = options_of([command])
    return Refusal(_subject(refusal.what, options), *(_sentence(text, options) for text in refusal[1:]))


def in_options(text: str) -> str:
    """A message in the options of the command that is running; those of all commands if none is.

    >>> in_options("n_actions must be at least 2; got 1. Fit an intercept (`intercept=True`), or set on_bad='set-aside'.")
    '--n-actions must be at least 2; got 1. Fit an intercept (--intercept), or set --on-bad set-aside.'
    """
    from mebandit.cli.terminal import commands  # whose commands call this

    context = click.get_current_context(silent=True)
    options = options_of([context.command] if context is not None else commands.commands.values())
    return _sentence(AT_THE_HEAD.sub(lambda found: options.get(found["name"], found[0]), text), options)


def options_of(commands: Iterable[click.Command]) -> dict[str, str]:
    """What a user of these commands types for an argument of the library, by its name."""
    return OTHER_NAMES | dict(pair for command in commands for pair in _spellings(command.params))


def _spellings(parameters: Iterable[click.Parameter]) -> Iterator[tuple[str, str]]:
    """Pairs of a Python name and what a user types for it: an option such as --n-actions, or an argument such as LOG."""
    for parameter in parameters:
        if isinstance(parameter, click.Option):
            option = max(parameter.opts, key=len)
            yield option.lstrip("-").replace("-", "_"), option
        else:
            option = parameter.human_readable_name
        if parameter.name:
            yield parameter.name, option


def _subject(what: str, options: Mapping[str, str]) -> str:
    """`what` in options, if all of it is arguments, such as `mean and cov` or `error_cov[3]`."""
    parts = [re.fullmatch(r"(\w+)((?:[\[(.]| ').*)?", part) for part in what.split(" and ")]
    if all(part is not None and part[1] in options for part in parts):
        return " and ".join(options[part[1]] + (part[2] or "") for part in parts if part is not None)
    return _sentence(what, options)


def _sentence(text: str, options: Mapping[str, str]) -> str:
    """A text in options, as far as it plainly names arguments."""
    text = VALUED.sub(lambda found: _setting(found, options), text)
    for pattern in (IN_BACKTICKS, WITH_UNDERSCORE):
        text = pattern.sub(lambda found: options.get(found["name"], found[0]), text)
    return text


def _setting(found: re.Match[str], options: Mapping[str, str]) -> str:
    """`name=value` as an option with its value; without one where that is True, which is what a flag sets."""
    option, value = options.get(found["name"]), (found["value"] or "").strip("'[]").replace(", ", ",")
    if option is None:
        return found[0]
    return option if value in ("", "True") else f"{option} {value}"
