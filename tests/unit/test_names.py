"""Names: one class per name, no module named like what it holds, small folders and functions, the words of the glossary."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import fedlocal
from paths import ROOT

PACKAGE = Path(str(fedlocal.__file__)).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LARGEST_FOLDER = 18  # Python files, with __init__.py
LONGEST_FUNCTION = 80  # lines, with its signature and without its docstring
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def definitions(path: Path) -> list[Definition]:
    """The classes and functions at the top level of a module."""
    return [node for node in parsed(path).body if isinstance(node, Definition)]


def lines_of(function: Definition) -> int:
    """The lines of a function without its docstring."""
    first = function.body[0]
    is_docstring = ast.get_docstring(function) is not None
    text = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - text


def public_classes() -> dict[str, list[str]]:
    """The files that define each public class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in definitions(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name_of(path))
    return found


def unused_words() -> set[str]:
    """The words of the glossary's last table that names must not have."""
    rows = re.findall(r"^\| ([a-z, ]+) \| [^|]+ \|$", GLOSSARY.partition("## Not used")[2], re.MULTILINE)
    return {word for row in rows if row != "not" for word in row.split(", ")}


def glossary_modules() -> list[str]:
    """The modules in the last column of the glossary's tables."""
    cells = re.findall(r"\| ([^|]*`[^|]*) \|$", GLOSSARY, re.MULTILINE)
    return sorted({module for cell in cells for module in re.findall(r"`([\w.]+)`", cell)})


def words(name: str) -> set[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_public_class_names_are_unique():
    assert {name: files for name, files in public_classes().items() if len(files) > 1} == {}


def test_no_module_has_the_name_of_what_it_holds():
    assert [name_of(p) for p in FILES if p.stem in {node.name for node in definitions(p)}] == []


def test_folders_are_small():
    folders = {path.parent for path in FILES}
    assert [name_of(folder) for folder in folders if len(list(folder.glob("*.py"))) > LARGEST_FOLDER] == []


def test_functions_are_short():
    nodes = [(path, node) for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, Definition)]
    lengths = [(name_of(path), n.name, lines_of(n)) for path, n in nodes if not isinstance(n, ast.ClassDef)]
    assert len(lengths) > len(FILES)
    assert [function for function in lengths if function[-1] > LONGEST_FUNCTION] == []


def test_the_glossary_says_which_words_are_not_used():
    assert {"roll", "diary", "wish", "attendance", "patience", "walking"} <= unused_words()
    assert {"core.method", "simulation.sweeps.grid", "theory.advice.advisor"} <= set(glossary_modules())
    assert words("SiteRegistry") == {"site", "registry"}
    assert words("fed_ac") == {"fed", "ac"}
    assert words("HTTPGuard") == {"http", "guard"}


def test_modules_and_classes_use_the_words_of_the_glossary():
    unused = unused_words()
    classes = [(name_of(p), n.name) for p in FILES for n in definitions(p) if isinstance(n, ast.ClassDef)]
    modules = [(name_of(p), name) for p in FILES for name in (p.stem, p.parent.name)]
    assert [found for found in (*classes, *modules) if words(found[1]) & unused] == []


def test_modules_of_the_glossary_exist():
    paths = {module: PACKAGE / module.replace(".", "/") for module in glossary_modules()}
    assert [m for m, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []
