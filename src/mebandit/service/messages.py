"""What the calls of the service take and give, as types: the OpenAPI description and the checks of every request are made from them."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

Status = Literal["draft", "running", "paused", "stopped"]
Kind = Literal["meb_dr", "meb", "meb_naive", "greedy", "lin_ucb", "thompson", "robust_ucb", "uniform"]
MOST = 1000
"""items of one request"""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@~-]{1,200}$", description="1 to 200 letters, digits and _ . : @ ~ -")]
Said = Annotated[str, Field(pattern="^[^\\x00]*$", max_length=1000)]


def _time(value: Any) -> Any:
    """A text that is a time with a zone; kept as the client wrote it."""
    if isinstance(value, str):
        try:
            zone = datetime.fromisoformat(value).astimezone(UTC) if datetime.fromisoformat(value).tzinfo else None
        except (ValueError, OverflowError):
            zone = None
        if zone is None:
            raise ValueError("be a date and time with its offset from UTC, such as 2026-03-01T07:30:00-05:00")
    return value


Time = Annotated[str, BeforeValidator(_time), Field(json_schema_extra={"format": "date-time"}, max_length=40)]


def _whole(value: Any) -> Any:
    """2.0 is a whole number to JSON."""
    return int(value) if type(value) is float and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


class Message(BaseModel):
    """The base of all: no field that is not named here, and no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Feature(Message):
    """One feature of the predicted context."""

    name: Name
    constant: float | None = Field(
        default=None, description="its value in every decision; it is then not part of the context of a decision"
    )
    range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="the smallest and the largest value"
    )
    missing: Literal["fallback"] | float = Field(
        default="fallback", description="what decides where it is missing: the fallback, or this value"
    )
    invalid: Literal["fallback", "clip"] = Field(default="fallback", description="what becomes of a value outside the range")
    max_age_hours: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="an older value, by observed_at, counts as missing"
    )


class Recipe(Message):
    """A policy by the name of its recipe; options that are left out have the recipe's defaults."""

    kind: Kind
    floor: Annotated[float, Field(ge=0, le=1)] | None = None
    warmup: Annotated[Whole, Field(ge=0)] = 0
    refit: Annotated[Whole, Field(ge=1)] | None = None
    ridge: Annotated[float, Field(ge=0)] | None = None
    intercept: bool | None = None
    discount: Annotated[float, Field(ge=0.5, le=1)] | None = None
    width: Annotated[float, Field(ge=0)] | None = None
    memory: Annotated[float, Field(gt=0)] | None = None
    guard: Literal["auto", "always", "never"] | None = None
    context: Literal["predicted", "blp", "ew_blp", "auto"] | None = None
    correct_from: Annotated[Whole, Field(ge=1)] | None = None
    horizon: Annotated[Whole, Field(ge=1)] | None = None


class ErrorOfDecision(Message):
    """The error covariance of a prediction: variances by feature, or a whole matrix in the order of the features."""

    cov: JsonValue


class ErrorModel(ErrorOfDecision):
    """The error covariance of all predictions that bring none of their own."""

    per_hour: dict[Name, float] = Field(default={}, description="what is added to a variance for each hour between observed_at and at")


class Cadence(Message):
    """When a new version is made: exactly one of the three."""

    outcomes: Annotated[Whole, Field(ge=1)] | None = Field(default=None, description="after so many outcomes that were not learned yet")
    seconds: Annotated[float, Field(gt=0)] | None = Field(default=None, description="so often, if there is something new")
    by_hand: Literal[True] | None = Field(default=None, description="only when POST .../train asks for it")


class Waiting(Message):
    """How long an outcome is waited for, and what then."""

    wait_hours: Annotated[float, Field(gt=0)] | None = Field(default=None, description="null: for ever")
    then: float | None = Field(
        default=None, description="null: it is closed as missing, and not learned; else it is closed with this value"
    )


def _clock(value: str) -> str:
    """A time of day as 08:30."""
    hours, _, minutes = value.partition(":")
    if not (len(value) == 5 and hours.isdigit() and minutes.isdigit() and int(hours) < 24 and int(minutes) < 60):
        raise ValueError("be a time of day such as 08:30")
    return value


Times = Annotated[list[Annotated[str, AfterValidator(_clock)]], Field(max_length=48, json_schema_extra={"examples": [["08:30", "17:30"]]})]


class Calendar(Message):
    """When decisions are due, so that those that were not made are seen. It changes no decision."""

    times: Times = Field(description="times of day in the time zone of each participant; a participant may have others")
    grace_minutes: Annotated[float, Field(gt=0, le=1440)] = Field(default=60, description="how far from them a decision may be")


class Configuration(Message):
    """All that says how an experiment decides and learns."""

    model_config = example(
        actions=["none", "prompt"],
        features=[{"name": "one", "constant": 1}, {"name": "stress", "range": [0, 1]}],
        policy={"kind": "meb_dr", "floor": 0.1, "warmup": 20},
        error={"cov": {"stress": 0.04}},
        fallback={"none": 0.5, "prompt": 0.5},
        cadence={"outcomes": 1},
    )
    actions: Annotated[list[Name], Field(min_length=2, max_length=50)]
    features: Annotated[list[Feature], Field(min_length=1, max_length=50)]
    policy: Recipe
    error: ErrorModel | Literal["per decision"] = "per decision"
    fallback: dict[Name, Annotated[float, Field(ge=0, le=1)]] = Field(
        description="the probability of each action where the policy cannot decide"
    )
    cadence: Cadence = Cadence(seconds=1)
    outcomes: Waiting = Waiting()
    learns_from: list[Literal["learned", "warmup", "fallback", "external"]] = ["learned", "warmup", "fallback"]
    calendar: Calendar | None = None


class Experiment(Message):
    """An experiment as it stands."""

    experiment: str
    status: Status
    configuration: dict[str, Any]
    configuration_hash: str
    secret_hash: str
    version: int
    latest: int
    pinned: bool


class Change(Message):
    """A change of an experiment's status, with the reason that the audit keeps."""

    model_config = example(to="running", reason="approved")
    to: Literal["running", "paused", "stopped"]
    reason: Annotated[Said, Field(min_length=1)]


class Unit(Message):
    """A participant, or whatever is treated."""

    model_config = example(timezone="America/New_York", start="2026-03-01T00:00:00-05:00", group="site 2")
    timezone: Annotated[str, Field(pattern="^[A-Za-z0-9_+/-]{1,64}$")] = "UTC"
    start: Time | None = None
    end: Time | None = None
    group: Said | None = None
    times: Times | None = Field(default=None, description="times of day at which decisions are due; null: those of the experiment")
    status: Literal["active", "withdrawn"] = "active"


class Request(Message):
    """A decision to be made."""

    model_config = example(
        decision="u17-2026-03-01-am",
        unit="u17",
        at="2026-03-01T07:30:00-05:00",
        available=True,
        allowed=["none", "prompt"],
        context={"stress": 0.62},
        observed_at={"stress": "2026-03-01T07:10:00-05:00"},
        error={"cov": {"stress": 0.04}},
        predictor="stressnet-3.1",
    )
    decision: Name
    unit: Name | None = None
    at: Time | None = None
    available: bool = True
    allowed: Annotated[list[Name], Field(min_length=1)] | None = None
    context: dict[str, JsonValue] = {}
    observed_at: dict[str, Time] = {}
    error: ErrorOfDecision | None = None
    predictor: Said | None = None


class Answer(Message):
    """A decision that was made and is stored."""

    decision: str
    action: str | None
    probabilities: dict[str, float] | None
    mode: Literal["learned", "warmup", "fallback", "unavailable", "external"]
    reason: str | None
    version: int | None
    replayed: bool
    notes: list[str]


class Requests(Message):
    """Many decisions to be made."""

    model_config = example(decisions=[{"decision": "u17-2026-03-01-am", "context": {"stress": 0.62}}])
    decisions: Annotated[list[Request], Field(min_length=1, max_length=MOST)]


class Made(Request):
    """A decision that a client made by itself."""

    action: Name
    probabilities: dict[Name, Annotated[float, Field(ge=0, le=1)]]


class External(Message):
    """Decisions that a client made by itself."""

    model_config = example(
        decisions=[
            {
                "decision": "u17-2026-03-02-am",
                "at": "2026-03-02T07:30:00-05:00",
                "context": {"stress": 0.4},
                "action": "none",
                "probabilities": {"none": 0.5, "prompt": 0.5},
            }
        ]
    )
    decisions: Annotated[list[Made], Field(min_length=1, max_length=MOST)]


class Outcome(Message):
    """A revision of a decision's outcome."""

    decision: Name
    revision: Annotated[Whole, Field(ge=1, le=10**9)] = 1
    value: Annotated[float, Field(ge=-1e100, le=1e100)] | None
    final: bool = True


class Outcomes(Message):
    """Outcomes of decisions."""

    model_config = example(outcomes=[{"decision": "u17-2026-03-01-am", "revision": 1, "value": 1.4, "final": True}])
    outcomes: Annotated[list[Outcome], Field(min_length=1, max_length=MOST)]


class Delivery(Message):
    """What was really done with a decision."""

    decision: Name
    status: Literal["delivered", "failed", "suppressed"]
    action: Name | None = Field(default=None, description="the action really taken, where it is another one")
    at: Time | None = None


class Deliveries(Message):
    """Deliveries of decisions."""

    model_config = example(deliveries=[{"decision": "u17-2026-03-01-am", "status": "delivered"}])
    deliveries: Annotated[list[Delivery], Field(min_length=1, max_length=MOST)]


class Truth(Message):
    """True values of features, known later."""

    decision: Name
    values: Annotated[dict[Name, Annotated[float, Field(ge=-1e100, le=1e100)]], Field(min_length=1)]


class Truths(Message):
    """True values of features, known later."""

    model_config = example(truths=[{"decision": "u17-2026-03-01-am", "values": {"stress": 0.55}}])
    truths: Annotated[list[Truth], Field(min_length=1, max_length=MOST)]


class Result(Message):
    """What became of one item of a request."""

    decision: str
    status: Literal["stored", "duplicate", "conflict", "unknown", "refused"]
    note: str | None = None


class Results(Message):
    """What became of each item, in the order of the request."""

    results: list[Result]


class Activation(Message):
    """Which version decides: a number, or the latest and all that follow it."""

    model_config = example(version=14, reason="the outcomes of last night were wrong")
    version: Annotated[Whole, Field(ge=0, le=2**31 - 1)] | Literal["latest"]
    reason: Annotated[Said, Field(min_length=1)]


class NewKey(Message):
    """A key to be made."""

    model_config = example(name="app server", roles=["decide", "outcome"])
    name: Annotated[str, Field(pattern="^[A-Za-z0-9 _.-]{1,100}$")]
    roles: Annotated[list[Literal["decide", "outcome", "operate", "read"]], Field(min_length=1)]


class Note(Message):
    """What people know of an incident."""

    model_config = example(said="The app of version 3.1 sent minutes instead of hours; mended on Tuesday.")
    said: Annotated[Said, Field(min_length=1)]


class NewWebhook(Message):
    """An address that is told of incidents that open and close."""

    model_config = example(name="on call", address="https://alerts.example.org/mebandit")
    name: Annotated[str, Field(pattern="^[A-Za-z0-9 _.-]{1,100}$")]
    address: Annotated[str, Field(pattern="^https?://[!-~]{1,500}$")]


class Problem(Message):
    """Why a request was not served (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
