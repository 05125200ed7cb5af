"""Hostile calls of learners and policies, and of their state files and journals."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hostile.arguments import NUMBERS, THINGS, Rng, covariance, extreme, mangled, perhaps, perhaps_thing, pick
from hostile.promises import finite, is_decision, keep, made, refusals


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
    seeing = guarded | {"discount": pick(rng, [0.5, 0.9, 1.0]), "memory": pick(rng, [2.0, 20.0, 1e50])}
    blp = {"context": pick(rng, ["blp", "ew_blp", "auto"]), "curved": bool(rng.integers(2))}
    makers: list[Callable[[], Any]] = [
        lambda: mb.meb(k, d, **guarded),
        lambda: mb.meb(k, d, stabilizer=tuple(np.abs(extreme(rng, k)) + 1e-12), correct_from=pick(rng, [1, 4, 10**30]), **guarded),
        lambda: mb.meb(k, d, weights="precision", **blp, **seeing),
        lambda: mb.meb_naive(k, d, **guarded),
        lambda: mb.greedy(k, d, **o),
        lambda: mb.lin_ucb(k, d, **unsure),
        lambda: mb.thompson(k, d, **unsure),
        lambda: mb.robust_ucb(k, d, horizon=pick(rng, [1, 9, 100]), **unsure),
        lambda: mb.meb_dr(k, d, width=pick(rng, [0.0, 0.4, 1e50]), **seeing),
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
        keep(all(isinstance(finding.sentence, str) for finding in live.diagnostics), "diagnostics are sentences")
        keep(finite(live.estimate().theta), "an estimate is finite")


def composing(rng: Rng, folder: Path) -> None:
    """Policies put together from parts, some of which are not parts, and learners that are told an error model."""
    import mebandit as mb
    from mebandit import policies as parts

    d = int(rng.integers(1, 4))

    def number() -> Any:
        return pick(rng, THINGS if rng.random() < 0.03 else [0.1, 1.0, 2.0, 50.0])

    makers: list[Callable[[], Any]] = [
        lambda: mb.measurement.from_known(covariance(rng, d), d),
        lambda: mb.measurement.from_variances(np.abs(extreme(rng, 9, d))),
        lambda: mb.measurement.from_validation(extreme(rng, 50, d), extreme(rng, 50, d)),
        lambda: mb.measurement.from_confusion(np.eye(d + 1) * 0.9 + 0.1 / (d + 1), reference=0),
    ]
    context = {"mean": pick(rng, ["running", "auto", "forgetting"]), "memory": pick(rng, [2.0, 20.0]), "curved": perhaps_thing(rng, True)}
    ridge = {"ridge": number()}
    estimators: list[Callable[[], Any]] = [
        lambda: parts.LeastSquares(**ridge),
        lambda: parts.Naive(**ridge, guard=perhaps_thing(rng, "never")),
        lambda: parts.MEB(**ridge, stabilizer=perhaps(rng, np.full(2, 0.5)), correct_from=perhaps_thing(rng, 3)),
        lambda: parts.Calibrated(**ridge, context=pick(rng, [None, parts.BestLinear(**context)])),
        lambda: perhaps_thing(rng, parts.MEB()),
    ]
    rules: list[Callable[[], Any]] = [
        parts.Greedy,
        parts.Uniform,
        parts.BayesOracle,
        lambda: parts.UCB(width=number()),
        lambda: parts.Thompson(width=number()),
        lambda: parts.Robust(epoch=perhaps_thing(rng, 5), n_budgets=perhaps_thing(rng, 3), gamma=pick(rng, [0.0, 0.3, 1.0])),
        lambda: parts.Oracle(theta=perhaps(rng, extreme(rng, 2, d))),
        lambda: perhaps_thing(rng, parts.Greedy()),
    ]
    with refusals():
        given: dict[str, Any] = {"estimator": pick(rng, estimators)(), "rule": pick(rng, rules)()}
        others = {
            "floor": pick(rng, [0.1, mb.schedules.Power(-0.5, 0.3), mb.schedules.Smallest(perhaps_thing(rng, (0.1, 0.2)))]),
            "refit": pick(
                rng, [2, mb.schedules.At(perhaps_thing(rng, (1, 2))), mb.schedules.Until(3, perhaps_thing(rng, mb.schedules.Every(2)))]
            ),
            "warmup": perhaps_thing(rng, 3),
            "intercept": perhaps_thing(rng, True),
            "discount": perhaps_thing(rng, 0.9),
        }
        given |= {name: value for name, value in others.items() if rng.random() < 0.3}
        live = mb.Learner(parts.LinearPolicy(n_actions=2, dim=d, **given), seed=1)
        model = pick(rng, makers)()
        for _ in range(8):
            with refusals():
                made[0] += 1
                decision = live.decide(perhaps(rng, extreme(rng, d)), model)
                keep(is_decision(decision.propensities), "propensities are a distribution")
                live.learn(decision, float(rng.normal()))
                keep(finite(*live.state), "a state is finite")


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


def unchanged(first: Any, second: Any) -> bool:
    from mebandit.policies import states

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = states.leaves(first), states.leaves(second)
    return all(x.tobytes() == y.tobytes() if isinstance(x, np.ndarray) else repr(x) == repr(y) for x, y in zip(a, b, strict=True))


def low_level(rng: Rng, moments: Any) -> None:
    """Running sums that are solved directly."""
    from mebandit.estimation.solving import solve

    sums = moments.sums if rng.random() < 0.5 else perhaps(rng, moments.sums, 1.0)
    sizes: Any = (moments.n_actions, moments.n_features)
    if rng.random() < 0.3:
        sizes = tuple(int(n) for n in rng.integers(-1, 6, size=2))
    found = solve(type(moments)(sums, *sizes), correction=int(rng.integers(3)), ridge=pick(rng, [0.0, 1e-12, 1.0]), strict=True)
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


def said(rng: Rng) -> dict[str, Any]:
    """What is said of a decision, usable or not."""
    texts: list[Any] = ["a", "", "\ud800", "=1", "x" * 9000, 7, 2**63, 10**400, 1e300, float("nan"), True, *THINGS]
    note = {pick(rng, ["ward", "reward", "predicted_0", " ", "\ud800", 3]): pick(rng, texts), "kind": pick(rng, [1, 0.5, "x", 2**60, None])}
    options = {"unit": pick(rng, texts), "at": pick(rng, ["2024-01-01", *texts]), "note": pick(rng, [note, note, *THINGS])}
    return {name: value for name, value in options.items() if rng.random() < 0.15}


def journal(rng: Rng, folder: Path) -> None:
    """Journals without checksums, as older versions wrote them, with wrong lines; and bytes that are changed."""
    import mebandit as mb

    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    with refusals():
        with mb.Learner(policy(rng), seed=3, journal=path) as live:
            for _ in range(4):
                with refusals():
                    decision = live.decide(rng.normal(size=live.policy.dim), 0.1, **said(rng))
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
                read = mb.read_journal(path)
                keep(finite(read.rewards), "a log is finite")
                read.to_arrow()
            with refusals(), mb.Learner.recover(path, verify=bool(rng.integers(2))) as found:
                keep(finite(*found.state), "a state is finite")
