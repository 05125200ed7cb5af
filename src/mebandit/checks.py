"""Checks that many modules share, the exceptions that they raise, and the frame of every message: what, the rule, what was received.

    MebanditError
    ├── InvalidInput (ValueError)    an argument breaks a rule
    ├── SingularMoments              the data cannot identify the parameters asked for
    ├── LogError                     a stored file cannot be read or written
    └── ClusterError                 a cluster cannot be reached, or its workers cannot do the work

An error message is one sentence with three parts (what, rule, received) and, where there is one, a second with the remedy. The exception
keeps the parts (`Refusal`), so that the command line can name its options where Python names arguments.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mebandit import kernels
from mebandit.kernels import limits
from mebandit.values import Booleans, Floats, Integers


class Refusal(NamedTuple):
    """The parts of an error message."""

    what: str
    """the argument or thing that breaks the rule, such as "n_actions" """
    rule: str
    """how the sentence goes on after "must", such as "be at least 2" """
    received: str
    """what was given instead"""
    remedy: str = ""
    """a sentence that says what to do"""

    def __str__(self) -> str:
        return f"{self.what} must {self.rule}; got {self.received}." + (f" {self.remedy}" if self.remedy else "")


class MebanditError(Exception):
    """The base class of all errors that this library raises on purpose. Its argument is a `Refusal`, or a text."""


class InvalidInput(MebanditError, ValueError):
    """An argument breaks a rule; nothing was changed."""


class SingularMoments(MebanditError):
    """The data cannot identify the parameters."""


class LogError(MebanditError):
    """A stored file cannot be read or written, or does not hold what it should."""


class ClusterError(MebanditError):
    """A cluster cannot be reached, or its workers cannot do the work."""


def refuse(what: str, rule: str, received: object, remedy: str = "", *, error: type[MebanditError] = InvalidInput) -> NoReturn:
    """Raise an error that says: `what` must `rule`; got `received`. `remedy`

    Args:
        what: The argument or thing that breaks a rule. An argument by its name in Python, such as `"n_actions"`.
        rule: How the sentence goes on after "must".
        received: What was given instead; its text is shown.
        remedy: A whole sentence that says what to do; by default none.
        error: The class of the exception.
    """
    raise error(Refusal(what, rule, str(received), remedy))


def shown(value: Any) -> str:
    """A value as text for an error message: on one line, at most 120 characters."""
    text = " ".join(np.array2string(value, threshold=12).split()) if isinstance(value, np.ndarray) else repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= 120 else text[:117] + "..."


def regular(what: str, value: Any) -> Floats:
    """A C-contiguous float array of any shape. Refuses what is not a regular array of real numbers; NaN and infinities pass."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiub" or isinstance(value, np.ma.MaskedArray):
        refuse(what, "be a regular array of real numbers, none masked", shown(value))
    return np.ascontiguousarray(array, dtype=np.float64)


def shaped(what: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    """A float array of the given shape (None: any length). NaN and infinities pass."""
    array = regular(what, value)
    if array.shape == shape:
        return array
    if array.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
        letters = iter("nkd" if shape == (None, None, None) else "ndkm")
        wanted = "(" + ", ".join(next(letters) if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
        refuse(what, f"have shape {wanted}", f"shape {array.shape}")
    return array


def floats(what: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    """A float array of the given shape (None: any length). Every entry is finite and at most `limits.LARGEST` in size."""
    array = shaped(what, value, shape)
    bad = ~(np.abs(array) <= limits.LARGEST)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" at {list(where)}" if where else ""
        refuse(what, f"be finite and at most {limits.LARGEST:g} in size", f"{array[where]}{place}")
    return array


def filled(what: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """`floats` of the given shape; a single number stands for an array of it."""
    given = regular(what, value)
    return floats(what, np.full(shape, given) if np.ndim(value) == 0 else given, shape)


def number(what: str, value: Any, rule: str = "be a number", low: float = -np.inf, high: float = np.inf) -> float:
    """A real number in [low, high]; `rule` states the same range in words."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(what, rule, shown(value))
    size = float(value) if isinstance(value, np.floating) else value  # float32 does not reach to the limits, float not to every int
    if not -limits.LARGEST <= size <= limits.LARGEST or not low <= float(size) <= high:
        refuse(what, rule, shown(value))
    return float(size)


def path(what: str, value: Any) -> Path:
    """A path that the operating system accepts. The file need not exist."""
    if not isinstance(value, (str, os.PathLike)):
        refuse(what, "be a path", shown(value))
    try:
        os.stat(value)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a null character
        refuse(what, "be a path that can be followed", f"{shown(os.fspath(value))} ({getattr(error, 'strerror', None) or error})")
    return Path(value)


def truth(what: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        refuse(what, "be True or False", shown(value))
    return bool(value)


def integer(what: str, value: Any, low: int, high: int | None = None) -> int:
    """A whole number in [low, high]."""
    rule = f"be a whole number of at least {low}" if high is None else f"be a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        refuse(what, rule, shown(value))
    if value < low or (high is not None and value > high):
        refuse(what, rule, shown(value))
    return int(value)


def one_of(what: str, value: Any, options: Collection[str]) -> str:
    """One of some texts."""
    if not isinstance(value, str) or value not in options:
        refuse(what, "be one of " + ", ".join(repr(o) for o in options), shown(value))
    return value


def square(what: str, value: Any, dim: int) -> Floats:
    """A (dim, dim) matrix from a number (times I), a vector (the diagonal) or a matrix. Whether it is a covariance is not checked."""
    if isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(value, bool):
        return number(what, value, "be a number of usable size, a vector or a matrix") * np.eye(dim)
    array = regular(what, value)
    if array.ndim == 1 and array.size != dim:
        refuse(what, f"be one number, {dim} variances or a {dim} x {dim} matrix", f"{array.size} numbers")
    return np.diag(array) if array.ndim == 1 else shaped(what, array, (dim, dim))


def negligible_as_zero(covariances: Floats) -> Floats:
    """Covariances (..., d, d) in which variables with a variance below `limits.LEAST_VARIANCE` count as constant: their entries are 0."""
    variance = np.diagonal(covariances, axis1=-2, axis2=-1)
    negligible = (variance > 0) & (variance < limits.LEAST_VARIANCE)
    if not negligible.any():
        return covariances
    return np.where(negligible[..., None, :] | negligible[..., :, None], 0.0, covariances)


def covariance(what: str, value: Any, dim: int) -> Floats:
    """A symmetric positive semidefinite (dim, dim) matrix. A number or a vector of length dim stands for a diagonal one.

    A variance below `limits.LEAST_VARIANCE` counts as 0.
    """
    matrix = negligible_as_zero(floats(what, square(what, value, dim), (dim, dim)))
    if not kernels.is_covariance(matrix, np.empty(dim * (dim + 5) // 2)):
        scale = np.sqrt(np.outer(np.abs(np.diag(matrix)), np.abs(np.diag(matrix))))
        gap = np.abs(matrix - matrix.T)
        if (gap > 1e-9 * scale).any():
            refuse(what, "be symmetric", f"a matrix that differs from its transpose by {gap.max():.3g}")
        smallest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
        refuse(what, "be positive semidefinite", f"a matrix with the eigenvalue {smallest:.3g}")
    return matrix


def covariances(what: str, value: Any, dim: int, rounds: int) -> Floats:
    """One covariance for all rounds, (1, d, d), or one for each, (rounds, d, d)."""
    if regular(what, value).ndim < 3:
        return covariance(what, value, dim)[None]
    array = negligible_as_zero(floats(what, value, (rounds, dim, dim)))
    for t in range(rounds):
        if not kernels.is_covariance(array[t], np.empty(dim * (dim + 5) // 2)):
            covariance(f"{what}[{t}]", array[t], dim)
    return array


def allowed_actions(what: str, value: Any, n_actions: int) -> Booleans:
    """A mask of the allowed actions, (K,), from a mask or a list of action numbers. None allows all."""
    if value is None:
        return np.ones(n_actions, dtype=np.bool_)
    if type(value) is list and 0 < len(value) < n_actions and all(type(a) is int and 0 <= a < n_actions for a in value):
        mask = np.zeros(n_actions, dtype=np.bool_)
        mask[value] = True
        if np.count_nonzero(mask) == len(value):
            return mask
    rule = f"be a mask of {n_actions} booleans or a list of different actions from 0 to {n_actions - 1}, with at least one allowed"
    try:
        array = np.asarray(value if isinstance(value, np.ndarray) else list(value))
    except (TypeError, ValueError):
        refuse(what, rule, shown(value))
    if array.dtype == np.bool_ and array.shape == (n_actions,) and array.any():
        return array.copy()
    if n_actions == 2 and array.tolist() in ([0, 1], [1, 0]):
        remedy = "Give booleans for a mask, the numbers of the allowed actions for a list, nothing to allow all."
        refuse(what, "be either a mask or a list", f"{shown(value)}, which could be both", remedy)
    whole = array.ndim == 1 and array.size > 0 and np.issubdtype(array.dtype, np.integer)
    if not whole or array.min() < 0 or array.max() >= n_actions or np.unique(array).size != array.size:
        refuse(what, rule, shown(value))
    mask = np.zeros(n_actions, dtype=np.bool_)
    mask[array] = True
    return mask


def actions(what: str, value: Any, n_actions: int, rounds: int) -> Integers:
    """(rounds,) whole numbers from 0 to n_actions - 1."""
    try:
        array = np.asarray(value)
    except ValueError:
        refuse(what, "be whole numbers", shown(value))
    if array.shape != (rounds,):
        refuse(what, f"have shape ({rounds},)", f"shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        array = floats(what, value, (rounds,))
    bad = (array < 0) | (array >= n_actions) | (array != np.floor(array))
    if bad.any():
        t = int(np.argmax(bad))
        refuse(what, f"be whole numbers from 0 to {n_actions - 1}", f"{array[t]} at [{t}]", "Is n_actions right?")
    return array.astype(np.int64)


def propensities(what: str, value: Any, chosen: Integers, n_actions: int) -> tuple[Floats, Booleans]:
    """Logged probabilities, (T,) of the action taken or (T, K) of all actions.

    Returns the probability of the action taken, (T,), and a mask of the allowed actions, (T, K) or (1, K).
    """
    rounds = chosen.size
    array = floats(what, value, (rounds,) if regular(what, value).ndim < 2 else (rounds, n_actions))
    allowed = np.ones((1, n_actions), dtype=np.bool_)
    taken = array
    if array.ndim == 2:
        if (array < 0).any():
            t, a = (int(i) for i in np.argwhere(array < 0)[0])
            refuse(what, "be probabilities", f"{array[t, a]} at [{t}, {a}]")
        off = np.abs(array.sum(axis=1) - 1) > limits.ROUNDED
        if off.any():
            t = int(np.argmax(off))
            refuse(what, f"sum to 1 in each round, but for rounding of at most {limits.ROUNDED:g}", f"{array[t].sum():.6g} at [{t}]")
        taken = np.ascontiguousarray(array[np.arange(rounds), chosen])
        allowed = array > 0
    bad = ~((taken >= limits.LEAST) & (taken <= 1))
    if bad.any():
        t = int(np.argmax(bad))
        remedy = "Log the probability with which the action was drawn."
        refuse(what, f"be from {limits.LEAST:g} to 1 for the action taken", f"{taken[t]} at [{t}]", remedy)
    return taken, allowed if array.ndim == 2 else possible(taken, chosen, n_actions)


def stabilizer(vectors: Floats) -> Floats:
    """A stabilising policy π^nd, (K,) or (T, K): every probability is at least `limits.LEAST`."""
    if not (vectors >= limits.LEAST).all():
        bad = np.atleast_2d(vectors)[(np.atleast_2d(vectors) < limits.LEAST).any(axis=1)][0]
        refuse("stabilizer", f"be at least {limits.LEAST:g}", shown(bad), "The stabilizer is a policy that may take every action.")
    return vectors


def reward(value: Any) -> float:
    """A reward: a finite number; True and False count as 1 and 0."""
    if isinstance(value, (bool, np.bool_)):
        return float(value)
    return number("reward", value, f"be a finite number of at most {limits.LARGEST:g} in size")


def possible(taken: Floats, chosen: Integers, n_actions: int) -> Booleans:
    """The actions that may have been allowed, (T, K) or (1, K), where only the probability of the action taken is known.

    If that probability is 1, no other action was allowed.
    """
    if not (taken == 1).any():
        return np.ones((1, n_actions), dtype=np.bool_)
    return np.asarray((taken[:, None] < 1) | (chosen[:, None] == np.arange(n_actions)), dtype=np.bool_)


def probabilities(what: str, value: Any, allowed: Booleans, floor: float = 0.0) -> Floats:
    """A probability vector over the allowed actions that keeps the floor."""
    vector = floats(what, value, allowed.shape)
    if (vector < 0).any() or abs(vector.sum() - 1) > 1e-9 or vector[~allowed].any():
        refuse(what, "be non-negative, sum to 1 and be 0 for actions that are not allowed", shown(vector))
    if (vector[allowed] < floor - 1e-12).any():
        refuse(what, f"be at least the floor {floor:g} for every allowed action", shown(vector))
    return vector
