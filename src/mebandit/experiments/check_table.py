"""What each check says of its own fault, and of trials in which nothing is wrong."""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mebandit.experiments.running_trial import Faults, RunningTrial
from mebandit.values import GREEN, RED, YELLOW

DAYS, FAULTY_DAYS = 10, 4
LOOK = 6
"""looks of the checks are so many decision points apart (eight hours each)"""


def _pin(trial: RunningTrial) -> None:
    from mebandit.service.store import experiments

    trial.database.run(lambda c: experiments.activate(c, trial.name, 5, "a trial of the checks", "nobody"))
    trial.service.reload(trial.name)


def _break_state(trial: RunningTrial) -> None:
    """Lose what the version that decides has learned, and change what it would be computed from."""
    from sqlalchemy import delete, update

    from mebandit.service.store.schema import outcome, state

    def work(connection: Any) -> None:
        connection.execute(update(outcome).values(value=outcome.c.value + 1))
        connection.execute(delete(state).where(state.c.version > 0))

    trial.database.run(work)
    trial.restart()


@dataclass(frozen=True)
class Fault:
    """A fault of one kind.

    Args:
        check: the check that must see it.
        words: what is wrong.
        faults: fields of `Faults` from the moment on at which it begins.
        start: such fields, for what is so from the beginning on.
        changes: to the configuration, from the beginning on.
        act: what happens at the moment.
    """

    check: str
    words: str
    faults: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    act: Callable[[RunningTrial], None] | None = None


FAULTS = (
    Fault("status", "the version that decides cannot be read", {"untrained": True}, act=_break_state),
    Fault("decisions due", "the scheduler stops for 60 % of the decisions", {"unasked": 0.6}),
    Fault("fallback", "half of the contexts come without stress", {"missing": 0.5}),
    Fault("staleness", "stress is 12 hours old on average (limit 6)", {"age_hours": 12.0}),
    Fault("ranges", "30 % of the contexts are in another unit of measurement", {"outside": 0.3}),
    Fault("latency", "decisions take 3 s on average", {"seconds": 3.0}),
    Fault("repeated requests", "5 % of the requests contradict an earlier one", {"conflicts": 0.05}),
    Fault("floor", "5 % of the decisions have a probability of 0.01 (floor 0.1)", {"below": 0.05}),
    Fault("randomisation", "half of the stored actions are the others, not those that were drawn", {"flipped": 0.5}),
    Fault("outcomes", "no outcome comes any more", {"no_outcome": 1.0}),
    Fault("learning", "the trainer stands still", {"untrained": True}),
    Fault("version", "version 5 was activated and forgotten", act=_pin),
    Fault("participants without data", "half of the participants fall silent", {"silent": 0.5}),
    Fault("drift", "a sensor drifts by 4 (its standard deviation is 1.1)", {"shift": 4.0}),
    Fault("told error", "Σe is told as 1.3, beyond the variance of x̃", changes={"error": {"cov": {"stress": 1.3}}}),
    Fault("error of stress", "the error variance is 1 (told 0.25)", {"error_var": 1.0}),
    Fault(
        "effective rounds",
        "a floor of 0.0005, and an action that is always much better",
        start={"effect": 5.0},
        changes={"policy": {"kind": "meb_dr", "floor": 0.0005, "warmup": 0}},
    ),
)


@dataclass(frozen=True)
class Seen:
    """What a trial showed."""

    levels: Mapping[str, str]
    """the worst level of each check at any look"""
    hours: Mapping[str, float]
    """hours from the fault to the first red, by check"""


def play(fault: Fault | None, *, seed: int, days: int = DAYS, participants: int = 20, folder: Path | None = None) -> Seen:
    """A trial of some days, healthy or with a fault for its last days.

    Args:
        fault: what goes wrong; None: nothing.
        seed: of the random numbers.
        days: of the healthy part.
        participants: how many take part.
        folder: where its store is, for as long as it runs; None: that of temporary files.
    """
    total = days + (FAULTY_DAYS if fault is not None else 0)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=total + 1)
    with tempfile.TemporaryDirectory(dir=folder) as found:
        changes, start = ({}, {}) if fault is None else (fault.changes, fault.start)
        trial = RunningTrial(f"{found}/trial.db", begin, participants, seed=seed, changes=changes, faults=Faults(**start))
        try:
            looks = trial.run(days, check_every=LOOK if fault is None else 0)
            if fault is not None:
                trial.watcher.check(trial.name, trial.now)
                trial.faults = replace(trial.faults, **fault.faults)
                if fault.act is not None:
                    fault.act(trial)
                looks = trial.run(FAULTY_DAYS, check_every=1)
        finally:
            trial.close()
    levels: dict[str, str] = {}
    hours: dict[str, float] = {}
    for i, look in enumerate(looks, start=1):
        for each in look:
            name = each["name"]
            levels[name] = max(levels.get(name, GREEN), each["level"], key=(GREEN, YELLOW, RED).index)
            if each["level"] == RED:
                hours.setdefault(name, 8.0 * i)
    return Seen(levels, hours)


def healthy(
    trials: int, *, seed: int = 1, folder: Path | None = None, told: Callable[[int], None] = lambda _: None
) -> dict[str, Counter[str]]:
    """The worst level of each check in healthy trials: how many trials by level.

    Args:
        trials: how many.
        seed: of the first; the others follow.
        folder: where their stores are.
        told: is told after each how many are done.
    """
    counts: dict[str, Counter[str]] = {}
    for i in range(trials):
        for name, level in play(None, seed=seed + i, folder=folder).levels.items():
            counts.setdefault(name, Counter())[level] += 1
        told(i + 1)
    return counts
