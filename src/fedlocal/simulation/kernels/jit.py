"""Compiled loops, kept on disk between processes under a name that says what they were made from.

Numba by itself keeps them beside each source file and looks at that file alone, so that a change in another file, or another
version of fedlocal in the same place, could bring back old code.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from fedlocal.simulation.kernels.linked import LinkedCompiler

SOURCES = (
    "jit",
    "linked",
    "simd",
    "buffers",
    "unchecked",
    "barrier",
    "threefry",
    "local_steps",
    "frozen_gradient",
    "rounds",
    "networks/buffers",
    "networks/emitter",
    "networks/microkernels",
    "networks/projections",
    "networks/local_steps",
    "networks/rounds",
    "networks/layout",
)
FAST = {"contract", "reassoc", "nsz", "arcp"}  # nan and inf are what they are
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": FAST, "error_model": "numpy"}
OPTIONS["no_cfunc_wrapper"] = True  # nobody calls them from C
UNCOUNTED: dict[str, Any] = {
    "_nrt": False
}  # no reference counts: loops allocate nothing, their caller keeps the arrays


def _directory() -> Path:
    contents = [numba.__version__.encode(), *((Path(__file__).parent / f"{name}.py").read_bytes() for name in SOURCES)]
    digest = hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # nobody's home
        cache = Path(tempfile.gettempdir())
    return Path(numba.config.CACHE_DIR or cache / "fedlocal") / f"kernels-{digest}"  # pyright: ignore


DIRECTORY = str(_directory())


def inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of the loops that call it for every column: passing arrays costs more than its work."""
    return numba.njit(inline="always")(function)


def internal(function: Callable[..., Any]) -> Any:
    """A compiled function that only other compiled functions call: its machine code is within that of its callers only."""
    return compiled(function, no_cpython_wrapper=True, cache=False, pipeline_class=LinkedCompiler, **UNCOUNTED)


def entry(function: Callable[..., Any]) -> Any:
    """A compiled function of these loops that Python calls."""
    return compiled(function, **UNCOUNTED)


def compiled(function: Callable[..., Any], **more: Any) -> Any:
    """A function that Numba compiles when it is first called with arguments of some types."""
    options: dict[str, Any] = {**OPTIONS, **more}
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, DIRECTORY  # pyright: ignore
    try:
        return numba.njit(**options)(function)
    except RuntimeError:  # there is no place that can be written: compile in every process
        options["cache"] = False
        return numba.njit(**options)(function)
    finally:
        numba.config.CACHE_DIR = before  # pyright: ignore
