"""Columns of Arrow tables as arrays of numbers, and the labels of units."""

from typing import Any

import numpy as np

from mebandit.values import Floats, Integers


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
