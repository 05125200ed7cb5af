"""What a caller says of a decision beside its prediction: who, when, and fields of its own. The journal keeps it; no policy reads it."""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from mebandit import checks

RESERVED = ("decision", "action", "reward", "propensity", "unit", "time")
NUMBERED = ("predicted_", "propensity_", "allowed_", "error_cov_")
"""columns of a journal's table: names, and how others begin"""

LONGEST = 10_000
"""characters of what is said of a decision"""

LARGEST = 2**63 - 1
"""the largest whole number that a column can hold"""


def said(unit: Any, at: Any, note: Any) -> str:
    """What is said of a decision as the end of a journal's line, each part checked; nothing if nothing is said.

    Args:
        unit: The participant, a text or a whole number; None: not said.
        at: The time, a date, a datetime, a text or a number; None: not said.
        note: Further fields by name: texts, numbers, True, False or None.
    """
    parts: dict[str, Any] = {}
    if unit is not None:
        if isinstance(unit, bool) or not isinstance(unit, (str, int, np.integer)) or unit == "":
            checks.refuse("unit", "be a text or a whole number that names the participant", checks.shown(unit))
        parts["unit"] = unit if isinstance(unit, str) else checks.integer("unit", unit, -LARGEST, LARGEST)
    if at is not None:
        isoformat = at.isoformat() if isinstance(at, date) and at == at else at  # pandas' NaT is a date that equals nothing
        rule = "be a date, a time, a text or a number"
        parts["at"] = isoformat if isinstance(isoformat, str) and isoformat else checks.number("at", isoformat, rule)
    if note is not None:
        parts["note"] = _checked(note)
    text = json.dumps(parts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        checks.refuse("unit, at and note", "be texts of whole characters", ascii(text), "Half a character cannot be written as UTF-8.")
    if len(text) > LONGEST:
        checks.refuse("unit, at and note", f"have at most {LONGEST:,} characters together", f"{len(text):,}")
    return "," + text[1:-1] if parts else ""


def _checked(note: Any) -> dict[str, Any]:
    """Fields by name, each a value that JSON and a column can hold."""
    if not isinstance(note, Mapping):
        checks.refuse("note", "be fields by name, such as {'ward': 3}", checks.shown(note))
    found: dict[str, Any] = {}
    for name, value in note.items():
        if not isinstance(name, str) or not name.strip() or name in RESERVED or name.startswith(NUMBERED):
            checks.refuse("the fields of note", f"have names other than those of the journal's columns ({', '.join(RESERVED)})", repr(name))
        if not (value is None or isinstance(value, (str, bool, np.bool_))):
            checks.number(f"note[{name!r}]", value, "be a text, a number, True, False or None")
            if isinstance(value, (int, np.integer)):
                checks.integer(f"note[{name!r}]", value, -LARGEST, LARGEST)
        found[name] = value.item() if isinstance(value, np.generic) else value
    return found


def columns_of(events: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What was said of some decisions as columns: unit, time, and a column for each field of the notes; None where nothing was said.

    Args:
        events: The decisions as the journal has them.
    """
    columns = {"unit": [event.get("unit") for event in events], "time": [event.get("at") for event in events]}
    notes = [event.get("note") or {} for event in events]
    columns |= {name: [note.get(name) for note in notes] for name in dict.fromkeys(name for note in notes for name in note)}
    return {name: _of_one_kind(values) for name, values in columns.items() if any(value is not None for value in values)}


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Values that one column can hold: numbers are floats unless all are whole, and all are texts where they are of several kinds."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) == 1 else [None if value is None else str(value) for value in values]
