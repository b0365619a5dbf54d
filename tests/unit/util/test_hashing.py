"""Fingerprints of functions: they change when anything that a user's function reads changes, and only then."""

import collections
import sys
import types
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedlocal as fl
from fedlocal.core import AbstractProblem
from fedlocal.util.hashing import fingerprint

SCALE = 1.0
MODULE = types.ModuleType("a_users_settings")
exec("scale = 1.0\nunused = 1.0\ndef pull(x):\n    return scale * x", vars(MODULE))
sys.modules[MODULE.__name__] = MODULE


def pull(x: Any) -> Any:
    return SCALE * x


def farther(x: Any) -> Any:
    return pull(x) + 1


compiled, bound = jax.jit(pull), partial(pull)
imported = vars(MODULE)["pull"]


class Settings:
    scale = 1.0

    @property
    def doubled(self) -> float:
        return 2 * SCALE

    def loss(self, x: Any) -> Any:
        return self.scale * x


class Slots:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


class Callable_:
    def __call__(self, x: Any) -> Any:
        return SCALE * x


settings, slots, namespace = Settings(), Slots(), types.SimpleNamespace(scale=1.0)
number, row, key, queue = Decimal(1), range(1), jax.random.key(0), collections.deque([1.0])
mixed, table = np.array([1.0, None], dtype=object), np.ones(2)
schedule: Any = optax.exponential_decay(1.0, 10, 0.9)


def default(x: Any, scale: Any = (1.0, {"a": 1.0})) -> Any:
    return scale[1]["a"] * x


def keyword(x: Any, *, scale: Any = {"a": 1.0}) -> Any:  # noqa: B006
    return scale["a"] * x


def put(name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(globals(), name, value)


READ: dict[str, tuple[Any, Callable[[pytest.MonkeyPatch], Any]]] = {
    "a global": (lambda x: SCALE * x, put("SCALE", 2.0)),
    "a global of a helper": (lambda x: pull(x), put("SCALE", 2.0)),
    "a global of a helper's helper": (lambda x: farther(x), put("SCALE", 2.0)),
    "a global in an inner function": (lambda x: [SCALE * a for a in x], put("SCALE", 2.0)),
    "a global of a compiled helper": (lambda x: compiled(x), put("SCALE", 2.0)),
    "a global of a bound helper": (lambda x: bound(x), put("SCALE", 2.0)),
    "a helper": (lambda x: pull(x), put("pull", farther)),
    "a default": (default, lambda patch: patch.setitem(cast(Any, default).__defaults__[0][1], "a", 2.0)),
    "a keyword": (keyword, lambda patch: patch.setitem(cast(Any, keyword).__kwdefaults__["scale"], "a", 2.0)),
    "an attribute": (lambda x: namespace.scale * x, lambda patch: patch.setattr(namespace, "scale", 2.0)),
    "an attribute of slots": (lambda x: slots.scale * x, lambda patch: patch.setattr(slots, "scale", 2.0)),
    "an attribute of a class": (lambda x: Settings.scale * x, lambda patch: patch.setattr(Settings, "scale", 2.0)),
    "a class's of an object": (lambda x: settings.scale * x, lambda patch: patch.setattr(Settings, "scale", 2.0)),
    "a property": (lambda x: settings.doubled * x, put("SCALE", 2.0)),
    "a bound method": (settings.loss, lambda patch: patch.setattr(settings, "scale", 2.0)),
    "a global of a callable object": (Callable_(), put("SCALE", 2.0)),
    "a module": (lambda x: MODULE.scale * x, lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "a module's function": (lambda x: MODULE.pull(x), lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "an imported function": (lambda x: imported(x), lambda patch: patch.setattr(MODULE, "scale", 2.0)),
    "a decimal": (lambda x: float(number) * x, put("number", Decimal(2))),
    "a range": (lambda x: row[0] * x, put("row", range(2))),
    "a random key": (lambda x: jax.random.normal(key) * x, put("key", jax.random.key(1))),
    "a queue": (lambda x: queue[0] * x, put("queue", collections.deque([2.0]))),
    "an array": (lambda x: table[0] * x, put("table", 2 * np.ones(2))),
    "an array of objects": (lambda x: mixed[0] * x, put("mixed", np.array([2.0, None], dtype=object))),
    "a schedule": (lambda x: schedule(3) * x, put("schedule", optax.exponential_decay(2.0, 10, 0.9))),
}


@pytest.mark.parametrize("what", READ)
def test_what_a_function_reads_belongs_to_it(what: str, monkeypatch: pytest.MonkeyPatch):
    function, change = READ[what]
    before = fingerprint(function)
    assert fingerprint(function) == before
    change(monkeypatch)
    assert fingerprint(function) != before
    monkeypatch.undo()
    assert fingerprint(function) == before


def stretched(i: Any, x: Any) -> Any:
    return SCALE * x


def closure(value: Any) -> Callable[[Any], Any]:
    return lambda x: value * x


def test_values_of_closures_belong_to_it():
    values = [1.0, 2.0, np.ones(2), {"a": (1.0,)}, {"a": (2.0,)}, Settings, settings, pull, MODULE]
    assert len({fingerprint(closure(value)) for value in values}) == len(values)
    assert fingerprint(closure(np.ones(2))) == fingerprint(closure(np.ones(2)))


def test_a_variable_that_has_no_value_yet_is_no_error():
    def loss(x: Any) -> Any:
        return later * x

    before = fingerprint(loss)
    later = 2.0
    assert fingerprint(loss) != before


def test_what_a_function_does_not_read_does_not_belong_to_it(monkeypatch: pytest.MonkeyPatch):
    functions = [lambda x: MODULE.scale * jnp.log(x), lambda x: SCALE * np.pi * x, settings.loss]
    before = [fingerprint(function) for function in functions]
    monkeypatch.setattr(MODULE, "unused", 2.0)
    monkeypatch.setitem(globals(), "number", Decimal(2))
    monkeypatch.setattr(optax, "of_an_installed_module", 2.0, raising=False)
    assert [fingerprint(function) for function in functions] == before


# the same in runs


def ends(problem: AbstractProblem) -> float:
    result = fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=1, local_steps=1, x0=np.zeros(1), progress=False)
    return float(result.x[0])


DATA = fl.FederatedData.from_clients([(np.zeros(1),)])
PROBLEMS: dict[str, Callable[[], AbstractProblem]] = {
    "compiled by its user": lambda: fl.Problem(jax.jit(lambda x, a: SCALE * (x[0] - 1) ** 2 + a), DATA),
    "with a compiled helper": lambda: fl.Problem(lambda x, a: compiled((x[0] - 1) ** 2) + a, DATA),
    "in the body of a loop": lambda: fl.Problem(
        lambda x, a: jax.lax.fori_loop(0, 1, stretched, (x[0] - 1) ** 2) + a, DATA
    ),
    "in a module": lambda: fl.Problem(lambda x, a: MODULE.pull((x[0] - 1) ** 2) + a, DATA),
    "an oracle": lambda: fl.problems.Oracle(lambda x, m: SCALE * (x[0] - 1) ** 2),
    "a gradient": lambda: fl.problems.Oracle(lambda x, m: x[0] ** 2, gradient=lambda x, m: SCALE * 2 * (x - 1)),
    "inside a view": lambda: fl.problems.augmented(PROBLEMS["an oracle"](), 1e-9, np.zeros(1)),
}


@pytest.mark.parametrize("what", PROBLEMS)
def test_a_run_reads_what_is_there_now(what: str, monkeypatch: pytest.MonkeyPatch):
    problem = PROBLEMS[what]()
    first = ends(problem)
    assert first == pytest.approx(0.2, abs=1e-6)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    monkeypatch.setattr(MODULE, "scale", 2.0)
    assert ends(problem) == pytest.approx(0.4, abs=1e-6)
    monkeypatch.undo()
    assert ends(problem) == first


def test_a_compiled_helper_of_two_problems_is_read_again(monkeypatch: pytest.MonkeyPatch):
    """The second problem is made after the change, so that only its helper has been seen before."""
    assert ends(fl.Problem(lambda x, a: compiled((x[0] - 1) ** 2) + 2 * a, DATA)) == pytest.approx(0.2)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert ends(fl.Problem(lambda x, a: compiled((x[0] - 1) ** 2) + 3 * a, DATA)) == pytest.approx(0.4)


class Weighted(fl.Problem):
    """A subclass with another constructor."""

    def __init__(self, weight: float):
        super().__init__(lambda x, a: weight * SCALE * (x[0] - 1) ** 2 + a, DATA)


def test_a_subclass_stays_what_it_is(monkeypatch: pytest.MonkeyPatch):
    problem = Weighted(1.0)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert type(problem.current()) is Weighted
    assert ends(problem) == pytest.approx(0.4)


def test_problems_of_the_library_share_their_programs():
    """The version of their functions is the same for all, whatever the arrays; it is no part of a checkpoint's identity."""
    some, other = (fl.problems.quadratics([[[a]]], [[1.0]]) for a in (1.0, 2.0))
    assert jax.tree.structure(some) == jax.tree.structure(other)
    assert fingerprint(some) != fingerprint(other)
    assert some.current() is some
