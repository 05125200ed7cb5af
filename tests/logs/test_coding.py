"""Cells that are not numbers, and what else a trial's own files hold: categories, labels, dates, availability, missing outcomes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mebandit as mb
from tests.analysis.test_fit import assert_same

PLACES = ("home", "other", "work")


def trial(n: int = 900, seed: int = 0) -> pd.DataFrame:
    """A log as a trial leaves it, with columns that say the same in numbers."""
    rng = np.random.default_rng(seed)
    stress, place, free = rng.normal(1, 1, n), rng.integers(0, 3, n), rng.random(n) < 0.8
    p = np.where(free, np.where(stress > 1, 0.7, 0.4), 0.0)
    send = rng.random(n) < p
    reward = 1 + 0.5 * stress + 0.3 * (place == 2) + send * (0.4 - 0.2 * stress) + rng.normal(0, 0.5, n)
    return pd.DataFrame(
        {
            "who": [f"P{i % 30}" for i in range(n)],
            "when": pd.Timestamp("2024-03-01 08:00") + pd.to_timedelta(rng.permutation(n), unit="h"),
            "free": free,
            "place": np.array(PLACES)[place],
            "at_other": (place == 1) * 1.0,
            "at_work": (place == 2) * 1.0,
            "stress": stress,
            "message": np.where(send, "send", "none"),
            "action": send.astype(int),
            "p_send": p,
            "propensity": np.where(send, p, 1 - p),
            "reward": reward,
        }
    )


NAMED: dict[str, Any] = {"predicted": ["stress", "at_other", "at_work"], "error_cov": [0.1, 0.0, 0.0], "intercept": True, "methods": "dr"}
"""the columns in numbers"""


def as_files(log: pd.DataFrame, folder: Path) -> list[Any]:
    """The same log as a table, a CSV and a Parquet file."""
    log.to_csv(folder / "log.csv", index=False)
    log.to_parquet(folder / "log.parquet")
    return [log, folder / "log.csv", folder / "log.parquet"]


def test_a_category_is_a_feature_for_each_label_but_the_reference(tmp_path: Path) -> None:
    log = trial().query("free")
    expected = mb.fit(log, **NAMED)
    for source in as_files(log, tmp_path):
        found = mb.fit(source, **NAMED | {"predicted": ["stress", "place"]})
        assert found.features == ("stress", "place=other", "place=work")
        assert dict(found.references) == {"place": "home"}
        assert "Reference: place=home." in str(found)
        assert_same(found.best, expected.best)
    other = mb.fit(log, **NAMED | {"predicted": ["stress", "place"], "categorical": "place=work"})
    assert other.features == ("stress", "place=home", "place=other")
    np.testing.assert_allclose(other.best.theta[:, 2], expected.best.theta[:, 1] - expected.best.theta[:, 2], rtol=1e-8)


def test_numbers_may_be_categories() -> None:
    log = trial().query("free").assign(code=lambda table: table["at_other"] + 2 * table["at_work"])
    found = mb.fit(log, **NAMED | {"predicted": ["stress", "code"], "categorical": "code"})
    assert found.features == ("stress", "code=1", "code=2")
    assert_same(found.best, mb.fit(log, **NAMED).best)


def test_truth_values_and_dates_are_numbers(tmp_path: Path) -> None:
    log = trial().query("free").assign(weekend=lambda table: table["at_work"] == 1)
    first = log["when"].min()
    days = (log["when"] - first).dt.total_seconds() / 86_400
    expected = mb.fit(log.assign(days=days), **NAMED | {"predicted": ["stress", "days", "at_work"]})
    for source in as_files(log, tmp_path):
        found = mb.fit(source, **NAMED | {"predicted": ["stress", "when", "weekend"]})
        assert found.features == ("stress", "when", "weekend")
        assert_same(found.best, expected.best, rtol=1e-6)


def test_labels_of_actions_are_in_the_results(tmp_path: Path) -> None:
    log = trial().query("free")
    expected = mb.fit(log, **NAMED)
    for source in as_files(log, tmp_path):
        found = mb.fit(source, action="message", **NAMED)
        assert found.actions == ("none", "send")
        assert_same(found.best, expected.best)
        assert "send - none" in str(found)
        assert "2 actions (none, send)" in str(found)
    turned = mb.fit(log, action="message", action_labels="send,none", **NAMED)
    np.testing.assert_allclose(turned.best.theta, expected.best.theta[::-1], rtol=1e-8)
    assert mb.fit(log, action_labels=["none", "send"], **NAMED).actions == ("none", "send")
    kept: dict[str, Any] = {"action": "message", "predicted": ["stress", "at_other", "at_work"]}
    assert mb.value(log, "send", **kept).best == mb.value(log, 1, **kept).best


def test_the_probability_of_one_action() -> None:
    log = trial().query("free")
    expected = mb.fit(log, **NAMED)
    by_number = mb.fit(log, propensity="p_send", probability_of=1, **NAMED)
    by_label = mb.fit(log.assign(action=log["message"]), propensity="p_send", probability_of="send", **NAMED)
    for found in (by_number, by_label):
        assert_same(found.best, expected.best)
    of_none = mb.fit(log.assign(p_none=1 - log["p_send"]), propensity="p_none", probability_of=0, **NAMED)
    assert_same(of_none.best, expected.best)


def test_only_available_rounds_are_fitted_and_all_are_valued(tmp_path: Path) -> None:
    log = trial()
    expected = mb.fit(log.query("free"), **NAMED)
    kept: dict[str, Any] = {
        "predicted": ["stress", "at_other", "at_work"],
        "propensity": "p_send",
        "probability_of": 1,
        "available": "free",
    }
    for source in as_files(log, tmp_path):
        found = mb.fit(source, **NAMED | kept)
        assert_same(found.best, expected.best)
        assert found.left_out is not None
        assert found.left_out.unavailable == (~log["free"]).sum()
        value = mb.value(source, "1 when available", **kept)
        free, closed = mb.value(log.query("free"), 1, **kept), log.query("~free")["reward"].sum()
        assert value.rounds == len(log)
        together = (free.estimates["ips"].value * free.rounds + closed) / len(log)
        assert value.estimates["ips"].value == pytest.approx(together, rel=1e-9)
    blank = log.assign(action=log["action"].astype("Int64").mask(~log["free"]), p_send=log["p_send"].mask(~log["free"]))
    assert_same(mb.fit(blank, **NAMED | kept).best, expected.best)


def test_export_writes_availability(tmp_path: Path) -> None:
    log = trial()
    mb.export(log, tmp_path / "mrt.csv", to="mrt", predicted="stress", propensity="p_send", probability_of=1, available="free", unit="who")
    written = pd.read_csv(tmp_path / "mrt.csv")
    np.testing.assert_array_equal(written["availability"], log["free"].astype(int))
    np.testing.assert_allclose(written["rand_prob"], log["p_send"])


def test_rows_without_an_outcome_are_refused_or_left_out(tmp_path: Path) -> None:
    log = trial().query("free")
    rng = np.random.default_rng(3)
    lost = rng.random(len(log)) < np.where(log["action"] == 1, 0.3, 0.1)
    expected = mb.fit(log[~lost], **NAMED)
    for source in as_files(log.assign(reward=log["reward"].mask(lost)), tmp_path):
        with pytest.raises(mb.LogError, match=r"Rows without a reward can be left out \(`missing_outcomes='leave-out'`\)"):
            mb.fit(source, **NAMED)
        found = mb.fit(source, missing_outcomes="leave-out", time="when", **NAMED)
        assert_same(found.best, expected.best)
        finding = next(each for each in found.diagnostics if each.name == "missing outcomes")
        assert finding.verdict == "yellow"
        assert finding.values["missing"] == [int(lost[log["action"] == a].sum()) for a in (0, 1)]
        assert f"{lost.sum()} of {len(log)} outcomes are missing" in finding.sentence
        assert "Over the time the share is" in finding.sentence


def test_drift_is_over_time_not_over_rows(tmp_path: Path) -> None:
    """Sorted by participant, whose means differ: no drift. By time, with a trend: drift, however the rows are sorted."""
    rng = np.random.default_rng(1)
    who, day = (part.ravel() for part in np.indices((40, 50)))
    n = who.size
    log = trial(n).assign(free=True, day=day, stress=0.3 * rng.normal(size=n) + who / 20)
    log = log.assign(action=rng.integers(0, 2, n), propensity=0.5)

    def verdict(table: Any, **options: Any) -> str:
        found = mb.fit(table, **NAMED, **options)
        return next(each.verdict for each in found.diagnostics if each.name == "drift of x̃")

    assert verdict(log) == "yellow"
    assert verdict(log, time="day") == "green"
    assert verdict(log.assign(stress=log["day"] / 25), time="day") == "yellow"
    for source in as_files(log.assign(date=pd.Timestamp("2024-01-01") + pd.to_timedelta(log["day"], unit="D")), tmp_path):
        assert verdict(source, time="date") == "green"


def test_a_rule_is_learned_from_the_first_part_of_the_time() -> None:
    log = trial().query("free")
    early = log["when"] < log["when"].min() + (log["when"].max() - log["when"].min()) / 2
    kept: dict[str, Any] = {"predicted": ["stress", "at_other", "at_work"], "error_cov": [0.1, 0, 0], "intercept": True}
    found = mb.learn_then_value(log, time="when", **kept)
    rule = mb.fit(log[early], methods="dr", **kept).best
    np.testing.assert_allclose(np.asarray(found.policy.theta), rule.theta, rtol=1e-9)
    assert found.rounds == (~early).sum()


def test_variances_by_name() -> None:
    log = trial().query("free").assign(variance=0.1)
    expected = mb.fit(log, **NAMED)
    named = NAMED | {"predicted": ["stress", "place"]}
    assert_same(mb.fit(log, **named | {"error_cov": {"stress": 0.1}}).best, expected.best)
    assert_same(mb.fit(log, **named | {"error_cov": None, "error_columns": {"stress": "variance"}}).best, expected.best, rtol=1e-6)
    assert_same(mb.fit(log, **named | {"error_cov": None, "error_columns": "stress=variance"}).best, expected.best, rtol=1e-6)
    model = mb.measurement.from_known([0.1]).named("stress")
    assert_same(mb.fit(log, **named | {"error_cov": model}).best, expected.best)
    with pytest.raises(mb.InvalidInput, match=r"^error_cov must be one of 'stress', 'place=other', 'place=work'; got 'steps'\.$"):
        mb.fit(log, **named | {"error_cov": {"steps": 0.1}})


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"place": "home"}, {"predicted": "stress,place"}, "categories must have 2 to 50 labels; got 1 in 'place'. Leave the column out."),
    (
        {"place": [f"ward {i}" for i in range(900)]},
        {"predicted": "stress,place"},
        "categories must have 2 to 50 labels; got 900 in 'place'",
    ),
    (
        {},
        {"predicted": "place,stress", "categorical": "place=ward"},
        "the reference of 'place' must be one of 'home', 'other', 'work'; got",
    ),
    (
        {"place": ["", *["home", "work"] * 450][:900]},
        {"predicted": "stress,place"},
        "row 1 column 'place' must name a category; got nothing.",
    ),
    ({}, {"action": "message", "action_labels": "none,sent"}, "column 'message' must be one of none, sent; got 'send'."),
    ({}, {"action_labels": "none"}, "action_labels must name each action once, two at least; got none."),
    ({}, {"action": "who"}, "probability_of must go with two actions and one propensity column; got 30 actions ('P0', 'P1', "),
    (
        {"message": ["sendd", *["none", "send"] * 450][:900]},
        {"action": "message"},
        "got 3 actions ('none', 'send', 'sendd'). Name a propensity column for each action. If a label is misspelled, give `action_labels`",
    ),
    (
        {"message": ["sendd", *["none", "send"] * 450][:900], "free": True},
        {"action": "message", "action_labels": "none,send"},
        "row 1 column 'message' must be one of none, send; got 'sendd'.",
    ),
    ({}, {"probability_of": 2}, "probability_of must be a whole number from 0 to 1; got 2."),
    ({"p_send": 1.5}, {}, "row 1 column 'p_send' must be in [0, 1], the probability of action 1; got 1.5."),
    ({"p_send": 0.0, "action": 1, "free": True}, {}, "must be above 0, the probability of action 1, since action 1 was taken; got 0.0."),
    ({"free": "perhaps"}, {}, "row 1 column 'free' must be True or False; got 'perhaps'."),
    ({"free": False, "action": 1}, {}, "row 1 column 'action' must be 0, or empty, where the participant was not available; got 1."),
    ({"when": ["soon", *["2024-03-01"] * 899]}, {"time": "when"}, "row 1 column 'when' must be a date or a time such as 2024-03-01"),
    ({}, {"missing_outcomes": "impute"}, "missing_outcomes must be one of 'refuse', 'leave-out'; got 'impute'."),
    ({}, {"available": "fre"}, "the table must have a column 'fre'; got none of that name. Is it 'free'?"),
]


@pytest.mark.parametrize(("change", "options", "sentence"), WRONG)
def test_wrong_cells_get_one_sentence(change: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"predicted": "stress", "propensity": "p_send", "probability_of": 1, "available": "free", "error_cov": 0.1}
    with pytest.raises(mb.MebanditError) as refusal:
        mb.fit(trial().assign(**change), **given | options)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_column_that_fits_another_reading_better_is_named() -> None:
    log = trial(3000).query("free")

    def said(**options: Any) -> str:
        found = mb.fit(log, **NAMED, **options)
        finding = next(each for each in found.diagnostics if each.name == "probability and frequency")
        assert finding.verdict == ("green" if "agree with" in finding.sentence and "not agree" not in finding.sentence else "red")
        return finding.sentence

    assert "much better as the probability of action 1, whichever was taken" in said(propensity="p_send")
    assert "set `probability_of='send'`" in said(propensity="p_send", action="message")
    assert "much better as the probability of the action taken" in said(probability_of=1)
    assert "The frequencies of the actions agree" in said(propensity="p_send", probability_of=1)
    with pytest.raises(mb.LogError, match=r"If the column is the probability of one action, whichever was taken, say of which"):
        mb.fit(trial(), **NAMED, propensity="p_send")


def test_outcomes_that_are_missing_by_the_prediction_are_weighted() -> None:
    """Complete cases are chosen by x̃, so their errors no longer have mean zero; weights undo it. As in `estimate` with a stabilizer."""
    rng = np.random.default_rng(6)
    n = 40_000
    x = rng.normal(0, 1, n)
    seen = x + rng.normal(0, 0.7, n)
    action = rng.integers(0, 2, n)
    reward = np.where(action == 1, 1.0 * x, -0.5 * x) + rng.normal(0, 0.5, n)
    p = np.where(seen > 0.5, 0.2, 0.9)
    there = rng.random(n) < p
    log = {"x": seen, "action": action, "reward": np.where(there, reward, np.nan), "propensity": np.full(n, 0.5), "p": p}
    given: dict[str, Any] = {"predicted": "x", "error_cov": 0.49, "missing_outcomes": "leave-out", "methods": ("meb", "dr")}
    complete, weighted = mb.fit(log, **given), mb.fit(log, observed="p", **given)
    x_seen, a_seen, r_seen, p_seen = seen[there, None], action[there], reward[there], log["propensity"][there]
    for method in ("meb", "dr"):
        found = weighted.estimates[method]
        assert abs(found.theta[1, 0] - 1.0) < 4.5 * found.std_error[1, 0]
        assert abs(complete.estimates[method].theta[1, 0] - 1.0) > 4.5 * complete.estimates[method].std_error[1, 0]
    stabilizer = np.repeat(0.1 / p[there, None], 2, axis=1)
    by_hand = mb.estimate(x_seen, a_seen, r_seen, p_seen, 0.49, method="meb", stabilizer=stabilizer)
    np.testing.assert_allclose(weighted.estimates["meb"].theta, by_hand.theta, rtol=1e-9)
    finding = next(each for each in weighted.diagnostics if each.name == "missing outcomes")
    assert "meb and dr weight the others by the inverse of their probability" in finding.sentence
    with pytest.raises(mb.InvalidInput, match="observed must go with `missing_outcomes='leave-out'`"):
        mb.fit(log, observed="p", **given | {"missing_outcomes": "refuse"})
    with pytest.raises(mb.LogError, match=r"column 'p' must be in \[0.001, 1\], the probability that the outcome is observed; got 0.0"):
        mb.fit(log | {"p": p * (seen < 0)}, observed="p", **given)
    with pytest.raises(mb.InvalidInput, match="observed must be left out for values"):
        mb.value(log, 1, predicted="x", missing_outcomes="leave-out", observed="p")
