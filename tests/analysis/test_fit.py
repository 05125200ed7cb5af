"""Logs in files, the fit, its diagnostics, and the command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mebandit as mb
from mebandit import kernels
from mebandit.analysis import fit_figures, fit_tables
from mebandit.analysis import fit_page as page
from mebandit.estimation.methods import METHODS, Method
from mebandit.logs import pieces
from mebandit.measurement import from_validation, from_variances
from mebandit.values import Finding, Floats
from tests.command import run
from tests.strategies import Case, logs

THETA = np.array([[0.5, -1.0], [0.0, 1.0]])
ERROR = np.diag([0.0, 0.5])


def make_log(n: int = 600, seed: int = 0, *, users: int = 30) -> pd.DataFrame:
    """Rounds of a policy that reads the prediction: an intercept and a stress level, seen with error."""
    rng = np.random.default_rng(seed)
    variance = np.where(rng.random(n) < 0.5, 0.2, 0.8)
    stress = rng.normal(0.5, 1, n)
    seen = stress + rng.normal(0, np.sqrt(variance))
    send = np.where(seen > 0.5, 0.8, 0.2)
    action = (rng.random(n) < send).astype(int)
    reward = THETA[action, 0] + THETA[action, 1] * stress + rng.normal(0, 0.3, n)
    return pd.DataFrame(
        {
            "one": 1.0, "stress": seen, "action": action, "reward": reward, "propensity": np.where(action == 1, send, 1 - send),
            "p0": 1 - send, "p1": send, "variance": variance, "user": [f"u{i % users}" for i in range(n)],
        }
    )  # fmt: skip


FEATURES = ["one", "stress"]


def by_estimate(log: pd.DataFrame, method: Method, error: Any, **options: Any) -> mb.Estimate:
    x, action, reward, propensity = (log[name].to_numpy() for name in (FEATURES, "action", "reward", "propensity"))
    return mb.estimate(x, action, reward, propensity, error, method=method, **options)


def assert_same(found: mb.Estimate, expected: mb.Estimate, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(found.theta, expected.theta, rtol=rtol)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=10 * rtol, atol=1e-12)


def test_a_block_of_one_round_with_an_error_of_its_own_is_calibrated_like_the_others() -> None:
    log = make_log(pieces.ROWS + 1)
    by_round = np.zeros((len(log), 2, 2))
    by_round[:, 1, 1] = log["variance"]
    alone = log.iloc[[-1]].assign(reward=1e4, stress=40.0)  # so that this round is seen in the sums
    log = pd.concat([log.iloc[:-1], alone])
    found = mb.fit(log, predicted=FEATURES, error_columns="0,variance", methods="rc").estimates["rc"]
    assert_same(found, by_estimate(log, "rc", by_round))


@given(logs(rounds=(60, 150), error=0.05), st.sampled_from(METHODS), st.booleans())
@settings(max_examples=40)
def test_fit_is_estimate_for_whatever_a_log_may_hold(case: Case, method: Method, intercept: bool) -> None:
    """Any number of actions and features, an error covariance by round, actions that are not always allowed, an intercept."""
    d = case.x.shape[1]
    counts = np.bincount(case.actions, minlength=case.n_actions)
    assume(counts.min() > d + 2)
    lower = np.tril_indices(d)
    log = {"predicted": case.x, "action": case.actions, "reward": case.r, "propensity": case.propensities}
    log |= {f"error_cov_{i}_{j}": case.sigma[:, i, j] for i, j in zip(*lower, strict=True)}
    found = mb.fit(log, methods=method, intercept=intercept, ridge=0.1, n_actions=case.n_actions).estimates[method]
    expected = mb.estimate(
        case.x, case.actions, case.r, case.propensities, case.sigma, n_actions=case.n_actions, method=method, intercept=intercept, ridge=0.1
    )
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-8, atol=1e-9 * np.abs(expected.covariance).max())


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks from a small log, of a Parquet file one to four at a time."""
    monkeypatch.setattr(pieces, "ROWS", 64)
    monkeypatch.setattr(pieces, "PARQUET_BYTES", 15_000)
    monkeypatch.setattr(pieces, "CSV_BYTES", 4096)


def stored(log: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """The same log in every form that can be read."""
    table = pa.Table.from_pandas(log, preserve_index=False)
    log.to_csv(folder / "log.csv", index=False)
    log.to_csv(folder / "log.tsv", index=False, sep="\t")
    pq.write_table(table, folder / "log.parquet", row_group_size=397)
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 250), folder / "parts" / "a.parquet", row_group_size=50)
    pq.write_table(table.slice(250), folder / "parts" / "b.parquet")
    return {
        "csv": folder / "log.csv",
        "tsv": str(folder / "log.tsv"),
        "parquet": folder / "log.parquet",
        "folder": folder / "parts",
        "several": [folder / "parts" / "a.parquet", folder / "parts" / "b.parquet"],
        "arrow": table,
        "pandas": log,
        "arrays": {name: log[name].to_numpy() for name in log},
    }


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("error", ["constant", "columns"])
def test_every_form_of_a_log_and_every_number_of_workers_says_the_same(tmp_path: Path, error: str) -> None:
    log = make_log()
    given: dict[str, Any] = {"error_cov": ERROR} if error == "constant" else {"error_columns": ["0", "variance"]}
    expected_cov = ERROR if error == "constant" else log["variance"].to_numpy()[:, None, None] * np.diag([0.0, 1.0])
    for form, source in stored(log, tmp_path).items():
        found = [mb.fit(source, predicted=FEATURES, unit="user", workers=workers, **given) for workers in (1, 3)]
        assert found[0].to_json() == found[1].to_json(), f"{form}: the number of workers matters"
        assert found[0].rounds == len(log)
        assert found[0].units == 30
        for method in METHODS:
            assert_same(found[0].estimates[method], by_estimate(log, method, expected_cov, unit=log["user"].to_numpy()))


@pytest.mark.parametrize("yes", ["True", "TRUE", "true"])
def test_truth_values_are_ones_and_zeros_in_a_csv_as_elsewhere(yes: str, tmp_path: Path) -> None:
    log = make_log(200)
    log["idle"] = log["stress"] > 0.3
    log["action"] = log["action"] == 1
    text = log.to_csv(index=False)
    (tmp_path / "log.csv").write_text(text.replace("True", yes).replace("False", {"True": "False", "TRUE": "FALSE"}.get(yes, "false")))
    read, given = (mb.fit(each, predicted="idle,stress", error_cov=[0.0, 0.1], methods="dr") for each in (tmp_path / "log.csv", log))
    np.testing.assert_allclose(read.best.theta, given.best.theta, rtol=1e-12)


def test_a_handful_of_rounds_is_a_log_too() -> None:
    for n in (6, 15, 25):
        log = make_log(n, seed=3)
        found = mb.fit(log, predicted="stress", error_cov=0.5, ridge=0.1)
        assert found.rounds == n
        assert "red" in {finding.verdict for finding in found.diagnostics}
        json.loads(found.to_json())


def test_a_journal_is_a_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with mb.Learner(mb.meb(2, 2, floor=0.2), seed=1, journal=tmp_path / "trial.jsonl") as learner:
        for _ in range(300):
            stress = rng.normal(0.5, 1)
            decision = learner.decide([1.0, stress + rng.normal(0, 0.7)], ERROR)
            learner.learn(decision, float(THETA[decision.action] @ [1.0, stress]))
    trial = mb.read_journal(tmp_path / "trial.jsonl")
    expected = mb.estimate(trial.predicted, trial.actions, trial.rewards, trial.propensities, trial.error_cov)
    trial.to_parquet(tmp_path / "trial.parquet")
    for log in (tmp_path / "trial.jsonl", tmp_path / "trial.parquet", trial):
        assert_same(mb.fit(log).estimates["meb"], expected)


# ---- rows that break a rule ----------------------------------------------------------------------------------------------


def spoil(log: pd.DataFrame, row: int, column: str, value: Any) -> pd.DataFrame:
    spoilt = log.astype({column: object})
    spoilt.loc[row - 1, column] = value
    return spoilt


FAULTS = [
    ("stress", "abc", "row 40 column 'stress' must be a finite number of at most 1e+50 in size; got 'abc'."),
    ("stress", "", "row 40 column 'stress' must be a finite number of at most 1e+50 in size; got nothing."),
    ("stress", "inf", "row 40 column 'stress' must be a finite number"),
    ("reward", "NaN", "row 40 column 'reward' must be a finite number of at most 1e+50 in size; got nothing."),
    ("propensity", 0, "row 40 column 'propensity' must be in (0, 1], the probability that the action was drawn with; got"),
    ("propensity", 1.5, "row 40 column 'propensity' must be in (0, 1]"),
    (
        "action",
        2,
        "row 40 column 'action' must be a whole number from 0 to 1 (the first action is 0; for more than two actions, give n_actions); got",
    ),
    ("action", 0.5, "row 40 column 'action' must be a whole number from 0 to 1"),
    ("action", -1, "row 40 column 'action' must be a whole number from 0 to 1"),
    (
        "action",
        "send",
        "row 40 column 'action' must be a whole number from 0 to 1 (the first action is 0; for more than two actions, give n_actions); got",
    ),
    ("variance", -0.1, "row 40 column 'variance' must be a variance of at least 0; got"),
    ("user", "", "row 40 column 'user' must name a unit; got nothing."),
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("column", "value", "sentence"), FAULTS)
def test_a_row_that_breaks_a_rule_is_located(tmp_path: Path, column: str, value: Any, sentence: str) -> None:
    path = tmp_path / "log.csv"
    spoil(make_log(), 40, column, value).to_csv(path, index=False)
    with pytest.raises(mb.LogError) as refusal:
        mb.fit(path, predicted=FEATURES, error_columns="0,variance", unit="user")
    assert str(refusal.value).startswith(f"{path} {sentence}")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_that_break_a_rule_are_counted_or_set_aside(tmp_path: Path, kind: str) -> None:
    log = make_log()
    spoilt = log.astype({"action": float})
    spoilt.loc[[9, 200, 599], "action"] = [7.0, np.nan, -1.0]
    spoilt.loc[300, "propensity"] = 0.0
    path = tmp_path / f"log.{kind}"
    spoilt.to_csv(path, index=False) if kind == "csv" else spoilt.to_parquet(path, row_group_size=77)
    given: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR, "unit": "user"}
    with pytest.raises(mb.LogError, match=r"row 10 column 'action' .* got 7\.0\. 3 more rows break a rule\."):
        mb.fit(path, **given)
    found = mb.fit(path, on_bad="set-aside", set_aside=tmp_path / "aside.csv", **given)
    assert (found.rounds, found.faults) == (596, 4)
    aside = pd.read_csv(tmp_path / "aside.csv")
    assert aside["row"].tolist() == [10, 201, 301, 600]
    assert aside["column"].tolist() == ["action", "action", "propensity", "action"]
    kept = log.drop(index=[9, 200, 300, 599])
    assert_same(found.estimates["dr"], by_estimate(kept, "dr", ERROR, unit=kept["user"].to_numpy()))


@pytest.mark.usefixtures("small_blocks")
def test_rows_with_too_few_or_too_many_cells_keep_their_place(tmp_path: Path) -> None:
    log = make_log()
    path = tmp_path / "log.csv"
    log.to_csv(path, index=False)
    lines = path.read_text().splitlines()
    for row in (3, 4, 250):
        lines[row] = lines[row].rsplit(",", 1)[0]
    lines[420] += ",more"
    lines[600] = lines[600] + ",more"
    lines[301] = lines[301].replace(lines[301].split(",")[1], "abc")
    path.write_text("\n".join(lines) + "\n")
    given: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR}
    with pytest.raises(mb.LogError, match=r"row 3 must have 9 columns, like the header; got 8: .* 5 more rows"):
        mb.fit(path, **given)
    found = mb.fit(path, on_bad="set-aside", set_aside=tmp_path / "aside.csv", **given)
    assert pd.read_csv(tmp_path / "aside.csv")["row"].tolist() == [3, 4, 250, 301, 420, 600]
    kept = log.drop(index=[2, 3, 249, 300, 419, 599])
    assert_same(found.estimates["meb"], by_estimate(kept, "meb", ERROR))


def test_propensities_of_all_actions_are_checked_together(tmp_path: Path) -> None:
    log = make_log(50)
    given: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR, "propensity": ["p0", "p1"]}
    assert_same(mb.fit(log, **given).estimates["meb"], by_estimate(log, "meb", ERROR))
    exact = np.random.default_rng(0).dirichlet(np.ones(3), 200)  # written with four digits, they sum to 0.9999 or 1.0001
    rounded = make_log(200).drop(columns="propensity").assign(**{f"propensity_{a}": exact[:, a].round(4) for a in range(3)})
    rounded["action"] = exact.argmax(axis=1)
    assert (np.abs(exact.round(4).sum(axis=1) - 1) > 1e-6).any()
    assert mb.fit(rounded, predicted=FEATURES, error_cov=ERROR).faults == 0
    off = log.assign(p0=log["p0"] + 0.1 * (np.arange(50) == 6))
    with pytest.raises(mb.LogError, match=r"row 7 column 'p0, p1' must sum to 1, but for rounding of at most 0.001; got 1\.1"):
        mb.fit(off, **given)
    never = log.copy()
    never.loc[6, ["p0", "p1", "action"]] = [1.0, 0.0, 1]
    with pytest.raises(mb.LogError, match="row 7 column 'p1' must be positive, since its action was taken; got 0"):
        mb.fit(never, **given)


def test_rows_that_are_all_set_aside_leave_no_log(tmp_path: Path) -> None:
    log = make_log(20).assign(propensity=0.0)
    with pytest.raises(mb.LogError, match=r"the log must have at least one row that breaks no rule; got 20 rows, all in .*aside\.csv"):
        mb.fit(log, predicted=FEATURES, error_cov=ERROR, on_bad="set-aside", set_aside=tmp_path / "aside.csv")
    assert (tmp_path / "aside.csv").read_text().count("\n") == 21


def test_units_must_be_names(tmp_path: Path) -> None:
    log = pa.Table.from_pandas(make_log(20).drop(columns="user")).append_column("user", pa.array([["a", "b"]] * 20))
    pq.write_table(log, tmp_path / "log.parquet")
    with pytest.raises(mb.LogError, match=r"log\.parquet column 'user' must hold one name in each row; got list<"):
        mb.fit(tmp_path / "log.parquet", predicted=FEATURES, error_cov=ERROR, unit="user")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    log = make_log()
    whole, torn = tmp_path / "whole.parquet", tmp_path / "torn.parquet"
    log.to_parquet(whole, row_group_size=100)
    torn.write_bytes(whole.read_bytes()[:-200])
    damaged = tmp_path / "damaged.parquet"
    content = bytearray(whole.read_bytes())
    start = pq.ParquetFile(whole).metadata.row_group(3).column(1).dictionary_page_offset
    content[start : start + 200] = bytes(200)
    damaged.write_bytes(bytes(content))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("one,stress,action,reward,propensity\n")
    (tmp_path / "nothing").mkdir()
    cases = {
        torn: "torn.parquet must be a whole Parquet file; got one that cannot be opened",
        damaged: "damaged.parquet must be readable throughout; got damaged data after row",
        tmp_path / "empty.csv": "empty.csv must be a UTF-8 CSV with a header",
        tmp_path / "header.csv": "the log must hold at least one round; got none in",
        tmp_path / "nothing": "must hold .parquet or .csv files; got none",
        tmp_path / "absent.csv": "log must be a file or a folder that exists",
        tmp_path / "log.xlsx": "log must be",
    }
    (tmp_path / "log.xlsx").write_text("x")
    for path, sentence in cases.items():
        with pytest.raises(mb.LogError) as refusal:
            mb.fit(path, predicted=FEATURES, error_cov=ERROR)
        assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"predicted": ["one", "stres"]},
            "the table must have a column 'stres'; got none of that name. Is it 'stress'? It has 'one', 'stress'",
        ),
        ({"categorical": "ward"}, "categorical must be one of 'one', 'stress'; got 'ward'."),
        ({"predicted": None}, "the columns of the predicted context must be named; got none"),
        ({"error_cov": None}, "the error covariance must be known, to be corrected for; got nothing."),
        ({"error_cov": np.eye(3)}, "error_cov must have shape (2, 2); got shape (3, 3)."),
        ({"error_cov": [0.0, 0.1, 0.5]}, "error_cov must be one number, 2 variances or a 2 x 2 matrix; got 3 numbers."),
        ({"error_columns": "variance"}, "the error columns must name 2 columns of variances, or the 3 of a lower triangle; got 1"),
        ({"error_columns": "0,variance"}, "the error must be given once; got both error_cov and error columns."),
        ({"methods": "best"}, "methods must be one of"),
        ({"propensity": ["p0", "p1", "propensity"], "n_actions": 2}, "propensity must name one column, or one for each of the 2 actions"),
        ({"on_bad": "drop"}, "on_bad must be one of 'refuse', 'set-aside'; got 'drop'."),
        ({"on_bad": "set-aside"}, "set_aside must name the file for rows that break a rule; got nothing."),
        ({"workers": 0}, "workers must be a number of threads of at least 1"),
        ({"unit": "one"}, "unit must name at least two units; got 1."),
        ({"propensity": "p0,p0"}, "propensity must name each column once; got p0, p0."),
        ({"predicted": ["stress", "p0", "p0"]}, "predicted must name each column once"),
        ({"predicted": ["stress", "twin"]}, "features must differ, for their coefficients to be identified; got 'stress' and 'twin'"),
        ({"n_actions": 3}, "theta of action 2 must be identified by the data; got 0 rounds"),
        ({"error_cov": mb.measurement.from_known(1.0, dim=3)}, "the error model must be of the log's 2 features; got one of 3."),
        ({"unit": ""}, "unit must be the name of a column; got ''."),
        ({"unit": ["user", "one"]}, "unit must be the name of a column; got ['user', 'one']."),
        ({"action": 3}, "action must be the name of a column; got 3."),
        ({"predicted": 3}, "predicted must be names of columns, in a list or with commas between them; got 3."),
        ({"predicted": "one,,stress"}, "predicted must be names of columns, in a list or with commas between them; got 'one,,stress'."),
        ({"propensity": 0.5}, "propensity must be names of columns"),
        ({"error_columns": 0.3}, "error_columns must be names of columns"),
        ({"error_cov": None, "error_columns": "variance,-0.3"}, "the error columns must be variances of at least 0; got -0.3."),
        ({"set_aside": "rows.csv"}, "set_aside must be given only together with `on_bad='set-aside'`; got rows.csv with `on_bad='refuse'`"),
    ],
)
def test_wrong_arguments_get_one_sentence(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR} | change
    with pytest.raises(mb.MebanditError) as refusal:
        mb.fit(make_log(60).assign(twin=lambda log: -2 * log["stress"]), **given)
    assert sentence in str(refusal.value)


# ---- error models --------------------------------------------------------------------------------------------------------


def biased_pairs(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Truths and predictions x̃ = 0.3 + 0.7 x + e."""
    x = rng.normal(0.5, 1, (n, 1))
    return 0.3 + 0.7 * x + rng.normal(0, 0.5, x.shape), x


def log_of(predicted: Floats, x: Floats, rng: np.random.Generator) -> dict[str, Any]:
    send = np.where(predicted[:, 0] > 0.5, 0.7, 0.3)
    action = (rng.random(len(x)) < send).astype(int)
    reward = np.where(action == 1, 1.5, -0.5) * x[:, 0] + rng.normal(0, 0.3, len(x))
    return {"stress": predicted[:, 0], "action": action, "reward": reward, "propensity": np.where(action == 1, send, 1 - send)}


def test_an_estimated_error_model_is_applied_and_its_uncertainty_counted() -> None:
    """Over 200 trials with 150 validation pairs each, 95 % intervals cover; without the model's own uncertainty they would not."""
    rng = np.random.default_rng(4)
    covered, narrow = [], []
    for _ in range(200):
        model = mb.measurement.from_validation(*biased_pairs(150, rng), assume="biased")
        predicted, x = biased_pairs(2000, rng)
        log = log_of(predicted, x, rng)
        found = mb.fit(log, predicted="stress", error_cov=model, methods="dr").estimates["dr"]
        plain = mb.estimate(model.unbias(predicted), log["action"], log["reward"], log["propensity"], model.error_cov, method="dr")
        direct = mb.estimate(predicted, log["action"], log["reward"], log["propensity"], model, method="dr")
        np.testing.assert_allclose(found.theta, plain.theta, rtol=1e-8)
        assert_same(direct, found, rtol=1e-7)
        truth = np.array([[-0.5], [1.5]])
        covered.append(np.abs(found.theta - truth) < 1.96 * found.std_error)
        narrow.append(np.abs(found.theta - truth) < 1.96 * plain.std_error)
    assert abs(np.mean(covered) - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / 200)
    assert np.mean(narrow) < 0.9


def test_classes_that_were_confused_are_put_right_with_the_logs_own_shares() -> None:
    rng = np.random.default_rng(5)
    confusion = np.array([[160, 30, 10], [20, 150, 30], [15, 25, 160]])
    rows = confusion / confusion.sum(axis=1, keepdims=True)
    truth = rng.choice(3, p=[0.6, 0.3, 0.1], size=40_000)
    label = (rng.random(truth.size)[:, None] > np.cumsum(rows[truth], axis=1)).sum(axis=1)
    theta = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 3.0]])
    send = np.where(label == 0, 0.3, 0.7)
    action = (rng.random(truth.size) < send).astype(int)
    log: dict[str, Any] = {f"is_{c}": (label == c).astype(float) for c in range(3)}
    log |= {"action": action, "reward": theta[action, truth], "propensity": np.where(action == 1, send, 1 - send)}
    model = mb.measurement.from_confusion(rows)
    found = mb.fit(log, predicted="is_0,is_1,is_2", error_cov=model)
    for method in ("meb", "dr"):
        assert (np.abs(found.estimates[method].theta - theta) < 4.5 * found.estimates[method].std_error).all()
    assert np.abs(found.estimates["ridge"].theta - theta).max() > 0.3


@pytest.mark.parametrize("intercept", [False, True])
def test_the_uncertainty_of_reported_variances_is_counted_by_every_method(intercept: bool) -> None:
    """J Var(φ) J' with J = dθ/dφ from fits with other models; φ is what the reported variances are multiplied with."""
    rng, n = np.random.default_rng(12), 3000
    x, v = rng.normal(0.5, 1, (n, 2)), rng.uniform(0.1, 0.8, (n, 2))
    seen = x + rng.normal(0, np.sqrt(1.5 * v))
    log = log_of(seen[:, 1:], x[:, 1:], rng) | {"calm": seen[:, 0], "v0": v[:, 0], "v1": v[:, 1]}
    model = mb.measurement.from_variances(v[:200], predicted=seen[:200], truth=x[:200])

    def fitted(with_model: mb.ErrorModel) -> mb.Analysis:
        return mb.fit(log, predicted="calm,stress", error_columns="v0,v1", error_cov=with_model, intercept=intercept)

    sure, found, φ = replace(model, parameters_cov=0 * model.parameters_cov), fitted(model), model.parameters
    alone = fitted(sure)
    free = np.flatnonzero(np.diag(model.parameters_cov))
    assert free.size == 2
    for method, estimate in found.estimates.items():
        J = []
        for i in free:
            step = 1e-4 * np.eye(φ.size)[i]
            high, low = (fitted(sure.at(φ + sign * step)).estimates[method] for sign in (1, -1))
            both = [np.hstack([e.intercept[:, None], e.theta])[:, 0 if intercept else 1 :] for e in (high, low)]
            J.append((both[0] - both[1]).ravel() / 2e-4)
        expected = np.transpose(J) @ model.parameters_cov[np.ix_(free, free)] @ np.array(J)
        added = estimate.covariance - alone.estimates[method].covariance
        np.testing.assert_allclose(added, expected, rtol=0, atol=0.02 * np.abs(expected).max() + 1e-12)
    assert (found.estimates["rc"].std_error > 1.1 * alone.estimates["rc"].std_error).any()


def test_a_correction_of_berkson_error_is_warned_about() -> None:
    rng = np.random.default_rng(6)
    predicted = rng.normal(0, np.sqrt(0.7), (4000, 1))
    x = predicted + rng.normal(0, np.sqrt(0.3), predicted.shape)
    log = log_of(predicted, x, rng)
    pairs = (predicted[:2000], x[:2000])
    forced = mb.measurement.from_validation(*pairs, assume="classical")
    with pytest.warns(mb.measurement.BerksonWarning, match="over-corrects by a factor of up to 1.7"):
        found = mb.fit(log, predicted="stress", error_cov=forced)
    assert found.estimates["meb"].theta[1, 0] > 2.3  # 1.5 in truth
    assert abs(found.estimates["ridge"].theta[1, 0] - 1.5) < 0.1
    model = mb.measurement.from_validation(*pairs)
    with pytest.warns(mb.measurement.BerksonWarning):
        checked = mb.fit(log, predicted="stress", error_cov=0.3, validation=model)
    assert checked.diagnostics[0].name == "kind of error"
    assert "Berkson" in checked.diagnostics[0].sentence
    right = mb.fit(log, predicted="stress", error_cov=model).estimates["meb"]  # no warning: pytest makes it an error
    assert abs(right.theta[1, 0] - 1.5) < 4.5 * right.std_error[1, 0]


def test_reported_variances_are_scaled_by_what_pairs_say_of_them() -> None:
    log = make_log(4000)
    halved = log.assign(variance=log["variance"] / 2)
    rng = np.random.default_rng(7)
    reported = rng.uniform(0.1, 0.4, (1000, 1))
    truth = rng.normal(0, 1, (1000, 1))
    model = mb.measurement.from_variances(
        np.column_stack([np.full(1000, 0.0), reported]),
        predicted=np.column_stack([np.ones(1000), truth + rng.normal(0, np.sqrt(2 * reported))]),
        truth=np.column_stack([np.ones(1000), truth]),
    )
    found = mb.fit(halved, predicted=FEATURES, error_columns="0,variance", error_cov=model)
    np.testing.assert_allclose(found.error.mean_cov[1, 1], 0.5, rtol=0.15)
    assert (np.abs(found.estimates["dr"].theta - THETA) < 0.1).all()


def test_sensitivity_is_the_estimate_at_other_covariances() -> None:
    log = make_log()
    by_round = log["variance"].to_numpy()[:, None, None] * np.diag([0.0, 1.0])
    cases: list[tuple[Any, Any]] = [(ERROR, {"error_cov": ERROR}), (by_round, {"error_columns": "0,variance"})]
    for error, arguments in cases:
        found = mb.fit(log, predicted=FEATURES, **arguments)
        for method in METHODS:
            for scale, theta in found.sensitivity[method].items():
                np.testing.assert_allclose(theta, by_estimate(log, method, scale * error).theta, rtol=1e-8)
    assert (found.sensitivity["ridge"][0.5] == found.sensitivity["ridge"][2.0]).all()


def test_the_uncertainty_of_a_reported_scale_is_counted() -> None:
    """Over 150 trials with 60 pairs each, 95 % intervals cover; with the scale taken as known, a fifth of them would."""
    rng = np.random.default_rng(12)
    covered = []
    for _ in range(150):
        pairs, truth = rng.uniform(0.2, 0.6, (60, 1)), rng.normal(0, 1, (60, 1))
        model = mb.measurement.from_variances(pairs, predicted=truth + rng.normal(0, np.sqrt(1.5 * pairs)), truth=truth)
        x, v = rng.normal(0.5, 1, (4000, 1)), rng.uniform(0.2, 0.6, (4000, 1))
        log = log_of(x + rng.normal(0, np.sqrt(1.5 * v)), x, rng) | {"v": v[:, 0]}
        found = mb.fit(log, predicted="stress", error_cov=model, error_columns="v", methods="dr").estimates["dr"]
        covered.append(np.abs(found.theta - [[-0.5], [1.5]]) < 1.96 * found.std_error)
    assert abs(np.mean(covered) - 0.95) < 0.07  # skewed errors of few pairs: not exactly 95 %


def test_the_guards_jump_is_not_taken_for_a_slope() -> None:
    """An estimated covariance at which the guard steps in: its uncertainty must not become the height of the jump."""
    rng = np.random.default_rng(13)
    log = make_log(300, seed=13)
    for size in np.linspace(0.9, 1.4, 11):
        readings = rng.normal(0, np.sqrt(size * log["stress"].var()), (60, 2, 1))
        model = mb.measurement.from_replicates(readings)
        known = mb.fit(log, predicted="stress", error_cov=model.error_cov, methods="meb", intercept=True).estimates["meb"]
        found = mb.fit(log, predicted="stress", error_cov=model, methods="meb", intercept=True).estimates["meb"]
        if known.guarded.any():
            assert (found.std_error < 30 * known.std_error).all()


def test_an_action_that_was_certain_was_the_only_one_allowed() -> None:
    """One column of propensities, with 1 where nothing could be sent: as with a column for each action."""
    rng = np.random.default_rng(14)
    log = make_log(20_000, seed=14)
    idle = rng.random(len(log)) < 0.4
    log.loc[idle, "action"] = 0
    log.loc[idle, ["propensity", "p0", "p1"]] = [1.0, 1.0, 0.0]
    one = mb.fit(log, predicted=FEATURES, error_cov=ERROR)
    each = mb.fit(log, predicted=FEATURES, error_cov=ERROR, propensity="p0,p1")
    for method in METHODS:
        assert_same(one.estimates[method], each.estimates[method])
    assert_same(by_estimate(log, "meb", ERROR), each.estimates["meb"])


def test_features_far_from_zero_are_refused_before_they_lose_their_digits() -> None:
    log = make_log(2000)
    near = by_estimate(log, "dr", ERROR).contrast(1, 0).theta[1]
    far = log.assign(stress=log["stress"] + 1e5)
    found = mb.fit(far, predicted=FEATURES, error_cov=ERROR)
    np.testing.assert_allclose(found.estimates["dr"].contrast(1, 0).theta[1], near, rtol=1e-3)
    assert {f.name: f.verdict for f in found.diagnostics}["numerical precision"] == "red"
    for change in ({"stress": log["stress"] + 1e6}, {"stress": log["stress"] + 1e4, "reward": log["reward"] + 1e9}):
        with pytest.raises(mb.SingularMoments, match="Subtract a constant"):
            mb.fit(log.assign(**change), predicted=FEATURES, error_cov=ERROR)
        with pytest.raises(mb.SingularMoments, match="Subtract a constant"):
            by_estimate(log.assign(**change), "meb", ERROR)


def test_units_are_known_by_their_labels_whatever_their_type(tmp_path: Path) -> None:
    log = make_log(300).assign(user=np.arange(300) % 20)
    log.head(150).to_parquet(tmp_path / "a.parquet")
    log.tail(150).to_csv(tmp_path / "b.csv", index=False)
    found = mb.fit(tmp_path, predicted=FEATURES, error_cov=ERROR, unit="user")
    assert found.units == 20
    assert_same(found.estimates["dr"], by_estimate(log, "dr", ERROR, unit=log["user"].to_numpy()))
    gone = log.assign(user=np.where(np.arange(300) == 7, np.nan, log["user"]))
    with pytest.raises(mb.LogError, match="row 8 column 'user' must name a unit"):
        mb.fit(gone, predicted=FEATURES, error_cov=ERROR, unit="user")


def test_nothing_is_written_over_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    make_log(50).to_csv(path, index=False)
    before = path.read_bytes()
    with pytest.raises(mb.LogError, match="must be another one than what is read"):
        mb.fit(path, predicted=FEATURES, error_cov=ERROR, on_bad="set-aside", set_aside=path)
    with pytest.raises(mb.LogError, match="must be another one than what is read"):
        mb.export(path, path, to="mrt", predicted=FEATURES)
    with pytest.raises(mb.LogError, match="in a folder that can be written to"):
        mb.fit(path, predicted=FEATURES, error_cov=ERROR, on_bad="set-aside", set_aside=tmp_path / "no" / "aside.csv")
    assert path.read_bytes() == before


def test_odd_files_get_a_sentence(tmp_path: Path) -> None:
    good = make_log(20).to_csv(index=False)
    cases = {
        "utf16.csv": (good.encode("utf-16"), "UTF-8"),
        "latin.csv": (good.replace("variance", "varianz\u00e4").encode("latin-1"), "UTF-8"),
        "twice.csv": (good.replace("p0", "stress", 1).encode(), "must have one column 'stress'; got 2 of that name"),
        "semicolons.csv": (good.replace(",", ";").encode(), "separated by semicolons"),
        "torn.csv": (b"one,stress,action,reward,propensity\n1,2\n", "row 1 must have 5 columns, like the header; got 2"),
    }
    for name, (content, sentence) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(mb.LogError) as refusal:
            mb.fit(tmp_path / name, predicted=FEATURES, error_cov=ERROR)
        assert sentence in str(refusal.value), name
    with pytest.raises(mb.LogError, match="each with its own name"):
        mb.fit(pd.concat([make_log(9), make_log(9)], axis=1), predicted=FEATURES, error_cov=ERROR)


# ---- diagnostics ---------------------------------------------------------------------------------------------------------


def verdicts(log: Any, **changes: Any) -> dict[str, str]:
    arguments: dict[str, Any] = {"predicted": FEATURES, "error_cov": ERROR}
    found = mb.fit(log, **(arguments | changes))
    return {finding.name: finding.verdict for finding in found.diagnostics}


def test_a_good_log_gets_no_red_and_every_spoilt_one_its_own() -> None:
    log = make_log(4000)
    good = verdicts(log, floor=0.2)
    assert "red" not in good.values()
    for name in ("probability and frequency", "propensities", "effective sample size", "drift of x̃", "skewness of x̃"):
        assert good[name] == "green", name
    assert verdicts(log, floor=0.3)["propensities"] == "red"
    for column in ("stress", "reward"):
        spoilt = log.copy()
        spoilt.loc[7, column] = -999.0
        found = next(finding for finding in mb.fit(spoilt, predicted=FEATURES, error_cov=ERROR).diagnostics if finding.name == "outliers")
        assert found.verdict == "red"
        assert f"is -999 in {'the reward' if column == 'reward' else repr(column)}" in found.sentence
    swapped = log.assign(propensity=1 - log["propensity"])
    assert verdicts(swapped)["probability and frequency"] == "red"
    assert verdicts(log.assign(propensity=0.5))["probability and frequency"] == "red"  # right on average, wrong at every level
    assert verdicts(log, error_cov=np.diag([0.0, 3.0]))["feasibility of the correction"] == "red"
    assert verdicts(log, error_cov=np.diag([0.0, 1.35]), methods=["meb"])["reliability of x̃"] == "red"
    assert verdicts(log.head(60))["effective sample size"] != "green"
    moving = log.assign(stress=log["stress"] + np.linspace(0, 4, len(log)))
    assert verdicts(moving)["drift of x̃"] == "yellow"
    skewed = log.assign(stress=np.exp(log["stress"]))
    assert verdicts(skewed)["skewness of x̃"] == "yellow"
    rare = log.copy()
    rare.loc[rare["action"] == 1, "propensity"] = 0.0005
    assert verdicts(rare)["propensities"] == "red"
    twin = log.assign(one=log["stress"] + 1e-3 * np.sin(np.arange(len(log))))
    assert verdicts(twin, error_cov=np.zeros((2, 2)), methods=["meb"])["Assumption 2, minimum signal"] == "red"


def test_a_method_without_a_solution_does_not_take_the_others_with_it() -> None:
    log = make_log()
    found = mb.fit(log, predicted=FEATURES, error_cov=np.diag([0.0, 5.0]))
    assert np.isnan(found.estimates["rc"].theta).all()
    assert np.isfinite(found.estimates["meb"].theta).all()
    assert json.loads(found.to_json())["estimates"]["rc"]["theta"] == [[None, None], [None, None]]
    with pytest.raises(mb.SingularMoments):
        mb.fit(log, predicted=FEATURES, error_cov=np.diag([0.0, 5.0]), methods="rc")


def test_an_action_that_x_allows_is_noticed_and_one_that_chance_allows_is_not() -> None:
    rng = np.random.default_rng(15)
    log = make_log(4000)
    for idle, verdict in ((rng.random(len(log)) < 0.4, "green"), (log["stress"].to_numpy() < 0, "red")):
        held = log.copy()
        held.loc[idle, "action"] = 0
        held.loc[idle, "propensity"] = 1.0
        assert verdicts(held)["availability of actions"] == verdict
    assert "availability of actions" not in verdicts(log)
    assert verdicts(log, unit="user")["number of units"] == "yellow"


@pytest.mark.parametrize(("n", "floor"), [(200, 0.02), (200, 0.1), (2000, 0.2)])
def test_good_logs_raise_few_alarms(n: int, floor: float) -> None:
    """Over 60 good logs with normal contexts: red for a reason that is not there in at most two of them."""
    alarms: list[str] = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = rng.normal(0.5, 1, (n, 2))
        seen = x + rng.normal(0, 0.6, x.shape)
        send = np.where(seen[:, 0] > seen[:, 1], 1 - floor, floor)
        action = (rng.random(n) < send).astype(int)
        log = {"x": seen, "action": action, "reward": x[:, 0] * action + rng.normal(0, 0.5, n)}
        found = mb.fit(log | {"propensity": np.where(action == 1, send, 1 - send)}, predicted="x_0,x_1", error_cov=0.36, methods="dr")
        alarms += [f.name for f in found.diagnostics if f.verdict == "red" and f.name != "effective sample size"]  # which is small
    assert len(alarms) <= 2, alarms


def test_variances_that_are_reported_wrongly_are_noticed() -> None:
    log = make_log(20_000)
    assert verdicts(log, error_cov=None, error_columns="0,variance")["reported variances"] == "green"
    wrong = log.assign(variance=1.0 - log["variance"])  # low where the error is large
    assert verdicts(wrong, error_cov=None, error_columns="0,variance")["reported variances"] == "red"


def test_diagnostics_are_the_formulas() -> None:
    log = make_log(900)
    found = mb.fit(log, predicted=FEATURES, error_columns="0,variance", floor=0.1)
    values = {finding.name: finding.values for finding in found.diagnostics}
    x, w = log["stress"].to_numpy(), 0.5 / log["propensity"].to_numpy()
    n1 = [w[log["action"] == a].sum() ** 2 / (w[log["action"] == a] ** 2).sum() for a in (0, 1)]
    np.testing.assert_allclose(values["effective sample size"]["effective"], n1)
    share = [w[log["action"] == a].max() / w[log["action"] == a].sum() for a in (0, 1)]
    np.testing.assert_allclose(values["effective sample size"]["largest_share"], share)
    away = (x - x.mean()) / x.std()
    np.testing.assert_allclose(values["skewness of x̃"]["skewness"], [0.0, (away**3).mean()], atol=1e-9)
    np.testing.assert_allclose(values["drift of x̃"]["stress"], away.reshape(20, 45).mean(axis=1), atol=1e-9)
    reliability = (x.var() - log["variance"].mean()) / x.var()
    np.testing.assert_allclose(values["reliability of x̃"]["by_feature"], [1.0, reliability], rtol=1e-6)
    delta = np.diff(found.estimates["dr"].theta, axis=0)[0]
    gap, sd = np.abs(log[FEATURES] @ delta), np.abs(delta[1]) * np.sqrt(log["variance"])
    np.testing.assert_allclose(values["Assumption 3, small error"]["within_1_sd"], [(gap < sd).mean()])
    p, came = log["p1"].to_numpy(), log["action"].to_numpy() == 1
    surprise, variance = np.array([[1.0, t] for t in away * x.std()]) * (came / p - 1)[:, None], 1 / p - 1
    z = [surprise[:, 0].sum() / np.sqrt(variance.sum()), surprise[:, 1].sum() / np.sqrt((variance * (away * x.std()) ** 2).sum())]
    np.testing.assert_allclose(np.array(values["probability and frequency"]["z"]).reshape(2, 3)[1, [0, 2]], z)
    observed = np.array(values["probability and frequency"]["observed"])
    np.testing.assert_allclose(observed[[2, 8]], [came[p < 0.5].mean(), came[p > 0.5].mean()])
    slope, _ = np.polyfit(log["variance"], (x - x.mean()) ** 2, 1)
    np.testing.assert_allclose(values["reported variances"]["slope"][1], slope, rtol=1e-6)
    gram = np.mean([np.outer(z, z) for z in log[FEATURES].to_numpy()], axis=0) - np.diag([0, log["variance"].mean()])
    np.testing.assert_allclose(values["Assumption 2, minimum signal"]["at_the_end"], np.linalg.eigvalsh(gram)[:1] / 2, rtol=1e-9)
    bear = np.array([_bearable(log[log["action"] == a]) for a in (0, 1)])
    np.testing.assert_allclose(values["feasibility of the correction"]["feasible_multiple"], bear, rtol=1e-6)


def test_one_error_for_all_rounds_is_the_same_error_in_each() -> None:
    log = make_log(3000)
    once = mb.fit(log, predicted=FEATURES, error_cov=ERROR)
    each = {finding.name: finding.values for finding in mb.fit(log, predicted=FEATURES, error_columns="0,0.5").diagnostics}
    for finding in once.diagnostics:
        for name, values in finding.values.items():
            np.testing.assert_allclose(values, each[finding.name][name], rtol=1e-9, atol=1e-12, err_msg=f"{finding.name}: {name}")


@pytest.mark.parametrize("error", ["one", "by round", "estimated", "reported"])
def test_an_action_without_a_solution_leaves_those_of_the_others(error: str) -> None:
    """Action 1 was taken once. A ridge of next to nothing gives it some solution, and changes nothing else by more."""
    log = make_log(3000)
    log = pd.concat([log[log["action"] == 0], log[log["action"] == 1].iloc[:1]])
    pairs = make_log(400, seed=5)["stress"].to_numpy()[:, None]
    noisy = pairs + np.random.default_rng(6).normal(0, 0.5, pairs.shape)
    ways: dict[str, dict[str, Any]] = {
        "one": {"error_cov": 0.5},
        "by round": {"error_columns": "variance"},
        "estimated": {"error_cov": from_validation(noisy, pairs)},
        "reported": {"error_cov": from_variances(np.full(pairs.shape, 0.2), predicted=noisy, truth=pairs), "error_columns": "variance"},
    }
    found = mb.fit(log, predicted="stress", intercept=True, **ways[error])
    expected = mb.fit(log, predicted="stress", intercept=True, ridge=1e-9, **ways[error])
    for method, mine in found.estimates.items():
        other = expected.estimates[method]
        assert np.isnan(mine.theta[1]).all() == (method in ("ridge", "rc"))  # for the others the guard decides
        assert np.isnan(mine.std_error[1]).all() == (method in ("ridge", "rc"))
        np.testing.assert_allclose(mine.theta[0], other.theta[0], rtol=1e-6, err_msg=method)
        np.testing.assert_allclose(mine.std_error[0], other.std_error[0], rtol=1e-6, err_msg=method)
    assert "No solution: ridge (action 1), rc (action 1)." in str(found)


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_an_arm_on_the_edge_does_not_hide_what_the_error_model_does_to_others(seed: int) -> None:
    """A feature that is constant for action 2, so that rounding decides whether there is a solution, with each error model anew."""
    rng = np.random.default_rng(seed)
    action, x = rng.integers(0, 3, 3000), rng.normal(1, 1, (3000, 2))
    seen = 0.3 + x * [0.8, 1.1] + rng.normal(0, 0.5, x.shape)
    seen[action == 2, 0] = 2.7
    truth = rng.normal(1, 1, (150, 2))
    model = from_validation(0.3 + truth * [0.8, 1.1] + rng.normal(0, 0.5, truth.shape), truth)
    log = {"predicted": seen, "action": action, "reward": x.sum(axis=1) + rng.normal(0, 1, 3000), "propensity": np.full(3000, 1 / 3)}
    found, expected = (mb.fit(log, error_cov=model, n_actions=3, intercept=True, ridge=ridge) for ridge in (0.0, 1e-6))
    for method in ("ridge", "rc"):
        mine, other = (analysis.estimates[method].model_covariance for analysis in (found, expected))
        assert mine is not None
        assert other is not None
        np.testing.assert_allclose(np.diag(mine)[:6], np.diag(other)[:6], rtol=1e-3, err_msg=method)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 2.3])
def test_a_feature_that_is_constant_for_an_action_says_nothing_of_its_rewards(value: float) -> None:
    """A regression on it would divide rounding by rounding, and give something else when rounds come in another order."""
    rng = np.random.default_rng(0)
    n = 3000
    action = rng.integers(0, 3, n)
    log = pd.DataFrame({"x": np.where(action == 2, value, rng.normal(0, 1, n)), "action": action, "reward": rng.normal(0, 1, n)})
    orders = [log.assign(propensity=1 / 3), log.sample(frac=1, random_state=1).assign(propensity=1 / 3)]
    first, second = (mb.fit(each, predicted="x", error_cov=0.05, methods="dr", n_actions=3).estimates["dr"] for each in orders)
    np.testing.assert_allclose(first.theta, second.theta, rtol=1e-9, atol=1e-9)
    assert abs(first.theta[2, 0]) < 5 * first.std_error[2, 0] + 0.1


def test_constants_of_all_sizes_are_no_loss_of_digits() -> None:
    rng = np.random.default_rng(4)
    log = make_log(5000).assign(propensity=lambda log: log["propensity"] * rng.uniform(0.999, 1, len(log)))
    for value in [4.785366398604346, 108.07998861520046, *rng.lognormal(2, 2, 20)]:
        found = mb.fit(log.assign(one=value), predicted=FEATURES, error_cov=ERROR, methods="ridge")
        assert np.isfinite(found.estimates["ridge"].std_error).all()


def test_what_a_singular_arm_could_bear_does_not_overflow() -> None:
    """Actions that were taken once."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.normal(0, 1, (30, 4)) * [1e10, 1, 1, 1]
        action = np.minimum(np.arange(30), 8)
        log = {"predicted": x, "action": action, "reward": rng.normal(0, 1, 30), "propensity": np.full(30, 1 / 9)}
        found = mb.fit(log, error_cov=[0.16e20, 0.16, 0.16, 0.16], n_actions=9)
        bear = next(finding.values["feasible_multiple"] for finding in found.diagnostics if finding.name == "feasibility of the correction")
        assert np.isfinite(bear).all()


def test_rows_set_aside_need_no_code_of_their_own(tmp_path: Path) -> None:
    """Kernels are compiled for the kinds of arrays they get, which takes longer than most fits."""
    log = make_log()
    mb.fit(log, predicted=FEATURES, error_cov=ERROR)
    used: list[Any] = [kernels.mark_faults, kernels.add_products, kernels.add_scores, kernels.add_predictions]
    compiled = [len(kernel.signatures) for kernel in used]
    spoilt = log.astype({"reward": "float32"})
    spoilt.loc[7, ["stress", "action"]] = np.nan
    mb.fit(spoilt, predicted=FEATURES, error_cov=ERROR, on_bad="set-aside", set_aside=tmp_path / "aside.csv")
    assert [len(kernel.signatures) for kernel in used] == compiled


def _bearable(own: pd.DataFrame) -> float:
    """The λ at which Σ w (x̃x̃' - λ Σe) becomes singular, by hand for two features of which the first has no error."""
    w = 0.5 / own["propensity"]
    (a, b), (_, c) = sum(wt * np.outer(z, z) for wt, z in zip(w, own[FEATURES].to_numpy(), strict=True)) / w.sum()
    return float((c - b * b / a) / make_log(900)["variance"].mean())


# ---- the command ---------------------------------------------------------------------------------------------------------


def test_the_command_prints_json_and_writes_a_folder(tmp_path: Path) -> None:
    log = make_log()
    log.to_parquet(tmp_path / "log.parquet")
    np.savetxt(tmp_path / "sigma.csv", ERROR, delimiter=",")
    arguments = ["fit", "log.parquet", "--predicted", "one,stress", "--error-cov", "sigma.csv"]
    done = run(
        *arguments, "--action", "action", "--reward", "reward", "--propensity", "propensity", "--method", "meb", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    plain = json.loads(done.stdout)
    expected = by_estimate(log, "meb", ERROR)
    np.testing.assert_allclose(plain["estimates"]["meb"]["theta"], expected.theta)
    np.testing.assert_allclose(plain["estimates"]["meb"]["std_error"], expected.std_error)
    np.testing.assert_allclose(plain["contrasts"]["1-0"]["meb"]["interval"], expected.contrast(1, 0).interval())
    (tmp_path / "columns.toml").write_text('predicted = ["one", "stress"]\nerror_columns = ["0", "variance"]\nunit = "user"\n')
    done = run("fit", "log.parquet", "--columns", "columns.toml", "--out", "found", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "clustered by 30 units" in done.stdout
    written = {path.name for path in (tmp_path / "found").iterdir()}
    assert {"report.html", "fit.json", "estimates.csv", "contrasts.csv", "sensitivity.csv", "diagnostics.csv", "forest.png"} <= written
    assert (tmp_path / "found" / "report.html").read_text().count("<svg") == 5
    table = pd.read_csv(tmp_path / "found" / "estimates.csv")
    assert len(table) == 5 * 2 * 2
    stated = table[(table["method"] == "dr") & (table["feature"] == "stress")]["theta"]
    assert str(round(float(stated.iloc[1]), 3)) in done.stdout


@pytest.mark.parametrize(
    ("value", "std_error", "shown"),
    [
        (1.23456, 0.0123, "1.235"),
        (-1234.56, 12.3, "-1235"),
        (1234.5678, 0.5, "1234.57"),
        (1.2344e-7, 3.2e-9, "1.234e-07"),
        (3.2e-9, 3.2e-9, "3.2e-09"),
        (1e-12, 3.2e-9, "1e-12"),
        (5.0, 2e-16, "5.000000e+00"),
        (0.0, 3.2e-9, "0.000000"),
        (0.5, np.nan, "0.500"),
        (0.5, 0.0, "0.500"),
        (np.nan, 0.1, "-"),
    ],
)
def test_numbers_have_the_digits_that_their_standard_errors_support(value: float, std_error: float, shown: str) -> None:
    assert fit_tables.digits(value, std_error) == shown


def test_figures_show_coefficients_of_all_sizes_on_one_axis() -> None:
    log = make_log()
    log["steps"] = 1000.0 * log["stress"] + np.random.default_rng(3).normal(0, 800, len(log))
    found = mb.fit(log, predicted="one,stress,steps", error_cov=[0.0, 0.5, 0.0], methods=["dr"])
    axes = fit_figures.draw_forest(found, 0.95).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "stress", "steps, per 100"]
    drawn = np.asarray(axes.lines[0].get_xdata(), dtype=float)
    np.testing.assert_allclose(drawn, found.estimates["dr"].theta[0] * [1, 1, 100])


def finding(found: mb.Analysis, name: str) -> Finding:
    return next(one for one in found.diagnostics if one.name == name)


def test_with_an_intercept_berkson_error_is_beside_the_spread_alone() -> None:
    """Far from zero, the second moment is large and the spread is not: the factor is what the correction does to the slope."""
    rng = np.random.default_rng(13)
    predicted = rng.normal(3, np.sqrt(0.7), (20_000, 1))
    x = predicted + rng.normal(0, np.sqrt(0.3), predicted.shape)
    pairs = mb.measurement.from_validation(predicted[:2000], x[:2000])
    log = log_of(predicted, x, rng)
    with pytest.warns(mb.measurement.BerksonWarning, match=r"over-corrects by a factor of up to 1\.7"):
        found = mb.fit(log, predicted="stress", error_cov=0.3, validation=pairs, intercept=True, methods=["ridge", "meb"])
    slopes = {method: estimate.theta[1, 0] for method, estimate in found.estimates.items()}
    assert slopes["meb"] / slopes["ridge"] == pytest.approx(1.75, abs=0.15)


def test_a_missing_intercept_is_noticed() -> None:
    rng, n = np.random.default_rng(14), 4000
    x = rng.normal(1, 1, (n, 1))
    log = log_of(x + rng.normal(0, 0.5, x.shape), x, rng)
    given: dict[str, Any] = {"predicted": "stress", "error_cov": 0.25}
    for methods in ("dr", "meb", "rc"):
        assert finding(mb.fit(log, methods=methods, **given), "no intercept").verdict == "green"
        moved = log | {"reward": log["reward"] + 0.7 * log["action"]}
        told = finding(mb.fit(moved, methods=methods, **given), "no intercept")
        assert told.verdict == "red"
        assert "The mean residual of action 1 is 0." in told.sentence
        assert (
            finding(mb.fit(log | {"reward": log["reward"] + 0.3 * log["action"]}, methods=methods, **given), "no intercept").verdict
            == "yellow"
        )
        assert "`intercept=True`" in told.sentence
    assert "no intercept" not in {one.name for one in mb.fit(log, intercept=True, **given).diagnostics}


def test_zscores_of_a_missing_intercept_are_not_larger_than_chance() -> None:
    """Over 300 logs of a policy that reads x̃, where no intercept is needed."""
    rng, z = np.random.default_rng(15), []
    for _ in range(300):
        x = rng.normal(1, 1, (500, 2))
        log = log_of(x[:, :1] + rng.normal(0, 0.7, (500, 1)), x[:, :1], rng)
        z.append(finding(mb.fit(log, predicted="stress", error_cov=0.49, methods=["dr"], progress=False), "no intercept").values["z"])
    assert (np.array(z) > 1.96).mean() < 0.07
    assert np.max(z) < 4.5


def test_a_fitted_intercept_is_shown_like_a_column_of_ones() -> None:
    """The two ways to an intercept give the same numbers everywhere: tables and files. The figure is of the features."""
    log = make_log()
    fitted = mb.fit(log, predicted="stress", error_cov=0.5, intercept=True)
    column = mb.fit(log, predicted="one,stress", error_cov=[0.0, 0.5])
    for table in ("estimates", "contrasts", "sensitivity"):
        own, other = (fit_tables.tidy(found, 0.9)[table] for found in (fitted, column))
        pd.testing.assert_frame_equal(own.replace("(intercept)", "one"), other, rtol=1e-6)
    for shown in (fit_tables.coefficients, fit_tables.sensitivity, lambda found: fit_tables.contrasts(found, 0.9)):
        assert [["one" if cell == "(intercept)" else cell for cell in row] for row in shown(fitted).rows] == shown(column).rows
    labels = [label.get_text() for label in fit_figures.draw_forest(fitted, 0.9).axes[0].get_yticklabels()]
    assert labels == ["stress"]
    legend = fit_figures.draw_sensitivity(fitted).axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["(intercept)", "stress"]
    plain, other = fitted.to_plain()["contrasts"]["1-0"]["dr"], column.to_plain()["contrasts"]["1-0"]["dr"]
    np.testing.assert_allclose([plain["intercept"], *plain["theta"]], other["theta"], rtol=1e-6)
    np.testing.assert_allclose([plain["intercept_std_error"], *plain["std_error"]], other["std_error"], rtol=1e-6)


def test_features_that_follow_from_others_are_named() -> None:
    log = make_log()
    log["calm"], log["twice"] = 1.0 - log["stress"], 2.0 * log["stress"]
    log["idle"] = 1.0 * (np.arange(len(log)) % 3 == 0)
    log["active"], log["nothing"] = 1.0 - log["idle"], 0.0
    for features, intercept, got in [
        ("idle,active,stress", True, "the intercept, 'idle' and 'active', of which each follows from the others. Fit no intercept beside"),
        ("one,stress", True, "the intercept and 'one', of which each follows from the others. Fit no intercept beside them, leave one"),
        ("idle,stress,twice", False, "'stress' and 'twice', of which each follows from the others. Leave one out, or set `ridge`"),
        (
            "stress,one,calm",
            False,
            "'stress', 'one' and 'calm', of which each follows from the others. Leave one out, or set `ridge`",
        ),
        ("stress,nothing", False, "'nothing', which is always 0. Leave it out"),
    ]:
        with pytest.raises(mb.SingularMoments, match=f"features must differ, for their coefficients to be identified; got {got}"):
            mb.fit(log, predicted=features, error_cov=0.0, intercept=intercept)
    with pytest.raises(mb.SingularMoments, match="theta of action 0 must be identified by the data; got 1 rounds"):
        mb.fit(pd.concat([log[log["action"] == a][:1] for a in (0, 1)]), predicted="idle,stress,one", error_cov=0.0)
    shrunk = mb.fit(log, predicted="idle,active", error_cov=0.0, intercept=True, ridge=1.0, methods="dr")
    assert finding(shrunk, "Assumption 2, minimum signal").verdict == "red"
    apart = mb.fit(log, predicted="idle", error_cov=0.0, intercept=True, ridge=1.0, methods="dr")
    assert finding(apart, "Assumption 2, minimum signal").verdict == "green"


def test_multiples_of_the_error_beyond_what_the_data_bear_are_marked_and_not_drawn() -> None:
    found = mb.fit(make_log(), predicted="one,stress", error_cov=[0.0, 0.9], methods=["dr"])
    guarded = found.sensitivity_guarded["dr"]
    assert not guarded[1.0].any()
    assert guarded[2.0].all()
    for row in fit_tables.sensitivity(found).rows:
        assert [cell == "-" for cell in row[2:]] == [bool(own.any()) for own in guarded.values()]
    drawn = fit_figures.draw_sensitivity(found).axes[0].get_lines()[0].get_ydata()
    assert np.isnan(np.asarray(drawn, dtype=float)).tolist() == [bool(own.any()) for own in guarded.values()]
    assert json.loads(found.to_json())["sensitivity_guarded"]["dr"]["2"] == [True, True]


def test_what_the_guard_decided_is_a_dash_unless_it_was_asked_for() -> None:
    found = mb.fit(make_log(), predicted="stress", error_cov=5.0, methods=["dr"])
    assert found.estimates["dr"].guarded.all()
    assert all(row[2:4] == ["-", "-"] for row in fit_tables.contrasts(found, 0.95).rows)
    assert all(row[2] == "-" for row in fit_tables.coefficients(found).rows)
    assert "The tables have a dash in their place" in page.remarks(found)
    asked = mb.fit(make_log(), predicted="stress", error_cov=5.0, methods=["dr"], guard="always")
    assert not any("-" in row[2:] for row in fit_tables.coefficients(asked).rows)


def test_an_error_model_keeps_the_order_of_its_features(tmp_path: Path) -> None:
    log = make_log()
    rng = np.random.default_rng(17)
    truth = rng.normal(size=(300, 2))
    table = {
        "calm": truth[:, 0] + rng.normal(size=300),
        "stress": truth[:, 1] + 0.5 * rng.normal(size=300),
        "t0": truth[:, 0],
        "t1": truth[:, 1],
    }
    pd.DataFrame(table).to_csv(tmp_path / "pairs.csv", index=False)
    done = run("error-model", "pairs.csv", "--predicted", "calm,stress", "--truth", "t0,t1", "--out", "model.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    model = mb.ErrorModel.load(tmp_path / "model.json")
    assert model.features == ("calm", "stress")
    log["calm"], log["other"] = rng.normal(size=(2, len(log)))
    read, given = (mb.fit(log, predicted="calm,stress", error_cov=error) for error in (str(tmp_path / "model.json"), model))
    np.testing.assert_array_equal(read.best.covariance, given.best.covariance)
    mb.fit(log, predicted="other,stress", error_cov=model.named())
    mb.fit(log, predicted="other,stress", error_cov=model.named("other", "stress"))
    for named, sentence in {
        "stress,calm": r"be of the log's features, stress, calm, in their order; got one of calm, stress\. Put them into that order",
        "other,stress": r"be of the log's features, other, stress, in their order; got one of calm, stress\. If they are the same",
    }.items():
        with pytest.raises(mb.InvalidInput, match=f"^the error model must {sentence}"):
            mb.fit(log, predicted=named, error_cov=model)
        with pytest.raises(mb.InvalidInput, match=f"^validation must {sentence}"):
            mb.fit(log, predicted=named, error_cov=0.1, validation=model)


def test_validation_may_cover_some_of_the_features() -> None:
    log = make_log(2000)
    rng = np.random.default_rng(18)
    truth = rng.normal(0.5, 1, 400)
    stress = from_validation((truth + rng.normal(0, np.sqrt(0.5), 400))[:, None], truth[:, None], assume="classical").named("stress")
    joined = mb.measurement.join(mb.measurement.from_known([0.0]).named("one"), stress)

    def said(error: Any, validation: mb.ErrorModel) -> str:
        found = mb.fit(log, predicted=FEATURES, error_cov=error, validation=validation)
        return next(each.sentence for each in found.diagnostics if each.name == "size of the error")

    for validation in (stress, joined):
        assert "The assumed error variance of 'stress' is 0.5; the validation data say 0.48" in said([0.0, 0.5], validation)
        assert "The assumed error variance of 'stress' is 0.2; the validation data say 0.48" in said([0.0, 0.2], validation)
    with pytest.raises(mb.InvalidInput, match=r"^validation must be of the log's 2 features; got one of 1 \(steps\)\."):
        said([0.0, 0.5], stress.named("steps"))
    covered, named = mb.fit(log, predicted=FEATURES, error_cov=stress), mb.fit(log, predicted=FEATURES, error_cov=joined)
    assert_same(covered.best, named.best)


def test_a_table_with_other_columns_than_the_error_model_is_refused() -> None:
    log = make_log(400)
    model = mb.measurement.from_known([0.0, 0.3]).named("one", "stress")
    played = (log["action"], log["reward"], log["propensity"])
    right = mb.estimate(log[["one", "stress"]], *played, model)
    np.testing.assert_array_equal(right.theta, mb.estimate(log[["one", "stress"]].to_numpy(), *played, model).theta)
    with pytest.raises(
        mb.InvalidInput, match="error_cov must be of the log's features, stress, one, in their order; got one of one, stress"
    ):
        mb.estimate(log[["stress", "one"]], *played, model)
    nameless = pd.DataFrame(log[["one", "stress"]].to_numpy())
    for same in (nameless, pa.Table.from_pandas(log[["one", "stress"]])):
        np.testing.assert_array_equal(mb.estimate(same, *played, model).theta, right.theta)


def test_a_missing_column_is_told_with_its_option() -> None:
    log = make_log(50)
    with pytest.raises(mb.LogError, match=r"must have a column 'tress'; got none of that name\. Is it 'stress'\?"):
        mb.fit(log, predicted="tress", error_cov=0.1)
    with pytest.raises(mb.LogError, match=r"got none of that name\. Take the blanks out of the name ' stress' in its header\."):
        mb.fit(log.rename(columns={"stress": " stress"}), predicted="stress", error_cov=0.1)
    log = make_log().rename(columns={"propensity": "p_taken"})
    with pytest.raises(mb.LogError, match=r"must have a column 'propensity' \(or name another with `propensity`\); got none"):
        mb.fit(log.drop(columns=["p0", "p1"]), predicted="stress", error_cov=0.5)


def test_a_constant_feature_has_no_error() -> None:
    with pytest.raises(mb.InvalidInput, match=r"the error variance of 'one' must be 0, since it is the same in all rounds; got 0\.5"):
        mb.fit(make_log(), predicted="one,stress", error_cov=0.5)


def test_rows_set_aside_are_a_finding(tmp_path: Path) -> None:
    log = make_log()
    for share, verdict in ((0.005, "green"), (0.05, "yellow"), (0.5, "red")):
        spoilt = log.copy()
        spoilt.loc[: share * len(log), "propensity"] = 70.0
        given: dict[str, Any] = {"predicted": "one,stress", "error_cov": [0.0, 0.5], "on_bad": "set-aside", "set_aside": tmp_path / "a.csv"}
        told = finding(mb.fit(spoilt, **given), "rows set aside")
        assert told.verdict == verdict
        assert "for 'propensity' (" in told.sentence


def test_an_error_model_of_other_units_is_noticed() -> None:
    rng = np.random.default_rng(16)
    x = rng.normal(0.5, 1, (4000, 1))
    seen = x + rng.normal(0, 0.7, x.shape)
    model = mb.measurement.from_validation(seen[:1000], x[:1000])
    log = log_of(seen, x, rng)
    for factor, verdict in ((1.0, "green"), (100.0, "yellow")):
        told = finding(mb.fit(log | {"stress": factor * seen[:, 0]}, predicted="stress", error_cov=model), "reliability of x̃")
        assert told.verdict == verdict
        assert ("Check that its unit of measurement is the same" in told.sentence) == (verdict == "yellow")


def test_a_file_counts_once(tmp_path: Path) -> None:
    make_log().to_csv(tmp_path / "log.csv", index=False)
    make_log().to_parquet(tmp_path / "log.parquet")
    given: dict[str, Any] = {"predicted": "one,stress", "error_cov": [0.0, 0.5]}
    assert mb.fit(tmp_path, **given).rounds == 2 * len(make_log())
    (tmp_path / "again.csv").symlink_to(tmp_path / "log.csv")
    for log in (
        [tmp_path / "log.csv", str(tmp_path / "log.csv")],
        [tmp_path / "log.parquet", tmp_path],
        [tmp_path / "again.csv", tmp_path / "log.csv"],
    ):
        with pytest.raises(mb.LogError, match=r"a file must be in a log only once; got log\.(csv|parquet) again"):
            mb.fit(log, **given)
    table = make_log()
    assert mb.fit([table, table.copy()], **given).rounds == 2 * len(table)


def test_the_error_that_is_taken_out_is_held_against_validation_pairs() -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(0.5, 1, (4000, 1))
    seen = x + rng.normal(0, np.sqrt(0.5), x.shape)
    classical = mb.measurement.from_validation(seen[:1000], x[:1000], assume="classical")
    assert classical.verdict == "classical"

    def said(log: dict[str, Any], name: str, **given: Any) -> Finding | None:
        found = mb.fit(log, predicted="stress", methods="dr", **given)
        return next((finding for finding in found.diagnostics if finding.name == name), None)

    log = log_of(seen, x, rng)
    verdicts = {0.5: "green", 0.52: "green", 0.4: "yellow", 0.7: "yellow", 0.2: "red", 1.0: "red", 0.0: "red"}
    for error_cov, verdict in verdicts.items():
        size = said(log, "size of the error", error_cov=error_cov, validation=classical)
        assert size is not None
        assert size.verdict == verdict
        assert f"The assumed error variance of 'stress' is {error_cov:.3g}; the validation data say 0.498 ± 0.022." in size.sentence
    replicates = mb.measurement.from_replicates(x[:300, None] + rng.normal(0, np.sqrt(0.5), (300, 2, 1)))
    assert said(log, "size of the error", error_cov=replicates, validation=classical) is not None
    assert said(log, "size of the error", error_cov=classical) is None  # nothing else to hold it against
    for other, verdict in (
        (replicates, "green"),
        (mb.measurement.from_validation(x[:1000] + 0.1 * rng.normal(size=(1000, 1)), x[:1000]), "red"),
    ):
        size = said(log, "size of the error", error_cov=classical, validation=other)
        assert size is not None
        assert size.verdict == verdict
    few = mb.measurement.from_validation(x[:30] + 0.02 * rng.normal(size=(30, 1)), x[:30])
    assert few.verdict == "undecided"
    doubt = said(log, "kind of error", error_cov=0.5, validation=few)
    assert doubt is not None
    assert doubt.verdict != "green"
    both = {"stress": seen[:, 0], "calm": x[:, 0] + rng.normal(0, 1, 4000)}
    shared = rng.normal(size=(2000, 1)) + 0.2 * rng.normal(size=(2000, 2))
    t = rng.normal(size=(2000, 2))
    across = mb.fit(log | both, predicted="stress,calm", error_cov=1.04, validation=mb.measurement.from_validation(t + shared, t))
    assert "error covariance of 'stress' and 'calm'" in finding(across, "size of the error").sentence
    assert finding(across, "size of the error").verdict == "red"

    predicted, truth = biased_pairs(4000, rng)
    biased = mb.measurement.from_validation(predicted[:2000], truth[:2000])
    forced = mb.measurement.from_validation(predicted[:2000], truth[:2000], assume="classical")
    log = log_of(predicted, truth, rng)
    kind = said(log, "kind of error", error_cov=0.25, validation=biased)
    assert kind is not None
    assert kind.verdict == "red"
    assert "'stress' is 0.31 + 0.67 stress on average" in kind.sentence
    used = said(log, "kind of error", error_cov=forced)
    assert used is not None
    assert used.verdict == "yellow"
    assert said(log, "kind of error", error_cov=biased) is None
    with pytest.raises(mb.InvalidInput, match="validation must be of the log's 1 features; got one of 2"):
        mb.fit(log, predicted="stress", error_cov=0.1, validation=mb.measurement.from_validation(t + shared, t))
    for nothing in (mb.measurement.from_known(0.1, 1), "model.json"):
        with pytest.raises(
            mb.InvalidInput, match="validation must be an error model from pairs of prediction and truth, or from replicates"
        ):
            mb.fit(log, predicted="stress", error_cov=0.1, validation=nothing)  # type: ignore[arg-type]
    crossed = mb.measurement.from_validation(t @ [[1.0, 0.0], [0.5, 1.0]] + 0.3 * shared, t)
    told = finding(mb.fit(log | both, predicted="stress,calm", error_cov=0.1, validation=crossed), "kind of error")
    assert "calm on average" in told.sentence


def test_the_command_refuses_in_one_sentence(tmp_path: Path) -> None:
    spoil(make_log(), 40, "stress", "abc").to_csv(tmp_path / "log.csv", index=False)
    done = run("fit", "log.csv", "--predicted", "one,stress", "--error-cov", "0,0.5", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("mebandit: log.csv row 40 column 'stress' must be a finite number")
    assert done.stderr.count("\n") == 1
    (tmp_path / "kept").mkdir()
    for out in ("new/folder", "kept"):  # which were not there and are not left behind, or stay
        refused = run("fit", "log.csv", "--predicted", "one,stress", "--error-cov", "0,0.5", "--out", out, cwd=tmp_path)
        assert refused.stderr == done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "log.csv"]
    done = run("fit", "log.csv", "--predicted", "one,stress", "--error-cov", "0,0.5", "--on-bad", "set-aside", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 row was set aside" in done.stdout
    aside = (tmp_path / "set_aside.csv").read_text()
    assert aside.count("\n") == 2
    again = ("fit", "log.csv", "--predicted", "one,stress", "--error-cov", "0,0.5", "--on-bad", "set-aside", "--set-aside")
    assert run(*again, "set_aside.csv", cwd=tmp_path).returncode == 0
    (tmp_path / "other.csv").write_text("action,reward\n1,2.0\n")
    done = run(*again, "other.csv", cwd=tmp_path)
    assert done.stderr.startswith("mebandit: the file to write must be new, or an earlier one of its kind; got other.csv, which holds")
    assert (tmp_path / "other.csv").read_text() == "action,reward\n1,2.0\n"


def test_results_do_not_take_the_place_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    make_log().to_csv(tmp_path / "logs" / "estimates.csv", index=False)
    before = (tmp_path / "logs" / "estimates.csv").read_bytes()
    columns = ("--predicted", "one,stress", "--error-cov", "0,0.5")
    for log, out, sentence in (
        ("logs/estimates.csv", "logs", "be another one, where results do not take the place of the log; got logs for logs/estimates.csv."),
        ("logs", "logs", "be outside the folder that is read; got logs in logs."),
        ("logs", "logs/out", "be outside the folder that is read; got logs/out in logs."),
    ):
        done = run("fit", log, *columns, "--out", out, cwd=tmp_path)
        assert done.stderr == f"mebandit: the output folder must {sentence}\n"
        assert [path.name for path in (tmp_path / "logs").iterdir()] == ["estimates.csv"]
    assert (tmp_path / "logs" / "estimates.csv").read_bytes() == before
    assert run("fit", "logs", *columns, "--out", "out", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(page.FILES)


def test_error_models_are_made_from_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    predicted, truth = biased_pairs(2000, rng)
    pd.DataFrame({"seen": predicted[:, 0], "true": truth[:, 0]}).to_csv(tmp_path / "pairs.csv", index=False)
    done = run("error-model", "pairs.csv", "--predicted", "seen", "--truth", "true", "--out", "model.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "biased" in done.stdout
    model = mb.ErrorModel.load(tmp_path / "model.json")
    assert model.kind == "biased"
    who = np.repeat(np.arange(300), 3)
    readings = pd.DataFrame({"person": [f"p{i}" for i in who], "seen": rng.normal(0, 1, 300)[who] + rng.normal(0, 0.5, 900)})
    readings.drop(index=[0, 7]).to_csv(tmp_path / "readings.csv", index=False)
    done = run("error-model", "readings.csv", "--predicted", "seen", "--subject", "person", "--out", "again.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(mb.ErrorModel.load(tmp_path / "again.json").error_cov, 0.25, atol=0.06)
    (tmp_path / "bad.csv").write_text("seen,true\n1.0,2.0\nx,3.0\n")
    done = run("error-model", "bad.csv", "--predicted", "seen", "--truth", "true", "--out", "bad.json", cwd=tmp_path)
    assert "bad.csv row 2 column 'seen' must be a finite number; got 'x'." in done.stderr
    assert not (tmp_path / "bad.json").exists()
    readings.loc[[4, 9], "person"] = [None, " "]
    readings.to_csv(tmp_path / "readings.csv", index=False)
    seen, pairs = ["readings.csv", "--predicted", "seen"], ["pairs.csv", "--predicted", "seen", "--truth", "true"]
    (tmp_path / "labelled.csv").write_text("calm,stressed\n8,2\n1,9\n")
    refusals = {
        ("pairs.csv", "--predicted", "seen", "--subject", "true"): "pairs.csv must have a row for each reading, two or more of a subject; "
        "got one row of each in 'true'.",
        (*seen, "--subject", "person"): "readings.csv row 5 column 'person' must name a subject; got nothing.",
        (*seen, "--subject", "person", "--assume", "biased"): "--assume must go with --truth; got it with --subject.",
        (*pairs, "--averaged", "2"): "--averaged must go with --subject; got it with --truth.",
        (*pairs, "--variances", "v", "--assume", "biased"): "--assume must go without --variances, which are of classical error; got both.",
        (
            "pairs.csv",
            "--predicted",
            "",
            "--truth",
            "true",
        ): "pairs.csv must have a column ''; got none of that name. It has 'seen', 'true'.",
        ("pairs.csv", "--truth", "true"): "--predicted must name the columns of the predictions, with --truth; got nothing.",
        (*pairs[:1], *pairs): "the evidence must be one file with --truth; got 2. --join joins models made from one each.",
        (*pairs, "--reference", "0"): "--reference must go with --confusion; got it with --truth.",
        ("model.json", "--join", "--averaged", "2"): "--averaged must go with --subject; got it with --join.",
        ("model.json", "again.json", "--join"): "--features must be named once each; got 'seen' twice.",
        (*pairs, "--confusion"): f"{ONE_EVIDENCE}; got --truth and --confusion.",
        tuple(seen): f"{ONE_EVIDENCE}; got none.",
    }
    for options, sentence in refusals.items():
        done = run("error-model", *options, "--out", "bad.json", cwd=tmp_path)
        assert done.stderr == f"mebandit: {sentence}\n"
        assert not (tmp_path / "bad.json").exists()
    log = (tmp_path / "readings.csv").read_bytes()
    done = run("error-model", *pairs, "--out", "readings.csv", cwd=tmp_path)
    assert done.stderr.startswith("mebandit: the file to write must be new, or an earlier one of its kind; got readings.csv, which holds")
    assert (tmp_path / "readings.csv").read_bytes() == log
    assert run("error-model", *pairs, "--out", "again.json", cwd=tmp_path).returncode == 0
    done = run("error-model", "labelled.csv", "--confusion", "--out", "bad.json", cwd=tmp_path)
    assert done.stderr.startswith("mebandit: labelled.csv must be a CSV of numbers without a header; got")


ONE_EVIDENCE = "the evidence must be one of: --truth columns, a --subject column, a --confusion matrix, models to --join"


def test_error_models_of_classes_and_of_reported_variances_are_made_from_files(tmp_path: Path) -> None:
    counts = np.array([[80, 20], [10, 90]])
    np.savetxt(tmp_path / "counts.csv", counts, delimiter=",", fmt="%d")
    done = run("error-model", "counts.csv", "--confusion", "--out", "classes.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = mb.measurement.from_confusion(counts)
    np.testing.assert_array_equal(mb.ErrorModel.load(tmp_path / "classes.json").parameters_cov, wanted.parameters_cov)
    done = run("error-model", "counts.csv", "--confusion", "--reference", "1", "--features", "idle", "--out", "idle.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = mb.measurement.from_confusion(counts, reference=1)
    np.testing.assert_array_equal(mb.ErrorModel.load(tmp_path / "idle.json").parameters_cov, wanted.parameters_cov)
    rng = np.random.default_rng(9)
    truth, v = rng.normal(0, 1, (500, 2)), rng.uniform(0.1, 1, (500, 2))
    predicted = truth + rng.normal(0, np.sqrt(2 * v))
    pd.DataFrame(np.hstack([predicted, truth, v]), columns=["calm_0", "calm_1", "t0", "t1", "v0", "v1"]).to_csv(tmp_path / "pairs.csv")
    named = ["--predicted", "calm_0,calm_1", "--truth", "t0,t1", "--variances", "v0,v1"]
    done = run("error-model", "pairs.csv", *named, "--out", "model.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    model = mb.ErrorModel.load(tmp_path / "model.json")
    np.testing.assert_allclose(model.scale, mb.measurement.from_variances(v, predicted=predicted, truth=truth).scale, rtol=1e-12)
    assert "'calm_1': error variance" in done.stdout
    assert "test of correct reported variances, 'calm_1'" in done.stdout


def test_error_models_of_different_features_are_joined_from_files(tmp_path: Path) -> None:
    """Replicates of one feature, counts of a class, and a feature without error: the log is analysed with all of them."""
    rng = np.random.default_rng(21)
    who, n = np.repeat(np.arange(300), 2), 20_000
    steps, true = rng.normal(2, 1, n), rng.integers(0, 2, n)
    readings = pd.DataFrame({"person": who, "seen": rng.normal(0, 1, 300)[who] + rng.normal(0, 0.6, 600)})
    readings.to_csv(tmp_path / "readings.csv", index=False)
    np.savetxt(tmp_path / "counts.csv", [[800, 200], [200, 800]], delimiter=",", fmt="%d")
    made = [
        ("readings.csv", "--predicted", "seen", "--subject", "person", "--features", "steps", "--out", "steps.json"),
        ("counts.csv", "--confusion", "--out", "nameless.json"),
        ("counts.csv", "--confusion", "--features", "idle,active", "--out", "activity.json"),
        ("activity.json", "steps.json", "--join", "--features", "steps, hour, idle, active", "--out", "model.json"),
    ]
    for arguments in made:
        done = run("error-model", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kind: joined, of 3 models whose errors are assumed uncorrelated\n")
    assert "'hour': no error" in done.stdout
    seen = np.where(rng.random(n) < 0.2, 1 - true, true)
    action, hour = rng.integers(0, 2, n), rng.normal(0, 1, n)
    reward = np.where(action == 1, steps - hour + 2.0 * true, 0.5 * steps + rng.normal(0, 0.3, n))
    predicted = {"steps": steps + rng.normal(0, 0.6, n), "hour": hour, "idle": 1.0 - seen, "active": 1.0 * seen}
    pd.DataFrame(predicted | {"action": action, "reward": reward, "propensity": 0.5}).to_parquet(tmp_path / "log.parquet")
    done = run("fit", "log.parquet", "--predicted", ",".join(predicted), "--error-model", "model.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    away = np.array(found["estimates"]["dr"]["theta"]) - [[0.5, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 2.0]]
    assert (np.abs(away) < 4.5 * np.array(found["estimates"]["dr"]["std_error"])).all()
    assert found["error"]["kind"] == "joined"
    done = run("error-model", "nameless.json", "steps.json", "--join", "--features", "a,b,steps", "--out", "bad.json", cwd=tmp_path)
    assert done.stderr.startswith("mebandit: nameless.json must have names, to find its place among --features; got none.")


def test_the_command_warns_in_one_line_and_on_the_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    predicted = rng.normal(0, np.sqrt(0.7), (2000, 1))
    x = predicted + rng.normal(0, np.sqrt(0.3), predicted.shape)
    mb.measurement.from_validation(predicted, x).save(tmp_path / "model.json")
    pd.DataFrame(log_of(predicted, x, rng)).to_csv(tmp_path / "log.csv", index=False)
    given = ["fit", "log.csv", "--predicted", "stress", "--error-cov", "0.3", "--validation", "model.json"]
    done = run(*given, "--json", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("mebandit: the validation pairs say that the error is Berkson")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["diagnostics"][0]["name"] == "kind of error"
    assert "Berkson" in (tmp_path / "out" / "report.html").read_text()


# ---- a baseline


def baseline_log(n: int, seed: int) -> dict[str, Any]:
    """A policy that reads x̃, and a column beside x that explains most of the reward, in no linear way."""
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 1, n)
    seen, extra = x + rng.normal(0, 0.7, n), rng.normal(0, 1, n)
    send = np.where(seen > 1, 0.8, 0.2)
    action = (rng.random(n) < send).astype(int)
    reward = np.where(action == 1, x, 0.5 - x) + 2 * extra + extra**2 + rng.normal(0, 0.5, n)
    return {"x": seen, "last": extra, "action": action, "reward": reward, "propensity": np.where(action == 1, send, 1 - send)}


@pytest.mark.parametrize("varying", [False, True])
def test_a_baseline_is_the_same_in_a_log_and_in_arrays(varying: bool, tmp_path: Path) -> None:
    """dr with the baseline; all other methods and diagnostics as without it; smaller standard errors, and nothing moves by much."""
    log = baseline_log(3000, 1)
    error: dict[str, Any] = {"error_columns": "v"} if varying else {"error_cov": 0.49}
    table = pd.DataFrame(log | {"v": np.full(3000, 0.49)})
    table.to_parquet(tmp_path / "log.parquet", row_group_size=700)
    given: dict[str, Any] = {"predicted": "x", "intercept": True, **error}
    with_it, without = mb.fit(tmp_path / "log.parquet", **given, baseline="last"), mb.fit(tmp_path / "log.parquet", **given)
    slow = mb.estimate(
        log["x"][:, None],
        log["action"],
        log["reward"],
        log["propensity"],
        np.full((3000, 1, 1), 0.49) if varying else 0.49,
        method="dr",
        intercept=True,
        baseline=log["last"],
    )
    np.testing.assert_allclose(with_it.best.covariance, slow.covariance, rtol=1e-9)
    np.testing.assert_allclose(np.r_[with_it.best.theta, with_it.best.intercept[:, None]], np.r_[slow.theta, slow.intercept[:, None]])
    for method in ("ridge", "naive", "meb", "rc"):
        np.testing.assert_allclose(with_it.estimates[method].covariance, without.estimates[method].covariance, rtol=1e-9)
    assert [f.name for f in with_it.diagnostics] == [f.name for f in without.diagnostics]
    wide, narrow = without.average_effect(), with_it.average_effect()
    assert narrow.std_error < 0.75 * wide.std_error
    assert abs(narrow.value - wide.value) < 3 * wide.std_error


def test_the_estimate_with_a_baseline_is_the_formula() -> None:
    log = baseline_log(400, 2)
    seen = np.column_stack([np.ones(400), log["x"]])
    z, a, r = np.column_stack([seen, log["last"]]), log["action"], log["reward"]
    found = mb.estimate(seen, a, r, log["propensity"], np.diag([0, 0.49]), method="dr", baseline=log["last"])
    for b in (0, 1):
        beta = np.linalg.lstsq(z[a == b], r[a == b], rcond=None)[0]
        y = z @ beta + (a == b) / log["propensity"] * (r - z @ beta)
        theta = np.linalg.solve(seen.T @ seen - 400 * np.diag([0, 0.49]), seen.T @ y)
        np.testing.assert_allclose(found.theta[b], theta, rtol=1e-9)


def test_a_baseline_that_cannot_be_read_is_refused_in_a_sentence() -> None:
    log = baseline_log(50, 3)
    log["last"][7] = np.nan
    cases: dict[tuple[str, Any], str] = {
        ("last", "dr"): r"row 8 column 'last' must be a finite number",
        ("reward", "dr"): "baseline must name columns beside the features, the action and the reward; got 'reward'",
        ("propensity", "meb"): "baseline must go with the method 'dr', the only one that reads it; got the methods meb",
    }
    for (column, method), sentence in cases.items():
        with pytest.raises((mb.checks.InvalidInput, mb.checks.LogError), match=sentence):
            mb.fit(log, predicted="x", error_cov=0.49, baseline=column, methods=method)
    with pytest.raises(mb.checks.InvalidInput, match="baseline must go with the method 'dr'"):
        mb.estimate(log["x"][:, None], log["action"], log["reward"], log["propensity"], 0.49, baseline=log["x"])
