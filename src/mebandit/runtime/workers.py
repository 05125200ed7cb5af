"""Parallel work: threads of this process, or the workers of a Dask cluster. Results come back in the order of the pieces of work.

Results must not depend on the workers. So each piece is computed by itself, results are used in the order of the pieces, and the workers of
a cluster must have the same versions of mebandit, numpy and numba as this process.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import islice
from math import ceil
from operator import length_hint
from os import cpu_count
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np

from mebandit import checks
from mebandit.checks import ClusterError

if TYPE_CHECKING:
    from distributed import Client

P = TypeVar("P")
R = TypeVar("R")

Workers: TypeAlias = "int | str | Client | None"
"""a number of threads (None: one for each core), the address of a Dask scheduler, or a `distributed.Client`"""

PATIENCE = 5.0
"""seconds within which a scheduler must answer"""
TASK = 2.0
"""seconds that a task of a cluster should take: much more than sending it costs, and little to repeat if its worker dies"""
ROOM = 32 << 20
"""bytes of the results of one task, at most"""
AHEAD = 2
"""pieces of work that are handed out for each thread of this process"""
QUEUED = 4
"""tasks that are handed out for each thread of a cluster: an adaptive cluster grows only if more tasks wait than it can run"""
FEWEST = 8
"""threads that a cluster is assumed to have, at least, since it may be about to start them"""


def checked(workers: Any) -> Workers:
    """The workers, if they are valid. No cluster is contacted."""
    if workers is None or isinstance(workers, str) or _is_client(workers):
        return workers
    if isinstance(workers, (int, np.integer)) and not isinstance(workers, bool) and workers >= 1:
        return int(workers)
    rule = "be a number of threads of at least 1, the address of a Dask scheduler, or a distributed.Client"
    return checks.refuse("workers", rule, checks.shown(workers))


def hired(workers: Workers, *, most: int | None = None) -> "Threads | Cluster":
    """Start workers, for a `with` block.

    Args:
        workers: Which ones; see `Workers`.
        most: Threads at most, where `workers` is None.
    """
    workers = checked(workers)
    if workers is None:
        cores = cpu_count() or 1
        return Threads(cores if most is None else min(cores, most))
    if isinstance(workers, int):
        return Threads(workers)
    return Cluster(_connected(workers), own=True) if isinstance(workers, str) else Cluster(workers, own=False)


def _is_client(value: object) -> bool:
    """Whether a value is a Dask client. If distributed has not been imported, it is not."""
    client = getattr(sys.modules.get("distributed"), "Client", None)
    return client is not None and isinstance(value, client)


class Threads:
    """Threads of this process. Compiled code and reading of files run without the interpreter's lock, so threads are enough."""

    here = True
    """pieces of work and results stay in this process"""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self.number)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def in_order(self, work: Callable[[P], R], pieces: Iterable[P], done: Callable[[], None]) -> Iterator[R]:
        """work(piece) for each piece, in their order. `done` is called after each. Only a few results are in memory at a time."""
        for result in map(work, pieces) if self.number == 1 else self._ahead(work, pieces):
            done()
            yield result

    def _ahead(self, work: Callable[[P], R], pieces: Iterable[P]) -> Iterator[R]:
        waiting: deque[Future[R]] = deque()
        for piece in pieces:
            waiting.append(self._pool.submit(work, piece))
            if len(waiting) > AHEAD * self.number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Cluster:
    """The workers of a Dask cluster. If a worker dies, another one repeats its tasks."""

    here = False

    def __init__(self, client: "Client", *, own: bool) -> None:
        self.client = client
        self.own = own
        """whether the connection was made here, and is closed here"""
        self._waiting: deque[Any] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting:
            self.client.cancel(list(self._waiting), force=True)
        if self.own:
            self.client.close()

    def in_order(self, work: Callable[[P], R], pieces: Iterable[P], done: Callable[[], None]) -> Iterator[R]:
        """work(piece) for each piece, in their order. `done` is called after each.

        Consecutive pieces form a task of about `TASK` seconds. The first pieces are sent one by one, to measure how long they take.
        """
        left, share = iter(pieces), 1.0
        versions = {name: str(import_module(name).__version__) for name in ("mebandit", "numpy", "numba")}
        run = _travelling()
        while True:
            threads = self._threads()
            while len(self._waiting) < QUEUED * threads:
                group = list(islice(left, _group_size(share, length_hint(left), threads)))
                if not group:
                    break
                self._waiting.append(self.client.submit(run, versions, _sealed(partial(_timed, work, group)), pure=False))
            if not self._waiting:
                return
            seconds, results = self._result()
            share = _share(seconds, results)
            for result in results:
                done()
                yield result

    def _threads(self) -> int:
        """The number of threads for which tasks are handed out."""
        found = sum(self.client.nthreads().values())
        if found == 0:
            print("mebandit: the cluster has no workers now; waiting for them", file=sys.stderr, flush=True)
        return max(int(found), FEWEST)

    def _result(self) -> tuple[float, list[Any]]:
        """Seconds and results of the oldest task, once it is done."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            found = self._waiting[0].result()
        except KilledWorker as error:
            received = f"one task during which {error.allowed_failures + 1} workers died"
            remedy = "Their logs say why; too little memory is the usual reason."
            checks.refuse("the cluster", "have workers that survive a task", received, remedy, error=ClusterError)
        except (CancelledError, asyncio.CancelledError):
            received = "a connection that was lost, or tasks that were cancelled there"
            checks.refuse("the cluster", "stay in reach until all is computed", received, error=ClusterError)
        if isinstance(found, str):
            raise ClusterError(f"{found} Install the same packages on all workers as here.")
        self._waiting.popleft()
        seconds, results = found
        return seconds, results


def _share(seconds: float, results: list[Any]) -> float:
    """The share of a task that one piece is, by its time and by the size of its result."""
    from dask.sizeof import sizeof

    return float(max(seconds / TASK, sizeof(results) / ROOM) / len(results))


def _group_size(share: float, left: int, threads: int) -> int:
    """The number of pieces in a task. Not more than the number left for each thread, if that is known."""
    size = max(int(1 / share), 1)
    return min(size, ceil(left / threads)) if left else size


def _timed(work: Callable[[P], R], group: list[P]) -> tuple[float, list[R]]:
    """Seconds and results of a task, on the worker."""
    begun = monotonic()
    results = [work(piece) for piece in group]
    return monotonic() - begun, results


def _sealed(task: Callable[[], Any]) -> bytes:
    """A task as bytes. A worker that failed to unpickle its task would crash before it could report a version mismatch."""
    import cloudpickle

    return bytes(cloudpickle.dumps(task))


def _travelling() -> Callable[[dict[str, str], bytes], Any]:
    """The function that a worker runs. An inner function is pickled by value, so workers without mebandit can run it and report that."""

    def run(versions: dict[str, str], sealed: bytes) -> Any:
        import pickle
        import socket
        from importlib import import_module

        for name, version in versions.items():
            try:
                found = str(import_module(name).__version__)
            except ImportError:
                found = ""
            if found != version:
                got = f"{name} {found}" if found else "none"
                return f"the workers of the cluster must have {name} {version}, as here; got {got} on {socket.gethostname()}."
        try:
            task = pickle.loads(sealed)
        except ImportError as error:
            return f"the workers of the cluster must be able to import what they compute with; got {error} on {socket.gethostname()}."
        return task()

    return run


def _connected(address: str) -> "Client":
    """A client of the scheduler at an address. Refuses within seconds if there is none."""
    try:
        from distributed import Client
    except ImportError:
        remedy = "Install it with: pip install 'mebandit[dask]'"
        checks.refuse("distributed", "be installed, to compute on a cluster", "none", remedy, error=ClusterError)
    with ThreadPoolExecutor(1) as aside:  # a notebook has an event loop of its own in this thread
        try:
            kind = aside.submit(asyncio.run, _kind(address)).result()
        except Exception as error:  # whatever listens at that address may answer anything
            kind = f"none that answers within {PATIENCE:g} s" if isinstance(error, (OSError, TimeoutError)) else f"none ({error})"
    if kind != "Scheduler":
        rule = "be the address of a running Dask scheduler, such as tcp://host:8786"
        got = kind if kind.startswith("none") else f"that of a {kind}"
        checks.refuse("scheduler", rule, f"{address!r}, {got}", "`dask scheduler` prints its address.", error=ClusterError)
    return Client(address, timeout=PATIENCE, set_as_default=False)


async def _kind(address: str) -> str:
    """The kind of Dask process that answers at an address, such as "Scheduler"."""
    from distributed import Security, rpc

    async with rpc(address, timeout=PATIENCE, connection_args=Security().get_connection_args("client")) as peer:
        return str((await asyncio.wait_for(peer.identity(), PATIENCE))["type"])
