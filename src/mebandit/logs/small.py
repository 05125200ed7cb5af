"""Small files, read at once: validation pairs, replicates, matrices."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.logs.cells import numbers
from mebandit.logs.columns import Columns, check_names, check_types
from mebandit.logs.fault import Fault
from mebandit.logs.parts import files_of, schema_of
from mebandit.logs.pieces import PARQUET, parquet_file, reason
from mebandit.values import Floats


def read_numbers(path: str | Path, names: Sequence[str]) -> Floats:
    """Some columns of a small file as an array, (n, columns); what is no number is an error that says where."""
    table = _read(checks.path("the file", path), names)
    values = np.column_stack([numbers(table[name].combine_chunks()) for name in names])
    for t, i in np.argwhere(~np.isfinite(values)):
        raw = table[names[i]][int(t)].as_py()
        raise LogError(str(Fault(str(path), int(t) + 1, names[i], "be a finite number", "nothing" if raw is None else repr(raw))))
    return values


def read_matrix(path: Path) -> Floats:
    """The numbers of a CSV without a header, (rows, columns)."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of an empty file, which is refused below
            values = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise LogError(f"{path} must be a CSV of numbers without a header; got one that cannot be read ({reason}).") from error
    if not values.size:
        raise LogError(f"{path} must be a CSV of numbers without a header; got none in it.")
    return values


def read_labels(path: str | Path, name: str) -> list[str]:
    """One column of a small file, as labels; a row without one is an error that says where."""
    labels = _read(checks.path("the file", path), [name])[name].to_pylist()
    for t, label in enumerate(labels):
        if label is None or not str(label).strip():
            raise LogError(str(Fault(str(path), t + 1, name, "name a subject", "nothing")))
    return [str(label) for label in labels]


def _read(path: Path, names: Sequence[str]) -> Any:
    """Some columns of a file as a table in memory, those of a CSV as text."""
    import pyarrow as pa
    from pyarrow import csv

    files_of(path)
    columns = Columns(predicted=tuple(names), action=names[0], reward=names[0], propensity=(names[0],))
    check_names(schema_of(path), columns, str(path))
    check_types(schema_of(path), columns, str(path))
    try:
        if path.suffix in PARQUET:
            table = parquet_file(path).read(columns=list(dict.fromkeys(names)))
        else:
            types = dict.fromkeys(names, pa.string())
            options = csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=True)
            table = csv.read_csv(path, convert_options=options)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise LogError(f"{path} must be a file that can be read; got {reason(error)}.") from error
    if not table.num_rows:
        raise LogError(f"{path} must hold at least one row; got none.")
    return table
