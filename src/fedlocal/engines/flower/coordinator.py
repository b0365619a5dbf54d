"""Coordinator: a method's server between rounds. It knows no network: letters go out, the mean of replies comes in."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod, Params, Server
from fedlocal.engines.flower.letters import Letter, Letters


class Coordinator:
    """The server's state, and its step. In the precision of x0, whatever JAX is set to.

    >>> from fedlocal.methods import FedAvg
    >>> server = Coordinator(FedAvg(client_step_size=0.1), np.zeros(1))
    >>> server.step(Letter({"x": np.array([0.5])}, {}))  # the mean of where clients ended
    >>> server.done, server.solution()
    (1, array([0.5]))
    """

    def __init__(self, method: LocalMethod, x0: Params):
        self.method, self.x0, self.done = method, jax.tree.map(np.asarray, x0), 0
        with self.precision():
            self.letters = Letters(method, self.x0)
            self.server: Server = _numpy(method.init(_jax(self.x0)))
        self.letter = self._letter()

    def precision(self) -> Any:
        """A context in which JAX computes as exactly as x0 is given."""
        return jax.enable_x64(any(a.dtype == np.float64 for a in jax.tree.leaves(self.x0)))

    def step(self, mean: Letter) -> None:
        """The server's step, with the mean of the replies to its letter."""
        with self.precision():
            message = _jax(self.letters.read_up(self.letter, mean))
            server = _numpy(self.method.update(_jax(self.server), message))
        if not all(np.isfinite(a).all() for a in jax.tree.leaves(server)):
            raise FloatingPointError(f"diverged in round {self.done + 1}; try smaller step sizes")
        self.resume(self.done + 1, server)

    def resume(self, done: int, server: Server) -> None:
        """Continue with this state, after so many rounds."""
        self.done, self.server = done, server
        self.letter = self._letter()

    def solution(self) -> Params:
        """The model, as NumPy arrays."""
        with self.precision():
            return _numpy(self.method.solution(_jax(self.server)))

    def penalty(self) -> float:
        """psi of the model; zero for a method without a regulariser."""
        psi = getattr(self.method, "regularizer", None)
        with self.precision():
            return 0.0 if psi is None else float(psi.value(_jax(self.solution())))

    def _letter(self) -> Letter:
        with self.precision():
            return self.letters.down(_numpy(self.method.broadcast(_jax(self.server))))


def _jax(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
