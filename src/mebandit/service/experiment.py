"""An experiment's configuration at work: what a request means in numbers, and which row a decision becomes."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from mebandit import checks, policies
from mebandit.checks import InvalidInput
from mebandit.kernels import limits
from mebandit.live.version import Version, drawn, uniforms
from mebandit.policies import LinearPolicy
from mebandit.service.messages import Configuration, Made, Request
from mebandit.service.store.database import in_utc
from mebandit.service.store.decisions import numbers
from mebandit.values import Booleans, Floats, Observation, Round

encode, encode_sorted = json.JSONEncoder().encode, json.JSONEncoder(sort_keys=True).encode


class Seen(NamedTuple):
    """What a request says of the context."""

    predicted: Floats | None
    """x̃, (d,), where the policy can decide on it"""
    error_cov: Floats | None
    problem: str | None
    """why the policy cannot decide on it"""
    notes: list[str]


class Experiment:
    """A configuration, checked.

    Args:
        configuration: as a client sent it.
        secret: the key of the random numbers of its decisions.
    """

    def __init__(self, configuration: Configuration, secret: bytes) -> None:
        self.configuration, self.secret = configuration, secret
        self.actions = list(configuration.actions)
        self.features = [feature.name for feature in configuration.features]
        for what, names in (("actions", self.actions), ("features", self.features)):
            if len(set(names)) < len(names):
                checks.refuse(what, "have different names", ", ".join(names))
        self.learns_from = frozenset(configuration.learns_from)
        for feature in configuration.features:
            if feature.range is not None and not feature.range[0] < feature.range[1]:
                checks.refuse(f"range of {feature.name}", "have a smallest value below its largest", feature.range)
        self.policy = self._policy()
        self.fallback = self._probabilities("fallback", configuration.fallback)
        cadence = configuration.cadence
        if sum(each is not None for each in (cadence.outcomes, cadence.seconds, cadence.by_hand)) != 1:
            checks.refuse("cadence", "say exactly one of outcomes, seconds and by_hand", cadence.model_dump(exclude_none=True))
        self._told: Floats | None = None
        """Σe of predictions that bring none of their own, (d, d), at the time of their observation"""
        if configuration.error != "per decision":
            self._told = self._covariance(configuration.error.cov)
            if not all(rate >= 0 and name in self.features for name, rate in configuration.error.per_hour.items()):
                checks.refuse("per_hour", "give features of the experiment a growth of at least 0", configuration.error.per_hour)

    @property
    def body(self) -> str:
        """The configuration as the store has it, every default written out, but for a calendar that is not there: configurations had none
        once, and keep their hash."""
        plain = self.configuration.model_dump(mode="json", exclude={"calendar"} if self.configuration.calendar is None else None)
        return json.dumps(plain, sort_keys=True)

    @property
    def hash(self) -> str:
        """SHA-256 of `body`."""
        return sha256(self.body.encode()).hexdigest()

    @cached_property
    def first(self) -> Version:
        """Version 0, which has learned nothing."""
        return Version(self.policy, secret=self.secret)

    def _policy(self) -> LinearPolicy:
        given = self.configuration.policy.model_dump(exclude_none=True)
        kind = given.pop("kind")
        recipe = policies.uniform if kind == "uniform" else getattr(policies, kind)
        options = {name: value for name, value in given.items() if not (name == "warmup" and value == 0)}
        for name in options:
            if name not in signature(recipe).parameters:
                checks.refuse(f"policy.{name}", f"be an option of {kind}", options[name])
        if kind == "robust_ucb" and "horizon" not in options:
            checks.refuse("policy.horizon", "be given for robust_ucb", "none")
        made: LinearPolicy = recipe(len(self.actions), len(self.features), **options)
        return made

    def _probabilities(self, what: str, given: Mapping[str, float]) -> Floats:
        """Probabilities by the name of the action as a vector, (K,)."""
        for name in given:
            if name not in self.actions:
                checks.refuse(what, f"name actions of the experiment ({', '.join(self.actions)})", name)
        vector = np.array([given.get(name, 0.0) for name in self.actions])
        if abs(vector.sum() - 1) > limits.ROUNDED:
            checks.refuse(what, "have probabilities that sum to 1", f"a sum of {vector.sum():g}")
        return vector

    def allowed(self, request: Request) -> Booleans:
        """Which actions may be taken, (K,)."""
        for name in request.allowed or ():
            if name not in self.actions:
                checks.refuse("allowed", f"name actions of the experiment ({', '.join(self.actions)})", name)
        return np.array([request.allowed is None or name in request.allowed for name in self.actions])

    # ---- what was seen ----

    def seen(self, request: Request, at: datetime) -> Seen:
        """The context of a request in numbers.

        Args:
            request: what the client sent.
            at: the time that the decision is for.
        """
        notes: list[str] = []
        try:
            x = np.array([self._value(feature, request, at, notes) for feature in self.configuration.features])
            return Seen(checks.floats("context", x, (len(x),)), self._error(request, at), None, notes)
        except InvalidInput as problem:
            return Seen(None, None, str(problem), notes)

    def _value(self, feature: Any, request: Request, at: datetime, notes: list[str]) -> float:
        if feature.constant is not None:
            return float(feature.constant)
        name, value = feature.name, request.context.get(feature.name)
        hours = self._age(name, request, at)
        if value is not None and feature.max_age_hours is not None and hours > feature.max_age_hours:
            notes.append(f"{name} is {hours:.3g} hours old, and counts as missing.")
            value = None
        if value is None:
            if feature.missing == "fallback":
                checks.refuse(f"context.{name}", "be there, and not too old", "none")
            notes.append(f"{name} is missing, and was taken as {feature.missing:g}.")
            return float(feature.missing)
        number = checks.number(f"context.{name}", value, "be a finite number")
        if feature.range is not None and not feature.range[0] <= number <= feature.range[1]:
            low, high = feature.range
            if feature.invalid == "fallback":
                checks.refuse(f"context.{name}", f"be from {low:g} to {high:g}", value)
            notes.append(f"{name} is outside {low:g} to {high:g}, and was clipped.")
            number = min(max(number, low), high)
        return number

    def _age(self, name: str, request: Request, at: datetime) -> float:
        """Hours between what was observed and what is decided for; 0 where nothing was said."""
        observed = request.observed_at.get(name)
        return 0.0 if observed is None else max((at - datetime.fromisoformat(observed)).total_seconds() / 3600, 0.0)

    def _error(self, request: Request, at: datetime) -> Floats:
        """Σe of a request: its own or that of the experiment, which may grow with the age of what was observed."""
        told = self.configuration.error
        if request.error is not None:
            return self._covariance(request.error.cov)
        if told == "per decision" or self._told is None:
            checks.refuse("error", "be given with each decision of this experiment", "none")
        if not told.per_hour:
            return self._told
        growth = [told.per_hour.get(name, 0.0) * self._age(name, request, at) for name in self.features]
        return self._told + np.diag(growth)

    def _covariance(self, given: Any) -> Floats:
        """Variances by name, or a matrix, as a covariance (d, d); constant features have no error."""
        d = len(self.features)
        if isinstance(given, dict):
            constant = {feature.name for feature in self.configuration.features if feature.constant is not None}
            for name in given:
                if name not in self.features or name in constant:
                    checks.refuse("error.cov", "name features of the experiment that are not constant", name)
            return checks.covariance("error.cov", [checks.number(f"error.cov.{n}", given.get(n, 0.0)) for n in self.features], d)
        return checks.covariance("error.cov", given, d)

    # ---- decisions as rows ----

    def decide(
        self, request: Request, *, name: str, received: datetime, version: Version, number: int, trouble: str | None
    ) -> dict[str, Any]:
        """The row of a decision, but for the number of the configuration.

        Args:
            request: what the client sent.
            name: of the experiment.
            received: when it came.
            version: what decides.
            number: the number of the version.
            trouble: why the policy must not decide, such as a pause; None: it may.
        """
        at = datetime.fromisoformat(request.at) if request.at else received
        allowed, seen = self.allowed(request), self.seen(request, at)
        trouble = trouble or seen.problem
        row = self.row(request, name, received, at, seen) | {"number": version.learned + 1}
        if not request.available:
            return row | {"mode": "unavailable", "reason": "The unit was not available."}
        if trouble is not None or seen.predicted is None or seen.error_cov is None:
            pi = self.fallback_among(allowed)
            u, auxiliary = uniforms(self.secret, request.decision)
            chosen = {"mode": "fallback", "reason": trouble, "action": drawn(pi, u), "propensities": numbers(pi)}
            return row | {"allowed": listed(pi > 0)} | chosen | {"uniform": u, "auxiliary": auxiliary}
        made = version.decide(request.decision, seen.predicted, seen.error_cov, allowed=allowed)
        mode = "warmup" if version.learned < self.policy.warmup else "learned"
        chosen = {"mode": mode, "version": number, "action": made.action, "propensities": numbers(made.propensities)}
        return row | {"allowed": listed(allowed)} | chosen | {"uniform": made.uniform, "auxiliary": made.auxiliary}

    def external(self, request: Made, *, name: str, received: datetime) -> dict[str, Any]:
        """The row of a decision that a client made by itself."""
        at = datetime.fromisoformat(request.at) if request.at else received
        pi, allowed = self._probabilities("probabilities", request.probabilities), self.allowed(request)
        if request.action not in self.actions:
            checks.refuse("action", f"be an action of the experiment ({', '.join(self.actions)})", request.action)
        action = self.actions.index(request.action)
        if not pi[action] >= limits.LEAST:
            checks.refuse("probabilities", "be above 0 for the action taken", pi[action])
        if pi[~allowed].any():
            checks.refuse("probabilities", "be 0 for actions that were not allowed", request.probabilities)
        _, auxiliary = uniforms(self.secret, request.decision)  # the client drew the action
        chosen = {"mode": "external", "number": 1, "action": action, "allowed": listed(pi > 0), "propensities": numbers(pi)}
        return self.row(request, name, received, at, self.seen(request, at)) | chosen | {"auxiliary": auxiliary}

    def row(self, request: Request, name: str, received: datetime, at: datetime, seen: Seen) -> dict[str, Any]:
        """What all rows of decisions have, and None for what only some have."""
        return {
            "experiment": name,
            "name": request.decision,
            "request": canonical(request),
            "unit": request.unit,
            "decided_for": in_utc(at),
            "received_at": in_utc(received),
            "mode": "",
            "reason": None,
            "version": None,
            "action": None,
            "allowed": None,
            "propensities": None,
            "uniform": None,
            "auxiliary": None,
            "predicted": None if seen.predicted is None else numbers(seen.predicted),
            "error_cov": None if seen.error_cov is None else numbers(seen.error_cov),
            "notes": encode(seen.notes),
        }

    def fallback_among(self, allowed: Booleans) -> Floats:
        """The fallback's probabilities among the allowed actions; equal ones where it has none for them."""
        pi = np.where(allowed, self.fallback, 0.0)
        if pi.sum() < limits.LEAST:
            pi = allowed.astype(np.float64)
        return np.asarray(pi / pi.sum())

    def answer(self, row: Mapping[str, Any], replayed: bool) -> dict[str, Any]:
        """A stored decision as the client gets it, see `messages.Answer`."""
        pi, action = row["propensities"], row["action"]
        return {
            "decision": row["name"],
            "action": None if action is None else self.actions[action],
            "probabilities": None if pi is None else dict(zip(self.actions, json.loads(pi), strict=True)),
            "mode": row["mode"],
            "reason": row["reason"],
            "version": row["version"],
            "replayed": replayed,
            "notes": json.loads(row["notes"]),
        }

    def round(self, row: Mapping[str, Any]) -> Round:
        """A decision with its outcome as a finished round, see `store.outcomes.rounds_of`."""
        pi = np.array(json.loads(row["propensities"]))
        x, s = (np.array(json.loads(row[name]), dtype=np.float64) for name in ("predicted", "error_cov"))
        allowed = np.isin(np.arange(len(pi)), json.loads(row["allowed"]))
        return Round(Observation(x, s, allowed, row["number"], row["auxiliary"]), row["action"], pi, row["value"])


def listed(allowed: Booleans) -> str:
    """The numbers of the allowed actions as JSON."""
    return encode(np.flatnonzero(allowed).tolist())


def canonical(request: Request) -> str:
    """A request as one text: two requests with the same text are the same."""
    return encode_sorted(request.model_dump(mode="json"))
