"""A million hostile calls: of every public function that takes arrays, files or states, with arguments that are mostly wrong.

    python scripts/fuzz.py [--calls 1000000] [--seed 1] [--only learner] [--first 0] [--unchecked]
    python scripts/fuzz.py --seed 1 --first 4321 --calls 1      # once more what was wrong in scene 4321

Calls come in scenes, of some ten calls each: a learner's short life, the methods of a policy, a file that is spoilt and read. The library
is compiled with bounds checks, into a cache that is thrown away, and called in a child process: if that dies, its scene is named and the
next one goes on. What must hold: a call returns or raises an exception of this library; a state, and an estimate, holds
finite numbers (standard errors apart, where they are documented to be NaN); what was refused has changed nothing. What does not hold is
listed at the end, once for each place in the code, with the number of a scene that shows it. A scene is a function of the seed and its
number alone. `--unchecked` takes the ordinary compiled code, which is there at once.
"""

import argparse
import contextlib
import io
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
Hostile = Callable[[Rng, Path], None]

NUMBERS = [0.0, 1.0, -1.0, 0.3, 1e-320, -1e-320, 1e-160, 1e-100, 1e-50, -1e-50, 1e-12, 1e25, 1e50, -1e50]
"""that may be used, each on its own"""
NO_NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e51, -1e308]
THINGS = [
    None, True, "x", "", b"x", [], {}, (), [[1.0], [1.0, 2.0]], 1j, 10**400, -1, 0, 2**63, 1e308, float("nan"), np.float32(1), object(),
    np.array(["a"]), np.array(None), np.zeros((0, 0)), np.zeros((2, 2, 2, 2)), np.datetime64("2020-01-01"),
    np.ma.array([1.0, 2.0], mask=[True, False]), {"a": 1},
]  # fmt: skip


made = [0]
"""how many public functions were called"""


class Unkept(Exception):
    """A promise that was not kept."""


# ---- hostile arguments ------------------------------------------------------------------------------------------------------


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def extreme(rng: Rng, *shape: int) -> Any:
    """Usable numbers of all sizes; of few sizes in one array, so that they meet in products."""
    some = np.array([pick(rng, NUMBERS) for _ in range(int(rng.integers(1, 4)))])
    if rng.random() < 0.4:
        return rng.normal(size=shape)
    return np.clip(rng.choice(some, size=shape) * (rng.normal(size=shape) if rng.random() < 0.5 else 1.0), -1e50, 1e50)


def spoilt(rng: Rng, value: Any) -> Any:
    """Something like a value, and wrong."""
    kind = int(rng.integers(10))
    if kind < 2:
        return pick(rng, THINGS)
    array = np.array(value, dtype=float)
    if kind == 2 and array.size:
        array.flat[int(rng.integers(array.size))] = pick(rng, NO_NUMBERS)
    elif kind == 3:
        return array.astype(pick(rng, ["float32", "int64", "object", "complex", "U8", ">f8", "bool", "i1"]))
    elif kind == 4:
        return np.resize(array, tuple(int(n) for n in rng.integers(0, 4, size=int(rng.integers(0, 4)))))
    elif kind == 5 and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2] if rng.random() < 0.5 else array[::-1]
    elif kind == 6:
        return np.broadcast_to(np.float64(pick(rng, NUMBERS)), array.shape)
    elif kind == 7:
        array.setflags(write=False)
    elif kind == 8:
        return np.asfortranarray(array)
    elif array.size:
        array.flat[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    return array


def perhaps(rng: Rng, value: Any, share: float = 0.1) -> Any:
    """A value, now and then spoilt."""
    if rng.random() >= share:
        return value
    try:
        return spoilt(rng, value)
    except (TypeError, ValueError):
        return pick(rng, THINGS)


def with_spoilt(rng: Rng, given: dict[str, Any], share: float = 0.5) -> dict[str, Any]:
    """Arguments, of which perhaps one is spoilt."""
    if given and rng.random() < share:
        name = pick(rng, sorted(given))
        given[name] = perhaps(rng, given[name], 1.0)
    return given


def covariance(rng: Rng, d: int) -> Any:
    kind = int(rng.integers(4))
    if kind == 0:
        return np.abs(extreme(rng, d))
    factor = extreme(rng, d, d) if kind == 1 else rng.normal(size=(d, d))
    with np.errstate(all="ignore"):
        return abs(float(extreme(rng))) if kind == 3 else factor @ factor.T


def mangled(rng: Rng, plain: Any) -> Any:
    """JSON-like data with one part replaced."""
    if isinstance(plain, dict) and plain and rng.random() < 0.9:
        key = pick(rng, sorted(plain))
        return {k: v for k, v in plain.items() if k != key} if rng.random() < 0.1 else plain | {key: mangled(rng, plain[key])}
    if isinstance(plain, list) and plain and rng.random() < 0.9:
        i = int(rng.integers(len(plain)))
        return plain[:i] + plain[i + 1 :] if rng.random() < 0.05 else [*plain[:i], mangled(rng, plain[i]), *plain[i + 1 :]]
    return pick(rng, [0, -1, 1, 2, 1e9, 1e290, -1e290, 1e-320, 0.5, 10**30, None, "x", [], {}, True, [1], "float32", 10**10])


# ---- what must hold ---------------------------------------------------------------------------------------------------------


def keep(kept: Any, promise: str) -> None:
    if not kept:
        raise Unkept(promise)


def finite(*arrays: Any) -> bool:
    return all(bool(np.isfinite(np.asarray(array, dtype=float)).all()) for array in arrays)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """A call whose refusal is what we want."""
    from mebandit import MebanditError

    made[0] += 1
    with contextlib.suppress(MebanditError):
        yield


def is_decision(pi: Any) -> bool:
    return finite(pi) and bool((np.asarray(pi) >= 0).all()) and abs(float(np.sum(pi)) - 1) < 1e-6


# ---- the scenes -------------------------------------------------------------------------------------------------------------


def policy(rng: Rng) -> Any:
    """A linear policy of any kind, with settings at the ends of what is allowed."""
    import mebandit as mb

    k, d = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    o: dict[str, Any] = {
        "floor": pick(rng, [1e-320, 1e-12, 0.01, 0.2, 1 / k]),
        "intercept": bool(rng.integers(2)),
        "ridge": pick(rng, [0.0, 1e-320, 1e-12, 0.1, 1.0, 1e50]),
        "refit": pick(rng, [1, 3, mb.schedules.PowersOf(2)]),
        "warmup": pick(rng, [0, 3]),
    }
    unsure = o | {"ridge": max(o["ridge"], 1e-12), "width": pick(rng, [0.0, 1.0, 1e50])}
    guarded = o | {"guard": pick(rng, ["auto", "always", "never"])}
    seeing = guarded | {"discount": pick(rng, [0.5, 0.9, 1.0]), "memory": pick(rng, [2.0, 20.0, 1e50]), "curved": bool(rng.integers(2))}
    blp = {"context": pick(rng, ["blp", "ew_blp", "auto"])}
    makers: list[Callable[[], Any]] = [
        lambda: mb.meb(k, d, **guarded),
        lambda: mb.meb(k, d, stabilizer=tuple(np.abs(extreme(rng, k)) + 1e-12), correct_from=pick(rng, [1, 4, 10**30]), **guarded),
        lambda: mb.meb(k, d, weights="precision", **blp, **seeing),
        lambda: mb.meb_naive(k, d, **guarded),
        lambda: mb.greedy(k, d, **o),
        lambda: mb.lin_ucb(k, d, **unsure),
        lambda: mb.thompson(k, d, **unsure),
        lambda: mb.robust_ucb(k, d, horizon=pick(rng, [1, 9, 100]), **unsure),
        lambda: mb.meb_dr(k, d, method=pick(rng, ["auto", "dr", "rc"]), **blp, **seeing),
        lambda: mb.meb_dr(k, d, method="dr", context="predicted", **guarded),
        lambda: mb.oracle(k, d, theta=extreme(rng, k, d)),
    ]
    return pick(rng, makers)()


def learner(rng: Rng, folder: Path) -> None:
    """A short life of a learner."""
    import mebandit as mb
    from mebandit.policies import states

    with refusals():
        live = mb.Learner(policy(rng), seed=int(rng.integers(100)))
        k, d = live.policy.n_actions, live.policy.dim
        sizes = np.array([pick(rng, NUMBERS) for _ in range(int(rng.integers(1, 4)))])
        for _ in range(pick(rng, [3, 8, 40])):
            before, known = live.state, (live.decided, live.learned, live.pending)
            made[0] += 2
            try:
                x = np.clip(rng.choice(sizes, d) * rng.normal(size=d), -1e50, 1e50)
                decision = live.decide(
                    perhaps(rng, x),
                    perhaps(rng, covariance(rng, d)),
                    allowed=perhaps(rng, rng.random(k) < 0.7, 0.2) if rng.random() < 0.3 else None,
                )
                keep(is_decision(decision.propensities), "propensities are a distribution")
                known = live.decided, live.learned, live.pending
                which: Any = pick(rng, live.pending) if rng.random() < 0.8 else pick(rng, [decision, *THINGS])
                if rng.random() < 0.1:
                    live.forget(which)
                else:
                    live.learn(which, perhaps(rng, float(np.clip(pick(rng, sizes) * rng.normal(), -1e50, 1e50))))
                keep(finite(*live.state), "a state is finite")
            except mb.MebanditError:
                keep(states.same(live.state, before), "a refusal leaves the state as it was")
                keep((live.decided, live.learned, live.pending) == known, "a refusal leaves the counts as they were")
        keep(finite(live.theta), "theta is finite")
        other = mb.Learner(live.policy, seed=1)
        other.learn(other.decide(rng.normal(size=d), 0.1), 1.0)
        keep(finite(*live.merge(other).state), "a merged state is finite")
        live.save(folder / "state.json")
        keep(states.same(mb.Learner.load(folder / "state.json").state, live.state), "a state is loaded as it was saved")
        keep(finite(live.estimate().theta), "an estimate is finite")


def history(rng: Rng, made: Any, rounds: int) -> Any:
    """A state of a policy after some ordinary rounds."""
    import mebandit as mb

    live = mb.Learner(made, seed=int(rng.integers(9)))
    for _ in range(rounds):
        live.learn(live.decide(rng.normal(size=made.dim), 0.2), float(rng.normal()))
    return live


def spoilt_state(rng: Rng, state: Any) -> Any:
    from mebandit.values import LinearState

    kind = int(rng.integers(6))
    if kind == 0:
        return pick(rng, [*THINGS, tuple(state), list(state)])
    if kind < 3:
        i = int(rng.integers(3))
        return LinearState(*(perhaps(rng, part, 1.0) if i == j else part for j, part in enumerate(state)))
    parts = [part.copy() for part in state]
    for _ in range(int(rng.integers(1, 4))):
        part = parts[int(rng.integers(3))]
        part.flat[int(rng.integers(part.size))] = pick(rng, [*NUMBERS, 1e9, -3.0, 0.5, 1e290, -1e290, 1e300])
    return LinearState(*parts)


def methods(rng: Rng, folder: Path) -> None:
    """The methods of a policy, given states, observations and rounds that are not its own."""
    import mebandit as mb
    from mebandit.policies import states
    from mebandit.values import Observation, Round

    with refusals():
        made = policy(rng)
        k, d = made.n_actions, made.dim
        good = history(rng, made, pick(rng, [0, 2, 12])).state
        for _ in range(8):
            with refusals():
                state = good if rng.random() < 0.5 else spoilt_state(rng, good)
                seen = Observation(
                    perhaps(rng, extreme(rng, d)),
                    perhaps(rng, covariance(rng, d) * np.eye(d)),
                    perhaps(rng, rng.random(k) < 0.9),
                    pick(rng, [1, 5, 10**6, *THINGS]) if rng.random() < 0.2 else 1,
                    pick(rng, [0.0, 1.0, -1.0, 2.0, None]) if rng.random() < 0.2 else 0.5,
                )
                action = pick(rng, [-1, k, 10**9, -(10**9), None, 0.5, True]) if rng.random() < 0.2 else int(rng.integers(k))
                pi = perhaps(rng, np.full(k, 1 / k))
                round: Any = Round(perhaps_thing(rng, seen), action, pi, pick(rng, [*NUMBERS, *THINGS]))
                before = states.copied(state) if isinstance(state, tuple) else state
                call = pick(rng, ["propensities", "update", "advance", "merge", "theta", "moments", "refit_now", "plan", "replay"])
                try:
                    if call == "propensities":
                        keep(is_decision(made.propensities(state, perhaps_thing(rng, seen))), "propensities are a distribution")
                    elif call == "update":
                        keep(finite(*made.update(state, perhaps_thing(rng, round))), "a state is finite")
                    elif call == "advance":
                        own = states.copied(state)
                        try:
                            keep(finite(*made.advance(own, perhaps_thing(rng, round))), "a state is finite")
                        except mb.MebanditError:
                            keep(unchanged(own, before), "a refusal leaves the state as it was")
                            raise
                    elif call == "merge":
                        keep(finite(*made.merge(state, good)), "a merged state is finite")
                    elif call == "theta":
                        keep(finite(made.theta(state)), "theta is finite")
                    elif call == "moments":
                        low_level(rng, made.moments(state))
                    elif call == "refit_now":
                        own = states.copied(state)
                        made.refit_now(own)
                        keep(finite(*own), "a state is finite")
                    elif call == "plan":
                        made.plan(perhaps(rng, np.arange(1, 5), 0.7))
                    else:
                        keep(finite(*mb.replay(made, pick(rng, [[round], [round, round], *THINGS]))), "a state is finite")
                finally:
                    if call not in ("advance", "refit_now"):
                        keep(unchanged(state, before), "only `advance` and `refit_now` change the state that they are given")


def perhaps_thing(rng: Rng, value: Any) -> Any:
    return pick(rng, THINGS) if rng.random() < 0.03 else value


def unchanged(first: Any, second: Any) -> bool:
    from mebandit.policies import states

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = states.leaves(first), states.leaves(second)
    return all(x.tobytes() == y.tobytes() if isinstance(x, np.ndarray) else repr(x) == repr(y) for x, y in zip(a, b, strict=True))


def low_level(rng: Rng, moments: Any) -> None:
    """Running sums that are solved directly."""
    from mebandit.estimation import estimators

    sums = moments.sums if rng.random() < 0.5 else perhaps(rng, moments.sums, 1.0)
    sizes: Any = (moments.n_actions, moments.n_features)
    if rng.random() < 0.3:
        sizes = tuple(int(n) for n in rng.integers(-1, 6, size=2))
    found = estimators.solve(type(moments)(sums, *sizes), correction=int(rng.integers(3)), ridge=pick(rng, [0.0, 1e-12, 1.0]), strict=True)
    keep(finite(found.theta), "a solution is finite")


def state_file(rng: Rng, folder: Path) -> None:
    """State files with a right checksum and wrong contents."""
    import mebandit as mb
    from mebandit.runtime.files import seal

    path = folder / "state.json"
    with refusals():
        live = history(rng, policy(rng), 5)
        live.decide(rng.normal(size=live.policy.dim), 0.1)
        live.save(path)
        body = json.loads(path.read_text())
        del body["sha256"]
        for _ in range(6):
            wrong = mangled(rng, body) if rng.random() < 0.4 else body | {"state": mangled(rng, body["state"])}
            path.write_text(seal(wrong if isinstance(wrong, dict) else {"body": wrong}) + "\n")
            with refusals():
                found = mb.Learner.load(path)
                for _ in range(4):
                    made[0] += 2
                    decision = found.decide(rng.normal(size=found.policy.dim), 0.1)
                    keep(is_decision(decision.propensities), "propensities are a distribution")
                    found.learn(decision, float(rng.normal()))
                keep(finite(*found.state), "a state is finite")


def journal(rng: Rng, folder: Path) -> None:
    """Journals without checksums, as older versions wrote them, with wrong lines; and bytes that are changed."""
    import mebandit as mb

    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    with refusals():
        with mb.Learner(policy(rng), seed=3, journal=path) as live:
            for _ in range(4):
                decision = live.decide(rng.normal(size=live.policy.dim), 0.1)
                if rng.random() < 0.8:
                    live.learn(decision, float(rng.normal()))
        lines = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in path.read_text().splitlines()]
        lines[0]["version"] = 1
        for _ in range(3):
            if rng.random() < 0.7:
                i = int(rng.integers(len(lines)))
                path.write_text("".join(json.dumps(mangled(rng, line) if i == j else line) + "\n" for j, line in enumerate(lines)))
            else:
                content = bytearray(path.read_bytes())
                content[int(rng.integers(len(content)))] = int(rng.integers(256))
                path.write_bytes(bytes(content))
            with refusals():
                mb.check_journal(path)
            with refusals():
                (folder / "repaired.jsonl").unlink(missing_ok=True)
                mb.repair_journal(path, folder / "repaired.jsonl")
            with refusals():
                keep(finite(mb.read_journal(path).rewards), "a log is finite")
            with refusals(), mb.Learner.recover(path, verify=bool(rng.integers(2))) as found:
                keep(finite(*found.state), "a state is finite")


def log_of(rng: Rng) -> tuple[dict[str, Any], int, int]:
    """The arrays of a log, usable but for their sizes."""
    k, d, n = int(rng.integers(2, 4)), int(rng.integers(1, 4)), int(rng.choice([0, 1, 2, 5, 30, 60]))
    actions = rng.integers(k, size=n)
    pi = np.abs(rng.random((n, k))) + 0.05
    pi /= pi.sum(axis=1, keepdims=True)
    x = extreme(rng, n, d)
    if d > 1 and rng.random() < 0.2:
        x[:, 1] = x[:, 0]
    taken = pi[np.arange(n), actions]
    if n and rng.random() < 0.2:
        taken[0] = pick(rng, [1e-320, 1e-12, 1e-13, 1.0, 0.0])
    error = covariance(rng, d) if rng.random() < 0.6 else np.array([covariance(rng, d) * np.eye(d) for _ in range(n)]).reshape(n, d, d)
    log = {"predicted": x, "actions": actions, "rewards": extreme(rng, n), "propensities": pick(rng, [taken, pi]), "error_cov": error}
    return log, k, d


def estimating(rng: Rng, folder: Path) -> None:
    """`estimate`, and the methods of what it gives."""
    import mebandit as mb

    log, k, _ = log_of(rng)
    n = len(log["rewards"])
    given = log | {
        "n_actions": k,
        "method": pick(rng, ["ridge", "naive", "meb", "dr", "rc"]),
        "ridge": pick(rng, [0.0, 0.0, 1e-320, 1.0, 1e50]),
        "intercept": bool(rng.integers(2)),
        "guard": pick(rng, ["auto", "always", "never"]),
        "stabilizer": pick(rng, [None, None, np.abs(extreme(rng, k)), np.abs(extreme(rng, n, k))]),
        "allowed": pick(rng, [None, None, rng.random((n, k)) < 0.9]),
        "unit": pick(rng, [None, None, rng.integers(3, size=n)]),
    }
    with refusals():
        found = mb.estimate(**with_spoilt(rng, given))
        keep(finite(found.theta, found.intercept, found.covariance), "an estimate is finite")
        keep(finite(*found.diagnostics.values()), "diagnostics are finite")
        found.interval(pick(rng, [0.95, *NUMBERS, *THINGS]))
        found.contrast(pick(rng, [0, 1, -1, k, *THINGS]), 1).interval()


def moments_in_general(rng: Rng, folder: Path) -> None:
    """`estimate_moments` and `best_linear_predictor`."""
    import mebandit as mb
    from mebandit.estimation import best_linear as denoise

    log, k, _ = log_of(rng)
    given = {"context": log["predicted"], "actions": log["actions"], "outcome": log["rewards"], "propensities": log["propensities"]}
    given |= {"action": int(rng.integers(-1, k + 1)), "n_actions": k}
    with refusals():
        mb.estimate_moments([lambda x, y: y, lambda x, y: x[:, 0]], lambda *means: means, **with_spoilt(rng, given))
    with refusals():
        seen = denoise.best_linear_predictor(*with_spoilt(rng, {"a": log["predicted"], "b": log["error_cov"]}).values())
        keep(finite(seen), "a prediction is finite")


def columns_of(rng: Rng) -> tuple[dict[str, Any], dict[str, Any], int]:
    """A log by columns, and how to read it."""
    log, k, d = log_of(rng)
    n = len(log["rewards"])
    table: dict[str, Any] = {f"predicted_{i}": log["predicted"][:, i] for i in range(d)}
    table |= {"action": log["actions"], "reward": log["rewards"]}
    pi = np.asarray(log["propensities"])
    table |= {"propensity": pi} if pi.ndim == 1 else {f"propensity_{a}": pi[:, a] for a in range(k)}
    options: dict[str, Any] = {"n_actions": k, "workers": 1, "progress": False}
    if rng.random() < 0.5:
        options["error_cov"] = covariance(rng, d)
    else:
        columns = [f"variance_{i}" for i in range(d)]
        table |= {name: np.abs(extreme(rng, n)) for name in columns}
        options["error_columns"] = columns
    if rng.random() < 0.3:
        table["unit"] = rng.integers(3, size=n)
        options["unit"] = "unit"
    return with_spoilt(rng, table, 0.3), options, k


def numbers_in(plain: Any) -> Iterator[float]:
    if isinstance(plain, dict):
        for part in plain.values():
            yield from numbers_in(part)
    elif isinstance(plain, list):
        for part in plain:
            yield from numbers_in(part)
    elif isinstance(plain, float):
        yield plain


def analysing(rng: Rng, folder: Path) -> None:
    """`fit`, `value`, `learn_then_value` and `export` of columns and files."""
    import mebandit as mb

    table, options, k = columns_of(rng)
    log: Any = table
    if rng.random() < 0.3:
        log = folder / "log.csv"
        with contextlib.suppress(Exception):  # what cannot be written as columns is a file of something else
            rows = zip(*(np.asarray(column).tolist() for column in table.values()), strict=False)
            log.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    on_bad: dict[str, Any] = {"on_bad": "set-aside", "set_aside": folder / "bad.csv"} if rng.random() < 0.5 else {}
    with refusals():
        found = mb.fit(log, **options, **on_bad, intercept=bool(rng.integers(2)), ridge=pick(rng, [0.0, 1.0]))
        json.loads(found.to_json(), parse_constant=lambda text: keep(False, f"an analysis has no {text}"))
        for estimate in found.estimates.values():
            keep(not np.isinf(estimate.theta).any(), "an estimate is finite, or NaN where it is not identified")
    with refusals():
        rule = pick(rng, ["uniform", 0, k, np.full(k, 1 / k), np.full(k + 1, 0.1), mb.Fitted(), *THINGS])
        mb.value(log, rule, **options, **on_bad)
    with refusals():
        mb.learn_then_value(log, method=pick(rng, ["meb", "dr", "rc", "ridge"]), **options)
    with refusals():
        rules = {"a": linear_rule(rng, k, len([name for name in table if name.startswith("predicted_")])), "b": "uniform"}
        valued = mb.value(log, rules, **options)
        json.loads(valued.to_json(), parse_constant=lambda text: keep(False, f"values have no {text}"))
        valued.contrast(*pick(rng, [("a", "b"), ("a", "c"), (None, 1)]), pick(rng, ["dr", "ips", *THINGS]))
    for to, name in (("obp", "out.npz"), ("mrt", "out.csv")):
        with refusals():
            read: dict[str, Any] = {key: options[key] for key in ("unit", "n_actions", "workers", "progress") if key in options}
            mb.export(log, folder / name, to=pick(rng, [to, to, *THINGS]), **with_spoilt(rng, read, 0.2))


def linear_rule(rng: Rng, k: int, d: int) -> Any:
    """A rule that decides by given parameters."""
    import mebandit as mb

    given = {
        "theta": extreme(rng, k, d),
        "floor": pick(rng, [0.0, 0.1, *NUMBERS]),
        "intercept": pick(rng, [None, extreme(rng, k)]),
        "context": pick(rng, ["predicted", "blp", "x"]),
        "error_cov": pick(rng, [None, covariance(rng, d)]),
        "mean": pick(rng, [None, extreme(rng, d)]),
        "context_cov": pick(rng, [None, covariance(rng, d)]),
        "fitted_to": pick(rng, [0, 5, -1]),
    }
    return mb.LinearRule(**with_spoilt(rng, given, 0.3))


def own_environment(rng: Rng, k: int, d: int) -> Any:
    """A class of one's own whose tapes are wrong somewhere."""
    from mebandit.environments import Gaussian
    from mebandit.values import Tape

    world = Gaussian(theta=rng.normal(size=(k, d)), error_cov=np.stack([np.eye(d), 2 * np.eye(d)]))
    field, salt, share = pick(rng, Tape._fields), int(rng.integers(2**32)), pick(rng, [0.0, 1.0])

    class Own:
        n_actions, dim = k, d

        def tape(self, stretch: Any) -> Any:
            tape = world.tape(stretch)
            own = np.random.default_rng(salt)
            if share and field == "component" and own.random() < 0.5:
                return tape._replace(component=tape.component + int(own.integers(-3, 10**9)))
            if share and field == "carry_index":
                return tape._replace(carry_index=int(own.integers(-3, 50)))
            return tape._replace(**{field: perhaps(own, getattr(tape, field), share)})

    return Own()


def environment(rng: Rng) -> Any:
    """An environment of the library, with hostile settings."""
    from mebandit import environments as worlds

    k, d = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    settings = {
        "theta": extreme(rng, k, d),
        "mean": extreme(rng, d),
        "cov": covariance(rng, d),
        "error_cov": covariance(rng, d),
        "noise_sd": abs(float(extreme(rng))),
        "error": pick(rng, ["normal", "student_t", "uniform", "bounded", "x"]),
        "error_df": pick(rng, [2.1, 5.0, 1e50, *NUMBERS]),
        "context": pick(rng, ["normal", "exponential"]),
        "hold": pick(rng, [1, 3, 0, 10**30]),
    }
    chosen = {name: settings[name] for name in settings if rng.random() < 0.5} | {"theta": settings["theta"]}
    inner = worlds.Gaussian(**with_spoilt(rng, chosen, 0.2)) if rng.random() < 0.7 else own_environment(rng, k, d)
    kind = int(rng.integers(8))
    if kind == 0:
        return worlds.Drifting(world=inner, mean=perhaps(rng, extreme(rng, inner.dim)), period=pick(rng, [2.0, 2500.0, 1e50, 0.0]))
    if kind == 1:
        return worlds.Misreported(world=inner, factor=pick(rng, [0.0, 1e-320, 1e50, 2.0, -1.0]))
    if kind == 2:
        return worlds.Estimated(world=inner, start=pick(rng, [1, 20, 0, 10**12]), every=pick(rng, [None, 1, 10, 0]))
    if kind == 3:
        return worlds.HeartSteps(noise_sd=pick(rng, NUMBERS), burden_error_var=pick(rng, NUMBERS), user=pick(rng, [None, 0, 36, 37, -1]))
    if kind == 4:
        return pick(rng, [worlds.Example21, worlds.ExampleB1])(noise_sd=pick(rng, NUMBERS))
    if kind == 5:
        return pick(
            rng, [worlds.ExampleB2, lambda: worlds.SmallError(contexts=pick(rng, [3, 64, 10**9, *THINGS]), rho=pick(rng, NUMBERS))]
        )()
    return inner


def simulating(rng: Rng, folder: Path) -> None:
    """`simulate`, `simulate_log`, `check_environment`, `check_policy`, and tapes of stretches that there are not."""
    import mebandit as mb
    from mebandit import environments as worlds
    from mebandit.environments.heartsteps import COLUMNS
    from mebandit.values import Stretch

    values = [*NUMBERS, *NO_NUMBERS, "x", "", "NA"]
    lines = [",".join(str(pick(rng, values if rng.random() < 0.1 else [0.3, 1, 2])) for _ in COLUMNS) for _ in range(60)]
    (folder / "study.csv").write_text("\n".join([",".join(COLUMNS), *lines]))
    with refusals():
        world = environment(rng)
        k, d = world.n_actions, world.dim
        makers = [mb.meb, mb.meb_dr, mb.thompson, mb.lin_ucb, mb.greedy]
        played = [pick(rng, makers)(k, d, floor=pick(rng, [0.01, 0.2])), *([pick(rng, THINGS)] if rng.random() < 0.05 else [])]
        given = {"horizon": pick(rng, [1, 7, 60]), "replicates": pick(rng, [1, 2]), "seed": 1, "cell": 0, "points": 5}
        with refusals():
            found = mb.simulate(world, played, **with_spoilt(rng, given, 0.3), workers=1, progress=False)
            keep(finite(found.clipped_regret, found.standard_regret), "regret is finite")
            with refusals():
                found.mean(pick(rng, [found.policies[0], *THINGS]), pick(rng, ["clipped_regret", "estimation_error_0", *THINGS]))
            with refusals():
                found.replicates(at=pick(rng, [(), (1,), (10**9,), *THINGS]))
        with refusals():
            log = mb.simulate_log(world, played[0], horizon=int(rng.integers(0, 40)), seed=int(rng.integers(-1, 3)))
            keep(finite(log.rewards, log.propensities), "a log is finite")
        with refusals():
            mb.check_environment(world, rounds=pick(rng, [3, 20, 0, -1, None]))
        with refusals():
            worlds.HeartSteps.from_csv(pick(rng, [folder / "study.csv", folder, *THINGS]))
        with refusals():
            world.tape(Stretch(*(pick(rng, [0, 1, 5, 9, -1, None, 2**70]) for _ in range(5))))
    with refusals():
        mb.check_policy(policy(rng) if rng.random() < 0.9 else pick(rng, THINGS), rounds=pick(rng, [3, 0, None, "x"]))


def measuring(rng: Rng, folder: Path) -> None:
    """Everything in `mebandit.measurement`."""
    from mebandit import measurement as me

    d, n = int(rng.integers(1, 4)), int(rng.choice([0, 2, 5, 40]))
    x = extreme(rng, n, d)
    truth = np.clip(x + extreme(rng, n, d) * pick(rng, [1.0, 1e-20]), -1e50, 1e50)
    table = np.abs(rng.random((d + 1, d + 1))) + np.eye(d + 1)
    calls: list[Callable[[], Any]] = [
        lambda: me.from_known(perhaps(rng, covariance(rng, d), 0.3), d),
        lambda: me.from_replicates(perhaps(rng, extreme(rng, n, 3, d), 0.3), averaged=pick(rng, [1, 3, 0])),
        lambda: me.from_validation(perhaps(rng, x), perhaps(rng, truth), assume=pick(rng, [None, "classical", "berkson", "linear"])),
        lambda: me.from_variances(perhaps(rng, np.abs(x)), predicted=perhaps(rng, x), truth=perhaps(rng, x + 0.1)),
        lambda: me.from_confusion(perhaps(rng, pick(rng, [table, extreme(rng, d + 1, d + 1)]), 0.3), reference=pick(rng, [None, 0, d + 5])),
        lambda: me.join(me.from_known(covariance(rng, 1), 1), me.from_known(covariance(rng, d), d)),
    ]
    with refusals():
        found = pick(rng, calls)()
        keep(finite(found.error_cov), "an error covariance is finite")
        for call in (
            lambda: found.unbias(perhaps(rng, extreme(rng, 3, found.dim), 0.3)),
            lambda: found.error_cov_in(perhaps(rng, extreme(rng, found.dim), 0.3)),
            lambda: found.covariances(perhaps(rng, np.abs(extreme(rng, 3, found.dim)), 0.3)),
            lambda: found.at(perhaps(rng, found.parameters, 0.5)),
            lambda: me.overcorrection(found, perhaps(rng, covariance(rng, found.dim), 0.3)),
            lambda: found.describe(pick(rng, [None, ["a"] * found.dim, *THINGS])),
            lambda: found.named(*pick(rng, [["a", "b", "c"][: found.dim], ["a", "a"], [None]])),
            lambda: me.warn_if_berkson(found, "log"),
            lambda: me.chi_square_tail(pick(rng, [*NUMBERS, *NO_NUMBERS]), pick(rng, [1, 5, 10**6])),
            lambda: found.error_cov_std_error,
        ):
            with refusals():
                call()
        path = folder / "model.json"
        found.save(path)
        with refusals():
            path.write_text(json.dumps(mangled(rng, json.loads(path.read_text()))))
            me.ErrorModel.load(path)


def planning(rng: Rng, folder: Path) -> None:
    """`plan`, the schedules and the bounds of `analysis.theory`."""
    import mebandit as mb
    from mebandit.analysis import theory

    d = int(rng.integers(1, 3))
    given = {
        "effect": pick(rng, [0.3, *NUMBERS]),
        "dim": d,
        "half_width": pick(rng, [None, 0.1, 1e-50]),
        "mean": extreme(rng, d),
        "cov": covariance(rng, d),
        "error_cov": covariance(rng, d),
        "noise_sd": pick(rng, [1.0, *NUMBERS]),
        "method": pick(rng, ["dr", "meb", "ridge", "naive", "rc"]),
        "policy": "constant",
        "replicates": 2,
        "rounds_per_user": pick(rng, [1.0, 30.0, 1e50]),
        "correlation": pick(rng, [0.0, 0.1, 1.0]),
    }
    if rng.random() < 0.1:
        with refusals():
            mb.plan(**with_spoilt(rng, given), workers=1, progress=False)
    with refusals():
        mb.standard(pick(rng, [1, 50, *THINGS]), pick(rng, [2, *THINGS]), n_actions=pick(rng, [2, 3, *THINGS]))
        mb.clipped(pick(rng, [0.2, *NUMBERS, *THINGS]), 100, 2)
    with refusals():
        schedule = pick(rng, [mb.schedules.Power(pick(rng, NUMBERS), 0.5), mb.schedules.Steps((2,), (pick(rng, NUMBERS), 0.2))])
        mb.schedules.floors(schedule, np.arange(1, 5), 2)
    with refusals():
        found = theory.constants_of(environment(rng).tape(mb.values.Stretch(1, 0, 0, 0, 10)))
        theory.estimation_bound(pick(rng, [1, 100, *THINGS]), pick(rng, [0.1, *NUMBERS]), found)
        theory.regret_from_errors(perhaps(rng, np.abs(extreme(rng, 4)), 0.5), found, setting="standard", floor=0.1, warmup=1)


def commands(rng: Rng, folder: Path) -> None:
    """Commands that read files, in this process."""
    import click

    import mebandit.cli  # noqa: F401  which makes the commands known
    from mebandit.cli.terminal import commands as command_line

    path, content = folder / "given.csv", io.StringIO()
    names = list(columns_of(rng)[0])
    if rng.random() < 0.5:
        names[0] = pick(rng, ["", "=1", "a$b$c", "action", "predicted_9", '"'])
    content.write(",".join(names) + "\n")
    for _ in range(int(rng.integers(0, 20))):
        cells = (pick(rng, [0, 1, 0.5, "x", "", *NO_NUMBERS, *NUMBERS]) if rng.random() < 0.1 else 0.5 for _ in names)
        content.write(",".join(map(str, cells)) + "\n")
    path.write_text(content.getvalue())
    state = folder / "state.json"
    state.write_text(pick(rng, ["", "{}", "[]", "[" * 2000, '{"format": "mebandit-learner"}', "null"]))
    calls = [
        ["fit", str(path), "--error-cov", "0.1", "--json"],
        ["value", str(path), "--error-cov", "0.1", "--json", "--policy", pick(rng, ["uniform", "0", "9", "x"])],
        ["merge", str(state), str(state), "--out", str(folder / "merged.json")],
        ["journal", "check", str(pick(rng, [path, state]))],
        ["journal", "repair", str(pick(rng, [path, state])), "--out", str(folder / "mended.jsonl")],
        ["export", str(path), "--to", "mrt", "--out", str(folder / "out.csv")],
        ["error-model", str(path), "--out", str(folder / "model.json")],
        ["fit", str(folder), "--error-cov", str(path)],
    ]
    with refusals(), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(click.ClickException):
        try:
            command_line.main(pick(rng, calls), prog_name="mebandit", standalone_mode=False)
        except SystemExit as end:  # with a sentence, which is one line or two
            keep(str(end.code).startswith("mebandit: ") and str(end.code).count("\n") < 2, "a command ends with a sentence")


SPEC = """
[simulation]
horizon = 30
replicates = 2
seed = 3

[environment]
kind = "Gaussian"
theta = [[1.0, 0.5], [0.5, 1.0]]

[grid]
error_cov = [0.1, 3.0]

[[policy]]
kind = "meb"

[[policy]]
kind = "thompson"
floor = 0.1
"""


def experiments(rng: Rng, folder: Path) -> None:
    """Descriptions of an experiment with wrong words and numbers; and the cells of one, spoilt and read again."""
    from mebandit.experiments import runner, spec

    path, words = folder / "spec.toml", SPEC.split(" ")
    for _ in range(4):
        i = int(rng.integers(len(words)))
        wrong = pick(rng, ["-1", "nan", "inf", "1e300", "1e-320", "[]", "[[1.0]]", '"x"', "true", "10", "{}", str(10**30), "[" * 2000])
        end = words[i].partition("\n")
        path.write_text(" ".join([*words[:i], wrong + end[1] + end[2], *words[i + 1 :]]))
        with refusals():
            spec.read_spec(path)
    path.write_text(SPEC)
    cells = spec.read_spec(path)
    out = folder / "experiment"
    with refusals():
        runner.run_cells(cells, out, workers=1, progress=False)
        before = runner.read_cells(cells, out)
        file = pick(rng, sorted((out / "cells").iterdir()))
        content = bytearray(file.read_bytes())
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(content))
        with refusals():
            keep(False, f"a damaged cell is read: {runner.read_cells(cells, out)}")
        after = runner.run_cells(cells, out, workers=1, progress=False)
        keep(all(mine.equals(theirs) for mine, theirs in zip(before, after, strict=True)), "a damaged cell is computed again")


SCENES: dict[str, tuple[Hostile, int]] = {
    "learner": (learner, 300),
    "methods": (methods, 300),
    "state_file": (state_file, 60),
    "journal": (journal, 12),
    "estimating": (estimating, 150),
    "moments": (moments_in_general, 60),
    "analysing": (analysing, 8),
    "simulating": (simulating, 40),
    "measuring": (measuring, 60),
    "planning": (planning, 10),
    "commands": (commands, 4),
    "experiments": (experiments, 2),
}
"""by name: what plays a scene, and how often it comes"""


# ---- playing them -----------------------------------------------------------------------------------------------------------


def play(number: int, seed: int, folder: Path, only: str | None = None) -> dict[str, Any] | None:
    """Play one scene; what was wrong, if anything was."""
    rng = np.random.default_rng([seed, number])
    names = [name for name in SCENES if only in (None, name)]
    weights = np.array([SCENES[name][1] for name in names], dtype=float)
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            SCENES[name][0](rng, folder)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "mebandit" in Path(frame.filename).parts] or frames
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return {"scene": number, "name": name, "error": type(error).__name__, "words": str(error)[:200], "place": place, "last": last}
    return None


PLACE = struct.Struct("qq")
"""the scene that is played, and how many calls were made before it"""


def child(first: int, calls: int, seed: int, only: str | None, folder: Path) -> None:
    """Play scenes from the first one on. Where it stands is in a shared file, what is wrong goes to standard output."""
    with open(folder / "place", "r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as place:
        number = first
        while made[0] < calls:
            place[:] = PLACE.pack(number, made[0])
            found = play(number, seed, folder, only)
            if found is not None:
                print(json.dumps(found), flush=True)
            number += 1
        place[:] = PLACE.pack(number, made[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000, help="how many, or some more: a scene is played to its end")
    parser.add_argument("--first", type=int, default=0, help="scene")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(SCENES), help="scenes of one kind")
    parser.add_argument("--unchecked", action="store_true", help="without bounds checks")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.first, given.calls, given.seed, given.only, given.child)
        return
    with tempfile.TemporaryDirectory() as name:
        sys.exit(run(given, Path(name)))


def run(given: argparse.Namespace, folder: Path) -> int:
    """Start child after child until all calls are made; 1 if something was wrong."""
    from mebandit.runtime.progress import progress_bar

    environment = os.environ | ({} if given.unchecked else {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder / "cache")})
    scene, calls = given.first, 0
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    with progress_bar(given.calls, "hostile calls", True) as done:
        while calls < given.calls:
            (folder / "place").write_bytes(PLACE.pack(scene, 0))
            command = [sys.executable, __file__, "--child", str(folder), "--first", str(scene), "--calls", str(given.calls - calls)]
            command += ["--seed", str(given.seed), *(["--only", given.only] if given.only else [])]
            with open(folder / "found", "w+b") as out:
                process, shown = subprocess.Popen(command, env=environment, stdout=out), 0
                while True:
                    ended = process.poll() is not None
                    scene, reached = PLACE.unpack((folder / "place").read_bytes())
                    for _ in range(shown, reached):
                        done()
                    if ended:
                        break
                    shown = max(shown, reached)
                    time.sleep(0.2)
                out.seek(0)
                wrong = [json.loads(line) for line in out.read().splitlines() if line.startswith(b"{")]
            calls += reached
            if process.returncode:
                wrong.append(
                    {"scene": scene, "name": "?", "error": f"died with {process.returncode}"}
                    | dict.fromkeys(["words", "place", "last"], "")
                )
                scene, calls = scene + 1, calls + 1
            for one in wrong:
                found.setdefault((one["name"], one["error"], one["place"], one["last"]), []).append(one)
    for alike in sorted(found.values(), key=len, reverse=True):
        one = alike[0]
        print(f"{len(alike)} x {one['name']}: {one['error']} at {one['place']} ({one['last']}), as in scene {one['scene']}: {one['words']}")
    print(f"{calls:,} calls in {scene - given.first:,} scenes with seed {given.seed}: {len(found)} places where something was wrong")
    return min(len(found), 1)


if __name__ == "__main__":
    main()
