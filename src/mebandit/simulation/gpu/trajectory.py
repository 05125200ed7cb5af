"""The loop of one thread over one trajectory, and the compiler's tools for it. Only this file imports numba's CUDA target."""

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba import config, cuda, float64

from mebandit import kernels
from mebandit.kernels.compile import views

ON_GPU = "mebandit.simulation.gpu.kernels"
"""the name of the kernels that are compiled for the GPU"""

IN_REGISTERS = 300
"""numbers of memory up to which loops over arms are unrolled: a thread has registers for 127 at a time, and some are never read"""


class Recipe(NamedTuple):
    """What the compiler knows of a trajectory."""

    spec: tuple[int, ...]
    sums: int
    fit: int
    extra: int
    dim: int
    alike: bool
    """pi^nd is the same for all actions, in every round"""
    knows_theta: bool
    """a policy's own θ, rather than the world's, is what it acts on"""
    in_turn: bool
    several: bool
    hold: int
    random_context: bool
    random_error: bool
    context_diagonal: bool
    """F is diagonal, in every world and component"""
    error_diagonal: bool
    context_kind: int
    error_kind: int
    noise_kind: int
    predicts: bool
    """E[x | x̃] is known, and asked for"""
    carry_index: int
    drifts: bool


def simulated() -> bool:
    """Whether numba only pretends to have a graphics processor (NUMBA_ENABLE_CUDASIM=1), for tests."""
    return bool(config.ENABLE_CUDASIM)


@cache
def steps() -> Any:
    """The names of `mebandit.kernels`, loaded once more under another name, with other tools in the place of its `compile`: those of the
    GPU's compiler (or, in numba's simulator of a GPU, of none).

    The package is imported as any package is, under the name `ON_GPU`, and its files find each other by relative imports. Its `compile`
    is there before it, so that no file of that name is read. No entry of `sys.modules` is replaced: the processor's kernels, under their
    own name, are not touched."""
    tools = ModuleType(f"{ON_GPU}.compile")
    vars(tools).update(plain() if simulated() else compiling(), STAMP=kernels.STAMP)
    sys.modules[tools.__name__] = tools
    spec = spec_from_file_location(ON_GPU, kernels.__file__)
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[ON_GPU] = module_from_spec(spec)
    spec.loader.exec_module(package)
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{ON_GPU}.")]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def compiling() -> dict[str, Any]:
    """The tools of the GPU's compiler."""
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic
    from numba.cuda.np.arrayobj import populate_array

    part, item, borrowed = views(intrinsic, types, cgutils, populate_array)

    @intrinsic
    def roughly_inverse(typing, b):
        """1 / b to about 20 bits."""

        def generate(context, builder, signature, arguments):
            double = ir.DoubleType()
            assembly = ir.InlineAsm(ir.FunctionType(double, [double]), "rcp.approx.ftz.f64 $0, $1;", "=d,d")
            return builder.call(assembly, arguments)

        return types.float64(types.float64), generate

    def quotient(a, b):
        """a / b to the last bit or the one before, by Newton's iteration: without the branches for numbers at the ends of their range,
        which keep the compiler from doing several at a time."""
        x = roughly_inverse(b)
        x += x * (1.0 - b * x)
        x += x * (1.0 - b * x)
        q = a * x
        return q + x * (a - b * q)

    inlined, called = cuda.jit(device=True, forceinline=True), cuda.jit(device=True)
    tools = {"jit": inlined, "spliced": inlined, "inlined": inlined, "live": called, "summing": called, "seldom": called}
    return tools | {
        "part": part,
        "item": item,
        "borrowed": borrowed,
        "reach": inlined(everywhere),
        "same": inlined(unseen_equality),
        "quotient": inlined(quotient),
    }


def everywhere(i, n):
    """Where to look for the i-th of n things: among all. Registers have no addresses; what is found there is found by comparing i with
    0, ..., n - 1 in an unrolled loop."""
    return 0, n


def unseen_equality(i, j):
    """Whether i = j, in a way that the compiler does not see through before it has unrolled the loop over i: else it would take j for i
    again, and put the array back into memory."""
    return np.float64(i) == np.float64(j)


def plain() -> dict[str, Any]:
    """The same in plain Python."""

    def itself(value):
        return value

    def part(a, at, n):
        return a[at : at + n]

    def item(a, i):
        return a[i]

    def quotient(a, b):
        return a / b

    tools = dict.fromkeys(("jit", "spliced", "inlined", "live", "summing", "seldom", "borrowed"), itself)
    return tools | {"part": part, "item": item, "reach": everywhere, "same": unseen_equality, "quotient": quotient}


def repeated(step, n, unrolled):
    """step(0, ...), ..., step(n - 1, ...): a loop, or one that is unrolled however long `step` is."""
    before, last = (repeated(step, n - 1, True) if unrolled and n > 1 else None), n - 1

    def in_a_loop(*rest):
        for i in range(n):
            step(i, *rest)

    def alone(*rest):
        step(0, *rest)

    def after_the_others(*rest):
        before(*rest)
        step(last, *rest)

    inlined = plain()["jit"] if simulated() else cuda.jit(device=True, forceinline=True)
    return inlined(in_a_loop if not unrolled else alone if n == 1 else after_the_others)


@cache
def kernel(recipe: Recipe) -> Any:
    """The compiled loop of a recipe over whole trajectories: the counterpart of `kernels.play.play`."""
    k = steps()
    spec, d = recipe.spec, recipe.dim
    n_actions, intercept = spec[k.N_ACTIONS], spec[k.INTERCEPT]
    p = d + intercept
    dims = (0,) * p
    n_sums, n_fit, n_extra = recipe.sums, recipe.fit, recipe.extra
    n_work, n_aside, n_seen = int(kernels.work_size(n_actions, p)), int(kernels.aside_size(p)), 2 * p
    width, report = int(kernels.fit_width(p)), p + p * (p + 1) // 2 + k.REPORT
    shown = n_actions if spec[k.WEIGHTING] == k.PSEUDO and spec[k.READS] != k.READS_CALIBRATED else 0
    guarded_code, learns, calibrates = k.GUARDED, spec[k.RULE] <= k.ROBUST, spec[k.ACTS_ON] != k.PREDICTED
    alike, knows_theta, in_turn, several, hold = recipe.alike, recipe.knows_theta, recipe.in_turn, recipe.several, recipe.hold
    random_context, random_error = recipe.random_context, recipe.random_error
    context_diagonal, error_diagonal = recipe.context_diagonal, recipe.error_diagonal
    context_kind, error_kind, noise_kind = recipe.context_kind, recipe.error_kind, recipe.noise_kind
    predicts, carry_index, drifts = recipe.predicts, recipe.carry_index, recipe.drifts
    context_step, error_step = (1 if kind == k.STUDENT_T else 2 for kind in (context_kind, error_kind))
    DECISION, COMPONENT, CONTEXT, ERROR, NOISE = k.DECISION, k.COMPONENT, k.CONTEXT, k.ERROR, k.NOISE
    uniform_pair, standardized, entry, same = k.uniform_pair, k.standardized, k.entry, k.same
    calibrate, choose, propose, draw, regrets, take_in, refit_context = (
        k.calibrate,
        k.choose,
        k.propose,
        k.draw,
        k.regrets,
        k.take_in,
        k.refit_context,
    )
    refit_arms = repeated(k.refit_arm, int(kernels.number_of_fits(spec)), n_sums + n_fit <= IN_REGISTERS)
    sin, sqrt, nan = k.math.sin, k.math.sqrt, np.nan

    @cuda.jit
    def play(key, first, tuning, plan, benchmark, worlds, world_of, known, fresh, record_at, records, arm_errors):
        i = cuda.grid(1)
        if i >= world_of.size:
            return
        seed, cell = key
        replicate, w = first + i, world_of[i]
        floors, exploring, refits, corrects, stabilizers = plan
        components, cumulative, mean, factor, error_mean, error_factor, error_df, noise_sd = worlds[:8]
        all_theta, errors, offset, gain, carry_decay, carry_gain, wave_period, wave_mean, wave_theta = worlds[8:]
        sums, fit, extra = cuda.local.array(n_sums, float64), cuda.local.array(n_fit, float64), cuda.local.array(n_extra, float64)
        work, aside, out = cuda.local.array(n_work, float64), cuda.local.array(n_aside, float64), cuda.local.array(n_actions, float64)
        theta, acted_on = cuda.local.array((n_actions, d), float64), cuda.local.array((n_actions, d), float64)
        allowed, stabilizer = cuda.local.array(n_actions, float64), cuda.local.array(n_actions, float64)
        x, z, blp, noise = (
            cuda.local.array(d, float64),
            cuda.local.array(p, float64),
            cuda.local.array(n_seen, float64),
            cuda.local.array(d, float64),
        )
        for j in range(n_sums):
            sums[j] = 0.0
        for j in range(n_fit):
            fit[j] = fresh[j]
        for j in range(n_extra):
            extra[j] = 0.0
        for a in range(n_actions):
            allowed[a] = 1.0
            for j in range(d):
                theta[a, j] = all_theta[w, a, j]
                acted_on[a, j] = known[a, j] if knows_theta else theta[a, j]
        z[0] = 1.0
        standard_total, clipped_total, carried, guarded, recorded = 0.0, 0.0, 0.0, 0.0, 0
        for b in range(floors.size):
            time = b + 1
            c = 0
            if in_turn:
                c = b % components[w]
            elif several:
                u, v = uniform_pair(seed, cell, replicate, b // hold + 1, COMPONENT)
                while c < components[w] - 1 and u >= cumulative[w, c]:
                    c += 1
            # the context, and what is seen of it: x = mean + F z, x~ = x + e
            if random_context:
                for j in range(0, d, context_step):
                    u, v = uniform_pair(seed, cell, replicate, time, CONTEXT + j)
                    noise[j] = standardized(context_kind, 0.0, u, v)
                    if context_step == 2 and j + 1 < d:
                        noise[j + 1] = standardized(context_kind, 0.0, v, u)
            wave = sin(6.283185307179586 * time / wave_period[w]) if drifts else 0.0
            f = entry(c, factor.shape[1])
            for j in range(d):
                total = mean[w, c, j]
                if random_context and context_diagonal:
                    total += factor[w, f, j, j] * noise[j]
                elif random_context:
                    for m in range(d):
                        total += factor[w, f, j, m] * noise[m]
                if drifts:
                    total += wave_mean[w, j] * wave
                x[j] = carried if j == carry_index else total
            if random_error:
                for j in range(0, d, error_step):
                    u, v = uniform_pair(seed, cell, replicate, time, ERROR + j)
                    noise[j] = standardized(error_kind, error_df[w], u, v)
                    if error_step == 2 and j + 1 < d:
                        noise[j + 1] = standardized(error_kind, error_df[w], v, u)
            e, f = entry(c, error_mean.shape[1]), entry(c, error_factor.shape[1])
            for j in range(d):
                total = error_mean[w, e, j]
                if random_error and error_diagonal:
                    total += error_factor[w, f, j, j] * noise[j]
                elif random_error:
                    for m in range(d):
                        total += error_factor[w, f, j, m] * noise[m]
                z[intercept + j] = x[j] + total
            if drifts:
                for a in range(n_actions):
                    for j in range(d):
                        theta[a, j] = all_theta[w, a, j] + wave_theta[w, a, j] * wave
                        if not knows_theta:
                            acted_on[a, j] = theta[a, j]
            error = errors[w, entry(c, errors.shape[1])]
            if predicts:  # E[x | x~], where `noise` is no longer needed
                g = entry(c, gain.shape[1])
                for j in range(d):
                    total = offset[w, g, j]
                    for m in range(d):
                        away = z[intercept + m] - (wave_mean[w, m] * wave if drifts else 0.0)
                        total += gain[w, g, j, m] * away
                    noise[j] = total + (wave_mean[w, j] * wave if drifts else 0.0)
            seen = blp if calibrates else z
            if calibrates:
                calibrate(dims, spec, sums, fit, z, error, blp, work)
            propose(choose, dims, spec, tuning, fit, extra, z, seen, allowed, floors[b], exploring[b], acted_on, noise, out, work)
            u, luck = uniform_pair(seed, cell, replicate, time, DECISION)
            action = draw(out, u)
            standard, clipped = regrets(theta, x, out, allowed, benchmark[b])
            standard_total += standard
            clipped_total += clipped
            if carry_index >= 0:
                carried = carry_decay[w] * carried + carry_gain[w, action]
            u, v = uniform_pair(seed, cell, replicate, time, NOISE)
            reward, propensity = noise_sd[w] * standardized(noise_kind, 0.0, u, v), 0.0
            for a in range(n_actions):
                stabilizer[a] = stabilizers[entry(b, stabilizers.shape[0]), 0 if alike else a]
                if same(a, action):
                    propensity = out[a]
                    for j in range(d):
                        reward += theta[a, j] * x[j]
            take_in(dims, spec, tuning, stabilizer, sums, fit, extra, z, seen, error, allowed, action, propensity, reward, luck)
            if refits[b] and learns:
                refit_context(spec, tuning, sums, fit, p, work)
                refit_arms(dims, spec, tuning, corrects[b], sums, fit, p, work, aside)
                for a in range(n_actions):
                    guarded += 1.0 if fit[(shown + a) * width + report] == guarded_code else 0.0
            if recorded < record_at.size and record_at[recorded] == time:
                records[recorded, 0, i] = standard_total
                records[recorded, 1, i] = clipped_total
                records[recorded, 2, i] = guarded
                for a in range(n_actions):
                    gap = 0.0
                    for j in range(d):
                        away = fit[(shown + a) * width + intercept + j] - theta[a, j]
                        gap += away * away
                    arm_errors[recorded, a, i] = sqrt(gap) if learns else nan
                recorded += 1

    return play
