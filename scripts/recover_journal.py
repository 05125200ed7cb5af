"""Measure how long a learner takes to come back from a long journal, with its snapshot and without, and how long writing a snapshot takes.

python scripts/recover_journal.py                      1,000,000 events
python scripts/recover_journal.py --events 100000
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import mebandit as mb
from mebandit.live import snapshots
from mebandit.policies import states


def main() -> None:
    """Write a journal, and recover it."""
    parser = argparse.ArgumentParser(description="Recover a long journal.")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=1_000, help="decisions that wait for their reward")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "trial.jsonl"
        with mb.Learner(mb.meb_dr(2, 5, floor=0.1), journal=journal) as learner:
            pauses = play(learner, options.events, options.waiting)
            known = bits(learner)
        size = journal.stat().st_size / 1e6
        calls = (
            f"The median of them took {1e3 * median(pauses):.1f} ms, the longest {1e3 * max(pauses):.1f} ms"
            if pauses
            else "None was written"
        )
        print(f"{options.events:,} events, {size:,.0f} MB, {options.waiting:,} decisions waiting; {len(pauses)} snapshots. {calls}.")
        snapshot = snapshots.place(journal)
        kept = snapshot.read_bytes()
        for words, prepare in (("with the snapshot", lambda: snapshot.write_bytes(kept)), ("without", snapshot.unlink)):
            prepare()
            begun = time.process_time()
            seconds, found = timed(lambda: mb.Learner.recover(journal))
            spent = time.process_time() - begun
            with found as again:
                said = "bit for bit" if bits(again) == known else "NOT the same"
                print(f"Recovered {words} in {seconds:.2f} s ({spent:.2f} s of CPU time), {said}.")


def bits(learner: mb.Learner) -> tuple[Any, ...]:
    """All that a learner knows."""
    return learner.decided, learner.learned, learner.pending, json.dumps(states.to_plain(learner.state))


def play(learner: mb.Learner, events: int, waiting: int) -> list[float]:
    """Decisions, each with its reward when so many later ones were made; the seconds that each snapshot took."""
    random, pauses, made = np.random.default_rng(0), [], []
    write = learner._keep_snapshot

    def keep(journal: Any) -> None:
        pauses.append(timed(lambda: write(journal))[0])

    learner._keep_snapshot = keep  # type: ignore[method-assign]
    contexts, rewards, s = random.normal(size=(events, 5)), random.normal(size=events), 0.1 * np.eye(5)
    for i in range(events):
        if learner.decided - learner.learned < waiting or i % 2:
            made.append(learner.decide(contexts[i], s).id)
        else:
            learner.learn(made[learner.learned], rewards[i])
    return pauses


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long something takes, and its result."""
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


if __name__ == "__main__":
    main()
