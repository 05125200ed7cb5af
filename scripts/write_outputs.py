"""Run the Python blocks of pages of the docs, and write what they print into the text blocks that follow them.

    python scripts/write_outputs.py docs/start/first-example.md [more pages]

Without names: all pages. `tests/test_package.py` checks that the text blocks are what the code prints.
"""

import io
import os
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?P<shown>\n```text\n.*?^```\n)?", flags=re.DOTALL | re.MULTILINE)


def written(page: str) -> str:
    """A page with the outputs of its code; the blocks share one namespace, as they do for a reader who follows the page."""
    namespace: dict[str, object] = {}

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(found["code"], namespace)
        lines = [line.rstrip() for line in printed.getvalue().rstrip().splitlines()]
        shown = "\n```text\n" + "\n".join(lines) + "\n```\n" if found["shown"] else ""
        return f"```python\n{found['code']}```\n{shown}"

    return BLOCK.sub(run, page)


def main() -> None:
    pages = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            page = written(path.read_text(encoding="utf-8"))
        path.write_text(page, encoding="utf-8")
        print(os.path.relpath(path), flush=True)


if __name__ == "__main__":
    main()
