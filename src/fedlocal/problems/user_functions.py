"""What users' functions need: errors inside a loss are told with its name, and what they read may change between calls."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from fedlocal.core import AbstractProblem
from fedlocal.util.hashing import fingerprint, forget_old_traces

P = TypeVar("P", bound=AbstractProblem)
REASONS: dict[type[Exception], str] = {
    jax.errors.TracerBoolConversionError: "it decides by `if`, `and` or `while` on a number; use jnp.where",
    jax.errors.TracerArrayConversionError: "it gives a number to NumPy; use jnp (as in jnp.log)",
    jax.errors.ConcretizationTypeError: "it needs to know a number, as in float(x) or range(x); use jnp",
}


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, or the class of an object that is called like one."""
    return getattr(function, "__name__", type(function).__name__)


def check_init(owner: str, init_fn: Any) -> None:
    """Raise a TypeError unless a starting point is given as a function, or not at all."""
    if init_fn is not None and not callable(init_fn):
        got = f"{type(init_fn).__name__}; give a point itself as x0=... to the engine"
        raise TypeError(f"{owner}: init_fn must be a function of a random key, got {got}")


def check_loss(begin: str, loss_fn: Callable[..., Any], *arguments: Any, advice: str = "") -> None:
    """Raise an error that says what is wrong with a loss unless it returns one number; nothing is computed.

    Args:
        begin: the beginning of the message, with the name of the loss and its arguments.
        loss_fn: the loss.
        arguments: of the loss; only their shapes and types matter.
        advice: the end of the message if the loss fails.
    """
    try:
        value = jax.eval_shape(loss_fn, *arguments)
    except Exception as error:  # whatever a user's function raises
        said = next((text for kind, text in REASONS.items() if isinstance(error, kind)), None)
        said = said or f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        raise ValueError(f"{begin} failed: {said}{advice}") from error
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0] is not value:
        raise TypeError(f"{begin} must return one number, got {type(value).__name__}")
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{begin} must return one number, got {value.dtype} of shape {value.shape}")


def renewed(problem: P, functions: Any) -> P:
    """Return a problem that has a `version`, the fingerprint of its functions, with the version of what they read now.

    JAX takes problems of two versions for different ones, and compiles anew.

    Args:
        problem: the problem.
        functions: those of the user, as they were given to `fingerprint`.
    """
    forget_old_traces(functions)
    given: Any = problem
    if (version := fingerprint(functions)) == given.version:
        return problem
    new = object.__new__(type(problem))  # __init__ may take other arguments, in a subclass
    for field in fields(problem):
        object.__setattr__(new, field.name, getattr(problem, field.name))
    object.__setattr__(new, "version", version)
    return new
