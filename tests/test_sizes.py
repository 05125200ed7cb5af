"""The sizes that the design promises: of files, functions, signatures, and of the top of the package."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mebandit"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def functions(source: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_has_at_most_500_lines_and_a_function_60(name: str) -> None:
    """A function's docstring counts, its decorators do not: a command has one for each option."""
    assert len(SOURCES[name].splitlines()) <= 500
    lines = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions(SOURCES[name])}
    assert {function: n for function, n in lines.items() if n > 60} == {}


def test_a_function_of_more_than_twelve_parameters_has_its_reason_in_the_design() -> None:
    """The table there has all of them, each with its number of parameters, and no other."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = page.partition("## Functions with more than twelve parameters")[2].partition("\n## ")[0]
    told: dict[str, int] = {}
    for names, numbers in re.findall(r"^\| (`[^|]+) \| ([\d, ]+) \|", table, flags=re.MULTILINE):
        told |= dict(zip(re.findall(r"`(\w+)`", names), map(int, numbers.split(", ")), strict=True))
    found = {}
    for function in (function for source in SOURCES.values() for function in functions(source)):
        given = function.args
        parameters = [p.arg for p in (*given.posonlyargs, *given.args, *given.kwonlyargs) if p.arg not in ("self", "cls")]
        if len(parameters) > 12:
            found[function.name] = len(parameters)
    assert found == told


def test_the_package_has_at_most_twelve_modules_at_its_top() -> None:
    assert len([name for name in SOURCES if "/" not in name and not name.startswith("__")]) <= 12
