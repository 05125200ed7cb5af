"""What a log consists of: files, found in folders, and tables in memory."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.estimation.history import History
from mebandit.live.history import read_journal
from mebandit.logs.pieces import CSV, CSV_BYTES, PARQUET, is_utf8, parquet_file, reason


def parts_of(log: Any) -> list[Any]:
    """Files in the order in which they are read, each once, or tables in memory."""
    try:
        parts, seen = _parts(log), set[Path]()
    except RecursionError:
        checks.refuse("log", "be no list within itself", checks.shown(log))
    for path in (Path(os.path.realpath(name_of(part))) for part in parts if not isinstance(part, tuple) or part[0].endswith(".jsonl")):
        if path in seen:
            raise LogError(f"a file must be in a log only once; got {path.name} again. Name the files or their folder.")
        seen.add(path)
    return parts


def _parts(log: Any) -> list[Any]:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise checks.MebanditError(
            "To read logs, pyarrow must be installed; got none. Install it with: pip install 'mebandit[all]'"
        ) from error
    if isinstance(log, pa.Table):
        return [("the table", log)]
    if isinstance(log, History):
        return [("the journal", log.to_arrow())]
    if isinstance(log, Mapping):
        return [("the table", _table_of(log))]
    if hasattr(log, "to_parquet") and hasattr(log, "columns"):
        return [("the table", _arrow(lambda: pa.Table.from_pandas(log, preserve_index=False)))]
    if isinstance(log, (str, Path)):
        return files_of(checks.path("log", log))
    if isinstance(log, Sequence) and log:
        return [part for each in log for part in _parts(each)]
    return checks.refuse("log", "be a path, a list of paths, a table, or arrays by name", checks.shown(log))


def _table_of(arrays: Mapping[str, Any]) -> Any:
    """Arrays by name as a table; a two-dimensional one is a column for each of its own: name_0, name_1, ..."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, value in arrays.items():
        array = _array(name, value)
        if array.ndim > 2 or array.ndim == 0:
            checks.refuse(f"log[{name!r}]", "have one or two dimensions", f"shape {array.shape}")
        columns |= {name: array} if array.ndim == 1 else {f"{name}_{i}": np.ascontiguousarray(array[:, i]) for i in range(array.shape[1])}
    if len({len(column) for column in columns.values()}) > 1:
        checks.refuse("log", "have arrays of one length", ", ".join(f"{name}: {len(column)}" for name, column in columns.items()))
    return _arrow(lambda: pa.table(columns))


def _array(name: str, value: Any) -> Any:
    """A column, or several, of a table of arrays."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        received = f"{checks.shown(value)} ({reason(error)})"
        raise LogError(f"log[{name!r}] must be an array, or lists of equal lengths; got {received}.") from error


def _arrow(make: Callable[[], Any]) -> Any:
    """What pyarrow makes of a table in memory; or one sentence."""
    import pyarrow as pa

    try:
        return make()
    except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise LogError(f"the table must have columns of numbers or labels, each with its own name; got {reason(error)}.") from error


def files_of(path: Path) -> list[Any]:
    """The files of a log, by whose names pyarrow can open them."""
    files = _found(path)
    for name in (str(file) for file in files if isinstance(file, Path)):
        if name.encode(errors="replace").decode() != name:
            raise LogError(f"the names of files of a log must be UTF-8; got {name!r}. Give it another.")
    return files


def _found(path: Path) -> list[Any]:
    if path.is_dir():
        found = (file for file in path.rglob("*") if file.suffix in (*PARQUET, *CSV) and not file.is_dir())
        files = sorted(file for file in found if not file.name.startswith((".", "_")))
        if not files:
            raise LogError(f"a folder of logs must hold .parquet or .csv files; got none in {path}.")
        return [*files]
    if not path.is_file():
        raise LogError(f"log must be a file or a folder that exists; got {path}.")
    if path.suffix == ".jsonl":
        return [(str(path), read_journal(path).to_arrow())]
    if path.suffix not in (*PARQUET, *CSV):
        raise LogError(f"log must be a .parquet, .csv, .tsv or .jsonl file; got {path}.")
    return [path]


def schema_of(part: Any) -> Any:
    """The names and types of a part's columns; those of a CSV are not known beforehand."""
    import pyarrow as pa
    from pyarrow import csv

    if isinstance(part, tuple):
        return part[1].schema
    if part.suffix in PARQUET:
        return parquet_file(part).schema_arrow
    try:
        handler = (lambda _: "skip") if is_utf8(part, blocks=1) else None
        options = csv.ParseOptions(delimiter="\t" if part.suffix == ".tsv" else ",", invalid_row_handler=handler)
        reader = csv.open_csv(part, read_options=csv.ReadOptions(block_size=CSV_BYTES), parse_options=options)
        return pa.schema([(name, pa.null()) for name in reader.schema.names])
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise LogError(f"{part} must be a UTF-8 CSV with a header; got one that cannot be read ({reason(error)}).") from error


SNIFFED = 1000
"""rows that tell what a column holds: numbers, dates or words"""


def first_rows(part: Any, names: Sequence[str]) -> Any:
    """Some columns of the first rows of a part, as a table; those of a CSV as text. What cannot be read gives no rows: reading it all
    will say why."""
    import pyarrow as pa
    from pyarrow import csv

    if isinstance(part, tuple):
        return part[1].select(names).slice(0, SNIFFED)
    nothing = pa.table({name: pa.array([], pa.string()) for name in names})
    try:
        if part.suffix in PARQUET:
            with parquet_file(part) as file:
                found = next(file.iter_batches(SNIFFED, columns=list(names)), None)
            return nothing if found is None else pa.Table.from_batches([found])
        options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=list(names), strings_can_be_null=True)
        parse = csv.ParseOptions(delimiter="\t" if part.suffix == ".tsv" else ",", invalid_row_handler=lambda _: "skip")
        with csv.open_csv(part, read_options=csv.ReadOptions(block_size=CSV_BYTES), parse_options=parse, convert_options=options) as reader:
            return pa.Table.from_batches([reader.read_next_batch().slice(0, SNIFFED)])
    except (OSError, StopIteration, UnicodeDecodeError, pa.ArrowException):
        return nothing


def name_of(part: Any) -> str:
    return str(part[0] if isinstance(part, tuple) else part)


def check_readable_elsewhere(parts: Sequence[Any]) -> None:
    """Refuse what the workers of a cluster cannot read for themselves: what is in memory here, or has to be read from its beginning."""
    for part in parts:
        if isinstance(part, tuple) or part.suffix not in PARQUET:
            remedy = "Write it as Parquet, or compute on this machine."
            checks.refuse("a log that a cluster reads", "be Parquet files", name_of(part), remedy)
