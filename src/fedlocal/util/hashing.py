"""Hashing: a short fingerprint of numbers and functions, by which runs are told apart and compiled programs made anew."""

import hashlib
import inspect
import sys
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

IDENTITY = "identity"  # in the metadata of a field: False if it is no part of what a thing is


def fingerprint(thing: Any) -> str:
    """Return a short hash of a problem or a method: of every number, and of the code of every function.

    What a function reads belongs to it: values of its closure, and, of a user's function, of the globals that it names.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, thing, {})
    return digest.hexdigest()


def _feed(digest: Any, thing: Any, seen: dict[int, Any]) -> None:
    if isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        array = np.ascontiguousarray(thing)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
        return
    if isinstance(thing, (str, bytes, int, float, complex, bool, type(None))):
        digest.update(f"{type(thing).__name__}{thing!r}".encode())
        return
    if id(thing) in seen:
        digest.update(f"again {list(seen).index(id(thing))}".encode())
        return
    seen[id(thing)] = thing  # kept, so that nothing else gets its id
    digest.update(type(thing).__qualname__.encode())  # not its module, so that a class may move
    if isinstance(thing, CodeType):
        parts: Any = (thing.co_code, thing.co_consts, thing.co_names)
    elif isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        own = (thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells)
        parts = (*own, *_globals_of(thing))
    elif isinstance(thing, (type, ModuleType)):
        parts = (thing.__name__,)
    elif isinstance(thing, MethodType):
        parts = (thing.__self__, thing.__func__)
    elif hasattr(thing, "__wrapped__"):  # jitted functions and the like
        parts = (thing.__wrapped__,)
    elif isinstance(thing, (set, frozenset)):
        parts = sorted(fingerprint(part) for part in thing)
    elif isinstance(thing, partial):
        parts = (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, dict):
        parts = [part for item in thing.items() for part in item]
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif is_dataclass(thing):
        parts = [getattr(thing, f.name) for f in fields(thing) if f.metadata.get(IDENTITY, True)]
    else:
        parts = [vars(thing)] if hasattr(thing, "__dict__") else ()
    for part in parts:
        _feed(digest, part, seen)


def _globals_of(function: FunctionType) -> list[Any]:
    """The values of the globals that a user's function names, but for modules, classes and what other modules define."""
    top, file = (function.__module__ or "").partition(".")[0], str(function.__globals__.get("__file__", ""))
    installed = "site-packages" in file or "dist-packages" in file
    if installed or top == "fedlocal" or top in sys.stdlib_module_names:
        return []
    found = []
    for name in sorted(_names_in(function.__code__)):
        value = function.__globals__.get(name)
        inner = inspect.unwrap(value) if callable(value) else value
        foreign = callable(inner) and getattr(inner, "__module__", None) != function.__module__
        if name in function.__globals__ and not isinstance(inner, (ModuleType, type)) and not foreign:
            found += [name, inner]
    return found


def _names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes in a function's code and in that of the functions inside it."""
    inside = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inside)
