"""The kernels, compiled for a GPU: the tools of its compiler, and the package `mebandit.kernels` loaded once more with them."""

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numba import config, cuda

from mebandit import kernels
from mebandit.kernels.compile import views

ON_GPU = "mebandit.simulation.gpu.kernels"
"""the name of the kernels that are compiled for the GPU"""


def simulated() -> bool:
    """Whether numba only pretends to have a GPU (NUMBA_ENABLE_CUDASIM=1), for tests."""
    return bool(config.ENABLE_CUDASIM)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function for the GPU, to be put into its caller."""
    return function if simulated() else cuda.jit(device=True, forceinline=True)(function)


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

    called = cuda.jit(device=True)
    tools = {"jit": inlined, "spliced": inlined, "inlined": inlined, "live": called, "seldom": called}
    tools |= {"summing": called, "uncounted": called}
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

    tools = dict.fromkeys(("jit", "spliced", "inlined", "live", "summing", "uncounted", "seldom", "borrowed"), itself)
    return tools | {"part": part, "item": item, "reach": everywhere, "same": unseen_equality, "quotient": quotient}


def repeated(step: Any, n: int, unrolled: bool) -> Any:
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

    return inlined(in_a_loop if not unrolled else alone if n == 1 else after_the_others)
