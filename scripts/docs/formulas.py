"""A hook of mkdocs: formulas written in LaTeX become MathML when the site is built, so a reader's browser loads no script for them.

The extension pymdownx.arithmatex finds `$x$` and `$$x$$`; this file converts what it found.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with every formula as MathML."""
    content = DISPLAY.sub(lambda found: f'<div class="formula">{mathml(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: mathml(found[1], "inline"), content)


def mathml(latex: str, display: str) -> str:
    """One formula. The converter prints commands that it does not know as they stand; here they are refused."""
    latex = html.unescape(latex).strip()
    found = str(convert(latex, display=display)).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation, with space around it
    if unknown := re.search(r">\s*(\\[a-zA-Z]+)", found):
        raise ValueError(f"formulas must use commands that latex2mathml knows; got {unknown[1]} in {latex!r}")
    return found
