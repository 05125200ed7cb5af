"""Policies: from what has been learned to action probabilities. `recipes` has the usual ones, `linear` what they are made of."""

from mebandit.policies.base import Policy, replay
from mebandit.policies.contexts import BestLinear
from mebandit.policies.estimators import MEB, Calibrated, LeastSquares, Naive
from mebandit.policies.linear import LinearPolicy
from mebandit.policies.recipes import (
    bayes_oracle,
    greedy,
    lin_ucb,
    meb,
    meb_dr,
    meb_naive,
    oracle,
    robust_ucb,
    thompson,
    uniform,
)
from mebandit.policies.rules import UCB, BayesOracle, Greedy, Oracle, Robust, Thompson, Uniform

__all__ = [
    "MEB",
    "UCB",
    "BayesOracle",
    "BestLinear",
    "Calibrated",
    "Greedy",
    "LeastSquares",
    "LinearPolicy",
    "Naive",
    "Oracle",
    "Policy",
    "Robust",
    "Thompson",
    "Uniform",
    "bayes_oracle",
    "greedy",
    "lin_ucb",
    "meb",
    "meb_dr",
    "meb_naive",
    "oracle",
    "replay",
    "robust_ucb",
    "thompson",
    "uniform",
]
