"""A policy's state as a tree of arrays and numbers: taken apart, put together, compared, written as plain data.

A state may be a NamedTuple, tuple, list or dict of such things, numpy arrays, numbers, text or None. Nothing is pickled.
"""

from typing import Any

import numpy as np

from mebandit import checks
from mebandit.values import State


def leaves(state: State) -> list[Any]:
    """The arrays and numbers of a state, in order."""
    if isinstance(state, dict):
        return [leaf for key in state for leaf in leaves(state[key])]
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in leaves(part)]
    return [state]


def rebuild(template: State, parts: list[Any]) -> State:
    """A state of the template's shape from leaves; takes them off the front of `parts`."""
    if isinstance(template, dict):
        return {key: rebuild(template[key], parts) for key in template}
    if isinstance(template, tuple):
        made = [rebuild(part, parts) for part in template]
        return type(template)(*made) if hasattr(template, "_fields") else tuple(made)
    if isinstance(template, list):
        return [rebuild(part, parts) for part in template]
    return parts.pop(0)


def copied(state: State) -> State:
    """A copy that shares no array with the original."""
    return rebuild(state, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves(state)])


def same(first: State, second: State) -> bool:
    """Equal in every bit (NaN equal to NaN)."""
    a, b = leaves(first), leaves(second)
    return len(a) == len(b) and all(type(x) is type(y) and np.array_equal(x, y, equal_nan=_real(x)) for x, y in zip(a, b, strict=True))


def _real(leaf: Any) -> bool:
    return isinstance(leaf, float) or (isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.floating))


def to_plain(state: State) -> Any:
    """A state as JSON can hold it, its structure included; floats keep every bit."""
    if isinstance(state, dict):
        if not all(isinstance(key, str) for key in state):
            checks.refuse("a state to be saved", "have texts as the keys of its dicts", checks.shown(list(state)))
        return {"dict": {key: to_plain(part) for key, part in state.items()}}
    if isinstance(state, (tuple, list)):
        return {type(state).__name__ if type(state) in (tuple, list) else "tuple": [to_plain(part) for part in state]}
    if isinstance(state, np.ndarray) and state.dtype.kind in "fiub":
        values = state.ravel().tolist()
        plain = values if state.dtype.kind != "f" or np.isfinite(state).all() else [repr(value) for value in values]  # JSON has no NaN
        return {"array": plain, "dtype": str(state.dtype), "shape": list(state.shape)}
    if isinstance(state, np.generic):
        state = state.item()
    if isinstance(state, float) and not np.isfinite(state):
        return {"float": repr(state)}
    if not (state is None or isinstance(state, (bool, int, float, str))):
        checks.refuse("a state to be saved", "be made of numeric arrays, numbers, text and None", type(state).__name__)
    return state


def from_plain(plain: Any, template: State) -> State:
    """The state that `to_plain` wrote; NamedTuples take their class from the same place of the template."""
    if not isinstance(plain, dict):
        return plain
    try:
        if "dict" in plain:
            inner = template if isinstance(template, dict) else {}
            return {key: from_plain(part, inner.get(key)) for key, part in plain["dict"].items()}
        if "list" in plain or "tuple" in plain:
            parts = plain["list"] if "list" in plain else plain["tuple"]
            likes = list(template) if isinstance(template, (tuple, list)) and len(template) == len(parts) else [None] * len(parts)
            made = [from_plain(part, like) for part, like in zip(parts, likes, strict=True)]
            if "list" in plain:
                return made
            return type(template)(*made) if hasattr(template, "_fields") else tuple(made)
        if "array" in plain:
            return np.array(plain["array"], dtype=plain["dtype"]).reshape(plain["shape"])
        return float(plain["float"])
    except (TypeError, KeyError, ValueError) as error:
        raise checks.LogError(f"state must be as it was saved; got {checks.shown(plain)} ({error}).") from error


def alike(first: State, second: State) -> bool:
    """Whether two states have the same structure, with arrays of the same shapes and types."""
    a, b = leaves(first), leaves(second)
    same_shape = len(a) == len(b) and all(np.shape(x) == np.shape(y) and type(x) is type(y) for x, y in zip(a, b, strict=True))
    return type(first) is type(second) and same_shape
