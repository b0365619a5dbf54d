"""Threads that meet inside compiled code: none goes ahead, and nobody waits for one that does not come."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from fedlocal.simulation.kernels.barrier import meet, meeting_place, together


@numba.njit(nogil=True)
def count(place, thread, counters, rounds):
    """Each round all threads count once, then look at each other; returns how often somebody was not where he should be."""
    wrong = 0
    for r in range(rounds):
        counters[thread, 0] += 1
        meet(place, thread)
        for other in range(counters.shape[0]):
            wrong += counters[other, 0] != r + 1
        meet(place, thread)
    return wrong


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nobody_goes_ahead(threads: int):
    """Three threads on two cores, too: who waits gives way."""
    counters, place = np.zeros((threads, 8), np.int64), meeting_place(threads)
    with ThreadPoolExecutor(threads) as pool:
        wrong = together(pool, lambda t: count(place, t, counters, 3000), threads, place)
    assert wrong == [0] * threads
    assert (counters[:, 0] == 3000).all()
    assert (place[:-1, 0] == 6000).all()


def test_results_come_in_the_order_of_the_threads():
    with ThreadPoolExecutor(3) as pool:
        assert together(pool, lambda t: t * t, 3) == [0, 1, 4]


PROGRAM = """
import signal, sys
from concurrent.futures import ThreadPoolExecutor
import numba
from fedlocal.simulation.kernels.barrier import meet, meeting_place, together

@numba.njit(nogil=True)
def walk(place, thread, rounds, work):
    total = 0.0
    for r in range(rounds):
        for i in range(work):
            total += 1.0 / (i + total + 1.0)
        meet(place, thread)
    return total

class Broken(ThreadPoolExecutor):
    def submit(self, work, thread):
        if thread == 1:
            raise RuntimeError("no thread")
        return super().submit(work, thread)

def run(case):
    pool, place, rounds = (Broken if case == "not_started" else ThreadPoolExecutor)(2), meeting_place(2), 50

    def work(thread):
        if case == "first_raises" and thread == 0 or case == "second_raises" and thread == 1:
            raise RuntimeError("no work")
        if case == "interrupted":  # the first waits long for the second, again and again
            return walk(place, thread, rounds, 1000 if thread == 0 else 4_000_000)
        return walk(place, thread, rounds, 10)

    if case == "interrupted":
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        together(pool, work, 2, place)
        print(case, "finished", flush=True)
    except (RuntimeError, KeyboardInterrupt):
        print(case, "raised", flush=True)
    pool.shutdown(wait=True)
    print(case, "all threads ended", flush=True)

walk(meeting_place(1), 0, 1, 1)
for case in sys.argv[1:]:
    run(case)
"""
ALONE = ("first_raises", "second_raises", "not_started", "interrupted")


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What is printed by a process of its own, for threads that wait forever would keep this one from ending."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *ALONE], stdout=subprocess.PIPE, text=True) as process:
        try:
            out = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            out = process.communicate()[0] + "and waited forever"
    return out.splitlines()


@pytest.mark.parametrize("case", ALONE)
def test_who_waits_is_released_when_another_does_not_come(said: list[str], case: str):
    assert [line for line in said if case in line] == [f"{case} raised", f"{case} all threads ended"]
