"""Who computes: threads of this process, or the workers of a Dask cluster. Pieces of work go out; their results come back in order.

Nothing that is computed may depend on who does it. So a piece is worked on by itself, results are taken in the order of the pieces, and a
cluster's workers must have the versions that are here.
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
"""threads to use (None: all cores), or the address of a Dask scheduler, or its Client"""

PATIENCE = 5.0
"""seconds in which a scheduler has to answer"""
TASK = 2.0
"""seconds that a task of a cluster should take: many times what sending it costs, and little to do again if its worker dies"""
ROOM = 32 << 20
"""bytes that the results of a task should take, at most"""
AHEAD = 2
"""pieces that are handed out for each thread of this process"""
QUEUED = 4
"""tasks that are handed out for each thread of a cluster: one that grows with its work has to see that there is more than it can do"""
FEWEST = 8
"""threads that a cluster is taken to have, at least, since it may be about to start them"""


def checked(workers: Any) -> Workers:
    """What can be hired, or one sentence; no cluster is asked."""
    if workers is None or isinstance(workers, str) or _is_client(workers):
        return workers
    if isinstance(workers, (int, np.integer)) and not isinstance(workers, bool) and workers >= 1:
        return int(workers)
    rule = "be a number of threads of at least 1, the address of a Dask scheduler, or a distributed.Client"
    return checks.refuse("workers", rule, checks.shown(workers))


def hired(workers: Workers, *, most: int | None = None) -> "Threads | Cluster":
    """The workers meant, for a `with` block; if none are named, a thread for each core, but not more than `most`."""
    workers = checked(workers)
    if workers is None:
        cores = cpu_count() or 1
        return Threads(cores if most is None else min(cores, most))
    if isinstance(workers, int):
        return Threads(workers)
    return Cluster(_connected(workers), own=True) if isinstance(workers, str) else Cluster(workers, own=False)


def _is_client(value: object) -> bool:
    """Whether a value is a Dask client; there is none where distributed has not been imported."""
    client = getattr(sys.modules.get("distributed"), "Client", None)
    return client is not None and isinstance(value, client)


class Threads:
    """Threads of this process: the compiled code, and reading, run without the interpreter's lock."""

    here = True
    """whether pieces and results stay in this process"""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self.number)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def in_order(self, work: Callable[[P], R], pieces: Iterable[P], done: Callable[[], None]) -> Iterator[R]:
        """work(piece) for each piece, in their order; `done` is called after each. A few at a time are in memory."""
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
    """The workers of a Dask cluster. A worker that dies is survived: what it had is computed again by another."""

    here = False

    def __init__(self, client: "Client", *, own: bool) -> None:
        self.client = client
        self.own = own
        """whether the connection was made here, and ends here"""
        self._waiting: deque[Any] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting:
            self.client.cancel(list(self._waiting), force=True)
        if self.own:
            self.client.close()

    def in_order(self, work: Callable[[P], R], pieces: Iterable[P], done: Callable[[], None]) -> Iterator[R]:
        """work(piece) for each piece, in their order; `done` is called after each.

        Consecutive pieces go out together, as many as make a task of some seconds; the first go alone, to see what one takes.
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
        """For how many threads there should be work."""
        found = sum(self.client.nthreads().values())
        if found == 0:
            print("mebandit: the cluster has no workers now; waiting for them", file=sys.stderr, flush=True)
        return max(int(found), FEWEST)

    def _result(self) -> tuple[float, list[Any]]:
        """What the first task gave, once it is done."""
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
    """The part of a task that one piece is, by the time it took and by the room that its result takes."""
    from dask.sizeof import sizeof

    return float(max(seconds / TASK, sizeof(results) / ROOM) / len(results))


def _group_size(share: float, left: int, threads: int) -> int:
    """How many pieces make a task, each being this share of one; but no more than a thread's part of what is left, if that is known."""
    size = max(int(1 / share), 1)
    return min(size, ceil(left / threads)) if left else size


def _timed(work: Callable[[P], R], group: list[P]) -> tuple[float, list[R]]:
    begun = monotonic()
    results = [work(piece) for piece in group]
    return monotonic() - begun, results


def _sealed(task: Callable[[], Any]) -> bytes:
    """A task as bytes: a worker that lacks what is inside can then say so, where it would die of unpacking it."""
    import cloudpickle

    return bytes(cloudpickle.dumps(task))


def _travelling() -> Callable[[dict[str, str], bytes], Any]:
    """What a worker runs. A function within a function travels whole, so that it arrives also where there is no mebandit."""

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
    """A client of the scheduler at an address; or one sentence, soon."""
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
    """What answers at an address, if it is a part of a Dask cluster."""
    from distributed import Security, rpc

    async with rpc(address, timeout=PATIENCE, connection_args=Security().get_connection_args("client")) as peer:
        return str((await asyncio.wait_for(peer.identity(), PATIENCE))["type"])
