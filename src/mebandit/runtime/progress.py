"""Progress bars, for work that takes more than two seconds. They need rich, and are left out where it is not installed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic

from mebandit import checks

PATIENCE = 2.0
"""seconds before a bar appears"""


Show = bool | Callable[[int, int], None] | None
"""whether progress is shown: None if standard error is a terminal, True always, False never; a function is called with (done, total)"""

FIRST_RUN = "compiling, about a minute; later runs start at once"


@contextmanager
def compiling_notice(compiled: Callable[[], bool], show: Show = None, words: str = FIRST_RUN) -> Iterator[None]:
    """Print a notice if the code inside takes long because it has to be compiled first.

    Args:
        compiled: Returns whether everything is compiled already.
        show: Whether to print; see `Show`.
        words: The notice.
    """

    def tell() -> None:
        if not compiled():
            print(f"mebandit: {words}", file=sys.stderr, flush=True)

    timer = Timer(1.0, tell)
    timer.daemon = True
    if show is True or (show is not False and sys.stderr.isatty()):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress_bar(total: int, what: str, show: Show = None) -> Iterator[Callable[[], None]]:
    """Show a progress bar, and yield a function to call after each piece of work.

    Args:
        total: The number of pieces.
        what: The text before the bar.
        show: Whether to show it; see `Show`.
    """
    if not (show is None or isinstance(show, bool) or callable(show)):
        checks.refuse("progress", "be True, False, None or a function of two counts", checks.shown(show))
    if callable(show):
        yield _counting(total, show)
    elif show or (show is None and sys.stderr.isatty()):
        with _bar(total, what) as advance:
            yield advance
    else:
        yield lambda: None


def _counting(total: int, report: Callable[[int, int], None]) -> Callable[[], None]:
    lock, count = Lock(), [0]

    def advance() -> None:
        with lock:
            count[0] += 1
            report(count[0], total)

    return advance


@contextmanager
def _bar(total: int, what: str) -> Iterator[Callable[[], None]]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    except ImportError:
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    begun, started = monotonic(), False

    def advance() -> None:
        nonlocal started
        bar.advance(task)
        if not started and monotonic() - begun > PATIENCE:
            bar.start()
            started = True

    try:
        yield advance
    finally:
        if started:
            bar.stop()
