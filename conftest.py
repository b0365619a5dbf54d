"""All tests run in float64 unless they say otherwise; what a process has compiled once it does not compile again.

Most programs of tests are small and take longer to compile than to run, so XLA is told not to optimise them much. Tests whose
programs run for long are marked `optimised`; `make thorough` sets JAX_DISABLE_MOST_OPTIMIZATIONS=0, which makes all of them so.
"""

import os
import tempfile
from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_enable_x64", True)
QUICKLY = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") != "0"
jax.config.update("jax_disable_most_optimizations", QUICKLY)


def pytest_configure(config: pytest.Config) -> None:
    """Many tests make the same programs anew: keep them in a folder of this process alone, for JAX writes without a lock."""
    programs = tempfile.TemporaryDirectory(prefix="fedlocal-tests-")
    config.add_cleanup(programs.cleanup)
    jax.config.update("jax_compilation_cache_dir", programs.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


@pytest.fixture(autouse=True)
def _optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    marked = request.node.get_closest_marker("optimised") is not None
    jax.config.update("jax_disable_most_optimizations", QUICKLY and not marked)
    yield
    jax.config.update("jax_disable_most_optimizations", QUICKLY)
