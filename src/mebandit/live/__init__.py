"""A policy in use: the learner, its journal, and what brings both back after a crash."""
