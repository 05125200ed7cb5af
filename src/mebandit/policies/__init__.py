"""Policies: rules for acting on predicted contexts."""

from mebandit.policies.base import Policy, replay
from mebandit.policies.linear import (
    LinearPolicy,
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

__all__ = [
    "LinearPolicy",
    "Policy",
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
