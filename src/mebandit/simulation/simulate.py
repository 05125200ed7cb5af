"""The simulator: policies meet the same random numbers, replicate by replicate.

Each replicate's randomness is a pure function of (seed, cell, replicate, round), written block by block onto a tape that every
policy plays; so memory does not grow with the horizon, and neither the number of workers nor the company of other policies changes
what a policy does. (Its clipped regret is measured against a floor, by default the smallest in the company.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from mebandit import checks, kernels, schedules
from mebandit.environments.base import Environment, tape_of
from mebandit.environments.gaussian import Gaussian
from mebandit.estimation.history import History
from mebandit.kernels import layout
from mebandit.policies import LinearPolicy, Policy, bayes_oracle, meb, oracle, uniform
from mebandit.policies.base import advance, label
from mebandit.runtime.progress import Show, compiling_notice, progress_bar
from mebandit.runtime.workers import Workers, hired
from mebandit.schedules import Schedule
from mebandit.simulation import gpu
from mebandit.simulation.results import Results
from mebandit.values import Floats, Integers, Observation, Round, Stretch, Tape

BLOCK = 2048
"""rounds per piece of tape"""

UNROLLED = 5, 7
"""the paper's numbers of features: the compiler knows them, and unrolls the loops over features"""
LONGEST, MOST = 2**32 - 2, 2**32 - 1
"""rounds and replicates of a simulation, at most: they are counted in 32 bits"""


class Trajectory:
    """One policy's way through one replicate: its state, its totals and what was recorded of them."""

    def __init__(self, policy: Policy, record_at: Integers) -> None:
        self.policy = policy
        self.state = policy.init()
        self.records = kernels.Records(
            totals=np.zeros(kernels.GUARDED_FITS + 1),
            times=record_at,
            made=np.zeros(1, dtype=np.int64),
            recorded=np.zeros(3 * record_at.size),
            arm_errors=np.full((record_at.size, policy.n_actions), np.nan),
            log=Written.of(blank(0, policy.n_actions, policy.dim)),
        )

    def play(self, tape: Tape, start: int, benchmark: Floats, written: History | None = None) -> None:
        """Go on through one block of tape, whose first round is start + 1; what is seen and done goes into `written`."""
        if type(self.policy) is LinearPolicy:
            self._play_compiled(self.policy, tape, start, benchmark, written)
        else:
            self._play_stepwise(tape, start, benchmark, written)

    def _play_compiled(self, policy: LinearPolicy, tape: Tape, start: int, benchmark: Floats, written: History | None) -> None:
        k, p = policy.n_actions, policy.n_features
        times = np.arange(start + 1, start + len(tape.noise) + 1)
        known = policy.theta_known[None] if policy.knows_theta else tape.theta
        errors = kernels.pack_errors(tape.error_cov, policy.n_features - policy.dim)
        room = np.ones(policy.dim + p + layout.seen_size(p)), np.empty(k), np.empty(layout.work_size(k, p)), np.empty(layout.aside_size(p))
        _program(policy)(
            (0,) * p if p in UNROLLED else (),
            kernels.Given(policy.spec, policy.tuning, policy.plan(times), known, tape, errors, benchmark),
            kernels.Memory(*(part.reshape(part.size) for part in self.state)),
            self.records if written is None else self.records._replace(log=Written.of(written)),
            start,
            room,
        )

    def _play_stepwise(self, tape: Tape, start: int, benchmark: Floats, written: History | None) -> None:
        """The same loop in Python, for a policy of any class: observe, decide, reward, learn, record."""
        x, predicted = np.empty(tape.context.shape[1]), np.empty(tape.context.shape[1])
        totals, times, made = self.records.totals, self.records.times, self.records.made
        for b in range(len(tape.noise)):
            time = start + b + 1
            theta = tape.theta[b % len(tape.theta)]
            allowed = tape.allowed[b % len(tape.allowed)]
            kernels.observe(tape, b, totals[kernels.CARRIED], x, predicted)
            error_cov = tape.error_cov[tape.component[b] % len(tape.error_cov)]
            observation = Observation(predicted.copy(), error_cov, allowed, time, float(tape.auxiliary[b]))
            pi = checks.probabilities(f"{label(self.policy)}.propensities", self.policy.propensities(self.state, observation), allowed)
            action = kernels.draw(pi, tape.uniform[b])
            totals[: kernels.CARRIED] += kernels.regrets_of(tape, b, theta, x, pi, benchmark[b])
            if tape.carry_index >= 0:
                totals[kernels.CARRIED] = tape.carry_decay * totals[kernels.CARRIED] + tape.carry_gain[action]
            reward = kernels.reward_of(tape, b, x, action)
            if written is not None:
                written.predicted[b], written.actions[b], written.propensities[b], written.rewards[b] = predicted, action, pi, reward
            self.state = advance(self.policy, self.state, Round(observation, action, pi, reward))
            if made[0] < times.size and times[made[0]] == time:
                self._record(theta)

    def _record(self, theta: Floats) -> None:
        totals, made = self.records.totals, self.records.made
        self.records.recorded.reshape(-1, 3)[made[0]] = totals[kernels.STANDARD], totals[kernels.CLIPPED], np.nan
        if hasattr(self.policy, "theta"):
            self.records.arm_errors[made[0]] = np.linalg.norm(self.policy.theta(self.state) - theta, axis=1)
        made += 1


def _program(policy: LinearPolicy) -> Any:
    """The compiled loop of a policy."""
    return kernels.play_program(policy.kind, policy.spec[layout.RULE] == layout.THOMPSON)


def blank(rounds: int, n_actions: int, dim: int) -> History:
    """Room for some rounds."""
    return History(
        decision=np.arange(1, rounds + 1),
        predicted=np.empty((rounds, dim)),
        error_cov=np.empty((rounds, dim, dim)),
        allowed=np.empty((rounds, n_actions), dtype=np.bool_),
        actions=np.empty(rounds, dtype=np.int64),
        propensities=np.empty((rounds, n_actions)),
        rewards=np.empty(rounds),
    )


class Written(NamedTuple):
    """The arrays of a `History` that compiled code fills."""

    predicted: Floats
    actions: Integers
    propensities: Floats
    rewards: Floats

    @classmethod
    def of(cls, rounds: History) -> Self:
        """Those of some rounds."""
        return cls(rounds.predicted, rounds.actions, rounds.propensities, rounds.rewards)


class Played(NamedTuple):
    """What one replicate gave, by policy."""

    records: Floats
    """standard regret, clipped regret and guarded fits at the recorded rounds, (policies, times, 3)"""
    arm_errors: Floats
    """(policies, times, K)"""


@dataclass(frozen=True)
class Contest:
    """Policies that meet the same random numbers in one world: everything that a replicate needs, wherever it is played."""

    environment: Environment
    policies: dict[str, Policy]
    """those asked for, then the references"""
    learners: int
    """how many were asked for"""
    horizon: int
    replicates: int
    seed: int
    cell: int
    floor: float | Schedule
    """that of the clipped benchmark"""
    record_at: Integers

    @property
    def is_compiled(self) -> bool:
        """Whether compiling is under way no longer."""
        return all(_program(policy).signatures for policy in self.policies.values() if type(policy) is LinearPolicy)

    def play(self, replicate: int) -> Played:
        """One replicate of every policy: a pure function of the seed, the cell and the replicate's number."""
        trajectories = [Trajectory(policy, self.record_at) for policy in self.policies.values()]
        for start in range(0, self.horizon, BLOCK):
            stretch = Stretch(self.seed, self.cell, replicate, start, min(start + BLOCK, self.horizon))
            tape = tape_of(self.environment, stretch)
            benchmark = schedules.floors(self.floor, np.arange(start + 1, stretch.stop + 1), self.environment.n_actions)
            for trajectory in trajectories:
                trajectory.play(tape, start, benchmark)
        kept = [t.records for t in trajectories]
        return Played(np.stack([each.recorded.reshape(-1, 3) for each in kept]), np.stack([each.arm_errors for each in kept]))

    def results(self, played: Iterable[tuple[Floats, Floats]]) -> Results:
        """The results, from what the replicates gave, in their order."""
        shape = (len(self.policies), self.replicates, self.record_at.size)
        records, arm_errors = np.empty((*shape, 3)), np.empty((*shape, self.environment.n_actions))
        for replicate, found in enumerate(played):
            records[:, replicate], arm_errors[:, replicate] = found
        settings = {"environment": repr(self.environment), "horizon": self.horizon, "replicates": self.replicates, "seed": self.seed}
        return Results(
            policies=tuple(self.policies),
            references=tuple(self.policies)[self.learners :],
            times=self.record_at,
            standard_regret=records[..., 0],
            clipped_regret=records[..., 1],
            guarded_fits=records[..., 2],
            estimation_error=arm_errors,
            settings=settings | {"cell": self.cell, "floor": repr(self.floor)},
        )


def simulate(
    environment: Environment,
    policies: Sequence[Policy] | Mapping[str, Policy],
    *,
    horizon: int,
    replicates: int = 20,
    seed: int = 1,
    cell: int = 0,
    floor: float | Schedule | None = None,
    references: bool = True,
    points: int = 200,
    milestones: Sequence[int] = (),
    workers: Workers = None,
    engine: str = "cpu",
    progress: Show = None,
) -> Results:
    """Play every policy through the same replicates and report regret, at the true context, and estimation error.

    Args:
        environment: The simulated world, with K actions and d features.
        policies: Policies for this K and d, in a list or in a dict by name. Each needs a name of its own.
        horizon: The number of rounds of a replicate.
        replicates: Independent runs, each with random numbers of its own that all policies meet (default 20).
        seed: The seed of all random numbers, a whole number from 0 (default 1). The same seed gives the same results.
        cell: The number of a cell in a grid of settings (default 0). Cells have independent random numbers.
        floor: The floor p0 of the clipped benchmark: a number, or a schedule t -> number. None (default): the policies' smallest floor.
        references: Whether to add uniform play, the oracle that knows θ and acts on x̃ (the price of not seeing x) and, where the
            environment can compute E[x | x̃], the oracle that acts on that (default True).
        points: About how many log-spaced rounds are recorded (default 200).
        milestones: Further rounds to record (default none).
        workers: A number of threads; or a Dask scheduler's address or Client. None (default): all cores. It does not change the results.
        engine: "cpu" (default), "cuda" (an NVIDIA GPU), or "auto" ("cuda" where policies, environment and machine allow it).
        progress: Whether to show progress on standard error, or a function of (done, total); None (default): on a terminal.

    Returns:
        Regret and estimation error by policy, replicate and recorded round, with tables and plots.

    >>> import mebandit as mb
    >>> results = mb.simulate(mb.environments.Gaussian(error_cov=1.0), [mb.meb(2, 5), mb.lin_ucb(2, 5)], horizon=2000, replicates=4)
    >>> results.policies
    ('MEB', 'UCB', 'uniform', 'oracle on x̃', 'oracle on E[x|x̃]')
    """
    planned = contest(
        environment,
        policies,
        horizon=horizon,
        replicates=replicates,
        seed=seed,
        cell=cell,
        floor=floor,
        references=references,
        points=points,
        milestones=milestones,
    )
    bar = progress_bar(planned.replicates, "simulating", progress)
    if gpu.chosen(engine, [planned]):
        with bar as done:
            return planned.results(gpu.played([planned], done, progress))
    with hired(workers) as pool, compiling_notice(lambda: not pool.here or planned.is_compiled, progress), bar as done:
        return planned.results(pool.in_order(planned.play, range(planned.replicates), done))


def contest(
    environment: Environment,
    policies: Sequence[Policy] | Mapping[str, Policy],
    *,
    horizon: int,
    replicates: int = 20,
    seed: int = 1,
    cell: int = 0,
    floor: float | Schedule | None = None,
    references: bool = True,
    points: int = 200,
    milestones: Sequence[int] = (),
) -> Contest:
    """What `simulate` is asked to play, every setting checked."""
    named = named_policies(policies, environment)
    learners = len(named)
    horizon = checks.integer("horizon", horizon, 1, LONGEST)
    replicates = checks.integer("replicates", replicates, 1, MOST)
    seed, cell = checks.integer("seed", seed, 0, 2**63 - 1), checks.integer("cell", cell, 0, 2**32 - 1)
    shared = common_floor(named) if floor is None else floor
    schedules.floors(shared, np.array([1]), environment.n_actions)
    if not isinstance(milestones, Sequence):
        checks.refuse("milestones", "be a list of rounds", checks.shown(milestones))
    extra = [checks.integer("milestones", t, 1, horizon) for t in milestones]
    spaced = schedules.log_spaced(horizon, checks.integer("points", points, 2, 1_000_000))
    record_at = np.union1d(spaced, np.array(extra, dtype=np.int64))
    if references:
        named = named | reference_policies(environment, shared, seed)
    check_room(len(named), replicates, record_at.size, environment.n_actions)
    return Contest(environment, named, learners, horizon, replicates, seed, cell, shared, record_at)


def check_room(policies: int, replicates: int, times: int, n_actions: int) -> None:
    """Refuse a simulation whose results this machine has no memory for; the room is asked for, and given back untouched."""
    numbers = policies * replicates * times * (3 + n_actions)
    try:
        np.empty(numbers)
    except (MemoryError, ValueError):
        checks.refuse("replicates", "be so few that the results fit into memory", f"{replicates:,}, for {8 * numbers / 2**30:,.0f} GiB")


def simulate_log(environment: Environment, policy: Policy, *, horizon: int, seed: int, replicate: int = 0, cell: int = 0) -> History:
    """The log that a policy leaves in one replicate: the very rounds that `simulate` plays for this seed, replicate and cell.

    It is what `read_journal` returns for a live trial: `fit`, `estimate` and `Log` take it as it is.

    Args:
        environment: The simulated world, with K actions and d features.
        policy: A policy for this K and d.
        horizon: The number of rounds, T.
        seed: The seed of all random numbers, a whole number from 0. The same seed gives the same log.
        replicate: The number of the run, from 0 (default 0).
        cell: The number of a cell in a grid of settings (default 0). Cells have independent random numbers.

    Returns:
        The T rounds, as arrays.

    >>> import mebandit as mb
    >>> log = mb.simulate_log(mb.environments.Gaussian(error_cov=1.0), mb.meb(2, 5, floor=0.2), horizon=5000, seed=1)
    >>> mb.estimate(log.predicted, log.actions, log.rewards, log.propensities, 1.0).theta.round(1)
    array([[5.1, 6.1, 3.8, 5.9, 3.9],
           [5.8, 5. , 5.5, 5.1, 4.6]])
    """
    named_policies([policy], environment)
    horizon = checks.integer("horizon", horizon, 1, LONGEST)
    seed, cell = checks.integer("seed", seed, 0, 2**63 - 1), checks.integer("cell", cell, 0, 2**32 - 1)
    replicate = checks.integer("replicate", replicate, 0, 2**32 - 2)
    written = blank(horizon, environment.n_actions, environment.dim)
    trajectory = Trajectory(policy, np.empty(0, dtype=np.int64))
    for start in range(0, horizon, BLOCK):
        block = slice(start, min(start + BLOCK, horizon))
        room = written.part(block)
        tape = tape_of(environment, Stretch(seed, cell, replicate, block.start, block.stop))
        trajectory.play(tape, start, np.zeros(len(tape.noise)), room)
        room.error_cov[:] = tape.error_cov[tape.component % len(tape.error_cov)]
        room.allowed[:] = tape.allowed
    return written


def compile_ahead(progress: bool | None = None) -> None:
    """Compile what every simulation needs, so that it is not counted as simulating; at once where a cache is found."""
    simulate(Gaussian(), [meb(2, 5)], horizon=2, replicates=1, workers=1, progress=progress)


def named_policies(policies: Sequence[Policy] | Mapping[str, Policy], environment: Environment) -> dict[str, Policy]:
    """Policies by the name they have in tables, checked against the environment."""
    named: dict[str, Policy] = {}
    if not isinstance(environment, Environment) or isinstance(environment, type):
        checks.refuse("environment", "be an environment, such as Gaussian()", checks.shown(environment))
    if not isinstance(policies, (Sequence, Mapping)):
        checks.refuse("policies", "be a list, or a dict by name", checks.shown(policies), "Put a single policy into a list: [policy].")
    pairs = policies.items() if isinstance(policies, Mapping) else [(label(p), p) for p in policies]
    for name, policy in pairs:
        if not isinstance(policy, Policy) or isinstance(policy, type):
            checks.refuse("policies", "be policies, such as meb(2, 5)", checks.shown(policy))
        if name in named:
            checks.refuse("policies", "have different names", f"{name!r} twice", "Give each a name: meb(2, 5, name='...').")
        shape = (policy.n_actions, policy.dim)
        if shape != (environment.n_actions, environment.dim):
            rule = f"have the environment's n_actions and dim, {environment.n_actions} and {environment.dim}"
            checks.refuse(f"policy {name!r}", rule, f"{shape[0]} and {shape[1]}")
        named[name] = policy
    if not named:
        checks.refuse("policies", "name at least one policy", "none")
    return named


def common_floor(policies: Mapping[str, Policy]) -> float | Schedule:
    """The smallest floor of those policies that have one."""
    stated = [getattr(policy, "floor", None) for policy in policies.values()]
    floors: tuple[Any, ...] = tuple(dict.fromkeys(floor for floor in stated if floor is not None))
    if not floors:
        return 0.0
    return floors[0] if len(floors) == 1 else schedules.Smallest(floors)


def reference_policies(environment: Environment, floor: float | Schedule, seed: int) -> dict[str, Policy]:
    """Uniform play and the oracles; the one on E[x | x̃] where the environment knows that."""
    shape = (environment.n_actions, environment.dim)
    found = [uniform(*shape), oracle(*shape, floor=floor)]
    if np.isfinite(tape_of(environment, Stretch(seed, 0, 0, 0, 1)).guess).all():
        found.append(bayes_oracle(*shape, floor=floor))
    return {policy.name: policy for policy in found}
