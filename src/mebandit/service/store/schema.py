"""The tables of a store, the same in SQLite and PostgreSQL, and the steps from one schema to the next.

Rows of decisions, outcomes, deliveries, truths, versions, learned rounds, incidents, activations and audit are only ever added.
Times are texts in UTC, such as 2026-03-01T12:30:00.000000Z, which sort as the times do. Lists of numbers are JSON, which keeps every bit.
"""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
    update,
)

from mebandit.checks import LogError

metadata = MetaData()
Number = BigInteger().with_variant(Integer, "sqlite")
"""of rows; SQLite counts rows by itself only in a column of type INTEGER"""


def row_number() -> Column[int]:
    return Column("id", Number, primary_key=True, autoincrement=True)


def text(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null)


schema = Table("schema", metadata, Column("number", Integer, nullable=False))

experiment = Table(
    "experiment",
    metadata,
    Column("name", Text, primary_key=True),
    text("created_at"),
    Column("secret", Text, nullable=False),
    text("secret_hash"),
    text("status"),
    Column("epoch", Integer, nullable=False),
    Column("configuration", Integer, nullable=False),
    Column("active", Integer, nullable=False),
    Column("latest", Integer, nullable=False),
    Column("pinned", Boolean, nullable=False),
)
"""the pointers of an experiment, the only row that changes; `epoch` counts what people changed, and the audit says what"""

configuration = Table(
    "configuration",
    metadata,
    text("experiment"),
    Column("number", Integer, nullable=False),
    text("body"),
    text("hash"),
    text("at"),
    text("by"),
    PrimaryKeyConstraint("experiment", "number"),
)

unit_event = Table("unit_event", metadata, row_number(), text("experiment"), text("unit"), text("body"), text("at"), text("by"))
Index("unit_event_of", unit_event.c.experiment, unit_event.c.unit)

decision = Table(
    "decision",
    metadata,
    row_number(),
    text("experiment"),
    text("name"),
    text("request"),
    text("unit", null=True),
    text("decided_for"),
    text("received_at"),
    Column("configuration", Integer, nullable=False),
    text("mode"),
    text("reason", null=True),
    Column("version", Integer),
    Column("number", BigInteger),
    Column("action", Integer),
    text("allowed", null=True),
    text("propensities", null=True),
    Column("uniform", Double),
    Column("auxiliary", Double),
    text("predicted", null=True),
    text("error_cov", null=True),
    text("notes"),
    UniqueConstraint("experiment", "name"),
)
Index("decision_by_version", decision.c.experiment, decision.c.version, decision.c.id)
Index("decision_by_time", decision.c.experiment, decision.c.received_at)

outcome = Table(
    "outcome",
    metadata,
    row_number(),
    text("experiment"),
    text("decision"),
    Column("revision", Integer, nullable=False),
    Column("value", Double),
    Column("final", Boolean, nullable=False),
    text("source"),
    text("received_at"),
    UniqueConstraint("experiment", "decision", "revision"),
)

to_learn = Table("to_learn", metadata, row_number(), text("experiment"), text("decision"), UniqueConstraint("experiment", "decision"))
"""a queue: decisions whose final outcome came and was not learned; the trainer takes rows out"""

learned = Table(
    "learned",
    metadata,
    text("experiment"),
    Column("seq", BigInteger, nullable=False),
    text("decision"),
    Column("revision", Integer, nullable=False),
    PrimaryKeyConstraint("experiment", "seq"),
    UniqueConstraint("experiment", "decision"),
)
"""the order in which outcomes were learned"""

policy_version = Table(
    "policy_version",
    metadata,
    text("experiment"),
    Column("number", Integer, nullable=False),
    Column("learned", BigInteger, nullable=False),
    text("fingerprint"),
    text("made_at"),
    Column("token", BigInteger, nullable=False),
    PrimaryKeyConstraint("experiment", "number"),
)

state = Table(
    "state",
    metadata,
    text("experiment"),
    Column("version", Integer, nullable=False),
    text("body"),
    PrimaryKeyConstraint("experiment", "version"),
)
"""a cache: what some versions have learned. Any row can be deleted and computed again from `learned`"""

activation = Table(
    "activation",
    metadata,
    row_number(),
    text("experiment"),
    Column("version", Integer, nullable=False),
    Column("pinned", Boolean, nullable=False),
    text("at"),
    text("by"),
    text("reason"),
)

lease = Table(
    "lease",
    metadata,
    Column("experiment", Text, primary_key=True),
    text("holder"),
    Column("token", BigInteger, nullable=False),
    Column("until", Double, nullable=False),
)
"""who trains an experiment; the token grows with every new holder, and an earlier holder can publish nothing any more"""

delivery = Table(
    "delivery", metadata, row_number(), text("experiment"), text("decision"), text("status"), text("body"), text("received_at")
)
Index("delivery_of", delivery.c.experiment, delivery.c.decision)

truth = Table(
    "truth",
    metadata,
    row_number(),
    text("experiment"),
    text("decision"),
    text("feature"),
    Column("value", Double, nullable=False),
    text("received_at"),
)
Index("truth_of", truth.c.experiment, truth.c.decision)

incident = Table("incident", metadata, row_number(), text("experiment"), text("kind"), text("subject", null=True), text("at"), text("said"))
Index("incident_of", incident.c.experiment, incident.c.id)

audit = Table(
    "audit",
    metadata,
    row_number(),
    text("at"),
    text("by"),
    text("what"),
    text("experiment", null=True),
    text("detail"),
    text("previous"),
    text("hash"),
    UniqueConstraint("previous"),
)

api_key = Table(
    "api_key",
    metadata,
    Column("name", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    text("roles"),
    text("created_at"),
    text("revoked_at", null=True),
)


def create(connection: Connection) -> None:
    """Schema 1."""
    metadata.create_all(connection)


STEPS: tuple[Callable[[Connection], None], ...] = (create,)
"""what leads from schema n - 1 to schema n; the tables above are those of the last"""


def migrate(connection: Connection) -> int:
    """Bring a store to the schema of this version of mebandit, in the transaction of the connection; how many steps that took."""
    found = 0
    if inspect(connection).has_table(schema.name):
        found = connection.execute(select(schema.c.number)).scalar_one()
    if found > len(STEPS):
        words = f"store must have a schema of at most {len(STEPS)}; got schema {found}. Open it with the version of mebandit that made it."
        raise LogError(words)
    for step in STEPS[found:]:
        step(connection)
    if found == 0:
        connection.execute(insert(schema).values(number=len(STEPS)))
    else:
        connection.execute(update(schema).values(number=len(STEPS)))
    return len(STEPS) - found
