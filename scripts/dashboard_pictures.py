"""Write the pictures of the dashboard in docs/guides/dashboard/ from the demonstration, by a headless Chromium.

python scripts/dashboard_pictures.py            the pictures of the docs
python scripts/dashboard_pictures.py --all DIR  every page, in both themes and both widths
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.service.browser import Browser, browser  # noqa: E402
from tests.service.servers import KEY, Launcher  # noqa: E402

from mebandit.experiments.living_demo import make_store  # noqa: E402

FOLDER = ROOT / "docs" / "guides" / "dashboard"
PAGES = {
    "experiments": "", "glance": "/walk", "participants": "/walk/units", "participant": "/walk/units/p003", "decisions": "/walk/decisions",
    "learned": "/walk/learned", "error": "/walk/error", "incidents": "/walk/incidents?kind=check", "audit": "/walk/audit",
    "configuration": "/walk/configuration", "confirm": "/walk/do/pause", "healthy": "/sleep", "missing": "/nothing",
}  # fmt: skip
SHOWN = (("experiments", False, 1200), ("glance", False, 1200), ("glance", True, 1200), ("glance", False, 390), ("decision", False, 1200),
         ("learned", False, 1200), ("error", True, 1200), ("incidents", False, 1200))  # fmt: skip
"""the pictures of the docs: page, whether it is dark, width"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--all", type=Path, default=None, help="a folder for every page in both themes and both widths")
    asked.add_argument("--store", type=Path, default=None, help="a store of the demonstration that is there already")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store
        if store is None:
            store = Path(folder) / "demo.db"
            make_store(store)
        launcher = Launcher()
        try:
            with browser() as tab:
                take(tab, launcher.start(str(store)).address, given.all)
        finally:
            launcher.close()


def take(tab: Browser, address: str, every: Path | None) -> None:
    """Sign in, and take the pictures."""
    tab.look()
    tab.open(f"{address}/dashboard")
    tab.picture((every or FOLDER) / "sign-in.png") if every else None
    tab.fill("#key", KEY)
    tab.follow("button", "Sign in")
    tab.open(f"{address}/dashboard/walk/decisions?mode=learned")
    first = tab.run("document.querySelector('#decisions tbody tr:nth-child(30) a').getAttribute('href')")
    pages = PAGES | {"decision": first.removeprefix("/dashboard")}
    wanted = [(name, dark, width) for name in pages for dark in (False, True) for width in (1200, 390)] if every else SHOWN
    for name, dark, width in wanted:
        tab.look(dark=dark, width=width)
        tab.open(f"{address}/dashboard{pages[name]}")
        wide = tab.run("document.documentElement.scrollWidth") - width
        folder = every or FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        tab.picture(folder / f"{name}{'-dark' if dark else ''}{'-phone' if width < 600 else ''}.png")
        if wide > 0:
            print(f"{name} at width {width}: {wide} pixels too wide")
    for words in tab.said:
        print("the console said:", words)


if __name__ == "__main__":
    main()
