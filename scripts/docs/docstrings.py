"""An extension of griffe: what the reference makes of docstrings beyond their sections.

Examples (`>>>` and what they print) are shown as code. One line for several arguments (`floor, warmup: ...`) becomes one for each. Where
it says "see the head of `a.module`", the reference shows what the docstring of that module says about the argument.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^|(?<=\n\n))((?:>>> |\.\.\. ).*?)(?=\n\s*\n|\Z)", flags=re.DOTALL)
ARGUMENTS = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n {5,}.*)*)", flags=re.MULTILINE)
SHARED = re.compile(r"^    (\w+) {2,}(.+)$", flags=re.MULTILINE)
REFERRED = re.compile(r"see the head of `[\w.]+`\.")


class Docstrings(griffe.Extension):
    """Rewrite every docstring for the reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None or obj.is_module:
            return
        head = obj.module.docstring
        shared = dict(SHARED.findall(head.value)) if head else {}
        text = EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value)
        obj.docstring.value = ARGUMENTS.sub(lambda found: one_each(found[1].split(", "), " ".join(found[2].split()), shared), text)


def one_each(names: list[str], text: str, shared: dict[str, str]) -> str:
    """An entry for each of several arguments. Of what is said after the reference to the head, an entry keeps what names its argument."""
    if not REFERRED.match(text):
        return "\n".join(f"    {name}: {text}" for name in names)
    further = re.split(r"(?<=\.) ", REFERRED.sub("", text).strip())
    return "\n".join(f"    {name}: {' '.join([shared[name], *(said for said in further if name in said)])}" for name in names)
