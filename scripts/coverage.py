"""Write docs/background/coverage.md: the simulated coverage of the confidence intervals. No number on that page is typed by hand.

python scripts/coverage.py [--replicates 4000] [--seed 1]
"""

import argparse
from pathlib import Path

from mebandit.experiments.coverage import as_markdown, run_coverage
from mebandit.runtime.files import write_whole

PAGE = Path(__file__).resolve().parent.parent / "docs" / "background" / "coverage.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/background/coverage.md: how often the intervals cover.")
    parser.add_argument("--replicates", type=int, default=4000, help="simulated trials for each number of rounds")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = run_coverage(replicates=given.replicates, seed=given.seed)
    write_whole(PAGE, as_markdown(found, command="python scripts/coverage.py"))
    print(found.verdict)


if __name__ == "__main__":
    main()
