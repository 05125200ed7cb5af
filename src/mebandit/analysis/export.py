"""A log in the layouts that other packages read.

obp: the `bandit_feedback` of Open Bandit Pipeline, as a .npz of plain arrays. It is made in memory: the format wants whole arrays.

mrt: one row for each decision, as packages for micro-randomised trials take it (`wcls` of R's MRTAnalysis, lifejacket): id,
decision_point, availability, action, rand_prob, outcome, and the predicted context. It is written block by block.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from mebandit import checks
from mebandit.checks import LogError
from mebandit.logs.log import LogColumns, log_of
from mebandit.logs.pieces import PARQUET
from mebandit.logs.reading import reading_of
from mebandit.logs.source import Block, Source, forecast_of
from mebandit.runtime.files import begins_with, check_output, whole_file, write_whole
from mebandit.runtime.progress import Show
from mebandit.values import Booleans, Floats, Integers

LAYOUTS = {"obp": (".npz",), "mrt": (".csv", *PARQUET)}
"""the files that each layout may be written to"""

MRT = ("id", "decision_point", "availability", "action", "rand_prob", "outcome")


def export(
    log: Any,
    path: str | Path,
    *,
    to: str,
    on_bad: str = "refuse",
    set_aside: str | Path | None = None,
    workers: int | None = None,
    progress: Show = None,
    **columns: Unpack[LogColumns],
) -> int:
    """Write a log in the layout of another package.

    The file is written completely or not at all, and never over a file that is not an earlier export.
    Names are written unchanged, for programs: a spreadsheet may compute a name that begins with =, +, - or @, which the tables of `fit` and
    `value` prevent by an apostrophe.

    Args:
        log: A `Log`; or what `Log` takes as its source, with its columns as further keywords. No layout has room for Σe.
        path: The file to write: .npz for "obp", .csv or .parquet for "mrt".
        to: The layout: "obp", the bandit_feedback of Open Bandit Pipeline; or "mrt", one row for each decision point of a micro-randomised
            trial.
        on_bad: As in `fit` (default "refuse").
        set_aside: As in `fit` (default None).
        workers: Threads; None (default): all cores.
        progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.
        **columns: Columns of the log, as in `Log`; they replace those of a `Log` that was given.

    Returns:
        The number of rounds.

    >>> import numpy as np, tempfile
    >>> log = {"x": [0.3, 1.2], "action": [1, 0], "reward": [1.0, 0.0], "propensity": [0.5, 0.8]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(log, folder + "/log.npz", to="obp", predicted="x")
    ...     found = {name: value for name, value in np.load(folder + "/log.npz").items()}
    2
    >>> found["pscore"], found["context"].shape, found["n_actions"]
    (array([0.5, 0.8]), (2, 1), array(2))
    """
    target = checks.path("path", path)
    endings = LAYOUTS[checks.one_of("to", to, LAYOUTS)]
    if target.suffix not in endings:
        checks.refuse("path", f"end in {' or '.join(endings)} for the layout {to!r}", str(path))
    threads = None if workers is None else checks.integer("workers", workers, 1)
    reading = reading_of(log_of(log, columns), error_needed=False, workers=threads, progress=progress)
    source = reading.source
    check_output(target, source.parts, ours=_is_export)
    if to == "mrt":
        _check_mrt(source)
    rows = int(reading.count(on_bad=on_bad, set_aside=set_aside).sums.rounds.sum())  # also finds which CSV must be read as text
    write = _write_obp if to == "obp" else _write_mrt
    try:
        write(source, target)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise LogError(f"the exported log must be a file that can be written; got {target} ({reason}).") from error
    return rows


def _check_mrt(source: Source) -> None:
    if source.n_actions != 2:
        remedy = "rand_prob is the probability of action 1 as against 0."
        checks.refuse("n_actions", "be 2 for the layout 'mrt'", source.n_actions, remedy)
    for name in source.columns.predicted:
        if name in MRT:
            checks.refuse("predicted", f"have names other than {', '.join(MRT)}, which the layout has itself", checks.shown(name))


def _is_export(path: Path) -> bool:
    """Whether a file is an earlier export, by the names in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix not in PARQUET:
        return begins_with("n_rounds.npy" if path.suffix == ".npz" else ",".join(f'"{name}"' for name in MRT[:3]))(path)
    try:
        return tuple(pq.read_schema(path).names[: len(MRT)]) == MRT
    except (OSError, pa.ArrowException):
        return False


def _write_obp(source: Source, path: Path) -> None:
    """The keys of bandit_feedback. There is one position, 0, and no features of actions: action_context is the identity."""
    k = source.n_actions

    def work(block: Block) -> list[dict[str, Any]]:
        rounds = block.rounds
        return [{"context": rounds.context.predicted.T, "action": rounds.actions, "reward": rounds.rewards, "pscore": rounds.propensities}]

    parts = source.through(work, lambda a, b: a + b, "exporting")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows = arrays["action"].size
    feedback: dict[str, Any] = {"n_rounds": np.array(rows), "n_actions": np.array(k)}
    feedback |= arrays | {"position": np.zeros(rows, dtype=np.int64), "action_context": np.eye(k, dtype=np.int64)}
    buffer = io.BytesIO()
    np.savez(buffer, **feedback)
    write_whole(path, buffer.getvalue())


def _write_mrt(source: Source, path: Path) -> None:
    """Rows in the order of the log, one block at a time: with one worker the blocks come in order."""
    source.workers = 1
    counts: dict[Any, int] = {}
    with _writer(path) as write:

        def work(block: Block) -> int:
            write(_mrt_table(block, source.columns.predicted, counts))
            return 1

        source.through(work, lambda a, b: a + b, "exporting")


def _mrt_table(block: Block, features: Sequence[str], counts: dict[Any, int]) -> Any:
    """A block in the layout; `counts` are the decisions of each unit so far."""
    import pyarrow as pa

    n, p = block.rounds.rewards.size, forecast_of(block, 2)[:, 1]
    unit, units = (block.unit, block.units) if block.units else (np.zeros(n, dtype=np.int64), [1])
    point = _counted(unit, np.array([counts.get(label, 0) for label in units], dtype=np.int64))
    counts |= {label: counts.get(label, 0) + int(more) for label, more in zip(units, np.bincount(unit, minlength=len(units)), strict=True)}
    columns: dict[str, Any] = {
        "id": pa.array(units).take(pa.array(unit)),
        "decision_point": point,
        "availability": _randomised(p).astype(np.int64),
        "action": block.rounds.actions,
        "rand_prob": p,
        "outcome": block.rounds.rewards,
    }
    columns |= {name: block.rounds.context.predicted[i] for i, name in enumerate(features)}
    return pa.table(columns)


def _counted(unit: Integers, before: Integers) -> Integers:
    """For each row, which decision of its unit it is, from 1, where each unit had some `before`."""
    order = np.argsort(unit, kind="stable")
    sorted_units = unit[order]
    first = np.searchsorted(sorted_units, sorted_units)
    point = np.empty(unit.size, dtype=np.int64)
    point[order] = before[sorted_units] + np.arange(unit.size) - first + 1
    return point


def _randomised(p: Floats) -> Booleans:
    """Whether there was a choice: where one action was certain, nothing was randomised."""
    return (p > 0.0) & (p < 1.0)


@contextmanager
def _writer(path: Path) -> Iterator[Callable[[Any], None]]:
    """Yield a function that adds a table to a CSV or Parquet file; the file gets its name when all is written."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    opened: list[Any] = []
    with whole_file(path) as file:

        def write(table: Any) -> None:
            if not opened:
                opened.append((pq.ParquetWriter if path.suffix in PARQUET else csv.CSVWriter)(file, table.schema))
            opened[0].write_table(table)

        try:
            yield write
        finally:
            for writer in opened:
                writer.close()
