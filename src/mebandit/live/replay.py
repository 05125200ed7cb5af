"""Reproducing a journal: its events are repeated one by one, and each decision is compared with what policy and seed give."""

from typing import TYPE_CHECKING, Any

import numpy as np

from mebandit import checks, kernels
from mebandit.live.journal import decision_from_plain, next_id
from mebandit.live.workspace import Workspace
from mebandit.values import Pending

if TYPE_CHECKING:
    from mebandit.live.learner import Learner

CLOSE = 1e-9
"""how far reproduced probabilities may be from those of a journal: another processor's mathematical functions round otherwise"""


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
