"""Experiments as TOML files (specs). A spec names environments, a grid over their settings, and policies; every combination is a cell.

[simulation]
horizon = 10000
replicates = 20
seed = 1

[environment]                 # or several [[environment]]
kind = "Gaussian"
noise_sd = 0.1

[grid]                        # every combination of these values is one cell
error_cov = [0.1, 1.0, 2.0]

[[policy]]
kind = "meb"
floor = 0.2

[[policy]]
kind = "mine:EpsilonGreedy"   # a class or function in mine.py beside the spec, or in an installed module
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import signature
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from mebandit import __version__, checks, environments, kernels, policies, schedules
from mebandit.checks import LogError
from mebandit.environments import Environment
from mebandit.experiments.own_code import is_own, load
from mebandit.experiments.runner import CellData
from mebandit.policies import LinearPolicy, Policy, settings
from mebandit.policies.base import label
from mebandit.runtime.files import parse_toml
from mebandit.schedules import log_spaced
from mebandit.simulation.simulate import LONGEST, MOST, Contest, Played, check_room, contest, named_policies

ENVIRONMENTS: dict[str, type[Any]] = {
    made.__name__: made
    for made in (
        environments.Gaussian,
        environments.HeartSteps,
        environments.Example21,
        environments.ExampleB1,
        environments.ExampleB2,
        environments.SmallError,
        environments.Drifting,
        environments.Misreported,
        environments.Estimated,
        environments.Nonlinear,
        environments.Berkson,
        environments.Autocorrelated,
        environments.Misclassified,
    )
}
POLICIES: dict[str, Callable[..., Policy]] = {
    made.__name__: made
    for made in (
        policies.meb,
        policies.meb_dr,
        policies.meb_naive,
        policies.lin_ucb,
        policies.thompson,
        policies.robust_ucb,
        policies.greedy,
        policies.oracle,
        policies.uniform,
    )
}
MOST_CELLS = 100_000
"""combinations of a grid, at most, since each is stored in a few files"""
SIMULATION = {"horizon", "replicates", "seed", "floor", "references", "milestones"}


@dataclass(frozen=True)
class SimulationCell:
    """One environment, and the policies that play in it: the unit of work of an experiment, whose results are stored together."""

    name: str
    environment: Environment
    policies: dict[str, Policy]
    simulation: dict[str, Any]
    settings: dict[str, Any]
    """the settings of the environment, as in the spec; those of the environment that it changes are under "world" """
    labels: dict[str, Any] = field(default_factory=dict)
    """columns that tell this cell from others in tables"""
    own: list[Any] = field(default_factory=list)
    """what tells apart the policies and environments of your own: their settings, and the checksum of their source"""

    @property
    def replicates(self) -> int:
        """The number of independent runs."""
        return int(self.simulation["replicates"])

    @cached_property
    def contest(self) -> Contest:
        """What the simulator needs to play the cell."""
        return contest(self.environment, self.policies, cell=self.world_key, **self.simulation)

    def play(self, replicate: int) -> Played:
        """One replicate of all policies: a pure function of the cell and the number."""
        return self.contest.play(replicate)

    def data(self, played: Iterable[Played]) -> CellData:
        """The results of the cell, from those of its replicates."""
        results = self.contest.results(played)
        milestones = sorted({*self.simulation.get("milestones", ()), self.simulation["horizon"]})
        return CellData(results.curves(), results.replicates(milestones))

    @property
    def world_key(self) -> int:
        """The number that the random numbers of the cell depend on.

        It is a function of the innermost environment alone. So a cell keeps its random numbers when others are added, and environments that
        differ only in what the learner is told have the same ones.
        """
        world = self.settings
        while "world" in world:
            world = world["world"]
        return int(digest(world)[:8], 16)

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change the cell's results, the compiled code included."""
        plain = [settings.to_plain(policy) for policy in self.policies.values()]
        return digest([self.settings, self.simulation, list(self.policies), plain, __version__, kernels.STAMP, *self.own])[:16]


def simulated(
    name: str,
    environment: Environment,
    policies: Iterable[LinearPolicy],
    *,
    labels: dict[str, Any],
    settings: dict[str, Any] | None = None,
    **simulation: Any,
) -> SimulationCell:
    """A cell whose policies are known by their own names.

    Args:
        name: The name of the cell.
        environment: Where the policies play.
        policies: Who plays.
        labels: Columns that tell this cell from others in tables.
        settings: What the random numbers of the environment depend on; by default all of its settings.
        **simulation: The settings of `mebandit.simulate`: horizon, replicates, seed and others.
    """
    known = described(environment) if settings is None else settings
    return SimulationCell(name, environment, {policy.name: policy for policy in policies}, simulation, known, labels)


def described(environment: Any) -> dict[str, Any]:
    """The settings of an environment, as a spec states them."""
    plain = {f.name: getattr(environment, f.name) for f in fields(environment)}
    return {"kind": type(environment).__name__} | {
        name: described(value) if isinstance(value, Environment) else value for name, value in plain.items()
    }


def digest(plain: Any) -> str:
    """A checksum of plain data."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def read_spec(path: str | Path) -> list[SimulationCell]:
    """Read a spec and check every setting in it.

    Args:
        path: A TOML file; see the top of this module for an example.
    """
    path = Path(path)
    try:
        data = parse_toml(path.read_bytes())
    except OSError as error:
        checks.refuse("spec", "be a readable file", f"{path} ({error.strerror})", error=LogError)
    except ValueError as error:
        checks.refuse("spec", "be TOML", f"{path} ({error})", error=LogError)
    try:
        return cells_of(data, path.parent)
    except checks.InvalidInput as error:
        raise checks.InvalidInput(f"{path}: {error}") from error


def cells_of(data: dict[str, Any], folder: Path | None = None) -> list[SimulationCell]:
    """The cells of a spec that is given as nested dicts, as TOML is read.

    Args:
        data: The spec.
        folder: Where the modules of `module:Name` may lie; None: they are installed.
    """
    _only("the spec", data, {"simulation", "environment", "grid", "policy"})
    simulation = _table(data, "simulation")
    _only("[simulation]", simulation, SIMULATION)
    checks.integer("simulation.horizon", simulation.get("horizon"), 1, LONGEST)
    checks.integer("simulation.replicates", simulation.setdefault("replicates", 20), 1, MOST)
    checks.integer("simulation.seed", simulation.setdefault("seed", 1), 0, 2**63 - 1)
    _check_extras(simulation)
    worlds = data.get("environment", {"kind": "Gaussian"})
    axes = _axes(data.get("grid", {}))
    entries = data.get("policy", [])
    if not isinstance(entries, list) or not entries:
        checks.refuse("the spec", "name at least one [[policy]]", checks.shown(entries))
    cells = []
    for world in worlds if isinstance(worlds, list) else [worlds]:
        if not isinstance(world, dict):
            checks.refuse("[environment]", "be a table", checks.shown(world))
        for point in product(*axes.values()):
            chosen = dict(world) | dict(zip(axes, point, strict=True))
            name = " ".join([str(chosen.pop("name", chosen.get("kind"))), *(f"{k}={v}" for k, v in zip(axes, point, strict=True))])
            environment = _environment(chosen, folder)
            chosen = _by_contents(chosen)
            made = [_policy(entry, environment, simulation["horizon"], folder) for entry in entries]
            named = {label(policy): policy for policy in made}
            if len(named) < len(made):
                checks.refuse("policies", "have different names", ", ".join(map(label, made)), "Give some of them a name = '...'.")
            named_policies(named, environment)
            own = [*_own(chosen, folder), *(part for entry in entries for part in _own(entry, folder))]
            check_room(len(named), simulation["replicates"], log_spaced(simulation["horizon"]).size, environment.n_actions)
            cells.append(SimulationCell(name, environment, named, simulation, chosen, own=own))
    if len({cell.name for cell in cells}) < len(cells):
        checks.refuse("environments", "have different names", ", ".join(c.name for c in cells), "Give some of them a name = '...'.")
    return cells


def _by_contents(chosen: dict[str, Any]) -> dict[str, Any]:
    """Settings in which the checksum of a file's contents replaces its path, since results depend on the contents alone."""
    found: dict[str, Any] = {name: _by_contents(value) if _is_environment(value) else value for name, value in chosen.items()}
    if "csv" in found and found["kind"] == "HeartSteps":
        found["csv"] = hashlib.sha256(Path(found["csv"]).read_bytes()).hexdigest()
    return found


def _is_environment(value: Any) -> bool:
    """Whether the setting of an environment is itself an environment."""
    return isinstance(value, dict) and "kind" in value


def _own(table: dict[str, Any], folder: Path | None) -> list[Any]:
    """The settings of what is your own in a table, and the checksum of its source."""
    parts = [part for value in table.values() if isinstance(value, dict) for part in _own(value, folder)]
    return [[load("kind", table["kind"], folder).checksum, table], *parts] if is_own(table.get("kind")) else parts


def _check_extras(simulation: dict[str, Any]) -> None:
    """Check the optional settings of [simulation]."""
    if "floor" in simulation:
        checks.number("simulation.floor", simulation["floor"], "be a number from 0 to 0.5", 0.0, 0.5)
    if not isinstance(simulation.get("references", True), bool):
        checks.refuse("simulation.references", "be true or false", checks.shown(simulation["references"]))
    if not isinstance(simulation.get("milestones", []), list):
        checks.refuse("simulation.milestones", "be a list of rounds", checks.shown(simulation["milestones"]))
    for t in simulation.get("milestones", []):
        checks.integer("simulation.milestones", t, 1, simulation["horizon"])


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    """A table that the spec must have."""
    table = data.get(key)
    if not isinstance(table, dict):
        checks.refuse("the spec", f"have a table [{key}]", checks.shown(table))
    return dict(table)


def _axes(grid: Any) -> dict[str, list[Any]]:
    """The values of each setting in [grid]."""
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        checks.refuse("[grid]", "give a list of values for each setting", checks.shown(grid))
    number = prod(map(len, grid.values()))
    if number > MOST_CELLS:
        checks.refuse("[grid]", f"have at most {MOST_CELLS:,} combinations", f"{number:,}")
    return dict(grid)


def _environment(chosen: dict[str, Any], folder: Path | None) -> Environment:
    """The environment that a table describes."""
    options = {key: value for key, value in chosen.items() if key != "kind"}
    if is_own(chosen.get("kind")):
        own = load("environment.kind", chosen["kind"], folder)
        if own.options is not None:
            _only(f"environment {own.kind}", options, own.options)
        return _checked(own(**{name: _environment(v, folder) if _is_environment(v) else v for name, v in options.items()}), own.kind)
    kind = checks.one_of("environment.kind", chosen.get("kind"), ENVIRONMENTS)
    made = ENVIRONMENTS[kind]
    known = {f.name for f in fields(made)} - {"users", "source"} | ({"csv", "in_turn"} if kind == "HeartSteps" else set())
    _only(f"environment {kind}", options, known)
    if "world" in known:
        if not isinstance(options.get("world"), dict):
            checks.refuse(f"environment {kind} world", "be a table that describes an environment", checks.shown(options.get("world")))
        options["world"] = _environment(options["world"], folder)
    if "in_turn" in options and "csv" not in options:
        checks.refuse("environment HeartSteps", "have a csv if it has in_turn", "none", "The built-in description has no rows.")
    if not isinstance(options.get("csv", ""), str):
        checks.refuse("environment HeartSteps csv", "be a path", checks.shown(options["csv"]))
    if "csv" in options:
        return environments.HeartSteps.from_csv(options.pop("csv"), **options)
    environment: Environment = made(**options)
    return environment


def _checked(made: Any, kind: str) -> Environment:
    """An environment of your own, if it is one."""
    if not isinstance(made, Environment) or isinstance(made, type):
        checks.refuse(kind, "make an environment: n_actions, dim and a method tape", checks.shown(made))
    return made


def _policy(entry: Any, environment: Environment, horizon: int, folder: Path | None) -> Policy:
    """The policy that a [[policy]] table describes."""
    if not isinstance(entry, dict):
        checks.refuse("[[policy]]", "be a table", checks.shown(entry))
    options = {key: settings.from_plain(value) for key, value in entry.items() if key not in ("kind", "preset")}
    kind = str(entry.get("kind"))
    own = load("policy.kind", kind, folder) if is_own(kind) else None
    made = POLICIES[checks.one_of("policy.kind", entry.get("kind"), POLICIES)] if own is None else own.__call__
    for name in ("n_actions", "dim"):
        if name in options:
            checks.refuse(f"policy {kind}", f"take {name} from the environment", f"{name} = {options[name]!r}")
    preset = entry.get("preset")
    if preset is not None:
        checks.one_of("policy.preset", preset, ("standard", "clipped"))
        if preset == "standard" and "floor" in options:
            checks.refuse("policy.floor", "be left out with the preset 'standard', which sets it", checks.shown(options["floor"]))
        shape = {"horizon": horizon, "dim": environment.dim, "n_actions": environment.n_actions}
        chosen = schedules.standard(**shape) if preset == "standard" else schedules.clipped(options.get("floor", 0.2), **shape)
        options = dict(**chosen) | {key: value for key, value in options.items() if key != "floor"}
    if kind == "robust_ucb":
        options.setdefault("horizon", horizon)
    known = set(signature(made).parameters) if own is None else own.options
    if known is not None:
        _only(f"policy {kind}", options, known - {"n_actions", "dim"})
    policy: Policy = made(environment.n_actions, environment.dim, **options)
    return policy


def _only(what: str, table: dict[str, Any], known: set[str]) -> None:
    """Refuse keys that are not known."""
    unknown = sorted(set(table) - known)
    if unknown:
        checks.refuse(what, "have only " + ", ".join(sorted(known)), ", ".join(unknown))
