"""What a policy would have earned: the estimators against a slow reference and the truth, their intervals, and what is refused.

Statistical tests have fixed seeds; tolerances are in Monte-Carlo standard errors.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mebandit as mb
from mebandit.analysis.bounded_values import lower_ends
from mebandit.logs.pieces import ROWS
from mebandit.values import Floats, Observation

THETA = np.array([[1.5, -1.0], [1.0, 1.0]])
ERROR = np.diag([0.0, 0.5])
ESTIMATORS = ("ips", "snips", "dr")
Log = dict[str, Any]


def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Contexts (1, stress) and their predictions; stress is skewed, so that E[r | x̃] is not linear."""
    x = np.column_stack([np.ones(n), rng.exponential(1, n) - 0.5])
    return x, x + np.outer(rng.normal(0, np.sqrt(0.5), n), [0, 1])


def adaptive_log(n: int, seed: int, *, batches: int = 5, floor: float = 0.1) -> Log:
    """A log of a policy that learns: after each batch, least squares on x̃ decides the next, every action at the floor at least."""
    rng = np.random.default_rng(seed)
    x, seen = draw(n, rng)
    a, p, r = np.zeros(n, dtype=int), np.full(n, 0.5), np.zeros(n)
    for rows in np.array_split(np.arange(n), batches):
        if rows[0] > 0:
            past = slice(0, rows[0])
            beta = [np.linalg.lstsq(seen[past][a[past] == b], r[past][a[past] == b], rcond=None)[0] for b in (0, 1)]
            p[rows] = np.where(seen[rows] @ (beta[1] - beta[0]) > 0, 1 - floor, floor)
        a[rows] = rng.random(rows.size) < p[rows]
        r[rows] = np.einsum("ti,ti->t", THETA[a[rows]], x[rows]) + rng.normal(0, 0.5, rows.size)
    return {"x": seen, "action": a, "reward": r, "propensity": np.where(a == 1, p, 1 - p)}


def chance(x: Floats) -> Floats:
    """A policy that reads x̃ smoothly."""
    p = 0.1 + 0.8 / (1 + np.exp(-2 * x[:, 1]))
    return np.column_stack([1 - p, p])


POLICIES: dict[str, Any] = {
    "uniform": "uniform",
    "always 1": 1,
    "mostly 0": [0.7, 0.3],
    "on x̃": mb.LinearRule(THETA, floor=0.1),
    "smooth": chance,
}


def true_values(n: int = 4_000_000) -> dict[str, float]:
    """E Σ_a π_e(a | x̃) ⟨θ_a, x⟩ on a huge sample."""
    x, seen = draw(n, np.random.default_rng(99))
    earned = x @ THETA.T
    greedy = np.where(seen @ (THETA[1] - THETA[0]) > 0, 0.9, 0.1)
    pi: dict[str, Any] = {"uniform": 0.5, "always 1": 1.0, "mostly 0": 0.3, "on x̃": greedy, "smooth": chance(seen)[:, 1]}
    return {name: float(np.mean((1 - p) * earned[:, 0] + p * earned[:, 1])) for name, p in pi.items()}


def value(log: Any, policy: Any, **settings: Any) -> Any:
    return mb.value(log, policy, predicted=["x_0", "x_1"], **settings)


def reference(log: Log, pi: Floats, unit: Any = None) -> dict[str, tuple[float, float, float, float]]:
    """V, its standard error, the difference to the mean reward and its standard error, by the obvious loops over arms and units."""
    x, a, r, p = log["x"], log["action"], log["reward"], log["propensity"]
    n, z = len(a), np.column_stack([np.ones(len(a)), log["x"]])
    beta = [np.linalg.lstsq(z[a == b], r[a == b], rcond=None)[0] for b in range(pi.shape[1])]
    fitted = np.column_stack([z @ b for b in beta])
    rho = pi[np.arange(n), a] / p
    robust = (pi * fitted).sum(axis=1) + rho * (r - fitted[np.arange(n), a])
    V = {"ips": (rho * r).mean(), "snips": (rho * r).sum() / rho.sum(), "dr": robust.mean()}
    psi = {
        "ips": rho * r - V["ips"],
        "snips": rho * (r - V["snips"]) / rho.mean(),
        "dr": robust - V["dr"],
    }
    label = None if unit is None else np.asarray(unit)

    def spread(values: Floats) -> float:
        sums = values if label is None else np.array([values[label == u].sum() for u in np.unique(label)])
        return float(np.sqrt((sums**2).sum()) / n)

    own = r - r.mean()
    assert x.shape == (n, 2)
    return {name: (V[name], spread(psi[name]), V[name] - r.mean(), spread(psi[name] - own)) for name in V}


# ---- the formulas


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("name", ["uniform", "always 1", "smooth"])
def test_the_estimates_are_those_of_a_slow_reference(name: str, clustered: bool) -> None:
    log = adaptive_log(1500, seed=1)
    log["reward"] = log["reward"] + 40.0  # a level that weights alone do not cancel
    unit = np.random.default_rng(2).integers(0, 40, 1500)
    pi = {"uniform": np.full((1500, 2), 0.5), "always 1": np.tile([0.0, 1.0], (1500, 1)), "smooth": chance(log["x"])}[name]
    found = value(log | {"who": unit}, POLICIES[name], unit="who" if clustered else None, sandwich="hc0")
    for estimator, (V, se, more, more_se) in reference(log, pi, unit if clustered else None).items():
        own = found.estimates[estimator]
        np.testing.assert_allclose(
            [own.value, own.std_error, own.difference.value, own.difference.std_error], [V, se, more, more_se], rtol=1e-8
        )
    assert found.units == (40 if clustered else 0)
    rho = pi[np.arange(1500), log["action"]] / log["propensity"]
    np.testing.assert_allclose(found.effective, rho.sum() ** 2 / (rho**2).sum(), rtol=1e-10)
    np.testing.assert_allclose(found.largest_share, rho.max() / rho.sum(), rtol=1e-10)


@pytest.mark.parametrize("size", [1, 6])
def test_the_most_conservative_standard_errors_are_those_of_the_jackknife(size: int) -> None:
    """hc3 of a mean is n/(n - n_g) times the change when a cluster is left out; dr is computed again with its regressions."""
    log = adaptive_log(90, seed=6, batches=1)
    unit = np.arange(90) // size
    whole = mb.value(log | {"who": unit}, POLICIES, predicted=["x_0", "x_1"], unit="who" if size > 1 else None, sandwich="hc3")
    slow = {name: [] for name in POLICIES}  # type: dict[str, list[float]]
    for g in np.unique(unit):
        keep = unit != g
        x, a, r, p = (log[name][keep] for name in ("x", "action", "reward", "propensity"))
        z = np.column_stack([np.ones(len(a)), x])
        beta = [np.linalg.lstsq(z[a == b], r[a == b], rcond=None)[0] for b in (0, 1)]
        for name, pi in {"uniform": np.full((90, 2), 0.5), "smooth": chance(log["x"])}.items():
            ρ = pi[np.arange(90), log["action"]][keep] / p
            fitted = np.column_stack([z @ b for b in beta])
            slow[name].append(float(((pi[keep] * fitted).sum(axis=1) + ρ * (r - fitted[np.arange(len(a)), a])).mean()))
    for name in ("uniform", "smooth"):
        away = np.array(slow[name]) - whole[name].best.value
        assert whole[name].best.std_error == pytest.approx(np.sqrt((away**2).sum()), rel=1e-9)
    gap = np.array(slow["smooth"]) - slow["uniform"] - (whole["smooth"].best.value - whole["uniform"].best.value)
    assert whole.contrast("smooth", "uniform").std_error == pytest.approx(np.sqrt((gap**2).sum()), rel=1e-9)


@pytest.mark.parametrize("kind", ["hc2", "hc3"])
def test_a_round_is_a_cluster_of_its_own(kind: str) -> None:
    """The correction of single rounds and the one of clusters are two ways to the same numbers, degrees of freedom too."""
    log = adaptive_log(200, seed=7) | {"who": np.arange(200)}
    each, own = value(log, POLICIES, sandwich=kind), value(log, POLICIES, unit="who", sandwich=kind)
    np.testing.assert_allclose(own.spread.covariance, each.spread.covariance, rtol=1e-9, atol=1e-14)
    assert own["smooth"].best.df == pytest.approx(each["smooth"].best.df, rel=1e-9)


def test_differences_between_policies_are_paired() -> None:
    log = adaptive_log(1500, seed=3)
    found = value(log, POLICIES, sandwich="hc0")
    n, z, a, r = 1500, np.column_stack([np.ones(1500), log["x"]]), log["action"], log["reward"]
    fitted = np.column_stack([z @ np.linalg.lstsq(z[a == b], r[a == b], rcond=None)[0] for b in (0, 1)])
    y = {}
    for name, pi in {"smooth": chance(log["x"]), "always 1": np.tile([0.0, 1.0], (n, 1))}.items():
        y[name] = (pi * fitted).sum(axis=1) + pi[np.arange(n), a] / log["propensity"] * (r - fitted[np.arange(n), a])
    gap = y["smooth"] - y["always 1"]
    contrast = found.contrast("smooth", "always 1")
    np.testing.assert_allclose([contrast.value, contrast.std_error], [gap.mean(), gap.std() / np.sqrt(n)], rtol=1e-8)
    apart = np.hypot(found["smooth"].best.std_error, found["always 1"].best.std_error)
    assert contrast.std_error < apart


def test_the_logged_policy_has_the_mean_reward() -> None:
    """A policy that does not learn, valued on its own log: all weights are 1."""
    rng = np.random.default_rng(4)
    x, seen = draw(3000, rng)
    pi = chance(seen)
    a = (rng.random(3000) < pi[:, 1]).astype(int)
    r = np.einsum("ti,ti->t", THETA[a], x)
    found = value({"x": seen, "action": a, "reward": r, "propensity": pi[np.arange(3000), a]}, chance)
    for estimator in ("ips", "snips"):
        own = found.estimates[estimator]
        assert own.value == pytest.approx(r.mean(), rel=1e-12)
        assert own.difference.value == 0.0
        assert own.difference.std_error == pytest.approx(0.0, abs=1e-9)
    assert found.effective == pytest.approx(3000)
    assert found.warnings == ()


def test_one_action_for_ever_is_the_weighted_mean_of_its_rewards() -> None:
    log = adaptive_log(2000, seed=5)
    for b in (0, 1):
        taken = log["action"] == b
        w = 1 / log["propensity"][taken]
        found = value(log, b).estimates
        assert found["snips"].value == pytest.approx(np.average(log["reward"][taken], weights=w), rel=1e-10)
        assert found["ips"].value == pytest.approx((w * log["reward"][taken]).sum() / 2000, rel=1e-10)


def test_relabelling_the_actions_changes_nothing() -> None:
    log = adaptive_log(2000, seed=6)
    other = log | {"action": 1 - log["action"]}
    for first, second in (("uniform", "uniform"), (0, 1), ([0.7, 0.3], [0.3, 0.7]), (mb.LinearRule(THETA), mb.LinearRule(THETA[::-1]))):
        a, b = value(log, first), value(other, second)
        for estimator in ESTIMATORS:
            assert a.estimates[estimator].value == pytest.approx(b.estimates[estimator].value, rel=1e-9)
            assert a.estimates[estimator].std_error == pytest.approx(b.estimates[estimator].std_error, rel=1e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_two_halves_are_the_whole(turned: bool) -> None:
    """In either order; with units that come in another order, and only partly, in the second half."""
    log = adaptive_log(2000, seed=7)
    log["who"] = np.random.default_rng(7).choice([f"user {i}" for i in range(60)], 2000)
    halves = [{name: column[part] for name, column in log.items()} for part in (slice(0, 800), slice(800, None))]
    whole, parts = value(log, chance, unit="who"), [value(half, chance) for half in halves]
    joined = value(halves[::-1] if turned else halves, chance, unit="who")
    mixed = 0.4 * parts[0].estimates["ips"].value + 0.6 * parts[1].estimates["ips"].value
    assert whole.estimates["ips"].value == pytest.approx(mixed, rel=1e-12)
    for estimator in ESTIMATORS:
        assert joined.estimates[estimator].value == pytest.approx(whole.estimates[estimator].value, rel=1e-10)
        assert joined.estimates[estimator].std_error == pytest.approx(whole.estimates[estimator].std_error, rel=1e-10)
    assert (joined.units, joined.rounds) == (whole.units, whole.rounds) == (60, 2000)
    assert joined.effective == pytest.approx(whole.effective, rel=1e-10)
    assert joined.largest_share == pytest.approx(whole.largest_share, rel=1e-10)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_workers_do_not_matter(kind: str, tmp_path: Path) -> None:
    """Bit for bit, with several pieces, units and a rule that is learned."""
    parts = [adaptive_log(3000, seed) for seed in range(4)]
    frame = pd.concat(
        [pd.DataFrame(log["x"], columns=["x_0", "x_1"]).assign(**{k: v for k, v in log.items() if k != "x"}) for log in parts]
    )
    frame["who"] = np.arange(len(frame)) % 37
    paths = []
    for i in range(3):
        paths.append(tmp_path / f"{i}.{kind}")
        piece = frame.iloc[4000 * i : 4000 * (i + 1)]
        piece.to_csv(paths[-1], index=False) if kind == "csv" else piece.to_parquet(paths[-1], row_group_size=700)
    targets = POLICIES | {"learned": mb.Fitted(method="rc", floor=0.05)}
    one, two = (value(paths, targets, unit="who", error_cov=ERROR, workers=workers) for workers in (1, 2))
    assert json.loads(one.to_json()) == json.loads(two.to_json())
    np.testing.assert_array_equal(one.spread.covariance, two.spread.covariance)
    assert one.first == 6000


def test_a_log_larger_than_a_block_is_no_different() -> None:
    log = adaptive_log(ROWS + 5000, seed=8)
    found = value(log, chance, sandwich="hc0")
    for estimator, (V, se, *_) in reference(log, chance(log["x"])).items():
        np.testing.assert_allclose([found.estimates[estimator].value, found.estimates[estimator].std_error], [V, se], rtol=1e-8)


# ---- rules


@pytest.mark.parametrize("floor", [0.0, 0.1, 1 / 3])
def test_a_rule_decides_as_the_library_does(floor: float) -> None:
    """The same probabilities as a policy that knows θ, with some actions not allowed, and with equal scores."""
    rng = np.random.default_rng(9)
    for i in range(60):
        theta = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]) if i % 2 else rng.normal(0, 1, (3, 2))
        rule, policy = mb.LinearRule(theta, floor=floor), mb.oracle(3, 2, theta=theta, floor=floor)
        x, allowed = rng.normal(0, 1, 2), rng.random(3) < 0.7
        allowed[rng.integers(3)] = True
        expected = policy.propensities(policy.init(), Observation(x, np.zeros((2, 2)), allowed))
        np.testing.assert_allclose(rule.probabilities(x[None], allowed[None])[0], expected, rtol=1e-15)


def test_a_rule_keeps_its_floor_among_the_allowed_actions_and_ties_share() -> None:
    rule = mb.LinearRule([[1.0], [1.0], [0.0]], floor=0.1)
    allowed = np.array([[True, True, True], [True, False, True], [False, False, True]])
    expected = [[0.45, 0.45, 0.1], [0.9, 0.0, 0.1], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(rule.probabilities(np.ones((3, 1)), allowed), expected, rtol=1e-15)


def test_a_rule_on_the_best_linear_predictor_reads_it() -> None:
    log = adaptive_log(4000, seed=10)
    from mebandit.estimation.best_linear import best_linear_predictor

    x_hat = best_linear_predictor(log["x"], ERROR)
    by_hand = np.where(x_hat @ (THETA[1] - THETA[0]) > 0, 0.8, 0.2)
    order = {tuple(row): p for row, p in zip(log["x"], by_hand, strict=True)}

    def same(x: Floats) -> Floats:
        p = np.array([order[tuple(row)] for row in x])
        return np.column_stack([1 - p, p])

    rules = {
        "hand": same,
        "log": mb.LinearRule(THETA, floor=0.2, context="blp"),
        "own error": mb.LinearRule(THETA, floor=0.2, context="blp", error_cov=ERROR),
        "given": mb.LinearRule(
            THETA, floor=0.2, context="blp", mean=log["x"].mean(axis=0), context_cov=np.cov(log["x"].T, bias=True) - ERROR
        ),
        "x̃": mb.LinearRule(THETA, floor=0.2),
    }
    found = value(log, rules, error_cov=ERROR)
    for name in ("log", "own error", "given"):
        assert found[name].best.value == pytest.approx(found["hand"].best.value, rel=1e-12)
    assert found["x̃"].best.value != pytest.approx(found["hand"].best.value, rel=1e-6)
    alone = value(log, rules["own error"])
    assert alone.best.value == pytest.approx(found["hand"].best.value, rel=1e-12)


def test_errors_that_vary_and_actions_that_are_not_allowed() -> None:
    """A journal of a learner: error covariances by round, restricted actions, all columns found by their names."""
    learner, rng = mb.Learner(mb.meb(3, 1, floor=0.1), seed=1), np.random.default_rng(11)
    rows: list[tuple[float, float, int, Floats, float]] = []
    for t in range(400):
        variance = [0.1, 0.6][t % 2]
        x = rng.normal(1, 1)
        seen = x + rng.normal(0, np.sqrt(variance))
        decision = learner.decide([seen], variance, allowed=[0, 1] if t % 5 == 0 else None)
        reward = [0.2, -0.5, 1.0][decision.action] * x
        learner.learn(decision, reward)
        rows.append((seen, variance, decision.action, decision.propensities, reward))
    p = np.array([row[3] for row in rows])
    log = {
        "predicted": np.array([[row[0]] for row in rows]),
        "error_cov_0_0": np.array([row[1] for row in rows]),
        "action": np.array([row[2] for row in rows]),
        "propensity": p,
        "reward": np.array([row[4] for row in rows]),
    }
    rule = mb.LinearRule([[0.2], [-0.5], [1.0]], context="blp", floor=0.05)
    found = mb.value(log, {"uniform": "uniform", "always 2": 2, "rule": rule, "learned": mb.Fitted(method="rc")})
    assert found["uniform"].unsupported == found["rule"].unsupported == 0.0
    assert found["always 2"].unsupported == pytest.approx(0.2)
    assert "whose logged probability is 0" in found["always 2"].warnings[0]
    assert found.first == 200
    assert found["learned"].policy.theta.shape == (3, 1)


# ---- the truth


def test_values_are_unbiased_and_their_intervals_cover() -> None:
    """600 logs of a policy that learns. Means within 4 standard errors of the truth; 95 % intervals cover between 93 and 97 %."""
    truth, replicates = true_values(), 600
    V = {key: np.empty(replicates) for key in ((p, e) for p in POLICIES for e in ESTIMATORS)}
    se = {key: np.empty(replicates) for key in V}
    for seed in range(replicates):
        found = value(adaptive_log(1000, seed + 1000), POLICIES, workers=1, progress=False)
        for p, e in V:
            V[p, e][seed], se[p, e][seed] = found[p].estimates[e].value, found[p].estimates[e].std_error
    for p, e in V:
        bias = (V[p, e].mean() - truth[p]) / (V[p, e].std() / np.sqrt(replicates))
        covered = np.mean(np.abs(V[p, e] - truth[p]) < 1.96 * se[p, e])
        assert abs(bias) < 4, (p, e, bias)
        assert 0.93 <= covered <= 0.97, (p, e, covered)
    for p in POLICIES:
        assert se[p, "dr"].mean() < se[p, "ips"].mean()
        assert V[p, "dr"].std() < V[p, "ips"].std()


def test_the_same_rounds_make_a_learned_rule_look_better_than_it_is() -> None:
    """θ fitted to pure noise: its value is 0. On the rounds it was fitted to it looks positive, on later rounds it does not."""
    same, later = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = np.column_stack([np.ones(120), rng.normal(0, 1, (120, 3))])
        a = rng.integers(0, 2, 120)
        log = {"x": x, "action": a, "reward": rng.normal(0, 1, 120), "propensity": np.full(120, 0.5)}
        columns: dict[str, Any] = {"predicted": [f"x_{i}" for i in range(4)]}
        theta = mb.estimate(x, a, log["reward"], log["propensity"], 0.0, method="ridge").theta
        same.append(mb.value(log, mb.LinearRule(theta), **columns).best.value)
        later.append(mb.learn_then_value(log, method="ridge", context="predicted", error_cov=0.0, **columns).best.value)
    z = [np.mean(v) / (np.std(v) / np.sqrt(200)) for v in (same, later)]
    assert z[0] > 10
    assert abs(z[1]) < 4


def test_a_rule_that_is_learned_is_the_fit_of_the_first_rows() -> None:
    log = adaptive_log(3000, seed=12)
    half = {name: column[:1200] for name, column in log.items()}
    found = mb.learn_then_value(log, predicted=["x_0", "x_1"], error_cov=ERROR, floor=0.1, learn_share=0.4, intercept=False)
    theta = mb.fit(half, predicted=["x_0", "x_1"], error_cov=ERROR, methods="dr").estimates["dr"].theta
    np.testing.assert_allclose(found.policy.theta, theta, rtol=1e-10)
    rest = {name: column[1200:] for name, column in log.items()}
    assert found.rounds == 1800
    again = value(rest, found.policy, error_cov=ERROR)
    for estimator in ESTIMATORS:
        assert again.estimates[estimator].value == pytest.approx(found.estimates[estimator].value, rel=1e-10)


# ---- what is said of a doubtful value


def test_wrong_propensities_are_noticed() -> None:
    log = adaptive_log(3000, seed=13)
    right = value(log, "uniform")
    assert right.warnings == ()
    assert abs(right.mean_weight.value - 1) < 4 * right.mean_weight.std_error
    wrong = value(log | {"propensity": np.full(3000, 0.4)}, 1)
    assert "propensities are not the probabilities with which the actions were drawn" in wrong.warnings[-1]


def test_poor_overlap_is_noticed() -> None:
    rng = np.random.default_rng(14)
    a = (rng.random(2000) < 0.01).astype(int)
    log = {"x": draw(2000, rng)[1], "action": a, "reward": rng.normal(0, 1, 2000), "propensity": np.where(a == 1, 0.01, 0.99)}
    assert "overlap is poor" in value(log, 1).warnings[0]
    certain = log | {"propensity": np.where(a == 1, 0.01, 1.0)}
    assert "whose logged probability is 0" in value(certain, 1).warnings[0]


def test_weight_that_could_not_be_drawn_is_not_called_wrong() -> None:
    """In every fifth round only action 0 was allowed: the mean weight of action 1 is 0.8, and that is as it should be."""
    log = adaptive_log(3000, seed=21)
    sent = np.where(log["action"] == 1, log["propensity"], 1 - log["propensity"])
    fifth = np.arange(3000) % 5 == 0
    log["action"], sent = np.where(fifth, 0, log["action"]), np.where(fifth, 0.0, sent)
    found = value(log | {"p": np.column_stack([1 - sent, sent])}, 1, propensity=["p_0", "p_1"])
    assert found.mean_weight.value == pytest.approx(0.8, abs=4 * found.mean_weight.std_error)
    assert found.mean_weight.std_error < 0.04
    assert found.unsupported == pytest.approx(0.2)
    assert len(found.warnings) == 1


def test_results_print_and_become_json() -> None:
    found = value(adaptive_log(500, seed=15), POLICIES, level=0.9)
    plain = json.loads(found.to_json())
    assert plain["format"] == "mebandit-value"
    one = plain["policies"]["uniform"]["estimates"]["dr"]
    assert one["value"] == found["uniform"].best.value
    assert one["interval"] == list(found["uniform"].best.interval(0.9))
    assert one["difference"]["std_error"] == found["uniform"].best.difference.std_error
    assert list(found) == list(POLICIES)
    for estimator in ESTIMATORS:
        assert estimator in str(found["uniform"])
    assert str(found).count("effective sample size") == len(POLICIES)


# ---- what is refused


def nan_at_seven(x: Floats) -> Floats:
    p = np.full((len(x), 2), 0.5)
    p[6, 1] = np.nan
    return p


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ("best", {}, "policy 'best', if not 'uniform', must be the number of an action from 0 to 1; got 'best'."),
    (2, {}, "policy 'always 2' must be a whole number from 0 to 1; got 2."),
    ([0.5, 0.6], {}, "policy 'list' must be probabilities that sum to 1; got [0.5 0.6]."),
    ([0.5, 0.3, 0.2], {}, "policy 'list' must have shape (2,); got shape (3,)."),
    (mb.LinearRule(np.ones((3, 2))), {}, "theta of the rule must have shape (2, 2); got shape (3, 2)."),
    (
        mb.LinearRule(THETA, context="blp"),
        {},
        "the error covariance must be known to a rule that reads the best linear predictor; got nothing.",
    ),
    (mb.Fitted(), {}, "the error covariance must be known, to be corrected for; got nothing."),
    (nan_at_seven, {}, "policy 'nan_at_seven' must return probabilities that sum to 1; got [0.5 nan] for row 7 of the log."),
    (
        lambda x: np.full((len(x), 2), 0.6),
        {},
        "policy '<lambda>' must return probabilities that sum to 1; got [0.6 0.6] for row 1 of the log.",
    ),
    (
        lambda x: np.full(len(x), 0.5),
        {},
        "policy '<lambda>' must return an array of shape (50, 2) for predictions of shape (50, 2); got shape (50,).",
    ),
    (lambda x: "no", {}, "policy '<lambda>': what it returns must be a regular array of real numbers, none masked; got 'no'."),
    ({}, {}, "policy must name at least one policy; got none."),
    ({1: "uniform"}, {}, "the names of policies must be text; got 1."),
    ("uniform", {"unit": "one"}, "unit must name at least two units; got 1."),
    ("uniform", {"level": 1.0}, "level must be between 0 and 1; got 1.0."),
    ("uniform", {"learn_share": 1.0}, "learn_share must be between 0.05 and 0.95; got 1.0."),
    ("uniform", {"on_bad": "set-aside"}, "set_aside must name the file for rows that break a rule; got nothing."),
]


@pytest.mark.parametrize(("policy", "settings", "sentence"), BAD, ids=[row[2][:40] for row in BAD])
def test_a_refused_value_says_why(policy: Any, settings: dict[str, Any], sentence: str) -> None:
    log = adaptive_log(50, seed=16, batches=1) | {"one": np.zeros(50)}
    with pytest.raises(mb.InvalidInput, match=re.escape(sentence)):
        value(log, policy, **settings)


def test_a_refused_rule_says_why() -> None:
    for make, sentence in (
        (lambda: mb.LinearRule([1.0, 2.0]), "theta must have shape (n, d); got shape (2,)."),
        (lambda: mb.LinearRule([[1.0], [np.nan]]), "theta must be finite"),
        (lambda: mb.LinearRule(THETA, floor=0.6), "floor must be in [0, 1/K] = [0, 0.5]; got 0.6."),
        (lambda: mb.LinearRule(THETA, context="x"), "context must be one of 'predicted', 'blp'; got 'x'."),
        (lambda: mb.LinearRule(THETA, mean=[0, 0]), "mean and context_cov must be given together; got one of them."),
        (lambda: mb.Fitted(method="best"), "method must be one of"),  # type: ignore[arg-type]
    ):
        with pytest.raises(mb.InvalidInput, match=re.escape(sentence)):
            make()


def test_bad_rows_are_refused_as_fit_refuses_them(tmp_path: Path) -> None:
    log = adaptive_log(60, seed=17)
    log["propensity"][[10, 20]] = 0.0
    sentences = []
    for call in (
        lambda: mb.fit(log, predicted=["x_0", "x_1"], error_cov=ERROR),
        lambda: value(log, "uniform"),
    ):
        with pytest.raises(mb.LogError) as caught:
            call()
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    assert "row 11" in sentences[0]
    found = value(log, {"uniform": "uniform"}, on_bad="set-aside", set_aside=tmp_path / "bad.csv")
    assert (found["uniform"].rounds, found.faults) == (58, 2)
    good = {name: np.delete(column, [10, 20], axis=0) for name, column in log.items()}
    assert found["uniform"].best.value == pytest.approx(value(good, "uniform").best.value, rel=1e-12)
    assert len(pd.read_csv(tmp_path / "bad.csv")) == 2


class Threshold:
    """A user's own policy: mostly action 1 where stress is predicted to be above what it has learned, its mean."""

    n_actions, dim = 2, 2

    def init(self) -> tuple[float, int]:
        return 0.0, 0

    def propensities(self, state: tuple[float, int], observation: Observation) -> Floats:
        p = 0.8 if observation.predicted[1] > state[0] / max(state[1], 1) else 0.2
        return np.array([1 - p, p])

    def update(self, state: tuple[float, int], round: mb.Round) -> tuple[float, int]:
        return state[0] + round.observation.predicted[1], state[1] + 1


def test_the_value_of_a_users_own_policy_is_that_of_its_probabilities() -> None:
    log, state = adaptive_log(2000, seed=20), (60.0, 100)

    def same(x: Floats) -> Floats:
        p = np.where(x[:, 1] > 0.6, 0.8, 0.2)
        return np.column_stack([1 - p, p])

    own, function = value(log, (Threshold(), state), error_cov=ERROR), value(log, same, error_cov=ERROR)
    assert own.name == "Threshold"
    assert own.to_plain() == function.to_plain()


def test_the_value_of_a_learner_is_that_of_its_greedy_rule() -> None:
    log = adaptive_log(2000, seed=21)
    learner = mb.Learner(mb.greedy(2, 2, floor=0.1), seed=1)
    for x, action in zip(log["x"][:200], log["action"], strict=False):
        decision = learner.decide(x, ERROR)
        learner.learn(decision, float(THETA[decision.action] @ x + 0.1 * action))
    rule = mb.LinearRule(learner.theta, floor=0.1)
    found = value(log, {"learner": learner, "state": (learner.policy, learner.state), "rule": rule}, error_cov=ERROR)
    for estimator in ESTIMATORS:
        values = [found[name].estimates[estimator].value for name in found]
        np.testing.assert_allclose(values, values[0], rtol=1e-12)
    assert value(log, learner, error_cov=ERROR, workers=1).to_plain() == value(log, learner, error_cov=ERROR, workers=3).to_plain()


def test_schedules_read_the_time_that_is_given() -> None:
    log = adaptive_log(500, seed=22)
    policy = mb.greedy(2, 2, floor=lambda t: 0.5 if t < 1000 else 0.0)
    state = policy.init()
    early, late = (value(log, (policy, state, time), error_cov=ERROR) for time in (1, 1000))
    assert early.best.value == pytest.approx(value(log, "uniform").best.value, rel=1e-12)
    assert late.name == policy.name


@pytest.mark.parametrize(
    ("policy", "error", "sentence"),
    [
        (mb.meb(2, 2), ERROR, "must come with its state; got LinearPolicy alone"),
        ((Threshold(), (0.0, 0)), None, "the error covariance must be known to policy 'Threshold'; got nothing"),
        ((mb.meb(3, 2), mb.meb(3, 2).init()), ERROR, "must have the n_actions and dim of the log, 2 and 2; got 3 and 2"),
        (None, ERROR, r"must be 'uniform', an action, 'ACTION when available', probabilities, a rule, .* got None"),
    ],
)
def test_policies_that_cannot_be_asked_are_refused(policy: Any, error: Any, sentence: str) -> None:
    with pytest.raises(mb.InvalidInput, match=sentence):
        value(adaptive_log(100, seed=23), policy, **({} if error is None else {"error_cov": error}))


# ---- bounded rewards


def slow_lower_ends(ξ: Floats, α: float) -> list[float]:
    """The formula, round by round."""
    ends, total, weight, cost, seen, spread = [0.0], 0.0, 0.0, 0.0, 0.5, 0.25
    for t, x in enumerate(ξ, 1):
        μ, s2 = seen / t, spread / t
        λ = min(np.sqrt(2 * np.log(1 / α) / (s2 * t * np.log(1 + t))), 0.5)
        total, weight, cost = total + λ * x, weight + λ, cost + (-np.log(1 - λ) - λ) * (x - μ) ** 2
        seen, spread = seen + min(x, 1.0), spread + (x - μ) ** 2
        ends.append(max(ends[-1], (total - np.log(1 / α) - cost) / weight))
    return ends[1:]


def bounded_log(n: int, seed: int) -> Log:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (n, 2))
    p = np.where(x[:, 0] > 0, 0.8, 0.2)
    a = (rng.random(n) < p).astype(int)
    r = (rng.random(n) < np.where(a == 1, 0.6, 0.3)).astype(float)
    return {"x": x, "action": a, "reward": 2 * r - 1, "propensity": np.where(a == 1, p, 1 - p), "when": rng.permutation(n)}


def test_the_band_of_bounded_rewards_is_the_formula_in_the_order_of_time() -> None:
    log = bounded_log(300, 1)
    found = value(log, "uniform", reward_bounds=(-1, 1), time="when", workers=1)
    order = np.argsort(log["when"])
    ρ, share = (0.5 / log["propensity"])[order], (log["reward"][order] + 1) / 2
    low, high = -1 + 2 * np.array(slow_lower_ends(ρ * share, 0.025)), 1 - 2 * np.array(slow_lower_ends(ρ * (1 - share), 0.025))
    looks = found.band.rounds.astype(int) - 1
    np.testing.assert_allclose(found.band.low, low[looks], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.band.high, high[looks], rtol=1e-9, atol=1e-12)
    assert (found.band.rounds[0], found.band.rounds[-1], len(looks)) == (6, 300, 50)
    assert found.to_plain()["anytime_bounded"]["low"][-1] == found.band.last[0]
    low_dr, high_dr = found.best.interval(anytime=True)
    assert low_dr < found.best.interval()[0]
    assert found.best.interval()[1] < high_dr


def test_the_band_of_bounded_rewards_holds_at_all_looks() -> None:
    """200 logs, all 400 rounds of each: at most 5 % leave, and the band is far narrower than nothing."""
    left, width = [], []
    for seed in range(200):
        log = bounded_log(400, seed)
        ρ, share = 0.5 / log["propensity"], (log["reward"] + 1) / 2
        low, high = lower_ends(ρ * share, 0.025), 1 - lower_ends(ρ * (1 - share), 0.025)
        left.append(((low > 0.45) | (high < 0.45)).any())
        width.append(high[-1] - low[-1])
    assert np.mean(left) <= 0.05
    assert np.mean(width) < 0.6


def test_bounds_that_do_not_hold_are_refused() -> None:
    log = bounded_log(50, 2)
    for options, words in {
        (("reward_bounds", (0, 1)),): "all rewards must be within reward_bounds, 0 to 1; got -1",
        (("reward_bounds", (1, 0)),): "reward_bounds must be the smallest and the largest possible reward; got 1 and 0",
        (("reward_bounds", (-1, 1)), ("unit", "when")): "reward_bounds must go without `unit`",
    }.items():
        with pytest.raises(mb.InvalidInput, match=words):
            value(log, "uniform", **dict(options))
