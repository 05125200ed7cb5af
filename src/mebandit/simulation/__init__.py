"""Policies in simulated worlds: the loop, its results, and the engine for GPUs."""
