"""A database: SQLite or PostgreSQL behind one face, with reads side by side and writes in groups."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import URL, Connection, Engine, Select, Table, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from mebandit.checks import LogError
from mebandit.service.store.schema import migrate

Item = TypeVar("Item")
Result = TypeVar("Result")
Row = dict[str, Any]
Write = Callable[[Connection, Sequence[Any]], list[Any]]
"""a function that writes several items in a transaction; its results are in the order of the items"""

MOST_AT_ONCE = 512
"""items that are committed together"""
WRITERS = 2
"""threads that write to PostgreSQL, each a group at a time: while one waits for the server, another goes on. SQLite has one writer"""
TRIES = 3
"""of a group whose connection is lost or which another process has blocked"""


def now() -> str:
    """The time in UTC, as the store has it."""
    return in_utc(datetime.now(UTC))


def in_utc(time: datetime) -> str:
    """A time with a zone as a text in UTC."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class Unavailable(LogError):
    """The database cannot be reached, or refuses to write; nothing was stored."""


class Waiting(NamedTuple):
    """Something to be written."""

    write: Write
    item: Any
    answer: "Future[Any] | asyncio.Future[Any]"

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which the answer is awaited; None: a thread waits for it."""
        return self.answer.get_loop() if isinstance(self.answer, asyncio.Future) else None


class Database:
    """A store's database. `write` and `submit` return once the item is on disk.

    Args:
        address: path of a SQLite file, which is made if there is none, or the address of a PostgreSQL database (`postgresql://...`).
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_postgresql = address.startswith(("postgresql:", "postgres:"))
        try:
            url = make_url("postgresql+psycopg:" + address.partition(":")[2]) if self.is_postgresql else _private_file(Path(address))
            self.reading = _engine(url, "BEGIN", self.is_postgresql)
            self._writing = _engine(url, "BEGIN IMMEDIATE", self.is_postgresql, asking=False)
            with self._transaction() as connection:
                if self.is_postgresql:
                    connection.execute(text("SELECT pg_advisory_xact_lock(730001)"))
                migrate(connection)
        except SQLAlchemyError as error:
            raise LogError(f"store must be a database that can be opened; got {shown_address(address)} ({_said(error)}).") from error
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._writers = [threading.Thread(target=self._write_on, daemon=True) for _ in range(WRITERS if self.is_postgresql else 1)]
        for writer in self._writers:
            writer.start()

    def close(self) -> None:
        """Write what waits, and close."""
        for _ in self._writers:
            self._queue.put(None)
        for writer in self._writers:
            writer.join()
        self.reading.dispose()
        self._writing.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading."""
        try:
            with self.reading.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise Unavailable(f"store must be readable; got {_said(error)}.") from error

    def submit(self, write: Callable[[Connection, Sequence[Item]], list[Result]], item: Item) -> "Future[Result]":
        """Have an item written; the result comes once it is committed, together with others that came meanwhile."""
        answer: Future[Result] = Future()
        self._queue.put(Waiting(write, item, answer))
        return answer

    def ask(self, write: Callable[[Connection, Sequence[Item]], list[Result]], item: Item) -> "asyncio.Future[Result]":
        """`submit` for a coroutine, which awaits the result."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.put(Waiting(write, item, answer))
        return answer

    def write(self, write: Callable[[Connection, Sequence[Item]], list[Result]], item: Item) -> Result:
        """`submit`, and wait."""
        return self.submit(write, item).result()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Have a function write in a transaction of the group, and wait for its result."""
        found: Result = self.write(_each, work)
        return found

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._writing.connect() as connection, connection.begin():
            yield connection

    def _write_on(self) -> None:
        """A writer: take all that waits, commit it, answer."""
        first = self._queue.get()
        while first is not None:
            group = [first]
            while len(group) < MOST_AT_ONCE and (following := self._next()) is not None:
                group.append(following)
            self._answer(group)
            first = self._queue.get()

    def _next(self) -> Waiting | None:
        """What waits; None where nothing does. The sign to end stays in the queue."""
        try:
            found = self._queue.get_nowait()
        except Empty:
            return None
        if found is None:
            self._queue.put(None)
        return found

    def _answer(self, group: list[Waiting]) -> None:
        """Commit a group. A write can be repeated without harm, so one whose connection was lost is, and one in which an item failed."""
        found: list[tuple[Waiting, Any]] = []
        for left in reversed(range(TRIES)):
            try:
                with self._transaction() as connection:
                    kinds = dict.fromkeys(each.write for each in group)
                    written = _together if left == TRIES - 1 else _each_alone
                    found = [
                        pair for write in kinds for pair in written(connection, write, [each for each in group if each.write is write])
                    ]
                break
            except Exception as error:  # the writer itself must live
                found = [(each, _unavailable(error) if isinstance(error, DBAPIError) else error) for each in group]
        for loop in dict.fromkeys(each.loop for each in group):
            answers = [pair for pair in found if pair[0].loop is loop]
            if loop is None:
                _give(answers)
            else:
                with suppress(RuntimeError):  # the loop has ended, and nobody waits
                    loop.call_soon_threadsafe(_give, answers)


def _give(answers: list[tuple[Waiting, Any]]) -> None:
    """Hand results to those who wait for them, and have not given up."""
    for each, result in answers:
        if each.answer.done():
            continue
        if isinstance(result, BaseException):
            each.answer.set_exception(result)
        else:
            each.answer.set_result(result)


def all_rows(connection: Connection, asked: Select[Any]) -> list[Row]:
    """What is asked for, by the names of its columns."""
    return [dict(row) for row in connection.execute(asked).mappings()]


def first_row(connection: Connection, asked: Select[Any]) -> Row | None:
    """The first row of what is asked for."""
    found = connection.execute(asked).mappings().first()
    return None if found is None else dict(found)


def insert_new(connection: Connection, table: Table) -> Any:
    """An INSERT that leaves out rows whose key is there already."""
    made = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    return made.on_conflict_do_nothing()


def _each(connection: Connection, items: Sequence[Callable[[Connection], Any]]) -> list[Any]:
    return [work(connection) for work in items]


def _together(connection: Connection, write: Write, group: list[Waiting]) -> list[tuple[Waiting, Any]]:
    """All items of one kind at once, as nearly always."""
    return list(zip(group, write(connection, [each.item for each in group]), strict=True))


def _each_alone(connection: Connection, write: Write, group: list[Waiting]) -> list[tuple[Waiting, Any]]:
    """The items one by one, so that one that cannot be written fails alone."""
    found: list[tuple[Waiting, Any]] = []
    for each in group:
        try:
            with connection.begin_nested():
                found.append((each, write(connection, [each.item])[0]))
        except DBAPIError as error:
            if error.connection_invalidated or _passes(error):
                raise
            found.append((each, _unavailable(error)))
        except Exception as error:
            found.append((each, error))
    return found


def _unavailable(error: DBAPIError) -> Unavailable:
    return Unavailable(f"store must be one that can be written; got {_said(error)}.")


def _passes(error: DBAPIError) -> bool:
    """Whether an error is one of two processes in each other's way."""
    return getattr(error.orig, "sqlstate", None) in ("40001", "40P01") or "database is locked" in str(error.orig)


def _said(error: SQLAlchemyError) -> str:
    """What the database says, in one line, without the statement and its values."""
    lines = str(getattr(error, "orig", None) or type(error).__name__).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def shown_address(address: str) -> str:
    """An address without its password."""
    head, mark, tail = address.partition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if mark else address


def _private_file(path: Path) -> URL:
    """A SQLite file, made for the eyes of its owner alone if it is new: it holds the secrets of the experiments."""
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return URL.create("sqlite", database=str(path))


def _engine(url: URL, begin: str, is_postgresql: bool, *, asking: bool = True) -> Engine:
    """Connections to a database; `asking` whether a connection is still good before it is used again, where the work is not repeated."""
    if is_postgresql:
        return create_engine(url, pool_pre_ping=asking, pool_size=8, max_overflow=16)
    engine = create_engine(url, poolclass=QueuePool, pool_size=8, max_overflow=16, connect_args={"timeout": 30, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
