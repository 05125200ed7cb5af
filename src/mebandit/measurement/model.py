"""`ErrorModel`: what is known of the error of a prediction, the value that all functions of this package return."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mebandit import checks
from mebandit.measurement import description
from mebandit.measurement.hypotheses import ChiSquare
from mebandit.measurement.parameters import (
    class_covariance,
    class_means,
    identity_rows,
    n_parameters,
    pulled_back,
    stacked,
    unstacked,
)
from mebandit.values import Floats, Integers

KINDS = ("known", "replicates", "classical", "berkson", "biased", "misclassified", "reported", "joined")
UNBIASING = ("berkson", "biased", "misclassified")
"""kinds whose predictions are unbiased before the error covariance is subtracted"""
PAIRED = ("classical", "berkson", "biased")
"""kinds that validation pairs can have"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorModel:
    """What is known of the error of a prediction x̃ of x: E[x̃ | x] = b + B x, Var(x̃ | x) = Ω.

    Made by `from_known`, `from_replicates`, `from_validation`, `from_confusion`, `from_variances` and `join`.
    """

    kind: str
    """how the model is used: "known", "replicates", "classical", "berkson", "biased", "misclassified", "reported" or "joined"."""
    offset: Floats
    """b, (d,)"""
    slope: Floats
    """B, (d, d)"""
    raw_cov: Floats
    """Ω = Var(x̃ | x), (d, d)"""
    parameters_cov: Floats
    """sampling covariance of `parameters`; zero where nothing was estimated"""
    sample_size: int
    """pairs, subjects or counted predictions from which it was estimated, of a joined model the fewest; 0 if not estimated"""
    verdict: str = ""
    """the kind of error by the tests on pairs, whatever `kind` is: "classical", "berkson", "biased" or "undecided"; "" without pairs"""
    tests: dict[str, ChiSquare] = field(default_factory=dict)
    """tests of assumptions about the error, by name"""
    reliability: Floats
    """Var x / (Var x + Σe) of each coordinate in the population of the data, (d,); NaN where not known"""
    prevalence: Floats
    """the class shares at which Ω is taken, if misclassified: (d,), or (d + 1,) with that of the reference class first; else empty"""
    scale: Floats
    """the factor by which reported variances are multiplied, (d,); 1 for other kinds"""
    scale_std_error: Floats
    """its standard errors, (d,)"""
    notes: dict[str, float] = field(default_factory=dict)
    """by name: the number of subjects `left_out`, of readings `averaged`, the `factor` by which a wrong choice between classical and
    Berkson error would change θ"""
    features: tuple[str, ...] = ()
    """the names of the coordinates, or none; `mebandit.fit` refuses a log with other features or another order"""
    parts: tuple["Part", ...] = ()
    """the models of a joined one"""

    @property
    def dim(self) -> int:
        """The number of coordinates d."""
        return self.offset.size

    def check_features(self, what: str, features: Sequence[str]) -> None:
        """Refuse a log with other features than the model's, or with the same in another order.

        Args:
            what: The argument that a refusal names.
            features: The names of the log's features.
        """
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
        """The parts of a joined model; otherwise the model itself as the only part."""
        return self.parts or (Part(self, np.arange(self.dim)),)

    @property
    def is_doubted(self) -> bool:
        """Whether the model is used as classical although its validation pairs show another kind of error."""
        return self.kind in ("classical", "reported") and self.verdict in ("berkson", "biased")

    @property
    def unbiases(self) -> bool:
        """Whether predictions are unbiased before the error covariance is subtracted."""
        return self.kind in UNBIASING or any(part.model.unbiases for part in self.parts)

    def named(self, *features: str) -> "ErrorModel":
        """The same model with names for its coordinates.

        Args:
            features: One name for each of the d coordinates, in order; none to remove the names.

        >>> from mebandit.measurement import from_known
        >>> print(from_known([0.3]).named("stress").describe().splitlines()[1])
        'stress': error variance 0.3
        """
        return replace(self, features=names_of(features, self.dim))

    @property
    def class_probabilities(self) -> Floats:
        """The probability of each predicted class (rows) given each true class (columns), (K, K), of a model made by `from_confusion`.

        A reference class is first.
        """
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
        """The same model with other parameters, as a delta method needs it.

        For the kind "misclassified" Ω follows from B and the class shares, and that of `parameters` is ignored. For "reported" the scale of
        the variances follows Ω.

        Args:
            parameters: φ, see `parameters`, (d + d² + d(d+1)/2,). Whether they are sensible is not checked.
        """
        d = self.dim
        vector = checks.floats("parameters", parameters, (self.parameters.size,))
        if self.parts:
            return side_by_side([Part(part.model.at(vector[part.parameters_in(d)]), part.places) for part in self.parts], self.features)
        b, B, Ω = unstacked(vector, d)
        if self.kind == "misclassified":
            return replace(self, offset=b, slope=B, raw_cov=class_covariance(class_means(b, B, self.prevalence.size), self.prevalence))
        before = np.diag(self.raw_cov)
        factor = np.divide(np.diag(Ω), before, out=np.ones(d), where=before > 0)
        return replace(self, offset=b, slope=B, raw_cov=Ω, scale=self.scale * factor if self.kind == "reported" else self.scale)

    @property
    def error_cov_std_error(self) -> Floats:
        """Standard errors of `error_cov` by the delta method, (d, d); zero where nothing was estimated"""
        se, φ = np.sqrt(np.diag(self.parameters_cov)), self.parameters
        free = np.flatnonzero(se > 0)
        J = np.empty((self.dim**2, free.size))
        for column, k in enumerate(free):
            step = np.zeros(φ.size)
            step[k] = max(1e-3 * float(se[k]), 1e-7 * abs(float(φ[k])))  # small against the uncertainty, large against rounding
            J[:, column] = (self.at(φ + step).error_cov - self.at(φ - step).error_cov).ravel() / (2 * step[k])
        variance = np.einsum("ik,kl,il->i", J, self.parameters_cov[np.ix_(free, free)], J)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)).reshape(self.dim, self.dim))

    def unbias(self, predicted: ArrayLike) -> Floats:
        """B⁻¹ (x̃ - b): predictions whose error is uncorrelated with the truth.

        Args:
            predicted: x̃, (d,) or (n, d).

        Returns:
            An array of the same shape.
        """
        shape = (self.dim,) if checks.regular("predicted", predicted).ndim < 2 else (None, self.dim)
        x = checks.floats("predicted", predicted, shape)
        same = identity_rows(self.slope) & (self.offset == 0)
        if same.all():
            return x.copy()
        unbiased = np.linalg.solve(self.slope, (x - self.offset).T).T
        return np.ascontiguousarray(np.where(same, x, unbiased), dtype=np.float64)

    def error_cov_in(self, mean: ArrayLike) -> Floats:
        """Σe in a log whose unbiased predictions have this mean, (d, d).

        The error of a predicted class depends on the true class: Σe = Σ_i q_i V_i with the class shares q in the log, which `mean`
        estimates. Negative shares count as zero. For all other kinds this is `error_cov`.

        Args:
            mean: The mean of `unbias(predicted)` over the log, (d,).
        """
        m = checks.floats("mean", mean, (self.dim,))
        if self.parts:
            return _blocks([(part.model.error_cov_in(m[part.places]), part.places) for part in self.parts])
        if self.kind != "misclassified":
            return self.error_cov
        q = np.maximum(m if self.prevalence.size == self.dim else np.append(1.0 - m.sum(), m), 0.0)
        if q.sum() == 0:
            checks.refuse("mean", "have a positive entry", checks.shown(np.asarray(mean)), "It is the mean of `unbias(predicted)`.")
        return pulled_back(self.slope, class_covariance(class_means(self.offset, self.slope, q.size), q / q.sum()))

    def covariances(self, variances: ArrayLike) -> Floats:
        """Σe,t = diag(scale v_t) for predictions that report the variances of their own errors, of a model made by `from_variances`.

        Args:
            variances: v, (n, d).

        Returns:
            The covariances, (n, d, d).
        """
        if self.kind != "reported":
            checks.refuse("covariances", "be asked of a model made by from_variances", f"the kind {self.kind!r}", "Use error_cov.")
        v = non_negative("variances", variances, (None, self.dim))
        return np.asarray((self.scale * v)[:, :, None] * np.eye(self.dim))

    def describe(self, features: Sequence[str] | None = None) -> str:
        """The model in a few lines: its kind, the size of the errors, the tests, and what to do.

        Args:
            features: Names of the d coordinates; by default those of the model, or their numbers.
        """
        return description.describe(self, self.features if features is None else names_of(features, self.dim))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss of precision.

        Args:
            path: The file to write.
        """
        from mebandit.measurement.files import save  # it imports this class

        save(self, checks.path("path", path))

    @classmethod
    def load(cls, path: str | Path) -> "ErrorModel":
        """Read a model that `save` wrote, and check every part of it.

        Args:
            path: The file to read.

        Raises:
            LogError: The file cannot be read, or is damaged.
        """
        from mebandit.measurement.files import load

        return load(checks.path("path", path))


class Part(NamedTuple):
    """A model of some coordinates of a joined model."""

    model: ErrorModel
    places: Integers
    """the coordinates, in the order of the model's"""

    def parameters_in(self, d: int) -> Integers:
        """The positions of this part's parameters among those of a model of d coordinates."""
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
    """Refuse a model that cannot be a part of a joined one."""
    if model.kind == "reported":
        remedy = "A log's error columns can be numbers for features with one variance (error_columns='0.3,variance')."
        checks.refuse("models", "be of one error covariance for all rounds", "one of reported variances", remedy)
    if model.is_doubted:
        remedy = "Make it without `assume`."
        checks.refuse(
            "models",
            "be used as the kind that their validation pairs show",
            f"one used as classical whose pairs show {model.verdict}",
            remedy,
        )


def _blocks(matrices: Sequence[tuple[Floats, Integers]]) -> Floats:
    """The matrix with these blocks at their coordinates, and zeros elsewhere."""
    d = sum(len(places) for _, places in matrices)
    full = np.zeros((d, d))
    for matrix, places in matrices:
        full[np.ix_(places, places)] = matrix
    return full


def make_model(
    kind: str, Ω: Floats, *, b: Floats | None = None, B: Floats | None = None, root: Floats | None = None, **rest: Any
) -> ErrorModel:
    """An error model with defaults filled in; `root` is F with F F' the covariance of its parameters, (size, any number of columns)."""
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


def non_negative(what: str, value: ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    """An array of numbers of at least 0; a shape with None has any length there."""
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
