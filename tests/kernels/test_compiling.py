"""Compiled code is kept where that can be, and its files are believed only whole; without any, all works as well."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mebandit
from mebandit.kernels.compile import Entries

CALL = "from mebandit.kernels.random import normal_cdf; print(normal_cdf(0.25))"
VALUE = "0.5987063256829237"


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    paths = {"PYTHONPATH": str(Path(mebandit.__file__).parents[1])} | environment
    return subprocess.run([sys.executable, "-c", script], env=mine | paths, capture_output=True, text=True, check=False)


def assert_said_once(stderr: str) -> None:
    assert stderr.startswith("mebandit: compiled code cannot be kept (")
    assert stderr.endswith("set NUMBA_CACHE_DIR to a folder that can be written to.\n")
    assert stderr.count("\n") == 1


def test_it_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Neither beside the package nor in the home: what should be folders there are files."""
    package = tmp_path / "site" / "mebandit"
    shutil.copytree(Path(mebandit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {path.parent for path in package.rglob("*.py")}:
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    home = str(tmp_path / "home")
    found = run(CALL, PYTHONPATH=str(package.parent), HOME=home, XDG_CACHE_HOME=home, NUMBA_CACHE_DIR=home, PYTHONDONTWRITEBYTECODE="1")
    assert (found.returncode, found.stdout.strip()) == (0, VALUE), found.stderr
    assert_said_once(found.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
def test_a_full_disk_keeps_nothing_and_stops_nothing(tmp_path: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    found = run(f"{limit}; {CALL}", NUMBA_CACHE_DIR=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    assert (found.returncode, found.stdout.strip()) == (0, VALUE), found.stderr
    assert_said_once(found.stderr)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    assert run(CALL, NUMBA_CACHE_DIR=str(tmp_path)).stdout.strip() == VALUE
    (entry,) = tmp_path.rglob("*normal_cdf*.nbc")
    whole = entry.read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        entry.write_bytes(damaged)
        found = run(CALL, NUMBA_CACHE_DIR=str(tmp_path))
        assert (found.returncode, found.stdout.strip(), found.stderr) == (0, VALUE, "")
        assert len(entry.read_bytes()) == len(whole)
        assert entry.read_bytes() != damaged


def test_two_processes_never_take_each_others_code_for_theirs(tmp_path: Path) -> None:
    """Each signature has a name of its own, whoever comes first; and what lies under a wrong name, or was made elsewhere, is not used."""
    entries: Any = Entries  # which is numba's, and has no types
    first, second = (entries(str(tmp_path), "f-1.py3", "stamp") for _ in range(2))
    first.save(("(float64,)", "x86"), "of floats")
    second.save(("(int64,)", "x86"), "of integers")
    assert first.load(("(int64,)", "x86")) == "of integers"
    assert second.load(("(float64,)", "x86")) == "of floats"
    assert first.load(("(float64,)", "another processor")) is None
    assert entries(str(tmp_path), "f-1.py3", "another source").load(("(float64,)", "x86")) is None
    one, other = sorted(tmp_path.iterdir())
    shutil.copy(one, other)
    found = {first.load(("(float64,)", "x86")), first.load(("(int64,)", "x86"))}
    assert len(found - {None}) == 1
    assert None in found


def test_without_a_compiler_it_is_plain_python() -> None:
    found = run(CALL, NUMBA_DISABLE_JIT="1")
    assert (found.returncode, found.stdout.strip()) == (0, VALUE), found.stderr


def test_a_change_in_one_file_is_seen_by_what_calls_it(tmp_path: Path) -> None:
    """The seal holds a stamp over all kernels: numba by itself would take the caller's old code."""
    package = tmp_path / "site" / "mebandit"
    shutil.copytree(Path(mebandit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    call = "from mebandit.kernels.linalg import acceptable; import numpy as np; print(acceptable(np.array([1e9])))"
    paths = {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(call, **paths).stdout.strip() == "True"
    limits = package / "kernels" / "limits.py"
    limits.write_text(limits.read_text().replace("LARGEST = 1e50", "LARGEST = 1e5"))
    assert run(call, **paths).stdout.strip() == "False"
