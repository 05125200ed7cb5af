"""Error messages in the words of the command line: `--n-actions` where Python says `n_actions`."""

import re
from collections.abc import Iterable, Mapping

import click

from mebandit.checks import Refusal

ALONE = r"(?<![\w'\"`./-])({})(?![\w'\"`(/-]|\.\w)"
"""a name that stands by itself: not in quotes, not part of another name, of a call or of a path"""


def in_options(refusal: Refusal, command: click.Command) -> Refusal:
    """The same refusal, with the options of a command in place of the arguments of a Python function.

    An argument and an option belong together if they have one name. `what` may be an argument, or several with "and" between them. In the
    rest of the sentence only two forms are taken for arguments, since `action` and `level` are English words too: names with an underscore,
    and names with a value, as in `floor=0.1`.

    Args:
        refusal: What a Python function refused.
        command: The command that called it.
    """
    options = dict(_spellings(command.params))
    what = _subject(refusal.what, options)
    return Refusal(what, *(_sentence(text, options) for text in refusal[1:]))


def _spellings(parameters: Iterable[click.Parameter]) -> Iterable[tuple[str, str]]:
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
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))

    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], found[2] or ""
        if "_" not in name and not value:
            return found[0]
        return options[name] + ("" if value in ("", "=True") else " ")

    return re.sub(ALONE.format(names) + r"(=True\b|=)?", spelled, text) if names else text
