"""Hostile logs of trials as they are, with words, dates, labels and missing outcomes; and plans from a pilot's results."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from hostile.arguments import NO_NUMBERS, NUMBERS, THINGS, Rng, mangled, perhaps, perhaps_thing, pick, with_spoilt
from hostile.promises import keep, refusals


def trial(rng: Rng) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a log that names its actions and categories, and how to read them."""
    n, wards = int(rng.choice([5, 60, 90])), ["north", "=south", "$east$", "west"]
    labels, free = ["no", "yes"], rng.random(n) < 0.9
    actions = np.where(free, rng.integers(2, size=n), 0)
    table: dict[str, Any] = {
        "stress": rng.normal(size=n),
        "ward": np.array([pick(rng, wards[: int(rng.integers(1, 5))]) for _ in range(n)], dtype=object),
        "sent": np.array([labels[a] for a in actions], dtype=object),
        "steps": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
        "p": pick(rng, [np.full(n, 0.5), rng.uniform(0.2, 0.8, n)]),
        "who": rng.integers(5, size=n),
        "free": free.astype(pick(rng, ["int64", "bool", "float64"])),
        "when": np.array([f"2024-01-{1 + t % 28:02}T0{t % 9}:00" for t in range(n)], dtype=object),
        "seen": rng.uniform(0.3, 1.0, n),
    }
    options: dict[str, Any] = {
        "predicted": ["stress", "ward"] if rng.random() < 0.5 else ["stress"],
        "action": "sent",
        "reward": "steps",
        "propensity": "p",
        "probability_of": "yes",
        "action_labels": labels,
        "available": "free",
        "time": "when",
        "unit": "who",
        "missing_outcomes": "leave-out",
        "error_cov": {"stress": 0.25},
    }
    if "ward" in options["predicted"]:
        options["categorical"] = ["ward"]
    if rng.random() < 0.3:
        options["observed"] = "seen"
    others: dict[str, list[Any]] = {
        "probability_of": ["no", 1, None, "maybe", -1],
        "action_labels": [None, ["yes"], "no,yes", ["no", "no"], ["yes", "no"]],
        "categorical": [None, "ward", ["stress"], ["nothing"]],
        "available": [None, "stress", "nothing"],
        "time": [None, "who", "ward", "stress"],
        "unit": [None, "ward", "stress"],
        "missing_outcomes": ["refuse", "x"],
        "observed": [None, "stress"],
        "error_cov": [None, 0.1, {"ward": 0.1}, {"stress": pick(rng, [*NUMBERS, *NO_NUMBERS])}],
    }
    if rng.random() < 0.5:
        name = pick(rng, sorted(others))
        options[name] = pick(rng, others[name])
    for name in table:
        if rng.random() < 0.03:
            table[name] = perhaps(rng, table[name], 1.0)
        elif rng.random() < 0.03:
            table[name] = np.where(rng.random(n) < 0.1, pick(rng, [None, "", "x", -1, *NUMBERS, *NO_NUMBERS]), table[name])
    return table, with_spoilt(rng, {k: v for k, v in options.items() if v is not None}, 0.1)


def trials(rng: Rng, folder: Path) -> None:
    """`fit`, `value` and `export` of the files of a trial."""
    import mebandit as mb

    table, options = trial(rng)
    shown: dict[str, Any] = {"workers": 1, "progress": False}
    others = options if rng.random() < 0.1 else {name: value for name, value in options.items() if name != "observed"}
    with refusals():
        found = mb.fit(table, methods=["meb", "dr"], **shown, **options)
        json.loads(found.to_json(), parse_constant=lambda text: keep(False, f"an analysis has no {text}"))
        str(found)
        for call in (found.average_effect, found.called):
            with refusals():
                call(pick(rng, [0, 1, *THINGS]))
    with refusals():
        rules = pick(rng, [{"a": "1 when available", "b": "send when available"}, {"a": "yes", "b": "uniform"}, "1 when available", THINGS])
        valued: Any = mb.value(table, rules, **shown, **others)
        json.loads(
            json.dumps(valued.to_plain()) if isinstance(valued, mb.Value) else valued.to_json(),
            parse_constant=lambda text: keep(False, f"values have no {text}"),
        )
        str(valued)
    with refusals():
        mb.export(table, folder / "trial.csv", to="mrt", **shown, **{k: v for k, v in others.items() if k != "error_cov"})
    with refusals():
        mb.learn_then_value(table, **shown, **others)


def pilots(rng: Rng, folder: Path) -> None:
    """`plan` from a pilot, from its fit.json, and from one that was damaged."""
    import mebandit as mb

    table, options = trial(rng)
    lengths = {
        "days": pick(rng, [None, 1, 42, 1e50, 0.5, -1]),
        "decision_points": pick(rng, [1, 5, 1e50, 0, 1e-320]),
        "availability": pick(rng, [None, 0.8, 1e-320, 1.5]),
        "attrition": pick(rng, [0.0, 0.2, 1.0, 2.0]),
        "missing": pick(rng, [None, 0.1, 1.0]),
        "assurance": pick(rng, [None, 0.8, 0.0, 1.0, 1e-320]),
        "half_width": 0.1 if rng.random() < 0.8 else pick(rng, NUMBERS),
        "coefficient": pick(rng, [0, "stress", "average", "intercept", "x", 9, -1]),
    }
    given = {name: value for name, value in lengths.items() if rng.random() < 0.3} | {"days": 42} | {"half_width": lengths["half_width"]}
    with refusals():
        found = mb.fit(table, methods=["dr"], workers=1, progress=False, **options)
        given = with_spoilt(rng, given, 0.2)
        with refusals():
            str(mb.plan(perhaps_thing(rng, found), **given, replicates=0, progress=False))
        path, plain = folder / "fit.json", json.loads(found.to_json())
        for damaged in (plain, *(mangled(rng, plain) for _ in range(4))):
            path.write_text(json.dumps(damaged))
            with refusals():
                planned = mb.plan(path, **given, replicates=0, progress=False)
                keep(0 < planned.rounds < 10**400, "a plan has a number of rounds")
                str(planned)
