"""Frozen versions of a policy: they decide by name, are the same in every process, and never change. Learning makes a new one."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.kernels import limits
from mebandit.live.workspace import workspace_for
from mebandit.policies import LinearPolicy, Policy, states
from mebandit.policies.linear_workspace import LinearWorkspace
from mebandit.policies.rounds import checked_round
from mebandit.values import Booleans, Decision, Floats, Observation, Round, State

LONGEST_SECRET = 64
"""bytes of the longest key of BLAKE2b"""


class NamedDecision(NamedTuple):
    """A decision that is a function of a version, a name and what was seen."""

    name: str
    """the name that the caller gave the decision"""
    action: int
    """the action to take, from 0"""
    propensity: float
    """π(a), the probability with which this action was drawn"""
    propensities: Floats
    """π(·), the probabilities of all actions, (K,)"""
    uniform: float
    """u, the uniform random number from which the action was drawn: a function of the secret and the name"""
    auxiliary: float
    """a second uniform, for a policy that is itself random"""


def uniforms(secret: bytes, name: str) -> tuple[float, float]:
    """Two uniforms in (0, 1), functions of a secret and a name alone.

        u = (n + 1/2) 2⁻⁵³,   n = 53 bits of BLAKE2b(name, key = secret)

    Args:
        secret: the key, 1 to 64 bytes. Without it the numbers cannot be foreseen.
        name: what the numbers are for, such as the name of a decision.

    >>> uniforms(b"secret", "u17-am") == uniforms(b"secret", "u17-am") != uniforms(b"secret", "u17-pm")
    True
    """
    digest = blake2b(name.encode(), key=secret, digest_size=16).digest()
    first, second = (int.from_bytes(digest[at : at + 8]) >> 11 for at in (0, 8))
    return (first + 0.5) * 2.0**-53, (second + 0.5) * 2.0**-53


def drawn(propensities: Sequence[float] | Floats, uniform: float) -> int:
    """The action in whose share of (0, 1) a uniform falls; none whose probability is below `limits.LEAST`.

    Args:
        propensities: the probabilities of all actions, (K,).
        uniform: a number in (0, 1).
    """
    total, last = 0.0, 0
    for action, share in enumerate(map(float, propensities)):
        if share >= limits.LEAST:
            total, last = total + share, action
            if uniform < total:
                break
    return last


class Version:
    """A policy with what it has learned at one moment. It decides by name, and never changes: `after` makes a new version.

    The same version gives the same answer to the same question in every process, in any order, however often it is asked. Threads may
    share it.

    The number of a decision, which warm-up and schedules refer to, is here one more than the number of rounds learned, since decisions
    that are made side by side have no order. So the warm-up ends when its number of rounds were learned.

    Args:
        policy: what decides: a recipe such as `meb_dr(2, 5)`, or a class of your own with the methods of `Policy`.
        state: what the policy has learned. None: nothing yet.
        learned: how many rounds the state knows.
        secret: the key of the random numbers, 1 to 64 bytes, see `uniforms`. All versions of one trial have the same.

    >>> import mebandit as mb
    >>> version = mb.Version(mb.meb(2, 1, floor=0.1), secret=b"of this trial")
    >>> decision = version.decide("u17-am", [0.4], 0.1)
    >>> decision.propensities.tolist(), decision.action == version.decide("u17-am", [0.4], 0.1).action
    ([0.5, 0.5], True)
    """

    def __init__(self, policy: Policy, state: State = None, *, learned: int = 0, secret: bytes) -> None:
        if not isinstance(policy, Policy) or isinstance(policy, type):
            checks.refuse("policy", "be a policy, such as meb(2, 5)", checks.shown(policy))
        if isinstance(policy, LinearPolicy) and policy.rule.needs_environment:
            checks.refuse("policy", "know theta, to be used live", f"{policy.name!r} without it", "Give it: oracle(..., theta=...).")
        if not isinstance(secret, bytes) or not 0 < len(secret) <= LONGEST_SECRET:
            checks.refuse("secret", f"be 1 to {LONGEST_SECRET} bytes", type(secret).__name__)
        self._policy, self._secret = policy, secret
        self._learned = checks.integer("learned", learned, 0)
        self._workspace = workspace_for(policy, 0)
        if state is not None:
            self._workspace.restore(states.copied(state), self._learned)

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._policy

    @property
    def learned(self) -> int:
        """How many rounds it has learned from."""
        return self._learned

    @property
    def state(self) -> State:
        """A copy of the policy's state."""
        return states.copied(self._workspace.state)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of every bit of the state: two versions of one policy with the same fingerprint decide alike."""
        found = sha256(str(self._learned).encode())
        for leaf in states.leaves(self._workspace.state):
            found.update(leaf.tobytes() if isinstance(leaf, np.ndarray) else repr(leaf).encode())
        return found.hexdigest()

    def decide(self, name: str, predicted: ArrayLike, error_cov: ArrayLike, *, allowed: ArrayLike | None = None) -> NamedDecision:
        """Choose an action for a predicted context. Nothing is remembered.

        Args:
            name: the name of the decision, from which its random number follows. Another decision needs another name.
            predicted: x̃, the prediction, (d,).
            error_cov: Σe, the covariance of its error: (d, d), a vector (a diagonal) or a number (times the identity).
            allowed: the actions that may be taken, a list of them or a mask (K,). None: all.
        """
        if not isinstance(name, str) or not name:
            checks.refuse("name", "be a text that names the decision", checks.shown(name))
        policy = self._policy
        x = checks.floats("predicted", predicted, (policy.dim,))
        s = checks.covariance("error_cov", error_cov, policy.dim)
        mask = checks.allowed_actions("allowed", allowed, policy.n_actions)
        return self.draw(name, x.copy(), s.copy(), mask)

    def draw(self, name: str, predicted: Floats, error_cov: Floats, allowed: Booleans) -> NamedDecision:
        """`decide` on what was checked already.

        Args:
            name: the name of the decision.
            predicted: x̃, (d,), finite.
            error_cov: Σe, (d, d), a covariance.
            allowed: which actions may be taken, (K,), at least one.
        """
        u, auxiliary = uniforms(self._secret, name)
        pi = self._propensities(Observation(predicted, error_cov, allowed, self._learned + 1, auxiliary))
        action = drawn(pi, u)
        return NamedDecision(name, action, float(pi[action]), pi, u, auxiliary)

    def _propensities(self, observation: Observation) -> Floats:
        """What the policy proposes; a linear policy in its working memory, by code that a learner has compiled anyway."""
        x, s, allowed, time, _ = observation
        if isinstance(self._workspace, LinearWorkspace):
            return self._workspace.decide(x, s, allowed, time)[1].propensities
        pi = checks.probabilities("propensities", self._policy.propensities(self._workspace.state, observation), allowed).copy()
        pi.setflags(write=False)
        return pi

    def decide_many(
        self, names: Sequence[str], predicted: ArrayLike, error_cov: ArrayLike, *, allowed: ArrayLike | None = None
    ) -> list[NamedDecision]:
        """Many decisions, each as `decide` makes it alone.

        Args:
            names: the names of the decisions, n of them.
            predicted: the predictions, (n, d).
            error_cov: Σe of all of them, as in `decide`, or of each, (n, d, d).
            allowed: None for all actions, or a mask for each decision, (n, K).
        """
        n, policy = len(names), self._policy
        x = checks.floats("predicted", predicted, (n, policy.dim))
        s = checks.covariances("error_cov", error_cov, policy.dim, n)
        masks = np.ones((n, policy.n_actions)) if allowed is None else checks.shaped("allowed", allowed, (n, policy.n_actions))
        return [self.decide(names[i], x[i], s[i if len(s) > 1 else 0], allowed=masks[i] != 0) for i in range(n)]

    def after(self, rounds: Iterable[Round]) -> "Version":
        """A new version that has also learned from finished rounds, in their order. This one is left as it was.

        Learning from all rounds at once or in any number of steps gives the same bits.

        Args:
            rounds: the finished rounds; the time of each is the number that its decision had (one more than was learned then).
        """
        new = Version(self._policy, self._workspace.state, learned=self._learned, secret=self._secret)
        for each in rounds:
            observation, action, propensities, reward = checked_round(each, dim=self._policy.dim, n_actions=self._policy.n_actions)
            decision = Decision(observation.time, action, float(propensities[action]), propensities)
            new._workspace.learn(observation, decision, reward)
            new._learned += 1
        check = getattr(self._policy, "check_state", None)
        if check is not None:
            check(new._workspace.state)
        return new
