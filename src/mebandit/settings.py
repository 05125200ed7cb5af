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
    """A configuration as {"type": class name, field: value, ...}, fields at their default left out."""
    if is_dataclass(value) and CONFIGURATIONS.get(type(value).__name__) is type(value):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {f.name for f in fields(value) if f.default is MISSING or given[f.name] != f.default}
        return {"type": type(value).__name__} | {name: to_plain(given[name]) for name in given if name in changed}
    if isinstance(value, (tuple, list)):
        return [to_plain(part) for part in value]
    if not (value is None or isinstance(value, (bool, int, float, str))):
        remedy = "For a policy or schedule of your own, give the policy again when loading."
        checks.refuse("a configuration to be saved", "be made of the library's schedules, numbers and text", repr(value), remedy)
    return value


def describe_policy(policy: Any) -> dict[str, Any]:
    """What a file says of the policy it belongs to: all of it, or for a class of your own (or with a schedule of your own) its name."""
    try:
        return dict(to_plain(policy))
    except checks.InvalidInput:
        return {"own": type(policy).__qualname__}


def policy_from(description: Any, given: Any, file: object) -> Any:
    """The policy that a file belongs to: the one given, if it is that, or the one described."""
    own = not isinstance(description, dict) or "own" in description
    if given is None:
        if own:
            raise checks.LogError(f"{file} must be read with its policy; got none for {description}. Give policy=...")
        return from_plain(description)
    if describe_policy(given) != description:
        raise checks.LogError(f"{file} must be read with the policy it was written with, {description}; got {given!r}.")
    return given


def from_plain(data: Any) -> Any:
    """The configuration that `to_plain` wrote; its constructor checks every field."""
    if isinstance(data, dict):
        name = data.get("type")
        if name not in CONFIGURATIONS:
            raise checks.LogError(f"type must be one of {', '.join(CONFIGURATIONS)}; got {name!r}.")
        try:
            return CONFIGURATIONS[name](**{key: from_plain(value) for key, value in data.items() if key != "type"})
        except TypeError as error:
            raise checks.LogError(f"{name} must be given its own fields; got {sorted(set(data) - {'type'})} ({error}).") from error
    return tuple(from_plain(part) for part in data) if isinstance(data, list) else data
