"""Policies as plain data: what is written is read back, and what version 0.1.0 wrote is read as the policy that it was."""

import json
from typing import Any

import pytest

import mebandit as mb
from mebandit.policies import LinearPolicy, Robust, bayes_oracle, settings
from tests.policies.test_policies import RECIPES

FLOOR = {"type": "Power", "exponent": -0.5, "cap": 0.3}
BLP = {"context": "blp", "curved": True, "weights": "precision"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_policy_survives_being_written(name: str) -> None:
    policy = RECIPES[name](3, 2, floor=mb.schedules.Smallest((mb.schedules.Power(-0.3, 0.2), 0.1)))
    plain = json.loads(json.dumps(settings.to_plain(policy)))
    assert plain["version"] == 2
    assert settings.policy_from(plain, None, "file") == policy
    assert settings.policy_from(plain, policy, "file") is policy


@pytest.mark.parametrize(
    ("flat", "policy"),
    [
        ({"name": "MEB", "method": "meb", "rule": "greedy", "floor": 0.1}, mb.meb(2, 3, floor=0.1)),
        (
            {"name": "MEB", "method": "meb", "rule": "greedy", "floor": FLOOR, "ridge": 0.5, "stabilizer": [0.3, 0.7], "guard": "never"},
            mb.meb(2, 3, floor=mb.schedules.Power(-0.5, 0.3), ridge=0.5, stabilizer=(0.3, 0.7), guard="never"),
        ),
        (
            {"name": "MEB", "method": "meb", "rule": "greedy", "floor": 0.2, **BLP},
            mb.meb(2, 3, context="blp", curved=True, weights="precision"),
        ),
        ({"name": "n", "method": "naive", "rule": "greedy", "floor": 0.2, "correct_from": 9}, mb.meb_naive(2, 3, correct_from=9, name="n")),
        (
            {"name": "UCB", "method": "ridge", "rule": "ucb", "floor": 0.2, "width": 2.0, "intercept": True},
            mb.lin_ucb(2, 3, width=2.0, intercept=True),
        ),
        (
            {"name": "TS", "method": "ridge", "rule": "thompson", "floor": 0.2, "refit": {"type": "PowersOf"}},
            mb.thompson(2, 3, refit=mb.schedules.PowersOf()),
        ),
        (
            {"name": "R", "method": "ridge", "rule": "robust", "floor": 0.2, "epoch": 6, "gamma": 1.0, "n_budgets": 7},
            LinearPolicy(n_actions=2, dim=3, rule=Robust(epoch=6, n_budgets=7, gamma=1.0), name="R"),
        ),
        (
            {"name": "oracle on x̃", "method": "ridge", "rule": "oracle", "floor": 0.2, "known_theta": [[1.0, 0, 0], [0, 1.0, 0]]},
            mb.oracle(2, 3, theta=[[1, 0, 0], [0, 1, 0]]),
        ),
        ({"name": "oracle on E[x|x̃]", "method": "ridge", "rule": "bayes_oracle", "floor": 0.2}, bayes_oracle(2, 3)),
    ],
)
def test_flat_descriptions_of_version_0_1_0_are_read(flat: dict[str, Any], policy: LinearPolicy) -> None:
    description = {"type": "LinearPolicy", "n_actions": 2, "dim": 3, **flat}
    assert settings.policy_from(description, None, "file") == policy
    assert settings.policy_from(description, policy, "file") is policy
    with pytest.raises(mb.LogError, match="must be read with the policy it was written with"):
        settings.policy_from(description, mb.greedy(2, 3), "file")


@pytest.mark.parametrize("method", ["auto", "rc", "dr"])
def test_meb_dr_of_version_0_1_0_is_refused(method: str) -> None:
    """It decided otherwise: what it learned is no state of today's."""
    description = {"type": "LinearPolicy", "n_actions": 2, "dim": 3, "name": "MEB-DR", "method": method, "rule": "greedy", "floor": 0.2}
    with pytest.raises(mb.LogError, match=r"got meb_dr of mebandit 0.1.0, which decided otherwise. Go on with mebandit 0.1.0, or"):
        settings.policy_from(description, None, "file")


def test_a_schedule_of_ones_own_in_an_old_file_is_held_against_the_policy_given() -> None:
    def floor(t: int) -> float:
        return 0.1

    policy = mb.meb(2, 3, floor=floor)
    flat = {
        "type": "LinearPolicy",
        "name": "MEB",
        "n_actions": 2,
        "dim": 3,
        "method": "meb",
        "rule": "greedy",
        "floor": settings.to_plain(floor),
    }
    assert settings.policy_from(flat, policy, "file") is policy
    with pytest.raises(mb.LogError, match="file must be read with its policy; got none"):
        settings.policy_from(flat, None, "file")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 3}, "file must describe its policy in version 1 or 2; got version 3. Read it with the version of mebandit"),
        ({"rule": {"type": "Lucky"}}, "type must be one of LinearPolicy, .*; got 'Lucky'"),
        ({"rule": {"type": "MEB"}}, "rule must be a rule, such as"),
        ({"rule": {"type": "UCB", "epoch": 3}}, r"UCB must be given its own fields; got \['epoch', 'width'\]"),
        ({"version": 1, "rule": "greedy"}, "method must be one of ridge, naive, meb, dr; got None"),
        ({"version": 1, "rule": "lucky", "method": "meb"}, "rule must be one of greedy, .*; got 'lucky'"),
        ({"version": 1, "rule": "greedy", "method": "meb", "speed": 3}, "LinearPolicy must be given its own fields"),
    ],
)
def test_other_descriptions_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises((mb.LogError, mb.InvalidInput), match=sentence):
        settings.policy_from(settings.to_plain(mb.meb(2, 3)) | change, None, "file")
