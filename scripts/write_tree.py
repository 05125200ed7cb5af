"""Write the tree of the source, with the first line of each file's docstring, into docs/design.md.

    python scripts/write_tree.py

`tests/test_package.py` checks that the page has the tree of today.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design.md"
TREE = re.compile(r"(?<=<!-- tree -->\n).*?(?=<!-- end of tree -->)", flags=re.DOTALL)


def first_line(path: Path) -> str:
    """What a file is for, in its own words."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def tree(source: Path) -> str:
    """A table for each folder, in the order of their names; a folder's own line is that of its `__init__.py`."""
    parts = []
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        name = folder.relative_to(source.parent).as_posix()
        rows = [f"| `{path.name}` | {first_line(path)} |" for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        parts += [
            f"**`{name}/`** {first_line(folder / '__init__.py')}",
            "\n".join(["| file | subject |", "|---|---|", *rows]) if rows else "",
        ]
    return "\n" + "\n\n".join(parts) + "\n\n"


def written(page: str) -> str:
    """The page with the tree of today."""
    return TREE.sub(lambda _: tree(ROOT / "src" / "mebandit"), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
