"""Write the pages of the docs on anytime bands, baselines and mixtures of error kinds. No number there is typed by hand.

python scripts/interval_studies.py anytime [--replicates 2000]
python scripts/interval_studies.py baseline mixtures [--replicates 1000]
"""

import argparse
from pathlib import Path

from mebandit.experiments.interval_pages import PAGES
from mebandit.runtime.files import write_whole

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "background"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write pages of docs/background that count what intervals hold.")
    parser.add_argument("pages", nargs="+", choices=list(PAGES), help="which pages")
    parser.add_argument("--replicates", type=int, default=2000, help="simulated trials of each setting")
    given = parser.parse_args()
    for name in given.pages:
        command = f"python scripts/interval_studies.py {name} --replicates {given.replicates}"
        write_whole(FOLDER / f"{name}.md", PAGES[name](given.replicates, command))
        print(FOLDER / f"{name}.md")


if __name__ == "__main__":
    main()
