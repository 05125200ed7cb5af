"""Checks of how decisions are made: when they are due, by whom, on what, how fast, and how often they are asked for again."""

from datetime import datetime
from typing import Any

import numpy as np

from mebandit.service.checks.look import FEW, Look, Result, in_words, level, units_of
from mebandit.values import GREEN, RED, YELLOW

FALLBACKS = 0.1, 0.25
"""shares of decisions by the fallback from which the level is yellow, and red"""
STALE = 0.1, 0.25
"""shares of decisions with a feature that is too old"""
OUTSIDE = 0.02, 0.1
"""shares of decisions with a feature outside its range"""
OLD_HOURS = 24.0
"""age from which a feature without a limit of its own counts as stale"""
SLOW = 0.5, 2.0
"""seconds of the slowest hundredth of decisions"""
REPEATED = 0.2, 0.5
"""shares of answers that were repetitions"""
CONFLICTS = 0.002, 0.02
"""shares of requests that contradicted an earlier one of the same name"""


def status(look: Look) -> Result:
    """Whether the experiment decides, by its policy."""
    live = look.live
    if live.trouble is not None:
        said = f"The fallback decides, since {live.trouble[:1].lower()}{live.trouble[1:]}"
        return Result("status", RED, None, None, said, "Look at the log of the server, and run mebandit replay on the store.")
    remedy = {"draft": "Start it when it is approved.", "paused": "Resume it when the reason for the pause is gone."}.get(live.status, "")
    verdict = GREEN if live.status in ("running", "stopped") else YELLOW
    return Result("status", verdict, None, None, f"The experiment is {live.status}; version {live.row['active']} decides.", remedy)


def fallbacks(look: Look) -> Result:
    """The share of the last decisions that the fallback made, pauses apart."""
    made = [row for row in look.recent if row["action"] is not None and row["reason"] != "The experiment is paused."]
    taken = [row for row in made if row["mode"] == "fallback"]
    share = len(taken) / max(len(made), 1)
    verdict = level(share, FALLBACKS) if len(made) >= FEW else GREEN
    said, remedy = f"The fallback made {share:.1%} of the last {len(made):,} decisions.", ""
    if verdict != GREEN:
        reasons = [str(row["reason"]).partition(";")[0] for row in taken]
        most = max(set(reasons), key=reasons.count)
        remedy = f"The reason that was given most often: {most.rstrip('.')}. Mend what sends the contexts."
    return Result("fallback", verdict, share, FALLBACKS[1], said, remedy, units_of(taken), len(taken), {"share": [share]})


def staleness(look: Look) -> Result:
    """The share of decisions on a feature that was older than its `max_age_hours`, or than a day."""
    limits = {f.name: f.max_age_hours or OLD_HOURS for f in look.configuration.features if f.constant is None}
    old, dated, worst = [], 0, ("", 0.0)
    for row, asked in zip(look.recent, look.requests, strict=True):
        ages = {name: _age(row, at) for name, at in asked["observed_at"].items() if name in limits}
        dated += bool(ages)
        beyond = {name: age for name, age in ages.items() if age > limits[name]}
        if beyond:
            old.append(row)
            worst = max(worst, *beyond.items(), key=lambda each: each[1])
    share = len(old) / max(dated, 1)
    verdict = level(share, STALE) if dated >= FEW else GREEN
    if not dated:
        said = "No request says when its features were observed (observed_at), so their age is not known."
        return Result("staleness", GREEN, None, STALE[1], said)
    said = f"{share:.1%} of the last {dated:,} decisions with times of observation had a feature that was too old."
    remedy = f"The oldest was {worst[0]}, {in_words(worst[1])}. Find out why it is not observed any more." if verdict != GREEN else ""
    return Result("staleness", verdict, share, STALE[1], said, remedy, units_of(old), len(old))


def _age(row: Any, observed: str) -> float:
    return (datetime.fromisoformat(row["decided_for"]) - datetime.fromisoformat(observed)).total_seconds() / 3600


def ranges(look: Look) -> Result:
    """The share of decisions with a feature outside its range, whether it was clipped or the fallback decided."""
    known = {f.name: f.range for f in look.configuration.features if f.range is not None}
    if not known:
        return Result("ranges", GREEN, None, OUTSIDE[1], "No feature has a range.")
    outside, names = [], []
    for row, asked in zip(look.recent, look.requests, strict=True):
        found = [name for name, (low, high) in known.items() if not _within(asked["context"].get(name), low, high)]
        names += found
        if found:
            outside.append(row)
    n = len(look.recent)
    share = len(outside) / max(n, 1)
    verdict = level(share, OUTSIDE) if n >= FEW else GREEN
    said = f"{share:.1%} of the last {n:,} decisions had a feature outside its range."
    remedy = ""
    if verdict != GREEN:
        remedy = f"Most often it was {max(set(names), key=names.count)}. Check its unit of measurement, and what predicts it."
    return Result("ranges", verdict, share, OUTSIDE[1], said, remedy, units_of(outside), len(outside))


def _within(value: Any, low: float, high: float) -> bool:
    return type(value) not in (int, float) or low <= value <= high


def latency(look: Look) -> Result:
    """The slowest hundredth of decisions in the last counts of the processes."""
    slowest = [p["p99"] for p in look.pulses if p.get("p99") is not None]
    if not slowest:
        return Result("latency", GREEN, None, SLOW[1], "No decision was timed in the last day.")
    value = float(max(slowest[-10:]))
    verdict = level(value, SLOW)
    said = f"The slowest hundredth of decisions took at least {value:.3g} s."
    remedy = "" if verdict == GREEN else "Look at the disk or the database server, and at how many clients ask at once."
    return Result("latency", verdict, value, SLOW[1], said, remedy)


def repeated(look: Look) -> Result:
    """Requests that repeat an earlier one, or contradict it, in the last day."""
    answers, again, conflicts = (sum(p.get(name, 0) for p in look.pulses) for name in ("answers", "repeated", "conflicts"))
    asked = answers + conflicts
    if asked < FEW:
        return Result("repeated requests", GREEN, None, REPEATED[1], f"{asked:,} requests came in the last day.")
    shares = again / asked, conflicts / asked
    verdict = max(level(shares[0], REPEATED), level(shares[1], CONFLICTS) if conflicts > 1 else GREEN, key=(GREEN, YELLOW, RED).index)
    said = f"Of {asked:,} requests in the last day {shares[0]:.1%} repeated an earlier one, and {conflicts:,} contradicted one."
    remedy = ""
    if verdict != GREEN:
        remedy = (
            "Two decisions have the same name, or a client changes a request before it sends it again. Find that client."
            if level(shares[1], CONFLICTS) != GREEN
            else "Clients do not get their answers: look at the network, and at their time limits."
        )
    by_level = (shares[1], CONFLICTS[1]) if level(shares[1], CONFLICTS) == verdict != GREEN else (shares[0], REPEATED[1])
    return Result("repeated requests", verdict, by_level[0], by_level[1], said, remedy, decisions=int(conflicts))


def floor(look: Look) -> Result:
    """The smallest probability that the policy gave to an allowed action, since the beginning."""
    sums = look.sums
    said = f"The smallest probability was {sums.least:.4g}; the floor is {sums.floor:g}."
    remedy = ""
    if sums.below:
        said = f"{sums.below:,} decisions had a probability below the floor of {sums.floor:g}; the smallest was {sums.least:.4g}."
        remedy = f"Pause the experiment, and run mebandit replay on the store; one of them is {sums.below_of}."
    verdict = RED if sums.below else GREEN
    return Result("floor", verdict, sums.least, sums.floor, said, remedy, decisions=sums.below, values={"least": [sums.least]})


EVIDENCE = 100.0, 1000.0
"""of the test martingale: chances of at most 1 in 100 and 1 in 1000 that healthy randomisation ever reaches it"""


def randomisation(look: Look) -> Result:
    """Whether actions were taken as often as their probabilities say, see `Martingale`: by the service, or by its clients where the
    evidence against those is larger."""
    who, found = "the service", look.sums.service
    if look.sums.clients.log_evidence > max(found.log_evidence, np.log(EVIDENCE[0])):
        who, found = "clients that decided by themselves", look.sums.clients
    evidence = float(np.exp(min(found.log_evidence, 690.0)))
    verdict = level(evidence, EVIDENCE)
    said, remedy = "No action was drawn yet.", ""
    if found.n:
        off = found.taken - found.expected
        a = int(np.abs(off).argmax())
        name = look.live.experiment.actions[a]
        said = (
            f"{name!r} was taken {found.taken[a]:,.0f} times in {found.n:,} decisions, and {found.expected[a]:,.1f} times were expected. "
            f"Evidence against the stored probabilities: {evidence:.3g}."
        )
    if verdict != GREEN:
        remedy = f"The actions of {who} do not follow their probabilities. Pause the experiment, and run mebandit replay on the store."
        if found.worst[1] > 3:
            remedy += f" Most evidence is in decisions {10_000 * (found.worst[0] - 1) + 1:,.0f} to {10_000 * found.worst[0]:,.0f}."
    z = (found.taken - found.expected).tolist()
    return Result("randomisation", verdict, evidence, EVIDENCE[1], said, remedy, values={"more than expected": z})
