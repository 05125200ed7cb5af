"""Simulation on a GPU: one thread plays one trajectory, with all its memory at hand, by the functions of `mebandit.kernels`.

The source is the processor's; only the compiler's tools differ, and the loop: a thread draws what a round has in store when it comes to
it (the same counted random numbers), where the processor fills tapes for all policies. So both engines meet the same random numbers and
agree up to the rounding of sums, which the compilers order and contract differently; a rounded tie may then send a trajectory another way.

Every recipe, with its number of actions and features, is compiled by itself: what it does not do is left out, and loops of known length
are unrolled. Launches of a dozen pieces of work are under way at the same time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from mebandit import checks, kernels, schedules
from mebandit.environments.base import Drawn, Environment
from mebandit.environments.drifting import Drifting
from mebandit.environments.reported import Misreported
from mebandit.policies import BayesOracle, LinearPolicy, Policy
from mebandit.runtime.progress import Show, compiling_notice
from mebandit.schedules import Schedule
from mebandit.values import Floats, Integers, ScheduleTable, World

if TYPE_CHECKING:
    from mebandit.simulation.gpu.trajectory import Constants

ENGINES = ("cpu", "cuda", "auto")

THREADS = 32
"""threads of a block: the fewest, so that a hundred trajectories spread over several multiprocessors and their memories"""
MOST = 1 << 18
"""trajectories of a launch: about what the largest of today's processors holds at once"""
ROOM = 1 << 28
"""bytes that the records of a piece of work take on the device, at most"""
AHEAD = 12
"""pieces of work, launches of several policies each, that are under way at the same time: a device runs 128 launches at once"""
LARGEST_STATE = 1 << 14
"""numbers of memory of one trajectory, at most: with more, a thread spends its time waiting"""


class Playable(Protocol):
    """What is read of `mebandit.simulation.simulate.Contest`."""

    @property
    def environment(self) -> Environment: ...
    @property
    def policies(self) -> Mapping[str, Policy]: ...
    @property
    def horizon(self) -> int: ...
    @property
    def replicates(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def cell(self) -> int: ...
    @property
    def floor(self) -> float | Schedule: ...
    @property
    def record_at(self) -> Integers: ...


class Worlds(NamedTuple):
    """`World`s of one shape, one after the other; each trajectory plays in one."""

    components: Integers
    cumulative: Floats
    mean: Floats
    factor: Floats
    error_mean: Floats
    error_factor: Floats
    error_df: Floats
    noise_sd: Floats
    theta: Floats
    errors: Floats
    offset: Floats
    gain: Floats
    carry_decay: Floats
    carry_gain: Floats
    wave_period: Floats
    wave_mean: Floats
    wave_theta: Floats


# ---- what is needed ------------------------------------------------------------------------------------------------------


def missing() -> str | None:
    """Why there is no GPU to simulate on, or None."""
    if find_spec("numba_cuda") is None and not import_module("numba").config.ENABLE_CUDASIM:
        return "numba-cuda is not installed"
    try:
        found = target().is_available()
    except AttributeError as error:  # such as np.row_stack, which numba-cuda 0.30 asks for and numpy 2.5 has no more
        return f"this version of numba-cuda does not go with numpy {np.__version__} ({error})"
    except Exception as error:
        return f"CUDA does not start: {error}"
    return None if found else "no CUDA device and driver were found"


def target() -> Any:
    """numba's CUDA target, which is imported where it is used."""
    return import_module("numba.cuda")


def chosen(engine: str, contests: Iterable[Playable]) -> bool:
    """Whether to simulate on a GPU; "cuda" says why that cannot be, "auto" then takes the processor."""
    checks.one_of("engine", engine, ENGINES)
    if engine == "cpu":
        return False
    reason = missing()
    if reason is not None:
        if engine == "auto":
            return False
        remedy = "Install mebandit[cuda] on a machine with an NVIDIA GPU, or take engine='cpu'."
        checks.refuse("engine", "be 'cpu' or 'auto' on this machine", f"'cuda', but {reason}", remedy)
    if engine == "auto":
        return all(unfit(contest) is None for contest in contests)
    for contest in contests:
        why = unfit(contest)
        if why is not None:
            checks.refuse("engine", "be 'cpu' or 'auto' for this simulation", f"'cuda', but {why}")
    return True


def unfit(contest: Playable) -> str | None:
    """Why a contest cannot be played on a GPU, or None."""
    environment = contest.environment
    if not drawn(environment):
        return f"the rounds of {type(environment).__name__} are not drawn by compiled code"
    for name, policy in contest.policies.items():
        if type(policy) is not LinearPolicy:
            return f"{name!r} is not a policy of this library, whose rounds are compiled"
        state = policy.init()
        size = state.sums.size + state.fit.size + state.extra.size
        if size > LARGEST_STATE:
            shape = f"{policy.n_actions} actions and {policy.dim} features"
            return f"{name!r} with {shape} keeps {size} numbers, and a thread has room for {LARGEST_STATE}"
    return None


# ---- running -------------------------------------------------------------------------------------------------------------


class Launch(NamedTuple):
    """One policy's way through some replicates, ready to be sent off."""

    kernel: Any
    arguments: tuple[Any, ...]
    """on the device; the last two are the records and the errors by arm, (times, 3 or K, replicates)"""
    stream: Any

    def start(self) -> None:
        n = self.arguments[-1].shape[2]
        self.kernel[(n + THREADS - 1) // THREADS, THREADS, self.stream](*self.arguments)

    def results(self) -> tuple[Floats, Floats]:
        records, arm_errors = (array.copy_to_host(stream=self.stream) for array in self.arguments[-2:])
        self.stream.synchronize()
        return records, arm_errors


def played(contests: Sequence[Playable], done: Callable[[], None], show: Show = None) -> Iterator[tuple[Floats, Floats]]:
    """What every replicate of every contest gave, in order: records (policies, times, 3) and errors by arm (policies, times, K)."""
    pieces = ((contest, *span) for contest in contests for span in spans(contest))
    while batch := [prepared(*piece) for piece in islice(pieces, AHEAD)]:
        with compiling_notice(lambda: False, show, "compiling for the GPU, some ten seconds for each policy"):
            started(batch)
        for launches in batch:
            found = [launch.results() for launch in launches]
            for i in range(found[0][0].shape[2]):
                yield np.stack([records[:, :, i] for records, _ in found]), np.stack([errors[:, :, i] for _, errors in found])
                done()


def started(batch: Sequence[Sequence[Launch]]) -> None:
    """Send off all launches at once. What they need is on the device already: a copy or an allocation in between would wait for them."""
    for launches in batch:
        for launch in launches:
            launch.start()


def spans(contest: Playable) -> Iterator[tuple[int, int]]:
    """The replicates of a contest, a piece at a time."""
    each = 8 * len(contest.policies) * contest.record_at.size * (3 + contest.environment.n_actions)
    most = max(min(MOST, ROOM // each), 1)
    for first in range(0, contest.replicates, most):
        yield first, min(first + most, contest.replicates)


def prepared(contest: Playable, first: int, end: int) -> list[Launch]:
    """A launch for every policy of a contest through replicates first, ..., end - 1, each on a stream of its own."""
    from mebandit.simulation.gpu.trajectory import kernel

    cuda = target()
    n, k = end - first, contest.environment.n_actions
    times = np.arange(1, contest.horizon + 1)
    policies = [policy for policy in contest.policies.values() if isinstance(policy, LinearPolicy)]
    world, worlds, place = stacked(contest.environment, contest.seed, first, end)
    benchmark, record_at, place = map(cuda.to_device, (schedules.floors(contest.floor, times, k), contest.record_at, place))
    on_device = {
        intercept: Worlds(*map(cuda.to_device, worlds._replace(errors=packed(worlds.errors, intercept))))
        for intercept in {policy.n_features - policy.dim for policy in policies}
    }
    launches = []
    for policy in policies:
        plan = policy.plan(times)
        arguments = (
            (contest.seed, contest.cell),
            first,
            cuda.to_device(policy.tuning),
            ScheduleTable(*(cuda.to_device(np.ascontiguousarray(field)) for field in plan)),
            benchmark,
            on_device[policy.n_features - policy.dim],
            place,
            cuda.to_device(np.ascontiguousarray(policy.theta_known)),
            cuda.to_device(policy.init().fit.ravel()),
            record_at,
            cuda.device_array((contest.record_at.size, 3, n)),
            cuda.device_array((contest.record_at.size, k, n)),
        )
        launches.append(Launch(kernel(constants_of(policy, plan, world, worlds)), arguments, cuda.stream()))
    return launches


def constants_of(policy: LinearPolicy, plan: ScheduleTable, world: World, worlds: Worlds) -> "Constants":
    """What of a policy in a world is compiled."""
    from mebandit.simulation.gpu.trajectory import Constants

    state = policy.init()
    return Constants(
        spec=tuple(int(code) for code in policy.spec),
        sums=state.sums.size,
        fit=state.fit.size,
        extra=state.extra.size,
        dim=policy.dim,
        alike=bool((plan.stabilizer == plan.stabilizer[:, :1]).all()),
        knows_theta=policy.knows_theta,
        in_turn=world.cumulative.size == 0,
        several=worlds.mean.shape[1] > 1,
        hold=int(world.hold),
        random_context=bool(world.random_context),
        random_error=bool(world.random_error),
        context_diagonal=diagonal(worlds.factor),
        error_diagonal=diagonal(worlds.error_factor),
        context_kind=int(world.context_kind),
        error_kind=int(world.error_kind),
        noise_kind=int(world.noise_kind),
        predicts=isinstance(policy.rule, BayesOracle) and len(world.gain) > 0,
        carry_index=int(world.carry_index),
        drifts=bool(worlds.wave_mean.any() or worlds.wave_theta.any()),
    )


def stacked(environment: Environment, seed: int, first: int, end: int) -> tuple[World, Worlds, Integers]:
    """One of the worlds in which replicates first, ..., end - 1 play; all of them; and the place of each replicate's."""
    found, place = worlds_of(environment, seed, first, end)
    each = [as_arrays(world) for world in found]
    most = {name: max(len(arrays[name]) for arrays in each) for name in each[0]}
    arrays = {name: np.stack([lengthened(a[name], most[name]) for a in each]) for name in most}
    n, (k, d) = len(found), found[0].theta.shape
    drift = environment if isinstance(environment, Drifting) else None
    worlds = Worlds(
        components=np.array([len(world.mean) for world in found]),
        error_df=np.array([float(world.error_df) for world in found]),
        noise_sd=np.array([float(world.noise_sd) for world in found]),
        carry_decay=np.array([float(world.carry_decay) for world in found]),
        wave_period=np.full(n, drift.period if drift is not None else 1.0),
        wave_mean=np.tile(np.array(drift.mean) if drift is not None else np.zeros(d), (n, 1)),
        wave_theta=np.tile(np.array(drift.theta) if drift is not None else np.zeros((k, d)), (n, 1, 1)),
        **arrays,
    )
    return found[0], worlds, place


def drawn(environment: Any) -> bool:
    """Whether compiled code can draw an environment's rounds; a drift only where it comes last."""
    if isinstance(environment, Drifting) and environment.shape != "sine":
        return False
    if isinstance(environment, (Drifting, Misreported)):
        return drawn(environment.world) and not isinstance(environment.world, Drifting)
    return isinstance(environment, Drawn)


def worlds_of(environment: Any, seed: int, first: int, end: int) -> tuple[list[World], Integers]:
    """`Drawn.worlds`, also of what is made from such an environment (a drift is added by the loop)."""
    if isinstance(environment, Drawn):
        return environment.worlds(seed, first, end)
    worlds, place = worlds_of(environment.world, seed, first, end)
    if isinstance(environment, Misreported):
        worlds = [world._replace(error_cov=environment.reported(world.error_cov)) for world in worlds]
    return worlds, place


def as_arrays(world: World) -> dict[str, Floats]:
    d = world.theta.shape[1]
    cumulative = world.cumulative.copy() if world.cumulative.size else np.zeros(1)
    cumulative[-1] = 2.0  # the last component has what the others leave
    return {
        "cumulative": cumulative,
        "mean": world.mean,
        "factor": world.factor,
        "error_mean": world.error_mean,
        "error_factor": world.error_factor,
        "theta": world.theta,
        "errors": world.error_cov,
        "offset": world.offset if len(world.gain) else np.zeros((1, d)),
        "gain": world.gain if len(world.gain) else np.zeros((1, d, d)),
        "carry_gain": world.carry_gain,
    }


def diagonal(factor: Floats) -> bool:
    return not (factor * (1 - np.eye(factor.shape[-1]))).any()


def packed(error_cov: Floats, intercept: int) -> Floats:
    """Error covariances (U, C, d, d) as packed rows (U, C, size)."""
    return np.stack([kernels.pack_errors(np.ascontiguousarray(each), intercept) for each in error_cov])


def lengthened(array: Floats, n: int) -> Floats:
    """With as many entries as the longest, never looked at."""
    return np.concatenate([array, np.zeros((n - len(array), *array.shape[1:]))]) if len(array) < n else array
