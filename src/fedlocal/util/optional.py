"""Dependencies that only some functions need: they are imported at their first use."""

from importlib import import_module
from typing import Any


def optional_import(owner: str, module: str, extra: str) -> Any:
    """Return a module of an optional dependency, or say how to install it.

    Args:
        owner: the function that needs it, for the message.
        module: the name of the module.
        extra: the extra of fedlocal that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:  # a dependency of it is broken, which is another matter
            raise
        needs = f'{owner} needs {error.name}: pip install "fedlocal[{extra}]"'
        raise ModuleNotFoundError(needs, name=error.name) from None
