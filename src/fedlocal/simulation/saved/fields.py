"""checked_fields: an object from its fields, each of the type that its class declares."""

import dataclasses
import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np

Made = TypeVar("Made")


def checked_fields(cls: type[Made], fields: dict[str, Any]) -> Made:
    """Return the dataclass with these fields; those that are not given must have a default."""
    hints = get_type_hints(cls)
    declared = {field.name: field for field in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
    unknown = sorted(set(fields) - set(declared))
    needed = [name for name, field in declared.items() if _needed(field)]
    missing = [name for name in needed if name not in fields]
    if unknown or missing:
        other = "; another version of fedlocal wrote it"
        raise ValueError(f"its {cls.__name__} has the unknown fields {unknown} and lacks {missing}{other}")
    for name, value in fields.items():
        if not _fits(value, hints[name]):
            raise ValueError(f"the {name} of its {cls.__name__} is a {type(value).__name__}")
    return cls(**fields)


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _fits(value: Any, hint: Any) -> bool:
    """Return True if a value is of an annotated type, as far as its class says."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin in (list, tuple):
        parts = arguments[:1] if origin is list or arguments[1:] == (Ellipsis,) else ()
        return isinstance(value, origin) and all(_fits(each, part) for part in parts for each in value)
    wanted = origin or hint
    if wanted is jax.Array:
        return isinstance(value, (jax.Array, np.ndarray))
    if wanted in (int, float, bool, str):
        return type(value) is wanted
    return wanted is Any or not isinstance(wanted, type) or isinstance(value, wanted)
