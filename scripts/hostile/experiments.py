"""Hostile descriptions of experiments, and the cells of one that were damaged."""

from pathlib import Path

from hostile.arguments import Rng, pick
from hostile.promises import keep, refusals

SPEC = """
[simulation]
horizon = 30
replicates = 2
seed = 3

[environment]
kind = "Gaussian"
theta = [[1.0, 0.5], [0.5, 1.0]]

[grid]
error_cov = [0.1, 3.0]

[[policy]]
kind = "meb"

[[policy]]
kind = "thompson"
floor = 0.1
"""


def experiments(rng: Rng, folder: Path) -> None:
    """Descriptions of an experiment with wrong words and numbers; and the cells of one, spoilt and read again."""
    from mebandit.experiments import runner, spec

    path, words = folder / "spec.toml", SPEC.split(" ")
    for _ in range(4):
        i = int(rng.integers(len(words)))
        wrong = pick(rng, ["-1", "nan", "inf", "1e300", "1e-320", "[]", "[[1.0]]", '"x"', "true", "10", "{}", str(10**30), "[" * 2000])
        end = words[i].partition("\n")
        path.write_text(" ".join([*words[:i], wrong + end[1] + end[2], *words[i + 1 :]]))
        with refusals():
            spec.read_spec(path)
    path.write_text(SPEC)
    cells = spec.read_spec(path)
    out = folder / "experiment"
    with refusals():
        runner.run_cells(cells, out, workers=1, progress=False)
        before = runner.read_cells(cells, out)
        file = pick(rng, sorted((out / "cells").iterdir()))
        content = bytearray(file.read_bytes())
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(content))
        with refusals():
            keep(False, f"a damaged cell is read: {runner.read_cells(cells, out)}")
        after = runner.run_cells(cells, out, workers=1, progress=False)
        keep(all(mine.equals(theirs) for mine, theirs in zip(before, after, strict=True)), "a damaged cell is computed again")
