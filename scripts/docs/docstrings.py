"""An extension of griffe: what the reference makes of docstrings beyond their sections.

Examples (`>>>` and what they print) are shown as code. One line for several arguments (`floor, warmup: ...`) becomes one for each.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^|(?<=\n\n))((?:>>> |\.\.\. ).*?)(?=\n\s*\n|\Z)", flags=re.DOTALL)
ARGUMENTS = re.compile(r"^    (\w+(?:, \w+)+)(:.*(?:\n {5,}.*)*)", flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrite every docstring for the reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value)
            obj.docstring.value = ARGUMENTS.sub(one_each, text)


def one_each(found: re.Match[str]) -> str:
    """An entry with several names as an entry for each name."""
    return "\n".join(f"    {name}{found[2]}" for name in found[1].split(", "))
