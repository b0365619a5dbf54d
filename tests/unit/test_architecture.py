"""Imports point one way, and nothing that could execute what it reads is used."""

import ast
from pathlib import Path

import pytest

import fedlocal

ROOT = Path(fedlocal.__file__).parent
LAYERS = [
    {"util"},
    {"core"},
    {"losses", "regularizers", "mirrors", "data"},
    {"problems", "methods"},
    {"report", "metrics", "simulation", "solvers"},
    {"theory"},
    {"estimators", "experiments", "flower"},
    {"deploy"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Parts of fedlocal that a file imports, also inside its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedlocal"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found & set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path):
    for other in imports(path) - {part(path)}:
        assert LEVEL[other] <= LEVEL[part(path)], f"{path.name} imports {other}"


def test_every_part_has_a_place():
    assert {part(path) for path in FILES} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_methods_see_no_data_keys_engines_or_files(path: Path):
    if part(path) == "methods":
        assert imports(path) <= {"util", "core", "methods", "mirrors", "regularizers"}
        assert "random" not in path.read_text()


def test_nothing_unpickles():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            assert not {"pickle", "cloudpickle", "dill", "joblib"} & set(names), path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
