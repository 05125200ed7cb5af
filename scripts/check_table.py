"""Write docs/background/checks.md: each check in a simulated fault of its kind, and in healthy trials.

python scripts/check_table.py --trials 200
"""

import argparse
import sys
import time
from pathlib import Path

from mebandit.experiments.check_table import DAYS, FAULTS, FAULTY_DAYS, healthy, play
from mebandit.reports.table import Table
from mebandit.runtime.files import write_whole
from mebandit.values import RED, YELLOW

PAGE = Path(__file__).parents[1] / "docs" / "background" / "checks.md"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--trials", type=int, default=200, help="healthy trials")
    asked.add_argument("--folder", type=Path, default=None, help="where the stores are; a folder in memory is faster")
    asked.add_argument("--out", type=Path, default=PAGE)
    given = asked.parse_args()
    begun = time.monotonic()
    rows = []
    for fault in FAULTS:
        seen = play(fault, seed=1, folder=given.folder)
        hours = seen.hours.get(fault.check)
        also = ", ".join(sorted(name for name in seen.hours if name != fault.check))
        rows.append([fault.check, fault.words, seen.levels.get(fault.check, "none"), "" if hours is None else f"{hours:.0f} h", also])
        print(rows[-1], file=sys.stderr, flush=True)
    counts = healthy(given.trials, folder=given.folder, told=lambda n: print(n, end=" ", file=sys.stderr, flush=True))
    quiet = [[name, str(found[YELLOW]), str(found[RED])] for name, found in counts.items()]
    alarmed = sum(found[RED] for found in counts.values())
    words = f"""# The checks of the service, tried

`python scripts/check_table.py --trials {given.trials}` wrote this page, with
[`mebandit.experiments.running_trial`](../design.md): trials that run through the decision service at simulated times.

## Faults

Each trial is healthy for {DAYS} days, and then has one fault for {FAULTY_DAYS} days. Faults of the configuration are there from the
beginning. The checks look every eight hours. The table says which level the check of that fault reached, how long it took to
turn red, and which other checks turned red as well.

{Table(["check", "fault", "level", "red after", "also red"], rows).as_markdown()}

## Healthy trials

{given.trials} trials of {DAYS} days with 20 participants and three decisions a day, looked at every two days. 2 % of the decisions are not
asked for, 2 % of the contexts are missing, and 10 % of the outcomes never come. The table says in how many trials each check was
yellow, or red, as its worst.

{Table(["check", "yellow", "red"], quiet).as_markdown()}

In all, checks turned red {alarmed} times in {given.trials} healthy trials. The stated rates: a healthy randomisation turns red with a
probability of at most 0.001, however often it is looked at (Ville's inequality). The other limits are conventions; a check shall turn red
in at most 1 % of healthy trials.
"""
    write_whole(given.out, words)
    print(f"\n{given.out}: {time.monotonic() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
