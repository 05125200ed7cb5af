"""Simulated environments in which policies can be compared."""

from mebandit.environments.base import Environment, draw_tape
from mebandit.environments.classified import Misclassified
from mebandit.environments.drifting import Drifting
from mebandit.environments.examples import Example21, ExampleB1, ExampleB2, SmallError
from mebandit.environments.gaussian import Gaussian
from mebandit.environments.heartsteps import HeartSteps
from mebandit.environments.misspecified import Autocorrelated, Berkson, Nonlinear
from mebandit.environments.reported import Estimated, Misreported

__all__ = [
    "Autocorrelated", "Berkson", "Drifting", "Environment", "Estimated", "Example21", "ExampleB1", "ExampleB2", "Gaussian", "HeartSteps",
    "Misclassified", "Misreported", "Nonlinear", "SmallError", "draw_tape",
]  # fmt: skip
