"""Every public class and function says what its arguments are."""

import importlib
import inspect
import re
from typing import Any

import pytest

MODULES = (
    "",
    ".methods",
    ".problems",
    ".regularizers",
    ".mirrors",
    ".metrics",
    ".callbacks",
    ".stopping",
    ".estimators",
    ".plot",
    ".solvers",
    ".data",
    ".theory",
)
RESULTS = {  # returned and never made by users; their fields are described where they are declared
    *("Advice", "Bound", "Certificate", "Estimate", "Evaluation", "Examples", "LocalModel", "Outcome", "Solution"),
    *("Event", "Moments", "Scaling"),
}


def undocumented(thing: Any) -> set[str]:
    """The parameters that the section `Args:` of a docstring does not name."""
    section = re.search(r"Args:\n(.*?)(?:\n\s*\n|\Z)", thing.__doc__ or "", re.DOTALL)
    named = re.findall(r"^\s+([\w, *]+):", section.group(1), re.MULTILINE) if section else []
    return set(inspect.signature(thing).parameters) - {n.strip(" *") for line in named for n in line.split(",")}


@pytest.mark.parametrize("name", [f"fedlocal{module}" for module in (*MODULES, ".flower")])
def test_every_argument_of_a_public_name_is_described(name: str) -> None:
    module = importlib.import_module(name)
    missing = {}
    for each in set(module.__all__) - RESULTS:
        thing = getattr(module, each)
        own = getattr(thing, "__module__", "").startswith("fedlocal")
        if own and (inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception))):
            missing[each] = undocumented(thing)
    assert not {each: sorted(names) for each, names in missing.items() if names}
