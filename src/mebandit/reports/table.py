"""Tables of text, shown alike in HTML pages, Markdown documents and plain text."""

import html
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import zip_longest

LONG = 8
"""rows from which on a page lets its reader sort a table"""
NUMBER = re.compile(r"[-+±−\[(]*[\d.]|-$")
"""how a cell begins that holds a number, an interval, or the dash of a number that means nothing"""


@dataclass(frozen=True)
class Table:
    """A table of texts. A cell may have several lines."""

    header: list[str]
    rows: list[list[str]]
    best: AbstractSet[tuple[int, int]] = frozenset()
    """(row, column) of the cells that are bold"""
    muted: AbstractSet[int] = frozenset()
    """rows that are grey, since they are there for reference"""
    hints: Mapping[str, str] = field(default_factory=dict)
    """what the title of a column stands for, shown by a page when the pointer is on it"""

    def as_html(self) -> str:
        """The table as HTML, every text escaped."""
        words = self._words()
        kind = ' class="long"' if len(self.rows) >= LONG else ""
        lines = [f'<div class="wide" tabindex="0"><table{kind}><thead><tr>']
        for j, cell in enumerate(self.header):
            hint = f' title="{html.escape(self.hints[cell])}"' if cell in self.hints else ""
            lines.append(f"<th{' class=words' if words[j] else ''}{hint}>{html.escape(cell)}</th>")
        lines.append("</tr></thead><tbody>")
        for i, row in enumerate(self.rows):
            lines.append('<tr class="reference">' if i in self.muted else "<tr>")
            for j, cell in enumerate(row):
                kinds = [kind for kind, holds in (("best", (i, j) in self.best), ("words", words[j])) if holds]
                lines.append(f'<td class="{" ".join(kinds)}">{_lines(cell)}</td>' if kinds else f"<td>{_lines(cell)}</td>")
            lines.append("</tr>")
        return "".join([*lines, "</tbody></table></div>"])

    def as_text(self) -> str:
        """The table as plain text with aligned columns: words to the left, numbers to the right."""
        rows = [self.header, *(list(line) for row in self.rows for line in _unfolded(row))]
        widths = [max(len(row[j]) for row in rows) for j in range(len(self.header))]
        words = self._words()

        def line(row: list[str]) -> str:
            cells = (row[j].ljust(n) if words[j] else row[j].rjust(n) for j, n in enumerate(widths))
            return "  ".join(cells).rstrip()

        return "\n".join(map(line, rows))

    def _words(self) -> list[bool]:
        """For each column whether it holds words, not numbers."""
        return [bool(self.rows) and not any(NUMBER.match(row[j]) for row in self.rows) for j in range(len(self.header))]

    def as_markdown(self) -> str:
        """The table in Markdown."""

        def line(cells: list[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"

        def bold(cell: str) -> str:
            return "\n".join(f"**{part}**" if part else part for part in cell.split("\n"))

        rows = [[bold(c) if (i, j) in self.best else c for j, c in enumerate(row)] for i, row in enumerate(self.rows)]
        return "\n".join([line(self.header), line(["---", *["---:"] * (len(self.header) - 1)]), *map(line, rows)])


def _lines(words: str) -> str:
    """A text with several lines as HTML."""
    return html.escape(words).replace("\n", "<br>")


def _unfolded(row: list[str]) -> Iterable[tuple[str, ...]]:
    """The lines of a row whose cells may have several."""
    return zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
