"""The learner for live use: decide now, learn whenever the reward arrives, save, load, merge."""

import copy
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from secrets import token_hex
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.checks import InvalidInput, LogError
from mebandit.estimation.estimate import solved_estimate
from mebandit.estimation.result import Estimate
from mebandit.kernels import limits
from mebandit.live import snapshots, state_files
from mebandit.live.about import said
from mebandit.live.inputs import is_array, unbiased
from mebandit.live.journal import Journal
from mebandit.live.mending import LEARNERS, finish, go_back
from mebandit.live.replay import going_on, learners
from mebandit.live.state_files import Snapshot
from mebandit.live.turns import TURN, Refused, Turn, takes_turns
from mebandit.live.workspace import workspace_for
from mebandit.measurement import ErrorModel
from mebandit.policies import LinearPolicy, Policy, settings, states
from mebandit.policies.base import label
from mebandit.values import Decision, Finding, Floats, Pending, State

LARGEST = limits.LARGEST
Read = TypeVar("Read")


class Learner:
    """A policy in use: it decides on predicted contexts, and learns from rewards in whatever order they come.

    Every action is drawn with a random number that depends on `seed` and the decision's number alone, so a run can be repeated. A call
    that is refused or interrupted changes nothing. Threads may share a learner: their calls come one after the other. A forked process
    may only read its copy.

    Args:
        policy: what it plays: a recipe such as `meb_dr(2, 5)`, or a class of your own with the methods of `Policy`.
        seed: a whole number from 0; the actions are drawn with it.
        journal: path of a new file to which each event is written before the call returns. `Learner.recover` gives the same learner back
            from it after a crash. None: no journal.
        durable: whether each call also waits until the disk has the event, so that it survives a power failure.

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
        """the histories that its state is made of, each under a random name, so that none is counted twice"""
        self._workspace = workspace_for(policy, self.seed)
        self._pending: dict[int, Pending] = {}
        self._journal: Journal | None = None
        self._everything = np.ones(policy.n_actions, dtype=np.bool_)
        self._x_shape, self._s_shape = (policy.dim,), (policy.dim, policy.dim)
        self._doing: tuple[Any, ...] | None = None
        """while a call changes something: a function, and its arguments, that undo or finish the change if the call is interrupted"""
        self._snapshot_at = snapshots.EVERY
        """bytes of the journal at which the next snapshot is due"""
        self._share()
        if isinstance(policy, LinearPolicy) and policy.rule.needs_environment:
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
        """Close the journal, so that `Learner.recover` can continue it. A learner that had one can then only be read."""
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
        """Copies of all parts but the turns: what `copy` and `pickle` make another learner from."""
        if self._journal is not None:
            remedy = "Save it and load that: Learner.load gives a learner without a journal."
            checks.refuse("a learner to be copied", "have no journal, which takes one writer", str(self._journal.path), remedy)
        return self._at_rest(lambda: copy.deepcopy({name: part for name, part in vars(self).items() if name not in ("_turn", "_reading")}))

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.__dict__.update(parts)
        self._share()

    @takes_turns
    def decide(
        self,
        predicted: ArrayLike,
        error_cov: ArrayLike | ErrorModel,
        *,
        allowed: ArrayLike | None = None,
        unit: str | int | None = None,
        at: date | str | float | None = None,
        note: Mapping[str, str | float | None] | None = None,
    ) -> Decision:
        """Choose an action for a predicted context, and remember the decision until its reward comes.

        Args:
            predicted: x̃, the prediction, (d,).
            error_cov: Σe, the covariance of its error: (d, d), a vector (a diagonal) or a number (times the identity). Or an `ErrorModel`:
                the prediction is then unbiased by it first, and the model's error covariance is used (for a misclassified feature, at
                the class shares of the model). What is remembered, and written to the journal, is the unbiased prediction with that
                covariance: estimates from the journal need no model any more.
            allowed: the actions that may be taken in this round, a list of them or a mask (K,). None: all. The floor holds among them, and
                a single one is taken with probability 1.
            unit: the participant, for whom the journal has a column `unit`. None: not said. No policy reads this or what follows.
            at: the time of the decision, a date, a datetime, a text or a number, for the journal's column `time`. None: not said.
            note: further fields by name (texts, numbers, True, False, None), each a column of the journal's table. None: none.
        """
        x = predicted if is_array(predicted, self._x_shape) else checks.shaped("predicted", predicted, self._x_shape).copy()
        if is_array(error_cov, self._s_shape):
            s = error_cov
        elif isinstance(error_cov, ErrorModel):
            x, s = unbiased(x, error_cov)
        else:
            s = checks.square("error_cov", error_cov, self._policy.dim).copy()
        mask = self._everything if allowed is None else checks.allowed_actions("allowed", allowed, self._policy.n_actions)
        about = "" if unit is None and at is None and note is None else self._about(unit, at, note)
        mine: list[None] = []
        turn = self._turn
        try:
            if turn.setdefault(TURN, mine) is not mine:
                turn.wait(mine)
            try:
                if self._doing is not None:
                    self._settle()
                number, journal = self.decided + 1, self._journal
                if journal is not None and journal.mark.end >= self._snapshot_at:
                    self._keep_snapshot(journal)
                pending = self._workspace.decide(x, s, mask, number)
                if journal is not None:
                    self._doing = go_back, journal.mark, self.decided, self.learned, self._workspace.kept, None
                    journal.write_decision(pending, about)
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

    def _about(self, unit: Any, at: Any, note: Any) -> str:
        """What is said of a decision, for the journal, which must be there."""
        if self._journal is None:
            checks.refuse(
                "unit, at and note", "go with a journal, which keeps them", "a learner without one", "Give the learner a `journal`."
            )
        return said(unit, at, note)

    @takes_turns
    def learn(self, decision: Decision | int, reward: float) -> None:
        """Learn from the reward of a decision, any time after the decision was made and in any order.

        Args:
            decision: what `decide` returned, or its id.
            reward: a finite number.
        """
        mine: list[None] = []
        turn = self._turn
        try:
            if turn.setdefault(TURN, mine) is not mine:
                turn.wait(mine)
            try:
                if self._doing is not None:
                    self._settle()
                number = decision.id if type(decision) is Decision else None
                pending = self._pending.get(number) if type(number) is int else None
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
        """Learn from one finished round.

        Without a journal the workspace changes and counts in one step that no interrupt can divide. With one, a reward that cannot be
        learned from must not be in the journal, and one that cannot be written there must not be learned.
        """
        observation, decision = pending
        workspace, journal = self._workspace, self._journal
        if journal is None:
            self._doing = finish, pending
            workspace.learn(observation, decision, reward)
        else:
            if journal.mark.end >= self._snapshot_at:
                self._keep_snapshot(journal)
            self._doing = go_back, journal.mark, self.decided, self.learned, workspace.kept, pending
            workspace.branch()
            workspace.learn(observation, decision, reward)
            journal.write_reward(decision.id, reward)
        del self._pending[decision.id]
        self.learned += 1
        self._doing = None

    def _keep_snapshot(self, journal: Journal) -> None:
        """Write what is known now, before the next event. A policy that is a class of your own has none: its code may change."""
        self._snapshot_at = journal.mark.end + snapshots.EVERY
        if not settings.has_own(settings.to_plain(self.policy)):
            snapshots.write(journal.path, journal.mark, self._workspace.state, self.decided, self.learned, sorted(self._pending))

    def forget(self, decision: Decision | int) -> None:
        """Give up on a decision (or its id) whose reward will never come: nothing is learned from it, and it takes no more memory."""
        self._in_turn(self._turn, lambda: self._give_up(decision))

    def _give_up(self, decision: Decision | int) -> None:
        pending, journal = self._waiting(decision), self._journal
        if journal is not None:
            self._doing = go_back, journal.mark, self.decided, self.learned, self._workspace.kept, pending
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
        """The result of `read`, called while no other call changes anything."""
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
        """The policy that it plays."""
        return self._policy

    @property
    def seed(self) -> int:
        """The seed of its random numbers."""
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
    def state(self) -> State:
        """A copy of the policy's state."""
        return self._at_rest(lambda: states.copied(self._workspace.state))

    @property
    def theta(self) -> Floats:
        """The fitted parameters that the next decision reads, (K, d)."""
        if not hasattr(self.policy, "theta"):
            checks.refuse("policy", "have a method theta(state), to give its parameters", type(self.policy).__name__)
        return np.asarray(self.policy.theta(self.state))

    @property
    def diagnostics(self) -> tuple[Finding, ...]:
        """What speaks against trusting it, each with a verdict ("green", "yellow", "red") and a sentence. A policy of your own has them
        if it has a method `diagnostics(state)`."""
        found = getattr(self.policy, "diagnostics", None)
        return () if found is None else tuple(found(self.state))

    def estimate(self) -> Estimate:
        """The estimate from all rounds so far. Standard errors need the rounds themselves and are NaN here: keep a journal, and give what
        `read_journal` reads from it to `mebandit.estimate`."""
        if not isinstance(self.policy, LinearPolicy) or not self.policy.rule.estimates:
            checks.refuse("policy", "be a linear one that keeps what it learns, to give an estimate", label(self.policy))
        policy, estimator = self.policy, self.policy.estimator
        return solved_estimate(
            policy.moments(self.state), method=estimator.method, ridge=estimator.ridge, guard=estimator.guard, intercept=policy.intercept
        )

    def merge(self, other: "Learner") -> "Learner":
        """A new learner that knows what both have learned, such as two sites that ran the same policy. Sums add in the order self, other.

        It continues with this learner's seed and waiting decisions; those of `other` still wait there. Learners with a history in
        common, such as two copies of one learner, are refused, since its rounds would count twice.
        """
        if not isinstance(other, Learner) or other.policy != self.policy:
            checks.refuse("the learner to merge", "run the same policy", checks.shown(getattr(other, "policy", other)))
        if set(self.origins) & set(other.origins):
            remedy = "Its rounds would count twice."
            checks.refuse("the learner to merge", "know other rounds", "one that has a history in common with this one", remedy)
        if not hasattr(self.policy, "merge"):
            checks.refuse("policy", "have a method merge(state, state), to be merged", type(self.policy).__name__)
        own, others = self._at_rest(self._snapshot), other._at_rest(other._snapshot)
        merged = own._replace(
            decided=own.decided + others.decided,
            learned=own.learned + others.learned,
            origins=own.origins + others.origins,
            state=self.policy.merge(own.state, others.state),
        )
        return Learner._from(merged)

    def save(self, path: str | Path) -> None:
        """Write everything to a JSON file: first under another name, then renamed, so that a crash leaves the old file or the new one.

        Args:
            path: path of the file. A file that is there already is replaced.
        """
        state_files.write(path, self._at_rest(self._snapshot))

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> "Learner":
        """The learner that `save` wrote, bit for bit.

        Args:
            path: path of the file that `save` wrote.
            policy: the policy, needed where it is a class of your own or has a schedule of your own. None: the one that the file describes.
        """
        path = checks.path("state file", path)
        with state_files.blamed(path):
            return cls._from(state_files.read(path, policy, (token_hex(8),)))

    def _snapshot(self) -> Snapshot:
        """All that it knows, copied."""
        state = states.copied(self._workspace.state)
        return Snapshot(self.policy, self.seed, self.decided, self.learned, self.origins, state, dict(self._pending))

    @classmethod
    def _from(cls, known: Snapshot) -> "Learner":
        """A learner that knows what a snapshot holds."""
        learner = cls(known.policy, seed=known.seed)
        learner._workspace.restore(known.state, known.learned)
        learner.decided, learner.learned, learner.origins, learner._pending = known.decided, known.learned, known.origins, known.pending
        return learner

    @classmethod
    def recover(cls, journal: str | Path, *, policy: Policy | None = None, durable: bool = False, verify: bool = True) -> "Learner":
        """The learner that wrote a journal, rebuilt from it and ready to continue it.

        Beside a long journal, a learner keeps a snapshot: a file with the journal's name and `.snapshot` at its end. With it, only the
        events after the snapshot are repeated, and the same learner comes back, bit for bit. Every line of the journal is nevertheless
        checked, and a snapshot that is damaged, or not of this journal, is ignored.

        Args:
            journal: path of the journal.
            policy: the policy, needed where it is a class of your own or has a schedule of your own. None: the one that the journal names.
            durable: as in `Learner`.
            verify: whether every decision that is repeated is reproduced from policy and seed and compared with the journal. False: for a
                journal of another version of mebandit, whose policy decided differently. Every line is checked against its checksum in any
                case. `check_journal` reproduces all decisions.
        """
        opened = Journal.open(journal, durable=durable)
        try:
            with opened.reading() as file:
                kept = snapshots.read(opened.path, file, cls._from) if policy is None else None
            if kept is None:
                lines = opened.lines()
                start, repeated = 0, learners(cls, next(lines), lines, journal, policy=policy, verify=verify)
            else:
                learner, last = kept
                start, repeated = last.mark.end, going_on(learner, opened.lines(last), journal, verify=verify)
            for found in repeated:
                learner, last = found
            opened.cut(last.mark)  # a torn last line
            learner._snapshot_at = start + snapshots.EVERY
        except BaseException:
            opened.close()
            raise
        learner._journal = opened
        return learner
