"""Checks of a user's arguments: an error is one sentence that names the function, the value and what would work."""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

Choice = TypeVar("Choice", bound=str)
Limit = float | None


def is_traced(value: Any) -> bool:
    """Return True if a value is traced by JAX, so that it cannot be checked."""
    return isinstance(value, Tracer)


def number(
    owner: str, name: str, value: Any, *, above: Limit = None, at_least: Limit = None, at_most: Limit = None
) -> Any:
    """Return `value` as a weakly typed number (an array unchanged), or raise an error that says what is wrong with it."""
    if is_traced(value):
        return value
    wanted = f"> {above:g}" if above is not None else f">= {at_least:g}" if at_least is not None else "a finite number"
    wanted += "" if at_most is None else f" and <= {at_most:g}"
    try:
        if isinstance(value, (str, bytes)):  # NumPy would read "0.1"
            raise TypeError
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{owner}: {name} must be {wanted}, got {value!r}") from None
    fine = np.isfinite(array)
    for limit, is_inside in ((above, np.greater), (at_most, np.less_equal), (at_least, np.greater_equal)):
        if limit is not None:
            fine &= is_inside(array, limit)
    if not fine.all():
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value if array.ndim == 0 else array[~fine][0]}")
    return float(array) if array.ndim == 0 and not isinstance(value, jax.Array) else value


def whole(owner: str, name: str, value: Any, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return `value` as an int within its limits, or raise an error that says what is wrong with it."""
    wanted = f"a whole number >= {at_least}" + ("" if at_most is None else f" and <= {at_most}")
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{owner}: {name} must be {wanted}, got {value!r}")
    if value < at_least or (at_most is not None and value > at_most):
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value}")
    return int(value)


def choice(owner: str, name: str, value: Choice, options: Collection[str]) -> Choice:
    """Return `value` if it is one of `options`, or raise an error that lists them."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{owner}: {name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def instance(owner: str, name: str, value: Any, kind: type) -> Any:
    """Return `value` if it is an instance of `kind`, or raise an error that says what it is instead."""
    if not isinstance(value, kind):
        raise TypeError(f"{owner}: {name} must be a {kind.__name__}, got {value!r}")
    return value


def takes(owner: str, name: str, function: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Raise an error if `function` cannot be called with these positional arguments, as far as its signature says."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions that are not written in Python have none
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        called = getattr(function, "__name__", type(function).__name__)
        wanted = ", ".join(arguments)
        raise TypeError(f"{owner}: {name}: {called} must take ({wanted}), but its arguments are {signature}") from None
