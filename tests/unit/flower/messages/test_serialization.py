"""StateSerializer: the same form down and up, for every method."""

from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.cases import CASES, PAIRS
from conformance.federation import closeness, start
from fedlocal.flower.messages.serialization import Payload, StateSerializer
from fedlocal.simulation.discrepancy import first_client

ROWS = CASES | PAIRS
X0 = start(True)
X = ["x/intercept", "x/weights"]
NAMES: dict[str, tuple[list[str], set[str]]] = {  # by hand: what crosses the network
    "fed_avg": (X, set()),
    "fed_ac_one": (["ag/intercept", "ag/weights", "x/intercept", "x/weights"], set()),
    "minibatch_sgd": (X, set()),
    "agd": (["ag/intercept", "ag/weights", "x/intercept", "x/weights"], set()),
    "fed_mid_l1": (X, {"walked"}),
    "fed_dual_avg_l1": (["y/intercept", "y/weights"], {"walked"}),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_names_are_known(name: str):
    serializer = StateSerializer(ROWS[name].method, X0)
    payload = serializer.down(ROWS[name].method.broadcast(ROWS[name].method.init(X0)))
    assert (sorted(payload.arrays), set(payload.numbers)) == NAMES[name]


def _some_message(method: fl.LocalMethod) -> tuple[Any, Any]:
    """What a server broadcasts, and what a client that took two steps sends."""
    sent = method.broadcast(method.init(X0))
    client = first_client(method, X0)
    for k in range(2):
        client = method.step(client, lambda x, k=k: jax.tree.map(lambda a: 0.3 * a - 0.01 * k, x))
    return sent, method.finish(sent, client)[0]


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_read(name: str):
    method = ROWS[name].method
    serializer = StateSerializer(method, X0)
    sent, message = _some_message(method)
    payload = serializer.down(sent)
    serializer.check(payload)
    assert closeness(serializer.read_down(payload), sent) == 0
    reply = serializer.up(payload, message)
    serializer.check(reply)
    assert list(reply.arrays) == list(payload.arrays)
    assert all(
        a.shape == payload.arrays[n].shape and a.dtype == payload.arrays[n].dtype for n, a in reply.arrays.items()
    )
    assert closeness(serializer.read_up(payload, reply), message) < 1e-15
    assert closeness(serializer.read_up(payload, payload), jax.tree.map(np.zeros_like, message)) == 0


def test_the_mean_of_replies_is_the_mean_of_messages():
    method = ROWS["fed_dual_avg_l1"].method
    serializer = StateSerializer(method, X0)
    sent, one = _some_message(method)
    other = jax.tree.map(lambda a: 3 * a + 0.1, one)
    payload = serializer.down(sent)
    replies = [serializer.up(payload, message) for message in (one, other)]
    mean = Payload(
        {name: 0.25 * replies[0].arrays[name] + 0.75 * replies[1].arrays[name] for name in payload.arrays},
        {name: 0.25 * replies[0].numbers[name] + 0.75 * replies[1].numbers[name] for name in payload.numbers},
    )
    wanted = jax.tree.map(lambda a, b: 0.25 * a + 0.75 * b, one, other)
    assert closeness(serializer.read_up(payload, mean), wanted) < 1e-15


@pytest.mark.parametrize(
    "x0", [np.float64(0.5), np.zeros(1), np.zeros((2, 0)), {"a": {"b": np.ones(2)}, "c": np.ones(1)}]
)
def test_parameters_of_any_form(x0: Any):
    """Where x is one number, the length walked still is not taken for it."""
    method = fl.methods.FedDualAvg(0.1)
    serializer = StateSerializer(method, x0)
    assert serializer.numbers == {"walked"}
    payload = serializer.down(method.init(x0))
    assert len(payload.arrays) == len(jax.tree.leaves(x0))
    assert closeness(serializer.read_down(payload), method.init(x0)) == 0 if jax.tree.leaves(x0)[0].size else True


def _payload(**changes: Any) -> Payload:
    arrays = {"x/intercept": np.zeros(1), "x/weights": np.zeros((2, 3))}
    numbers = {"walked": 0.0}
    for name, value in changes.items():
        (numbers if name == "walked" else arrays)[name.replace("_", "/")] = value
    return Payload(arrays, numbers)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (_payload(more=np.zeros(1)), "arrays are called"),
        (Payload({}, {"walked": 0.0}), "arrays are called"),
        (Payload(dict(reversed(_payload().arrays.items())), {"walked": 0.0}), "arrays are called"),
        (Payload(_payload().arrays, {}), r"numbers are called \[\], not \['walked'\]"),
        (_payload(x_weights=np.zeros(6)), r"x/weights is float64\(6,\), not float64\(2, 3\)"),
        (_payload(x_weights=np.zeros((2, 3), np.int64)), r"x/weights is int64"),
        (_payload(x_intercept=np.full(1, np.inf)), "nan or inf in x/intercept"),
        (_payload(walked=float("nan")), "nan or inf in walked"),
    ],
)
def test_a_wrong_letter_is_named(payload: Payload, words: str):
    serializer = StateSerializer(ROWS["fed_mid_l1"].method, X0)
    serializer.check(_payload())
    with pytest.raises(ValueError, match=words):
        serializer.check(payload)
