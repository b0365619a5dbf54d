"""A function of every row of a table as one compiled program."""

from collections.abc import Callable
from typing import Any

import jax


def for_each(fn: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """fn(row, ...) of every row of a table in one program, by name; an argument that is a dict has one value for each row."""

    @jax.jit
    def program(rows: dict[str, Any], arguments: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: fn(row, *(table[name] for table in arguments)) for name, row in rows.items()}

    def call(rows: dict[str, Any], *arguments: Any) -> dict[str, Any]:
        tables = [{name: a[name] if isinstance(a, dict) else a for name in rows} for a in arguments]
        return jax.device_get(program(rows, tables))

    return call
