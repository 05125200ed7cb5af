"""Rows that break no rule and are left out: where the participant was not available, and where the outcome is missing."""

from typing import NamedTuple

import numpy as np

from mebandit.values import Booleans, Floats

SEGMENTS = 20
"""parts of the time of a log, in which missing outcomes are counted"""

LEAST_OBSERVED = 1e-3
"""probability that an outcome is observed, at least: a round would otherwise stand for more than a thousand"""


class LeftOut(NamedTuple):
    """What is counted of such rows."""

    unavailable: int
    """rows in which the participant was not available"""
    missing: Floats
    """rows without an outcome, by action and twentieth of the time, (K, 20); in the first twentieth if the log has no time"""
    eligible: Floats
    """all rows that should have one, likewise"""

    def merge(self, other: "LeftOut") -> "LeftOut":
        """The counts of both."""
        return LeftOut(self.unavailable + other.unavailable, self.missing + other.missing, self.eligible + other.eligible)

    @property
    def rows(self) -> int:
        """How many rows are left out."""
        return self.unavailable + int(self.missing.sum())


def nothing_left_out(n_actions: int) -> LeftOut:
    """No rows, and none counted."""
    return LeftOut(0, np.zeros((n_actions, SEGMENTS)), np.zeros((n_actions, SEGMENTS)))


def counted(unavailable: int, missing: Booleans, kept: Booleans, actions: Floats, times: Floats, n_actions: int) -> LeftOut:
    """The counts of some rows.

    Args:
        unavailable: Rows that are left out since the participant was not available.
        missing: Which rows have no outcome, (n,).
        kept: Which rows should have one, (n,).
        actions: The action of each row, (n,); NaN where it is not known.
        times: The time of each row, from 0 to 1, (n,); empty if the log has no time.
        n_actions: K.
    """
    known = kept & (actions >= 0) & (actions < n_actions)
    part = np.zeros(actions.size, dtype=np.int64)
    if times.size:
        known &= ~np.isnan(times)
        part = np.clip(np.nan_to_num(times) * SEGMENTS, 0, SEGMENTS - 1).astype(np.int64)
    place = np.where(known, np.nan_to_num(actions) * SEGMENTS + part, 0).astype(np.int64)
    absent, eligible = (np.bincount(place[own], minlength=n_actions * SEGMENTS).astype(float) for own in (known & missing, known))
    return LeftOut(unavailable, absent.reshape(n_actions, SEGMENTS), eligible.reshape(n_actions, SEGMENTS))
