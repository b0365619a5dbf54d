"""Functions that need an optional dependency say how to install it; everything else works without it, and without what is
not used yet."""

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fedlocal.problems.oracle import quadratics
from fedlocal.theory import sde_bias
from fedlocal.theory.constructions import instability
from fedlocal.util.optional import optional_import

OPTIONAL = ("diffrax", "lineax", "mpmath")


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports as after `pip install fedlocal`, without the extra `theory`."""
    found = importlib.import_module

    def refuse(name: str, package: str | None = None) -> Any:
        if name in OPTIONAL:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name, package)

    monkeypatch.setattr("fedlocal.util.optional.import_module", refuse)


def test_sde_bias_names_the_extra(without_extra: None):
    problem = quadratics(np.eye(3)[None], np.zeros((1, 3)))  # a shape that no other test has compiled
    with pytest.raises(ModuleNotFoundError, match=r'sde_bias needs diffrax: pip install "fedlocal\[theory\]"'):
        sde_bias(problem, np.ones(3), 0.1, [3], np.eye(3), pairs=2)


def test_unstable_objective_names_the_extra(without_extra: None):
    instability._context.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r'unstable_objective needs mpmath: pip install "fedlocal\[theory\]"'):
        instability.unstable_objective(kappa=100.0, blocks=1)


def test_a_broken_dependency_of_an_optional_one_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def broken(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'inner'", name="inner")

    monkeypatch.setattr("fedlocal.util.optional.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="No module named 'inner'"):
        optional_import("f", "outer", "theory")


def test_nothing_is_imported_before_its_use_and_the_theory_without_optional_dependencies():
    """A command that only says how it is called starts in a fraction of the time that JAX takes to import."""
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))  # None: their import fails\n"
        "import fedlocal.cli\n"
        "print({'jax', 'pandas', 'numba'} & set(sys.modules))\n"
        "from fedlocal import simulate\n"
        "print('jax' in sys.modules, simulate.__name__)\n"
        "import fedlocal.theory, fedlocal.theory.constructions.instability\n"
        "import fedlocal.experiments.studies.instability.study\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["set()", "True simulate"]
