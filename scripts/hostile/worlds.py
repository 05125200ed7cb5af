"""Hostile calls of environments, the simulator, error models and the planning of trials."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hostile.arguments import NO_NUMBERS, NUMBERS, THINGS, Rng, covariance, extreme, mangled, perhaps, pick, with_spoilt
from hostile.learners import policy
from hostile.promises import finite, keep, refusals


def own_environment(rng: Rng, k: int, d: int) -> Any:
    """A class of one's own whose tapes are wrong somewhere."""
    from mebandit.environments import Gaussian
    from mebandit.values import Tape

    world = Gaussian(theta=rng.normal(size=(k, d)), error_cov=np.stack([np.eye(d), 2 * np.eye(d)]))
    field, salt, share = pick(rng, Tape._fields), int(rng.integers(2**32)), pick(rng, [0.0, 1.0])

    class Own:
        n_actions, dim = k, d

        def tape(self, stretch: Any) -> Any:
            tape = world.tape(stretch)
            own = np.random.default_rng(salt)
            if share and field == "component" and own.random() < 0.5:
                return tape._replace(component=tape.component + int(own.integers(-3, 10**9)))
            if share and field == "carry_index":
                return tape._replace(carry_index=int(own.integers(-3, 50)))
            return tape._replace(**{field: perhaps(own, getattr(tape, field), share)})

    return Own()


def environment(rng: Rng) -> Any:
    """An environment of the library, with hostile settings."""
    from mebandit import environments as worlds

    k, d = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    settings = {
        "theta": extreme(rng, k, d),
        "mean": extreme(rng, d),
        "cov": covariance(rng, d),
        "error_cov": covariance(rng, d),
        "noise_sd": abs(float(extreme(rng))),
        "error": pick(rng, ["normal", "student_t", "uniform", "bounded", "x"]),
        "error_df": pick(rng, [2.1, 5.0, 1e50, *NUMBERS]),
        "context": pick(rng, ["normal", "exponential", "lognormal"]),
        "hold": pick(rng, [1, 3, 0, 10**30]),
    }
    chosen = {name: settings[name] for name in settings if rng.random() < 0.5} | {"theta": settings["theta"]}
    inner = worlds.Gaussian(**with_spoilt(rng, chosen, 0.2)) if rng.random() < 0.7 else own_environment(rng, k, d)
    kind = int(rng.integers(12))
    if kind == 0:
        given = {"period": pick(rng, [2.0, 2500.0, 1e50, 0.0]), "shape": pick(rng, ["sine", "step", "x"])}
        return worlds.Drifting(world=inner, mean=perhaps(rng, extreme(rng, inner.dim)), **given)
    if kind == 1:
        return worlds.Misreported(world=inner, factor=pick(rng, [0.0, 1e-320, 1e50, 2.0, -1.0]))
    if kind == 2:
        return worlds.Estimated(world=inner, start=pick(rng, [1, 20, 0, 10**12]), every=pick(rng, [None, 1, 10, 0]))
    if kind == 3:
        return worlds.HeartSteps(noise_sd=pick(rng, NUMBERS), burden_error_var=pick(rng, NUMBERS), user=pick(rng, [None, 0, 36, 37, -1]))
    if kind == 4:
        return pick(rng, [worlds.Example21, worlds.ExampleB1])(noise_sd=pick(rng, NUMBERS))
    if kind == 5:
        small = {"contexts": pick(rng, [3, 64, 10**9, *THINGS]), "rho": pick(rng, NUMBERS)}
        return pick(rng, [worlds.ExampleB2, lambda: worlds.SmallError(**small)])()
    if kind == 6:
        given = {
            "offset": perhaps(rng, extreme(rng, inner.n_actions)),
            "quadratic": pick(rng, NUMBERS),
            "binary": pick(rng, [True, False, 3]),
        }
        return worlds.Nonlinear(world=inner, **given)
    if kind == 7:
        return worlds.Berkson(world=inner)
    if kind == 8:
        return worlds.Autocorrelated(world=inner, error=pick(rng, [0.5, *NUMBERS]), context=pick(rng, [-0.9, *NUMBERS]))
    if kind == 9:
        confusion = pick(rng, [np.eye(d) * 0.6 + 0.4 / d, np.full((d, d), 1 / d), extreme(rng, d, d)])
        return worlds.Misclassified(confusion=perhaps(rng, confusion), theta=settings["theta"], reference=pick(rng, [True, False]))
    return inner


def simulating(rng: Rng, folder: Path) -> None:
    """`simulate`, `simulate_log`, `check_environment`, `check_policy`, and tapes of stretches that there are not."""
    import mebandit as mb
    from mebandit import environments as worlds
    from mebandit.environments.heartsteps import COLUMNS
    from mebandit.values import Stretch

    values = [*NUMBERS, *NO_NUMBERS, "x", "", "NA"]
    lines = [",".join(str(pick(rng, values if rng.random() < 0.1 else [0.3, 1, 2])) for _ in COLUMNS) for _ in range(60)]
    (folder / "study.csv").write_text("\n".join([",".join(COLUMNS), *lines]))
    with refusals():
        world = environment(rng)
        k, d = world.n_actions, world.dim
        makers = [mb.meb, mb.meb_dr, mb.thompson, mb.lin_ucb, mb.greedy]
        played = [pick(rng, makers)(k, d, floor=pick(rng, [0.01, 0.2])), *([pick(rng, THINGS)] if rng.random() < 0.05 else [])]
        given = {"horizon": pick(rng, [1, 7, 60]), "replicates": pick(rng, [1, 2]), "seed": 1, "cell": 0, "points": 5}
        with refusals():
            found = mb.simulate(world, played, **with_spoilt(rng, given, 0.3), workers=1, progress=False)
            keep(finite(found.clipped_regret, found.standard_regret), "regret is finite")
            with refusals():
                found.mean(pick(rng, [found.policies[0], *THINGS]), pick(rng, ["clipped_regret", "estimation_error_0", *THINGS]))
            with refusals():
                found.replicates(at=pick(rng, [(), (1,), (10**9,), *THINGS]))
        with refusals():
            log = mb.simulate_log(world, played[0], horizon=int(rng.integers(0, 40)), seed=int(rng.integers(-1, 3)))
            keep(finite(log.rewards, log.propensities), "a log is finite")
        with refusals():
            mb.check_environment(world, rounds=pick(rng, [3, 20, 0, -1, None]))
        with refusals():
            worlds.HeartSteps.from_csv(pick(rng, [folder / "study.csv", folder, *THINGS]))
        with refusals():
            world.tape(Stretch(*(pick(rng, [0, 1, 5, 9, -1, None, 2**70]) for _ in range(5))))
    with refusals():
        mb.check_policy(policy(rng) if rng.random() < 0.9 else pick(rng, THINGS), rounds=pick(rng, [3, 0, None, "x"]))


def drawing(rng: Rng, folder: Path) -> None:
    """`draw_tape` of worlds and stretches that there are not."""
    from mebandit import environments as worlds
    from mebandit.values import Stretch, World

    k, d = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    stretch = Stretch(*(pick(rng, [0, 1, 5, 9, -1, None, 2**70]) if rng.random() < 0.1 else n for n in (1, 0, 0, 0, 9)))
    errors = pick(rng, [np.eye(d), np.stack([np.eye(d), 2 * np.eye(d)])])
    world = worlds.Gaussian(theta=rng.normal(size=(k, d)), error_cov=errors).world_of(Stretch(1, 0, 0, 0, 1))
    for _ in range(4):
        with refusals():
            field = pick(rng, World._fields)
            value = perhaps(rng, getattr(world, field), 1.0) if rng.random() < 0.7 else pick(rng, [-1, 0, 1, 3, 9, 10**9, True])
            tape = worlds.draw_tape(world._replace(**{field: value}), stretch)
            keep(finite(tape.context, tape.error, tape.noise, tape.uniform), "a tape is finite")


def measuring(rng: Rng, folder: Path) -> None:
    """Everything in `mebandit.measurement`."""
    from mebandit import measurement as me

    d, n = int(rng.integers(1, 4)), int(rng.choice([0, 2, 5, 40]))
    x = extreme(rng, n, d)
    truth = np.clip(x + extreme(rng, n, d) * pick(rng, [1.0, 1e-20]), -1e50, 1e50)
    table = np.abs(rng.random((d + 1, d + 1))) + np.eye(d + 1)
    calls: list[Callable[[], Any]] = [
        lambda: me.from_known(perhaps(rng, covariance(rng, d), 0.3), d),
        lambda: me.from_replicates(perhaps(rng, extreme(rng, n, 3, d), 0.3), averaged=pick(rng, [1, 3, 0])),
        lambda: me.from_validation(perhaps(rng, x), perhaps(rng, truth), assume=pick(rng, [None, "classical", "berkson", "linear"])),
        lambda: me.from_variances(perhaps(rng, np.abs(x)), predicted=perhaps(rng, x), truth=perhaps(rng, x + 0.1)),
        lambda: me.from_confusion(perhaps(rng, pick(rng, [table, extreme(rng, d + 1, d + 1)]), 0.3), reference=pick(rng, [None, 0, d + 5])),
        lambda: me.join(me.from_known(covariance(rng, 1), 1), me.from_known(covariance(rng, d), d)),
    ]
    with refusals():
        found = pick(rng, calls)()
        keep(finite(found.error_cov), "an error covariance is finite")
        for call in (
            lambda: found.unbias(perhaps(rng, extreme(rng, 3, found.dim), 0.3)),
            lambda: found.error_cov_in(perhaps(rng, extreme(rng, found.dim), 0.3)),
            lambda: found.covariances(perhaps(rng, np.abs(extreme(rng, 3, found.dim)), 0.3)),
            lambda: found.at(perhaps(rng, found.parameters, 0.5)),
            lambda: me.overcorrection(found, perhaps(rng, covariance(rng, found.dim), 0.3)),
            lambda: found.describe(pick(rng, [None, ["a"] * found.dim, *THINGS])),
            lambda: found.named(*pick(rng, [["a", "b", "c"][: found.dim], ["a", "a"], [None]])),
            lambda: me.warn_if_berkson(found, "log"),
            lambda: me.chi_square_tail(pick(rng, [*NUMBERS, *NO_NUMBERS]), pick(rng, [1, 5, 10**6])),
            lambda: found.error_cov_std_error,
        ):
            with refusals():
                call()
        path = folder / "model.json"
        found.save(path)
        with refusals():
            path.write_text(json.dumps(mangled(rng, json.loads(path.read_text()))))
            me.ErrorModel.load(path)


def planning(rng: Rng, folder: Path) -> None:
    """`plan`, the schedules and the bounds of `analysis.theory`."""
    import mebandit as mb
    from mebandit.analysis import theory

    d = int(rng.integers(1, 3))
    given = {
        "effect": pick(rng, [0.3, *NUMBERS]),
        "dim": d,
        "half_width": pick(rng, [None, 0.1, 1e-50]),
        "mean": extreme(rng, d),
        "cov": covariance(rng, d),
        "error_cov": covariance(rng, d),
        "noise_sd": pick(rng, [1.0, *NUMBERS]),
        "method": pick(rng, ["dr", "meb", "ridge", "naive", "rc"]),
        "policy": "constant",
        "replicates": 2,
        "rounds_per_user": pick(rng, [1.0, 30.0, 1e50]),
        "correlation": pick(rng, [0.0, 0.1, 1.0]),
    }
    if rng.random() < 0.1:
        with refusals():
            mb.plan(**with_spoilt(rng, given), workers=1, progress=False)
    with refusals():
        mb.standard(pick(rng, [1, 50, *THINGS]), pick(rng, [2, *THINGS]), n_actions=pick(rng, [2, 3, *THINGS]))
        mb.clipped(pick(rng, [0.2, *NUMBERS, *THINGS]), 100, 2)
    with refusals():
        schedule = pick(rng, [mb.schedules.Power(pick(rng, NUMBERS), 0.5), mb.schedules.Steps((2,), (pick(rng, NUMBERS), 0.2))])
        mb.schedules.floors(schedule, np.arange(1, 5), 2)
    with refusals():
        found = theory.constants_of(environment(rng).tape(mb.values.Stretch(1, 0, 0, 0, 10)))
        theory.estimation_bound(pick(rng, [1, 100, *THINGS]), pick(rng, [0.1, *NUMBERS]), found)
        theory.regret_from_errors(perhaps(rng, np.abs(extreme(rng, 4)), 0.5), found, setting="standard", floor=0.1, warmup=1)
