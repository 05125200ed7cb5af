"""Checks of what comes back and what is learned from it: outcomes, the trainer, the age of the version."""

from datetime import datetime
from math import sqrt
from typing import Any

import numpy as np
from sqlalchemy import func, select

from mebandit.service.checks.look import Look, Result, in_words, level
from mebandit.service.store import outcomes
from mebandit.service.store.database import all_rows, in_utc
from mebandit.service.store.schema import decision, outcome, policy_version, to_learn
from mebandit.values import GREEN, RED, YELLOW

COMPARED = 4_000
"""decisions of which the outcomes are compared"""
LEAST = 50
"""older decisions that say what is usual"""
NEWEST = 100
"""newer decisions, old enough to have an outcome, that are held against it"""
MORE_MISSING = 0.1, 0.3
"""by how much the share without an outcome may be larger than usual"""
MISSING = 0.5
"""share without an outcome that is red, whatever is usual"""
BEHIND_HOURS = 0.25, 1.0
"""age of the oldest outcome that waits to be learned"""
OLDEST_VERSION_HOURS = 24.0
"""age of a version that is never too old"""


def waiting(look: Look) -> Result:
    """Whether outcomes take longer than usual, or do not come any more.

    With q the time within which 95 % of the older outcomes came, the shares without an outcome after q are compared: m among the newest
    decisions that are older than q, m' among the older ones. Yellow: m - m' > 10 points and z > 3.3; red: m - m' > 30 points and z > 4.9,
    or m > 50 % (or more than usual by 30 points, where so many are usual).
    """
    delays, ages, units = _delays(look)
    known = np.isfinite(delays)
    older = np.arange(len(delays)) >= len(delays) // 2  # the newest are first
    old_enough = known & older
    if old_enough.sum() < LEAST // 2 or len(delays) < 2 * LEAST:
        return Result("outcomes", GREEN, None, None, f"{known.sum():,} outcomes came yet: too few to say what is usual.")
    q = float(np.quantile(delays[old_enough], 0.95))
    due = np.flatnonzero(ages > q)
    new, usual = due[: min(NEWEST, len(due) // 2)], due[min(NEWEST, len(due) // 2) :]
    missing = ~(delays <= q)
    m, before = float(missing[new].mean()) if len(new) else 0.0, float(missing[usual].mean()) if len(usual) else 0.0
    p = (m * len(new) + before * len(usual)) / max(len(new) + len(usual), 1)
    z = (m - before) / max(sqrt(p * (1 - p) * (1 / max(len(new), 1) + 1 / max(len(usual), 1))), 1e-9)
    limit = max(MISSING, before + MORE_MISSING[1]) if before > MISSING else min(MISSING, before + MORE_MISSING[1])
    verdict = RED if m > limit and (z > 4.9 or m > MISSING) else YELLOW if m > before + MORE_MISSING[0] and z > 3.3 else GREEN
    said = f"{m:.0%} of the last {len(new)} decisions older than {in_words(q)} have no outcome; {before:.0%} is usual."
    remedy = "" if verdict == GREEN else "Ask whoever reports outcomes whether they still arrive, and look at the answers that they get."
    late = [i for i in new if missing[i]]
    return Result("outcomes", verdict, m, limit, said, remedy, frozenset(units[i] for i in late if units[i]), len(late))


def _delays(look: Look) -> tuple[Any, Any, list[str | None]]:
    """Of the last decisions with an action, the newest first: hours until their first outcome (infinite: none yet), age, unit."""
    newest = (
        select(decision.c.name, decision.c.unit, decision.c.received_at)
        .where(decision.c.experiment == look.x, decision.c.received_at <= in_utc(look.now), decision.c.action.is_not(None))
        .order_by(decision.c.received_at.desc())
        .limit(COMPARED)
        .subquery()
    )
    told = (outcome.c.experiment == look.x) & (outcome.c.decision == newest.c.name) & (outcome.c.source == "client")
    asked = (
        select(newest, func.min(outcome.c.received_at).label("told_at"))
        .outerjoin(outcome, told)
        .group_by(newest.c.name, newest.c.unit, newest.c.received_at)
        .order_by(newest.c.received_at.desc())
    )
    rows = all_rows(look.connection, asked)
    times = [datetime.fromisoformat(row["received_at"]).timestamp() for row in rows]
    came = [np.inf if row["told_at"] is None else datetime.fromisoformat(row["told_at"]).timestamp() for row in rows]
    made, told_at = np.array(times), np.array(came)
    delays = np.where(told_at <= look.now.timestamp(), (told_at - made) / 3600, np.inf)
    return delays, (look.now.timestamp() - made) / 3600, [row["unit"] for row in rows]


def trainer(look: Look) -> Result:
    """How long the oldest outcome has waited to be learned."""
    n, cadence = outcomes.n_to_learn(look.connection, look.x), look.configuration.cadence
    said = f"{n:,} outcomes wait to be learned."
    if not n or cadence.by_hand or n < (cadence.outcomes or 1) or look.live.status not in ("running", "paused"):
        return Result("learning", GREEN, 0.0, BEHIND_HOURS[1], said, values={"waiting": [float(n)]})
    first = select(to_learn.c.decision).where(to_learn.c.experiment == look.x).order_by(to_learn.c.id).limit(1).scalar_subquery()
    asked = select(func.max(outcome.c.received_at)).where(outcome.c.experiment == look.x, outcome.c.decision == first)
    since = look.connection.execute(asked).scalar()
    hours = 0.0 if since is None else max(look.hours_since(since) - (cadence.seconds or 0.0) / 3600, 0.0)
    verdict = level(hours, BEHIND_HOURS)
    said += f" The oldest has waited for {in_words(hours)}."
    remedy = "" if verdict == GREEN else "No process trains, or training fails: look at the log of the server, and start it again."
    return Result("learning", verdict, hours, BEHIND_HOURS[1], said, remedy, values={"waiting": [float(n)]})


def version_age(look: Look) -> Result:
    """The age of the version that decides, beside the usual time between versions; red beyond three times the limit of yellow."""
    row = look.live.row
    asked = select(policy_version.c.number, policy_version.c.made_at).where(policy_version.c.experiment == look.x)
    last = all_rows(look.connection, asked.order_by(policy_version.c.number.desc()).limit(21))
    own = look.connection.execute(asked.where(policy_version.c.number == row["active"])).first()
    times = [datetime.fromisoformat(each["made_at"]).timestamp() / 3600 for each in last]
    usual = float(np.median(-np.diff(times))) if len(times) > 2 else 0.0
    limit = max(OLDEST_VERSION_HOURS, 10 * usual)
    if own is None or row["latest"] == 0 or look.configuration.cadence.by_hand or look.live.status == "stopped":
        return Result("version", GREEN, None, 3 * limit, f"Version {row['active']} decides, the latest is {row['latest']}.")
    hours = max(look.hours_since(own.made_at), 0.0)
    verdict = level(hours, (limit, 3 * limit))
    said = f"Version {row['active']} decides; it was made {in_words(hours)} ago, and {row['latest'] - row['active']:,} came after it."
    if verdict == GREEN:
        return Result("version", GREEN, hours, 3 * limit, said)
    remedy = "Activate the latest version, or write down why not." if row["pinned"] else "See whether outcomes still come and are learned."
    return Result("version", verdict, hours, 3 * limit, said, remedy)
