"""The reference of the docs: every public name is on a page, and every argument is explained in its docstring."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import mebandit
from mebandit import environments, measurement, policies, schedules

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference" / "python").glob("*.md"))
MODULES = (mebandit, environments, measurement, policies, schedules)


OFFERED = {
    f"{module.__name__}.{name}": value
    for module in MODULES
    for name in module.__all__
    if not isinstance(value := getattr(module, name), ModuleType)
}


def on_pages() -> dict[str, object]:
    """Everything that a page shows, by the name it is shown under."""
    names = [name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)]
    assert len(names) == len(set(names)), "one place for each name"
    return {name: reduce(getattr, name.split(".")[1:], mebandit) for name in names}


def test_every_public_name_is_in_the_reference() -> None:
    shown = list(on_pages().values())
    assert not [name for name, value in OFFERED.items() if not any(value is other for other in shown)]


def callables() -> Iterator[tuple[str, object, str]]:
    """Every public function, class and method, with the text that explains its arguments."""
    for name, value in {own.__qualname__: own for own in OFFERED.values() if inspect.isroutine(own) or inspect.isclass(own)}.items():
        yield name, value, explained(value)
        if inspect.isclass(value):
            for method, own in vars(value).items():
                function = own.__func__ if isinstance(own, classmethod | staticmethod) else own
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function, inspect.getdoc(getattr(value, method)) or ""


def explained(value: object) -> str:
    """The docstring; of a class also those of its fields, each with its field's name."""
    if not inspect.isclass(value):
        return inspect.getdoc(value) or ""
    texts = [inspect.getdoc(value) or "", inspect.getdoc(value.__init__) or ""]
    for owner in value.__mro__:
        if owner.__module__.startswith("mebandit"):
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
            for field, text in pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    texts.append(f"{ast.unparse(field.target)}: {ast.unparse(text)}")
    return "\n".join(texts)


def unexplained() -> Iterator[str]:
    for name, value, text in callables():
        if inspect.isclass(value) and issubclass(value, Exception | Warning):
            continue
        for parameter in inspect.signature(value).parameters:  # type: ignore[arg-type]
            if parameter not in ("self", "cls", "args", "kwargs") and not re.search(rf"\b{parameter}\b", text):
                yield f"{name}({parameter})"


def test_every_argument_is_explained() -> None:
    assert list(unexplained()) == []
