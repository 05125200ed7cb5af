"""The log of an experiment, a row for each decision, as `fit` and `value` read it: JSON lines, CSV or Parquet."""

import csv
import io
import json
from collections.abc import Iterator
from typing import IO, Any

from sqlalchemy import func, select

from mebandit.runtime.escaping import in_cell
from mebandit.service.experiment import Experiment
from mebandit.service.store.database import Database, all_rows
from mebandit.service.store.schema import decision, outcome

AT_ONCE = 1000
"""rows that are read together"""


def columns(experiment: Experiment) -> dict[str, str]:
    """The columns of a log and their types, as Arrow calls them."""
    d, n_actions = len(experiment.features), len(experiment.actions)
    return (
        {"decision": "string", "unit": "string", "time": "string", "mode": "string", "version": "int64", "available": "int64"}
        | {f"predicted_{i}": "double" for i in range(d)}
        | {"action": "int64", "propensity": "double"}
        | {f"propensity_{a}": "double" for a in range(n_actions)}
        | {"reward": "double", "revision": "int64"}
        | {f"error_cov_{i}_{j}": "double" for i in range(d) for j in range(i + 1)}
    )


def rows(database: Database, name: str, experiment: Experiment, *, every: bool) -> Iterator[dict[str, Any]]:
    """The decisions in the order in which they were stored, each with the last final revision of its outcome.

    Args:
        database: the store.
        name: of the experiment.
        experiment: its configuration.
        every: also decisions without a usable context, which no estimator can read.
    """
    wanted = list(columns(experiment))
    last = (
        select(outcome.c.decision, func.max(outcome.c.revision).label("revision"))
        .where(outcome.c.experiment == name, outcome.c.final.is_(True))
        .group_by(outcome.c.decision)
        .subquery()
    )
    chosen = (outcome.c.experiment == name) & (outcome.c.decision == last.c.decision) & (outcome.c.revision == last.c.revision)
    after = 0
    while True:
        asked = select(decision).where(decision.c.experiment == name, decision.c.id > after).order_by(decision.c.id).limit(AT_ONCE)
        with database.read() as connection:
            made = all_rows(connection, asked)
            names = [row["name"] for row in made]
            found = select(last.c.decision, last.c.revision, outcome.c.value).join(outcome, chosen).where(last.c.decision.in_(names))
            values = {each: (revision, value) for each, revision, value in connection.execute(found)}
        if not made:
            return
        after = made[-1]["id"]
        for row in made:
            if every or row["predicted"] is not None:
                told = _row(row, *values.get(row["name"], (None, None)))
                yield {column: told.get(column) for column in wanted}


def _row(row: Any, revision: int | None, value: float | None) -> dict[str, Any]:
    told = {"decision": row["name"], "unit": row["unit"], "time": row["decided_for"], "mode": row["mode"], "version": row["version"]}
    told |= {"available": int(row["mode"] != "unavailable"), "revision": revision, "reward": value}
    if row["predicted"] is not None:
        s = json.loads(row["error_cov"])
        told |= {f"predicted_{i}": number for i, number in enumerate(json.loads(row["predicted"]))}
        told |= {f"error_cov_{i}_{j}": s[i][j] for i in range(len(s)) for j in range(i + 1)}
    if row["propensities"] is not None:
        pi = json.loads(row["propensities"])
        told |= {"action": row["action"], "propensity": pi[row["action"]]}
        told |= {f"propensity_{a}": share for a, share in enumerate(pi)}
    return told


def as_json_lines(found: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A line of JSON for each row."""
    for row in found:
        yield json.dumps(row) + "\n"


def as_csv(experiment: Experiment, found: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A header, and a line for each row; what is not known is empty. A name that a spreadsheet would compute gets an apostrophe."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns(experiment)), lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({column: in_cell(value) if isinstance(value, str) else value for column, value in row.items()})
        if text.tell() > 1 << 16:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def write_parquet(experiment: Experiment, found: Iterator[dict[str, Any]], file: IO[bytes]) -> None:
    """A Parquet file with a row group for some thousands of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns(experiment).items()])
    with pq.ParquetWriter(file, schema) as writer:
        group: list[dict[str, Any]] = []
        for row in found:
            group.append(row)
            if len(group) == 20 * AT_ONCE:
                writer.write_table(pa.Table.from_pylist(group, schema))
                group = []
        writer.write_table(pa.Table.from_pylist(group, schema))
