"""Bandits that act on predicted contexts: learning and deciding when x̃ = x + ε is seen instead of x.

Guo, Xu and Murphy, "Online learning in bandits with predicted context" (AISTATS 2024), and what follows from it.
"""

from mebandit import environments, measurement, schedules
from mebandit.analysis.export import export
from mebandit.analysis.fit import fit
from mebandit.analysis.fit_result import Analysis
from mebandit.analysis.linear_rule import Fitted, LinearRule
from mebandit.analysis.planning.plan import plan
from mebandit.analysis.planning.result import Plan
from mebandit.analysis.sequence import ConfidenceSequence, confidence_sequence
from mebandit.analysis.value import learn_then_value, value
from mebandit.analysis.value_result import Value, Values
from mebandit.checks import ClusterError, InvalidInput, LogError, MebanditError, SingularMoments
from mebandit.estimation.errors_in_variables import errors_in_variables
from mebandit.estimation.estimate import estimate
from mebandit.estimation.history import History
from mebandit.estimation.method_of_moments import MomentsEstimate, estimate_moments
from mebandit.estimation.result import Estimate
from mebandit.live.history import read_journal
from mebandit.live.learner import Learner
from mebandit.live.recovery import JournalCheck, check_journal, repair_journal
from mebandit.live.version import NamedDecision, Version
from mebandit.logs.log import Log
from mebandit.measurement import ErrorModel
from mebandit.policies import greedy, lin_ucb, meb, meb_dr, meb_naive, oracle, replay, robust_ucb, thompson
from mebandit.schedules import clipped, standard
from mebandit.simulation.contracts import check_environment, check_policy
from mebandit.simulation.results import Results
from mebandit.simulation.simulate import simulate, simulate_log
from mebandit.values import Decision, Observation, Round

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "ClusterError",
    "ConfidenceSequence",
    "Decision",
    "ErrorModel",
    "Estimate",
    "Fitted",
    "History",
    "InvalidInput",
    "JournalCheck",
    "Learner",
    "LinearRule",
    "Log",
    "LogError",
    "MebanditError",
    "MomentsEstimate",
    "NamedDecision",
    "Observation",
    "Plan",
    "Results",
    "Round",
    "SingularMoments",
    "Value",
    "Values",
    "Version",
    "check_environment",
    "check_journal",
    "check_policy",
    "clipped",
    "confidence_sequence",
    "environments",
    "errors_in_variables",
    "estimate",
    "estimate_moments",
    "export",
    "fit",
    "greedy",
    "learn_then_value",
    "lin_ucb",
    "measurement",
    "meb",
    "meb_dr",
    "meb_naive",
    "oracle",
    "plan",
    "read_journal",
    "repair_journal",
    "replay",
    "robust_ucb",
    "schedules",
    "simulate",
    "simulate_log",
    "standard",
    "thompson",
    "value",
]
