"""Average effects, and the figure of the effects alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import brentq

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


def three_arms(seed: int, n: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, action = rng.normal(1, 1, n), rng.integers(0, 3, n)
    reward = np.array([0.0, 0.2, 0.4])[action] + x * np.array([1.0, 1.0, 0.5])[action] + rng.normal(0, 1, n)
    return {"x": x + rng.normal(0, 0.5, n), "action": action, "reward": reward, "propensity": np.full(n, 1 / 3)}


def test_simultaneous_intervals_are_dunnetts() -> None:
    """Three equal arms against a common control: the critical value of Dunnett's test, whose tables have 2.21 for two comparisons."""
    from mebandit.estimation.simultaneous import common_level

    covariance = np.array([[2.0, 1.0], [1.0, 2.0]])
    critical = scipy.stats.norm.ppf(0.5 + common_level(0.95, covariance) / 2)
    normal = scipy.stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]])
    exact = brentq(lambda c: normal.cdf([c, c], lower_limit=[-c, -c]) - 0.95, 1.9, 2.6)
    assert exact == pytest.approx(2.212, abs=2e-3)
    assert critical == pytest.approx(exact, abs=0.015)
    assert common_level(0.95, np.ones((3, 3))) == pytest.approx(0.95, abs=2e-3)
    assert common_level(0.9, np.diag([1.0, 0.0])) == 0.9


def test_intervals_that_hold_together_are_wider_and_tests_are_joint() -> None:
    found = mb.fit(three_arms(1), predicted="x", error_cov=0.25, intercept=True, n_actions=3)
    effects = found.average_effects()
    each, together = effects.interval(simultaneous=False), effects.interval()
    np.testing.assert_allclose(each, [found.average_effect(a).interval() for a in (1, 2)], rtol=1e-12)
    ratio = np.ptp(together, axis=1) / np.ptp(each, axis=1)
    np.testing.assert_allclose(ratio, 1.13, atol=0.03)  # Dunnett's 2.21 beside 1.96
    assert (np.ptp(found.best.interval(simultaneous=True), axis=2) > np.ptp(found.best.interval(), axis=2)).all()
    for a in (1, 2):
        contrast = found.best.contrast(a, 0)
        assert (np.ptp(contrast.interval(simultaneous=True), axis=1) >= np.ptp(contrast.interval(), axis=1)).all()
    tests = {name: test for name, test in found.joint_tests() if test is not None}
    assert set(tests) == {
        "1 - 0: no difference", "1 - 0: no moderation", "2 - 0: no difference", "2 - 0: no moderation",
        "2 - 1: no difference", "2 - 1: no moderation", "no difference between any two actions",
    }  # fmt: skip
    moderation = tests["2 - 0: no moderation"]
    contrast = found.best.contrast(2, 0)
    assert moderation.statistic == pytest.approx(float((contrast.theta[0] / contrast.std_error[0]) ** 2))
    assert moderation.p_value == pytest.approx(2 * scipy.stats.t.sf(np.sqrt(moderation.statistic), moderation.denominator_df), rel=1e-8)
    assert tests["no difference between any two actions"].df == 4
    assert "Intervals that hold together with 95 %: 1 - 0 [" in str(found)
    plain = found.to_plain()
    np.testing.assert_array_equal(plain["average_effects_together"]["interval"], together)
    assert plain["joint_tests"][0]["hypothesis"] == "1 - 0: no difference"
    joint = effects.wald()
    assert joint.df == 2
    assert joint.statistic >= max((effect.value / effect.std_error) ** 2 for effect in effects.effects)
