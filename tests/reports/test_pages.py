"""Report pages: one look, light and dark, on paper, with and without the script."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mebandit import policies
from mebandit.reports.colours import NAMED, PALETTE, colours_of
from mebandit.reports.figures import canvas, draw_policies
from mebandit.reports.look import STYLE
from mebandit.reports.page import Page
from mebandit.reports.table import Table


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2, 1.4.3): (L1 + 0.05) / (L2 + 0.05), L the relative luminance."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def pages() -> tuple[dict[str, str], dict[str, str]]:
    """The colours of the page by name, light and dark."""
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})\b", part)) for part in STYLE.split("prefers-color-scheme: dark"))
    return light | {"page": "#ffffff"}, dark


def test_colours_are_seen_on_a_white_page_and_on_a_dark_one() -> None:
    for page in pages():
        assert all(contrast(colour, page["page"]) >= 3 for colour in PALETTE.values())
        assert contrast(page["ink"], page["page"]) >= 7
        assert contrast(page["pale"], page["page"]) >= 4.5


def test_a_policy_has_the_same_colour_whoever_stands_beside_it() -> None:
    names = [made(2, 3).name for made in (policies.meb, policies.meb_dr, policies.meb_naive, policies.lin_ucb, policies.thompson)]
    assert set(names) <= set(NAMED)
    together = colours_of(names)
    assert len(set(together.values())) == len(names)
    for name in names:
        assert colours_of(["mine", name, "another"])[name] == together[name]
        assert colours_of([name]) == {name: together[name]}
    mine = colours_of(["mine", *names, "another"])
    assert len(set(mine.values())) == len(mine)
    assert colours_of(map(str, range(30))).keys() == set(map(str, range(30)))
    assert together["MEB"] == colours_of(["meb"])["meb"]


def test_the_lines_of_a_figure_have_the_colours_of_their_policies() -> None:
    import pandas as pd

    axes = canvas(4, 3).subplots()
    own = pd.DataFrame({"policy": ["uniform", "UCB", "MEB"], "time": 1, "mean": 1.0, "std_error": 0.1})
    draw_policies(axes, own, references=["uniform"])
    drawn = {line.get_label(): line.get_color() for line in axes.get_lines()}
    assert drawn == {"uniform": "0.45"} | colours_of(["UCB", "MEB"])


def test_a_figure_takes_the_colours_of_its_page() -> None:
    figure = canvas(4, 3)
    figure.subplots().plot([1, 2], color="#d9483b")
    page = Page("a page").figure(figure, "A line & what it is.").render(command="test", seconds=0.0)
    drawn = page[page.index("<svg") : page.index("</svg>")]
    assert "currentColor" in drawn
    assert "#d9483b" in drawn
    assert not re.search("#000000|#ffffff", drawn)
    assert 'role="img" aria-label="A line &amp; what it is."' in page
    assert "--natural: 288pt" in page


def test_titles_and_labels_are_words_and_intervals_are_numbers() -> None:
    table = Table(["action", "feature", "dr", "interval"], [["none", "(intercept)", "1.0", "[0.5, 1.5]"], ["send", "x", "-", "(0.5)"]])
    lines = table.as_text().splitlines()
    assert lines[1:] == ["none    (intercept)  1.0  [0.5, 1.5]", "send    x              -       (0.5)"]
    assert "<th class=words>feature</th><th>dr</th>" in table.as_html()


def test_only_long_tables_are_sorted_and_titles_have_hints() -> None:
    def made(rows: int) -> str:
        return Table(["name", "dr"], [[f"row {i}", str(i)] for i in range(rows)], hints={"dr": 'doubly "robust"'}).as_html()

    assert 'class="long"' in made(8)
    assert 'class="long"' not in made(7)
    assert '<th title="doubly &quot;robust&quot;">dr</th>' in made(2)


CLICKS = """<script>
const heads = document.querySelectorAll("table.long th");
const column = () => [...document.querySelectorAll("table.long tbody tr")].map(row => row.cells[1].textContent).join(" ");
const seen = [column()];
for (const j of [1, 1, 1, 0]) { heads[j].click(); seen.push(column()); }
document.title = seen.join("|") + "|" + document.querySelectorAll("table.long td")[1].title;
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser")
def test_the_script_sorts_by_numbers_and_by_words(tmp_path: Path) -> None:
    values = ["10", "-", "1,200", "9 (0.5)", "-3", "0.5", "[2, 3]", "1e-3"]
    table = Table(["name", "value"], [[f"row {'hgfedcba'[i]}", value] for i, value in enumerate(values)])
    page = Page("a page").table(table).render(command="test", seconds=0.0)
    (tmp_path / "page.html").write_text(page.replace("</body>", CLICKS + "</body>"))
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    found = subprocess.run([*chromium, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout
    seen = re.search("<title>(.*?)</title>", found)
    assert seen is not None
    upward = "-3 1e-3 0.5 [2, 3] 9 (0.5) 10 1,200 -"
    downward = "- 1,200 10 9 (0.5) [2, 3] 0.5 1e-3 -3"
    given, by_name = " ".join(values), " ".join(values[::-1])
    assert seen[1].split("|") == [given, upward, downward, given, by_name, "row a, value"]
