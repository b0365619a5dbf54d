"""StepSizeSchedule: a step size that is a function of the round."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core.method import LocalMethod
from fedlocal.core.types import Scalar, static
from fedlocal.util import checks

Tree = TypeVar("Tree")
BLOCK = 256  # rounds; tables have a multiple of it as length, so that runs of about the same length share a program


class StepSizeSchedule(eqx.Module):
    """A number that depends on the round; methods make one of a function that they are given as a step size.

    Args:
        function: the number as a function of the round, counted from 0, e.g. a schedule of Optax; None for a table.
        values: (R,) the numbers of the rounds, which compiled programs read; None for a function.
    """

    function: Callable[..., Any] | None = static()
    values: Any = None

    def at(self, round: Any) -> Scalar:
        """Return the number of a round."""
        return self.values[round] if self.function is None else float(self.function(int(round)))

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"StepSizeSchedule({'table' if self.function is None else name})"


def checked_step_size(owner: str, name: str, value: Any) -> Any:
    """Return a step size: a number above 0, or a `StepSizeSchedule` of a function of the round whose value is such a number."""
    if isinstance(value, StepSizeSchedule):
        return value
    if not callable(value):
        return checks.number(owner, name, value, above=0)
    try:
        first: Any = value(0)
    except Exception as error:  # whatever a user's function raises
        raise TypeError(
            f"{owner}: {name} must be a number or a function of the round; at round 0 it raised {error!r}"
        ) from error
    checks.number(owner, f"{name} at round 0", first, above=0)
    if np.ndim(first) != 0:
        raise ValueError(f"{owner}: {name} at round 0 must be one number, got an array of shape {np.shape(first)}")
    return StepSizeSchedule(value)


def at_round(tree: Tree, round: Any) -> Tree:
    """Return a method, or any pytree, with the numbers of a round in place of its schedules."""
    return _mapped(lambda schedule: schedule.at(round), tree)


def has_schedule(tree: Any) -> bool:
    """Return True if a number of a method is a function of the round."""
    return any(isinstance(leaf, StepSizeSchedule) for leaf in jax.tree.leaves(tree, is_leaf=_is_schedule))


def tabulated(owner: str, method: LocalMethod, rounds: int, dtype: Any = np.float64) -> LocalMethod:
    """Return a method with tables in place of the functions of its schedules, whose numbers are checked for all rounds.

    Programs are compiled for tables, so that all schedules share one, and a function may be any Python.
    """
    if not has_schedule(method):
        return method
    name = type(method).__name__
    own = {
        f.name: getattr(method, f.name) for f in fields(method) if isinstance(getattr(method, f.name), StepSizeSchedule)
    }
    tables = {field: _values(schedule.function, rounds) for field, schedule in own.items()}
    for field, values in tables.items():
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(wrong):
            r = int(wrong[0])
            raise ValueError(f"{owner}: {field} of {name} must be > 0 in every round, got {values[r]:g} in round {r}")
    ends = {int(end(values)) for values in tables.values() for end in (np.argmin, np.argmax)}
    for r in (
        sorted(ends) if rounds else ()
    ):  # the constructor checks what it asks of the smallest and the largest numbers
        replace(cast(Any, method), **{field: float(values[r]) for field, values in tables.items()})
    return _mapped(lambda schedule: _table(_values(schedule.function, rounds), dtype), method)


def _table(values: np.ndarray, dtype: Any) -> StepSizeSchedule:
    last = values[-1] if len(values) else 1.0  # stands for what is after the last round
    return StepSizeSchedule(None, np.pad(values, (0, BLOCK - len(values) % BLOCK), constant_values=last).astype(dtype))


def _values(function: Callable[..., Any] | None, rounds: int) -> np.ndarray:
    """Return the numbers of all rounds in float64: at once if the function can be traced, else one after the other."""
    assert function is not None
    with jax.enable_x64(True):
        try:
            return np.asarray(jax.vmap(function)(jnp.arange(rounds)), np.float64).reshape(rounds)
        except Exception:
            return np.array([float(function(r)) for r in range(rounds)], np.float64)


def _is_schedule(leaf: Any) -> bool:
    return isinstance(leaf, StepSizeSchedule)


def _mapped(fn: Callable[[StepSizeSchedule], Any], tree: Tree) -> Tree:
    return jax.tree.map(
        lambda leaf: fn(leaf) if isinstance(leaf, StepSizeSchedule) else leaf, tree, is_leaf=_is_schedule
    )
