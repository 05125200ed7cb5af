"""Reproducing a journal: its events are repeated in the order of its lines, and decisions compared with what policy and seed give."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mebandit import checks, kernels
from mebandit.checks import InvalidInput, LogError
from mebandit.live.journal import Line, decision_from_plain, next_id
from mebandit.live.workspace import Workspace
from mebandit.policies import Policy, settings
from mebandit.values import Pending

if TYPE_CHECKING:
    from mebandit.live.learner import Learner

L = TypeVar("L", bound="Learner")

CLOSE = 1e-9
"""how far reproduced probabilities may be from those of a journal: another processor's mathematical functions round otherwise"""


def learners(
    kind: type[L], first: Line, lines: Iterator[Line], name: object, *, policy: Policy | None = None, verify: bool = True
) -> Iterator[tuple[L, Line]]:
    """The learner that wrote a journal, after its first line and after each of the others, each time with that line.

    Args:
        kind: the class of the learner.
        first: the first line, which names the policy and the seed.
        lines: the other lines, in order.
        name: what messages call the journal, such as its path.
        policy: as in `Learner.recover`.
        verify: as in `Learner.recover`.

    Raises:
        LogError: A line is one that this learner cannot have written.
    """
    header = first.event
    try:
        learner = kind(settings.policy_from(header.get("policy"), policy, name), seed=header.get("seed", 0))
    except InvalidInput as error:
        raise LogError(f"{name} line 1 must name a policy and a seed; got {checks.shown(header)} ({error}).") from error
    learner.origins = (str(header.get("origin", learner.origins[0])),)
    yield learner, first
    yield from going_on(learner, lines, name, verify=verify)


def going_on(learner: L, lines: Iterator[Line], name: object, *, verify: bool = True) -> Iterator[tuple[L, Line]]:
    """A learner after each of the further lines of its journal, see `learners`."""
    for line in lines:
        try:
            repeat(learner, line.event, verify)
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            received = f"{checks.shown(line.event)} ({error})"
            raise LogError(f"{name} line {line.number} must be an event of this policy; got {received}.") from error
        yield learner, line


def repeat(learner: "Learner", event: dict[str, Any], verify: bool) -> None:
    """Let a learner do again what an event of its journal says was done."""
    if "decision" in event:
        pending = decision_from_plain(event, learner.policy.n_actions, learner.policy.dim)
        number = next_id(learner.decided, pending[1].id)
        if verify:
            verify_decision(learner._workspace, learner.seed, pending)
        learner._pending[number] = pending
        learner.decided = number
    elif "reward_of" in event:
        learner._take_in(learner._waiting(event["reward_of"]), checks.number("reward", event["reward"]))
    else:
        del learner._pending[learner._waiting(event["forget"])[1].id]


def verify_decision(workspace: Workspace, seed: int, pending: Pending) -> None:
    """Refuse a decision of a journal that is not what policy and seed give for what was seen."""
    (x, s, allowed, number, uniform), known = pending
    observation, again = workspace.decide(x, s, allowed, number)
    if uniform != observation.auxiliary:
        checks.refuse("luck, the auxiliary uniform,", f"be that of the seed and the decision, {observation.auxiliary!r}", repr(uniform))
    if not np.abs(known.propensities - again.propensities).max() <= CLOSE:
        remedy = "Was it written by another version? Learner.recover(..., verify=False) takes it as it is."
        rule = f"be those that the policy gives, {checks.shown(again.propensities)}"
        checks.refuse("propensities", rule, checks.shown(known.propensities), remedy)
    if known.action != kernels.draw(known.propensities, kernels.uniform_pair(seed, 0, 0, number, kernels.LIVE)[0]):
        checks.refuse("action", "be the one drawn with the seed from these propensities", known.action)
