"""Values as plain JSON with named arrays, and back. Nothing that is read is executed.

None, bools, numbers and strings stand for themselves, a list for a list. All else is an object with one key, which says what
it is: "tuple", "dict", "array", "frame", "method", ...; see `ValueWriter.node`.
"""

import dataclasses
import keyword
import reprlib
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod
from fedlocal.methods.method_spec import describe, rebuild
from fedlocal.simulation.plan import Cohorts, Plan
from fedlocal.simulation.result import Divergence, ProblemReference, Result
from fedlocal.simulation.saved import frames
from fedlocal.simulation.saved.fields import checked_fields
from fedlocal.simulation.sweeps.result import SweepResult
from fedlocal.util.hashing import fingerprint

CLASSES = {cls.__name__: cls for cls in (Result, SweepResult, Plan, Divergence)}  # rebuilt from their fields
NUMBERS = "biufcUS"  # kinds of NumPy's dtypes that are saved as they are
HIDDEN = {"bfloat16": (np.dtype(jnp.bfloat16), np.dtype(np.uint16))}  # dtypes that npz files do not know


class ValueWriter:
    """Turns values into nodes of JSON, and collects their arrays in `arrays` under the paths of the values."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def node(self, path: str, value: Any) -> Any:
        """Return the JSON for a value. What is none of the kinds below is kept as its text."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return self._nodes(path, value)
        if type(value) is tuple:
            return {"tuple": self._nodes(path, value)}
        if isinstance(value, Mapping):
            return {"dict": [[self.node(path, k), self.node(_below(path, k), v)] for k, v in value.items()]}
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return self._array_node(path, value)
        if isinstance(value, pd.DataFrame):
            return {"frame": frames.frame_node(value, lambda name, part: self.node(_below(path, name), part))}
        if isinstance(value, LocalMethod):
            return {"method": self._method_node(path, value)}
        if isinstance(value, AbstractProblem):
            return {"problem": [type(value).__name__, fingerprint(value)]}
        if isinstance(value, Cohorts):
            return {"cohorts": self.node(path, value.plain())}
        if isinstance(value, ProblemReference):
            return {"problem": [value.name, value.fingerprint]}
        if value is pd.NA:
            return {"missing": None}
        if (fields := _fields_of(value)) is not None:
            nodes = [[name, self.node(_below(path, name), part)] for name, part in fields.items()]
            return {_kind_of(type(value)): [type(value).__name__, nodes]}
        return str(value)

    def _nodes(self, path: str, values: Any) -> list[Any]:
        return [self.node(_below(path, i), value) for i, value in enumerate(values)]

    def _array_node(self, path: str, value: Any) -> dict[str, Any]:
        kind = "jax" if isinstance(value, jax.Array) else "array" if isinstance(value, np.ndarray) else "scalar"
        hidden = next((name for name, (dtype, _) in HIDDEN.items() if value.dtype == dtype), None)
        if hidden is None and getattr(value.dtype, "kind", "") not in NUMBERS:
            raise TypeError(f"save: {path} is an array of {value.dtype}, which cannot be saved; numbers and text can")
        array = np.asarray(value)
        name, i = path, 1
        while name in self.arrays:  # {"a/b": ...} beside {"a": {"b": ...}}
            name, i = f"{path}~{i}", i + 1
        self.arrays[name] = array if hidden is None else array.view(HIDDEN[hidden][1])
        return {kind: name if hidden is None else [name, hidden]}

    def _method_node(self, path: str, method: LocalMethod) -> dict[str, Any]:
        """The plain values of a method, or its text and why it has none."""
        try:
            description = describe(method)
            if eqx.tree_equal(rebuild(description), method):
                return {"values": self.node(path, description), "text": str(method)}
            reason = "what only its server uses, such as an optimiser, cannot be described"
        except ValueError as error:
            reason = str(error)
        return {"values": None, "text": str(method), "because": reason}


class ValueReader:
    """Turns nodes back into values, from the arrays of a file.

    `lost` has the text of each method that could not be rebuilt, and why not, in the order in which they are read.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.lost: list[dict[str, str]] = []
        self.kinds: dict[str, Callable[[Any], Any]] = {
            "tuple": lambda nodes: tuple(map(self.value, _expect(nodes, list))),
            "dict": lambda items: {self.value(key): self.value(node) for key, node in _expect(items, list)},
            "array": self._array,
            "scalar": lambda content: self._array(content)[()],
            "jax": lambda content: _on_device(self._array(content)),
            "frame": lambda content: frames.read_frame(content, self.value),
            "method": self._method,
            "problem": lambda content: ProblemReference(*(_expect(part, str) for part in content)),
            "cohorts": lambda content: Cohorts.from_plain(self.value(content)),
            "missing": lambda _: pd.NA,
            "object": lambda content: checked_fields(CLASSES[content[0]], self._named(content[1])),
            "named tuple": lambda content: method_tuples()[content[0]](**self._named(content[1])),
            "record": lambda content: _record(_expect(content[0], str), self._named(content[1])),
        }

    def value(self, node: Any) -> Any:
        """Return the value of a node; a node that `ValueWriter` would not have written raises some error."""
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is list:
            return [self.value(part) for part in node]
        ((kind, content),) = _expect(node, dict).items()
        if kind not in self.kinds:
            raise ValueError(f"its header has a value of the unknown kind {reprlib.repr(kind)}")
        return self.kinds[kind](content)

    def _array(self, content: Any) -> np.ndarray:
        if type(content) is str:
            return self.arrays[content]
        name, hidden = content
        dtype, stored = HIDDEN[hidden]
        if self.arrays[name].dtype != stored:
            raise ValueError(f"its array {name} is of {self.arrays[name].dtype} and should be of {stored}")
        return self.arrays[name].view(dtype)

    def _named(self, content: Any) -> dict[str, Any]:
        return {_expect(name, str): self.value(node) for name, node in content}

    def _method(self, content: Any) -> LocalMethod | None:
        text, reason = _expect(content["text"], str), content.get("because", "")
        if content["values"] is not None:
            try:
                return rebuild(self.value(content["values"]))
            except ValueError as error:  # a class that is not registered here, or another precision
                reason = str(error)
        self.lost.append({"method": text, "because": _expect(reason, str)})
        return None


def method_tuples() -> dict[str, Any]:
    """Return the named tuples that the files of our methods define, by name: their server states."""
    modules = [module for name, module in sys.modules.items() if name.startswith("fedlocal.methods.")]
    found = [(m, cls) for m in modules for cls in vars(m).values() if isinstance(cls, type) and hasattr(cls, "_fields")]
    return {cls.__name__: cls for module, cls in found if cls.__module__ == module.__name__}


def _kind_of(cls: type) -> str:
    if CLASSES.get(cls.__name__) is cls:
        return "object"
    return "named tuple" if method_tuples().get(cls.__name__) is cls else "record"


def _fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a named tuple or a dataclass, such as an Equinox module; None for anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))  # pyright: ignore[reportAttributeAccessIssue]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _record(name: str, fields: dict[str, Any]) -> Any:
    return _record_class(name, tuple(fields))(*fields.values())


@lru_cache(maxsize=1024)
def _record_class(name: str, fields: tuple[str, ...]) -> Any:
    """A plain named tuple; one class for all of the same name and fields, so that pytrees have the same structure."""
    if not name.isidentifier() or keyword.iskeyword(name):  # namedtuple checks the fields alike, and renames them
        raise ValueError(f"its header names a class {reprlib.repr(name)}")
    return namedtuple(name, fields, rename=True)  # pyright: ignore[reportUntypedNamedTuple]


def _on_device(array: np.ndarray) -> Any:
    """A JAX array, or the NumPy array itself where JAX would round it, as without jax_enable_x64."""
    return jnp.asarray(array) if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype else array


def _below(path: str, name: Any) -> str:
    return f"{path}/{name}" if path else str(name)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"its header has {reprlib.repr(value)} where a {kind.__name__} should be")
    return value
