"""Hashing: a short fingerprint of numbers and functions, by which runs are told apart and compiled programs made anew."""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

IDENTITY = "identity"  # in the metadata of a field: False if it is no part of what a thing is
KEPT = {"scan", "fori_loop", "while_loop", "cond", "switch", "map", "checkpoint", "remat", "associative_scan", "jit"}
# the last fingerprints of functions that JAX may keep
_TRACED: WeakKeyDictionary[FunctionType, str] = WeakKeyDictionary()


def fingerprint(thing: Any) -> str:
    """Return a short hash of a problem or a method: of every number, and of the code of every function.

    What a function reads belongs to it: values of its closure, and, of a user's function, the globals that it names, with what it
    names of the user's modules, and all of the user's classes among them. The code of a user's class belongs to its objects.
    """
    hasher = _Hasher()
    hasher.feed(thing)
    return hasher.digest.hexdigest()


def forget_old_traces(functions: Any) -> None:
    """Make JAX forget all that it has traced if it may hold these functions with what they read before.

    It keeps the traces of functions that users compile, or give to its loops and branches, by the function alone. It can only
    forget all, so that this is done only if one of these functions was seen to read something else in an earlier call.
    """
    hasher = _Hasher()
    hasher.feed(functions)
    seen = list(hasher.seen.values())
    if not any((isinstance(thing, CodeType) and _names_in(thing) & KEPT) or _is_compiled(thing) for thing in seen):
        return
    now = {thing: fingerprint(thing) for thing in seen if isinstance(thing, FunctionType)}
    changed = any(_TRACED.get(function, version) != version for function, version in now.items())
    _TRACED.update(now)
    if changed:
        jax.clear_caches()


class _Hasher:
    """Goes through all that a thing is made of, and hashes it."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.seen: dict[int, Any] = {}  # kept, so that nothing else gets the id of one

    def feed(self, thing: Any) -> None:
        if isinstance(thing, jax.Array) and jax.numpy.issubdtype(thing.dtype, jax.dtypes.prng_key):
            self.digest.update(str(thing.dtype).encode())
            thing = jax.random.key_data(thing)
        if isinstance(thing, (np.ndarray, np.generic, jax.Array)) and thing.dtype != object:
            array = np.ascontiguousarray(thing)
            self.digest.update(f"{array.dtype}{array.shape}".encode())
            self.digest.update(array.tobytes())
            return
        if isinstance(thing, (str, bytes, int, float, complex, bool, type(None))):
            self.digest.update(f"{type(thing).__name__}{thing!r}".encode())
            return
        if id(thing) in self.seen:
            self.digest.update(f"again {list(self.seen).index(id(thing))}".encode())
            return
        self.seen[id(thing)] = thing
        self.digest.update(type(thing).__qualname__.encode())  # not its module, so that a class may move
        for part in _parts(thing):
            self.feed(part)


def _parts(thing: Any) -> Iterable[Any]:
    """Return what a thing is made of, as far as it is no number or text."""
    if isinstance(thing, CodeType):
        return thing.co_code, thing.co_consts, thing.co_names
    if isinstance(thing, FunctionType):
        return thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, _reads(thing)
    if isinstance(thing, (type, ModuleType)):
        return (thing.__name__,)
    if isinstance(thing, MethodType):
        return thing.__self__, thing.__func__
    if hasattr(thing, "__wrapped__"):  # jitted functions and the like
        return (thing.__wrapped__,)
    if isinstance(thing, (set, frozenset)):
        return sorted(fingerprint(part) for part in thing)
    if isinstance(thing, partial):
        return thing.func, thing.args, thing.keywords
    if isinstance(thing, dict):
        return [part for item in thing.items() for part in item]
    if isinstance(thing, (list, tuple)):
        return thing
    if isinstance(thing, np.ndarray):  # of objects
        return thing.tolist()
    if is_dataclass(thing):
        own = [getattr(thing, f.name) for f in fields(thing) if f.metadata.get(IDENTITY, True)]
        return [*own, *class_code(type(thing))]
    if isinstance(thing, property):
        return thing.fget, thing.fset
    if isinstance(thing, (staticmethod, classmethod)):
        return (thing.__func__,)
    return [*_held(thing), *(_members(type(thing)) if callable(thing) else ())]


def _held(thing: Any) -> list[Any]:
    """Return the attributes of an object, or what it would be copied from if it has none."""
    if hasattr(thing, "__dict__"):
        return [vars(thing)]
    try:
        reduced = thing.__reduce_ex__(2)
    except Exception:  # it cannot be copied
        return []
    if isinstance(reduced, str):
        return [reduced]
    return [*reduced[1:3], *(list(items) for items in reduced[3:5] if items is not None)]


def _reads(function: FunctionType) -> list[Any]:
    """What a function reads besides its arguments: what its closure holds and, if it is a user's, the globals that it names."""
    names, code = _names_in(function.__code__), function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closed = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    if not _is_users(function):
        return list(closed.values())
    return [*_named(set(closed), closed, names, set()), *_named(names, function.__globals__, names, set())]


def _named(wanted: set[str], namespace: Mapping[str, Any], names: set[str], modules: set[str]) -> list[Any]:
    """The wanted values of a namespace with their names, but for what installed modules define.

    `names` are those in the function that reads: of the user's modules it reads what has one of them.
    """
    found: list[Any] = []
    for name in sorted(wanted & namespace.keys()):
        value = namespace[name]
        if isinstance(value, ModuleType):
            if _is_users(value) and value.__name__ not in modules:
                found += _named(names, vars(value), names, modules | {value.__name__})
        elif isinstance(value, type):
            found += [name, value, *_members(value)]
        elif not _is_installed_function(value):
            found += [name, value, *([] if callable(value) else _members(type(value)))]
    return found


def _is_compiled(thing: Any) -> bool:
    """Return True for what `jax.jit` makes, and other libraries with it."""
    return hasattr(thing, "__wrapped__") and hasattr(thing, "lower")


def _is_filled(cell: CellType) -> bool:
    """Return False for a variable of a closure that has no value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_installed_function(value: Any) -> bool:
    """Return True for a function, compiled or not, of an installed module, unless it may hold numbers of the user's."""
    inner = inspect.unwrap(value) if callable(value) else value
    if not isinstance(inner, (FunctionType, BuiltinFunctionType, np.ufunc)) or _is_users(inner):
        return False
    holds = getattr(inner, "__closure__", None) is not None  # e.g. a schedule of Optax
    return not holds or (inner.__module__ or "").partition(".")[0] in ("jax", "numpy")


def _members(kind: type) -> list[Any]:
    """Return what a user's class and those above it define, with the names, but for what Python itself adds."""
    return [
        part
        for base in kind.__mro__
        if _is_users(base)
        for name, value in vars(base).items()
        if name == "__call__" or not name.startswith(("__", "_abc_"))
        for part in (name, value)
    ]


def class_code(kind: type) -> list[Any]:
    """Return the code of the functions that a user's class and those above it define, with their names; not what they read, which
    may change from call to call."""
    found: list[Any] = []
    for value in _members(kind):
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        inner = getattr(inner, "method", inner)  # as Equinox keeps it
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, (str, int, float, FunctionType)):
            found.append(inner.__code__ if isinstance(inner, FunctionType) else inner)
    return found


def _is_users(thing: Any) -> bool:
    """Return True if a module, a class or a function belongs to the user: Python, fedlocal and what is installed do not."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""
    file = str(getattr(sys.modules.get(name), "__file__", None) or "")
    top = name.partition(".")[0]
    installed = "site-packages" in file or "dist-packages" in file
    return not (installed or top == "fedlocal" or top in sys.stdlib_module_names)


def _names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes in a function's code and in that of the functions inside it."""
    inside = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inside)
