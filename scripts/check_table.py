"""Write docs/background/checks.md: each check in a simulated fault of its kind, and in healthy trials.

    python scripts/check_table.py --trials 200 --kept checks.json

Each trial is kept in the file as soon as it is over, so the same command goes on after an interruption, and with more trials later.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mebandit.experiments.check_table import DAYS, FAULTS, FAULTY_DAYS, play
from mebandit.reports.table import Table
from mebandit.runtime.files import write_whole
from mebandit.values import RED, YELLOW

PAGE = Path(__file__).parents[1] / "docs" / "background" / "checks.md"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--trials", type=int, default=200, help="healthy trials, those that are kept already included")
    asked.add_argument("--kept", type=Path, default=Path("checks.json"), help="file of the trials that are over")
    asked.add_argument("--folder", type=Path, default=None, help="where the stores are; a folder in memory is faster")
    given = asked.parse_args()
    begun = time.monotonic()
    kept: dict[str, Any] = {"rows": [], "trials": 0, "counts": {}}
    if given.kept.exists():
        kept = json.loads(given.kept.read_text(encoding="utf-8"))

    def keep() -> None:
        write_whole(given.kept, json.dumps(kept, indent=1, ensure_ascii=False))

    for fault in FAULTS[len(kept["rows"]) :]:
        seen = play(fault, seed=1, folder=given.folder)
        hours = seen.hours.get(fault.check)
        also = ", ".join(sorted(name for name in seen.hours if name != fault.check))
        kept["rows"].append([fault.check, fault.words, seen.levels.get(fault.check, "none"), f"{hours:.0f} h" if hours else "", also])
        keep()
        print(kept["rows"][-1], file=sys.stderr, flush=True)
    while kept["trials"] < given.trials:
        for name, level in play(None, seed=1 + kept["trials"], folder=given.folder).levels.items():
            kept["counts"][name] = dict(Counter(kept["counts"].get(name, {})) + Counter([level]))
        kept["trials"] += 1
        keep()
        print(kept["trials"], end=" ", file=sys.stderr, flush=True)
    write_whole(PAGE, page(kept["rows"], kept["trials"], {name: Counter(found) for name, found in kept["counts"].items()}))
    print(f"\n{PAGE}: {time.monotonic() - begun:.0f} s", file=sys.stderr)


def page(rows: list[list[str]], trials: int, counts: dict[str, Counter[str]]) -> str:
    """The page.

    Args:
        rows: of the table of faults.
        trials: healthy ones.
        counts: how many of them had each level as the worst, by check.
    """
    quiet = [[name, str(found[YELLOW]), str(found[RED])] for name, found in counts.items()]
    limit = f" With none in {trials}, the rate is below {1 - 0.05 ** (1 / trials):.1%} with a confidence of 95 %."
    alarmed = sum(found[RED] for found in counts.values())
    limit = "" if alarmed else limit
    return f"""# The checks of the service, tried

`python scripts/check_table.py` wrote this page, with
[`mebandit.experiments.running_trial`](../design.md): trials that run through the decision service at simulated times.

## Faults

Each trial is healthy for {DAYS} days, and then has one fault for {FAULTY_DAYS} days. Faults of the configuration are there from the
beginning. The checks look every eight hours. The table says which level the check of that fault reached, how long it took to
turn red, and which other checks turned red as well. Latency and contradicting requests are counts that a simulated process reports; all
other rows are stored as a service stores them.

{Table(["check", "fault", "level", "red after", "also red"], rows).as_markdown()}

## Healthy trials

{trials} trials of {DAYS} days with 20 participants and three decisions a day, looked at every two days. 2 % of the decisions are not
asked for, 2 % of the contexts are missing, and 10 % of the outcomes never come. The table says in how many trials each check was
yellow, or red, as its worst.

{Table(["check", "yellow", "red"], quiet).as_markdown()}

In all, checks turned red {alarmed} times in {trials} healthy trials.{limit} The stated rates: a healthy randomisation turns red with a
probability of at most 0.001, however often it is looked at (Ville's inequality). The other limits are conventions; a check shall turn red
in at most 1 % of healthy trials.
"""


if __name__ == "__main__":
    main()
