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


def to_plain(state: State) -> list[Any]:
    """The leaves as JSON can hold them; floats keep every bit."""
    return [_leaf_to_plain(leaf) for leaf in leaves(state)]


def _leaf_to_plain(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub":
        values = leaf.ravel().tolist()
        plain = values if leaf.dtype.kind != "f" or np.isfinite(leaf).all() else [repr(value) for value in values]  # JSON has no NaN
        return {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "values": plain}
    if isinstance(leaf, np.generic):
        leaf = leaf.item()
    if isinstance(leaf, float) and not np.isfinite(leaf):
        return {"float": repr(leaf)}
    if not (leaf is None or isinstance(leaf, (bool, int, float, str))):
        checks.refuse("a state to be saved", "be made of numeric arrays, numbers, text and None", type(leaf).__name__)
    return leaf


def from_plain(template: State, plain: list[Any]) -> State:
    """The state from `to_plain`, checked against the template: as many leaves, the same shapes, no NaN where there was none."""
    wanted = leaves(template)
    if not isinstance(plain, list) or len(plain) != len(wanted):
        raise checks.LogError(f"state must have {len(wanted)} parts; got {len(plain) if isinstance(plain, list) else plain!r}.")
    return rebuild(template, [_leaf_from_plain(i, like, leaf) for i, (like, leaf) in enumerate(zip(wanted, plain, strict=True))])


def _leaf_from_plain(i: int, like: Any, leaf: Any) -> Any:
    if not isinstance(like, np.ndarray):
        return float(leaf["float"]) if isinstance(leaf, dict) else leaf
    try:
        array = np.array(leaf["values"], dtype=leaf["dtype"]).reshape(leaf["shape"])
    except (TypeError, KeyError, ValueError) as error:
        raise checks.LogError(f"state part {i} must be an array; got one that cannot be read ({error}).") from error
    if array.shape != like.shape:
        raise checks.LogError(f"state part {i} must have shape {like.shape}; got {array.shape}. Is it another policy's?")
    return array
