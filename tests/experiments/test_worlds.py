"""The worlds in which the default policy is compared with simple ones: which there are, and when a cell counts as lost."""

import numpy as np
import pandas as pd
import pytest

import mebandit as mb
from mebandit.environments import Gaussian
from mebandit.experiments.paper import worlds
from mebandit.experiments.paper.options import PaperOptions
from mebandit.experiments.paper.table1 import LEAST_SQUARES, OURS
from mebandit.experiments.runner import CellData
from mebandit.values import Stretch


def test_the_worlds_span_what_users_have() -> None:
    found = worlds.worlds()
    assert len(found) >= 60
    assert {world.dim for world in found.values()} >= {1, 2, 3, 5, 10, 20}
    assert {world.n_actions for world in found.values()} >= {2, 3, 4, 5, 10}
    reliabilities = []
    for world in found.values():
        mb.check_environment(world)
        if isinstance(world, Gaussian):
            x, e = np.array(world.cov), np.array(world.error_cov).reshape(-1, world.dim, world.dim)[0]
            reliabilities += [x[i, i] / (x[i, i] + e[i, i]) for i in range(world.dim) if x[i, i] > 0]
    assert min(reliabilities) <= 0.1
    assert max(reliabilities) == 1.0


def test_every_cell_has_random_numbers_and_results_of_its_own() -> None:
    cells = worlds.cells(PaperOptions(replicates=2))
    assert len({cell.fingerprint for cell in cells}) == len(cells)
    told = {cell.name: cell for cell in cells if cell.name.startswith("told")}
    assert len({cell.world_key for cell in told.values()}) == 1, "what is told does not change the world"


@pytest.mark.parametrize(("time", "excess", "lost"), [(200, 0.045, False), (200, 0.055, True), (1000, 0.025, False), (1000, 0.035, True)])
def test_a_cell_is_lost_by_a_share_and_by_standard_errors(time: int, excess: float, lost: bool) -> None:
    rng = np.random.default_rng(1)
    luck = rng.normal(1.0, 0.2, 100)

    def replicates(noise: float) -> pd.DataFrame:
        means = {"MEB": 1.3, LEAST_SQUARES: 1.0, worlds.UCB: 1.2, worlds.TS: 1.1, OURS: 1.0 + excess}
        away = {name: rng.normal(0, noise, 100) for name in means}
        rows = [(name, i, means[name] * luck[i] + away[name][i] - away[name].mean()) for name in means for i in range(100)]
        table = pd.DataFrame(rows, columns=["policy", "replicate", "clipped_regret"])
        return table.assign(world="a", time=time, cell="a")

    sure, unsure = (worlds.table(CellData(pd.DataFrame(), replicates(noise))).set_index("policy") for noise in (0.01, 2.0))
    assert sure.loc[OURS, "best_simple"] == LEAST_SQUARES
    assert sure.loc[OURS, "share"] == pytest.approx(1 + excess, abs=1e-9)
    assert sure.loc[OURS, "lost"] == lost
    assert not unsure.loc[OURS, "lost"], "the difference is within the standard errors"
    assert sure.loc["MEB", "lost"]


def test_the_best_simple_policy_is_never_lost_to_itself() -> None:
    world = worlds.worlds()["constant + 1, reliability 0.5"]
    played = mb.simulate(world, list(worlds.policies(world)), horizon=200, replicates=6, milestones=(100,), references=False, workers=1)
    data = CellData(pd.DataFrame(), played.replicates([100, 200]).assign(world="a"))
    table = worlds.table(data)
    best = table[table["policy"] == table["best_simple"]]
    assert best["share"].tolist() == [1.0, 1.0]
    assert not best["lost"].any()
    section = worlds.sections(table, data)[0]
    assert [row[0] for row in section.table.rows] == ["a"]
    assert section.pictures["worlds"].png.startswith(b"\x89PNG")


def test_a_hidden_temperature_is_centred_by_its_offset() -> None:
    """In the world "body temperature" no action is best at the mean context."""
    tape = worlds.worlds()["body temperature"].tape(Stretch(1, 0, 0, 0, 4000))
    assert np.abs(tape.mean_reward.mean(axis=0)).max() < 0.1
