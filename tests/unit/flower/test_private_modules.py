"""What is used of Flower beyond its public modules stands in one folder."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import fedlocal

ROOT = Path(fedlocal.__file__).parent
PUBLIC = {"flwr", "flwr.app", "flwr.clientapp", "flwr.clientapp.mod", "flwr.serverapp", "flwr.serverapp.strategy"}
OWN = ROOT / "flower" / "_flwr"
PARTS = sorted(path.stem for path in OWN.glob("*.py") if path.stem != "__init__")


def imported(path: Path) -> set[str]:
    """The modules of Flower that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "flwr"}


def test_private_modules_are_imported_in_one_folder():
    for path in ROOT.rglob("*.py"):
        if path.parent != OWN:
            assert imported(path) <= PUBLIC, path


@pytest.mark.parametrize("part", PARTS)
def test_this_flower_has_every_name(part: str):
    assert imported(OWN / f"{part}.py")
    import_module(f"fedlocal.flower._flwr.{part}")


def test_a_site_needs_nothing_of_the_coordinator():
    for part in ("messages", "site", "app"):
        assert not any("superlink" in module for module in imported(OWN / f"{part}.py")), part
