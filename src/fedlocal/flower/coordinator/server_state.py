"""Coordinator: a method's server between rounds. It knows no network: payloads go out, the mean of replies comes in."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod, Params, Round, Server
from fedlocal.flower.messages.serialization import Payload, StateSerializer
from fedlocal.methods import method_spec


class Coordinator:
    """The server's state, and its step. In the precision of x0, whatever JAX is set to.

    >>> from fedlocal.methods import FedAvg
    >>> server = Coordinator(FedAvg(client_step_size=0.1), np.zeros(1))
    >>> server.step(Payload({"x": np.array([0.5])}, {}))  # the mean of where clients ended
    >>> server.done, server.solution()
    (1, array([0.5]))
    """

    def __init__(self, method: LocalMethod, x0: Params):
        self.method, self.x0 = method, _numpy(x0)
        with self.precision():
            self.serializer = StateSerializer(method, self.x0)
            self.resume(0, _numpy(method.init(_jax(self.x0))))

    @cached_property
    def description(self) -> dict[str, Any]:
        """The method in plain values, as sites are sent it."""
        return method_spec.describe(self.method)

    @cached_property
    def digest(self) -> str:
        """A hash of the description, with which sites say what they answer."""
        return method_spec.digest(self.description)

    def precision(self) -> Any:
        """A context in which JAX computes as exactly as x0 is given."""
        return jax.enable_x64(any(a.dtype == np.float64 for a in jax.tree.leaves(self.x0)))

    def step(self, mean: Payload, participation: float = 1.0) -> None:
        """Take the server's step, with the mean of the replies to its payload from this share of all sites."""
        with self.precision():
            message = _jax(self.serializer.read_up(self.payload, mean))
            server = _numpy(self.method.update(_jax(self.server), message, Round(self.done, participation)))
        if not all(np.isfinite(a).all() for a in jax.tree.leaves(server)):
            raise FloatingPointError(f"diverged in round {self.done + 1}; try smaller step sizes")
        self.resume(self.done + 1, server)

    def resume(self, done: int, server: Server) -> None:
        """Continue with this state, after so many rounds."""
        self.done, self.server = done, server
        self._solution: Params | None = None  # of the present state, once it was asked for
        with self.precision():
            self.payload = self.serializer.down(_numpy(self.method.broadcast(_jax(server))))

    def solution(self) -> Params:
        """Return the model, as NumPy arrays that cannot be written to."""
        if self._solution is None:
            with self.precision():
                self._solution = _numpy(self.method.solution(_jax(self.server)))
        return self._solution


def _jax(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
