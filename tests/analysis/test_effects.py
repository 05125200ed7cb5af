"""Average effects, and the figure of the effects alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mebandit as mb
from mebandit.analysis.effects import average_effect
from tests.logs.test_coding import trial

COLUMNS: dict[str, Any] = {
    "predicted": "stress,place", "action": "message", "error_cov": {"stress": 0.1}, "intercept": True, "unit": "who",
}  # fmt: skip


def test_the_average_effect_is_that_of_centred_features() -> None:
    """With every feature less its mean, the intercept's contrast is the average effect, but for the uncertainty of that mean."""
    log = trial().query("free")
    found = mb.fit(log, **COLUMNS).average_effect("send", "none")
    columns = ["stress", "at_other", "at_work"]
    centred = log.assign(**{name: log[name] - log[name].mean() for name in columns})
    contrast = mb.fit(centred, **COLUMNS | {"predicted": columns}).best.contrast(1, 0)
    assert found.value == pytest.approx(contrast.intercept, rel=1e-8)
    slopes = contrast.theta
    by_unit = log.groupby("who")[columns].sum() - log.groupby("who")[columns].count() * log[columns].mean()
    of_mean = float(np.sum((by_unit.to_numpy() @ slopes) ** 2)) / len(log) ** 2
    assert found.std_error == pytest.approx(np.hypot(contrast.intercept_std_error, np.sqrt(of_mean)), rel=1e-8)
    plain = mb.fit(log, **COLUMNS).to_plain()["average_effects"]["1-0"]["dr"]
    assert (plain["value"], plain["interval"][0]) == (found.value, found.interval()[0])


def test_an_effect_at_a_value_moves_along_the_moderation() -> None:
    """The difference between two values of a feature is their distance times its coefficient, with that interval too."""
    found = mb.fit(trial().query("free"), methods="dr", **COLUMNS)
    low, high = (found.effect_at({"stress": value, "place=work": 1.0, "place=other": 0.0}) for value in (1.0, 3.0))
    contrast = found.best.contrast(1, 0)
    assert high.value - low.value == pytest.approx(2 * contrast.theta[0])
    everywhere = found.effect_at(dict.fromkeys(found.features, 0.0))
    assert (everywhere.value, everywhere.std_error) == pytest.approx((contrast.intercept, contrast.intercept_std_error))
    assert found.effect_at({}) == found.average_effect()
    with pytest.raises(mb.InvalidInput, match=r"at must be one of 'stress', .*; got 'steps'"):
        found.effect_at({"steps": 1.0})


def test_the_figure_has_a_row_for_each_effect_with_its_numbers(tmp_path: Path) -> None:
    found = mb.fit(trial().query("free"), **COLUMNS)
    for ending, begins in {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}.items():
        found.plot(tmp_path / f"effects.{ending}")
        assert (tmp_path / f"effects.{ending}").read_bytes().startswith(begins)
    figure = found.plot(outcome="steps in 30 minutes (log)", labels={"stress": "Stress (points)"})
    axes = figure.axes[0]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["average effect", "Stress (points)", "place: other instead of home", "place: work instead of home"]
    assert axes.get_title(loc="left") == "send − none"
    assert axes.get_xlabel() == "difference in steps in 30 minutes (log), 95 % intervals (dr)"
    effect = found.average_effect()
    assert any(text.get_text().startswith(f"{effect.value:.2f}") for text in axes.texts)
    assert len(axes.texts) == len(rows)
    low, high = axes.get_xlim()
    intercepts = np.abs(found.best.intercept).max()
    assert max(-low, high) < intercepts, "the intercepts do not crush the scale"


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    found = mb.fit(trial().query("free"), methods="dr", **COLUMNS)
    with pytest.raises(mb.InvalidInput, match="labels must be one of 'average', 'stress', 'place=other', 'place=work'; got 'steps'"):
        found.plot(labels={"steps": "Steps"})
    with pytest.raises(mb.InvalidInput, match="method must be one of 'dr'; got 'meb'"):
        found.plot(method="meb")
    with pytest.raises(mb.InvalidInput, match="path must end in one of"):
        found.plot(tmp_path / "effects.doc")


def test_a_mean_context_that_is_far_less_known_than_the_coefficients() -> None:
    """The degrees of freedom grow without bound; their square once ended in an OverflowError."""
    found = mb.fit(trial().query("free"), **COLUMNS).best
    effect = average_effect(found, 1, 0, np.zeros(found.theta.shape[1]), 1e200 * np.eye(found.theta.shape[1]))
    assert effect.std_error > 1e99
    assert effect.df > 1e100
