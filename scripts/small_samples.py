"""Write docs/background/small-samples.md: coverage in small trials before and after corrections. No number there is typed by hand.

python scripts/small_samples.py [--replicates 2000] [--seed 2]
"""

import argparse
from pathlib import Path

from mebandit.experiments.small_samples import as_markdown, run_small_samples
from mebandit.runtime.files import write_whole

PAGE = Path(__file__).resolve().parent.parent / "docs" / "background" / "small-samples.md"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/background/small-samples.md: how often the intervals cover in small trials.")
    parser.add_argument("--replicates", type=int, default=2000, help="simulated trials of each setting")
    parser.add_argument("--seed", type=int, default=2)
    given = parser.parse_args()
    found = run_small_samples(replicates=given.replicates, seed=given.seed, told=print)
    write_whole(PAGE, as_markdown(found, command="python scripts/small_samples.py"))


if __name__ == "__main__":
    main()
