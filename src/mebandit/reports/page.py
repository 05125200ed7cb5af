"""Report pages: one self-contained HTML file with tables and figures, which needs no network and no server."""

import html
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

from mebandit.reports.figures import Picture, as_svg
from mebandit.reports.table import Table

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
  tr.reference td, footer { color: #95a0ac; }
  figure { background: none; } figure svg { filter: invert(.92) hue-rotate(180deg); } }
@media print { body { max-width: none; margin: 0; } figure, tr, ul.verdicts li { break-inside: avoid; } h2 { break-after: avoid; } }
"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One item of a report, for the page, the terminal and the documentation alike."""

    title: str
    setting: str
    """what was done, and how"""
    finding: str
    """the result in words, made from the numbers"""
    table: Table
    brief: Table | None = None
    """the table in a form narrow enough for a terminal; None: the same as `table`"""
    brief_title: str = ""
    """what the entries of `brief` are, added to the title"""
    full: Table | None = None
    """a table with all numbers, which the page hides until it is asked for"""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    """the figures by file name, without the ending"""

    def as_markdown(self, folder: str) -> str:
        """The section in Markdown, with links to its pictures as .png files in a folder."""
        parts = [f"## {self.title}", self.setting, self.finding, self.table.as_markdown()]
        parts += [f"![{self.title}]({folder}/{name}.png)" for name in self.pictures]
        return "\n\n".join(parts)


@dataclass
class Page:
    """A page to which parts are added from top to bottom. Every method returns the page, so that calls can be chained."""

    title: str
    parts: list[str] = field(default_factory=list)
    """what has been added, as HTML"""

    def text(self, words: str) -> Self:
        """Add a paragraph."""
        return self._add(f"<p>{html.escape(words)}</p>")

    def heading(self, words: str) -> Self:
        """Add a heading."""
        return self._add(f"<h2>{html.escape(words)}</h2>")

    def code(self, words: str) -> Self:
        """Add lines of code."""
        return self._add(f"<pre>{html.escape(words)}</pre>")

    def table(self, table: Table) -> Self:
        """Add a table."""
        return self._add(table.as_html())

    def figure(self, figure: "matplotlib.figure.Figure", words: str = "") -> Self:
        """Add a figure as SVG, with words for those who cannot see it."""
        return self._svg(as_svg(figure), words)

    def picture(self, drawn: Picture, words: str = "") -> Self:
        """Add a figure that has been drawn already, with words for those who cannot see it."""
        return self._svg(drawn.svg, words)

    def verdicts(self, findings: list[tuple[str, str, str]]) -> Self:
        """Add a list of (verdict, name, sentence). The verdict is green, yellow or red, shown as a colour and as a word."""
        items = (
            f'<li class="{verdict}"><b>{html.escape(name)}</b> <span>{verdict}</span><br>{html.escape(sentence)}</li>'
            for verdict, name, sentence in findings
        )
        return self._add(f'<ul class="verdicts">{"".join(items)}</ul>')

    def _svg(self, content: bytes, words: str) -> Self:
        text, said = content.decode(), html.escape(words or "Figure; the tables of this page have its numbers.")
        return self._add(f'<figure role="img" aria-label="{said}">{text[text.index("<svg") :]}</figure>')

    def section(self, section: Section) -> Self:
        """Add a section."""
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
        """The whole page as HTML. Its last lines say how it was made.

        Args:
            command: The command that made the page.
            seconds: How long that took.
            seed: The seed of the random numbers; None for a page without any.
        """
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
