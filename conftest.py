"""All tests run in float64 unless they say otherwise; what one process has compiled the others need not compile again, nor
those of the next run.

Most programs of tests are small and take longer to compile than to run, so XLA is told not to optimise them much, also in the
processes that tests start. Tests whose programs run for long are marked `optimised`; `make thorough` sets
JAX_DISABLE_MOST_OPTIMIZATIONS=0, which compiles all of them as for users.
"""

import gc
import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

QUICKLY = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") != "0"
if QUICKLY and "XLA_FLAGS" not in os.environ:  # the older emitters of loops compile in half the time
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
LARGEST = 1 << 28  # bytes of programs that are kept for later runs
MOST_PIECES = 25_000  # of memory, before programs are forgotten
TESTS = itertools.count(1)

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in the background of a shell; processes of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Many tests make the same programs: all processes of a run share a folder of them, which later runs use, too.

    JAX writes them without a lock. A program that is read while it is written is damaged, which JAX notices and warns of.
    """
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache entry")
    if PROGRAMS not in os.environ:
        environment = pytest.MonkeyPatch()
        environment.setenv(PROGRAMS, str(_programs(config)))
        config.add_cleanup(environment.undo)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def _programs(config: pytest.Config) -> Path:
    """The folder of compiled programs, emptied when those of old versions have made it large."""
    folder = config.rootpath / ".pytest_cache" / "programs"
    if folder.exists() and sum(file.stat().st_size for file in folder.iterdir()) > LARGEST:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _few_programs() -> Iterator[None]:
    """Every compiled program takes pieces of memory, of which Linux allows a process 65,530; beyond these it ends at once."""
    yield
    maps = Path("/proc/self/maps")
    if next(TESTS) % 10 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MOST_PIECES:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def _optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    marked = request.node.get_closest_marker("optimised") is not None
    jax.config.update("jax_disable_most_optimizations", QUICKLY and not marked)
    yield
    jax.config.update("jax_disable_most_optimizations", QUICKLY)
