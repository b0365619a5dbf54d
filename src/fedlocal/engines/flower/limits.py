"""Limits: what an honest answer to a state looks like. What depends on no data is computed here and not believed."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod, Params
from fedlocal.engines.flower.coordinator import Coordinator
from fedlocal.engines.flower.letters import Letter
from fedlocal.engines.flower.loss_bounds import LossBounds

PROBE, LARGE = 0.37, 1e6  # gradients with which a method's reach is tried
SLACK = 1e-6  # relative


class Limits:
    """Computes, for a number of local steps, the numbers in a reply and how far its arrays can be from what was sent."""

    def __init__(self, coordinator: Coordinator, bounds: LossBounds | None):
        self.coordinator, self.bounds = coordinator, bounds
        x0 = coordinator.x0
        self.linear = isinstance(x0, Mapping) and set(x0) <= {"weights", "intercept"} and np.ndim(x0["weights"]) == 1
        self._reach: dict[int, dict[str, float]] = {}
        still, moved = self._state(1, 0.0), self._state(1, PROBE)
        self.free_of_data = {n for n in still.numbers if still.numbers[n] == moved.numbers[n]}

    def numbers(self, steps: int) -> dict[str, float]:
        """The numbers of a reply after so many steps, as far as no data enter them."""
        numbers = self._state(steps, 0.0).numbers
        return {name: value for name, value in numbers.items() if name in self.free_of_data}

    def check(self, reply: Letter, steps: int, second_moments: np.ndarray | None) -> None:
        """Say by how much a reply is beyond what a site's moments and the step sizes allow.

        Without gradients a client ends at a known state. A gradient moves it by at most the method's reach times its size,
        which by Cauchy and Schwarz is at most slope sqrt(mean a_j^2) + l2 |x_j| in column j.
        """
        if self.bounds is None or self.bounds.slope is None or second_moments is None or not self.linear:
            return
        still, reach = self._state(steps, 0.0).arrays, self._reach_of(steps)
        sizes = self.gradient_sizes(second_moments, steps)
        for name, array in reply.arrays.items():
            part = name.split("/")[-1]
            if part not in sizes:
                continue
            away = np.abs(array - still[name])
            most = reach[name] * np.atleast_1d(sizes[part]) * (1 + SLACK) + SLACK * (1 + np.abs(still[name]))
            if (away > most).any():
                times = float(np.max(away / most))
                raise ValueError(f"{name} moved {times:.3g} times as far as its moments and the step sizes allow")

    def check_gradient(self, gradient: Params, second_moments: np.ndarray | None) -> None:
        """Say by how much a gradient at the model is beyond what a site's moments allow."""
        if self.bounds is None or self.bounds.slope is None or second_moments is None or not self.linear:
            return
        for part, size in self.gradient_sizes(second_moments, 0).items():
            times = float(np.max(np.abs(gradient[part]) / (size * (1 + SLACK) + SLACK)))
            if times > 1:
                raise ValueError(f"its gradient is {times:.3g} times as large as its moments allow")

    def gradient_sizes(self, second_moments: np.ndarray, steps: int) -> dict[str, Any]:
        """The largest gradient of each column on the way of so many local steps."""
        assert self.bounds is not None
        assert self.bounds.slope is not None
        x = self.coordinator.solution()
        sizes: dict[str, Any] = {"weights": self.bounds.slope * np.sqrt(second_moments)}
        if self.bounds.l2:
            way = max(self._reach_of(steps).values()) if steps else 0.0
            sizes["weights"] = sizes["weights"] + self.bounds.l2 * (np.abs(x["weights"]) + 2 * way * sizes["weights"])
        if "intercept" in x:
            sizes["intercept"] = self.bounds.slope
        return sizes

    def _reach_of(self, steps: int) -> dict[str, float]:
        """How far each array of a reply moves per unit of a gradient that is the same in all steps."""
        if steps not in self._reach:
            far, still = self._state(steps, LARGE).arrays, self._state(steps, 0.0).arrays
            self._reach[steps] = {name: float(np.max(np.abs(far[name] - still[name]))) / LARGE for name in still}
            self._reach[steps] = {name: a * (1 + 1e-3) for name, a in self._reach[steps].items()}
        return self._reach[steps]

    def _state(self, steps: int, gradient: float) -> Letter:
        """What a client answers to the present state when all its gradients are this number."""
        server, letter = self.coordinator, self.coordinator.letter
        with server.precision():
            x0 = jax.tree.map(jnp.asarray, server.x0)
            constant = jax.tree.map(lambda a: jnp.full_like(a, gradient), x0)
            sent = jax.tree.map(jnp.asarray, server.letters.read_down(letter))
            message = _walk(server.method, sent, x0, constant, jnp.asarray(steps, jnp.int32))
        return server.letters.up(letter, jax.tree.map(np.asarray, message))


@eqx.filter_jit
def _walk(method: LocalMethod, sent: Any, x0: Params, gradient: Params, steps: jax.Array) -> Any:
    client = method.start(sent, method.init_memory(x0))
    client = jax.lax.fori_loop(0, steps, lambda _, c: method.step(c, lambda x: gradient), client)
    return method.finish(sent, client)[0]
