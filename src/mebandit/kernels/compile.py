"""How kernels are compiled for the processor: the decorators, where compiled code is kept, and views of arrays that cost nothing.

The GPU engine compiles the same kernels with tools of its own in the place of this module, see `mebandit.simulation.gpu.trajectory`.
"""

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from pickle import loads
from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from .splicing import Compiler

STAMP = sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))).hexdigest()
"""changes with any file of this package: numba itself notices changes in a function's own file alone, not in what that function calls"""


CACHES: list["Cache"] = []
"""those of this process"""


class Entries(IndexDataCacheFile):
    """Compiled code on disk: a file for each signature of a function, named by the signature and sealed.

    Numba itself numbers the files and keeps an index. Two processes that compile at once may then give two signatures one number, and code
    is called with arguments of other types. And it reads whatever a damaged file holds. The seal is over the versions, the signature, the
    processor and the content: where it does not match, there is nothing.
    """

    def load(self, key: Any) -> Any:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        seal, content = content[:32], content[32:]
        return loads(content) if seal == self._seal(key, content) else None

    def save(self, key: Any, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(str(self._path(key))) as file:
            file.write(self._seal(key, content) + content)

    def _path(self, key: Any) -> Path:
        name = self._index_name.removesuffix(".nbi")
        return Path(self._cache_path, f"{name}.{sha256(repr(key).encode()).hexdigest()[:16]}.nbc")

    def _seal(self, key: Any, content: bytes) -> bytes:
        return sha256(repr((self._version, self._source_stamp, key)).encode() + content).digest()


class Cache(FunctionCache):
    """Where compiled code is kept. Without a file that can be used it is compiled; whether it can be kept changes nothing else."""

    def __init__(self, function: Callable[..., Any], wrapped: bool) -> None:
        super().__init__(function)
        self._wrapped = wrapped
        CACHES.append(self)
        self._cache_file = Entries(self._cache_path, self._impl.filename_base, STAMP)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """The stamp is over all code, and functions that differ in what they enclose have names of their own."""
        return sig, codegen.magic_tuple(), self._wrapped

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what an entry refers to may be gone: it is compiled again, and written over
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            say_not_kept(f"in {self._cache_path}: {getattr(error, 'strerror', None) or error}")


def cached() -> list[Path]:
    """The files in which compiled functions are kept."""
    return sorted({file for cache in CACHES for file in Path(cache.cache_path).glob("*.nbc")})


class NoCache(NullCache):
    """In its place, where neither the package's folder nor the home can be written to."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        say_not_kept("neither beside the package nor in the home folder")


@cache
def say_not_kept(where: str) -> None:
    remedy = "to keep it, set NUMBA_CACHE_DIR to a folder that can be written to"
    print(f"mebandit: compiled code cannot be kept ({where}), so that every process compiles anew; {remedy}.", file=sys.stderr, flush=True)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compile for the processor, and keep what was compiled for the next process.

    What Python calls needs a wrapper that takes its arguments apart, which is a tenth of the time that compiling takes. So what compiled
    code calls is compiled without one, as a function of its own.
    """

    def dispatching(function: Callable[..., Any], wrapped: bool) -> Any:
        wrappers = {"no_cfunc_wrapper": True, "no_cpython_wrapper": not wrapped}
        dispatcher = numba.njit(error_model="numpy", pipeline_class=Compiler, **wrappers, **options)(function)
        if isinstance(dispatcher, Dispatcher):  # else NUMBA_DISABLE_JIT is set
            try:
                dispatcher._cache = Cache(function, wrapped)
            except (RuntimeError, OSError):  # numba has found no place for files
                dispatcher._cache = NoCache()
        return dispatcher

    def decorated(function: Callable[..., Any]) -> Any:
        outer, inner = dispatching(function, True), cache(lambda: dispatching(function, False))
        if isinstance(outer, Dispatcher) and options.get("inline") != "always":
            # A constant among the arguments has a type of its own, for which it would be compiled anew.
            outer.get_call_template = lambda args, kws: inner().get_call_template(tuple(map(types.unliteral, args)), kws)
            outer.get_overload = lambda *given: inner().get_overload(*given)
        return outer

    return decorated


jit = compiled(nogil=True)
# Called from Python for single live rounds: what takes a microsecond or two need not let other threads run meanwhile.
live = compiled()
# Off the usual way: better called than copied into it.
seldom = jit
# Spliced into the caller before it is typed: calls that pass ten arrays cost more than the arithmetic behind them.
spliced = compiled(nogil=True, inline="always")
# For arithmetic on a few numbers: put into the caller only after that was typed, since splicing takes its time.
inlined = compiled(nogil=True, forceinline=True)
# For rounds of a stored log, what allocates nothing: without counting views by reference they cost nothing, and compile sooner.
uncounted = compiled(nogil=True, _nrt=False)
# For sums over the rounds of a stored log alone: the compiler may add in another order, and so use vector instructions.
summing = compiled(nogil=True, _nrt=False, fastmath={"reassoc", "contract"})


@inlined
def quotient(a, b):
    """a / b, where it is often asked for. Where b is zero or at the ends of the range, nothing may depend on what comes out but its being
    no usable number."""
    return a / b


@inlined
def reach(i, n):
    """Where to look for the i-th of n things: a first and an end. A processor goes straight to it; see `simulation.gpu.trajectory`."""
    return i, i + 1


@inlined
def same(i, j):
    """Whether i and j are the same, among what is within reach."""
    return i == j


def views(intrinsic, types, cgutils, populate_array, checked=False):
    """`part`, `item` and `borrowed`, made with the tools of a target: arrays that are not counted by reference.

    On a processor a slice costs more than the arithmetic on a short one; on a GPU a function cannot return one. Where
    indices are `checked`, so is that a view lies within its array.
    """

    def check(context, builder, at, n, size):
        """An IndexError unless 0 <= at, 0 <= n and at + n <= size; as unsigned numbers, what is negative is too large."""
        if checked:
            room = builder.sub(size, n)
            wrong = builder.or_(builder.icmp_unsigned(">", n, size), builder.icmp_unsigned(">", at, room))
            with builder.if_then(wrong, likely=False):
                context.call_conv.return_user_exc(builder, IndexError, ("a view must lie within its array",))

    @intrinsic
    def part(typing, a, at, n):
        """a[at : at + n] for a flat array. It must not outlive `a`, and a negative `at` does not count from the end."""

        def generate(context, builder, signature, arguments):
            whole = context.make_array(signature.args[0])(context, builder, arguments[0])
            view = context.make_array(signature.return_type)(context, builder)
            check(context, builder, arguments[1], arguments[2], *cgutils.unpack_tuple(builder, whole.shape))
            data, item = builder.gep(whole.data, [arguments[1]], inbounds=True), whole.itemsize
            populate_array(view, data=data, shape=[arguments[2]], strides=[item], itemsize=item, meminfo=None, parent=None)
            return view._getvalue()

        return a(a, types.intp, types.intp), generate

    @intrinsic
    def item(typing, a, i):
        """a[i] of an array of two or more dimensions, likewise."""
        left = types.Array(a.dtype, a.ndim - 1, "C")

        def generate(context, builder, signature, arguments):
            whole = context.make_array(signature.args[0])(context, builder, arguments[0])
            view = context.make_array(signature.return_type)(context, builder)
            shape, strides = (cgutils.unpack_tuple(builder, field) for field in (whole.shape, whole.strides))
            check(context, builder, arguments[1], context.get_constant(types.intp, 1), shape[0])
            count = context.get_constant(types.intp, 1)
            for n in shape[1:]:
                count = builder.mul(count, n)
            data = builder.gep(whole.data, [builder.mul(arguments[1], count)], inbounds=True)
            populate_array(view, data=data, shape=shape[1:], strides=strides[1:], itemsize=whole.itemsize, meminfo=None, parent=None)
            return view._getvalue()

        return left(a, types.intp), generate

    return part, item, borrowing(intrinsic, types, cgutils)


def borrowing(intrinsic, types, cgutils):
    """`borrowed`, made with the tools of a target."""

    @intrinsic
    def borrowed(typing, value):
        """An array, or a tuple of such things. It must not outlive what it was borrowed from: a function's arguments live as long as its
        call."""

        def uncounted(context, builder, kind, value):
            if isinstance(kind, types.BaseTuple):
                pairs = zip(kind, cgutils.unpack_tuple(builder, value), strict=True)
                return context.make_tuple(builder, kind, [uncounted(context, builder, *pair) for pair in pairs])
            if isinstance(kind, types.Array):
                view = context.make_array(kind)(context, builder, value)
                view.meminfo, view.parent = (cgutils.get_null_value(field.type) for field in (view.meminfo, view.parent))
                return view._getvalue()
            return value

        return value(value), lambda context, builder, signature, arguments: uncounted(context, builder, value, arguments[0])

    return borrowed


part, item, borrowed = views(intrinsic, types, cgutils, populate_array, checked=bool(numba.config.BOUNDSCHECK))
