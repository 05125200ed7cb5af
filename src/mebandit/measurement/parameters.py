"""The parameters of an error model, E[x̃ | x] = b + B x and Var(x̃ | x) = Ω, as matrices and stacked into one vector."""

import numpy as np

from mebandit.values import Booleans, Floats


def stacked(b: Floats, B: Floats, Ω: Floats) -> Floats:
    """φ = (b, B row by row, upper triangle of Ω row by row), of one model or of one contribution per subject, (..., size)."""
    d = b.shape[-1]
    rows, columns = np.triu_indices(d)
    return np.concatenate([b, B.reshape(*b.shape[:-1], d * d), Ω[..., rows, columns]], axis=-1)


def unstacked(vector: Floats, d: int) -> tuple[Floats, Floats, Floats]:
    """b, B and Ω of d coordinates, from what `stacked` makes of them."""
    Ω = np.zeros((d, d))
    Ω[np.triu_indices(d)] = vector[d + d * d :]
    return vector[:d], vector[d : d + d * d].reshape(d, d), np.triu(Ω) + np.triu(Ω, 1).T


def n_parameters(d: int) -> int:
    """The number of parameters of a model of d coordinates, d + d² + d (d + 1) / 2."""
    return d + d * d + d * (d + 1) // 2


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
    """Which rows of B are those of the identity, (d,)."""
    return np.asarray((np.eye(len(B)) == B).all(axis=1))


def class_covariance(p: Floats, q: Floats) -> Floats:
    """Ω = Σ_i q_i (diag(p_i) - p_i p_i') for predicted classes: p_i, a column of p, is the mean of x̃ in class i, q_i the class's share."""
    return np.asarray(np.diag(p @ q) - (p * q) @ p.T)


def class_means(b: Floats, B: Floats, classes: int) -> Floats:
    """p, a column E[x̃ | class] for each class: b for a reference class, which is first if there is one, and b + B e_i."""
    return B if classes == b.size else np.column_stack([b, B + b[:, None]])


def of_classes(p: Floats) -> tuple[Floats, Floats]:
    """b and B of which p are the class means."""
    return (np.zeros(len(p)), p) if p.shape[0] == p.shape[1] else (p[:, 0], np.ascontiguousarray(p[:, 1:] - p[:, :1]))


def reliability_of(truth_variance: Floats, Σ: Floats) -> Floats:
    """Var x / (Var x + Σe) by coordinate, (d,); 1 where there is no error."""
    total = truth_variance + np.diag(Σ)
    return np.divide(truth_variance, total, out=np.ones(len(Σ)), where=np.diag(Σ) > 0)
