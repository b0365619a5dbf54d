"""Imports point one way, and nothing that could execute what it reads is used."""

import ast
from functools import cache
from pathlib import Path

import fedlocal

ROOT = Path(fedlocal.__file__).parent
LAYERS = [
    {"util"},
    {"core"},
    {"losses", "regularizers", "mirrors", "data"},
    {"problems", "methods", "samplers"},
    {"plot", "report", "metrics", "callbacks", "stopping", "simulation", "solvers"},
    {"theory"},
    {"estimators", "experiments", "flower"},
    {"deploy"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    """Parts of fedlocal that a file imports, also inside its functions."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedlocal"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found & set(LEVEL)


def test_imports_point_down():
    found = [(str(path.relative_to(ROOT)), part(path), other) for path in FILES for other in imports(path)]
    assert len({own for _, own, _ in found}) > 10
    assert [(path, other) for path, own, other in found if LEVEL[other] > LEVEL[own]] == []


def test_every_part_has_a_place():
    assert {part(path) for path in FILES} == set(LEVEL)


def test_methods_see_no_data_keys_engines_or_files():
    methods = [path for path in FILES if part(path) == "methods"]
    allowed = {"util", "core", "methods", "mirrors", "regularizers"}
    assert methods
    assert [path.name for path in methods if not imports(path) <= allowed or "random" in path.read_text()] == []


def test_nothing_unpickles():
    for path in FILES:
        for node in nodes(path):
            names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            assert not {"pickle", "cloudpickle", "dill", "joblib"} & set(names), path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
