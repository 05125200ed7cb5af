"""Bandits that act on predicted contexts: learning and deciding when x̃ = x + ε is seen instead of x."""

from mebandit import environments, schedules
from mebandit.checks import InvalidInput, LogError, MebanditError, SingularMoments
from mebandit.estimators import Estimate, estimate, estimate_moments
from mebandit.policies import greedy, lin_ucb, meb, meb_naive, oracle, robust_ucb, thompson
from mebandit.results import Results
from mebandit.schedules import clipped, standard
from mebandit.simulate import simulate

