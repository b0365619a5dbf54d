"""check_method: a method is run through the contract once, and the function that breaks it is named.

`check_local_steps` compares the local steps that methods were made for with those of their runs.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlocal.core import LocalMethod, Params, Regularizer, Round, Zero

_RIGHT: set[int | None] = set()  # what has been checked in this process


def check_method(method: Any, x0: Params, owner: str = "check_method") -> None:
    """Run every function of a method once on shapes alone, and raise a TypeError that names the one that is wrong.

    The engines call it before they compile. Nothing is computed: a check takes milliseconds.

    Args:
        method: the method.
        x0: a starting point; only its structure, shapes and types matter.
        owner: who calls; the messages begin with it.

    >>> import numpy as np
    >>> from fedlocal.methods import FedAvg
    >>> check_method(FedAvg(0.1), np.zeros(3))
    >>> class Forgetful(FedAvg):
    ...     def finish(self, server, client):
    ...         return client
    >>> check_method(Forgetful(0.1), np.zeros(3))
    Traceback (most recent call last):
    TypeError: check_method: Forgetful.finish must return a pair (message, memory), got float64[3]
    """
    if not isinstance(method, LocalMethod):
        got = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
        raise TypeError(f"{owner}: method must be a LocalMethod, got {got}")
    check_regularizer(method, owner)
    x0 = _shapes(x0)
    try:  # the same class with the same structure was right before
        key = hash((jax.tree.structure(method), jax.tree.structure(x0), tuple(map(str, jax.tree.leaves(x0)))))
    except TypeError:  # a static field that cannot be hashed
        key = None
    if key is None or key not in _RIGHT:
        _Contract(owner, method, x0).check()
        _RIGHT.add(key)


def check_regularizer(method: LocalMethod, owner: str) -> None:
    """Raise a TypeError if a method holds a psi that its `regularizer` does not tell, for then F + psi would be reported wrongly.

    A class that says itself what its `regularizer` is, as a field or a property, is believed.
    """
    name = type(method).__name__
    if not isinstance(method.regularizer, Regularizer):
        raise TypeError(f"{owner}: {name}.regularizer must be a Regularizer, got {method.regularizer!r}")
    if type(method).regularizer is not LocalMethod.regularizer or "regularizer" in {f.name for f in fields(method)}:
        return
    for field in fields(method):
        value = getattr(method, field.name, None)
        psi = value.regularizer if isinstance(value, LocalMethod) else value
        if isinstance(psi, Regularizer) and not isinstance(psi, Zero):
            held = f"{name} holds {type(psi).__name__} in its field {field.name!r}, but its regularizer is Zero"
            advice = f"call the field regularizer, or give {name} a property of this name"
            raise TypeError(f"{owner}: {held}, so the objective would be reported without it; {advice}")


class StepsOfRun(NamedTuple):
    """A method, and the fewest and the most local steps that a client of its run takes in a round."""

    method: LocalMethod
    fewest: int
    most: int

    @property
    def unlike(self) -> bool:
        """True if the method was made for a number of local steps that lies outside of this range."""
        made = self.method.made_for_steps()
        return made is not None and not self.fewest <= made <= self.most


def check_local_steps(owner: str, runs: Iterable[StepsOfRun], stacklevel: int = 3) -> None:
    """Warn, once for all runs of a call, of methods that were made for another number of local steps than clients take.

    Args:
        owner: who calls; the warning begins with it.
        runs: each method with the range of local steps of its run.
        stacklevel: of `warnings.warn`; 3 shows the line that calls the owner.
    """
    runs = list(runs)
    unlike = [run for run in runs if run.unlike]
    if not unlike:
        return
    method, fewest, most = unlike[0]
    name, made = type(method).__name__, method.made_for_steps()
    taken = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    plural = "" if most == 1 else "s"
    unsuited = f"{name} was made with local_steps={made}, but clients take {taken} local step{plural} in a round"
    if len(runs) > 1:
        unsuited += f" (so or similarly in {len(unlike)} of {len(runs)} cells)"
        advice = "give a function of local_steps that returns the method, or make each for its run"
    else:
        advice = f"make it with local_steps={taken}" if fewest == most else "make it with a number among these"
    why = "its step sizes are computed from that number"
    warnings.warn(f"{owner}: {unsuited}; {why}; {advice}", UserWarning, stacklevel=stacklevel)


class _Contract:
    """One pass through the functions of a method, on shapes."""

    def __init__(self, owner: str, method: LocalMethod, x0: Params):
        self.owner, self.method, self.x0, self.name = owner, method, x0, type(method).__name__

    def check(self) -> None:
        x0, server, memory = self.x0, self.call("init", self.x0), self.call("init_memory", self.x0)
        sent = self.call("broadcast", server)
        client = self.call("start", sent, memory)
        self.same("step", self.call("step", client, self.gradient), client, "what start returns")
        finished = self.call("finish", sent, client)
        if not isinstance(finished, tuple) or hasattr(finished, "_fields") or len(finished) != 2:
            self.refuse("finish", "a pair (message, memory)", finished)
        message, kept = finished
        self.same("finish", kept, memory, "as memory what init_memory returns")
        self.same("update", self.call("update", server, message, _shapes(Round())), server, "what init returns")
        self.same("solution", self.call("solution", server), x0, "a point like x0", types=False)
        self.same("primal", self.call("primal", client), x0, "a point like x0", types=False)

    def gradient(self, x: Params) -> Params:
        self.same("step", _shapes(x), self.x0, "a point like x0 to grad_fn", does="give", types=False)
        return jax.tree.map(jnp.zeros_like, x)

    def call(self, name: str, *arguments: Any) -> Any:
        """Run a function of the method on shapes; an error that it raises is told with its name."""
        function: Callable[..., Any] = getattr(self.method, name)
        fixed = [a for a in arguments if callable(a)]  # a step's last argument
        try:
            return jax.eval_shape(lambda *traced: function(*traced, *fixed), *arguments[: len(arguments) - len(fixed)])
        except Exception as error:  # whatever a user's function raises
            # our methods say what is wrong themselves, e.g. with psi's shapes
            ours = type(self.method).__module__.startswith("fedlocal.")
            if ours or str(error).startswith(f"{self.owner}: {self.name}."):  # refused inside
                raise
            said = str(error).strip().split("\n")[0]
            raise TypeError(f"{self.owner}: {self.name}.{name} failed: {type(error).__name__}: {said}") from error

    def same(self, name: str, got: Any, wanted: Any, what: str, does: str = "return", types: bool = True) -> None:
        """Raise if `got` has another structure, or arrays of other shapes (or types) than `wanted`."""

        def outline(tree: Any) -> Any:
            leaves, treedef = jax.tree.flatten(tree)
            return treedef, [(a.shape, a.dtype if types else None) for a in leaves]

        if outline(got) != outline(wanted):
            self.refuse(name, f"{what}, {_text(wanted)}", got, does)

    def refuse(self, name: str, wanted: str, got: Any, does: str = "return") -> None:
        raise TypeError(f"{self.owner}: {self.name}.{name} must {does} {wanted}, got {_text(got)}")


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a)), tree)


def _text(tree: Any) -> str:
    """A tree of shapes as a short text, float64[3] for an array."""
    if tree is None:
        return "None"
    names = jax.tree.map(lambda a: f"{a.dtype}[{','.join(map(str, a.shape))}]", tree)
    text = re.sub(r"'(\w+\[[\d,]*\])'", r"\1", repr(names))  # without the quotes of the strings
    return text if len(text) < 300 else f"{text[:300]} ..."
