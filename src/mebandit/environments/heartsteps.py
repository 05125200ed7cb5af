"""HeartSteps V1: a mobile-health trial as an environment, in which past actions change the context.

The context has seven features: intercept, yesterday's steps, steps in the prior 30 minutes, temperature (these three standardised), step
variation, whether at home, and the treatment burden B_{t+1} = λ B_t + 1{A_t = 1}. Only the burden is seen with error. Each replicate is
one of 37 users.

The package contains a description of the public data (Klasnja et al. 2019, doi 10.1093/abm/kay067, CC BY 4.0): for each user, coefficients
and a mixture distribution of the contexts. `describe_study` computes it. `HeartSteps.from_csv` plays the rows of the data instead.
"""

import csv
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mebandit import checks, kernels
from mebandit.environments.base import Drawn, square_root, unknown
from mebandit.kernels import limits
from mebandit.values import Floats, Integers, Stretch, World

FEATURES = ("intercept", "yesterday", "prior30", "temperature", "variation", "home", "burden")
COLUMNS = (
    "user", "sum_step.log", "jbsteps30pre.log", "other.location", "work.location",
    "dec.temperature", "sd_steps60", "dosage", "send", "jbsteps30.log",
)  # fmt: skip
BURDEN = FEATURES.index("burden")
NO_STEPS = np.log(0.5)
"""the logged value of a half hour without steps"""


class Study(NamedTuple):
    """The cleaned data of the trial, a row for each decision."""

    user: Integers
    context: Floats
    """the seven features, (n, 7)"""
    send: Floats
    """1 where a suggestion was sent, else 0"""
    reward: Floats
    """logarithm of the steps in the next 30 minutes"""
    no_steps: Floats
    """1 where there were no steps in the prior 30 minutes, else 0"""


def _read_columns(path: Path) -> dict[str, Floats]:
    """The columns of the file that are used, as numbers; NaN where a cell is empty or NA."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, ValueError, csv.Error) as error:
        checks.refuse(str(path), "be the cleaned HeartSteps CSV", f"a file that cannot be read ({error})", error=checks.LogError)
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        rule = f"have rows with the columns {', '.join(COLUMNS)}"
        checks.refuse(str(path), rule, f"none for {', '.join(missing)}", error=checks.LogError)
    column = {name: np.full(len(rows), np.nan) for name in COLUMNS}
    for i, row in enumerate(rows):
        for name in COLUMNS:
            text = (row[name] or "").strip()
            if text and text != "NA":
                try:
                    column[name][i] = float(text)
                except ValueError:
                    rule = f"have numbers, or NA, in column {name}"
                    checks.refuse(str(path), rule, f"{text!r} in row {i + 2}", error=checks.LogError)
                if abs(column[name][i]) > limits.LARGEST:
                    rule = f"have numbers of at most {limits.LARGEST:g} in size in column {name}"
                    checks.refuse(str(path), rule, f"{text!r} in row {i + 2}", error=checks.LogError)
    return column


def read_study(path: str | Path) -> Study:
    """Read the cleaned data and standardise three features.

    First, rows without a plausible temperature are dropped. Then yesterday's steps, prior steps and temperature are standardised over the
    remaining rows (sample standard deviation). Last, rows with a missing value are dropped.

    Args:
        path: The cleaned CSV file.
    """
    column = _read_columns(checks.path("path", path))
    warm = column["dec.temperature"] > -100  # false where missing
    column = {name: values[warm] for name, values in column.items()}
    prior = column["jbsteps30pre.log"].copy()
    for name in ("sum_step.log", "jbsteps30pre.log", "dec.temperature"):
        values = column[name]
        column[name] = (values - np.nanmean(values)) / np.nanstd(values, ddof=1)
    full = ~np.isnan(np.column_stack(list(column.values()))).any(axis=1)
    column = {name: values[full] for name, values in column.items()}
    home = ((column["other.location"] == 0) & (column["work.location"] == 0)).astype(float)
    context = np.column_stack(
        [
            np.ones(len(home)),
            column["sum_step.log"],
            column["jbsteps30pre.log"],
            column["dec.temperature"],
            column["sd_steps60"],
            home,
            column["dosage"],
        ]
    )
    no_steps = (np.abs(prior[full] - NO_STEPS) < 1e-9).astype(float)
    return Study(column["user"].astype(np.int64), context, column["send"], column["jbsteps30.log"], no_steps)


def fit_user(context: Floats, send: Floats, reward: Floats) -> Floats:
    """The reward parameters of one user, (2, 7), by least squares (GEE with an independence working correlation).

    r = x'α + send (β_0 + β_1 variation + β_2 home + β_3 burden). The terms of home are left out unless 5 % to 95 % of the rows are at home.
    """
    home = context[:, 5]
    base = [0, 1, 2, 3, 4, 5, 6] if 0.05 <= home.mean() <= 0.95 else [0, 1, 2, 3, 4, 6]
    treated = [i for i in (0, 4, 5, 6) if i in base]
    design = np.column_stack([context[:, base], send[:, None] * context[:, treated]])
    coefficients = np.linalg.lstsq(design, reward, rcond=None)[0]
    theta = np.zeros((2, len(FEATURES)))
    theta[:, base] = coefficients[: len(base)]
    theta[1, treated] += coefficients[len(base) :]
    return theta


class Users(NamedTuple):
    """Reward parameters of every user, and a mixture distribution of their contexts (except the burden, which follows from the actions)."""

    theta: Floats
    """(users, 2, 7)"""
    probability: list[Floats]
    """for each user the probabilities of the C components, (C,); empty: the components are taken in turn"""
    mean: list[Floats]
    """for each user the mean of the context by component, (C, 7)"""
    covariance: list[Floats]
    """for each user the covariance of the context by component, (C or 1, 7, 7)"""


def describe_study(study: Study) -> dict[str, Any]:
    """The description of the data that is part of the package: for each user θ and a Gaussian mixture.

    The components are the observed combinations of (variation, home, no prior steps). Each has its probability and its mean. The covariance
    of the three continuous features is pooled over the components with prior steps, and over those without.
    """
    users = []
    for user in np.unique(study.user):
        rows = study.user == user
        x, still = study.context[rows], study.no_steps[rows]
        cells = np.column_stack([x[:, 4], x[:, 5], still])
        kinds, kind_of = np.unique(cells, axis=0, return_inverse=True)
        kind_of = kind_of.ravel()
        means = np.array([x[kind_of == i, 1:4].mean(axis=0) for i in range(len(kinds))])
        spread = x[:, 1:4] - means[kind_of]
        pooled = [
            np.zeros((3, 3)) if not (still == s).any() else spread[still == s].T @ spread[still == s] / (still == s).sum() for s in (0, 1)
        ]
        users.append(
            {
                "user": int(user),
                "rows": int(rows.sum()),
                "theta": fit_user(x, study.send[rows], study.reward[rows]).tolist(),
                "components": [
                    {"share": round(float((kind_of == i).mean()), 6), "variation": kind[0], "home": kind[1], "no_steps": kind[2],
                     "mean": means[i].round(5).tolist()}
                    for i, kind in enumerate(kinds)
                ],
                "covariance": [p.round(5).tolist() for p in pooled],
            }
        )  # fmt: skip
    return {
        "source": "HeartSteps V1: Klasnja, Smith, Seewald, Lee, Hall, Luers, Hekler, Murphy (2019), Annals of Behavioral Medicine "
        "53(6), 573-582, doi 10.1093/abm/kay067; public data under Creative Commons Attribution 4.0; changes: summarised by "
        "scripts/fit_heartsteps.py into the numbers below.",
        "features": list(FEATURES),
        "users": users,
    }


@cache
def built_in_users() -> Users:
    """The users of the description that is part of the package."""
    text = resources.files("mebandit.environments").joinpath("heartsteps.json").read_text(encoding="utf-8")
    probability, mean, covariance, theta = [], [], [], []
    for user in json.loads(text)["users"]:
        parts = user["components"]
        share = np.array([part["share"] for part in parts])
        m = np.zeros((len(parts), len(FEATURES)))
        c = np.zeros((len(parts), len(FEATURES), len(FEATURES)))
        for i, part in enumerate(parts):
            m[i] = [1.0, *part["mean"], part["variation"], part["home"], 0.0]
            c[i, 1:4, 1:4] = user["covariance"][int(part["no_steps"])]
        theta.append(user["theta"])
        probability.append(share / share.sum())
        mean.append(m)
        covariance.append(c)
    return Users(np.array(theta), probability, mean, covariance)


def observed_users(study: Study, *, in_turn: bool) -> Users:
    """The users of the data. The contexts of a user are the rows of that user, drawn with equal probability or taken in turn."""
    theta, probability, mean = [], [], []
    for user in np.unique(study.user):
        rows = study.user == user
        x = study.context[rows].copy()
        theta.append(fit_user(x, study.send[rows], study.reward[rows]))
        x[:, BURDEN] = 0.0
        mean.append(x)
        probability.append(np.zeros(0) if in_turn else np.full(len(x), 1 / len(x)))
    flat = [np.zeros((1, len(FEATURES), len(FEATURES)))] * len(theta)
    return Users(np.array(theta), probability, mean, flat)


def check_users(users: Users) -> None:
    """Refuse users that are not valid, since compiled code does not check them."""
    if not isinstance(users, Users):
        checks.refuse("users", "be Users, as observed_users gives them", checks.shown(users))
    d = len(FEATURES)
    theta = checks.floats("users.theta", users.theta, (None, 2, d))
    checks.integer("the number of users", len(theta), 1)
    for name in ("probability", "mean", "covariance"):
        if not isinstance(getattr(users, name), list) or len(getattr(users, name)) != len(theta):
            checks.refuse(f"users.{name}", f"be a list of {len(theta)} arrays, one for each user", checks.shown(getattr(users, name)))
    for probability, mean, covariance in zip(users.probability, users.mean, users.covariance, strict=True):
        components = len(checks.floats("users.mean", mean, (None, d)))
        shares = checks.floats("users.probability", probability, (None,))
        if not components or shares.size not in (0, components) or (shares < 0).any() or (shares.size and abs(shares.sum() - 1) > 1e-9):
            checks.refuse("users.probability", f"be empty, or {components} probabilities that sum to 1", checks.shown(shares))
        levels = len(checks.regular("users.covariance", covariance))
        if levels not in (1, components):
            checks.refuse("users.covariance", f"have 1 or {components} entries", levels)
        checks.covariances("users.covariance", np.asarray(covariance), d, levels)


@dataclass(frozen=True, kw_only=True)
class HeartSteps(Drawn):
    """The mobile-health trial HeartSteps V1. Action 1 sends a suggestion, action 0 does not.

    The context has seven features; only the last one, the treatment burden, is seen with error. Each replicate is a random user.
    """

    noise_sd: float = 0.1
    """standard deviation of the reward noise"""
    burden_error_var: float = 1.0
    """variance of the error with which the burden is seen"""
    decay: float = 0.95
    """λ in [0, 1) of the burden B_{t+1} = λ B_t + 1{A_t = 1}"""
    user: int | None = None
    """the user that every replicate plays, 0 to 36; None: a random one"""
    source: str = "built-in description"
    """where the users come from, in words"""
    users: Users = field(default_factory=built_in_users, repr=False, compare=False)
    """the users; by default those of the built-in description"""
    n_actions: ClassVar[int] = 2
    dim: ClassVar[int] = len(FEATURES)

    def __post_init__(self) -> None:
        checks.number("noise_sd", self.noise_sd, "be a number of at least 0", 0.0)
        checks.number("burden_error_var", self.burden_error_var, "be a number of at least 0", 0.0)
        checks.number("decay", self.decay, "be in [0, 1)", 0.0, 1 - 1e-12)
        if self.users is not built_in_users():
            check_users(self.users)
        if self.user is not None:
            checks.integer("user", self.user, 0, len(self.users.theta) - 1)

    @classmethod
    def from_csv(cls, path: str | Path, *, in_turn: bool = False, **options: Any) -> "HeartSteps":
        """The environment whose contexts are the rows of the data.

        Args:
            path: The cleaned CSV file.
            in_turn: Whether the rows of a user are repeated in their order; by default they are drawn with equal probability, as the paper
                says.
            **options: The fields of `HeartSteps`, such as `noise_sd`.
        """
        users = observed_users(read_study(path), in_turn=in_turn)
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
        return cls(users=users, source=f"rows of {digest}, {'in turn' if in_turn else 'drawn'}", **options)

    @property
    def user_theta(self) -> Floats:
        """The reward parameters of every user, (37, 2, 7)."""
        return self.users.theta.copy()

    @cached_property
    def error_cov(self) -> Floats:
        """Σe, (7, 7): zero except for the burden."""
        cov = np.zeros((self.dim, self.dim))
        cov[BURDEN, BURDEN] = self.burden_error_var
        return checks.negligible_as_zero(cov)

    @cached_property
    def _worlds(self) -> Callable[[int], World]:
        return cache(self._build_world)

    def _build_world(self, user: int) -> World:
        covariance = self.users.covariance[user]
        return World(
            cumulative=np.cumsum(self.users.probability[user]),
            mean=np.array(self.users.mean[user], dtype=np.float64),
            factor=np.stack([square_root(np.asarray(c, dtype=np.float64)) for c in covariance]),
            error_mean=np.zeros((1, self.dim)),
            error_factor=np.sqrt(self.error_cov)[None],
            random_context=bool(np.any(covariance)),
            random_error=True,
            hold=1,
            context_kind=kernels.NORMAL,
            error_kind=kernels.NORMAL,
            error_df=0.0,
            noise_kind=kernels.NORMAL,
            noise_sd=float(self.noise_sd),
            theta=np.array(self.users.theta[user], dtype=np.float64),
            error_cov=self.error_cov[None],
            offset=unknown(self.dim)[0],
            gain=unknown(self.dim)[1],
            carry_index=BURDEN,
            carry_decay=float(self.decay),
            carry_gain=np.array([0.0, 1.0]),
        )

    def user_of(self, stretch: Stretch) -> int:
        """The user that a replicate plays, the same in all cells.

        A random one; in each block of 37 replicates every user comes once, which removes the differences between users from comparisons.

        Args:
            stretch: Rounds of the replicate. Only their seed and the number of the replicate count.
        """
        if self.user is not None:
            return self.user
        turn, place = divmod(stretch.replicate, len(self.users.theta))
        return int(self._order(stretch.seed, turn)[place])

    def _order(self, seed: int, turn: int) -> Integers:
        """A random order of all users."""
        return np.argsort([kernels.uniform_pair(seed, 0, turn, user, kernels.USER)[0] for user in range(len(self.users.theta))])

    def world_of(self, stretch: Stretch) -> World:
        """The world of a replicate: that of the user who plays it, see `user_of`.

        Args:
            stretch: Rounds of the replicate. Only their seed and the number of the replicate count.
        """
        return self._worlds(self.user_of(stretch))

    def worlds(self, seed: int, first: int, end: int) -> tuple[list[World], Integers]:
        """The worlds of all users, and for replicates first, ..., end - 1 the number of their user.

        Args:
            seed: The seed of the simulation, which decides the order of the users.
            first: The first replicate, from 0.
            end: The replicate after the last.
        """
        n = len(self.users.theta)
        if self.user is not None:
            return [self._worlds(self.user)], np.zeros(end - first, dtype=np.int64)
        order = np.concatenate([self._order(seed, turn) for turn in range(first // n, (end - 1) // n + 1)])
        return [self._worlds(user) for user in range(n)], order[first % n :][: end - first]
