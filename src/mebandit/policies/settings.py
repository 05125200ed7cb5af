"""Configurations as plain data: what a policy's constructor was given, as a dict that JSON and TOML can hold, and back.

A `LinearPolicy` is written with a version. Version 2 nests estimator, context and rule:

    {"type": "LinearPolicy", "version": 2, "n_actions": 2, "dim": 5, "estimator": {"type": "MEB", ...}, "rule": {"type": "Greedy"}, ...}

Version 1, that of mebandit 0.1.0, was flat and had no version: "method" and "rule" were names, and their options lay beside each other.
Options at their default were left out there; version 2 writes all of them, so that a file means the same when a default changes.
"""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from mebandit import checks, schedules
from mebandit.policies.contexts import BestLinear
from mebandit.policies.estimators import MEB, Calibrated, Estimator, LeastSquares, Naive
from mebandit.policies.linear import LinearPolicy
from mebandit.policies.recipes import CONTEXTS
from mebandit.policies.rules import UCB, BayesOracle, Greedy, Oracle, Robust, Rule, Thompson, Uniform

VERSION = 2

ESTIMATORS: dict[str, type[Estimator]] = {made.method: made for made in (LeastSquares, Naive, MEB, Calibrated)}
"""by name"""

GONE = "dr", "rc", "auto"
"""the methods of `meb_dr` in version 1, whose decisions no estimator makes any more"""

RULES: dict[str, type[Rule]] = {
    "greedy": Greedy,
    "ucb": UCB,
    "thompson": Thompson,
    "robust": Robust,
    "oracle": Oracle,
    "bayes_oracle": BayesOracle,
    "uniform": Uniform,
}
"""by their names in version 1"""

CONFIGURATIONS: dict[str, type] = {
    made.__name__: made
    for made in (
        LinearPolicy,
        BestLinear,
        *ESTIMATORS.values(),
        *RULES.values(),
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


FLAT_OPTIONS = {f.name for made in (*ESTIMATORS.values(), *RULES.values()) for f in fields(made)}  # type: ignore[arg-type]
"""what stood beside each other in version 1 and is now the option of an estimator or a rule"""


def to_plain(value: Any) -> Any:
    """A configuration as {"type": class name, field: value, ...}; of a function or class of your own only the name."""
    if is_dataclass(value) and CONFIGURATIONS.get(type(value).__name__) is type(value):
        version = {"version": VERSION} if isinstance(value, LinearPolicy) else {}
        return {"type": type(value).__name__} | version | {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
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
    if isinstance(description, dict) and description.get("type") == LinearPolicy.__name__:
        version = description.get("version", 1)
        if version not in (1, VERSION):
            remedy = "Read it with the version of mebandit that wrote it."
            raise checks.LogError(f"{file} must describe its policy in version 1 or {VERSION}; got version {version!r}. {remedy}")
        description = _completed(_nested(description) if version == 1 else description)
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
        options = {key: from_plain(value) for key, value in data.items() if key not in ("type", "version")}
        try:
            return CONFIGURATIONS[name](**options)
        except TypeError as error:
            raise checks.LogError(f"{name} must be given its own fields; got {sorted(options)} ({error}).") from error
    return tuple(from_plain(part) for part in data) if isinstance(data, list) else data


def _completed(plain: Any) -> Any:
    """A description with the default of every field that it leaves out."""
    if isinstance(plain, dict):
        made = CONFIGURATIONS.get(plain["type"]) if isinstance(plain.get("type"), str) else None
        usual = {} if made is None else {f.name: to_plain(f.default) for f in fields(made) if f.default is not MISSING}
        return {name: _completed(part) for name, part in (usual | plain).items()}
    return [_completed(part) for part in plain] if isinstance(plain, list) else plain


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """The description in version 2 of a policy described in version 1. Options that its method or rule never read are dropped."""
    kept = {"ridge": 1.0, "context": "predicted"} | flat
    if kept.get("method") in GONE:
        remedy = "Go on with mebandit 0.1.0, or begin anew and learn from its log by `mebandit.replay`."
        raise checks.LogError(f"policy must be one that this version has; got meb_dr of mebandit 0.1.0, which decided otherwise. {remedy}")
    estimator, rule = _named("method", kept.pop("method", None), ESTIMATORS), _named("rule", kept.pop("rule", None), RULES)
    seen = {name: kept.pop(name) for name in ("memory", "curved", "weights") if name in kept}
    mean = CONTEXTS.get(str(kept["context"]), kept["context"])
    kept["context"] = {"type": "BestLinear", "mean": mean} | seen if mean else None
    if "known_theta" in kept:
        kept["theta"] = kept.pop("known_theta")
    options = {name: kept.pop(name) for name in FLAT_OPTIONS if name in kept}
    return kept | {"version": VERSION, "estimator": _options_of(estimator, options), "rule": _options_of(rule, options)}


def _named(what: str, name: Any, known: dict[str, Any]) -> Any:
    if not isinstance(name, str) or name not in known:
        raise checks.LogError(f"{what} must be one of {', '.join(known)}; got {name!r}.")
    return known[name]


def _options_of(made: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {"type": made.__name__} | {f.name: options[f.name] for f in fields(made) if f.name in options}
