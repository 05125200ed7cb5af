"""Columns of Arrow tables as arrays of numbers, and the labels of units."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from mebandit.values import Booleans, Floats, Integers

MICROSECONDS = 86_400e6
"""in a day"""


def numbers(column: Any) -> Floats:
    """A column as floats, NaN where it is empty or holds what is no number."""
    found = np.empty(len(column))
    write_numbers(found, column)
    return found


def write_numbers(out: Floats, column: Any) -> None:
    """`numbers` into an array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_floating(column.type) or holds_integers(column)):
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            out[:] = [_number(value) for value in column.to_pylist()]
            return
    out[:] = column.to_numpy(zero_copy_only=False)


def holds_integers(column: Any) -> bool:
    """Whether nothing else is in a column."""
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type)) and not column.null_count


def _number(text: object) -> float:
    """A value as a number; True and False, in any case of letters, are 1 and 0 as they are in types that have them."""
    if isinstance(text, str) and text.strip().lower() in ("true", "false"):
        return float(text.strip().lower() == "true")
    if isinstance(text, str) and (not text.isascii() or "_" in text):  # which Python would read as digits
        return np.nan
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return np.nan


def days(column: Any) -> Floats:
    """A column of dates or times as days since 1970, NaN where it is empty or holds neither. Without a time zone, UTC is meant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        found = pc.cast(column, pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
        microseconds = pc.cast(found, pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(microseconds.to_numpy(zero_copy_only=False)) / MICROSECONDS
    encoded = column.dictionary_encode()
    known = np.array([_day(value) for value in encoded.dictionary.to_pylist()] + [np.nan])
    return np.asarray(known[encoded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)])


def _day(text: object) -> float:
    """A date such as 2024-03-01, or a time such as 2024-03-01T08:30, in days since 1970; NaN for what is neither."""
    if not isinstance(text, str) or len(text.strip()) < len("2024-03-01"):
        return np.nan
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return np.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() / 86_400


def kind_of(column: Any) -> str:
    """What a column of some rows holds: "number", "date" or "words". One number among words is enough to make it numbers: the words are
    then errors."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return "number"
    seen = {text.strip() for text in column.unique().to_pylist() if text is not None and text.strip()}
    if not seen or any(_is_number(text) for text in seen):
        return "number"
    return "date" if all(np.isfinite(_day(text)) for text in seen) else "words"


def _is_number(text: str) -> bool:
    """Whether a text stands for a number, finite or not."""
    return text.lower() in ("nan", "inf", "-inf", "na", "null") or not np.isnan(_number(text))


def empty_cells(column: Any) -> Booleans:
    """Which cells of a column hold nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False), dtype=np.bool_)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found |= np.array([text is not None and text.strip() in ("", "NA", "NaN", "nan") for text in column.to_pylist()], dtype=np.bool_)
    return found


def labels(column: Any) -> tuple[Integers, list[Any]]:
    """For each row the number of its label, -1 if it has none, and the labels."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    encoded = column.dictionary_encode()
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    labels, place = np.unique([_label(value) for value in encoded.dictionary.to_pylist()], return_inverse=True)
    return np.where(indices < 0, -1, place[np.maximum(indices, 0)] if place.size else -1), labels.tolist()


def _label(value: object) -> str:
    """A unit's label as text, so that 7 in one file and "7" in another are one unit."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
