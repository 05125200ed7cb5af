"""The stateful face for live use: decide now, learn whenever the reward arrives, save, load, merge."""

from pathlib import Path
from secrets import token_hex
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from mebandit import _kernels, checks, settings, states
from mebandit.checks import LogError
from mebandit.estimators import Estimate, solved_estimate
from mebandit.files import seal, unseal, write_whole
from mebandit.log import Journal, decision_from_plain, decision_to_plain, read_events, read_header
from mebandit.policies import LinearPolicy, Policy
from mebandit.policies.base import advance, label
from mebandit.policies.desk import Desk
from mebandit.values import Booleans, Decision, Floats, Observation, Pending, Round, State

FORMAT, VERSION = "mebandit-learner", 1
FLOAT, LARGEST = np.dtype(np.float64), _kernels.LARGEST


class Learner:
    """A policy that is being used: it decides on predicted contexts and learns from rewards in whatever order they come.

    Every draw is a function of `seed` and the decision's number, so a run can be repeated. With a `journal` (a path) each event is on
    disk before the call returns, and `Learner.recover` gives the same learner back after a crash. A call that is refused changes nothing.

    >>> import mebandit as mb
    >>> learner = mb.Learner(mb.meb(2, 1, floor=0.1), seed=7)
    >>> decision = learner.decide([0.4], 0.1)
    >>> learner.learn(decision, reward=1.0)
    >>> learner.learned, learner.waiting
    (1, 0)
    """

    def __init__(self, policy: Policy, *, seed: int = 0, journal: str | Path | None = None, durable: bool = False) -> None:
        if not isinstance(policy, Policy) or isinstance(policy, type):
            checks.refuse("policy", "be a policy, such as meb(2, 5)", checks.shown(policy))
        self._policy = policy
        self._seed = checks.integer("seed", seed, 0, 2**63 - 1)
        self.decided = 0
        """decisions made so far; the next one's id is one more"""
        self.learned = 0
        """rewards learned from so far"""
        self.origins: tuple[str, ...] = (token_hex(8),)
        """the histories that its memory is made of, each under a random name, so that none is counted twice"""
        self._desk = Desk(policy, self.seed) if type(policy) is LinearPolicy else None
        self._held: State = policy.init() if self._desk is None else None
        self._pending: dict[int, Pending] = {}
        self._journal: Journal | None = None
        self._everything = np.ones(policy.n_actions, dtype=np.bool_)
        self._x_shape, self._s_shape = (policy.dim,), (policy.dim, policy.dim)
        if isinstance(policy, LinearPolicy) and policy.rule in ("oracle", "bayes_oracle") and policy.known_theta is None:
            checks.refuse("policy", "know theta, to be used live", f"{policy.name!r} without it", "Give it: oracle(..., theta=...).")
        if journal is not None:
            if Path(journal).exists() and b"\n" in Path(journal).read_bytes():
                checks.refuse("journal", "be a new file", str(journal), "To go on after a stop: Learner.recover(journal).")
            self._open_journal(journal, durable)

    def _open_journal(self, path: str | Path, durable: bool) -> None:
        plain, (origin, *_) = settings.to_plain(self.policy), self.origins
        self._journal = Journal(path, policy=plain, seed=self.seed, origin=origin, durable=durable)

    def close(self) -> None:
        """Give the journal back, for another learner to go on with; this one can then no longer be used, if it had one."""
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decide(self, predicted: ArrayLike, error_cov: ArrayLike, *, allowed: ArrayLike | None = None) -> Decision:
        """Choose an action for a predicted context (d,) whose error has covariance error_cov (d, d).

        error_cov may also be a number (times the identity) or a vector (a diagonal). `allowed` restricts the round to some actions, as a
        list of them or a mask: the floor then holds among these, and a single one is taken with probability 1.
        """
        x = predicted if _is_array(predicted, self._x_shape) else checks.shaped("predicted", predicted, self._x_shape).copy()
        s = error_cov if _is_array(error_cov, self._s_shape) else checks.square("error_cov", error_cov, self._policy.dim).copy()
        mask = self._everything if allowed is None else checks.allowed_actions("allowed", allowed, self._policy.n_actions)
        number = self.decided + 1
        pending = self._decide_stepwise(x, s, mask, number) if self._desk is None else self._desk.decide(x, s, mask, number)
        if self._journal is not None:
            self._journal.decision(pending)
        self._pending[number] = pending
        self.decided = number
        return pending[1]

    def _decide_stepwise(self, x: Floats, s: Floats, mask: Booleans, number: int) -> Pending:
        x = checks.floats("predicted", x, (self._policy.dim,)).copy()
        s = checks.covariance("error_cov", s, self._policy.dim).copy()
        u, luck = _kernels.uniform_pair(self._seed, 0, 0, number, _kernels.LIVE)
        observation = Observation(x, s, mask, number, luck)
        pi = checks.probabilities("propensities", self._policy.propensities(self._state, observation), mask).copy()
        pi.setflags(write=False)
        action = _kernels.draw(pi, u)
        return observation, Decision(number, action, float(pi[action]), pi)

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of a decision (or of its id), any time after it was made and in any order."""
        pending = self._pending.get(decision.id) if type(decision) is Decision and type(decision.id) is int else None
        if pending is None or pending[1] is not decision:  # seldom: mostly the decision itself comes back
            pending = self._waiting(decision)
        observation, known = pending
        r = reward if type(reward) is float and abs(reward) <= LARGEST else _reward(reward)
        if self._journal is None:
            self._take_in(observation, known, r)
        elif self._desk is None:  # what cannot be learned from must not be in the journal, what cannot be written not be learned
            state = self._policy.update(self._held, Round(observation, known.action, known.propensities, r))
            self._journal.reward(known.id, r)
            self._held = state
        else:
            with self._desk.whole():
                self._desk.learn(observation, known, r)
                self._journal.reward(known.id, r)
        del self._pending[known.id]
        self.learned += 1

    def _take_in(self, observation: Observation, decision: Decision, reward: float) -> None:
        """Move the state on by one finished round, in place where the policy can."""
        if self._desk is not None:
            self._desk.learn(observation, decision, reward)
        else:
            self._held = advance(self._policy, self._held, Round(observation, decision.action, decision.propensities, reward))

    def forget(self, decision: Decision | int) -> None:
        """Give up on a decision whose reward will never come: it teaches nothing and takes no more memory."""
        number = self._waiting(decision)[1].id
        if self._journal is not None:
            self._journal.forget(number)
        del self._pending[number]

    def _waiting(self, decision: Decision | int) -> Pending:
        number = decision.id if isinstance(decision, Decision) else decision
        number = int(number) if isinstance(number, np.integer) else number
        known = self._pending.get(number) if type(number) is int else None
        if known is None:
            made = type(number) is int and 0 < number <= self.decided
            state = "one that has its reward already or was given up" if made else f"{number!r}, which this learner never made"
            checks.refuse("decision", "be one that waits for its reward", f"decision {number}: {state}" if made else state)
        own = known[1]
        if decision is not own and isinstance(decision, Decision) and decision[:3] != own[:3]:
            checks.refuse("decision", "be one of this learner's own", f"decision {number} with another action or probability")
        return known

    @property
    def policy(self) -> Policy:
        """What it plays, from the first decision to the last."""
        return self._policy

    @property
    def seed(self) -> int:
        """What its luck comes from."""
        return self._seed

    @property
    def waiting(self) -> int:
        """How many decisions wait for their reward."""
        return len(self._pending)

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        return tuple(self._pending)

    @property
    def _state(self) -> State:
        """The policy's state, on the desk where there is one."""
        return self._held if self._desk is None else self._desk.state

    @_state.setter
    def _state(self, state: State) -> None:
        if self._desk is not None:
            self._desk.state = state
        else:
            self._held = state

    @property
    def state(self) -> State:
        """A copy of the policy's state."""
        return states.copied(self._state)

    @property
    def theta(self) -> Floats:
        """The fitted parameters that the next decision reads, (K, d)."""
        if not hasattr(self.policy, "theta"):
            checks.refuse("policy", "have a method theta(state), to give its parameters", type(self.policy).__name__)
        return np.asarray(self.policy.theta(self._state))

    def estimate(self) -> Estimate:
        """The estimate from all that was learned so far. Standard errors need the rounds themselves and are NaN here: keep a journal and
        give it to `mebandit.estimate`."""
        if not isinstance(self.policy, LinearPolicy) or self.policy.rule not in ("greedy", "ucb", "thompson"):
            checks.refuse("policy", "be a linear one that keeps what it learns, to give an estimate", label(self.policy))
        policy = self.policy
        return solved_estimate(
            policy.moments(self._state), method=policy.method, ridge=policy.ridge, guard=policy.guard, intercept=policy.intercept
        )

    def merge(self, other: "Learner") -> "Learner":
        """A new learner that knows what both have learned (sites that ran the same policy). Sums add in the order self, other.

        It goes on with this learner's seed and waiting decisions; those of `other` still wait with `other`. Learners with a history in
        common, such as two states of the same one, are refused: its rounds would count twice.
        """
        if not isinstance(other, Learner) or other.policy != self.policy:
            checks.refuse("the learner to merge", "run the same policy", checks.shown(getattr(other, "policy", other)))
        if set(self.origins) & set(other.origins):
            remedy = "Its rounds would count twice."
            checks.refuse("the learner to merge", "know other rounds", "one that has a history in common with this one", remedy)
        if not hasattr(self.policy, "merge"):
            checks.refuse("policy", "have a method merge(state, state), to be merged", type(self.policy).__name__)
        merged = Learner(self.policy, seed=self.seed)
        merged._state = self.policy.merge(self._state, other._state)
        merged._pending = dict(self._pending)
        merged.decided = self.decided + other.decided
        merged.learned = self.learned + other.learned
        merged.origins = self.origins + other.origins
        return merged

    def save(self, path: str | Path) -> None:
        """Write everything to a JSON file: first under another name, then renamed, so that a crash leaves the old file or the new one."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "policy": settings.to_plain(self.policy),
            "seed": self.seed,
            "decided": self.decided,
            "learned": self.learned,
            "origins": list(self.origins),
            "state": states.to_plain(self._state),
            "pending": [decision_to_plain(waiting) for waiting in self._pending.values()],
        }
        write_whole(path, seal(body) + "\n")

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> "Learner":
        """The learner that `save` wrote, bit for bit. A policy of your own class has to be given again."""
        body = _read_sealed(Path(path))
        found: Policy = settings.policy_from(body["policy"], policy, path)
        learner = cls(found, seed=body["seed"])
        state = states.from_plain(body["state"], learner._state)
        if type(found) is LinearPolicy and not states.alike(state, learner._state):
            raise LogError(f"state file must hold a state of its policy; got one of other shapes in {path}.")
        learner._state = state
        learner.decided, learner.learned = body["decided"], body["learned"]
        learner.origins = tuple(body.get("origins", learner.origins))
        waiting = (decision_from_plain(data, found.n_actions, found.dim) for data in body["pending"])
        learner._pending = {pending[1].id: pending for pending in waiting}
        return learner

    @classmethod
    def recover(cls, journal: str | Path, *, policy: Policy | None = None, durable: bool = False) -> "Learner":
        """The learner that wrote a journal, rebuilt from it and ready to go on with it; a policy of your own class has to be given."""
        header = read_header(journal)
        learner = cls(settings.policy_from(header.get("policy"), policy, journal), seed=header.get("seed", 0))
        learner.origins = (str(header.get("origin", learner.origins[0])),)
        learner._open_journal(journal, durable)
        try:
            for line, event in read_events(journal):
                learner._replay(line, event, journal)
        except BaseException:
            learner.close()
            raise
        return learner

    def _replay(self, line: int, event: dict[str, Any], journal: str | Path) -> None:
        try:
            self._take(event)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise LogError(f"{journal} line {line} must be an event of this policy; got {checks.shown(event)} ({error}).") from error

    def _take(self, event: dict[str, Any]) -> None:
        """Do again what an event says was done."""
        if "decision" in event:
            observation, known = decision_from_plain(event, self.policy.n_actions, self.policy.dim)
            self._pending[known.id] = observation, known
            self.decided = max(self.decided, known.id)
        elif "reward_of" in event:
            observation, known = self._waiting(event["reward_of"])
            self._take_in(observation, known, checks.number("reward", event["reward"]))
            del self._pending[known.id]
            self.learned += 1
        else:
            del self._pending[self._waiting(event["forget"])[1].id]


def _is_array(value: object, shape: tuple[int, ...]) -> TypeGuard[Floats]:
    """Whether a value can go to the compiled code as it is, where its numbers are checked. Not if it is read-only: to the compiler that is
    another type, for which all would be compiled again."""
    return type(value) is np.ndarray and value.dtype is FLOAT and value.shape == shape and value.flags.carray


def _reward(value: Any) -> float:
    """A reward as a number of usable size."""
    if isinstance(value, (bool, np.bool_)):
        return float(value)
    return checks.number("reward", value, f"be a finite number of at most {LARGEST:g} in size")


def _read_sealed(path: Path) -> dict[str, Any]:
    """The contents of a state file, once its checksum has been found right."""
    try:
        body, intact = unseal(path.read_bytes())
    except OSError as error:
        raise LogError(f"state file must be readable; got {path} ({error.strerror}).") from error
    except ValueError as error:
        raise LogError(f"state file must be one that Learner.save wrote; got {path}, which is not ({type(error).__name__}).") from error
    if not intact:
        raise LogError(f"state file must be as Learner.save wrote it; got {path}, whose checksum does not match. Restore it from a copy.")
    if body.get("format") != FORMAT or body.get("version") != VERSION:
        raise LogError(
            f"state file must be {FORMAT} version {VERSION}; got {body.get('format')!r} version {body.get('version')!r} in {path}."
        )
    return body
