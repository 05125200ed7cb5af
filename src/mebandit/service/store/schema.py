"""The tables of a store, the same in SQLite and PostgreSQL, and the steps from one schema to the next.

Rows of decisions, outcomes, deliveries, truths, versions, learned rounds, incidents and what became of them, results of checks,
activations and audit are only ever added.
Times are texts in UTC, such as 2026-03-01T12:30:00.000000Z, which sort as the times do. Lists of numbers are JSON, which keeps every bit.
"""

from collections.abc import Callable
from secrets import token_hex

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
BY_UNIT = Index("decision_by_unit", decision.c.experiment, decision.c.unit, decision.c.id)

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

incident_event = Table(
    "incident_event",
    metadata,
    row_number(),
    Column("incident", Number, nullable=False),
    text("what"),
    text("at"),
    text("by"),
    text("said"),
    Column("units", Integer),
    Column("decisions", Integer),
)
"""what became of an incident: opened (which only an incident that lasts is), affected, note, closed"""
Index("incident_event_of", incident_event.c.incident)

watch = Table(
    "watch",
    metadata,
    Column("experiment", Text, primary_key=True),
    Column("upto", BigInteger, nullable=False),
    text("at"),
    text("sums"),
    text("results"),
)
"""a cache: what the checks have summed up of the decisions with ids up to `upto`, and their last results"""

check_result = Table(
    "check_result",
    metadata,
    row_number(),
    text("experiment"),
    text("name"),
    text("at"),
    text("level"),
    Column("value", Double),
    Column("limit", Double),
    text("said"),
    text("remedy"),
)
"""a row for each change of a level, and one an hour"""
Index("check_result_of", check_result.c.experiment, check_result.c.name, check_result.c.id)

effect = Table(
    "effect",
    metadata,
    text("experiment"),
    Column("version", Integer, nullable=False),
    Column("learned", BigInteger, nullable=False),
    text("at"),
    text("body"),
    PrimaryKeyConstraint("experiment", "version"),
)
"""what was estimated from the rounds of some versions"""

pulse = Table("pulse", metadata, row_number(), text("experiment"), text("process"), text("at"), text("body"))
"""what a process counted of an experiment in a minute: answers, repeated ones, conflicts, and how long they took"""
Index("pulse_of", pulse.c.experiment, pulse.c.at)

webhook = Table(
    "webhook", metadata, Column("name", Text, primary_key=True), text("address"), text("secret"), text("created_at"), text("by"),
    text("ended_at", null=True),
)  # fmt: skip

notice = Table(
    "notice",
    metadata,
    row_number(),
    text("webhook"),
    text("body"),
    Column("tries", Integer, nullable=False),
    Column("due", Double, nullable=False),
    text("delivered_at", null=True),
    text("failed", null=True),
)
"""what is sent to webhooks, until it is delivered or given up"""
Index("notice_due", notice.c.delivered_at, notice.c.due)

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


WATCH = " watch"
"""the name of the lease of whoever checks; no experiment can have it"""


setting = Table("setting", metadata, Column("name", Text, primary_key=True), text("value"))
SESSION_SECRET = "session secret"
"""the name of the setting that sessions of the dashboard are signed with"""


def create(connection: Connection) -> None:
    """Schema 1, and whatever tables a new store has besides."""
    metadata.create_all(connection)


def add_watching(connection: Connection) -> None:
    """Schema 2: results of checks, what became of incidents, webhooks, and decisions by unit. A new store has them already."""
    metadata.create_all(connection, [incident_event, watch, check_result, effect, pulse, webhook, notice, setting])
    BY_UNIT.create(connection, checkfirst=True)
    connection.execute(insert(setting).values(name=SESSION_SECRET, value=token_hex(32)))
    connection.execute(insert(lease).values(experiment=WATCH, holder="", token=0, until=0.0))


STEPS: tuple[Callable[[Connection], None], ...] = (create, add_watching)
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
