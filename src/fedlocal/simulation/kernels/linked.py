"""Compiled functions that exist only within their callers.

Numba makes machine code of every function, and again of every caller into which it is linked. A function that Python never calls
needs the second only; without the first, the kernels compile in a quarter less time.
"""

from typing import Any

from numba import _dynfunc  # pyright: ignore[reportAttributeAccessIssue]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class LinkedLibrary(JITCodeLibrary):
    """Code for callers to link into theirs. It is optimised, since that decides how they inline it, but never run."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class LinkedLowering(NativeLowering):
    """Numba's lowering, to a `LinkedLibrary`."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        state.library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        state.library.finalize()
        module, name = lowered.fndesc.lookup_module(), lowered.fndesc.qualname.split(".")[-1]
        function = _dynfunc.make_function(module, name, "", 0, lowered.env, (state.library,))  # callers find it by this
        state.targetctx.insert_user_function(function, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=function)
        return True


class LinkedCompiler(Compiler):
    """Numba's compiler, with `LinkedLowering`."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(LinkedLowering if each is NativeLowering else each, why) for each, why in passes.passes]
        passes._finalized = False
        passes.finalize()
        return [passes]
