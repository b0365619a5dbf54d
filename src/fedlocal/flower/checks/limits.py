r"""Limits: what an honest answer to a state looks like. Numbers that depend on no data are computed here.

A client that meets no gradients ends at a known state. Gradients of size G in column j move it by at most reach G, where reach
is what a constant gradient of one moves. This holds for clients that add up gradients at one point, and for local steps that
are affine but for a proximal map of the form soft(x) / (1 + t l2), for that map never brings two numbers further apart.
In column j, with s the largest slope of a row's loss and p the largest point on the way without gradients,
    |g_j| <= s sqrt(mean a_j^2) + l2 |x_j|   (Cauchy and Schwarz),   |x_j| <= p_j + sum_i c |g_j at step i|,
where c is the reach of one step, so that after K steps |g_j| <= (s sqrt(mean a_j^2) + l2 p_j) exp(l2 c K)   (Gronwall).
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import LocalMethod, Params
from fedlocal.flower.checks.site_moments import LossBounds
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.messages.serialization import Payload
from fedlocal.methods.minibatch_sgd import GradientSum
from fedlocal.simulation.discrepancy import first_client

PROBE, LARGE = 0.37, 1e6  # gradients with which a method's reach is tried
SLACK = 1e-6  # relative
THRESHOLDS = 1e-3  # relative; what a penalty takes from a reach that is tried with LARGE
MOST_GROWTH = 100.0  # exponent; a run that grows more has diverged


class Limits:
    """Computes, for a number of local steps, the numbers in a reply and how far its arrays can be from what was sent."""

    def __init__(self, coordinator: Coordinator, bounds: LossBounds | None):
        self.coordinator, x0 = coordinator, coordinator.x0
        linear = isinstance(x0, Mapping) and set(x0) <= {"weights", "intercept"} and np.ndim(x0["weights"]) == 1
        self.slope, self.l2 = (None, 0.0) if bounds is None or not linear else (bounds.slope, bounds.l2)
        with coordinator.precision():
            first = jax.eval_shape(lambda x: first_client(coordinator.method, x), x0)
        self.stays = isinstance(first, GradientSum)  # clients add up gradients at one point
        self.bounded = self.stays or _is_affine(coordinator.method)
        self._reach: dict[int, dict[str, float]] = {}
        still, moved = self._state(1, 0.0)[0], self._state(1, PROBE)[0]
        self.free_of_data = {n for n in still.numbers if still.numbers[n] == moved.numbers[n]}

    def numbers(self, steps: int) -> dict[str, float]:
        """Return the numbers of a reply after so many steps, as far as no data enter them."""
        numbers = self._state(steps, 0.0)[0].numbers
        return {name: value for name, value in numbers.items() if name in self.free_of_data}

    def check(self, reply: Payload, steps: int, second_moments: np.ndarray | None) -> None:
        """Raise ValueError if a reply is beyond what the step sizes allow; do nothing where there is no bound.

        `second_moments` are at least the mean squares of the columns over the rows of every step.
        """
        if self.slope is None or second_moments is None or not self.bounded:
            return
        (still, points), reach = self._state(steps, 0.0), self._reach_of(steps)
        sizes = self.gradient_sizes(points, second_moments, steps)
        for name, array in reply.arrays.items():
            part = name.split("/")[-1]
            if part not in sizes:
                continue
            slack = SLACK + steps * np.finfo(array.dtype).eps
            away = np.abs(array - still.arrays[name])
            most = reach[name] * np.atleast_1d(sizes[part]) * (1 + slack) + slack * (1 + np.abs(still.arrays[name]))
            if (away > most).any():
                times = float(np.max(away / most))
                raise ValueError(f"{name} moved {times:.3g} times as far as its moments and the step sizes allow")

    def check_gradient(self, gradient: Params, second_moments: np.ndarray | None) -> None:
        """Raise ValueError if a gradient at the model is beyond what a site's moments allow."""
        if self.slope is None or second_moments is None:
            return
        points = jax.tree.map(np.abs, self.coordinator.solution())
        for part, size in self.gradient_sizes(points, second_moments, 0).items():
            times = float(np.max(np.abs(gradient[part]) / (size * (1 + SLACK) + SLACK)))
            if times > 1:
                raise ValueError(f"its gradient is {times:.3g} times as large as its moments allow")

    def gradient_sizes(self, points: Params, second_moments: np.ndarray, steps: int) -> dict[str, Any]:
        """Return the largest gradient of each column in so many local steps; `points` has |x| on the way without gradients."""
        assert self.slope is not None
        sizes: dict[str, Any] = {"weights": self.slope * np.sqrt(second_moments)}
        if self.l2:
            grows = 0.0 if self.stays or not steps else self.l2 * steps * max(self._reach_of(1).values())
            growth = np.exp(min(grows, MOST_GROWTH))
            sizes["weights"] = (sizes["weights"] + self.l2 * points["weights"]) * growth
        if "intercept" in points:
            sizes["intercept"] = self.slope
        return sizes

    def _reach_of(self, steps: int) -> dict[str, float]:
        """Return how far each array of a reply moves per unit of a gradient that is the same in all steps."""
        if steps not in self._reach:
            far, still = self._state(steps, LARGE)[0].arrays, self._state(steps, 0.0)[0].arrays
            away = {name: float(np.max(np.abs(far[name] - still[name]))) / LARGE for name in still}
            self._reach[steps] = {name: a * (1 + THRESHOLDS) for name, a in away.items()}
        return self._reach[steps]

    def _state(self, steps: int, gradient: float) -> tuple[Payload, Params]:
        """Return a client's answer to the present state if all its gradients are this number, and its largest |x|."""
        server, payload = self.coordinator, self.coordinator.payload
        with server.precision():
            x0 = jax.tree.map(jnp.asarray, server.x0)
            constant = jax.tree.map(lambda a: jnp.full_like(a, gradient), x0)
            sent = jax.tree.map(jnp.asarray, server.serializer.read_down(payload))
            message, points = _constant_gradient_round(server.method, sent, x0, constant, jnp.asarray(steps, jnp.int32))
        return server.serializer.up(payload, jax.tree.map(np.asarray, message)), jax.tree.map(np.asarray, points)


def _is_affine(method: LocalMethod) -> bool:
    """Return True if local steps are affine but for a proximal map without a constraint."""
    affine = method.affine(1)
    if affine is None:
        return False
    psi = None if affine.proximal is None else affine.proximal.psi
    return psi is None or bool(np.all(np.isneginf(psi.lower)) and np.all(np.isposinf(psi.upper)))


@eqx.filter_jit
def _constant_gradient_round(
    method: LocalMethod, sent: Any, x0: Params, gradient: Params, steps: jax.Array
) -> tuple[Any, Params]:
    """Return a client's message, and the largest |x| at which it asked for a gradient, if all its gradients are this one."""

    def step(_: jax.Array, carry: tuple[Any, Params]) -> tuple[Any, Params]:
        client, largest = carry
        asked: list[Params] = []

        def grad_fn(x: Params) -> Params:
            asked.append(x)
            return gradient

        client = method.step(client, grad_fn)
        for x in asked:
            largest = jax.tree.map(lambda a, b: jnp.maximum(a, jnp.abs(b)), largest, x)
        return client, largest

    client = method.start(sent, method.init_memory(x0))
    client, largest = jax.lax.fori_loop(0, steps, step, (client, jax.tree.map(jnp.zeros_like, x0)))
    return method.finish(sent, client)[0], largest
