"""All tests run in float64 unless they say otherwise; what a process has compiled once it does not compile again."""

import tempfile

import jax
import pytest

jax.config.update("jax_enable_x64", True)


def pytest_configure(config: pytest.Config) -> None:
    """Many tests make the same programs anew: keep them in a folder of this process alone, for JAX writes without a lock."""
    programs = tempfile.TemporaryDirectory(prefix="fedlocal-tests-")
    config.add_cleanup(programs.cleanup)
    jax.config.update("jax_compilation_cache_dir", programs.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
