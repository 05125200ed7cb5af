"""Hostile calls of estimators and of the analysis of logs, in Python and on the command line."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hostile.arguments import NO_NUMBERS, NUMBERS, THINGS, Rng, covariance, extreme, perhaps, pick, with_spoilt
from hostile.learners import history, spoilt_state
from hostile.promises import finite, keep, refusals


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
        "unit": pick(rng, [None, None, rng.integers(3, size=n)]),
        "baseline": pick(rng, [None, None, extreme(rng, n, 2)]),
        "sandwich": pick(rng, ["hc0", "hc2", "hc3"]),
    }
    with refusals():
        found = mb.estimate(**with_spoilt(rng, given))
        keep(finite(found.theta, found.intercept, found.covariance), "an estimate is finite")
        figures = dict(found.diagnostics)
        figures["smallest_propensity"] = figures["smallest_propensity"][figures["rounds"] > 0]  # else NaN: the action was never taken
        keep(finite(*figures.values()), "diagnostics are finite")
        found.interval(pick(rng, [0.95, *NUMBERS, *THINGS]))
        found.contrast(pick(rng, [0, 1, -1, k, *THINGS]), 1).interval()


def regressing(rng: Rng, folder: Path) -> None:
    """`errors_in_variables`, by covariance or by reliability."""
    import mebandit as mb

    log, _, d = log_of(rng)
    known = {"reliability": rng.random(d)} if rng.random() < 0.5 else {"error_cov": log["error_cov"]}
    given = {"predicted": log["predicted"], "outcome": log["rewards"], "intercept": bool(rng.integers(2)), "unit": None} | known
    with refusals():
        found = mb.errors_in_variables(**with_spoilt(rng, given))
        keep(finite(found.theta, found.intercept), "an estimate is finite")


def watching(rng: Rng, folder: Path) -> None:
    """`confidence_sequence` of a log."""
    import mebandit as mb

    table, options, _ = columns_of(rng)
    options.pop("progress")
    with refusals():
        mb.confidence_sequence(table, looks=pick(rng, [1, 2, 5, *THINGS]), method=pick(rng, ["ridge", "meb", "dr", "rc"]), **options)


def moments_in_general(rng: Rng, folder: Path) -> None:
    """`estimate_moments` and `best_linear_predictor`."""
    import mebandit as mb
    from mebandit.estimation import best_linear as denoise

    log, k, _ = log_of(rng)
    given = {"context": log["predicted"], "actions": log["actions"], "outcome": log["rewards"], "propensities": log["propensities"]}
    given |= {"action": int(rng.integers(-1, k + 1)), "n_actions": k}
    with refusals():
        given["std_errors"] = bool(rng.integers(2))
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
    if rng.random() < 0.2:
        table["before"] = extreme(rng, n)
        options["baseline"] = ["before"]
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
        d = len([name for name in table if name.startswith("predicted_")])
        learned = history(rng, mb.meb_dr(k, d) if rng.random() < 0.5 else mb.thompson(k, d), 3)
        wrong = (learned.policy, spoilt_state(rng, learned.state), pick(rng, [1, 0, -1, None, 10**9]))
        rule = pick(rng, [learned, wrong, "uniform", 0, k, np.full(k, 1 / k), np.full(k + 1, 0.1), mb.Fitted(), *THINGS])
        mb.value(log, rule, **options, **on_bad)
    with refusals():
        mb.learn_then_value(log, method=pick(rng, ["meb", "dr", "rc", "ridge"]), **options)
    with refusals():
        rules = {"a": linear_rule(rng, k, len([name for name in table if name.startswith("predicted_")])), "b": "uniform"}
        bounds = pick(rng, [None, None, (0, 1), (-1e50, 1e50), (1, 0), *THINGS])
        valued = mb.value(log, rules, **options, reward_bounds=bounds, sandwich=pick(rng, ["hc0", "hc2", "hc3"]))
        json.loads(valued.to_json(), parse_constant=lambda text: keep(False, f"values have no {text}"))
        valued.contrast(*pick(rng, [("a", "b"), ("a", "c"), (None, 1)]), pick(rng, ["dr", "ips", *THINGS]))
    for to, name in (("obp", "out.npz"), ("mrt", "out.csv")):
        with refusals():
            read: dict[str, Any] = {key: options[key] for key in ("unit", "n_actions", "workers", "progress") if key in options}
            mb.export(log, folder / name, to=pick(rng, [to, to, *THINGS]), **with_spoilt(rng, read, 0.2))


def rounds(rng: Rng, folder: Path) -> None:
    """The rounds of a run, wrong somewhere, and `Log`."""
    import mebandit as mb

    d = int(rng.integers(1, 4))
    world = mb.environments.Gaussian(theta=rng.normal(size=(2, d)), error_cov=0.1)
    log = mb.simulate_log(world, mb.meb(2, d, floor=0.1), horizon=30, seed=1)
    for _ in range(3):
        name = pick(rng, log._fields)
        wrong: Any = log._replace(**{name: perhaps(rng, getattr(log, name), 1.0)})
        with refusals():
            wrong.to_parquet(folder / "rounds.parquet")
        with refusals():
            found = mb.fit(wrong, workers=1, progress=False)
            json.loads(found.to_json(), parse_constant=lambda text: keep(False, f"an analysis has no {text}"))
        with refusals():
            given = {"predicted": ["predicted_0"], "action": "action", "propensity": "propensity", "unit": "decision", "n_actions": 2}
            named = mb.Log(log, **with_spoilt(rng, given), error_cov=pick(rng, [None, covariance(rng, 1), *THINGS]))
            mb.value(named, "uniform", workers=1, progress=False)
        with refusals():
            mb.plan(mb.Log(wrong), half_width=pick(rng, [0.1, 1e-50]), replicates=0, workers=1, progress=False)


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
