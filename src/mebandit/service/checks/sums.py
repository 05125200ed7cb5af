"""What is summed up of every decision of an experiment, from its first one on: how low probabilities were, and the test martingale of the
actions."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mebandit.values import Floats

DAYS = 14
"""of which the decisions are counted by day"""
LAMBDA = np.array([sign * 4.0**j for j in (0.5, -0.5, -1.5, -2.5, -3.5) for sign in (1, -1)])
"""λ of the martingales, (10,): ±2, ±1/2, ..., ±1/128"""
BLOCK = 10_000
"""decisions of a martingale that begins anew"""
DRAWN = "learned", "warmup", "fallback"
"""the modes in which the service drew the action"""


def log_mean(values: Any) -> float:
    """log of the mean of exp(values), without overflow."""
    top = float(np.max(values))
    return top + float(np.log(np.mean(np.exp(np.asarray(values) - top))))


class Martingale:
    """Evidence against "the actions were drawn with the stored probabilities", valid however often it is looked at.

    If A_t is drawn with the probabilities π_t, which may depend on everything before, then for every action a, every λ and both bets
    b(π) = 1 and b(π) = 2π - 1

        L_t(a, b, λ) = exp Σ_{s<=t} ( λ b(π_s(a)) 1{A_s = a} - log(1 + π_s(a) (exp(λ b(π_s(a))) - 1)) )

    is a martingale with L_0 = 1, since E exp(c 1{A = a}) = 1 + π(a) (e^c - 1). So is their mean L_t over actions, bets and a grid of λ. The
    first bet sees an action that is taken too often, the second one that is taken too rarely where it is probable and too often where it
    is not. A martingale that starts at the first decision would not see a fault that begins after millions of decisions, so half of the
    stake is spread over blocks of 10,000 decisions: block k gets w_k = 1/(k (k+1)) and L^(k) begins anew with it. Since
    Σ_{j>k} w_j = 1/(k+1), after t decisions, in block k,

        E_t = L_t / 2 + (Σ_{j<k} w_j L^(j)_end + w_k L^(k)_t + 1/(k+1)) / 2

    is a martingale with E_0 = 1, and by Ville's inequality P(E_t >= 1/α for any t) <= α.
    """

    def __init__(self, n_actions: int, plain: dict[str, Any] | None = None) -> None:
        self.n_actions = n_actions
        told = plain or {}
        shape = (n_actions, 2 * len(LAMBDA))
        self.n: int = told.get("n", 0)
        self.taken, self.expected = (np.array(told.get(name, np.zeros(n_actions)), dtype=np.float64) for name in ("taken", "expected"))
        self.logs, self.block = (np.array(told.get(name, np.zeros(shape)), dtype=np.float64) for name in ("logs", "block"))
        self.done: float = told.get("done", float("-inf"))
        """log Σ w_j L^(j) of the blocks that ended"""
        self.worst: list[float] = told.get("worst", [0.0, 0.0])
        """the block with the largest L^(j) among those that ended, and the logarithm of that"""

    def plain(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        arrays = {name: getattr(self, name).tolist() for name in ("taken", "expected", "logs", "block")}
        return arrays | {"n": self.n, "done": self.done, "worst": self.worst}

    def add(self, propensities: Floats, actions: Sequence[int]) -> None:
        """Take in decisions.

        Args:
            propensities: π_t(a), (n, K).
            actions: what was drawn, n numbers from 0.
        """
        start = 0
        while start < len(actions):
            end = min(len(actions), start + BLOCK - self.n % BLOCK)
            pi, hit = propensities[start:end], np.asarray(actions[start:end])[:, None] == np.arange(self.n_actions)
            levels, places = np.unique(pi.round(12), return_inverse=True)  # probabilities repeat: one logarithm for each
            bets = np.hstack([np.broadcast_to(LAMBDA, (len(levels), len(LAMBDA))), (2 * levels[:, None] - 1) * LAMBDA])
            costs = np.log1p(levels[:, None] * np.expm1(bets))
            grown = np.empty_like(self.logs)
            for a, own in enumerate(places.reshape(pi.shape).T):
                taken = np.bincount(own, hit[:, a], len(levels))
                grown[a] = taken @ bets - np.bincount(own, minlength=len(levels)) @ costs
            self.logs += grown
            self.block += grown
            self.taken += hit.sum(axis=0)
            self.expected += pi.sum(axis=0)
            self.n += end - start
            if self.n % BLOCK == 0:
                self._end_block(self.n // BLOCK)
            start = end

    def _end_block(self, k: int) -> None:
        found = log_mean(self.block)
        self.done = float(np.logaddexp(self.done, found - np.log(k * (k + 1.0))))
        if found > self.worst[1]:
            self.worst = [float(k), found]
        self.block = np.zeros_like(self.block)

    @property
    def log_evidence(self) -> float:
        """log E_t."""
        k = self.n // BLOCK + 1
        blocks = np.logaddexp(self.done, log_mean(self.block) - np.log(k * (k + 1.0)))
        return float(np.logaddexp(log_mean(self.logs), np.logaddexp(blocks, -np.log(k + 1.0))) - np.log(2.0))


class Sums:
    """What is kept of all decisions of an experiment.

    Args:
        n_actions: K.
        floor: the smallest probability that the policy may give.
        plain: what `plain` gave.
    """

    def __init__(self, n_actions: int, floor: float, plain: dict[str, Any] | None = None) -> None:
        told = plain or {}
        self.n_actions, self.floor = n_actions, floor
        self.modes: dict[str, int] = dict(told.get("modes", {}))
        self.least: float = told.get("least", 1.0)
        self.below: int = told.get("below", 0)
        self.below_of: str = told.get("below_of", "")
        """one decision whose probability is below the floor"""
        self.days: dict[str, dict[str, int]] = told.get("days", {})
        """decisions of the last days, by the day in UTC and by mode"""
        self.service, self.clients = (Martingale(n_actions, told.get(who)) for who in ("service", "clients"))

    def plain(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        names = "modes", "least", "below", "below_of", "days"
        return {name: getattr(self, name) for name in names} | {"service": self.service.plain(), "clients": self.clients.plain()}

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take in decisions, each (name, mode, action, propensities, allowed, received_at)."""
        made = list(rows)
        for (mode, day), n in Counter((row[1], row[5][:10]) for row in made).items():
            self.modes[mode] = self.modes.get(mode, 0) + n
            counts = self.days.setdefault(day, {})
            counts[mode] = counts.get(mode, 0) + n
        self.days = {day: self.days[day] for day in sorted(self.days)[-DAYS:]}
        for martingale, modes in ((self.service, DRAWN), (self.clients, ("external",))):
            own = [row for row in made if row[1] in modes and row[2] is not None]
            if own:
                martingale.add(vectors(row[3] for row in own), [row[2] for row in own])
        learned = [row for row in made if row[1] == "learned"]
        if learned:
            pi = vectors(row[3] for row in learned)
            if any(row[4] != learned[0][4] for row in learned) or len(json.loads(learned[0][4])) < self.n_actions:
                allowed = np.zeros(pi.shape, dtype=np.bool_)
                for i, row in enumerate(learned):
                    allowed[i, json.loads(row[4])] = True
                pi = np.where(allowed, pi, np.inf)
            least = pi.min(axis=1)
            below = np.flatnonzero(least < self.floor - 1e-12)
            self.least = min(self.least, float(least.min()))
            self.below += len(below)
            if len(below):
                self.below_of = str(learned[below[0]][0])


def vectors(texts: Iterable[str]) -> Floats:
    """Lists of numbers, stored as JSON, as one array."""
    return np.array(json.loads("[" + ",".join(texts) + "]"), dtype=np.float64)
