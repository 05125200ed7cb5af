"""The package as it is installed: light to import, and every example and every code block of the docs runs."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import mebandit
from mebandit.experiments.spec import cells_of

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_importing_brings_in_neither_pandas_nor_matplotlib() -> None:
    heavy = ("pandas", "matplotlib", "pyarrow", "click", "rich", "distributed")
    code = f"import sys, mebandit; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All Python blocks of a page, in order, in one namespace, in an empty folder; a text block right behind one is what it prints."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    assert "```text\n```" not in page.read_text(encoding="utf-8"), "an empty block shows nothing"
    for code, printed in re.findall(pattern, page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
        exec(compile(code, str(page), "exec"), namespace)
        output = capsys.readouterr().out
        assert not printed or output.split() == printed.split()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_toml_of_a_page_is_a_spec(page: Path) -> None:
    import tomllib

    for text in blocks(page, "toml"):
        assert cells_of(tomllib.loads(text))


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_an_example_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_no_page_or_source_names_a_machine_path() -> None:
    for path in [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")]:
        assert not re.search(r"/(work|root|home|tmp)/", path.read_text(encoding="utf-8")), path


def test_the_design_page_has_the_tree_of_today() -> None:
    write_tree = runpy.run_path(str(ROOT / "scripts" / "write_tree.py"))
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert write_tree["written"](page) == page


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {mebandit.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
