"""Names of earlier versions: importing one of them fails with a message that says where it is now."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

MOVED = {  # old name below `fedlocal`: what replaces it
    "engines": "fedlocal.simulation (fl.simulate, fl.sweep, fl.loop) and fedlocal.flower",
    "certificates": "fedlocal.solvers.certificates",
    "recipes": "fedlocal.methods.method_spec",
    "means": "fedlocal.problems.smooth_part",
    "wire": "fedlocal.util.serialization",
    "checks": "fedlocal.util.checks",
    "progress": "fedlocal.util.progress",
    "provenance": "fedlocal.util.provenance",
    "federated_data": "fedlocal.data.federated_data",
}


def moved_message(name: str) -> str:
    """Return the sentence that says where a moved name is now."""
    return f"fedlocal.{name} was moved in version 0.3: use {MOVED[name]}"


class MovedModules(MetaPathFinder):
    """Answers `import fedlocal.engines` and the like, which no other finder knows, with an error that names the new module."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package, _, name = fullname.partition(".")
        if package == "fedlocal" and name in MOVED:
            raise ModuleNotFoundError(moved_message(name))


def install() -> None:
    """Ask `MovedModules` after all other finders."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
