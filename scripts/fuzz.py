"""A million hostile calls of every public function that takes arrays, files or states, with arguments that are mostly wrong.

    python scripts/fuzz.py [--calls 1000000] [--seed 1] [--only learner] [--first 0] [--unchecked]
    python scripts/fuzz.py --seed 1 --first 4321 --calls 1      # repeat scene 4321

Calls come in scenes of some ten calls each: the short life of a learner, the methods of a policy, a file that is damaged and read. A scene
is a function of the seed and its number alone. The library is compiled with bounds checks, into a cache that is thrown away, and called in
a child process: if that process dies, its scene is reported and the next scene begins. `--unchecked` uses the ordinary compiled code, which
needs no compiling.

What must hold: a call returns, or raises an exception of this library. States and estimates have finite numbers, except standard errors
that are documented to be NaN. A refused call changes nothing. Violations are listed at the end, once for each place in the code, with the
number of a scene that shows it.
"""

import argparse
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hostile import experiments, learners, logs, trials, worlds
from hostile.arguments import Hostile
from hostile.promises import made

SCENES: dict[str, tuple[Hostile, int]] = {
    "learner": (learners.learner, 300),
    "methods": (learners.methods, 300),
    "composing": (learners.composing, 100),
    "state_file": (learners.state_file, 60),
    "journal": (learners.journal, 12),
    "estimating": (logs.estimating, 150),
    "moments": (logs.moments_in_general, 60),
    "regressing": (logs.regressing, 60),
    "watching": (logs.watching, 8),
    "rounds": (logs.rounds, 8),
    "analysing": (logs.analysing, 8),
    "simulating": (worlds.simulating, 40),
    "drawing": (worlds.drawing, 60),
    "measuring": (worlds.measuring, 60),
    "planning": (worlds.planning, 10),
    "trials": (trials.trials, 6),
    "pilots": (trials.pilots, 6),
    "commands": (logs.commands, 4),
    "experiments": (experiments.experiments, 2),
}
"""the scenes by name, each with its frequency"""


def play(number: int, seed: int, folder: Path, only: str | None = None) -> dict[str, Any] | None:
    """Play one scene; what was wrong, if anything was."""
    rng = np.random.default_rng([seed, number])
    names = [name for name in SCENES if only in (None, name)]
    weights = np.array([SCENES[name][1] for name in names], dtype=float)
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            SCENES[name][0](rng, folder)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "mebandit" in Path(frame.filename).parts] or frames
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return {"scene": number, "name": name, "error": type(error).__name__, "words": str(error)[:200], "place": place, "last": last}
    return None


PLACE = struct.Struct("qq")
"""the scene that is played, and how many calls were made before it"""


def child(first: int, calls: int, seed: int, only: str | None, folder: Path) -> None:
    """Play scenes from the first one on. Where it stands is in a shared file, what is wrong goes to standard output."""
    with open(folder / "place", "r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as place:
        number = first
        while made[0] < calls:
            place[:] = PLACE.pack(number, made[0])
            found = play(number, seed, folder, only)
            if found is not None:
                print(json.dumps(found), flush=True)
            number += 1
        place[:] = PLACE.pack(number, made[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000, help="how many, or some more: a scene is played to its end")
    parser.add_argument("--first", type=int, default=0, help="scene")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(SCENES), help="scenes of one kind")
    parser.add_argument("--unchecked", action="store_true", help="without bounds checks")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.first, given.calls, given.seed, given.only, given.child)
        return
    with tempfile.TemporaryDirectory() as name:
        sys.exit(run(given, Path(name)))


def run(given: argparse.Namespace, folder: Path) -> int:
    """Start child after child until all calls are made; 1 if something was wrong."""
    from mebandit.runtime.progress import progress_bar

    environment = os.environ | ({} if given.unchecked else {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder / "cache")})
    scene, calls = given.first, 0
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    with progress_bar(given.calls, "hostile calls", True) as done:
        while calls < given.calls:
            (folder / "place").write_bytes(PLACE.pack(scene, 0))
            command = [sys.executable, __file__, "--child", str(folder), "--first", str(scene), "--calls", str(given.calls - calls)]
            command += ["--seed", str(given.seed), *(["--only", given.only] if given.only else [])]
            with open(folder / "found", "w+b") as out:
                process, shown = subprocess.Popen(command, env=environment, stdout=out), 0
                while True:
                    ended = process.poll() is not None
                    scene, reached = PLACE.unpack((folder / "place").read_bytes())
                    for _ in range(shown, reached):
                        done()
                    if ended:
                        break
                    shown = max(shown, reached)
                    time.sleep(0.2)
                out.seek(0)
                wrong = [json.loads(line) for line in out.read().splitlines() if line.startswith(b"{")]
            calls += reached
            if process.returncode:
                wrong.append(
                    {"scene": scene, "name": "?", "error": f"died with {process.returncode}"}
                    | dict.fromkeys(["words", "place", "last"], "")
                )
                scene, calls = scene + 1, calls + 1
            for one in wrong:
                found.setdefault((one["name"], one["error"], one["place"], one["last"]), []).append(one)
    for alike in sorted(found.values(), key=len, reverse=True):
        one = alike[0]
        print(f"{len(alike)} x {one['name']}: {one['error']} at {one['place']} ({one['last']}), as in scene {one['scene']}: {one['words']}")
    print(f"{calls:,} calls in {scene - given.first:,} scenes with seed {given.seed}: {len(found)} places where something was wrong")
    return min(len(found), 1)


if __name__ == "__main__":
    main()
