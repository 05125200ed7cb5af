"""Environments: worlds in which policies can be compared."""

from mebandit.environments.base import Environment, draw_tape
from mebandit.environments.examples import Example21, ExampleB1, ExampleB2
from mebandit.environments.gaussian import Gaussian
from mebandit.environments.heartsteps import HeartSteps

__all__ = ["Environment", "Example21", "ExampleB1", "ExampleB2", "Gaussian", "HeartSteps", "draw_tape"]
