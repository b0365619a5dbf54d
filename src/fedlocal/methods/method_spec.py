"""A method as a flat dict of plain values that any record, JSON or TOML can carry, and back.

A path names a place in the method: {"method": "FedMiD", "method.regularizer": "L1", "method.regularizer.strength": 0.1}.
A bool or a number stands for itself. A string names what is there, and what belongs to it is below its path:
    a class, "L1":                                   its arguments by name; those that are None are left out;
    an array, "numpy.float32", "jax.float64", "weak_jax.float64", or nested sequences, "tuple.int", "list.float":
                                                     "values", flat, and "shape" (left out for a single number);
    "dict":                                          "keys" (left out when there are none), values by position, 0, 1, ...;
    "list", "tuple":                                 "length", elements by position;
    "str":                                           "value".
Names are looked up among the classes of this library and those of `register`, and an object is made by its constructor
alone: nothing that was received is executed.
"""

import dataclasses
import hashlib
import inspect
import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal import methods, mirrors, regularizers
from fedlocal.core import LocalMethod, MirrorMap, Regularizer
from fedlocal.util import checks

Plain: TypeAlias = int | float | str | bool | list[int] | list[float] | list[str]
Class = TypeVar("Class", bound=type)

LIMIT = 10_000_000  # numbers and characters in a description
DEPTH = 64  # parts of a path
AXES = 32  # of an array
PLAIN = (bool, int, float, str)
BASES = (LocalMethod, Regularizer, MirrorMap)
CONTAINERS = {"dict": dict, "list": list, "tuple": tuple}
FLOATS = ["bfloat16", "float16", "float32", "float64"]
ARRAY_TYPES = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]
TABLES = {
    **{f"{kind}.{dtype}": (kind, dtype) for kind in ("numpy", "jax", "weak_jax") for dtype in ARRAY_TYPES},
    **{f"{kind}.{number}": (kind, number) for kind in ("list", "tuple") for number in ("int", "float")},
}
OURS: dict[str, type] = {name: vars(p)[name] for p in (methods, regularizers, mirrors) for name in p.__all__}
_registered: dict[str, type] = {}


def register(cls: Class) -> Class:
    """Let methods, regularisers and mirror maps of your own be described; a decorator. Every side must have it installed.

    Each argument of the constructor must be a field of the same name that holds what was given.

    >>> @register
    ... class Mine(methods.FedAvg):
    ...     pass
    >>> rebuild(describe(Mine(0.1)))
    Mine(client_step_size=0.1, server_step_size=1.0, server_optimizer=None)
    """
    if not set(BASES) & set(getattr(cls, "__mro__", ())):
        raise TypeError(f"register: cls must be a LocalMethod, Regularizer or MirrorMap, got {cls!r}")
    name = cls.__name__
    there = {**OURS, **CONTAINERS, "str": str, **_registered}.get(name, cls)
    if (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"register: the name {name!r} is taken by {there!r}; rename the class")
    fields = [field.name for field in dataclasses.fields(cls)]
    for argument, parameter in _parameters(cls).items():
        if argument not in fields or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"register: {name}: argument {argument!r} must be a field; it has: {', '.join(fields)}")
    _registered[name] = cls
    return cls


def describe(method: LocalMethod) -> dict[str, Plain]:
    """What a client needs to know of a method, from which `rebuild` makes it.

    A server optimiser of FedAvg stays on the server: what is described is FedAvg without it, which has the same clients.

    >>> describe(methods.FedAvg(client_step_size=0.1))
    {'method': 'FedAvg', 'method.client_step_size': 0.1, 'method.server_step_size': 1.0}
    """
    checks.instance("describe", "method", method, LocalMethod)
    method = type(method).for_clients(method)  # not bound, for that flattens what may not be a pytree
    description = dict(_write("method", method))
    if not eqx.tree_equal(rebuild(description), method):
        wanted = "its constructor and those of its parts must keep each argument in the field of its name, as it came"
        raise ValueError(f"describe: {type(method).__name__} cannot be rebuilt from what it holds; {wanted}")
    return description


def rebuild(description: Mapping[str, Plain]) -> LocalMethod:
    """The method that `describe` described; ValueError for anything that `describe` would not have written.

    >>> rebuild({"method": "FedAvg", "method.client_step_size": 0.1, "method.server_step_size": 1.0})
    FedAvg(client_step_size=0.1, server_step_size=1.0, server_optimizer=None)
    """
    description = _checked(description)
    method = _read(description, "method")
    if not isinstance(method, LocalMethod):
        names = (name for name, cls in _classes().items() if issubclass(cls, LocalMethod))
        got = reprlib.repr(description["method"])
        raise ValueError(f"rebuild: 'method' must name a method, got {got}; there are: {', '.join(names)}")
    _compare(description, dict(_write("method", method)))
    return method


def digest(description: Mapping[str, Plain]) -> str:
    """A short name for a description: a hash of its JSON, whatever the order of its keys."""
    canonical = json.dumps(dict(description), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def _classes() -> dict[str, type]:
    return {**OURS, **_registered}


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments of a constructor."""
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    return {parameter.name: parameter for parameter in parameters}


def _write(path: str, value: Any) -> Iterator[tuple[str, Plain]]:
    _check_depth("describe", path)
    if type(value) in (bool, int, float):
        yield path, value
    elif type(value) is str:
        yield from ((path, "str"), (f"{path}.value", value))
    elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
        yield from _write_array(path, value)
    elif type(value) in (list, tuple):
        yield from _write_sequence(path, value)
    elif type(value) is dict:
        yield from _write_dict(path, value)
    elif isinstance(value, BASES):
        yield from _write_object(path, value)
    else:
        can = "numbers, strings, arrays, dicts, lists, tuples, regularisers and mirror maps can"
        raise ValueError(f"describe: {path} cannot be described, got {reprlib.repr(value)}; {can}")


def _write_object(path: str, value: Any) -> Iterator[tuple[str, Plain]]:
    cls = type(value)
    if _classes().get(cls.__name__) is not cls:
        advice = f"say fedlocal.methods.method_spec.register({cls.__name__})"
        raise ValueError(f"describe: {path} is of the unknown {cls!r}; {advice}")
    yield path, cls.__name__
    for name, parameter in _parameters(cls).items():
        argument = getattr(value, name)
        if argument is not None:
            yield from _write(f"{path}.{name}", argument)
        elif parameter.default is not None:
            raise ValueError(f"describe: {path}.{name} is None, which is not its default")


def _write_array(path: str, value: Any) -> Iterator[tuple[str, Plain]]:
    if checks.is_traced(value):
        raise ValueError(f"describe: {path} is only known inside a compiled program; describe the method outside of it")
    kind = "numpy" if not isinstance(value, jax.Array) else "weak_jax" if jax.typeof(value).weak_type else "jax"
    name = f"{kind}.{value.dtype}"
    if name not in TABLES or not value.size:
        can = f"arrays of one of these with at least one element can: {', '.join(ARRAY_TYPES)}"
        raise ValueError(f"describe: {path} cannot be described, got {name} of shape {value.shape}; {can}")
    yield from _write_table(path, name, np.asarray(value, _number_type(str(value.dtype))))


def _write_sequence(path: str, value: Any) -> Iterator[tuple[str, Plain]]:
    kind = type(value)
    for number in (int, float):
        table = _table(value, number)
        if table is not None and _nested(table.tolist(), kind) == value:
            yield from _write_table(path, f"{kind.__name__}.{number.__name__}", table)
            return
    yield from ((path, kind.__name__), (f"{path}.length", len(value)))
    for position, element in enumerate(value):
        yield from _write(f"{path}.{position}", element)


def _table(value: Any, number: type) -> np.ndarray | None:
    """Nested sequences of numbers of one type as an array, where they are one."""
    if {type(leaf) for leaf in jax.tree.leaves(value)} != {number}:
        return None
    try:
        return np.array(value, number)
    except (ValueError, TypeError, OverflowError):  # of unequal lengths, not only sequences, or too large
        return None


def _write_table(path: str, name: str, table: np.ndarray) -> Iterator[tuple[str, Plain]]:
    yield path, name
    if table.ndim:
        yield f"{path}.shape", list(table.shape)
    yield f"{path}.values", table.ravel().tolist()


def _write_dict(path: str, value: dict[Any, Any]) -> Iterator[tuple[str, Plain]]:
    if {type(key) for key in value} not in ({str}, {int}, set()):
        raise ValueError(f"describe: {path} must have strings or whole numbers as keys, got {list(value)}")
    yield path, "dict"
    keys = sorted(value)  # as pytrees have them
    if keys:
        yield f"{path}.keys", keys
    for position, key in enumerate(keys):
        yield from _write(f"{path}.{position}", value[key])


def _checked(description: Any) -> dict[str, Any]:
    """A description of plain values and of a size that can be worked with."""
    if not isinstance(description, Mapping):
        raise ValueError(f"rebuild: a description must be a dict, got {reprlib.repr(description)}")
    size = sum(len(value) if isinstance(value, (list, str)) else 1 for value in description.values())
    if size > LIMIT:
        raise ValueError(f"rebuild: a description may hold at most {LIMIT} numbers, got {size}")
    for path, value in description.items():
        if type(path) is not str:
            raise ValueError(f"rebuild: keys must be strings, got {reprlib.repr(path)}")
        kinds = {type(element) for element in value} if type(value) is list else {type(value)}
        if len(kinds) != 1 or not kinds <= set(PLAIN):
            wanted = "a bool, number, string or a list of one of these"
            raise ValueError(f"rebuild: {_short(path)} must be {wanted}, got {reprlib.repr(value)}")
        if kinds == {int} and not all(-(2**63) <= n < 2**63 for n in (value if type(value) is list else [value])):
            raise ValueError(f"rebuild: {_short(path)} must fit into 64 bits, got {reprlib.repr(value)}")
    return dict(description)


def _read(description: dict[str, Any], path: str) -> Any:
    _check_depth("rebuild", path)
    name = _item(description, path)
    if isinstance(name, list):
        raise ValueError(f"rebuild: {path} must be a number or a name, got the list {reprlib.repr(name)}")
    if not isinstance(name, str):
        return name
    if name == "str":
        return _item(description, f"{path}.value", str)
    if name in TABLES:
        return _read_table(description, path, *TABLES[name])
    if name == "dict":
        keys = _items(description, f"{path}.keys", (str, int), optional=True)
        return {key: _read(description, f"{path}.{position}") for position, key in enumerate(keys)}
    if name in CONTAINERS:
        length = _item(description, f"{path}.length", int)
        return CONTAINERS[name](_read(description, f"{path}.{position}") for position in range(length))
    return _read_object(description, path, name)


def _read_object(description: dict[str, Any], path: str, name: str) -> Any:
    cls = _classes().get(name)
    if cls is None:
        known = f"known: {', '.join(_classes())}; fedlocal.methods.method_spec.register adds your own"
        raise ValueError(f"rebuild: {path} names {reprlib.repr(name)}, which is not known here; {known}")
    static = {field.name for field in dataclasses.fields(cls) if field.metadata.get("static", False)}
    arguments = {}
    for argument, parameter in _parameters(cls).items():
        place = f"{path}.{argument}"
        if place not in description and parameter.default is None:
            continue
        value = arguments[argument] = _read(description, place)
        if argument not in static and any(isinstance(leaf, str) for leaf in jax.tree.leaves(value)):
            raise ValueError(f"rebuild: {place} must hold numbers, got {reprlib.repr(value)}")
    try:
        return cls(**arguments)
    except Exception as error:  # whatever the constructor has against these arguments
        raise ValueError(f"rebuild: {path}: {_short(str(error))}") from error


def _read_table(description: dict[str, Any], path: str, kind: str, dtype: str) -> Any:
    values = _items(description, f"{path}.values", (_number_type(dtype),))
    shape = _items(description, f"{path}.shape", (int,), optional=kind not in CONTAINERS)
    if min(shape, default=1) < 1 or math.prod(shape) != len(values) or len(shape) > AXES:
        got = reprlib.repr(shape)
        raise ValueError(f"rebuild: {path}.shape must be that of an array of {len(values)} numbers, got {got}")
    with np.errstate(over="ignore"):  # a number that is too large is found by comparison
        table = np.array(values, _number_type(dtype)).astype(dtype).reshape(shape)
    if kind in CONTAINERS:
        return _nested(table.tolist(), CONTAINERS[kind])
    return table[()] if kind == "numpy" else _on_device(path, table, weak=kind == "weak_jax")


def _on_device(path: str, table: np.ndarray, weak: bool) -> jax.Array:
    zero = 0.0 if _number_type(str(table.dtype)) is float else 0
    array = jnp.full(table.shape, zero).at[...].set(table) if weak else jnp.asarray(table)  # full: weakly typed
    if array.dtype != table.dtype:
        advice = "set jax_enable_x64 as it was where the method was described"
        raise ValueError(f"rebuild: {path} is an array of {table.dtype} and would be of {array.dtype} here; {advice}")
    return array


def _item(description: dict[str, Any], path: str, kind: type | None = None) -> Any:
    if path not in description:
        raise ValueError(f"rebuild: {_short(path)} is missing")
    value = description[path]
    if kind is not None and type(value) is not kind:
        raise ValueError(f"rebuild: {path} must be of type {kind.__name__}, got {reprlib.repr(value)}")
    return value


def _items(description: dict[str, Any], path: str, kinds: tuple[type, ...], optional: bool = False) -> list[Any]:
    if optional and path not in description:
        return []
    values = _item(description, path, list)
    if type(values[0]) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"rebuild: {path} must be a list of type {names}, got {reprlib.repr(values)}")
    return values


def _compare(description: dict[str, Any], again: dict[str, Any]) -> None:
    """A description must be what the rebuilt method is described by: no key too many or too few, no value converted."""
    unknown = description.keys() - again.keys()
    if unknown:
        raise ValueError(f"rebuild: {_short(min(unknown))} is unknown; there are: {reprlib.repr(sorted(again))}")
    for path, value in again.items():
        given = _item(description, path)
        if _kind(given) != _kind(value) or (given != value and repr(given) != repr(value)):  # nan is nan
            wanted = reprlib.repr(value)
            raise ValueError(f"rebuild: {path} must be written as {wanted}, got {reprlib.repr(given)}")


def _kind(value: Plain) -> tuple[type, ...]:
    """Tells 1, 1.0 and True apart."""
    return (list, type(value[0])) if isinstance(value, list) else (type(value),)


def _number_type(dtype: str) -> type:
    return float if dtype in (*FLOATS, "float") else int


def _nested(values: Any, kind: type) -> Any:
    return kind(_nested(value, kind) for value in values) if isinstance(values, list) else values


def _check_depth(owner: str, path: str) -> None:
    if path.count(".") >= DEPTH:
        raise ValueError(f"{owner}: {_short(path)} is nested deeper than {DEPTH} parts")


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}..."
