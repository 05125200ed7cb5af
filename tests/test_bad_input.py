"""Wrong input: one clear sentence that names the argument, the rule and the value received; and nothing is changed by it."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import mebandit as mb
from mebandit.cli.terminal import commands
from mebandit.environments import Gaussian, HeartSteps
from mebandit.experiments.spec import cells_of
from mebandit.policies import Policy, states
from mebandit.runtime import files

NAN, INF = float("nan"), float("inf")
GOOD: dict[str, Any] = {
    "predicted": [[1.0, 2.0], [0.5, -1.0], [2.0, 0.3]],
    "actions": [0, 1, 0],
    "rewards": [1.0, 2.0, 3.0],
    "propensities": [0.5, 0.4, 0.9],
    "error_cov": [[0.1, 0.0], [0.0, 0.1]],
    "ridge": 1.0,
}

BAD_VECTORS: list[Any] = [
    [NAN, 1.0],
    [1.0, INF],
    [-INF, 0.0],
    [1.0],
    [1.0, 2.0, 3.0],
    [[1.0, 2.0]],
    3.0,
    "ab",
    [1e60, 0.0],
    None,
    [None, 1.0],
    [[1.0], [1.0, 2.0]],
    [10**400, 0],
]
BAD_COVARIANCES: list[Any] = [
    [[1.0, 0.5], [0.4, 1.0]],
    [[1.0, 2.0], [2.0, 1.0]],
    [[-1.0, 0.0], [0.0, 1.0]],
    [[0.0, 1.0], [1.0, 0.0]],
    [[1.0, NAN], [NAN, 1.0]],
    [[INF, 0.0], [0.0, 1.0]],
    [[1.0]],
    np.eye(3),
    np.ones((2, 3)),
    -0.1,
    NAN,
    [0.1, -0.1],
    [1e6, -1e-4],
    [[1e6, 2e-2], [-2e-2, 1e-4]],
    [[1.0, 2.0], [1.0]],
    10**400,
    True,
    INF,
    [INF, 0.1],
    "no",
    None,
]
BAD_REWARDS: list[Any] = [NAN, INF, -INF, 1e60, "1.0", None, [1.0], 1j, 10**400]
BAD_DECISIONS: list[Any] = [0, -1, 99, 2.0, "1", None, True]
BAD_ALLOWED: list[Any] = [[], [1, 0], [0, 1], [3], [-1], [0, 0], [False, False], [True], [0.5], "all", 1, [True, False, True], [[0]]]


def assert_one_sentence(error: BaseException, names: str) -> None:
    """'WHAT must RULE; got RECEIVED.', on one line, perhaps with a remedy behind it."""
    text = str(error)
    assert "\n" not in text
    assert re.match(rf"^.*{names}.* must .+; got .+\.", text), text


def learner_with_history(policy: Policy | None = None) -> mb.Learner:
    learner = mb.Learner(policy or mb.meb(2, 2), seed=1)
    learner.learn(learner.decide([1.0, 2.0], 0.1), 1.0)
    learner.decide([0.3, 0.1], 0.1)
    return learner


LIVE: list[tuple[str, Callable[[mb.Learner], object]]] = [
    *(("predicted", lambda s, v=v: s.decide(v, 0.1)) for v in BAD_VECTORS),
    *(("predicted", lambda s, v=v: s.decide(np.array(v), 0.1 * np.eye(2))) for v in BAD_VECTORS[:5]),
    *(("error_cov", lambda s, v=v: s.decide([1.0, 2.0], v)) for v in BAD_COVARIANCES),
    *(("error_cov", lambda s, v=v: s.decide(np.ones(2), np.array(v))) for v in BAD_COVARIANCES[:6]),
    *(("allowed", lambda s, v=v: s.decide([1.0, 2.0], 0.1, allowed=v)) for v in BAD_ALLOWED),
    *(("reward", lambda s, v=v: s.learn(2, v)) for v in BAD_REWARDS),
    *(("decision", lambda s, v=v: s.learn(v, 1.0)) for v in BAD_DECISIONS),
    ("decision", lambda s: s.learn(1, 1.0)),
    ("decision", lambda s: s.forget(1)),
    ("decision", lambda s: s.learn(mb.Decision(2, 0, 0.123, np.array([0.123, 0.877])), 1.0)),
    ("merge", lambda s: s.merge(mb.Learner(mb.meb(2, 2, floor=0.1)))),
    ("decision", lambda s: s.learn(mb.Decision([2], 0, 0.5, np.array([0.5, 0.5])), 1.0)),  # type: ignore[arg-type]
    ("merge", lambda s: s.merge("other")),  # type: ignore[arg-type]
    ("merge", lambda s: s.merge(s)),
]


@pytest.mark.parametrize(("names", "call"), LIVE)
@pytest.mark.parametrize("own_class", [False, True])
def test_a_refused_live_call_changes_nothing(names: str, call: Callable[[mb.Learner], object], own_class: bool) -> None:
    from tests.policies.test_policies import Stepwise

    learner = learner_with_history(Stepwise(mb.meb(2, 2)) if own_class else None)
    before = states.copied(learner.state), learner.decided, learner.learned, learner.pending
    with pytest.raises(mb.InvalidInput) as caught:
        call(learner)
    assert_one_sentence(caught.value, names)
    assert states.same(learner.state, before[0])
    assert (learner.decided, learner.learned, learner.pending) == before[1:]


BATCH: list[tuple[str, dict[str, Any]]] = [
    ("predicted", {"predicted": [[NAN, 1.0]] * 3}),
    ("predicted", {"predicted": [1.0, 2.0, 3.0]}),
    ("predicted", {"predicted": "abc"}),
    ("actions", {"actions": [0, 1]}),
    ("actions", {"actions": [0, 2, 1]}),
    ("actions", {"actions": [0, -1, 1]}),
    ("actions", {"actions": [0, 0.5, 1]}),
    ("actions", {"actions": ["a", "b", "c"]}),
    ("rewards", {"rewards": [1.0, INF, 2.0]}),
    ("rewards", {"rewards": [1.0, 2.0]}),
    ("propensities", {"propensities": [0.5, 0.0, 0.5]}),
    ("propensities", {"propensities": [0.5, 1.2, 0.5]}),
    ("propensities", {"propensities": [0.5, -0.2, 0.5]}),
    ("propensities", {"propensities": [0.5, NAN, 0.5]}),
    ("propensities", {"propensities": [0.5, 0.5]}),
    ("propensities", {"propensities": [[0.5, 0.5], [0.5, 0.6], [0.5, 0.5]]}),
    ("propensities", {"propensities": [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]}),
    ("propensities", {"propensities": [[1.5, -0.5], [0.5, 0.5], [0.5, 0.5]]}),
    ("error_cov", {"error_cov": [[1.0, 0.5], [0.4, 1.0]]}),
    ("error_cov", {"error_cov": np.zeros((2, 2, 2))}),
    (r"error_cov\[1\]", {"error_cov": np.stack([np.eye(2), -np.eye(2), np.eye(2)])}),
    ("n_actions", {"n_actions": 0}),
    ("n_actions", {"n_actions": 2.0}),
    ("method", {"method": "ols"}),
    ("guard", {"guard": "sometimes"}),
    ("ridge", {"ridge": -1.0}),
    ("ridge", {"ridge": NAN}),
    ("stabilizer", {"stabilizer": [0.5, 0.0]}),
    ("stabilizer", {"stabilizer": [0.5]}),
    ("unit", {"unit": [1, 2]}),
    ("unit", {"unit": [1, 1, 1]}),
    ("intercept", {"intercept": 2}),
    ("predicted", {"predicted": np.zeros((3, 0))}),
    ("actions", {"actions": [[0], [1, 1], [0]]}),
    ("stabilizer", {"stabilizer": "half"}),
    ("stabilizer", {"stabilizer": [[0.5], [0.5, 0.5]]}),
]


@pytest.mark.parametrize(("names", "change"), BATCH)
def test_a_refused_estimate_says_why(names: str, change: dict[str, Any]) -> None:
    with pytest.raises(mb.InvalidInput) as caught:
        mb.estimate(**(GOOD | change))
    assert_one_sentence(caught.value, names)


CONFIGURATIONS: list[tuple[str, Callable[[], object]]] = [
    ("floor", lambda: mb.meb(2, 5, floor=0.7)),
    ("floor", lambda: mb.meb(2, 5, floor=0.0)),
    ("floor", lambda: mb.meb(2, 5, floor=NAN)),
    ("floor", lambda: mb.lin_ucb(2, 5, floor=-0.1)),
    ("n_actions", lambda: mb.meb(1, 5)),
    ("intercept", lambda: mb.meb(2, 60, intercept=-1)),  # type: ignore[arg-type]
    ("epoch", lambda: mb.robust_ucb(2, 5, horizon=10, epoch=0)),
    ("gamma", lambda: mb.robust_ucb(2, 5, horizon=10, gamma=2.0)),
    ("policy", lambda: mb.Learner(mb.meb)),  # type: ignore[arg-type]
    ("policies", lambda: mb.simulate(Gaussian(), ["meb"], horizon=10)),  # type: ignore[list-item]
    ("environment", lambda: mb.simulate(Gaussian, [mb.meb(2, 5)], horizon=10)),  # type: ignore[arg-type]
    ("milestones", lambda: mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=10, milestones=5)),  # type: ignore[arg-type]
    ("Steps", lambda: mb.schedules.Steps(5, (1, 2))),  # type: ignore[arg-type]
    ("Power.exponent", lambda: mb.schedules.Power("x", 0.5)),  # type: ignore[arg-type]
    ("Until.last", lambda: mb.schedules.Until("a")),  # type: ignore[arg-type]
    ("dim", lambda: mb.meb(2, 0)),
    ("ridge", lambda: mb.lin_ucb(2, 5, ridge=0.0)),
    ("width", lambda: mb.thompson(2, 5, width=-1.0)),
    ("warmup", lambda: mb.meb(2, 5, warmup=1.5)),  # type: ignore[arg-type]
    ("refit", lambda: mb.meb(2, 5, refit=0)),
    ("stabilizer", lambda: mb.meb(2, 5, stabilizer=(0.5, 0.5, 0.5))),
    ("policy meb", lambda: cells_of({"simulation": {"horizon": 10}, "policy": [{"kind": "meb", "flor": 0.1}]})),
    ("theta", lambda: mb.oracle(2, 5, theta=[[1.0]])),
    ("horizon", lambda: mb.standard(0, 5)),
    ("floor", lambda: mb.clipped(0.6, 100, 5)),
    ("theta", lambda: Gaussian(theta=[1.0, 2.0])),
    ("error_cov", lambda: Gaussian(error_cov=-1.0)),
    ("error", lambda: Gaussian(error="cauchy")),
    ("error_df", lambda: Gaussian(error="student_t", error_df=2.0)),
    ("noise_sd", lambda: Gaussian(noise_sd=-0.1)),
    ("user", lambda: HeartSteps(user=37)),
    ("horizon", lambda: mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=0)),
    ("policy 'MEB'", lambda: mb.simulate(Gaussian(), [mb.meb(2, 4)], horizon=10)),
    ("policies", lambda: mb.simulate(Gaussian(), [mb.meb(2, 5), mb.meb(2, 5)], horizon=10)),
    ("policies", lambda: mb.simulate(Gaussian(), [], horizon=10)),
    ("policies", lambda: mb.simulate(Gaussian(), mb.meb(2, 5), horizon=10)),  # type: ignore[arg-type]
    ("cell", lambda: mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=10, cell=2**32)),
    ("policy", lambda: mb.check_policy(mb.Learner)),
    ("seed", lambda: mb.simulate(Gaussian(), [mb.meb(2, 5)], horizon=10, seed=-1)),
    ("policy", lambda: mb.Learner(mb.oracle(2, 5))),
]


@pytest.mark.parametrize(("names", "make"), CONFIGURATIONS)
def test_a_refused_configuration_says_why(names: str, make: Callable[[], object]) -> None:
    with pytest.raises(mb.InvalidInput) as caught:
        make()
    assert_one_sentence(caught.value, names)


def test_the_sentence_of_the_design() -> None:
    with pytest.raises(mb.InvalidInput) as caught:
        mb.meb(2, 5, floor=0.7)
    assert str(caught.value) == "floor must be in (0, 1/n_actions] = (0, 0.5]; got 0.7."


def corrupt(body: dict[str, Any], how: str) -> str:
    text = json.dumps(body)
    if how == "truncated":
        return text[: len(text) // 2]
    if how == "flipped digit":
        at = text.index("0.", text.index('"state"'))
        return text[:at] + "7" + text[at + 1 :]
    if how == "not json":
        return "mebandit"
    if how == "other json":
        return "[1, 2, 3]"
    if how == "no checksum":
        return json.dumps({k: v for k, v in body.items() if k != "sha256"})
    return ""


@pytest.mark.parametrize("how", ["truncated", "flipped digit", "not json", "other json", "no checksum", "empty"])
def test_a_corrupted_state_file_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "state.json"
    learner_with_history().save(path)
    path.write_text(corrupt(json.loads(path.read_text()), how))
    with pytest.raises(mb.LogError) as caught:
        mb.Learner.load(path)
    assert_one_sentence(caught.value, "state file")
    assert path.exists()


def test_a_state_file_of_another_version_or_policy_is_refused(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "state.json"
    learner_with_history().save(path)
    body = {k: v for k, v in json.loads(path.read_text()).items() if k != "sha256"}
    for change, names in (
        ({"version": 99}, "state file"),
        ({"state": {"tuple": body["state"]["tuple"][:1]}}, "state"),
        ({"policy": {"type": "Unknown"}}, "type"),
    ):
        changed = body | change
        seal = hashlib.sha256(json.dumps(changed).encode()).hexdigest()
        path.write_text(json.dumps(changed | {"sha256": seal}))
        with pytest.raises(mb.LogError) as caught:
            mb.Learner.load(path)
        assert_one_sentence(caught.value, names)
    with pytest.raises(mb.LogError, match=r"state file must be readable; got .*missing.json"):
        mb.Learner.load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "line",
    [
        "not json\n",
        '{"reward_of": 9, "reward": 1.0}\n',
        '{"reward_of": 1}\n',
        '{"decision": 5}\n',
        '{"decision": 5, "predicted": [1.0], "error_cov": [[0.1]], "allowed": [0, 1], "luck": 0.5, "action": 0, "propensities": [1, 0]}\n',
        "[1]\n",
        '{"rewrd_of": 1, "reward": 1.0}\n',
        '{"decision": 5, "predicted": [1, 2], "error_cov": 0.1, "allowed": [0, 1], "luck": 0.5, "action": -1, "propensities": [1, 0]}\n',
        '{"decision": 5, "predicted": [1, 2], "error_cov": NaN, "allowed": [0, 1], "luck": 0.5, "action": 0, "propensities": [1, 0]}\n',
        '{"decision": 5, "predicted": [1, 2], "error_cov": [1], "allowed": [0, 1], "luck": 0.5, "action": 0, "propensities": [1, 0]}\n',
        '{"decision": 5, "predicted": [1, 2], "error_cov": 0.1, "allowed": [1], "luck": 0.5, "action": 0, "propensities": [0, 1]}\n',
        "\udcff\n",
    ],
)
def test_a_corrupted_journal_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "j.jsonl"
    learner = mb.Learner(mb.meb(2, 2), seed=1, journal=path)
    learner.decide([1.0, 2.0], 0.1)
    learner.close()
    path.write_bytes(path.read_bytes() + line.encode(errors="surrogateescape"))
    before = path.read_bytes()
    with pytest.raises(mb.LogError) as caught:
        mb.Learner.recover(path)
    assert_one_sentence(caught.value, "line 3")
    assert path.read_bytes() == before


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(mb.LogError, match=r"x.csv line 1 must be"):
        mb.read_journal(tmp_path / "x.csv")
    with pytest.raises(mb.LogError, match=r"cleaned HeartSteps CSV|must have rows with the columns"):
        HeartSteps.from_csv(tmp_path / "x.csv")
    with pytest.raises(mb.LogError, match="journal must be a readable file"):
        mb.Learner.recover(tmp_path / "none.jsonl")


def test_there_are_at_least_a_hundred_of_them() -> None:
    assert len(LIVE) + len(BATCH) + len(CONFIGURATIONS) >= 100


# Files and tables of every kind ----------------------------------------------------------------------------------------------------------

N = 12
TABLE: dict[str, Any] = {
    "predicted_0": np.linspace(-1, 1, N),
    "action": np.arange(N) % 2,
    "reward": np.linspace(0, 2, N),
    "propensity": np.full(N, 0.5),
    "who": np.arange(N) // 3,
}
CSV = pd.DataFrame(TABLE).to_csv(index=False).encode()
SECONDS = [timedelta(seconds=i) for i in range(N)]
COLUMNS: dict[str, Any] = {
    "durations": pa.array(SECONDS),
    "decimals": pa.array([Decimal("0.5")] * N),
    "long decimals": pa.array([Decimal("1" * 60)] * N, pa.decimal256(70, 2)),
    "booleans": pa.array([True, False] * 6),
    "lists": pa.array([[1.0, 2.0]] * N),
    "structs": pa.array([{"a": 1}] * N),
    "maps": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int32())),
    "categories": pa.array(["1", "0"] * 6).dictionary_encode(),
    "categories of durations": pa.array(SECONDS).dictionary_encode(),
    "nothing": pa.nulls(N),
    "dates": pa.array([date(2020, 1, 1)] * N),
    "bytes": pa.array([b"\xff"] * N),
    "text": pa.array(["x"] * N),
    "long integers in text": pa.array(["1" + "0" * 400] * N),
    "unsigned": pa.array([2**64 - 1] * N, pa.uint64()),
    "views": pa.array(["1"] * N, pa.string_view()),
    "half precision": pa.array(np.ones(N, np.float16)),
}
DEEP = b"[" * 100_000
FILES: dict[str, bytes] = {
    "empty.csv": b"",
    "empty.parquet": b"",
    "empty.jsonl": b"",
    "header.csv": CSV.splitlines()[0] + b"\n",
    "blank.csv": b"\n\n\n",
    "bom.csv": b"\xef\xbb\xbf" + CSV,
    "utf16.csv": CSV.decode().encode("utf-16"),
    "latin.csv": CSV.replace(b"who", b"qu\xe9"),
    "nul.csv": CSV.replace(b"0.5", b"0\0.5"),
    "nuls.csv": bytes(5000),
    "nul_in_a_name.csv": CSV.replace(b"reward", b"re\0ward"),
    "ragged.csv": CSV + b"1,2\n1,2,3,4,5,6,7,8\n",
    "unclosed.csv": CSV + b'"1,2\n',
    "huge.csv": CSV.replace(b"0.5", b"1" + b"0" * 400),
    "huge_actions.csv": CSV.replace(b",1,", b",18446744073709551617,"),
    "carriage_returns.csv": CSV.replace(b"\n", b"\r"),
    "random.csv": np.random.default_rng(0).bytes(5000),
    "random.parquet": np.random.default_rng(0).bytes(5000),
    "random.jsonl": np.random.default_rng(0).bytes(5000),
    "random.gz": np.random.default_rng(0).bytes(5000),
    "deep.jsonl": DEEP + b"\n",
    "deep_but_readable.jsonl": b'{"format":' + b"[" * 900 + b"]" * 900 + b"}\n",
    "long_number.jsonl": b'{"format":' + b"1" * 5000 + b"}\n",
    "type.jsonl": b'{"format":"mebandit-journal","version":1,"policy":{"type":["a"]},"seed":1}\n',
}
DESCRIPTIONS: dict[str, bytes] = {
    "deep.json": DEEP,
    "deep_objects.json": b'{"a":' * 50_000,
    "deep_but_readable.json": b'{"sha256":' + b"[" * 900 + b"]" * 900 + b"}",
    "long_number.json": b"1" * 5000,
    "huge_numbers.json": b'{"estimates":{"dr":{"theta":[[1%b,1],[0,1]]}}}' % (b"0" * 400),
    "ragged.json": b"[[0,0],[1]]",
    "text.json": b'{"a":"\xff"}',
    "infinite.json": b"[[NaN,1],[Infinity,1]]",
    "deep.toml": b"predicted=" + DEEP,
    "deep_key.toml": b"floor" + b".a" * 3000 + b"=1",
    "long_number.toml": b"floor=" + b"1" * 5000,
    "text.toml": b"\xff",
}


def run_all(folder: Path, *commands_: tuple[str, ...]) -> None:
    """Each command ends well or in a sentence."""
    for arguments in commands_:
        found = CliRunner().invoke(commands, [part.replace("FOLDER", str(folder)) for part in arguments])
        if isinstance(found.exception, mb.MebanditError):
            assert re.match(r"^[^\n]* must [^\n]+; got [^\n]+\.", str(found.exception)), (arguments, str(found.exception))
        else:
            assert found.exception is None or isinstance(found.exception, SystemExit), (arguments, repr(found.exception))


def reading(log: str) -> list[tuple[str, ...]]:
    """The commands that read a log."""
    return [
        ("fit", log, "--error-cov", "0.1", "--json"),
        ("fit", log, "--error-cov", "0.1", "--unit", "who", "--on-bad", "set-aside", "--set-aside", "FOLDER/aside.csv"),
        ("value", log),
        ("export", log, "--to", "mrt", "--unit", "who", "--out", "FOLDER/out.csv"),
        ("error-model", log, "--predicted", "predicted_0", "--truth", "reward", "--out", "FOLDER/out.json"),
        ("error-model", log, "--predicted", "predicted_0,predicted_0", "--subject", "who", "--out", "FOLDER/out.json"),
        ("error-model", log, "--confusion", "--out", "FOLDER/out.json"),
        ("plan", "--pilot", log, "--error-cov", "0.1", "--effect", "0.3", "--replicates", "0"),
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_log_of_any_bytes_is_read_or_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    run_all(tmp_path, *reading(f"FOLDER/{name}"))


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_any_type_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    for name in TABLE:
        pq.write_table(pa.table(TABLE | {name: COLUMNS[kind]}), tmp_path / "log.parquet")
        run_all(tmp_path, *reading("FOLDER/log.parquet"))


@pytest.mark.parametrize("table", [pa.table({}), pa.table(TABLE).slice(0, 0), pa.Table.from_batches([], pa.schema([]))])
def test_a_table_without_columns_or_rows_is_refused(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "log.parquet")
    run_all(tmp_path, *reading("FOLDER/log.parquet"))
    with pytest.raises(mb.LogError):
        mb.fit(table, predicted="predicted_0", error_cov=0)


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_of_any_bytes_is_read_or_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DESCRIPTIONS[name])
    (tmp_path / "log.csv").write_bytes(CSV)
    log, given = "FOLDER/log.csv", f"FOLDER/{name}"
    run_all(
        tmp_path,
        ("fit", log, "--error-model", given),
        ("fit", log, "--error-cov", "0.1", "--validation", given),
        ("fit", log, "--error-cov", "0.1", "--columns", given),
        ("error-model", given, given, "--join", "--out", "FOLDER/out.json"),
        ("value", log, "--theta", given),
        ("merge", given, given, "--out", "FOLDER/out.json"),
        ("simulate", given, "--out", "FOLDER/results"),
    )


BAD_ARRAYS: dict[str, Any] = {
    "timedelta64": np.arange(N).astype("timedelta64[s]"),
    "timedeltas": SECONDS,
    "beyond 64 bits": [2**70] + [1] * (N - 1),
    "beyond floats": [10**400] + [1] * (N - 1),
    "ragged": [[1.0, 2.0], [3.0]] * 6,
    "shorter": [1.0],
    "dicts": [{"a": 1}] * N,
    "objects": [object()] * N,
    "intervals": pd.interval_range(0, N),
    "a set": {1, 2},
    "nothing": None,
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_bad_arrays_in_a_table_are_refused(kind: str, tmp_path: Path) -> None:
    for column in ("predicted_0", "action", "reward", "propensity", "who"):
        log: Any = TABLE | {column: BAD_ARRAYS[kind]}
        logs = [log]
        with suppress(ValueError, TypeError):
            logs.append(pd.DataFrame(log))
        for given in logs:
            for use in (
                lambda g: mb.fit(g, predicted="predicted_0", error_cov=0.1, unit="who", methods="ridge"),
                lambda g: mb.value(g, "uniform", predicted="predicted_0", unit="who"),
                lambda g: mb.export(g, tmp_path / "out.csv", to="mrt", predicted="predicted_0", unit="who"),
            ):
                with suppress(mb.MebanditError):  # what numpy or pandas make a number of is one
                    use(given)
    with pytest.raises(mb.MebanditError, match=r"^[^\n]*$"):
        mb.fit(TABLE | {"reward": BAD_ARRAYS[kind]}, predicted="predicted_0", error_cov=0.1)


def test_more_actions_than_fit_into_memory_are_refused_with_what_the_log_holds(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(CSV)
    sentence = r"^n_actions must be at most 2,048, .*; got 1000000000 for a log whose largest action is 1\.$"
    for log in (TABLE, tmp_path / "log.csv"):
        for use in (
            lambda g: mb.fit(g, predicted="predicted_0", error_cov=0.1, n_actions=10**9),
            lambda g: mb.value(g, "uniform", predicted="predicted_0", n_actions=10**9),
            lambda g: mb.export(g, tmp_path / "out.npz", to="obp", predicted="predicted_0", n_actions=10**9),
        ):
            with pytest.raises(mb.InvalidInput, match=sentence):
                use(log)


def test_a_list_within_itself_is_no_log() -> None:
    log: list[Any] = []
    log.append(log)
    with pytest.raises(mb.InvalidInput, match=r"^log must be no list within itself; got \[\[...\]\]\.$"):
        mb.fit(log, predicted="x", error_cov=0)


def test_nesting_has_a_limit_that_all_can_work_with() -> None:
    assert files.parse_json("[" * 100 + "]" * 100)
    for content in ("[" * 101 + "]" * 101, b"[" * 101 + b"]" * 101, '{"a":' * 101 + "1" + "}" * 101, "[" * 10**5):
        with pytest.raises(ValueError, match="nested too deeply"):
            files.parse_json(content)
    assert files.parse_json("[" + ",".join(["[1]"] * 200) + "]") == [[1]] * 200
