"""Write docs/background/reproduction.md and its pictures from the results of `mebandit paper all`. No number on that page is typed by hand.

    python scripts/write_reproduction.py --out results [--heartsteps-csv HS1_cleaned_for_simulation.csv]

Finished cells in the results folder are read, not recomputed.
"""

import argparse
from pathlib import Path

from mebandit.experiments.paper.catalogue import EXPERIMENTS, as_markdown, run_experiments
from mebandit.experiments.paper.options import PaperOptions
from mebandit.runtime.files import write_whole

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "background"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/background/reproduction.md from the results of the paper's experiments.")
    parser.add_argument("--out", type=Path, default=Path("results"), help="the results folder")
    parser.add_argument("--heartsteps-csv", type=Path, default=None, help="the cleaned HeartSteps V1 CSV")
    given = parser.parse_args()
    options = PaperOptions(heartsteps_csv=given.heartsteps_csv)
    found = run_experiments(list(EXPERIMENTS), given.out, options)
    pictures = FOLDER / "reproduction"
    pictures.mkdir(exist_ok=True)
    for old in pictures.glob("*.png"):
        old.unlink()
    for finding in found.values():
        for section in finding.sections:
            for name, picture in section.pictures.items():
                write_whole(pictures / f"{name}.png", picture.png)
    command = f"mebandit paper all {options.command}"
    write_whole(FOLDER / "reproduction.md", as_markdown(found, command=command, folder="reproduction"))


if __name__ == "__main__":
    main()
