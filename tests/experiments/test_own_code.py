"""Policies and environments of one's own in a spec and in Table 1: `module:Name`."""

import dataclasses
import subprocess
import sys
from itertools import count
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.cli.terminal import commands
from mebandit.experiments import own_code
from mebandit.experiments.paper import table1
from mebandit.experiments.paper.catalogue import run_experiments
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.spec import read_spec

HELPER = "BEST = 1\n"
MODULE = '''
from dataclasses import dataclass

import numpy as np

import mebandit as mb
from {helper} import BEST


@dataclass(frozen=True)
class Fixed:
    """Prefers one action, whatever the rewards."""

    n_actions: int
    dim: int
    floor: float = 0.1
    best: int = BEST
    name: str = "fixed"

    def init(self):
        return np.zeros(1)

    def propensities(self, state, observation):
        pi = np.full(self.n_actions, self.floor)
        pi[self.best] += 1 - pi.sum()
        return pi

    def update(self, state, round):
        return state + 1


def tuned(n_actions, dim, *, floor=0.2):
    return mb.meb(n_actions, dim, floor=floor, name="tuned")


@dataclass(frozen=True)
class Shifted:
    inner: mb.environments.Environment
    shift: float = 0.0

    n_actions = property(lambda self: self.inner.n_actions)
    dim = property(lambda self: self.inner.dim)

    def tape(self, stretch):
        tape = self.inner.tape(stretch)
        return tape._replace(context=tape.context + self.shift, guess=np.full((1, self.dim), np.nan))


def broken(n_actions, dim):
    return 1 / 0


def wrong(n_actions, dim):
    return Fixed(n_actions, dim + 1)
'''
SPEC = """
[simulation]
horizon = 60
replicates = 2
[environment]
kind = "{module}:Shifted"
inner = {{ kind = "Gaussian", error_cov = 1.0 }}
shift = 0.5
[[policy]]
kind = "{module}:Fixed"
floor = 0.2
[[policy]]
kind = "{module}:tuned"
[[policy]]
kind = "meb"
floor = 0.2
"""
numbers = count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working directory, beside spec.toml; another in each test, since Python imports a name once."""
    monkeypatch.chdir(tmp_path)
    name = f"mine_{next(numbers)}"
    Path(f"{name}_helper.py").write_text(HELPER)
    Path(f"{name}.py").write_text(MODULE.replace("{helper}", f"{name}_helper"))
    Path("spec.toml").write_text(SPEC.format(module=name))
    return name


def call(*arguments: str) -> str:
    found = CliRunner().invoke(commands, arguments)
    assert found.exception is None, found.exception
    return found.output


def test_own_policies_and_environments_play_beside_the_librarys(module: str) -> None:
    (cell,) = read_spec("spec.toml")
    assert list(cell.policies) == ["fixed", "tuned", "MEB"]
    assert isinstance(cell.policies["tuned"], mb.policies.LinearPolicy)
    printed = call("simulate", "spec.toml", "--out", "results")
    assert "fixed" in printed
    regret = pd.read_csv("results/summary.csv").query("measure == 'clipped_regret'").set_index("policy")["mean"]
    assert regret["tuned"] == regret["MEB"] != regret["fixed"]
    files = {file: file.stat().st_mtime_ns for file in Path("results/cells").iterdir()}
    call("simulate", "spec.toml", "--out", "results")
    assert files == {file: file.stat().st_mtime_ns for file in Path("results/cells").iterdir()}


def test_a_cell_is_told_apart_by_code_and_settings(module: str) -> None:
    """Fingerprints in processes of their own: equal for the same code, other for changed code, changed helpers and changed settings."""

    def fingerprint() -> str:
        code = "from mebandit.experiments.spec import read_spec; cell, = read_spec('spec.toml'); print(cell.fingerprint, cell.world_key)"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    changes = [(f"{module}.py", "state + 1", "state + 2"), (f"{module}_helper.py", "1", "0"), ("spec.toml", "floor = 0.2", "floor = 0.1")]
    seen = [fingerprint()]
    assert fingerprint() == seen[0]
    for file, old, new in changes:
        Path(file).write_text(Path(file).read_text().replace(old, new, 1))
        seen.append(fingerprint())
    assert len({each.split()[0] for each in seen}) == 4
    assert len({each.split()[1] for each in seen}) == 1, "the random numbers of a cell do not depend on code"


def test_code_that_changed_under_a_running_python_is_refused(module: str) -> None:
    read_spec("spec.toml")
    Path(f"{module}.py").write_text(Path(f"{module}.py").read_text() + "# changed\n")
    with pytest.raises(mb.InvalidInput, match=r"be as it was when Python imported it; got a changed file\. Start Python again\."):
        read_spec("spec.toml")


WRONG = [
    ('"{module}:Fixd"', r"name a class or a function of .*; got 'Fixd'\. Is it 'Fixed'\?"),
    ('"{module}:BEST"', "name a class or a function of"),
    ('"nowhere_to_be_found:Fixed"', "name a file nowhere_to_be_found.py beside the spec, in .*, or an installed module"),
    ('"{module} :Fixed"', "be written as module:Name, such as mine:EpsilonGreedy"),
    ('"{module}:broken"', "be made from what the spec gives; got ZeroDivisionError: division by zero"),
    ('"{module}:wrong"', "have the environment's n_actions and dim, 2 and 5; got 2 and 6"),
    ('"{module}:Shifted"', r"policies must be policies, such as meb\(2, 5\); got Shifted"),
    ('"json:Fixed"', "name a module whose name no other module has; got json:Fixed, beside "),
    ('"torn:Fixed"', "name a module that can be imported; got torn:Fixed, which ends in SyntaxError"),
]


@pytest.mark.parametrize(("kind", "sentence"), WRONG)
def test_wrong_code_gets_one_sentence(module: str, kind: str, sentence: str) -> None:
    Path("json.py").write_text("")
    Path("torn.py").write_text("def f(:\n")
    text = Path("spec.toml").read_text().replace(f'"{module}:Fixed"\nfloor = 0.2', kind.format(module=module))
    Path("wrong.toml").write_text(text)
    with pytest.raises(mb.MebanditError, match=sentence) as refusal:
        read_spec("wrong.toml")
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("wrong.toml: ")
    found = CliRunner().invoke(commands, ["simulate", "wrong.toml", "--out", "results"])
    assert found.exit_code != 0
    assert not Path("results").exists()


def test_options_that_own_code_does_not_take_are_named(module: str) -> None:
    text = Path("spec.toml").read_text()
    Path("spec.toml").write_text(text.replace("floor = 0.2", "flor = 0.2", 1))
    with pytest.raises(mb.InvalidInput, match=f"policy {module}:Fixed must have only best, floor, name; got flor"):
        read_spec("spec.toml")


def test_own_policies_join_table_1a(module: str) -> None:
    options = PaperOptions(protocol="as_written", replicates=2, policies=(f"{module}:Fixed", f"{module}:tuned"))
    cell, plain = table1.cells_of_1a(options)[0], table1.cells_of_1a(PaperOptions(protocol="as_written", replicates=2))[0]
    assert list(cell.policies) == [*plain.policies, "fixed", "tuned"]
    assert (cell.world_key, cell.policies["fixed"].floor) == (plain.world_key, table1.FLOOR)  # type: ignore[attr-defined]
    assert cell.fingerprint != plain.fingerprint
    short = dataclasses.replace(cell, simulation=cell.simulation | {"horizon": 100})
    data = short.data(map(short.play, range(2)))
    labelled = data._replace(replicates=data.replicates.assign(**cell.labels))
    table = table1.table_1a(labelled)
    assert {"fixed", "tuned", "MEB", "TS"} <= set(table["policy"])
    (section,) = table1.sections_1a(table, labelled)
    assert section.table.header[2:10] == [*table1.LEARNERS, "fixed", "tuned"]
    assert section.brief is not None
    assert section.brief.header[2:] == ["MEB", "MEB-DR", "fixed", "tuned"]
    with pytest.raises(mb.InvalidInput, match="policies must go with the experiment table1a alone; got table1b"):
        run_experiments(["table1b"], "results", options)


def test_a_module_is_only_imported_where_a_spec_names_it(module: str) -> None:
    assert own_code.is_own(f"{module}:Fixed")
    assert not own_code.is_own("meb")
    assert module not in sys.modules
    before = list(sys.path)
    read_spec("spec.toml")
    assert module in sys.modules
    assert sys.path == before
