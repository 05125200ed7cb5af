"""`mebandit compile`."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import click

from mebandit.checks import SingularMoments
from mebandit.cli.terminal import commands

RECIPES = ("meb", "meb_naive", "meb_dr", "greedy", "lin_ucb", "thompson", "robust_ucb")


@commands.command("compile")
@click.option(
    "--recipe",
    "recipes",
    multiple=True,
    type=click.Choice(RECIPES),
    help="Repeat for several; the default is every recipe.  [default: all]",
)
@click.option("--n-actions", type=click.IntRange(min=2), default=2, show_default=True, help="How many actions the trial has.")
@click.option(
    "--dim", "dims", multiple=True, type=click.IntRange(min=1), default=(5,), show_default=True, help="Features; repeat for several."
)
@click.option("--simulate/--no-simulate", default=True, show_default=True, help="Whether to compile simulations too.")
@click.option("--fit/--no-fit", default=True, show_default=True, help="Whether to compile the analysis of logs too.")
def compile_(recipes: tuple[str, ...], n_actions: int, dims: tuple[int, ...], simulate: bool, fit: bool) -> None:
    """Compile ahead, so that no later process on this machine or in this container image has to.

    \b
      mebandit compile
      mebandit compile --recipe meb --dim 12 --no-simulate --no-fit

    Compiled code is kept in a folder of its own; set NUMBA_CACHE_DIR to choose it. It serves the processor it was compiled on.
    """
    from mebandit.kernels.compile import cached
    from mebandit.runtime.progress import progress_bar

    work = steps(recipes or RECIPES, n_actions, dims, simulate, fit)
    with progress_bar(len(work), "compiling") as done:
        for step in work:
            step()
            done()
    files = cached()
    if not files:
        raise click.ClickException("compiled code cannot be kept on this machine. Set NUMBA_CACHE_DIR to a folder that can be written to.")
    folders = sorted({str(file.parent) for file in files})
    size = sum(file.stat().st_size for file in files) / 1e6
    click.echo(f"Compiled: {len(files)} functions, {size:.1f} MB, in:")
    for folder in folders:
        click.echo(f"  {folder}")


def steps(recipes: tuple[str, ...], n_actions: int, dims: tuple[int, ...], simulate: bool, fit: bool) -> list[Callable[[], object]]:
    """What is to be run once, so that it is compiled."""
    from mebandit.analysis.fit import compile_ahead

    settings = [(name, n_actions, dim) for dim in dims for name in recipes]
    work: list[Callable[[], object]] = [partial(live_round, *setting) for setting in settings]
    if simulate:
        work += [partial(simulation, *setting) for setting in settings]
    return [*work, partial(compile_ahead, False)] if fit else work


def recipe(name: str, n_actions: int, dim: int) -> Any:
    from mebandit import policies

    options = {"horizon": 100} if name == "robust_ucb" else {}
    return getattr(policies, name)(n_actions, dim, **options)


def live_round(name: str, n_actions: int, dim: int) -> None:
    """A decision and its reward, and what can be asked of the learner then."""
    from mebandit.live.learner import Learner

    learner = Learner(recipe(name, n_actions, dim), seed=1)
    learner.learn(learner.decide([0.5] * dim, 0.1), 1.0)
    for read in (lambda: learner.theta, lambda: learner.diagnostics, learner.estimate):
        with suppress(SingularMoments):
            read()


def simulation(name: str, n_actions: int, dim: int) -> None:
    """A few rounds in a world of normal contexts, with the reference policies."""
    from mebandit.environments import Gaussian
    from mebandit.simulation.simulate import simulate

    world = Gaussian(theta=[[float(a == i) for i in range(dim)] for a in range(n_actions)])
    simulate(world, [recipe(name, n_actions, dim)], horizon=2, replicates=1, workers=1, progress=False)
