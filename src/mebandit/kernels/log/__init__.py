"""Kernels for stored logs.

A log is `estimation.moments.Rounds`; its stabilizer, errors (packed) and allowed hold one entry for all rounds, or one for each. Its
predictions are x[i, t], feature by feature, so that loops over rounds run through memory in order.
"""
