"""StateSerializer: a method's states as named arrays and numbers, in the same form on the way down and on the way up.

Down goes what the method broadcasts, up comes what was sent plus the client's message, so a reply is a state, not a difference:
wrappers that clip or blur what a client changed subtract what was sent, as they do for the parameters of any model.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from fedlocal.core import LocalMethod, Message, Params, Server
from fedlocal.simulation.discrepancy import first_client, vector_fields
from fedlocal.util import serialization


class Payload(NamedTuple):
    """What is sent: arrays of the shape of the parameters, and numbers that no data entered (the step length walked).

    A parameter that is one number is an array of one: Flower's clipping passes over arrays without an axis.
    """

    arrays: dict[str, np.ndarray]  # e.g. "x/weights", "ag/weights", "y/weights"
    numbers: dict[str, float]  # e.g. "walked"


class StateSerializer:
    """Writes and reads the states of one method, for parameters like x0.

    A tree of the shape of the parameters is called x; a state's parts have the names of its fields. What a message has and a
    broadcast has not (the length walked in a round) goes down as zero; what only a broadcast has comes back as it was.

    >>> from fedlocal.methods import FedMiD
    >>> serializer = StateSerializer(FedMiD(client_step_size=0.5), {"weights": np.ones(2)})
    >>> serializer.down({"weights": np.ones(2)})
    Payload(arrays={'x/weights': array([1., 1.])}, numbers={'walked': 0.0})
    """

    def __init__(self, method: LocalMethod, x0: Params):
        def sent(x: Params) -> Server:
            return method.broadcast(method.init(x))

        def message(x: Params) -> Message:
            return method.finish(sent(x), first_client(method, x))[0]

        self.sent, self.sent_bare, sent_vectors = _form(sent, x0)
        self.message, self.message_bare, message_vectors = _form(message, x0)
        down, up = self._named(self.sent, self.sent_bare), self._named(self.message, self.message_bare)
        vectors = sent_vectors | message_vectors
        self.likes = {**down, **up, **down}  # names, shapes and types, in a fixed order; of both, those on the way down
        self.numbers = {n for n, a in self.likes.items() if a.shape == () and n.split("/")[0] not in vectors}

    def down(self, sent: Server) -> Payload:
        """Return what the server broadcasts, as a payload."""
        return self._payload({name: np.asarray(a) for name, a in self._named(sent, self.sent_bare).items()})

    def up(self, payload: Payload, message: Message) -> Payload:
        """Return the payload that a client answers with: what it got, plus its message."""
        arrays = self._all(payload)
        for name, change in self._named(message, self.message_bare).items():
            arrays[name] = np.asarray(arrays[name] + np.asarray(change), self.likes[name].dtype)
        return self._payload(arrays)

    def read_down(self, payload: Payload) -> Server:
        """Return what the server broadcast."""
        return self._read(self._all(payload), self.sent, self.sent_bare)

    def read_up(self, payload: Payload, reply: Payload) -> Message:
        """Return the message in a reply to a payload, or in the mean of such replies."""
        before, after = self._all(payload), self._all(reply)
        changes = {name: np.asarray(after[name] - before[name], a.dtype) for name, a in self.likes.items()}
        return self._read(changes, self.message, self.message_bare)

    def check(self, payload: Payload) -> None:
        """Raise ValueError if a payload from the network has other names, shapes or types, or is not finite."""
        if list(payload.arrays) != [n for n in self.likes if n not in self.numbers]:
            raise ValueError(f"arrays are called {list(payload.arrays)}")
        if set(payload.numbers) != self.numbers:
            raise ValueError(f"numbers are called {sorted(payload.numbers)}, not {sorted(self.numbers)}")
        for name, array in payload.arrays.items():
            like = self.likes[name]
            shape = like.shape or (1,)
            if array.shape != shape or array.dtype != like.dtype:
                raise ValueError(f"{name} is {array.dtype}{array.shape}, not {like.dtype}{shape}")
        wrong = [n for n, a in {**payload.arrays, **payload.numbers}.items() if not np.isfinite(a).all()]
        if wrong:
            raise ValueError(f"nan or inf in {', '.join(wrong)}")

    def _payload(self, arrays: dict[str, np.ndarray]) -> Payload:
        arrays = {name: arrays.get(name, np.zeros(a.shape, a.dtype)) for name, a in self.likes.items()}
        numbers = {name: float(arrays.pop(name)) for name in sorted(self.numbers)}
        return Payload({name: np.atleast_1d(a) for name, a in arrays.items()}, numbers)

    def _all(self, payload: Payload) -> dict[str, np.ndarray]:
        arrays = {name: a.reshape(self.likes[name].shape) for name, a in payload.arrays.items()}
        numbers = {name: np.asarray(value, self.likes[name].dtype) for name, value in payload.numbers.items()}
        return {**arrays, **numbers}

    def _read(self, arrays: dict[str, np.ndarray], like: Any, bare: bool) -> Any:
        names = self._named(like, bare)
        tree = serialization.from_arrays({name: arrays[name] for name in names}, {"x": like} if bare else like)
        return tree["x"] if bare else tree

    @staticmethod
    def _named(tree: Any, bare: bool) -> dict[str, Any]:
        leaves, _ = jax.tree_util.tree_flatten_with_path({"x": tree} if bare else tree)
        return {serialization.path_name(path): leaf for path, leaf in leaves}


def _form(tree_of: Any, x0: Params) -> tuple[Any, bool, set[str]]:
    """Return shapes and types of a tree, True if it has the shape of the parameters, and its fields that have."""
    fields = vector_fields(tree_of, x0)
    bare = fields == [None]
    return jax.eval_shape(tree_of, x0), bare, {"x"} if bare else {str(f) for f in fields}
