"""What is used of Flower beyond its public modules stands in one file."""

import ast
from pathlib import Path

import pytest

import fedlocal
from fedlocal.flower import _flwr

ROOT = Path(fedlocal.__file__).parent
PUBLIC = {"flwr", "flwr.app", "flwr.clientapp", "flwr.clientapp.mod", "flwr.serverapp", "flwr.serverapp.strategy"}
OWN = ROOT / "flower" / "_flwr.py"


def imported(path: Path) -> dict[str, set[str]]:
    """The modules of Flower that a file imports, and the names that it takes from each."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            names = {alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in node.names}
            found.setdefault(str(node.module), set()).update(names)
        if isinstance(node, ast.Import):
            found |= {alias.name: set() for alias in node.names if alias.name.split(".")[0] == "flwr"}
    return found


def test_private_modules_are_imported_in_one_file():
    for path in ROOT.rglob("*.py"):
        if path != OWN:
            assert set(imported(path)) <= PUBLIC, path


def test_what_is_imported_lazily_is_what_type_checkers_see():
    assert imported(OWN) == {module: set(names) for module, names in _flwr._NAMES.items()}


@pytest.mark.parametrize("name", sorted(_flwr._PLACES))
def test_this_flower_has_every_name(name: str):
    getattr(_flwr, name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = _flwr.nothing  # pyright: ignore[reportAttributeAccessIssue]
