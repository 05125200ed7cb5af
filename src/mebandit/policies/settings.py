"""Configurations as plain data: what a policy's constructor was given, as a dict that JSON and TOML can hold, and back."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from mebandit import checks, schedules
from mebandit.policies import LinearPolicy

CONFIGURATIONS: dict[str, type] = {
    made.__name__: made
    for made in (
        LinearPolicy,
        schedules.At,
        schedules.Every,
        schedules.EveryRound,
        schedules.Power,
        schedules.PowersOf,
        schedules.Smallest,
        schedules.Steps,
        schedules.Until,
    )
}
"""the classes that can be written out, by name"""


def to_plain(value: Any) -> Any:
    """A configuration as {"type": class name, field: value, ...}, fields at their default left out; a function of your own by name."""
    if is_dataclass(value) and CONFIGURATIONS.get(type(value).__name__) is type(value):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {f.name for f in fields(value) if f.default is MISSING or given[f.name] != f.default}
        return {"type": type(value).__name__} | {name: to_plain(given[name]) for name in given if name in changed}
    if isinstance(value, (tuple, list)):
        return [to_plain(part) for part in value]
    if callable(value):
        return {"own": getattr(value, "__qualname__", type(value).__qualname__)}
    if not (value is None or isinstance(value, (bool, int, float, str))):
        return {"own": type(value).__qualname__}
    return value


def has_own(description: Any) -> bool:
    """Whether a description holds something of the user's own, of which only the name is known."""
    if isinstance(description, dict):
        return "own" in description or any(has_own(part) for part in description.values())
    return isinstance(description, list) and any(has_own(part) for part in description)


def policy_from(description: Any, given: Any, file: object) -> Any:
    """The policy that a file belongs to: the one given, if it is that, or the one described."""
    if given is None:
        if not isinstance(description, dict) or has_own(description):
            raise checks.LogError(f"{file} must be read with its policy; got none for {description}. Give policy=...")
        return from_plain(description)
    if to_plain(given) != description:
        raise checks.LogError(f"{file} must be read with the policy it was written with, {description}; got {given!r}.")
    return given


def from_plain(data: Any) -> Any:
    """The configuration that `to_plain` wrote; its constructor checks every field."""
    if isinstance(data, dict):
        name = data.get("type")
        if not isinstance(name, str) or name not in CONFIGURATIONS:
            raise checks.LogError(f"type must be one of {', '.join(CONFIGURATIONS)}; got {name!r}.")
        try:
            return CONFIGURATIONS[name](**{key: from_plain(value) for key, value in data.items() if key != "type"})
        except TypeError as error:
            raise checks.LogError(f"{name} must be given its own fields; got {sorted(set(data) - {'type'})} ({error}).") from error
    return tuple(from_plain(part) for part in data) if isinstance(data, list) else data
