"""Threads that wait for each other inside compiled code, which costs a microsecond where starting them anew costs many."""

import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numba import types

from fedlocal.simulation.kernels.jit import entry, internal
from fedlocal.simulation.kernels.simd import intrinsic

PATIENCE = 4000  # looks before a thread gives its core to somebody else
LINE = 8  # numbers in a cache line


def meeting_place(threads: int) -> np.ndarray:
    """Where each of some threads leaves word of how far it is; the last line says that they are not to wait any more."""
    return np.zeros((threads + 1, LINE), np.int64)


@intrinsic
def _tell(_: Any, array: Any, place: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        place_ = context.cast(builder, arguments[1], place, types.intp)
        value_ = context.cast(builder, arguments[2], value, types.int64)
        builder.store_atomic(value_, builder.gep(data, [place_]), "release", 8)
        return context.get_dummy_value()

    return types.none(array, place, value), code


@intrinsic
def _ask(_: Any, array: Any, place: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        place_ = context.cast(builder, arguments[1], place, types.intp)
        return builder.load_atomic(builder.gep(data, [place_]), "acquire", 8)

    return types.int64(array, place), code


if hasattr(os, "sched_yield"):
    sched_yield = types.ExternalFunction("sched_yield", types.int32())
else:

    @entry
    def sched_yield():
        return np.int32(0)


@internal
def share(count, thread, threads):
    """The begin and the end of a thread's share of `count` things."""
    return count * thread // threads, count * (thread + 1) // threads


@entry
def meet(place, thread):
    """Go on when all threads are here, or when nobody is to wait. What any of them wrote before, all can read after."""
    turn, threads = _ask(place, thread * LINE) + 1, place.shape[0] - 1
    _tell(place, thread * LINE, turn)
    for other in range(threads):
        looks = 0
        while _ask(place, other * LINE) < turn and _ask(place, threads * LINE) == 0:
            looks += 1
            if looks > PATIENCE:
                sched_yield()


def together(
    pool: ThreadPoolExecutor, work: Callable[[int], Any], threads: int, place: np.ndarray | None = None
) -> list[Any]:
    """What `work` returns for each thread. If one of them fails or was not started, the others do not wait for it at `place`."""
    if threads == 1:
        return [work(0)]
    try:
        running = [pool.submit(work, thread) for thread in range(threads)]
        wait(running, return_when=FIRST_EXCEPTION)
        failed = any(each.done() and each.exception() for each in running)
        if failed and place is not None:
            place[-1] = 1
        return [each.result() for each in running]
    except BaseException:
        if place is not None:
            place[-1] = 1
        raise
