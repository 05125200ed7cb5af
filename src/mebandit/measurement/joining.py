"""One error model for features whose errors are known from different sources."""

from collections.abc import Sequence

import numpy as np

from mebandit import checks
from mebandit.measurement.known import from_known
from mebandit.measurement.model import ErrorModel, Part, check_joinable, side_by_side


def join(*models: ErrorModel, features: Sequence[str] | None = None) -> ErrorModel:
    """One error model from models of different features.

    For example stress from validation pairs, steps from replicates, activity from a confusion matrix.

    Separately fitted models say nothing about cross-correlations. The errors of different models are assumed uncorrelated, and a
    prediction is assumed to depend on the truth of its own model's features alone.

    Args:
        models: The error models, one or more; not of reported variances.
        features: The names of all coordinates in the order of the log, if every model has names (`ErrorModel.named`). Features that no
            model describes have no error. By default coordinates come in the order of the models.

    Returns:
        A model of the kind "joined".

    >>> stress, steps = from_known([0.3]).named("stress"), from_known([4.0]).named("steps")
    >>> join(stress, steps, features=["one", "steps", "stress"]).error_cov.diagonal()
    array([0. , 4. , 0.3])
    """
    if not models:
        checks.refuse("models", "be one or more error models", "none")
    for model in models:
        if not isinstance(model, ErrorModel):
            checks.refuse("models", "be error models", checks.shown(model), "Make one with from_known, from_validation, ...")
        check_joinable(model)
    names = [name for model in models for name in model.features]
    _check_once(names)
    nameless = any(not model.features for model in models)
    order, places = [] if nameless else names, np.arange(sum(model.dim for model in models))
    if features is not None:
        order = _checked_order(features, names, nameless)
        exact = [name for name in order if name not in names]
        models += (from_known(np.zeros(len(exact))).named(*exact),) if exact else ()
        places = np.array([order.index(name) for name in [*names, *exact]])
    parts: list[Part] = []
    for model in models:
        own, places = places[: model.dim], places[model.dim :]
        parts += [Part(part.model, own[part.places]) for part in model.parts] or [Part(model, own)]  # a joined model gives its parts
    return side_by_side(parts, tuple(order))


def _checked_order(features: Sequence[str], names: Sequence[str], nameless: bool) -> list[str]:
    """The names of all coordinates, in order, as a list."""
    if (
        isinstance(features, (str, set, frozenset))
        or not hasattr(features, "__len__")
        or not all(isinstance(f, str) and f for f in features)
    ):
        checks.refuse("features", "be names, in a list", checks.shown(features))
    if nameless:
        remedy = 'Name them: model.named("stress").'
        checks.refuse("models", "have names for their coordinates if `features` gives an order", "a model without names", remedy)
    order = list(map(str, features))
    _check_once(order)
    for name in names:
        if name not in order:
            checks.refuse("features", "have all features of the models", f"no {name!r}", "Add it at its place.")
    return order


def _check_once(names: Sequence[str]) -> None:
    for name in names:
        if list(names).count(name) > 1:
            checks.refuse("features", "be named once each", f"{name!r} twice")
