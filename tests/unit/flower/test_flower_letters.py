"""Letters: the same form down and up, for every method."""

from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.cases import CASES, PAIRS
from conformance.federation import closeness, start
from fedlocal.engines.flower.letters import Letter, Letters
from fedlocal.engines.rounds import first_client

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
    letters = Letters(ROWS[name].method, X0)
    letter = letters.down(ROWS[name].method.broadcast(ROWS[name].method.init(X0)))
    assert (sorted(letter.arrays), set(letter.numbers)) == NAMES[name]


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
    letters = Letters(method, X0)
    sent, message = _some_message(method)
    letter = letters.down(sent)
    letters.check(letter)
    assert closeness(letters.read_down(letter), sent) == 0
    reply = letters.up(letter, message)
    letters.check(reply)
    assert list(reply.arrays) == list(letter.arrays)
    assert all(a.shape == letter.arrays[n].shape and a.dtype == letter.arrays[n].dtype for n, a in reply.arrays.items())
    assert closeness(letters.read_up(letter, reply), message) < 1e-15
    assert closeness(letters.read_up(letter, letter), jax.tree.map(np.zeros_like, message)) == 0


def test_the_mean_of_replies_is_the_mean_of_messages():
    method = ROWS["fed_dual_avg_l1"].method
    letters = Letters(method, X0)
    sent, one = _some_message(method)
    other = jax.tree.map(lambda a: 3 * a + 0.1, one)
    letter = letters.down(sent)
    replies = [letters.up(letter, message) for message in (one, other)]
    mean = Letter(
        {name: 0.25 * replies[0].arrays[name] + 0.75 * replies[1].arrays[name] for name in letter.arrays},
        {name: 0.25 * replies[0].numbers[name] + 0.75 * replies[1].numbers[name] for name in letter.numbers},
    )
    wanted = jax.tree.map(lambda a, b: 0.25 * a + 0.75 * b, one, other)
    assert closeness(letters.read_up(letter, mean), wanted) < 1e-15


@pytest.mark.parametrize(
    "x0", [np.float64(0.5), np.zeros(1), np.zeros((2, 0)), {"a": {"b": np.ones(2)}, "c": np.ones(1)}]
)
def test_parameters_of_any_form(x0: Any):
    """Where x is one number, the length walked still is not taken for it."""
    method = fl.methods.FedDualAvg(0.1)
    letters = Letters(method, x0)
    assert letters.numbers == {"walked"}
    letter = letters.down(method.init(x0))
    assert len(letter.arrays) == len(jax.tree.leaves(x0))
    assert closeness(letters.read_down(letter), method.init(x0)) == 0 if jax.tree.leaves(x0)[0].size else True


def _letter(**changes: Any) -> Letter:
    arrays = {"x/intercept": np.zeros(1), "x/weights": np.zeros((2, 3))}
    numbers = {"walked": 0.0}
    for name, value in changes.items():
        (numbers if name == "walked" else arrays)[name.replace("_", "/")] = value
    return Letter(arrays, numbers)


@pytest.mark.parametrize(
    ("letter", "words"),
    [
        (_letter(more=np.zeros(1)), "arrays are called"),
        (Letter({}, {"walked": 0.0}), "arrays are called"),
        (Letter(dict(reversed(_letter().arrays.items())), {"walked": 0.0}), "arrays are called"),
        (Letter(_letter().arrays, {}), r"numbers are called \[\], not \['walked'\]"),
        (_letter(x_weights=np.zeros(6)), r"x/weights is float64\(6,\), not float64\(2, 3\)"),
        (_letter(x_weights=np.zeros((2, 3), np.int64)), r"x/weights is int64"),
        (_letter(x_intercept=np.full(1, np.inf)), "nan or inf in x/intercept"),
        (_letter(walked=float("nan")), "nan or inf in walked"),
    ],
)
def test_a_wrong_letter_is_named(letter: Letter, words: str):
    letters = Letters(ROWS["fed_mid_l1"].method, X0)
    letters.check(_letter())
    with pytest.raises(ValueError, match=words):
        letters.check(letter)
