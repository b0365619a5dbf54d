"""What `import fedlocal` offers: every name is there, and type checkers are told the same.

That nothing is imported before its use is shown in `util/test_optional.py`, in a process of its own.
"""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedlocal as fl
from fedlocal.util.moved import MOVED


@pytest.mark.parametrize("name", fl.__all__)
def test_every_name_is_there(name: str):
    assert name in dir(fl)
    found = getattr(fl, name)
    if name in fl.PLACES:
        assert found is getattr(import_module(fl.PLACES[name]), name)
    elif name != "__version__":
        assert isinstance(found, ModuleType)
        assert found is sys.modules[f"fedlocal.{name}"]


def public_modules(module: ModuleType, name: str) -> dict[str, ModuleType]:
    """The public modules below a module, by their names as users write them."""
    inner = {f"{name}.{each}": getattr(module, each) for each in dir(module) if not each.startswith("_")}
    found = {path: value for path, value in inner.items() if isinstance(value, ModuleType)}
    return found | {path: each for own, value in found.items() for path, each in public_modules(value, own).items()}


def test_tab_completion_shows_public_names_only():
    modules = public_modules(fl, "fl")
    assert {"fl.data", "fl.data.partition", "fl.metrics", "fl.plot", "fl.theory"} <= set(modules)
    for path, module in {**modules, "fedlocal.flower": import_module("fedlocal.flower")}.items():
        assert sorted(dir(module)) == sorted(module.__all__), path
        for name in dir(module):
            owner = getattr(getattr(module, name), "__module__", "fedlocal")
            assert owner.startswith("fedlocal"), f"{path}.{name} comes from {owner}"


def test_type_checkers_are_told_the_same():
    tree = ast.parse(Path(str(fl.__file__)).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    parts = {name: "fedlocal" for name in fl.__all__ if name not in fl.PLACES and name != "__version__"}
    assert told == {**parts, **fl.PLACES}
    assert set(told) == set(fl.__all__) - {"__version__"}


def test_a_name_that_is_not_there_is_told():
    with pytest.raises(AttributeError, match="module 'fedlocal' has no attribute 'FedAvg'"):
        fl.FedAvg  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_says_where_it_is(name: str):
    sentence = f"fedlocal.{name} was moved in version 0.3: use {MOVED[name]}"
    with pytest.raises(AttributeError) as attribute:
        getattr(fl, name)
    assert str(attribute.value) == sentence
    for statement in (
        f"import fedlocal.{name}",
        f"from fedlocal.{name} import something",
        f"from fedlocal import {name}",
    ):
        with pytest.raises(ModuleNotFoundError) as missing:
            exec(statement)
        assert str(missing.value) == sentence


@pytest.mark.parametrize("name", MOVED)
def test_what_replaces_a_moved_name_exists(name: str):
    for module in re.findall(r"fedlocal[.\w]+", MOVED[name]):
        assert import_module(module)


def test_other_modules_that_are_missing_are_reported_as_usual():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'fedlocal\.nothing'"):
        import_module("fedlocal.nothing")
    with pytest.raises(ModuleNotFoundError, match="No module named 'wire'"):
        import_module("wire")
