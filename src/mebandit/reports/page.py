"""Report pages: one self-contained HTML file with tables and figures, which needs no network and no server."""

import html
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

from mebandit.reports.figures import Picture, as_svg
from mebandit.reports.look import SCRIPT, STYLE
from mebandit.reports.table import Table

if TYPE_CHECKING:
    import matplotlib.figure


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
        """Black becomes the colour of the page's text, and white is left out, so that figures follow the page's light or dark mode."""
        text = content.decode().replace("#000000", "currentColor").replace("#ffffff", "none")
        text = text[text.index("<svg") :]
        width = text.partition('width="')[2].partition('"')[0]
        said = html.escape(words or "Figure; the tables of this page have its numbers.")
        return self._add(f'<figure role="img" aria-label="{said}" tabindex="0" style="--natural: {width}">{text}</figure>')

    def section(self, section: Section) -> Self:
        """Add a section."""
        self.heading(section.title).text(section.setting)
        self._add(f'<p class="finding">{html.escape(section.finding)}</p>').table(section.table)
        for drawn in section.pictures.values():
            self.picture(drawn, f"{section.title}: a figure of the numbers in the table.")
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
            f"<body><h1>{html.escape(self.title)}</h1>{''.join(self.parts)}<footer>{made}</footer><script>{SCRIPT}</script></body></html>\n"
        )
