r"""Repetitions: answers that a site gave before, to another state.

An honest client's answer depends on the state that it was sent, so that the same answer to another state is an old one under
a new label, unless
  - a proximal map on the client sends many points to one (under a strong l1 penalty mirror descent ends at zero), or
  - so many local steps contract that they end at the client's own optimum wherever they began, or
  - the two states are as close as rounding: the run stands still.
Clients that only add up gradients return the state itself beside them; in dual averaging the proximal map acts on the point
where gradients are taken and not on the dual state, y <- y - eta g(prox(y)), which keeps two states apart while eta L < 1.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.messages.serialization import Payload
from fedlocal.flower.site.site import state_of
from fedlocal.methods.minibatch_sgd import GradientSum
from fedlocal.simulation.discrepancy import first_client

CLOSE = 1e-6  # relative; states of which the same answer is no wonder
FASTEST = 0.2  # contraction of a local step; a faster one takes a condition number below 1.25


class Repetitions:
    """Remembers each site's answers, each with the state that it was to."""

    def __init__(self, coordinator: Coordinator):
        self.coordinator, self.keeps_start = coordinator, _keeps_start(coordinator)
        # a state that sites were asked at: its hash, and how far the run had come, the sum of its states' largest changes
        self._state, self._travelled = "", 0.0
        self._answers: dict[str, dict[str, tuple[str, float]]] = {}  # of each site, with the state that each was to
        self._arrays: dict[str, np.ndarray] = {}

    def follow_state(self) -> None:
        """Take the coordinator's present state as the one that sites are asked at."""
        arrays, before = self.coordinator.payload.arrays, self._arrays
        moves = [float(np.max(np.abs(a - before[name]), initial=0.0)) for name, a in arrays.items() if before]
        self._state, self._arrays = state_of(arrays), arrays
        self._travelled += max(moves, default=0)

    def is_repeated(self, site: str, answer: dict[str, np.ndarray]) -> bool:
        """Return True if the site gave this answer before to a state that is not close to the present one."""
        now = (self._state, self._travelled)
        state, travelled = self._answers.setdefault(site, {}).setdefault(state_of(answer), now)
        size = 1 + max(float(np.max(np.abs(a), initial=0.0)) for a in self._arrays.values())
        return state != self._state and self._travelled - travelled > CLOSE * size

    def are_impossible(self, steps: int) -> bool:
        """Return True if no honest client repeats itself after so many local steps from different states."""
        precision = max(np.finfo(a.dtype).eps for a in self._arrays.values())
        return self.keeps_start is True or (self.keeps_start is None and FASTEST**steps > precision)


def _keeps_start(coordinator: Coordinator) -> bool | None:
    """True: an answer holds the state it is to. None: it depends on the number of steps. False: a proximal map may lose it."""
    method, serializer, x0 = coordinator.method, coordinator.serializer, coordinator.x0
    with coordinator.precision():
        if isinstance(jax.eval_shape(lambda x: first_client(method, x), x0), GradientSum):
            return True
        affine = method.affine(1)
        if affine is not None:
            found = affine.proximal
            if found is None or found.dual or not found.on_clients:
                return None
            psi = found.psi  # prox(x) = clip(soft(x, t l1) / (1 + t l2), lower, upper) may shrink to zero, or clip
            return False if any(map(np.any, (psi.l1, np.isfinite(psi.lower), np.isfinite(psi.upper)))) else None
        # another method: does a client that meets no gradients answer with what it was sent?
        rng = np.random.default_rng(0)
        arrays = {n: rng.uniform(0.1, 0.9, a.shape).astype(a.dtype) for n, a in coordinator.payload.arrays.items()}
        payload = Payload(arrays, coordinator.payload.numbers)
        sent = jax.tree.map(jnp.asarray, serializer.read_down(payload))
        client = method.step(method.start(sent, method.init_memory(x0)), lambda x: jax.tree.map(jnp.zeros_like, x))
        reply = serializer.up(payload, jax.tree.map(np.asarray, method.finish(sent, client)[0]))
    return None if all(np.array_equal(reply.arrays[name], a) for name, a in arrays.items()) else False
