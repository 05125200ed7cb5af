"""The border: argument checks, the exceptions they raise, and every sentence in which the library refuses something.

    MebanditError
    ├── InvalidInput (ValueError)    an argument breaks a rule
    ├── SingularMoments              the data cannot identify the parameters asked for
    ├── LogError                     a stored log or state cannot be read
    └── ClusterError                 a cluster cannot be reached, or its workers cannot do the work

A refusal is one sentence with three parts (what, rule, received) and, where there is one, a second with the remedy.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mebandit import kernels
from mebandit.kernels import limits
from mebandit.values import Booleans, Floats, Integers


class MebanditError(Exception):
    """Everything that this library raises on purpose."""


class InvalidInput(MebanditError, ValueError):
    """An argument breaks a rule; nothing was changed."""


class SingularMoments(MebanditError):
    """The data cannot identify the parameters."""


class LogError(MebanditError):
    """A stored file cannot be read, or does not hold what it should."""


class ClusterError(MebanditError):
    """A cluster cannot be reached, or its workers cannot do the work."""


def refuse(what: str, rule: str, received: object, remedy: str = "") -> NoReturn:
    """Raise InvalidInput: `what` must `rule`; got `received`. `remedy`"""
    raise InvalidInput(f"{what} must {rule}; got {received}." + (f" {remedy}" if remedy else ""))


def shown(value: Any) -> str:
    """A value as it may stand in a sentence: short, on one line."""
    text = " ".join(np.array2string(value, threshold=12).split()) if isinstance(value, np.ndarray) else repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= 120 else text[:117] + "..."


def regular(what: str, value: Any) -> Floats:
    """A C-contiguous float array of whatever shape, from what is a regular array of real numbers; their sizes are not looked at."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiub" or isinstance(value, np.ma.MaskedArray):
        refuse(what, "be a regular array of real numbers, none masked", shown(value))
    return np.ascontiguousarray(array, dtype=np.float64)


def shaped(what: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    """A float array of the given shape (None: any length); the sizes of its numbers are not looked at."""
    array = regular(what, value)
    if array.shape == shape:
        return array
    if array.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
        letters = iter("nkd" if shape == (None, None, None) else "ndkm")
        wanted = "(" + ", ".join(next(letters) if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
        refuse(what, f"have shape {wanted}", f"shape {array.shape}")
    return array


def floats(what: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    """A float array of the given shape (None: any length), every entry a number of usable size."""
    array = shaped(what, value, shape)
    bad = ~(np.abs(array) <= limits.LARGEST)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f" at {list(where)}" if where else ""
        refuse(what, f"be finite and at most {limits.LARGEST:g} in size", f"{array[where]}{place}")
    return array


def number(what: str, value: Any, rule: str = "be a number", low: float = -np.inf, high: float = np.inf) -> float:
    """A real number in [low, high]; `rule` says in words what it must be."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(what, rule, shown(value))
    size = float(value) if isinstance(value, np.floating) else value  # float32 does not reach to the limits, float not to every int
    if not -limits.LARGEST <= size <= limits.LARGEST or not low <= float(size) <= high:
        refuse(what, rule, shown(value))
    return float(size)


def path(what: str, value: Any) -> Path:
    """A path that the system can look for, whether there is anything or not."""
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
    if not isinstance(value, str) or value not in options:
        refuse(what, "be one of " + ", ".join(repr(o) for o in options), shown(value))
    return value


def square(what: str, value: Any, dim: int) -> Floats:
    """The (dim, dim) matrix that a number, a vector (a diagonal) or a matrix stands for, not yet found to be a covariance."""
    if isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(value, bool):
        return number(what, value, "be a number of usable size, a vector or a matrix") * np.eye(dim)
    array = regular(what, value)
    if array.ndim == 1 and array.size != dim:
        refuse(what, f"be one number, {dim} variances or a {dim} x {dim} matrix", f"{array.size} numbers")
    return np.diag(array) if array.ndim == 1 else shaped(what, array, (dim, dim))


def negligible_as_zero(covariances: Floats) -> Floats:
    """Covariances (..., d, d), without those of variables whose variance is below `limits.LEAST_VARIANCE`: they do not vary."""
    variance = np.diagonal(covariances, axis1=-2, axis2=-1)
    negligible = (variance > 0) & (variance < limits.LEAST_VARIANCE)
    if not negligible.any():
        return covariances
    return np.where(negligible[..., None, :] | negligible[..., :, None], 0.0, covariances)


def covariance(what: str, value: Any, dim: int) -> Floats:
    """A symmetric positive semidefinite (dim, dim) matrix; a number or a vector of length dim stands for a diagonal one. A variance of less
    than `limits.LEAST_VARIANCE` is taken as 0."""
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
    """A mask of the allowed actions from a mask or a list of action numbers; None allows all."""
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
    """The chosen action's probability by round, (T,), and what was allowed, (T, K) or (1, K), from (T,) or (T, K) probabilities."""
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
        remedy = "An action that was taken had a positive probability: log the one it was drawn with."
        refuse(what, f"be from {limits.LEAST:g} to 1 for the action taken", f"{taken[t]} at [{t}]", remedy)
    return taken, allowed if array.ndim == 2 else possible(taken, chosen, n_actions)


def stabilizer(vectors: Floats) -> Floats:
    """π^nd, (K,) or (T, K), each of whose probabilities can weigh a round."""
    if not (vectors >= limits.LEAST).all():
        bad = np.atleast_2d(vectors)[(np.atleast_2d(vectors) < limits.LEAST).any(axis=1)][0]
        refuse("stabilizer", f"be at least {limits.LEAST:g}", shown(bad), "It is a policy that may take every action.")
    return vectors


def reward(value: Any) -> float:
    """A reward as a number of usable size."""
    if isinstance(value, (bool, np.bool_)):
        return float(value)
    return number("reward", value, f"be a finite number of at most {limits.LARGEST:g} in size")


def possible(taken: Floats, chosen: Integers, n_actions: int) -> Booleans:
    """What may have been allowed, (T, K) or (1, K), where only the probability of the action taken is known: if that is 1, nothing else."""
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
