"""The colours of methods and policies: each has the same one in every figure."""

from collections.abc import Iterable

PALETTE = {
    "blue": "#3579c8",
    "green": "#239b62",
    "orange": "#d9780f",
    "red": "#d9483b",
    "purple": "#9463c4",
    "brown": "#a56a3a",
    "teal": "#1497a5",
    "pink": "#d0589a",
    "olive": "#84901f",
    "grey": "#7d8793",
}
"""each has a contrast of at least 3 with a white page and with a dark one"""

NAMED = {
    "meb": "blue", "MEB": "blue", "dr": "green", "MEB-DR": "green", "naive": "orange", "MEB-naive": "orange",
    "ridge": "grey", "rc": "purple", "ips": "red", "snips": "orange",
    "UCB": "red", "TS": "purple", "UCB + intercept": "red", "TS + intercept": "purple", "LS + intercept": "brown",
    "Greedy": "olive", "RobustUCB": "teal",
}  # fmt: skip
"""the colours of names that are known; an estimator has that of the policy which decides by it"""


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: its own where the name is known, and for the others the first that is free, in their order."""
    names = list(dict.fromkeys(names))
    taken = {NAMED[name] for name in names if name in NAMED}
    free = [colour for colour in PALETTE if colour not in taken] or list(PALETTE)
    others = [name for name in names if name not in NAMED]
    own = NAMED | {name: free[i % len(free)] for i, name in enumerate(others)}
    return {name: PALETTE[own[name]] for name in names}
