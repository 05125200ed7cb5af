"""Where the rows of a log come from, in pieces of bounded size: Parquet, CSV, a folder of either, a journal, tables and arrays."""

import codecs
import difflib
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.live.history import Log, read_journal
from mebandit.values import Floats

ROWS = 65_536
"""rows in a block"""
PARQUET_BYTES = 48 << 20
"""bytes of a Parquet file that are decoded at a time, by all workers together: large steps cost less than small ones"""
CSV_BYTES = 8 << 20
"""bytes of a CSV that are parsed at a time"""


PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".gz")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a log hold what."""

    predicted: tuple[str, ...]
    """x̃, one column for each feature"""
    action: str = "action"
    reward: str = "reward"
    propensity: tuple[str, ...] = ("propensity",)
    """π(a) of the action taken; or π of every action in turn, zero where it was not allowed"""
    unit: str | None = None
    """whose rounds they are, for clustered standard errors"""
    error: tuple[str, ...] = ()
    """what varies in Σe: a variance for each feature (a number stands for itself), or the lower triangle row by row"""

    @property
    def numbers(self) -> list[str]:
        """the columns that hold numbers, each once"""
        named = [*self.predicted, self.action, self.reward, *self.propensity, *(name for name in self.error if constant(name) is None)]
        return list(dict.fromkeys(named))

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*self.numbers, *([self.unit] if self.unit else [])]))


def constant(name: str) -> float | None:
    """The number that a column's name stands for, if it is one."""
    try:
        return float(name)
    except ValueError:
        return None


class Fault(NamedTuple):
    """A row that breaks a rule."""

    file: str
    row: int
    column: str
    rule: str
    value: str

    def __str__(self) -> str:
        column = f" column {self.column!r}" if self.column else ""
        return f"{self.file} row {self.row}{column} must {self.rule}; got {self.value}."


class Piece(NamedTuple):
    """A part of a log that can be read by itself."""

    file: str
    start: int
    """rows of its file before it"""
    before: int
    """rows of the log before its file"""
    read: Callable[[], Iterable[Any]]
    """its record batches"""
    torn: tuple[Fault, ...] = ()
    """rows of this part of the file that could not even be split into columns"""


class Unparsable(Exception):
    """A CSV holds something that is no number where numbers are meant: it has to be read as text."""


def name_of(part: Any) -> str:
    return str(part[0] if isinstance(part, tuple) else part)


def version_of(path: Path) -> tuple[int, int]:
    """Size and time of a file, by which one notices that it was changed."""
    try:
        found = path.stat()
    except OSError as error:
        raise LogError(f"{path} must be there until its analysis is over; got none ({_reason(error)}).") from error
    return found.st_size, found.st_mtime_ns


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


def batches_of(piece: Piece) -> Iterator[Any]:
    """The record batches of a piece; what goes wrong while reading it names the file and the row."""
    import pyarrow as pa

    start = piece.start
    try:
        for batch in piece.read():
            yield batch
            start += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{piece.file} must be readable throughout; got damaged data after row {start} ({_reason(error)}).") from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:160].rstrip(".")


def table_pieces(part: tuple[str, Any], columns: Columns, before: int) -> Iterator[tuple[Piece, int]]:
    name, table = part
    for start in range(0, table.num_rows, ROWS):
        rows = table.select(columns.all).slice(start, ROWS).combine_chunks().to_batches()
        yield Piece(name, start, before, partial(iter, rows)), min(ROWS, table.num_rows - start)


def parquet_pieces(path: Path, columns: Columns, before: int, *, workers: int) -> Iterator[tuple[Piece, int]]:
    """One piece for each row group, decoded in steps of whole blocks, which are the same whatever the number of workers."""
    metadata, start = parquet_file(path).metadata, 0
    step = max(PARQUET_BYTES // workers // (8 * len(columns.all) * ROWS), 1) * ROWS
    read = partial(_row_group, path.absolute(), path.stat().st_size, columns.all, step)
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if rows:
            yield Piece(str(path), start, before, partial(read, group)), rows
        start += rows


def _row_group(path: Path, size: int, columns: list[str], step: int, group: int) -> Iterable[Any]:
    """The record batches of a row group; the file may be read elsewhere than where the piece was made, and must be the same there."""
    import pyarrow.parquet as pq

    found = path.stat() if path.is_file() else None
    if found is None or found.st_size != size:
        got = "none there" if found is None else f"one of {found.st_size:,} bytes"
        rule = f"be the same file of {size:,} bytes wherever it is read, on every worker of a cluster too"
        raise LogError(f"{path} must {rule}; got {got} on {socket.gethostname()}. Keep logs on a disk that all of them share.")
    metadata = _metadata(path, size, found.st_mtime_ns)
    with pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=1 << 16) as file:
        for batch in file.iter_batches(step, row_groups=[group], columns=columns, use_threads=metadata.num_row_groups == 1):
            yield from (batch.slice(start, ROWS) for start in range(0, batch.num_rows, ROWS))


@lru_cache(maxsize=16)
def _metadata(path: Path, size: int, modified: int) -> Any:
    """The metadata of a file as it was at some time, kept for its next row group."""
    return parquet_file(path).metadata


def check_readable_elsewhere(parts: Sequence[Any]) -> None:
    """Refuse what the workers of a cluster cannot read for themselves: what is in memory here, or has to be read from its beginning."""
    for part in parts:
        if isinstance(part, tuple) or part.suffix not in PARQUET:
            remedy = "Write it as Parquet, or compute on this machine."
            checks.refuse("a log that a cluster reads", "be Parquet files", name_of(part), remedy)


def parquet_file(path: Path) -> Any:
    """A Parquet file, opened; or one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{path} must be a whole Parquet file; got one that cannot be opened ({_reason(error)}).") from error


def _csv_reader(path: Path, columns: Columns, careful: bool, torn: Callable[[Any], str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    kind, handler = pa.string() if careful else pa.float64(), torn if careful and _is_utf8(path) else None
    types = dict.fromkeys(columns.numbers, kind) | ({columns.unit: pa.string()} if columns.unit else {})
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BYTES, use_threads=not careful),
        parse_options=csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",", invalid_row_handler=handler),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=columns.all, strings_can_be_null=True),
    )


def _is_utf8(path: Path, *, blocks: int | None = None) -> bool:
    """Whether the blocks of a CSV, by default all, are UTF-8. Of a row that is not, pyarrow can tell nobody, and prints a traceback."""
    import pyarrow as pa

    decoder = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(str(path)) as stream:
        for _ in count() if blocks is None else range(blocks):
            block = stream.read(CSV_BYTES)
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return False
            if not block:
                break
    return True


def csv_pieces(path: Path, columns: Columns, before: int, *, careful: bool) -> Iterator[tuple[Piece, int]]:
    """One piece for each stretch that the CSV reader gives, already parsed; as numbers, or where that fails as text."""
    import pyarrow as pa

    broken: list[Fault] = []

    def torn(row: Any) -> str:
        rule, found = f"have {row.expected_columns} columns, like the header", f"{row.actual_columns}: {checks.shown(row.text)}"
        broken.append(Fault(str(path), row.number - 1, "", rule, found))
        return "skip"

    start = 0
    try:
        reader = _csv_reader(path, columns, careful, torn)
        for batch in reader:
            mine: list[Fault] = []
            while broken and broken[0].row <= start + batch.num_rows + len(mine) + 1:
                mine.append(broken.pop(0))
            rows = batch.num_rows + len(mine)
            if rows:
                yield Piece(str(path), start, before, partial(iter, [batch]), tuple(mine)), rows
            start += rows
        if broken:
            yield Piece(str(path), start, before, partial(iter, [_empty(reader.schema)]), tuple(broken)), len(broken)
    except pa.ArrowInvalid as error:
        if not careful:
            raise Unparsable(path) from error
        raise LogError(f"{path} must be a CSV; got one that cannot be read after row {start} ({_reason(error)}).") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path} must be a readable UTF-8 file; got {_reason(error)}.") from error


def _empty(schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)


def expected_pieces(part: Any) -> int:
    if isinstance(part, tuple):
        return -(-int(part[1].num_rows) // ROWS)
    return int(parquet_file(part).metadata.num_row_groups) if part.suffix in PARQUET else -(-part.stat().st_size // CSV_BYTES)


def parts_of(log: Any) -> list[Any]:
    """Files in the order in which they are read, each once, or tables in memory."""
    try:
        parts, seen = _parts(log), set[Path]()
    except RecursionError:
        checks.refuse("log", "be no list within itself", checks.shown(log))
    for path in (Path(os.path.realpath(name_of(part))) for part in parts if not isinstance(part, tuple) or part[0].endswith(".jsonl")):
        if path in seen:
            raise LogError(f"a file must be in a log once, or its rounds count twice; got {path.name} again. Name files or their folder.")
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
    if isinstance(log, Log):
        return [("the journal", log.to_arrow())]
    if isinstance(log, Mapping):
        return [("the table", _table_of(log))]
    if hasattr(log, "to_parquet") and hasattr(log, "columns"):
        return [("the table", _arrow(lambda: pa.Table.from_pandas(log, preserve_index=False)))]
    if isinstance(log, (str, Path)):
        return _files(checks.path("log", log))
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
        received = f"{checks.shown(value)} ({_reason(error)})"
        raise LogError(f"log[{name!r}] must be an array, or lists of equal lengths; got {received}.") from error


def _arrow(make: Callable[[], Any]) -> Any:
    """What pyarrow makes of a table in memory; or one sentence."""
    import pyarrow as pa

    try:
        return make()
    except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise LogError(f"the table must have columns of numbers or labels, each with its own name; got {_reason(error)}.") from error


def _files(path: Path) -> list[Any]:
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
        handler = (lambda _: "skip") if _is_utf8(part, blocks=1) else None
        options = csv.ParseOptions(delimiter="\t" if part.suffix == ".tsv" else ",", invalid_row_handler=handler)
        reader = csv.open_csv(part, read_options=csv.ReadOptions(block_size=CSV_BYTES), parse_options=options)
        return pa.schema([(name, pa.null()) for name in reader.schema.names])
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise LogError(f"{part} must be a UTF-8 CSV with a header; got one that cannot be read ({_reason(error)}).") from error


def listed(names: Sequence[str]) -> str:
    if not names:
        return "It has no columns."
    return f"It has {', '.join(map(repr, names[:30]))}{', ...' if len(names) > 30 else ''}."


def check_schema(schema: Any, columns: Columns, where: str) -> None:
    import pyarrow as pa

    for name in columns.all:
        if name not in schema.names:
            near = [other for other in schema.names if name and name in other] or difflib.get_close_matches(name.strip(), schema.names, n=1)
            hint = f" Is it {near[0]!r}?" if near else ""
            if near and near[0].strip() == name:
                hint = f" Take the blanks out of the name {near[0]!r} in its header."
            if any(";" in other for other in schema.names[:1]):
                hint = " Its columns seem to be separated by semicolons; separate them by commas."
            said = next((f" (name another with {what}=, --{what})" for what in ("action", "reward", "propensity") if name == what), "")
            raise LogError(f"{where} must have a column {name!r}{said}; got none of that name.{hint} {listed(schema.names)}")
        if schema.names.count(name) > 1:
            raise LogError(f"{where} must have one column {name!r}; got {schema.names.count(name)} of that name.")
    for name in columns.numbers:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (
            pa.types.is_floating,
            pa.types.is_integer,
            pa.types.is_boolean,
            pa.types.is_decimal,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_null,
        )
        if not any(test(kind) for test in tests):
            raise LogError(f"{where} column {name!r} must hold numbers; got {kind}.")
    if columns.unit and not _has_labels(schema.field(columns.unit).type):
        raise LogError(f"{where} column {columns.unit!r} must hold one name in each row; got {schema.field(columns.unit).type}.")


def _has_labels(kind: Any) -> bool:
    """Whether Arrow can tell the different values of a column of this type."""
    import pyarrow as pa

    try:
        pa.array([], kind).dictionary_encode()
    except pa.ArrowException:
        return False
    return True


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

    _files(path)
    columns = Columns(predicted=tuple(names), action=names[0], reward=names[0], propensity=(names[0],))
    check_schema(schema_of(path), columns, str(path))
    try:
        if path.suffix in PARQUET:
            table = parquet_file(path).read(columns=list(dict.fromkeys(names)))
        else:
            types = dict.fromkeys(names, pa.string())
            options = csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=True)
            table = csv.read_csv(path, convert_options=options)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise LogError(f"{path} must be a file that can be read; got {_reason(error)}.") from error
    if not table.num_rows:
        raise LogError(f"{path} must hold at least one row; got none.")
    return table
