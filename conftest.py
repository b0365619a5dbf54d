"""All tests run in float64 unless they say otherwise; what one process has compiled the others need not compile again.

Most programs of tests are small and take longer to compile than to run, so XLA is told not to optimise them much, also in the
processes that tests start. Tests whose programs run for long are marked `optimised`; `make thorough` sets
JAX_DISABLE_MOST_OPTIMIZATIONS=0, which compiles all of them as for users.
"""

import os
import signal
import tempfile
from collections.abc import Iterator

QUICKLY = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") != "0"
if QUICKLY and "XLA_FLAGS" not in os.environ:  # the older emitters of loops compile in half the time
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
PROGRAMS = "JAX_COMPILATION_CACHE_DIR"

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in the background of a shell; processes of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Many tests make the same programs anew: keep them in a folder that all processes of this run share.

    JAX writes them without a lock. A program that is read while it is written is damaged, which JAX notices and warns of.
    """
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache entry")
    if PROGRAMS not in os.environ:
        programs = tempfile.TemporaryDirectory(prefix="fedlocal-tests-")
        config.add_cleanup(programs.cleanup)
        environment = pytest.MonkeyPatch()
        environment.setenv(PROGRAMS, programs.name)
        config.add_cleanup(environment.undo)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


@pytest.fixture(autouse=True)
def _optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    marked = request.node.get_closest_marker("optimised") is not None
    jax.config.update("jax_disable_most_optimizations", QUICKLY and not marked)
    yield
    jax.config.update("jax_disable_most_optimizations", QUICKLY)
