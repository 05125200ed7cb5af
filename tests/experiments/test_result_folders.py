"""Result folders: several runs at once, damaged files, full disks, links, folders of earlier versions. Real processes, real files."""

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import mebandit as mb
from mebandit.experiments import runner, spec
from mebandit.experiments.paper.catalogue import run_experiments
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.runner import CellData, read_cells, run_cells
from mebandit.runtime import files

SPEC = """
[simulation]
horizon = 3000
replicates = 3
seed = 3
references = false

[environment]
kind = "Gaussian"

[grid]
error_cov = [0.1, 0.3, 1.0, 3.0]

[[policy]]
kind = "meb"
"""
OLD = Path(__file__).parents[1] / "data" / "0.1.0" / "simulated"


@dataclass(frozen=True)
class Numbered:
    """A cell whose results are its own number and the replicates'."""

    number: int
    replicates: int = 3

    @property
    def name(self) -> str:
        return f"cell {self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        return {"number": self.number}

    @property
    def fingerprint(self) -> str:
        return f"{self.number:016x}"

    def play(self, replicate: int) -> float:
        return 100.0 * self.number + replicate

    def data(self, played: Iterable[float]) -> CellData:
        values = list(played)
        curves = pd.DataFrame({"policy": "p", "measure": "value", "time": [1], "mean": sum(values), "std_error": 0.0})
        return CellData(curves, pd.DataFrame({"policy": "p", "replicate": range(len(values)), "time": 1, "value": values}))


CELLS = [Numbered(i) for i in range(4)]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mebandit", *arguments]


def run(*arguments: str, cwd: Path, most: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which can write no file of more than `most` bytes: the system refuses, as on a full disk."""
    line = command(*arguments)
    if most is not None:
        begin = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); import mebandit.cli; mebandit.cli.main()"
        line = [sys.executable, "-c", begin, *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)


def tables(folder: Path) -> dict[str, bytes]:
    """All tables below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.csv"))}


def done_before(cells: Sequence[runner.Cell], folder: Path) -> list[bool]:
    """Which cells a run finds finished."""
    found: list[bool] = []
    run_cells(cells, folder, started=lambda _, finished: found.append(finished))
    return found


def parts(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


# ---- several runs ----------------------------------------------------------------------------------------------------------


def test_three_processes_at_once_write_what_one_writes_alone(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    cells = spec.read_spec(tmp_path / "spec.toml")
    curves = run_cells(cells, tmp_path / "alone").curves
    start = command("simulate", "spec.toml", "--out", "same")
    together = [subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in together:
        errors = process.communicate()[1]
        assert process.returncode == 0, errors
        assert "mebandit:" not in errors, "no run takes another's files for damaged"
    assert tables(tmp_path / "same" / "cells") == tables(tmp_path / "alone" / "cells")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "same" / "curves.csv"), curves)
    assert done_before(cells, tmp_path / "same") == [True] * 4
    assert not parts(tmp_path)


@pytest.mark.parametrize("theirs", [CELLS[1:2], CELLS[1:3], CELLS[3:], CELLS[::-1]])
def test_what_another_run_finishes_meanwhile_changes_nothing(tmp_path: Path, theirs: list[Numbered]) -> None:
    """The other run does its work after this one has begun, before its first cell is saved."""
    alone = run_cells(CELLS, tmp_path / "alone")

    def started(cell: runner.Cell, finished: bool) -> None:
        assert not finished
        if cell is CELLS[0]:
            run_cells(theirs, tmp_path / "same")

    found = run_cells(CELLS, tmp_path / "same", started=started)
    for mine, expected in zip(found, alone, strict=True):
        pd.testing.assert_frame_equal(mine, expected)
    assert tables(tmp_path / "same") == tables(tmp_path / "alone")


def test_a_cell_that_is_there_twice_is_computed_once(tmp_path: Path) -> None:
    told: list[bool] = []
    found = run_cells([*CELLS, Numbered(1)], tmp_path, started=lambda _, finished: told.append(finished))
    assert told == [False] * 4 + [True]
    assert found.replicates["value"].tolist() == [100.0 * n + r for n in (0, 1, 2, 3, 1) for r in range(3)]


def test_a_cell_is_not_given_the_replicates_of_another(tmp_path: Path) -> None:
    """A cell that takes fewer of its replicates than it has would shift all that come after it."""

    @dataclass(frozen=True)
    class Short(Numbered):
        def data(self, played: Iterable[float]) -> CellData:
            return super().data([next(iter(played))])

    with pytest.raises(RuntimeError, match="replicate 0 of cell 'cell 1' was due; got replicate 1 of cell 'cell 0'"):
        run_cells([Short(0), Numbered(1)], tmp_path)
    assert not list((tmp_path / "cells").glob("0000000000000001*"))


# ---- damaged files ---------------------------------------------------------------------------------------------------------


def resealed(**changes: object) -> Callable[[Path], None]:
    """Another seal, right in itself."""

    def reseal(path: Path) -> None:
        body, right = files.unseal(path.read_bytes())
        assert right
        path.write_text(files.seal(body | changes))

    return reseal


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return replace


def content(new: bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(new), None)[1]


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a digit of the curves": ("curves.csv", replaced("303", "304"), "has changed since"),
    "a digit of the replicates": ("replicates.csv", replaced("101", "201"), "has changed since"),
    "a table cut short": ("replicates.csv", content(b"policy,"), "has changed since"),
    "a table lost": ("curves.csv", Path.unlink, "is missing"),
    "a folder": ("curves.csv", folder_instead, "cannot be read (Is a directory)"),
    "a digit of the effort": ("effort.json", replaced('"policy_rounds": 3', '"policy_rounds": 4'), "has changed since"),
    "an empty seal": ("effort.json", content(b""), "has no checksums"),
    "no JSON": ("effort.json", content(b"\xff{"), "has no checksums"),
    "another type": ("effort.json", content(b"[1, 2]"), "has no checksums"),
    "deep nesting": ("effort.json", content(b"[" * 100_000), "has no checksums"),
    "a deep entry": ("effort.json", content(b'{"sha256": "", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "has no checksums"),
    "a long number": ("effort.json", content(b'{"sha256": ' + b"9" * 5000 + b"}"), "has no checksums"),
    "not a number": ("effort.json", content(b'{"seconds": NaN, "sha256": ""}'), "has no checksums"),
    "types in a right seal": ("effort.json", resealed(policy_rounds="many"), "has no checksums"),
    "checksums of another kind": ("effort.json", resealed(checksums=3), "has no checksums"),
    "another cell's seal": ("effort.json", resealed(fingerprint=CELLS[2].fingerprint), "has changed since"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_cell_is_told_of_and_computed_again(tmp_path: Path, case: str) -> None:
    ending, damage, how = DAMAGE[case]
    whole = run_cells(CELLS, tmp_path)
    before = tables(tmp_path)
    path = tmp_path / "cells" / f"{CELLS[1].fingerprint}.{ending}"
    damage(path)
    sentence = f"the results of cell 'cell 1' must be as they were written; got {path}, which {how}"
    with pytest.raises(mb.MebanditError) as caught:
        read_cells(CELLS, tmp_path)
    assert str(caught.value).startswith(sentence)
    if path.is_dir():  # a folder is not replaced by a file: that is refused in a sentence of its own
        with pytest.warns(UserWarning, match="Is a directory"), pytest.raises(mb.LogError, match=r"must be one that can be written"):
            run_cells(CELLS, tmp_path)
        return
    told: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        again = run_cells(CELLS, tmp_path, started=lambda cell, finished: None if finished else told.append(cell.name))
    assert told == ["cell 1"]
    assert [str(w.message).startswith(sentence) for w in warned] == [True]
    for mine, expected in zip(again, whole, strict=True):
        pd.testing.assert_frame_equal(mine, expected)
    assert tables(tmp_path) == before
    run_cells(CELLS, tmp_path)  # nothing is left to warn of


def test_a_cell_damaged_during_the_run_is_refused_at_its_end(tmp_path: Path) -> None:
    def started(cell: runner.Cell, finished: bool) -> None:
        if cell is CELLS[3]:
            replaced("303", "304")(tmp_path / "cells" / f"{CELLS[1].fingerprint}.curves.csv")

    with pytest.raises(mb.LogError, match=r"cell 1.*curves\.csv, which has changed since\. They have to be computed again\."):
        run_cells(CELLS, tmp_path, started=started)


def test_cells_of_the_first_version_are_computed_again_with_one_sentence(tmp_path: Path) -> None:
    """They have sizes but no checksums, and two runs in one folder could swap their numbers: nothing says whether they are right."""
    cells = spec.read_spec(OLD / "spec.toml")
    (tmp_path / "old" / "cells").mkdir(parents=True)
    for seal in (OLD / "cells").glob("*.effort.json"):
        (cell,) = (cell for cell in cells if cell.name == json.loads(seal.read_text())["cell"])
        for path in (OLD / "cells").glob(seal.name.replace("effort.json", "*")):
            shutil.copy(path, tmp_path / "old" / "cells" / path.name.replace(seal.name.split(".")[0], cell.fingerprint))
    fresh = run_cells(cells, tmp_path / "fresh")
    with pytest.warns(
        UserWarning, match=r"has no checksums: it is damaged or of an early version\. They .* again\. This concerns 2 cells\."
    ):
        assert done_before(cells, tmp_path / "old") == [False, False]
    assert tables(tmp_path / "old") == tables(tmp_path / "fresh")
    assert done_before(cells, tmp_path / "old") == [True, True]
    pd.testing.assert_frame_equal(read_cells(cells, tmp_path / "old").curves, fresh.curves)


# ---- disks and links -------------------------------------------------------------------------------------------------------


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    said = (line for line in done.stderr.splitlines() if line.startswith("mebandit:"))
    (line,) = (line for line in said if "compiled code cannot be kept" not in line)  # which a limit on files does too
    return line


@contextmanager
def small_disk(most: int) -> Iterator[None]:
    """No file of more than `most` bytes can be written: the system refuses, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_sentence_and_the_next_run_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    (tmp_path / "spec.toml").write_text((OLD / "spec.toml").read_text())
    cells = spec.read_spec(tmp_path / "spec.toml")
    expected = run_cells(cells, tmp_path / "alone").curves
    least, joined = expected.query("cell == @cells[0].name").to_csv(), expected.to_csv()
    for most, finished in ((len(least) // 2, 0), (len(joined) // 2 + 300, 2)):  # too little for a cell, for the joined curves
        done = run("simulate", "spec.toml", "--out", "full", cwd=tmp_path, most=most)
        assert "File too large" in one_sentence(done)
        assert len(list((tmp_path / "full" / "cells").glob("*.effort.json"))) == finished
        assert not parts(tmp_path)
        assert [path.name for path in (tmp_path / "full").iterdir()] == ["cells"]
    assert done_before(cells, tmp_path / "full") == [True, True]
    assert tables(tmp_path / "full") == tables(tmp_path / "alone")


def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    """The demo's page, and the paper's tables and pictures of an earlier run."""
    (tmp_path / "report.html").write_text("of an earlier run")
    assert "report.html (File too large)" in one_sentence(run("demo", "--out", ".", cwd=tmp_path, most=20_000))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "of an earlier run")]
    options = PaperOptions(quick=True, replicates=2)
    with small_disk(1000), pytest.raises(mb.LogError, match=r"must be one that can be written; got .*curves\.csv \(File too large\)"):
        run_experiments(["examples"], tmp_path, options, progress=False)
    assert (tmp_path / "report.html").read_text() == "of an earlier run"
    assert not parts(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device")
def test_output_to_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command("--version"), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert one_sentence(done).startswith("mebandit: the output must be one that can be read or written; got: ")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("a note")
    names = ["curves.csv", "summary.csv", "report.html"]
    cells = spec.read_spec(OLD / "spec.toml")
    names += [f"cells/{cell.fingerprint}.{ending}" for cell in cells for ending in ("curves.csv", "replicates.csv", "effort.json")]
    (tmp_path / "out" / "cells").mkdir(parents=True)
    for name in names:
        (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    assert run("simulate", str(OLD / "spec.toml"), "--out", "out", cwd=tmp_path).returncode == 0
    assert (tmp_path / "precious").read_text() == "a note"
    assert not any((tmp_path / "out" / name).is_symlink() for name in names)


def test_a_file_where_the_cells_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("a note")
    with pytest.raises(mb.LogError, match=r"the output folder must be writable; got .*cells"):
        run_cells(CELLS, tmp_path)


# ---- sizes -----------------------------------------------------------------------------------------------------------------

GRID = "\n".join(f"{name} = {list(range(1, 101))}" for name in ("error_cov", "noise_sd", "hold"))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "horizon = 3000",
            f"horizon = {10**18}",
            "simulation.horizon must be a whole number from 1 to 4294967294; got 1000000000000000000.",
        ),
        ("horizon = 3000", "horizon = 1e18", "simulation.horizon must be a whole number from 1 to 4294967294; got 1e+18."),
        ("replicates = 3", f"replicates = {10**18}", "simulation.replicates must be a whole number from 1 to 4294967295; got 10000000000"),
        (
            "replicates = 3",
            f"replicates = {2**32 - 1}",
            "replicates must be so few that the results fit into memory; got 4,294,967,295, for",
        ),
        (
            "seed = 3",
            f"seed = {10**30}",
            "simulation.seed must be a whole number from 0 to 9223372036854775807; got 1000000000000000000000",
        ),
        ("error_cov = [0.1, 0.3, 1.0, 3.0]", GRID, "[grid] must have at most 100,000 combinations; got 1,000,000."),
        ('"Gaussian"', '"Gaussian"\nn_actions = 1000000000', "environment Gaussian must have only context, cov, error, error_cov"),
        (
            '"Gaussian"',
            f'"Gaussian"\nhold = {10**30}',
            "hold must be a whole number from 1 to 4294967295; got 1000000000000000000",
        ),
        (
            'kind = "Gaussian"\n\n[grid]',
            f'kind = "SmallError"\ncontexts = {10**9}\n[old]',
            "contexts must be a whole number from 3 to 1000000",
        ),
        (
            'kind = "Gaussian"',
            f'kind = "Estimated"\nworld = {{ kind = "Gaussian" }}\nstart = {10**12}',
            "start must be a whole number from 1",
        ),
    ],
)
def test_sizes_that_nothing_can_hold_are_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in SPEC
    text = SPEC.replace(old, new)
    text = text.split("[old]")[0] + '\n[[policy]]\nkind = "meb"\n' if "[old]" in text else text
    text = text.split("[grid]")[0] + '\n[[policy]]\nkind = "meb"\n' if "Estimated" in text else text
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises(mb.InvalidInput) as caught:
        spec.read_spec(tmp_path / "spec.toml")
    assert sentence in str(caught.value)


def test_replicates_that_nothing_can_hold_are_refused_in_python() -> None:
    with pytest.raises(mb.InvalidInput, match="replicates must be so few that the results fit into memory"):
        mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=1000, replicates=2**32 - 1)
    with pytest.raises(mb.InvalidInput, match="points must be a whole number from 2 to 1000000"):
        mb.simulate(mb.environments.Gaussian(), [mb.meb(2, 5)], horizon=1000, points=10**12)
    with pytest.raises(mb.InvalidInput, match="replicates must be a whole number from 2 to 4294967295"):
        PaperOptions(replicates=10**30)
