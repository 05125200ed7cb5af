"""The report page: one self-contained HTML file with tables and figures, that needs no network and no server."""

import html
import io
import platform
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import matplotlib.figure

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 72rem; margin: 2.5rem auto; padding: 0 1.2rem; color: #1c2430; background: #fff; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .3rem .55rem; text-align: right; border-bottom: 1px solid #e3e6ea; white-space: nowrap; }
div.wide { overflow-x: auto; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
p.finding { border-left: 3px solid #4c78a8; padding-left: .9rem; } details { margin: 1rem 0; } summary { cursor: pointer; color: #6b7480; }
tr.reference td { color: #6b7480; } td.best { font-weight: 700; }
figure { margin: 1.2rem 0; background: #fff; border-radius: 6px; } svg { max-width: 100%; height: auto; }
ul.verdicts { list-style: none; padding: 0; } ul.verdicts li { border-left: 5px solid; padding: .1rem 0 .3rem .8rem; margin: .6rem 0; }
ul.verdicts span { font-size: .8rem; color: #6b7480; } ul.verdicts .green { border-color: #2a9d5c; }
ul.verdicts .yellow { border-color: #d9a514; } ul.verdicts .red { border-color: #c8352b; } th.words, td.words { text-align: left; }
footer { margin-top: 3rem; font-size: .85rem; color: #6b7480; } code, pre { font: .9em ui-monospace, monospace; }
pre { background: #f3f5f7; padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { color: #dde3ea; background: #14181d; } th, td { border-color: #2b323a; } pre { background: #1e242b; }
  tr.reference td, footer { color: #95a0ac; } }
"""


def _lines(words: str) -> str:
    return html.escape(words).replace("\n", "<br>")


def _unfolded(row: list[str]) -> Iterable[tuple[str, ...]]:
    """The lines of a row whose cells may have several."""
    return zip_longest(*(cell.split("\n") for cell in row), fillvalue="")


@dataclass(frozen=True)
class Table:
    """A table of texts, which may have several lines; `best` cells are bold, `muted` rows grey."""

    header: list[str]
    rows: list[list[str]]
    best: AbstractSet[tuple[int, int]] = frozenset()
    muted: AbstractSet[int] = frozenset()

    def as_html(self) -> str:
        words = self._words()
        heads = (f"<th{' class=words' if words[j] else ''}>{html.escape(cell)}</th>" for j, cell in enumerate(self.header))
        lines = ['<div class="wide"><table><thead><tr>', *heads, "</tr></thead><tbody>"]
        for i, row in enumerate(self.rows):
            lines.append('<tr class="reference">' if i in self.muted else "<tr>")
            for j, cell in enumerate(row):
                kinds = [kind for kind, holds in (("best", (i, j) in self.best), ("words", words[j])) if holds]
                lines.append(f'<td class="{" ".join(kinds)}">{_lines(cell)}</td>' if kinds else f"<td>{_lines(cell)}</td>")
            lines.append("</tr>")
        return "".join([*lines, "</tbody></table></div>"])

    def as_text(self) -> str:
        """Columns that line up, for where there is nothing but characters; words to the left, numbers to the right."""
        rows = [self.header, *(list(line) for row in self.rows for line in _unfolded(row))]
        widths = [max(len(row[j]) for row in rows) for j in range(len(self.header))]
        words = self._words()

        def line(row: list[str]) -> str:
            cells = (row[j].ljust(n) if words[j] else row[j].rjust(n) for j, n in enumerate(widths))
            return "  ".join(cells).rstrip()

        return "\n".join(map(line, rows))

    def _words(self) -> list[bool]:
        """Which columns hold words, not numbers."""
        return [bool(self.rows) and not any(row[j][:1] in "0123456789+-±[(." for row in self.rows) for j in range(len(self.header))]

    def as_markdown(self) -> str:
        def line(cells: list[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"

        def bold(cell: str) -> str:
            return "\n".join(f"**{part}**" if part else part for part in cell.split("\n"))

        rows = [[bold(c) if (i, j) in self.best else c for j, c in enumerate(row)] for i, row in enumerate(self.rows)]
        return "\n".join([line(self.header), line(["---", *["---:"] * (len(self.header) - 1)]), *map(line, rows)])


class Picture(NamedTuple):
    """A figure as the contents of two files."""

    png: bytes
    svg: bytes


@dataclass(frozen=True, kw_only=True)
class Section:
    """One item of a report: what was done, what came out, the table and the figures. Page, terminal and docs all show this."""

    title: str
    setting: str
    """what was run"""
    finding: str
    """what came out, in words made from the numbers"""
    table: Table
    brief: Table | None = None
    """the table in a form narrow enough for a terminal; None: the same"""
    brief_title: str = ""
    """what its entries are, where that is not plain"""
    full: Table | None = None
    """the table with everything, folded away on the page"""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    """by file name, without its ending"""

    def as_markdown(self, folder: str) -> str:
        """The section for a page of the docs, its pictures taken from a folder."""
        parts = [f"## {self.title}", self.setting, self.finding, self.table.as_markdown()]
        parts += [f"![{self.title}]({folder}/{name}.png)" for name in self.pictures]
        return "\n\n".join(parts)


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

    def table(self, table: Table) -> Self:
        return self._add(table.as_html())

    def figure(self, figure: "matplotlib.figure.Figure") -> Self:
        """A figure, drawn into the page as SVG."""
        return self._svg(_saved(figure, "svg"))

    def picture(self, drawn: Picture) -> Self:
        """A figure that has been drawn already."""
        return self._svg(drawn.svg)

    def verdicts(self, findings: list[tuple[str, str, str]]) -> Self:
        """A list of (verdict, name, sentence), each with a mark in its colour; the verdict is also there in words."""
        items = (
            f'<li class="{verdict}"><b>{html.escape(name)}</b> <span>{verdict}</span><br>{html.escape(sentence)}</li>'
            for verdict, name, sentence in findings
        )
        return self._add(f'<ul class="verdicts">{"".join(items)}</ul>')

    def _svg(self, content: bytes) -> Self:
        text = content.decode()
        return self._add(f"<figure>{text[text.index('<svg') :]}</figure>")

    def section(self, section: Section) -> Self:
        self.heading(section.title).text(section.setting)
        self._add(f'<p class="finding">{html.escape(section.finding)}</p>').table(section.table)
        for drawn in section.pictures.values():
            self.picture(drawn)
        if section.full is not None:
            self._add(f"<details><summary>Means, standard deviations, standard errors</summary>{section.full.as_html()}</details>")
        return self

    def _add(self, part: str) -> Self:
        self.parts.append(part)
        return self

    def render(self, *, command: str, seconds: float, seed: int | None = None) -> str:
        """The whole page, ending in how it was made."""
        seeded = "" if seed is None else f" seed {seed},"
        made = (
            f"Made by mebandit {version('mebandit')} with <code>{html.escape(command)}</code>,{seeded} in {seconds:.1f} s, on "
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC (Python {platform.python_version()}, {platform.machine()})."
        )
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
            f"<body><h1>{html.escape(self.title)}</h1>{''.join(self.parts)}<footer>{made}</footer></body></html>\n"
        )


def _saved(figure: "matplotlib.figure.Figure", kind: str) -> bytes:
    """A figure as a file's bytes; the same figure gives the same bytes. Its layout is computed once and then stays."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "mebandit"}):
        figure.savefig(buffer, format=kind, dpi=110, metadata={"Date": None, "Creator": None} if kind == "svg" else {"Software": None})
    figure.set_layout_engine("none")
    return buffer.getvalue()


def picture(figure: "matplotlib.figure.Figure") -> Picture:
    return Picture(_saved(figure, "png"), _saved(figure, "svg"))
