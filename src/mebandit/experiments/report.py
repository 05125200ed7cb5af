"""The report page: one self-contained HTML file with tables and figures, that needs no network and no server."""

import html
import io
import platform
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from mebandit import __version__

if TYPE_CHECKING:
    import matplotlib.figure

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 58rem; margin: 2.5rem auto; padding: 0 1.2rem; color: #1c2430; background: #fff; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #e3e6ea; white-space: nowrap; }
div.wide { overflow-x: auto; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.reference td { color: #6b7480; } td.best { font-weight: 700; }
figure { margin: 1.2rem 0; background: #fff; border-radius: 6px; } svg { max-width: 100%; height: auto; }
footer { margin-top: 3rem; font-size: .85rem; color: #6b7480; } code, pre { font: .9em ui-monospace, monospace; }
pre { background: #f3f5f7; padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { color: #dde3ea; background: #14181d; } th, td { border-color: #2b323a; } pre { background: #1e242b; }
  tr.reference td, footer { color: #95a0ac; } }
"""


def _lines(words: str) -> str:
    return html.escape(words).replace("\n", "<br>")


@dataclass
class Page:
    """A page that grows from top to bottom."""

    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, words: str) -> Self:
        return self._add(f"<p>{html.escape(words)}</p>")

    def heading(self, words: str) -> Self:
        return self._add(f"<h2>{html.escape(words)}</h2>")

    def code(self, words: str) -> Self:
        return self._add(f"<pre>{html.escape(words)}</pre>")

    def table(
        self,
        header: list[str],
        rows: list[list[str]],
        *,
        best: AbstractSet[tuple[int, int]] = frozenset(),
        muted: AbstractSet[int] = frozenset(),
    ) -> Self:
        """A table of texts, which may have several lines; `best` cells are bold, `muted` rows grey."""
        lines = ['<div class="wide"><table><thead><tr>', *(f"<th>{html.escape(cell)}</th>" for cell in header), "</tr></thead><tbody>"]
        for i, row in enumerate(rows):
            lines.append('<tr class="reference">' if i in muted else "<tr>")
            lines += [f"<td{' class=best' if (i, j) in best else ''}>{_lines(cell)}</td>" for j, cell in enumerate(row)]
            lines.append("</tr>")
        return self._add("".join([*lines, "</tbody></table></div>"]))

    def figure(self, figure: "matplotlib.figure.Figure") -> Self:
        """A figure, drawn into the page as SVG."""
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        text = buffer.getvalue()
        return self._add(f"<figure>{text[text.index('<svg') :]}</figure>")

    def _add(self, part: str) -> Self:
        self.parts.append(part)
        return self

    def render(self, *, command: str, seed: int, seconds: float) -> str:
        """The whole page, ending in how it was made."""
        made = (
            f"Made by mebandit {__version__} with <code>{html.escape(command)}</code>, seed {seed}, in {seconds:.1f} s, on "
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC (Python {platform.python_version()}, {platform.machine()})."
        )
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
            f"<body><h1>{html.escape(self.title)}</h1>{''.join(self.parts)}<footer>{made}</footer></body></html>\n"
        )
