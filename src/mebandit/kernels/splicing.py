"""Splicing functions into their callers before these are typed: numba's pass, but a function is translated once, not at every call.

Numba also copies the function twice for every call, and with each block all of its variables, which takes longer the more calls there are.
"""

from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.inline_closurecall import InlineWorker, callee_ir_validator
from numba.core.ir_utils import guard, simplify_CFG
from numba.core.postproc import PostProcessor
from numba.core.untyped_passes import InlineInlinables

TRANSLATED = {}
"""functions as intermediate code, with all that they call spliced in"""


class Copied(ir.Block):
    """A block of a fresh copy. `InlineWorker.inline_ir` asks for two more copies, which are not needed."""

    def __deepcopy__(self, memo):
        return self


def fresh(part, scope):
    """A copy of a part of the intermediate code, with its variables in another scope."""
    if isinstance(part, ir.Var):
        return ir.Var(scope, part.name, part.loc)
    if isinstance(part, ir.Inst | ir.AbstractRHS):
        new = object.__new__(type(part))
        new.__dict__.update({name: fresh(value, scope) for name, value in part.__dict__.items()})
        return new
    if type(part) is dict:
        return {key: fresh(value, scope) for key, value in part.items()}
    return type(part)([fresh(value, scope) for value in part]) if type(part) in (list, tuple) else part


def copy_of(function_ir):
    """A function's intermediate code, to be changed at will. All of its blocks share one scope."""
    before = next(iter(function_ir.blocks.values())).scope
    scope = ir.Scope(before.parent, before.loc)
    for name, variable in before.localvars._con.items():
        scope.localvars.define(name, ir.Var(scope, name, variable.loc))
    scope.redefined.update(before.redefined)
    scope.var_redefinitions.update({name: set(names) for name, names in before.var_redefinitions.items()})
    copied = function_ir.copy()
    copied.blocks = {label: Copied(scope, block.loc) for label, block in function_ir.blocks.items()}
    for label, block in function_ir.blocks.items():
        copied.blocks[label].body = fresh(block.body, scope)
    return copied


class Worker(InlineWorker):
    """Splices a function in where it is called."""

    def run_untyped_passes(self, function, enable_ssa=False):
        self._compiler_pipeline = lambda state: splicing(DefaultPassBuilder.define_untyped_pipeline(state))
        if function not in TRANSLATED:
            TRANSLATED[function] = super().run_untyped_passes(function, enable_ssa)
        self.flags.enable_ssa = enable_ssa  # as numba leaves it, and names functions by it
        return TRANSLATED[function]

    def inline_ir(self, caller_ir, block, i, callee_ir, *given, **options):
        callee_ir = copy_of(callee_ir)
        blocks = list(callee_ir.blocks.values())
        done = super().inline_ir(caller_ir, block, i, callee_ir, *given, **options)
        for spliced in blocks:
            spliced.__class__ = ir.Block
        return done


@register_pass(mutates_CFG=True, analysis_only=False)
class Splice(InlineInlinables):
    """Numba's pass, with this worker."""

    _name = "splice"

    def run_pass(self, state):
        given = state.typingctx, state.targetctx, state.locals, state.pipeline, state.flags
        worker, blocks, modified = Worker(*given, validator=callee_ir_validator), state.func_ir.blocks, False
        waiting = list(blocks.items())
        while waiting:
            _, block = waiting.pop()
            for i, statement in enumerate(block.body):
                call = statement.value if isinstance(statement, ir.Assign) else None
                if isinstance(call, ir.Expr) and call.op == "call" and guard(self._do_work, state, waiting, block, i, call, worker):
                    modified = True
                    break  # the rest of the block is waiting now
        if modified:
            for dead in compute_cfg_from_blocks(blocks).dead_nodes():
                del blocks[dead]
            PostProcessor(state.func_ir).run()
            state.func_ir.blocks = simplify_CFG(blocks)
        return True


def splicing(passes):
    """Passes of numba's with `Splice` in its place."""
    ours = PassManager(passes.pipeline_name)
    ours.passes.extend((Splice, text) if one is InlineInlinables else (one, text) for one, text in passes.passes)
    ours.finalize()
    return ours


class Compiler(CompilerBase):
    """Numba's compiler, with `Splice`."""

    def define_pipelines(self):
        return [splicing(DefaultPassBuilder.define_nopython_pipeline(self.state))]
