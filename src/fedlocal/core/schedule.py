"""StepSizeSchedule: a step size that is a function of the round."""

from collections.abc import Callable, Iterable
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

SEEN = 32  # rounds in which numbers that were computed at once are compared with Python's


class StepSizeSchedule(eqx.Module):
    """A number that depends on the round; methods make one of a function that they are given as a step size.

    Args:
        function: the number as a function of the round, an integer counted from 0, e.g. a schedule of Optax; None for a table.
            A list or an array of NumPy that is too short for the run is an error, but an array of JAX repeats its last number.
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
        return _one_number(owner, name, value)
    try:
        first: Any = value(0)
    except Exception as error:  # whatever a user's function raises
        raise TypeError(
            f"{owner}: {name} must be a number or a function of the round; at round 0 it raised {error!r}"
        ) from error
    _one_number(owner, f"{name} at round 0", first)
    return StepSizeSchedule(value)


def _one_number(owner: str, name: str, value: Any) -> Any:
    """Return a number above 0, as it is where it is traced; text, truth values and several numbers are none."""
    if checks.is_traced(value):
        return value
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError(f"{owner}: {name} must be a number > 0 or a function of the round, got {value!r}")
    number = checks.number(owner, name, value, above=0)
    if np.ndim(number) != 0:
        advice = "fl.sweep runs several step sizes, and a function of the round changes it"
        raise ValueError(f"{owner}: {name} must be one number, got an array of shape {np.shape(number)}; {advice}")
    return number


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
    tables = {field: _values(f"{owner}: {field} of {name}", s.function, rounds) for field, s in own.items()}
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
    part = f"{owner}: a step size within {name}"
    return _mapped(lambda schedule: _table(_values(part, schedule.function, rounds), dtype), method)


def _table(values: np.ndarray, dtype: Any) -> StepSizeSchedule:
    last = values[-1] if len(values) else 1.0  # stands for what is after the last round
    return StepSizeSchedule(None, np.pad(values, (0, BLOCK - len(values) % BLOCK), constant_values=last).astype(dtype))


def _values(begin: str, function: Callable[..., Any] | None, rounds: int) -> np.ndarray:
    """Return the numbers of all rounds in float64, as the function gives them for rounds that are Python's integers.

    A function that returns arrays of JAX takes milliseconds in a round. It is traced and run for all rounds at once, unless some
    rounds show that JAX's integers lead to other numbers: there 2 ** -1 is 0, and large powers overflow.
    """
    assert function is not None
    with jax.enable_x64(True):
        seen = np.unique(np.linspace(0, rounds - 1, SEEN).astype(int)).tolist() if rounds else []
        if len(seen) == SEEN and isinstance(function(0), jax.Array):
            try:
                values = np.asarray(jax.vmap(function)(jnp.arange(rounds)), np.float64).reshape(rounds)
            except Exception:  # whatever a function that cannot be traced raises
                values = np.full(rounds, np.nan)
            if np.allclose(values[seen], _numbers(begin, function, seen), rtol=1e-6, atol=0):  # they may be float32
                return values
        return _numbers(begin, function, range(rounds))


def _numbers(begin: str, function: Callable[..., Any], rounds: Iterable[int]) -> np.ndarray:
    values: list[float] = []
    for r in rounds:
        try:
            values.append(float(function(r)))
        except Exception as error:  # whatever a user's function raises
            raise ValueError(f"{begin} raised {error!r} in round {r}") from error
    return np.array(values, np.float64)


def _is_schedule(leaf: Any) -> bool:
    return isinstance(leaf, StepSizeSchedule)


def _mapped(fn: Callable[[StepSizeSchedule], Any], tree: Tree) -> Tree:
    return jax.tree.map(
        lambda leaf: fn(leaf) if isinstance(leaf, StepSizeSchedule) else leaf, tree, is_leaf=_is_schedule
    )
