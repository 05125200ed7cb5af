"""The rows of a log in pieces that can be read on their own: row groups of Parquet files, stretches of a CSV or of a table."""

import codecs
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from mebandit import checks
from mebandit.checks import LogError
from mebandit.logs.columns import Columns
from mebandit.logs.fault import Fault

ROWS = 65_536
"""rows in a block"""


PARQUET_BYTES = 48 << 20
"""bytes of a Parquet file that all workers together decode at a time: larger steps cost less per byte"""


CSV_BYTES = 8 << 20
"""bytes of a CSV that are parsed at a time"""


PARQUET = (".parquet", ".pq")


CSV = (".csv", ".tsv", ".gz")


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
    """rows of this part of the file that could not be split into columns"""


class Unparsable(Exception):
    """A CSV has a cell that is not a number in a column of numbers: the file must be read as text."""


def version_of(path: Path) -> tuple[int, int]:
    """Size and time of a file, by which one notices that it was changed."""
    try:
        found = path.stat()
    except OSError as error:
        raise LogError(f"{path} must be there until its analysis is over; got none ({reason(error)}).") from error
    return found.st_size, found.st_mtime_ns


def batches_of(piece: Piece) -> Iterator[Any]:
    """The record batches of a piece; what goes wrong while reading it names the file and the row."""
    import pyarrow as pa

    start = piece.start
    try:
        for batch in piece.read():
            yield batch
            start += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{piece.file} must be readable throughout; got damaged data after row {start} ({reason(error)}).") from error


def reason(error: BaseException) -> str:
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

    try:
        found = path.stat()
        if found.st_size != size:
            raise _another_file(path, size, f"one of {found.st_size:,} bytes")
        metadata = _metadata(path, size, found.st_mtime_ns)
        opened = pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=1 << 16)
    except FileNotFoundError as error:
        raise _another_file(path, size, "none there") from error
    with opened as file:
        for batch in file.iter_batches(step, row_groups=[group], columns=columns, use_threads=metadata.num_row_groups == 1):
            yield from (batch.slice(start, ROWS) for start in range(0, batch.num_rows, ROWS))


def _another_file(path: Path, size: int, got: str) -> LogError:
    rule = f"be the same file of {size:,} bytes on every machine that reads it"
    return LogError(f"{path} must {rule}; got {got} on {socket.gethostname()}. Keep logs on a disk that all machines share.")


@lru_cache(maxsize=16)
def _metadata(path: Path, size: int, modified: int) -> Any:
    """The metadata of a file as it was at some time, kept for its next row group."""
    return parquet_file(path).metadata


def parquet_file(path: Path) -> Any:
    """A Parquet file, opened; or one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{path} must be a whole Parquet file; got one that cannot be opened ({reason(error)}).") from error


def _csv_reader(path: Path, columns: Columns, careful: bool, torn: Callable[[Any], str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    kind, handler = pa.string() if careful else pa.float64(), torn if careful and is_utf8(path) else None
    types = dict.fromkeys(columns.numbers, kind) | dict.fromkeys(columns.texts, pa.string())
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BYTES, use_threads=not careful),
        parse_options=csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",", invalid_row_handler=handler),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=columns.all, strings_can_be_null=True),
    )


def is_utf8(path: Path, *, blocks: int | None = None) -> bool:
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
        raise LogError(f"{path} must be a CSV; got one that cannot be read after row {start} ({reason(error)}).") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path} must be a readable UTF-8 file; got {reason(error)}.") from error


def _empty(schema: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)


def expected_pieces(part: Any) -> int:
    if isinstance(part, tuple):
        return -(-int(part[1].num_rows) // ROWS)
    return int(parquet_file(part).metadata.num_row_groups) if part.suffix in PARQUET else -(-part.stat().st_size // CSV_BYTES)
