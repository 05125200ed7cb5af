"""Interrupts, threads and forks: a learner and its journal agree after each of them, bit for bit."""

import copy
import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.policies import states
from mebandit.values import Observation, Round


class TimeOut(BaseException):
    """What a handler of one's own may raise."""


class Shares:
    """A policy of one's own: the actions in proportion to 1 + the number of positive rewards."""

    n_actions, dim = 2, 2

    def init(self) -> dict[str, Any]:
        return {"wins": np.zeros(2), "rounds": 0}

    def propensities(self, state: dict[str, Any], observation: Observation) -> Any:
        weights = (1 + state["wins"]) * observation.allowed
        return weights / weights.sum()

    def update(self, state: dict[str, Any], round: Round) -> dict[str, Any]:
        wins = state["wins"].copy()
        wins[round.action] += round.reward > 0
        return {"wins": wins, "rounds": state["rounds"] + 1}


POLICIES: dict[str, Callable[[], Any]] = {
    "meb": lambda: mb.meb(2, 2, floor=0.1),
    "meb_dr": lambda: mb.meb_dr(2, 2),
    "own": Shares,
}


def known(learner: mb.Learner) -> tuple[Any, ...]:
    """All that a learner knows, as something that compares."""
    state = learner.state
    waiting = [(seen.predicted.tolist(), made.action, made.propensities.tolist()) for seen, made in learner._pending.values()]
    return learner.decided, learner.learned, learner.pending, [np.asarray(leaf).tolist() for leaf in states.leaves(state)], waiting


class Strikes:
    """Signals at random moments, whose handler raises wherever the program is in a call of `within`."""

    def __init__(self, longest: float, rng: random.Random) -> None:
        self.longest, self.rng = longest, rng
        self.count, self.armed = 0, False

    def __enter__(self) -> "Strikes":
        gc.disable()  # finalizers of others run as unfinished calls are, and swallow what strikes them
        self.before = signal.signal(signal.SIGALRM, self.strike)
        self.again()
        return self

    def __exit__(self, *_: object) -> None:
        self.longest = 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        gc.enable()

    def again(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.rng.uniform(min(1e-6, self.longest), self.longest))

    def strike(self, *_: object) -> None:
        self.again()
        if self.armed:
            self.count += 1
            raise TimeOut

    def within(self, work: Callable[[], object]) -> None:
        """Do something that may be struck, also twice or more while it mends itself."""
        try:
            self.armed = True
            work()
        except TimeOut:
            pass
        finally:
            self.armed = False


def use(learner: mb.Learner, rng: random.Random, x: Any) -> None:
    """One call of some kind; the reward depends on the decision alone, so that what is learned twice or not at all shows."""
    waiting = list(learner._pending)  # not `learner.pending`: reading mends what is half done, before the call that has to
    kind = rng.random()
    if kind < 0.5 or not waiting:
        learner.decide(x[learner.decided % len(x)], 0.1 + 0.1 * (learner.decided % 3))
    elif kind < 0.9:
        number = rng.choice(waiting)
        try:
            learner.learn(number, float(np.sin(number)))
        except mb.InvalidInput:  # twice struck, the call before had learned this reward, and left it to this one to note it
            assert number not in learner.pending
    elif kind < 0.95:
        assert learner.state is not None
    else:
        number = rng.choice(waiting)
        try:
            learner.forget(number)
        except mb.InvalidInput:
            assert number not in learner.pending


def warm_up(policy: Any, x: Any) -> None:
    """Compile what is going to be struck: numba keeps its lock for ever where an exception strikes as it is taken."""
    learner, rng = mb.Learner(policy), random.Random(0)
    for _ in range(40):
        use(learner, rng, x)


def replayed(learner: mb.Learner, policy: Any, journal: Path) -> tuple[Any, ...]:
    """What a fresh learner knows that reads the journal."""
    learner.close()
    with mb.Learner.recover(journal, policy=policy) as again:
        return known(again)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_interrupted_calls_leave_a_journal_that_says_what_the_learner_knows(tmp_path: Path, name: str, durable: bool) -> None:
    """Hundreds of strikes on each learner, at any moment of any call, also while it mends what the last one broke."""
    policy, rng, struck = POLICIES[name](), random.Random(f"{name} {durable}"), 0
    x = np.random.default_rng(1).normal(1, 1, (7, 2))
    warm_up(policy, x)
    for run in range(12):
        path = tmp_path / f"{run}.jsonl"
        learner = mb.Learner(policy, seed=run, journal=path, durable=durable)
        use(learner, rng, x)
        with Strikes(rng.choice([2e-5, 1e-4, 5e-4]), rng) as strikes:
            while strikes.count < 250:
                strikes.within(lambda: use(learner, rng, x))  # noqa: B023
        struck += strikes.count
        while learner.decided < 5:
            use(learner, rng, x)
        expected = known(learner)
        assert not mb.check_journal(path, policy=policy).fault
        assert replayed(learner, policy, path) == expected
    assert struck >= 3000


@pytest.mark.parametrize("name", POLICIES)
def test_interrupted_calls_without_a_journal_learn_each_reward_once(name: str) -> None:
    """The number of rounds in the state, the count of rewards and the decisions that wait go together."""
    policy, rng = POLICIES[name](), random.Random(name)
    x = np.random.default_rng(1).normal(1, 1, (7, 2))
    warm_up(policy, x)
    learner = mb.Learner(policy, seed=1)
    with Strikes(1e-4, rng) as strikes:
        while strikes.count < 500:
            strikes.within(lambda: use(learner, rng, x))
    state, pending = learner.state, learner.pending
    learned = state["rounds"] if name == "own" else state.extra[0]
    assert learner.learned == learned
    assert len(pending) == len(set(pending)) <= learner.decided - learner.learned
    assert all(0 < number <= learner.decided for number in pending)


def test_interrupted_files_are_whole_and_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is opened, closed or made while strikes come can be opened by the next one, and a saved file is the old or the new."""
    policy, rng = POLICIES["meb"](), random.Random(1)
    x = np.random.default_rng(1).normal(1, 1, (7, 2))
    journal, saved = tmp_path / "journal.jsonl", tmp_path / "saved.json"
    learner = mb.Learner(policy, journal=journal)
    for _ in range(6):
        use(learner, rng, x)
    learner.close()
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's own would keep the journals whose destructors are struck
    expected, struck = known(learner), 0
    mb.Learner(policy).save(saved)

    def anew() -> None:
        with mb.Learner.recover(journal) as again:
            again.save(saved)
        mb.Learner(policy, journal=tmp_path / "new.jsonl").close()

    for _ in range(300):
        with Strikes(rng.choice([2e-4, 1e-3, 5e-3]), rng) as strikes:
            strikes.within(anew)
            struck += strikes.count
        again = mb.Learner.recover(journal)
        assert known(again) == expected
        with Strikes(rng.choice([2e-5, 5e-5]), rng) as strikes:
            strikes.within(again.close)
        again.close()
        assert known(mb.Learner.load(saved)) in (expected, known(mb.Learner(policy)))
        (tmp_path / "new.jsonl").unlink(missing_ok=True)
    assert struck >= 200
    gc.collect()


class Interrupting:
    """A policy that calls back while it is asked: what a signal handler might do in the middle of a call."""

    n_actions, dim = 2, 1

    def __init__(self) -> None:
        self.call: Callable[[], object] = lambda: None

    def init(self) -> int:
        return 0

    def propensities(self, state: int, observation: Observation) -> Any:
        self.call()
        return observation.allowed / observation.allowed.sum()

    def update(self, state: int, round: Round) -> int:
        self.call()
        return state + 1


def test_a_call_from_within_a_call_is_refused(tmp_path: Path) -> None:
    """It would wait for itself, or take the other's number."""
    policy = Interrupting()
    learner = mb.Learner(policy, journal=tmp_path / "j.jsonl")
    first = learner.decide([1.0], 0.1)
    for inner in (lambda: learner.decide([1.0], 0.1), lambda: learner.learn(first, 1.0), lambda: learner.state, lambda: learner.pending):
        for outer in (lambda: learner.decide([1.0], 0.1), lambda: learner.learn(first, 1.0)):
            policy.call = inner
            with pytest.raises(mb.InvalidInput, match="a learner's calls must come one after the other; got one from within another"):
                outer()
            policy.call = lambda: None
            assert (learner.decided, learner.learned, learner.pending) == (1, 0, (1,))
    learner.learn(first, 1.0)
    assert learner.learned == 1


@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_threads_share_a_learner(tmp_path: Path, name: str, journaled: bool) -> None:
    """Eight threads decide, learn and read at once: every id is given once, every reward is learned once, and the journal agrees."""
    policy, path = POLICIES[name](), tmp_path / "trial.jsonl"
    learner = mb.Learner(policy, seed=3, journal=path if journaled else None)
    learner.learn(learner.decide([1.0, 0.5], 0.2), 1.0)
    ids: list[int] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            for i in range(150):
                decision = learner.decide(rng.normal(1, 1, 2), 0.2 + 0.1 * (i % 3))
                ids.append(decision.id)
                if i % 10 == 3:
                    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in states.leaves(learner.state)])).all()
                learner.learn(decision if i % 2 else decision.id, float(rng.normal()))
        except BaseException as error:  # to be seen by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(ids) == list(range(2, 1202))
    assert (learner.decided, learner.learned, learner.pending) == (1201, 1201, ())
    if journaled:
        expected = known(learner)
        assert replayed(learner, policy, path) == expected


@pytest.mark.parametrize("name", POLICIES)
def test_a_thread_that_is_interrupted_gives_its_turn_to_the_others(tmp_path: Path, name: str) -> None:
    """The main thread is struck a thousand times, while three others use the learner too: no turn is lost, or taken from a call."""
    policy, path, rng, stop = POLICIES[name](), tmp_path / "trial.jsonl", random.Random(name), threading.Event()
    x = np.random.default_rng(1).normal(1, 1, (7, 2))
    warm_up(policy, x)
    learner = mb.Learner(policy, seed=3, journal=path)

    def work(number: int) -> int:
        calls, own = 0, np.random.default_rng(number)
        while not stop.is_set():
            learner.learn(learner.decide(own.normal(1, 1, 2), 0.2), float(own.normal()))
            calls += 1
        return calls

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(work, number) for number in range(3)]
        with Strikes(5e-4, rng) as strikes:
            while strikes.count < 1000:
                strikes.within(lambda: learner.decide(x[0], 0.1))
        stop.set()
        made = sum(other.result() for other in others)
    assert learner.learned == made
    expected = known(learner)
    assert replayed(learner, policy, path) == expected


def test_a_call_that_waited_while_the_learner_was_closed_reaches_no_other_file(tmp_path: Path) -> None:
    """The journal's file number is given to the next file that is opened."""
    policy = Interrupting()
    learner = mb.Learner(policy, journal=tmp_path / "j.jsonl")
    learner.decide([1.0], 0.1)
    turn = learner._turn
    learner.close()
    learner._turn = turn  # as the waiting call has it
    before = (tmp_path / "j.jsonl").read_bytes()
    with open(tmp_path / "another", "w+b", buffering=0) as another:
        another.write(bytes(10_000))
        for _ in range(2):
            with pytest.raises(mb.LogError, match=r"^journal must be open; got .*j\.jsonl, which was closed\.$"):
                learner.decide([1.0], 0.1)
    assert (tmp_path / "another").read_bytes() == bytes(10_000)
    assert (tmp_path / "j.jsonl").read_bytes() == before
    assert learner.decided == 1


class Generating(Shares):
    """A policy whose calls are in generators within generators nearly all the time."""

    def propensities(self, state: dict[str, Any], observation: Observation) -> Any:
        def down(levels: int) -> Iterator[int]:
            if levels:
                yield from down(levels - 1)
                yield levels

        assert sum(sum(down(60)) for _ in range(20)) == 20 * 60 * 61 // 2
        return super().propensities(state, observation)


def test_a_turn_is_not_taken_from_a_call_that_runs_generators() -> None:
    """Another thread that looks for the call which has the turn may miss it: a suspended generator does not say who called it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            learner = mb.Learner(Generating())
            with ThreadPoolExecutor(6) as pool:
                made = list(pool.map(lambda _: learner.decide([1.0, 0.5], 0.1).id, range(30)))  # noqa: B023
            assert sorted(made) == list(range(1, 31))
    finally:
        sys.setswitchinterval(before)


def in_child(work: Callable[[], object]) -> str:
    """What a forked process says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("journaled", [False, True])
def test_a_forked_process_may_only_read_its_copy(tmp_path: Path, journaled: bool) -> None:
    path = tmp_path / "trial.jsonl"
    path.touch()
    learner = mb.Learner(mb.meb(2, 1), seed=1, journal=path if journaled else None)
    made = [learner.decide([1.0], 0.1) for _ in range(3)]
    learner.learn(made[0], 1.0)
    expected, before = known(learner), path.read_bytes()
    refused = "InvalidInput: a learner must be used by the process that made it; got a call in a process forked from that one."
    calls: list[Callable[[], Any]] = [
        lambda: learner.decide([1.0], 0.1),
        lambda: learner.learn(made[1], 1.0),
        lambda: learner.forget(made[1]),
    ]
    for call in calls:
        assert in_child(call).startswith(refused)
    assert in_child(lambda: known(learner)) == str(expected)
    assert in_child(learner.close) == "None"
    assert in_child(lambda: copy.deepcopy(learner).decide([1.0], 0.1).id) == "4"
    assert path.read_bytes() == before
    assert known(learner) == expected
    assert learner.decide([1.0], 0.1).id == 4
    learner.close()
    if journaled:
        with mb.Learner.recover(path) as again:  # no child holds the file
            assert (again.decided, again.learned) == (4, 1)


def test_a_copy_shares_nothing(tmp_path: Path) -> None:
    learner = mb.Learner(mb.meb(2, 1), seed=1)
    learner.learn(learner.decide([1.0], 0.1), 1.0)
    before = known(learner)
    for twin in (copy.copy(learner), copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert known(twin) == before
        twin.learn(twin.decide([1.0], 0.1), 1.0)
        assert known(learner) == before
    with mb.Learner(mb.meb(2, 1), journal=tmp_path / "j.jsonl") as journaled:
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(mb.InvalidInput, match="a learner to be copied must have no journal"):
                make(journaled)
        journaled.decide([1.0], 0.1)


def test_a_waiting_thread_is_served_after_the_other(tmp_path: Path) -> None:
    """While one call is in a slow policy, another waits for it and is not refused."""
    policy = Interrupting()
    learner = mb.Learner(policy)
    policy.call = lambda: time.sleep(0.05)
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(learner.decide([1.0], 0.1).id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [1, 2, 3, 4]
