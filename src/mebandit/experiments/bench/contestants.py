"""The contestants of `mebandit bench live`: every library with the same two methods, each in a process of its own.

This module is also a script. The interpreter that has the library runs it, and need not have mebandit: only numpy is imported.

    python contestants.py                    print the contestants of this interpreter as JSON
    python contestants.py NAME TASKS.npz     play: read lines with [task, first round, last round], answer with the seconds and the actions

Each library is used in the way its documentation shows for decisions that come one at a time, with its usual linear method.
"""

import json
import os
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

EPSILON = 0.1
"""the share of rounds in which ε-greedy policies act at random"""


class Player(Protocol):
    """The interface of all contestants: decide on a context, then learn from the reward of that decision."""

    def decide(self, x: Any) -> int:
        """The action to take."""
        ...

    def learn(self, x: Any, action: int, reward: float) -> None:
        """Learn from the last decision."""
        ...


class Ours:
    """`mebandit.Learner` with the true error covariance. Its floor makes it explore as often as the others."""

    def __init__(self, recipe: str, dim: int, n_actions: int, error_cov: Any) -> None:
        mb = import_module("mebandit")
        self.learner = mb.Learner(getattr(mb, recipe)(n_actions, dim, floor=EPSILON / n_actions), seed=1)
        self.error_cov = error_cov

    def decide(self, x: Any) -> int:
        self.decision = self.learner.decide(x, self.error_cov)
        return int(self.decision.action)

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.learner.learn(self.decision, reward)


class PlainNumpy:
    """A plain LinUCB: an inverse for each action, updated by the Sherman-Morrison formula, without any checks."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.inverse = [np.eye(dim) for _ in range(n_actions)]
        self.target = [np.zeros(dim) for _ in range(n_actions)]
        self.theta = [np.zeros(dim) for _ in range(n_actions)]

    def decide(self, x: Any) -> int:
        scores = [theta @ x + np.sqrt(x @ inverse @ x) for theta, inverse in zip(self.theta, self.inverse, strict=True)]
        return int(np.argmax(scores))

    def learn(self, x: Any, action: int, reward: float) -> None:
        inverse, target = self.inverse[action], self.target[action]
        pulled = inverse @ x
        inverse -= np.outer(pulled, pulled) / (1.0 + x @ pulled)
        target += reward * x
        self.theta[action] = inverse @ target


class Mabwiser:
    """LinUCB of mabwiser."""

    def __init__(self, dim: int, n_actions: int) -> None:
        mab = import_module("mabwiser.mab")
        self.mab = mab.MAB(list(range(n_actions)), mab.LearningPolicy.LinUCB(alpha=1.0), seed=1)
        self.mab.fit(np.zeros(1, dtype=int), np.zeros(1), np.zeros((1, dim)))  # it must be fitted before it predicts

    def decide(self, x: Any) -> int:
        return int(self.mab.predict(x[None]))

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.mab.partial_fit(np.array([action]), np.array([reward]), x[None])


class River:
    """LinUCB of river."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.policy = import_module("river.bandit").LinUCBDisjoint(seed=1)
        self.arms, self.names = list(range(n_actions)), [f"x{i}" for i in range(dim)]

    def decide(self, x: Any) -> int:
        self.context = dict(zip(self.names, x.tolist(), strict=True))
        return int(self.policy.pull(self.arms, context=self.context))

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.policy.update(action, self.context, reward)


class ContextualBandits:
    """LinUCB of contextualbandits."""

    def __init__(self, dim: int, n_actions: int) -> None:
        online = import_module("contextualbandits.online")
        self.policy = online.LinUCB(n_actions, alpha=1.0, fit_intercept=False, use_float=False, random_state=1)

    def decide(self, x: Any) -> int:
        return int(self.policy.predict(x[None])[0])

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.policy.partial_fit(x[None], np.array([action]), np.array([reward]))


class OpenBanditPipeline:
    """LinUCB of the Open Bandit Pipeline."""

    def __init__(self, dim: int, n_actions: int) -> None:
        linear = import_module("obp.policy.linear")
        self.policy = linear.LinUCB(dim=dim, n_actions=n_actions, epsilon=1.0, random_state=1)

    def decide(self, x: Any) -> int:
        return int(self.policy.select_action(x[None])[0])

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.policy.update_params(action, reward, x[None])


class Pymab:
    """LinUCB of pymab, whose contexts have a row for each action; here all rows are equal."""

    def __init__(self, dim: int, n_actions: int) -> None:
        policies = import_module("pymab.policies")
        self.policy = policies.LinUCBPolicy(n_arms=n_actions, n_features=dim)
        self.rng, self.rows = np.random.default_rng(1), (n_actions, 1)

    def decide(self, x: Any) -> int:
        self.context = np.tile(x, self.rows)
        return int(self.policy.select_action(rng=self.rng, context=self.context))

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.policy.update(action=action, reward=reward, context=self.context)


class Vowpal:
    """SquareCB of Vowpal Wabbit, with lines of text as in its tutorials. Features of actions (`adf`) are crossed with the context."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.vw = import_module("vowpalwabbit").Workspace("--cb_explore_adf --squarecb -q UA --quiet --random_seed 1")
        self.arms, self.actions = range(n_actions), [f"|A {a}" for a in range(n_actions)]
        self.rng = random.Random(1)

    def decide(self, x: Any) -> int:
        self.shared = "shared |U " + _features(x)
        self.chances = self.vw.predict([self.shared, *self.actions])
        return self.rng.choices(self.arms, self.chances)[0]

    def learn(self, x: Any, action: int, reward: float) -> None:
        lines = [self.shared, *self.actions]
        lines[1 + action] = f"0:{-reward}:{self.chances[action]} {self.actions[action]}"
        self.vw.learn(lines)


class VowpalFixed:
    """ε-greedy SGD of Vowpal Wabbit for a fixed set of actions, without features of actions, which is faster."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.vw = import_module("vowpalwabbit").Workspace(f"--cb_explore {n_actions} --epsilon {EPSILON} --quiet --random_seed 1")
        self.arms, self.rng = range(n_actions), random.Random(1)

    def decide(self, x: Any) -> int:
        self.line = "| " + _features(x)
        self.chances = self.vw.predict(self.line)
        return self.rng.choices(self.arms, self.chances)[0]

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.vw.learn(f"{action + 1}:{-reward}:{self.chances[action]} {self.line}")


class VowpalNext:
    """SquareCB of vowpal-wabbit-next, whose examples are built from arrays, which is faster than text; otherwise as `Vowpal`."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.next = import_module("vowpal_wabbit_next")
        self.vw = self.next.Workspace(["--cb_explore_adf", "--squarecb", "--quadratic=UA", "--random_seed=1"])
        self.indices = _indices(self.vw, dim, "U")
        parser = self.next.TextFormatParser(self.vw)
        self.actions = [parser.parse_line(f"|A {a}") for a in range(n_actions)]
        self.rng = random.Random(1)

    def decide(self, x: Any) -> int:
        shared = self.next.Example()
        shared.set_label(self.next.CBLabel(shared=True))
        shared["U"].push_many_features(self.indices, x.astype(np.float32))
        self.examples = [shared, *self.actions]
        action, self.chance = _drawn(self.vw.predict_one(self.examples), self.rng.random())
        return action

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.actions[action].set_label(self.next.CBLabel(label=(0, -reward, self.chance)))
        self.vw.learn_one(self.examples)
        self.actions[action].set_label(self.next.CBLabel())


class VowpalNextFixed:
    """ε-greedy SGD of vowpal-wabbit-next for a fixed set of actions, without features of actions, which is faster."""

    def __init__(self, dim: int, n_actions: int) -> None:
        self.next = import_module("vowpal_wabbit_next")
        self.vw = self.next.Workspace([f"--cb_explore={n_actions}", f"--epsilon={EPSILON}", "--random_seed=1"])
        self.indices = _indices(self.vw, dim, " ")
        self.rng = random.Random(1)

    def decide(self, x: Any) -> int:
        self.example = self.next.Example()
        self.example.set_label(self.next.CBLabel())
        self.example[" "].push_many_features(self.indices, x.astype(np.float32))
        action, self.chance = _drawn(self.vw.predict_one(self.example), self.rng.random())
        return action

    def learn(self, x: Any, action: int, reward: float) -> None:
        self.example.set_label(self.next.CBLabel(label=(action + 1, -reward, self.chance)))
        self.vw.learn_one(self.example)


def _features(x: Any) -> str:
    """A context as text for Vowpal Wabbit."""
    return " ".join(f"{i}:{value}" for i, value in enumerate(x.tolist()))


def _indices(vw: Any, dim: int, namespace: str) -> Any:
    return np.array([vw.get_index_for_scalar_feature(str(i), namespace_name=namespace) for i in range(dim)], dtype=np.uint64)


def _drawn(chances: Any, u: float) -> tuple[int, float]:
    """The action in whose share of (0, 1) u falls, from pairs of action and probability in any order, and that probability."""
    for pair in chances:
        u -= pair[1]
        if u < 0:
            break
    return int(pair[0]), float(pair[1])


class Contestant(NamedTuple):
    """A contestant: its library, its method and its class."""

    library: str
    """the name that pip knows"""
    module: str
    method: str
    make: Callable[..., Player]


OURS = {
    "meb_dr": "MEB-DR, the default",
    "meb": "MEB, the paper's",
    "lin_ucb": "LinUCB",
    "greedy": "least squares, ε-greedy",
}
PEERS = {
    "numpy": Contestant("numpy", "numpy", "LinUCB in a plain loop, nothing checked", PlainNumpy),
    "pymab": Contestant("pymab", "pymab", "LinUCB", Pymab),
    "river": Contestant("river", "river", "LinUCB (LinUCBDisjoint)", River),
    "obp": Contestant("obp", "obp", "LinUCB", OpenBanditPipeline),
    "contextualbandits": Contestant("contextualbandits", "contextualbandits", "LinUCB", ContextualBandits),
    "mabwiser": Contestant("mabwiser", "mabwiser", "LinUCB", Mabwiser),
    "vw-next": Contestant("vowpal-wabbit-next", "vowpal_wabbit_next", "SquareCB (cb_explore_adf)", VowpalNext),
    "vw-next-fixed": Contestant("vowpal-wabbit-next", "vowpal_wabbit_next", "SGD, ε-greedy (cb_explore)", VowpalNextFixed),
    "vw": Contestant("vowpalwabbit", "vowpalwabbit", "SquareCB (cb_explore_adf)", Vowpal),
    "vw-fixed": Contestant("vowpalwabbit", "vowpalwabbit", "SGD, ε-greedy (cb_explore)", VowpalFixed),
}
CONTESTANTS = {name: Contestant("mebandit", "mebandit", method, Ours) for name, method in OURS.items()} | PEERS


def available() -> dict[str, str]:
    """The contestants whose library this interpreter has, with its version."""
    return {name: _version(c.library) for name, c in CONTESTANTS.items() if find_spec(c.module) is not None}


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "?"


def players(name: str, tasks: Any) -> list[Player]:
    """A fresh player for each task of the file."""
    shapes = [(tasks[f"contexts_{i}"].shape[1], tasks[f"rewards_{i}"].shape[1]) for i in range(int(tasks["n"]))]
    if name in OURS:
        return [Ours(name, dim, n_actions, tasks[f"error_cov_{i}"]) for i, (dim, n_actions) in enumerate(shapes)]
    return [CONTESTANTS[name].make(dim, n_actions) for dim, n_actions in shapes]


def play(player: Player, contexts: Any, rewards: Any) -> tuple[float, list[int]]:
    """Seconds for some rounds, one at a time, and the actions taken."""
    rounds, actions = list(zip(contexts, rewards.tolist(), strict=True)), []
    begun = perf_counter()
    for x, reward in rounds:
        action = player.decide(x)
        player.learn(x, action, reward[action])
        actions.append(action)
    return perf_counter() - begun, actions


def answer(name: str, path: str) -> None:
    """Play what the lines of standard input ask for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is not an answer
    with np.load(path) as file:
        tasks = dict(file)
    made = players(name, tasks)
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        task, first, last = json.loads(line)
        found = play(made[task], tasks[f"contexts_{task}"][first:last], tasks[f"rewards_{task}"][first:last])
        print(json.dumps(found), file=answers)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        answer(*sys.argv[1:])
    else:
        print(json.dumps(available()))
