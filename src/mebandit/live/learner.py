"""The stateful face for live use: decide now, learn whenever the reward arrives, save, load, merge."""

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any, Self, TypeGuard, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks, kernels
from mebandit.checks import InvalidInput, LogError
from mebandit.estimation.estimators import Estimate, solved_estimate
from mebandit.kernels import layout, limits
from mebandit.live.journal import Journal, Line, Mark, decision_from_plain, decision_to_plain, next_id
from mebandit.live.turns import TURN, Refused, Turn, takes_turns
from mebandit.policies import LinearPolicy, Policy, settings, states
from mebandit.policies.base import label
from mebandit.policies.desk import Desk
from mebandit.runtime.files import seal, unseal, write_whole
from mebandit.values import Booleans, Decision, Floats, Observation, Pending, Round, State

FORMAT, VERSION = "mebandit-learner", 1
FLOAT, LARGEST = np.dtype(np.float64), limits.LARGEST
Read = TypeVar("Read")
CLOSE = 1e-9
"""how far probabilities computed again may be from those of a journal: another processor's mathematical functions round otherwise"""


class Learner:
    """A policy that is being used: it decides on predicted contexts and learns from rewards in whatever order they come.

    Every draw is a function of `seed` and the decision's number, so a run can be repeated. With a `journal` (a path) each event is on
    disk before the call returns, and `Learner.recover` gives the same learner back after a crash. A call that is refused or interrupted
    changes nothing. Threads may share a learner: their calls come one after the other. A forked process may only read its copy.

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
        self._doing: tuple[Any, ...] | None = None
        """while a call changes something: a function, and its arguments, that undo or finish the change if the call is interrupted"""
        self._share()
        if isinstance(policy, LinearPolicy) and policy.rule in ("oracle", "bayes_oracle") and policy.known_theta is None:
            checks.refuse("policy", "know theta, to be used live", f"{policy.name!r} without it", "Give it: oracle(..., theta=...).")
        if journal is not None:
            header = {"policy": settings.to_plain(policy), "seed": self.seed, "origin": self.origins[0]}
            self._journal = Journal.create(journal, header, durable=durable)

    def _share(self) -> None:
        """Let the threads of this process use the learner in turns, and no process that is forked from it."""
        self._reading = Turn()
        """for calls that only read"""
        self._turn = self._reading
        """for calls that change something"""
        LEARNERS.add(self)

    def close(self) -> None:
        """Give the journal back, for another learner to go on with; this one can then only be read, if it had one."""
        if self._journal is not None:
            self._at_rest(self._journal.close)
            self._turn = Refused(LogError(f"journal must be open; got {self._journal.path}, which was closed."))

    def _leave_to_parent(self) -> None:
        """In a forked process: the journal belongs to the process that opened it, and so do the numbers of decisions."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        remedy = "Make one there, with a seed and a journal of its own, or copy this one with copy.deepcopy."
        words = f"a learner must be used by the process that made it; got a call in a process forked from that one. {remedy}"
        self._turn, self._reading = Refused(InvalidInput(words)), Turn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """All but the turns, copied: what `copy` and `pickle` make another learner from."""
        if self._journal is not None:
            remedy = "Save it and load that: Learner.load gives a learner without a journal."
            checks.refuse("a learner to be copied", "have no journal, which takes one writer", str(self._journal.path), remedy)
        return self._at_rest(lambda: copy.deepcopy({name: part for name, part in vars(self).items() if name not in ("_turn", "_reading")}))

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.__dict__.update(parts)
        self._share()

    @takes_turns
    def decide(self, predicted: ArrayLike, error_cov: ArrayLike, *, allowed: ArrayLike | None = None) -> Decision:
        """Choose an action for a predicted context (d,) whose error has covariance error_cov (d, d).

        error_cov may also be a number (times the identity) or a vector (a diagonal). `allowed` restricts the round to some actions, as a
        list of them or a mask: the floor then holds among these, and a single one is taken with probability 1.
        """
        x = predicted if _is_array(predicted, self._x_shape) else checks.shaped("predicted", predicted, self._x_shape).copy()
        s = error_cov if _is_array(error_cov, self._s_shape) else checks.square("error_cov", error_cov, self._policy.dim).copy()
        mask = self._everything if allowed is None else checks.allowed_actions("allowed", allowed, self._policy.n_actions)
        mine: list[None] = []
        turn = self._turn
        try:
            if turn.setdefault(TURN, mine) is not mine:
                turn.wait(mine)
            try:
                if self._doing is not None:
                    self._settle()
                number, journal = self.decided + 1, self._journal
                pending = self._propose(x, s, mask, number) if self._desk is None else self._desk.decide(x, s, mask, number)
                if journal is not None:
                    self._doing = _go_back, journal.mark, self.decided, self.learned, self._memory, None
                    journal.write_decision(pending)
                self._pending[number] = pending
                self.decided = number
                self._doing = None
            except BaseException:
                self._settle()
                raise
            turn.clear()
            return pending[1]
        except BaseException:
            if TURN in turn and turn[TURN] is mine:
                turn.clear()
            raise

    def _propose(self, x: Floats, s: Floats, mask: Booleans, number: int) -> Pending:
        """A decision that is not yet made, by the methods of the policy."""
        x = checks.floats("predicted", x, (self._policy.dim,)).copy()
        s = checks.covariance("error_cov", s, self._policy.dim).copy()
        u, luck = kernels.uniform_pair(self._seed, 0, 0, number, kernels.LIVE)
        observation = Observation(x, s, mask, number, luck)
        pi = checks.probabilities("propensities", self._policy.propensities(self._held, observation), mask).copy()
        pi.setflags(write=False)
        action = kernels.draw(pi, u)
        return observation, Decision(number, action, float(pi[action]), pi)

    @takes_turns
    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of a decision (or of its id), any time after it was made and in any order."""
        mine: list[None] = []
        turn = self._turn
        try:
            if turn.setdefault(TURN, mine) is not mine:
                turn.wait(mine)
            try:
                if self._doing is not None:
                    self._settle()
                pending = self._pending.get(decision.id) if type(decision) is Decision and type(decision.id) is int else None
                if pending is None or pending[1] is not decision:  # seldom: mostly the decision itself comes back
                    pending = self._waiting(decision)
                r = reward if type(reward) is float and abs(reward) <= LARGEST else checks.reward(reward)
                self._take_in(pending, r)
            except BaseException:
                self._settle()
                raise
            turn.clear()
        except BaseException:
            if TURN in turn and turn[TURN] is mine:
                turn.clear()
            raise

    def _take_in(self, pending: Pending, reward: float) -> None:
        """Move the state on by one finished round. Without a journal a desk is changed in place, in one call that no interrupt can divide;
        what cannot be learned from must not be in the journal, and what cannot be written there not be learned."""
        observation, decision = pending
        desk, journal = self._desk, self._journal
        if desk is not None and journal is None:
            self._doing = _finish, pending
            desk.learn(observation, decision, reward)
        else:
            memory = self._memory
            self._doing = _go_back, None if journal is None else journal.mark, self.decided, self.learned, memory, pending
            if desk is None:
                self._held = self._policy.update(memory, Round(observation, decision.action, decision.propensities, reward))
            else:
                desk.words = memory.copy()
                desk.learn(observation, decision, reward)
            if journal is not None:
                journal.write_reward(decision.id, reward)
        del self._pending[decision.id]
        self.learned += 1
        self._doing = None

    def forget(self, decision: Decision | int) -> None:
        """Give up on a decision whose reward will never come: it teaches nothing and takes no more memory."""
        self._in_turn(self._turn, lambda: self._give_up(decision))

    def _give_up(self, decision: Decision | int) -> None:
        pending, journal = self._waiting(decision), self._journal
        if journal is not None:
            self._doing = _go_back, journal.mark, self.decided, self.learned, self._memory, pending
            journal.write_forgotten(pending[1].id)
        del self._pending[pending[1].id]
        self._doing = None

    def _settle(self) -> None:
        """Undo, or finish, what an interrupted call has left half done. This may be interrupted itself: the next call begins with it."""
        if self._doing is not None:
            mend, *arguments = self._doing
            mend(self, *arguments)
            self._doing = None

    def _at_rest(self, read: Callable[[], Read]) -> Read:
        """What `read` gives while no call changes anything."""
        return self._in_turn(self._reading, read)

    @takes_turns
    def _in_turn(self, turn: Turn, work: Callable[[], Read]) -> Read:
        """Do something while no other call does; `decide` and `learn` do the same without a function call more."""
        mine: list[None] = []
        try:
            if turn.setdefault(TURN, mine) is not mine:
                turn.wait(mine)
            try:
                self._settle()
                return work()
            except BaseException:
                self._settle()
                raise
        finally:
            if TURN in turn and turn[TURN] is mine:
                turn.clear()

    def _waiting(self, decision: Decision | int) -> Pending:
        number = decision.id if isinstance(decision, Decision) else decision
        number = int(number) if isinstance(number, np.integer) else number
        known = self._pending.get(number) if type(number) is int else None
        if known is None:
            made = type(number) is int and 0 < number <= self.decided
            state = "one that has its reward already or was given up" if made else f"{checks.shown(number)}, which this learner never made"
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
        return len(self.pending)

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        return self._at_rest(lambda: tuple(self._pending))

    @property
    def _memory(self) -> Any:
        """What learning changes: the words of the desk, or the state that the policy has handed out."""
        return self._held if self._desk is None else self._desk.words

    @_memory.setter
    def _memory(self, memory: Any) -> None:
        if self._desk is None:
            self._held = memory
        else:
            self._desk.words = memory

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
        return self._at_rest(lambda: states.copied(self._state))

    @property
    def theta(self) -> Floats:
        """The fitted parameters that the next decision reads, (K, d)."""
        if not hasattr(self.policy, "theta"):
            checks.refuse("policy", "have a method theta(state), to give its parameters", type(self.policy).__name__)
        return np.asarray(self.policy.theta(self.state))

    def estimate(self) -> Estimate:
        """The estimate from all that was learned so far. Standard errors need the rounds themselves and are NaN here: keep a journal and
        give it to `mebandit.estimate`."""
        if not isinstance(self.policy, LinearPolicy) or self.policy.rule not in ("greedy", "ucb", "thompson"):
            checks.refuse("policy", "be a linear one that keeps what it learns, to give an estimate", label(self.policy))
        policy = self.policy
        return solved_estimate(
            policy.moments(self.state), method=policy.method, ridge=policy.ridge, guard=policy.guard, intercept=policy.intercept
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
        merged._pending, merged.decided, merged.learned, own = self._at_rest(
            lambda: (dict(self._pending), self.decided, self.learned, states.copied(self._state))
        )
        decided, learned, others = other._at_rest(lambda: (other.decided, other.learned, states.copied(other._state)))
        merged._state = self.policy.merge(own, others)
        merged.decided += decided
        merged.learned += learned
        merged.origins = self.origins + other.origins
        return merged

    def save(self, path: str | Path) -> None:
        """Write everything to a JSON file: first under another name, then renamed, so that a crash leaves the old file or the new one."""
        write_whole(path, seal(self._at_rest(self._to_plain)) + "\n")

    def _to_plain(self) -> dict[str, Any]:
        return {
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

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> "Learner":
        """The learner that `save` wrote, bit for bit. A policy of your own class has to be given again."""
        body = _read_sealed(checks.path("state file", path))
        try:
            return cls._from_plain(body, policy, path)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise LogError(f"state file must hold a learner that can be; got {path}, in which this is wrong: {reason}.") from error

    @classmethod
    def _from_plain(cls, body: dict[str, Any], policy: Policy | None, path: str | Path) -> "Learner":
        """A learner from the contents of a state file, each held against the others."""
        found: Policy = settings.policy_from(body["policy"], policy, path)
        learner = cls(found, seed=body["seed"])
        state = states.from_plain(body["state"], learner._state)
        learner.decided = checks.integer("decided", body["decided"], 0, layout.NEVER)
        learner.learned = checks.integer("learned", body["learned"], 0, learner.decided)
        if type(found) is LinearPolicy:
            if not states.alike(state, learner._state):
                raise LogError(f"state file must hold a state of its policy; got one of other shapes in {path}.")
            found.check_state(state)
            if state.extra[layout.LEARNED] != learner.learned:
                checks.refuse("learned", f"be what its state has counted, {state.extra[layout.LEARNED]:g}", learner.learned)
        learner._state = state
        learner.origins = tuple(str(origin) for origin in body.get("origins", learner.origins))
        for data in body["pending"]:
            pending = decision_from_plain(data, found.n_actions, found.dim)
            latest = max(learner._pending, default=0)
            checks.integer("the id of a waiting decision", pending[1].id, latest + 1, learner.decided)
            learner._pending[pending[1].id] = pending
        checks.integer("learned", learner.learned, 0, learner.decided - len(learner._pending))
        return learner

    @classmethod
    def recover(cls, journal: str | Path, *, policy: Policy | None = None, durable: bool = False, verify: bool = True) -> "Learner":
        """The learner that wrote a journal, rebuilt from it and ready to go on with it; a policy of your own class has to be given.

        Every line is held against its checksum, and every decision, computed again, against what policy and seed give. `verify=False`
        leaves the second out, for a journal of another version, whose policy decided differently.
        """
        opened = Journal.open(journal, durable=durable)
        try:
            lines = opened.lines()
            for found in cls.from_lines(next(lines), lines, journal, policy=policy, verify=verify):
                learner, last = found
            opened.cut(last.mark)  # a torn last line
        except BaseException:
            opened.close()
            raise
        learner._journal = opened
        return learner

    @classmethod
    def from_lines(
        cls, first: Line, lines: Iterator[Line], name: object, *, policy: Policy | None = None, verify: bool = True
    ) -> Iterator[tuple["Learner", Line]]:
        """The learner that wrote a journal, after its first line and after each of the others; a LogError at one that it cannot have
        written."""
        header = first.event
        try:
            learner = cls(settings.policy_from(header.get("policy"), policy, name), seed=header.get("seed", 0))
        except InvalidInput as error:
            raise LogError(f"{name} line 1 must name a policy and a seed; got {checks.shown(header)} ({error}).") from error
        learner.origins = (str(header.get("origin", learner.origins[0])),)
        yield learner, first
        for line in lines:
            try:
                learner._repeat(line.event, verify)
            except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
                received = f"{checks.shown(line.event)} ({error})"
                raise LogError(f"{name} line {line.number} must be an event of this policy; got {received}.") from error
            yield learner, line

    def _repeat(self, event: dict[str, Any], verify: bool) -> None:
        """Do again what an event says was done."""
        if "decision" in event:
            pending = decision_from_plain(event, self.policy.n_actions, self.policy.dim)
            number = next_id(self.decided, pending[1].id)
            if verify:
                self._verify(pending)
            self._pending[number] = pending
            self.decided = number
        elif "reward_of" in event:
            self._take_in(self._waiting(event["reward_of"]), checks.number("reward", event["reward"]))
        else:
            del self._pending[self._waiting(event["forget"])[1].id]

    def _verify(self, pending: Pending) -> None:
        """Hold a decision of a journal against what policy and seed give for what was seen."""
        (x, s, allowed, number, luck), known = pending
        observation, again = (self._propose if self._desk is None else self._desk.decide)(x, s, allowed, number)
        if luck != observation.luck:
            checks.refuse("luck", f"be that of the seed and the decision, {observation.luck!r}", repr(luck))
        if not np.abs(known.propensities - again.propensities).max() <= CLOSE:
            remedy = "Was it written by another version? Learner.recover(..., verify=False) takes it as it is."
            rule = f"be those that the policy gives, {checks.shown(again.propensities)}"
            checks.refuse("propensities", rule, checks.shown(known.propensities), remedy)
        if known.action != kernels.draw(known.propensities, kernels.uniform_pair(self._seed, 0, 0, number, kernels.LIVE)[0]):
            checks.refuse("action", "be the one drawn with the seed from these propensities", known.action)


def _go_back(learner: Learner, mark: Mark | None, decided: int, learned: int, memory: Any, taken: Pending | None) -> None:
    """Journal and memory as they were before a call; `taken` is the decision that it took out of those that wait."""
    if mark is not None and learner._journal is not None:
        learner._journal.go_back(mark)
    learner._memory = memory
    learner._pending.pop(decided + 1, None)
    if taken is not None and taken[1].id not in learner._pending:
        learner._pending = dict(sorted([*learner._pending.items(), (taken[1].id, taken)]))
    learner.decided, learner.learned = decided, learned


def _finish(learner: Learner, pending: Pending) -> None:
    """Note that a decision has its reward, if a desk that is changed in place has learned from it."""
    assert learner._desk is not None
    if learner._desk.learned > learner.learned:
        learner._pending.pop(pending[1].id, None)
        learner.learned = learner._desk.learned


LEARNERS: "WeakSet[Learner]" = WeakSet()
"""those of this process"""


def _after_fork() -> None:
    for learner in list(LEARNERS):
        learner._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _is_array(value: object, shape: tuple[int, ...]) -> TypeGuard[Floats]:
    """Whether a value can go to the compiled code as it is, where its numbers are checked. Not if it is read-only: to the compiler that is
    another type, for which all would be compiled again."""
    return type(value) is np.ndarray and value.dtype is FLOAT and value.shape == shape and value.flags.carray


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
