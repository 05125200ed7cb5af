"""The value that all of this is about: an `ErrorModel`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement import words
from mebandit.measurement.hypotheses import ChiSquare
from mebandit.values import Booleans, Floats, Integers

KINDS = ("known", "replicates", "classical", "berkson", "biased", "misclassified", "reported", "joined")
UNBIASING = ("berkson", "biased", "misclassified")
"""whose predictions are unbiased before anything is taken out"""
PAIRED = ("classical", "berkson", "biased")
"""what validation pairs can be used as"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorModel:
    """What is known of the error of a prediction: E[x̃ | x] = b + B x, Var(x̃ | x) = Ω. Made by the functions of this module."""

    kind: str
    """how it is used: one of `KINDS`"""
    offset: Floats
    """b, (d,)"""
    slope: Floats
    """B, (d, d)"""
    raw_cov: Floats
    """Ω = Var(x̃ | x), (d, d)"""
    parameters_cov: Floats
    """sampling covariance of `parameters`; zero where nothing was estimated"""
    sample_size: int
    """pairs, subjects or counted predictions that it was estimated from, the fewest of its parts; 0 where it was given"""
    verdict: str = ""
    """what pairs of prediction and truth say, however it is used: "classical", "berkson", "biased" or "undecided"; "" without pairs"""
    tests: dict[str, ChiSquare] = field(default_factory=dict)
    reliability: Floats
    """Var x / (Var x + Σe) of each coordinate where the data were drawn, (d,); NaN where not known"""
    prevalence: Floats
    """the class shares at which Ω is taken, if misclassified: (d,), or (d + 1,) with that of the reference class first; else empty"""
    scale: Floats
    """by how much a reported variance is multiplied, (d,)"""
    scale_std_error: Floats
    notes: dict[str, float] = field(default_factory=dict)
    """`left_out` subjects, readings `averaged`, the `factor` by which a wrong choice between classical and Berkson would change θ"""
    features: tuple[str, ...] = ()
    """the names of the coordinates, where they are known: `mebandit.fit` refuses them in another order"""
    parts: tuple["Part", ...] = ()
    """the models of which it was made, if joined"""

    @property
    def dim(self) -> int:
        return self.offset.size

    def check_features(self, what: str, features: Sequence[str]) -> None:
        """Refuse a log of other features, or of the same in another order."""
        d, named = len(features), f" ({', '.join(self.features)})" if self.features else ""
        if self.dim != d:
            remedy = "Models of some features each can be joined (measurement.join, mebandit error-model --join)."
            checks.refuse(what, f"be of the log's {d} features", f"one of {self.dim}{named}", remedy if self.dim < d else "")
        if self.features and self.features != tuple(features):
            remedy = "If they are the same under other names, give it these (model.named, mebandit error-model --features)."
            if sorted(self.features) == sorted(features):
                remedy = "Put them into that order."
            rule = f"be of the log's features, {', '.join(features)}, in their order"
            checks.refuse(what, rule, f"one of {', '.join(self.features)}", remedy)

    @property
    def pieces(self) -> tuple["Part", ...]:
        """Its parts; or itself, as the only one."""
        return self.parts or (Part(self, np.arange(self.dim)),)

    @property
    def is_doubted(self) -> bool:
        """Whether it is used as classical error though its pairs of prediction and truth say something else."""
        return self.kind in ("classical", "reported") and self.verdict in ("berkson", "biased")

    @property
    def unbiases(self) -> bool:
        """Whether predictions are unbiased before anything is taken out."""
        return self.kind in UNBIASING or any(part.model.unbiases for part in self.parts)

    def named(self, *features: str) -> "ErrorModel":
        """The same model with names for its coordinates.

        >>> from mebandit.measurement import from_known
        >>> print(from_known([0.3]).named("stress").describe().splitlines()[1])
        'stress': error variance 0.3
        """
        return replace(self, features=names_of(features, self.dim))

    @property
    def class_probabilities(self) -> Floats:
        """How often each class is predicted (rows) where each is true (columns), if misclassified, (K, K); a reference class is first."""
        if self.kind != "misclassified":
            checks.refuse("class_probabilities", "be asked of a model made by from_confusion", f"the kind {self.kind!r}")
        p = class_means(self.offset, self.slope, self.prevalence.size)
        return p if len(p) == p.shape[1] else np.vstack([1.0 - p.sum(axis=0), p])

    @property
    def error_cov(self) -> Floats:
        """Σe = B⁻¹ Ω B⁻ᵀ, the covariance of the error of `unbias(predicted)`, (d, d)"""
        return pulled_back(self.slope, self.raw_cov)

    @property
    def parameters(self) -> Floats:
        """φ = (b, B row by row, the upper triangle of Ω row by row), (d + d² + d(d+1)/2,)"""
        return stacked(self.offset, self.slope, self.raw_cov)

    def at(self, parameters: ArrayLike) -> "ErrorModel":
        """The same model with other parameters: what a delta method differentiates.

        Whether they make sense is not looked at. For "misclassified" Ω follows from B and the class shares, and what `parameters` say of it
        is passed over; for "reported" the scale of the variances follows Ω.
        """
        d = self.dim
        vector = checks.floats("parameters", parameters, (self.parameters.size,))
        if self.parts:
            return side_by_side([Part(part.model.at(vector[part.parameters_in(d)]), part.places) for part in self.parts], self.features)
        b, B, Ω = unstacked(vector, d)
        if self.kind == "misclassified":
            return replace(self, offset=b, slope=B, raw_cov=mixed(class_means(b, B, self.prevalence.size), self.prevalence))
        before = np.diag(self.raw_cov)
        factor = np.divide(np.diag(Ω), before, out=np.ones(d), where=before > 0)
        return replace(self, offset=b, slope=B, raw_cov=Ω, scale=self.scale * factor if self.kind == "reported" else self.scale)

    @property
    def error_cov_std_error(self) -> Floats:
        """Standard errors of `error_cov` by the delta method, (d, d)"""
        se, φ = np.sqrt(np.diag(self.parameters_cov)), self.parameters
        free = np.flatnonzero(se > 0)
        J = np.empty((self.dim**2, free.size))
        for column, k in enumerate(free):
            step = np.zeros(φ.size)
            step[k] = max(1e-3 * float(se[k]), 1e-7 * abs(float(φ[k])))  # small beside the uncertainty, large beside rounding
            J[:, column] = (self.at(φ + step).error_cov - self.at(φ - step).error_cov).ravel() / (2 * step[k])
        variance = np.einsum("ik,kl,il->i", J, self.parameters_cov[np.ix_(free, free)], J)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)).reshape(self.dim, self.dim))

    def unbias(self, predicted: ArrayLike) -> Floats:
        """B⁻¹ (x̃ - b): predictions whose error is uncorrelated with the truth, of shape (d,) or (n, d) as given."""
        shape = (self.dim,) if checks.regular("predicted", predicted).ndim < 2 else (None, self.dim)
        x = checks.floats("predicted", predicted, shape)
        same = identity_rows(self.slope) & (self.offset == 0)
        if same.all():
            return x.copy()
        unbiased = np.linalg.solve(self.slope, (x - self.offset).T).T
        return np.ascontiguousarray(np.where(same, x, unbiased), dtype=np.float64)

    def error_cov_in(self, mean: ArrayLike) -> Floats:
        """Σe in a log whose unbiased predictions have this mean, (d, d).

        The error of a predicted class depends on the true class, Σe = Σ_i q_i V_i with the shares q of the classes in the log, which `mean`
        estimates (negative shares count as none). For all other kinds this is `error_cov`.
        """
        m = checks.floats("mean", mean, (self.dim,))
        if self.parts:
            return _blocks([(part.model.error_cov_in(m[part.places]), part.places) for part in self.parts])
        if self.kind != "misclassified":
            return self.error_cov
        q = np.maximum(m if self.prevalence.size == self.dim else np.append(1.0 - m.sum(), m), 0.0)
        if q.sum() == 0:
            checks.refuse("mean", "have a positive entry", checks.shown(np.asarray(mean)), "It is the mean of `unbias(predicted)`.")
        return pulled_back(self.slope, mixed(class_means(self.offset, self.slope, q.size), q / q.sum()))

    def covariances(self, variances: ArrayLike) -> Floats:
        """Σe,t = diag(scale v_t) for the variances v that a prediction reports of itself: (n, d) -> (n, d, d)."""
        if self.kind != "reported":
            checks.refuse("covariances", "be asked of a model made by from_variances", f"the kind {self.kind!r}", "Use error_cov.")
        v = non_negative("variances", variances, (None, self.dim))
        return np.asarray((self.scale * v)[:, :, None] * np.eye(self.dim))

    def describe(self, features: Sequence[str] | None = None) -> str:
        """A few lines for people: what it is, how large the errors are, what was tested, and what to do. `features` names coordinates."""
        return words.describe(self, self.features if features is None else names_of(features, self.dim))

    def save(self, path: str | Path) -> None:
        """Write it as JSON; every number keeps every bit."""
        from mebandit.measurement.stored import save  # which is about this class

        save(self, checks.path("path", path))

    @classmethod
    def load(cls, path: str | Path) -> "ErrorModel":
        """Read what `save` wrote, every part checked."""
        from mebandit.measurement.stored import load

        return load(checks.path("path", path))


class Part(NamedTuple):
    """A model of some coordinates of a joined one."""

    model: ErrorModel
    places: Integers
    """which these are"""

    def parameters_in(self, d: int) -> Integers:
        """Where the parameters of a model of d coordinates have those of this one."""
        b, B, Ω = unstacked(np.arange(n_parameters(d), dtype=np.float64), d)  # their numbers in the places of the parameters
        own = np.ix_(self.places, self.places)
        return stacked(b[self.places], B[own], Ω[own]).astype(np.int64)


def side_by_side(parts: Sequence[Part], features: tuple[str, ...] = ()) -> ErrorModel:
    """One model of all coordinates, whose errors are uncorrelated between the parts."""
    d = sum(part.model.dim for part in parts)
    b, reliability, spread = np.zeros(d), np.zeros(d), np.zeros((n_parameters(d), n_parameters(d)))
    for model, places in parts:
        own = Part(model, places).parameters_in(d)
        b[places], reliability[places], spread[np.ix_(own, own)] = model.offset, model.reliability, model.parameters_cov
    return make_model(
        "joined",
        _blocks([(model.raw_cov, places) for model, places in parts]),
        b=b,
        B=_blocks([(model.slope, places) for model, places in parts]),
        parameters_cov=spread,
        sample_size=min((model.sample_size for model, _ in parts if model.sample_size), default=0),
        reliability=reliability,
        features=features,
        parts=tuple(parts),
    )


def check_joinable(model: ErrorModel) -> None:
    """Refuse what cannot be one of several."""
    if model.kind == "reported":
        remedy = "A log's error columns can be numbers for features with one variance (error_columns='0.3,variance')."
        checks.refuse("models", "be of one error covariance for all rounds", "one of reported variances", remedy)
    if model.is_doubted:
        remedy = "Make it without `assume`."
        checks.refuse("models", "be used as their validation pairs say", f"one used as classical whose pairs say {model.verdict}", remedy)


def _blocks(matrices: Sequence[tuple[Floats, Integers]]) -> Floats:
    """One matrix that has each of these in its places, and zeros elsewhere."""
    d = sum(len(places) for _, places in matrices)
    full = np.zeros((d, d))
    for matrix, places in matrices:
        full[np.ix_(places, places)] = matrix
    return full


def pulled_back(B: Floats, Ω: Floats) -> Floats:
    """B⁻¹ Ω B⁻ᵀ; Ω itself where B is the identity."""
    same = identity_rows(B)
    if same.all():
        return Ω.copy()
    Σ = np.linalg.solve(B, np.linalg.solve(B, Ω).T)
    Σ = (Σ + Σ.T) / 2
    exact = same & (np.diag(Ω) == 0)
    Σ[exact], Σ[:, exact] = 0.0, 0.0  # no error stays no error, rounding or not
    return np.asarray(Σ)


def identity_rows(B: Floats) -> Booleans:
    return np.asarray((np.eye(len(B)) == B).all(axis=1))


def mixed(p: Floats, q: Floats) -> Floats:
    """Ω = Σ_i q_i (diag(p_i) - p_i p_i') for predicted classes, p_i the i-th column of p."""
    return np.asarray(np.diag(p @ q) - (p * q) @ p.T)


def class_means(b: Floats, B: Floats, classes: int) -> Floats:
    """p, a column E[x̃ | class] for each class, the reference class first if there is one: b, and b + B e_i."""
    return B if classes == b.size else np.column_stack([b, B + b[:, None]])


def of_classes(p: Floats) -> tuple[Floats, Floats]:
    """b and B of which p are the class means."""
    return (np.zeros(len(p)), p) if p.shape[0] == p.shape[1] else (p[:, 0], np.ascontiguousarray(p[:, 1:] - p[:, :1]))


def stacked(b: Floats, B: Floats, Ω: Floats) -> Floats:
    """(b, B row by row, upper triangle of Ω row by row), for one model or for one contribution per subject in front."""
    d = b.shape[-1]
    rows, columns = np.triu_indices(d)
    return np.concatenate([b, B.reshape(*b.shape[:-1], d * d), Ω[..., rows, columns]], axis=-1)


def unstacked(vector: Floats, d: int) -> tuple[Floats, Floats, Floats]:
    """b, B and Ω of d coordinates, from what `stacked` makes of them."""
    Ω = np.zeros((d, d))
    Ω[np.triu_indices(d)] = vector[d + d * d :]
    return vector[:d], vector[d : d + d * d].reshape(d, d), np.triu(Ω) + np.triu(Ω, 1).T


def n_parameters(d: int) -> int:
    """The length of what `stacked` makes of a model of d coordinates."""
    return d + d * d + d * (d + 1) // 2


def make_model(
    kind: str, Ω: Floats, *, b: Floats | None = None, B: Floats | None = None, root: Floats | None = None, **rest: Any
) -> ErrorModel:
    """A model, its defaults filled in; `root` is F with F F' the covariance of its parameters, (size, anything)."""
    d = len(Ω)
    usual: dict[str, Any] = {
        "parameters_cov": np.zeros((n_parameters(d), n_parameters(d))) if root is None else root @ root.T,
        "sample_size": 0,
        "reliability": np.where(np.diag(Ω) == 0, 1.0, np.nan),
        "prevalence": np.empty(0),
        "scale": np.ones(d),
        "scale_std_error": np.zeros(d),
    }
    return ErrorModel(
        kind=kind,
        offset=np.zeros(d) if b is None else b,
        slope=np.eye(d) if B is None else B,
        raw_cov=(Ω + Ω.T) / 2,
        **(usual | rest),
    )


def reliability_of(truth_variance: Floats, Σ: Floats) -> Floats:
    """Var x / (Var x + Σe) by coordinate; 1 where there is no error."""
    total = truth_variance + np.diag(Σ)
    return np.divide(truth_variance, total, out=np.ones(len(Σ)), where=np.diag(Σ) > 0)


def non_negative(what: str, value: ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    v = checks.floats(what, value, shape)
    if (v < 0).any():
        i, j = (int(k) for k in np.argwhere(v < 0)[0])
        checks.refuse(what, "be at least 0", f"{v[i, j]} at [{i}, {j}]", "They are variances, not logarithms or differences.")
    return v


def names_of(names: Any, d: int) -> tuple[str, ...]:
    """The names of all coordinates, or of none."""
    if not isinstance(names, (list, tuple)) or len(names) not in (0, d) or not all(isinstance(name, str) and name for name in names):
        checks.refuse("features", f"be {d} names, or none", checks.shown(names))
    if len(set(names)) < len(names):
        checks.refuse("features", "be different names", checks.shown(names))
    return tuple(names)
